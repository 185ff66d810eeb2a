#!/bin/bash
# Holds finished packages against what they promise: the programs ask for no symbol of glibc later than 2.28, and on a Debian 11 (glibc
# 2.31) the .deb installs, agent and collector start, and the collector answers. Root; changes nothing outside of the folder.
#   check-portable.sh FOLDER
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
folder=$(cd "$1" && pwd)
newest_allowed=2.28

fail() { echo "check-portable: $*" >&2 && exit 1; }
work=$(mktemp -d "$folder/.check.XXXXXX")
trap 'rm -rf "$work"' EXIT

programs=0
for archive in "$folder"/*.tar.gz; do
    mkdir -p "$work/unpacked"
    tar -xzf "$archive" -C "$work/unpacked"
done
for program in "$work"/unpacked/*/bin/*; do
    newest=$(readelf -VW "$program" | grep -oE 'GLIBC_[0-9.]+' | sed 's/GLIBC_//' | sort -uV | tail -n 1)
    [ -n "$newest" ] || fail "$program names no version of glibc"
    [ "$(printf '%s\n' "$newest" "$newest_allowed" | sort -V | tail -n 1)" = "$newest_allowed" ] ||
        fail "$program needs glibc $newest, later than $newest_allowed"
    echo "$(basename "$(dirname "$(dirname "$program")")"): glibc $newest"
    programs=$((programs + 1))
done
[ "$programs" -ge 2 ] || fail "$folder has the programs of $programs packages"
(cd "$folder" && sha256sum --quiet --check SHA256SUMS)

tar=$("$here/root.sh" "$here/../../target/clean-root" bullseye)
mkdir "$work/root"
tar --numeric-owner -xf "$tar" -C "$work/root"
cp "$folder"/*_"$(dpkg --print-architecture)".deb "$work/root/var/tmp/"
cat >"$work/root/var/tmp/inside.sh" <<'INSIDE'
set -eu
export DEBIAN_FRONTEND=noninteractive LC_ALL=C.UTF-8 PATH=/usr/sbin:/usr/bin:/sbin:/bin
mount -t proc proc /proc
apt-get install --yes --no-install-recommends /var/tmp/*.deb
ldd --version | sed -n 1p
tailwater --version
tailwater-agent --version
tailwater-agent check-config >/dev/null
mkdir /var/tmp/data
tailwater serve --data /var/tmp/data >/var/tmp/log 2>&1 &
collector=$!
for _ in $(seq 100); do
    if (exec 3<>/dev/tcp/127.0.0.1/4780) 2>/dev/null; then break; fi
    kill -0 $collector || { cat /var/tmp/log; exit 1; }
    sleep 0.1
done
exec 3<>/dev/tcp/127.0.0.1/4780
printf 'GET /api/v1/agents HTTP/1.0\r\nHost: 127.0.0.1:4780\r\n\r\n' >&3
head -n 1 <&3 | grep ' 200 '
kill $collector
wait $collector
INSIDE
# A network of its own, whose loopback has to be brought up from out here: a minimal Debian has no program for that.
unshare --mount --pid --net --fork --kill-child=KILL sh -c '
    ip link set lo up && exec chroot "$1" bash /var/tmp/inside.sh' check-portable "$work/root"
echo "check-portable: ok"
