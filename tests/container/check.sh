#!/bin/bash
# Builds both images of deploy/container/Containerfile, starts them with the entry point, command and user that they have, and lets the
# agent of the one stream to the collector of the other. No registry of images is needed: the base images are made here by mmdebstrap
# and get the names that the file asks for; the Rust image gets this machine's toolchain. Layers are whole folders and containers are
# chroots, because that works where neither overlays nor namespaces can be had. What is not checked is therefore an engine's own
# confinement: the options in the file's header.
#   check.sh              programs built in the container, as the file says (10 minutes and more)
#   check.sh FOLDER       with the programs in FOLDER in place of the build stage
set -euo pipefail
cd "$(dirname "$0")/../.."
programs=${1:-}
[ "$(id -u)" -eq 0 ] || { echo "container-check: needs root: sudo $0" >&2; exit 1; }
work=$PWD/target/container
mkdir -p "$work"
engine() { buildah --root "$work/storage" --runroot "$work/run" --storage-driver vfs "$@"; }
export BUILDAH_ISOLATION=chroot
containers=()
pids=()
clean() {
    for pid in "${pids[@]}"; do kill "$pid" 2>/dev/null && wait "$pid" || true; done
    for container in "${containers[@]}"; do engine rm "$container" >/dev/null || true; done
    # The base images stay for the next time; layers that are whole folders would soon fill the disk.
    engine rmi --force tailwater-check-agent tailwater-check-collector >/dev/null 2>&1 || true
    engine rmi --prune --force >/dev/null 2>&1 || true
}
trap clean EXIT
new() { # what of: a container of it, by name
    local name
    # Chroots filter bpf(2) as engines do that give it to SYS_ADMIN alone: the file's header says what to do then.
    name=$(engine from --pull=never --security-opt seccomp=unconfined "$2")
    containers+=("$name")
    printf -v "$1" %s "$name"
}
has() { engine inspect --type image "$1" >/dev/null 2>&1; }

debian=docker.io/library/debian:bookworm-slim
if ! has "$debian"; then
    echo "container-check: making $debian" >&2
    mmdebstrap --quiet --variant=minbase bookworm "$work/base.tar"
    base=$(engine from scratch)
    containers+=("$base")
    engine add --quiet "$base" "$work/base.tar" / >/dev/null
    engine config --cmd bash "$base"
    engine commit --quiet "$base" "$debian" >/dev/null
    rm "$work/base.tar"
fi

contexts=()
volumes=()
if [ -n "$programs" ]; then
    rm -rf "$work/programs" && mkdir -p "$work/programs/programs"
    for program in tailwater tailwater-agent; do
        strip --strip-unneeded -o "$work/programs/programs/$program" "$programs/$program"
    done
    contexts=(--build-context "build=$work/programs")
else
    rust=docker.io/library/rust:1.95-bookworm
    if ! has "$rust"; then
        echo "container-check: making $rust" >&2
        new base "$debian"
        engine run "$base" -- sh -c 'apt-get update -qq && apt-get install -y -qq --no-install-recommends ca-certificates gcc libc6-dev >/dev/null'
        engine copy --quiet "$base" "$(rustc --print sysroot)/" /usr/local/rust >/dev/null
        engine config --env PATH=/usr/local/rust/bin:/usr/sbin:/usr/bin:/sbin:/bin --env CARGO_HOME=/usr/local/cargo "$base"
        engine commit --quiet "$base" "$rust" >/dev/null
    fi
    # The authorities that this machine trusts, of a proxy on the way out for example.
    volumes=(--volume /etc/ssl/certs:/etc/ssl/certs:ro)
fi
for target in agent collector; do
    echo "container-check: building $target" >&2
    engine bud --quiet --pull-never --network host "${volumes[@]}" "${contexts[@]}" --file deploy/container/Containerfile \
        --ignorefile deploy/container/Containerfile.dockerignore --target "$target" --tag "tailwater-check-$target" .
done

start() { # image, log, further arguments: runs what the image says, as the user that it says
    local container user entry
    new container "tailwater-check-$1"
    mapfile -t entry < <(engine inspect --type image "tailwater-check-$1" | jq -r '.OCIv1.config | (.Entrypoint + .Cmd)[]')
    user=$(engine inspect --type image "tailwater-check-$1" | jq -r .OCIv1.config.User)
    echo "container-check: ${entry[*]} as $user" >&2
    engine run --network host --user "$user" "${capabilities[@]}" "${volumes[@]}" "$container" -- \
        "${entry[@]}" "${@:3}" >"$2" 2>&1 &
    pids+=($!)
}
port() { python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'; }
http=127.0.0.1:$(port)
grpc=127.0.0.1:$(port)
await() { # what, log, command: until it succeeds, 30 s at most
    local n
    for n in $(seq 150); do
        if "${@:3}" >/dev/null 2>&1; then return; fi
        sleep 0.2
    done
    echo "container-check: waited 30 s for $1" >&2
    cat "$2" >&2
    exit 1
}
capabilities=(--cap-drop all)
volumes=()
start collector "$work/collector.log" --http "$http" --grpc "$grpc"
await "the collector to be ready" "$work/collector.log" curl -sf "http://$http/readyz"
# With "--cap-drop all" buildah lets none be added: those that it gives by itself are taken one by one.
capabilities=()
for capability in CHOWN DAC_OVERRIDE FOWNER FSETID KILL SETGID SETUID SETPCAP NET_BIND_SERVICE SYS_CHROOT SETFCAP; do
    capabilities+=(--cap-drop "CAP_$capability")
done
for capability in BPF PERFMON SYS_PTRACE DAC_READ_SEARCH; do capabilities+=(--cap-add "CAP_$capability"); done
volumes=(--volume /sys/fs/cgroup:/sys/fs/cgroup:ro)
start agent "$work/agent.log" --collector "http://$grpc" --host container
streams() {
    curl -sf "http://$http/api/v1/agents" | jq -e '.agents[] | select(.host == "container" and .batches > 20)
        | select([.coverage[] | select(.covered)] | length >= 8)'
}
await "windows of the agent" "$work/agent.log" streams
curl -sf "http://$http/api/v1/agents" |
    jq -r '.agents[] | "container-check: \(.host) streams, \([.coverage[] | select(.covered)] | length) of \(.coverage | length) signals"'
curl -sf "http://$http/" | grep '<title>' >/dev/null || { echo "container-check: no page" >&2; exit 1; }
echo "container-check: both images work"
