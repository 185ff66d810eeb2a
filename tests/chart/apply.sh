#!/bin/bash
# Installs the Helm chart in a real API server: with its defaults, upgraded, with everything switched on, with agents that join, and taken away
# again. And asks that server's admission which pod security level each pod needs, and as the collector whose an agent's token is. kube-apiserver and etcd are built from their Go modules, as
# apiserver/go.mod pins them (some four minutes on two CPUs, once), and listen on loopback. No controller and no kubelet run: what is
# tested is that a server takes and keeps the objects, not that pods start. Needs Go 1.26 and Python.
set -euo pipefail
cd "$(dirname "$0")/../.."
chart=deploy/helm/tailwater
tools=$PWD/target/chart

tests/chart/check.sh
(
    cd tests/chart/apiserver
    export GOFLAGS=-mod=readonly
    version=$(go list -m -f '{{.Version}}' k8s.io/kubernetes)
    stamp="-X k8s.io/component-base/version.gitVersion=$version -X k8s.io/component-base/version.gitMajor=1"
    stamp+=" -X k8s.io/component-base/version.gitMinor=$(cut -d. -f2 <<<"$version")"
    go build -ldflags "-s -w $stamp" -o "$tools/kube-apiserver" k8s.io/kubernetes/cmd/kube-apiserver
    go build -ldflags "-s -w" -o "$tools/etcd" go.etcd.io/etcd/server/v3
)

work=$(mktemp -d)
pids=()
finish() {
    # At once: the server would wait for an etcd that is gone, and nothing of theirs is kept.
    for pid in "${pids[@]}"; do kill -KILL "$pid" 2>/dev/null || true; done
    for pid in "${pids[@]}"; do wait "$pid" 2>/dev/null || true; done
    rm -rf "$work"
}
trap finish EXIT
free() { python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'; }
client=$(free) peer=$(free) port=$(free)
token=$(openssl rand -hex 16)

"$tools/etcd" --data-dir "$work/etcd" --log-level warn --listen-client-urls "http://127.0.0.1:$client" \
    --advertise-client-urls "http://127.0.0.1:$client" --listen-peer-urls "http://127.0.0.1:$peer" \
    --initial-advertise-peer-urls "http://127.0.0.1:$peer" --initial-cluster "default=http://127.0.0.1:$peer" >"$work/etcd.log" 2>&1 &
pids+=($!)
openssl genrsa -out "$work/accounts.key" 2048 2>/dev/null
echo "$token,admin,1,system:masters" >"$work/tokens.csv"
"$tools/kube-apiserver" --etcd-servers "http://127.0.0.1:$client" --bind-address 127.0.0.1 --secure-port "$port" \
    --advertise-address 192.0.2.1 --endpoint-reconciler-type none --cert-dir "$work/apiserver" --token-auth-file "$work/tokens.csv" \
    --authorization-mode RBAC --service-account-issuer https://kubernetes.default.svc --service-account-key-file "$work/accounts.key" \
    --service-account-signing-key-file "$work/accounts.key" --service-cluster-ip-range 192.0.2.0/24 >"$work/apiserver.log" 2>&1 &
pids+=($!)

export TAILWATER_CHART_SERVER=https://127.0.0.1:$port TAILWATER_CHART_TOKEN=$token TAILWATER_CHART_CA=$work/apiserver/apiserver.crt
if ! python3 tests/chart/objects.py ready; then
    echo "chart: the API server did not get ready; it said last:" >&2
    tail -n 5 "$work/etcd.log" "$work/apiserver.log" >&2
    exit 1
fi
helm() {
    HELM_CACHE_HOME=$work/helm HELM_CONFIG_HOME=$work/helm HELM_DATA_HOME=$work/helm "$tools/helm" \
        --kube-apiserver "$TAILWATER_CHART_SERVER" --kube-token "$token" --kube-ca-file "$TAILWATER_CHART_CA" "$@"
}
secrets=(--set tls.collectorSecret=collector,tls.agentSecret=agent)

helm install tailwater "$chart" --namespace tailwater --create-namespace "${secrets[@]}" >/dev/null
python3 tests/chart/objects.py installed tailwater tailwater
helm upgrade tailwater "$chart" --namespace tailwater "${secrets[@]}" --set-string collector.config='log = "debug"' >/dev/null
python3 tests/chart/objects.py upgraded tailwater tailwater
python3 tests/chart/objects.py levels tailwater tailwater
helm install everything "$chart" --namespace everything --create-namespace --values tests/chart/everything.yaml >/dev/null
python3 tests/chart/objects.py installed everything everything-tw
helm install joining "$chart" --namespace joining --create-namespace --set enrolment.enabled=true,enrolment.authoritySecret=authority >/dev/null
python3 tests/chart/objects.py installed joining joining-tailwater
python3 tests/chart/objects.py reviews joining joining-tailwater
helm uninstall joining --namespace joining >/dev/null
python3 tests/chart/objects.py gone joining joining-tailwater
helm uninstall tailwater --namespace tailwater >/dev/null
helm uninstall everything --namespace everything >/dev/null
python3 tests/chart/objects.py gone tailwater tailwater
python3 tests/chart/objects.py gone everything everything-tw
echo "chart: installed, upgraded and taken away again on $(python3 tests/chart/objects.py version)"
