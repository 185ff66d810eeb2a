#!/bin/sh
# Makes a minimal Debian with systemd, of this machine's release and from the mirror that its apt is configured with, as a tar file.
# Does nothing when the file is there. Prints its name.
#   root.sh FOLDER
set -eu

# shellcheck disable=SC1091  # a file of the machine
suite=$(. /etc/os-release && echo "$VERSION_CODENAME")
file=$1/$suite-$(dpkg --print-architecture).tar
echo "$file"
[ -e "$file" ] && exit 0
mkdir -p "$1"
# shellcheck disable=SC2016  # apt fills these in
mirror=$(apt-get indextargets --format '$(SITE) $(RELEASE) $(COMPONENT)' 'Created-By: Packages' |
    awk -v suite="$suite" '$2 == suite && $3 == "main" { print $1; exit }')
if [ -z "$mirror" ]; then
    echo "packages/root: apt of this machine knows no mirror of $suite main" >&2
    echo "  remedy: name one in /etc/apt/sources.list" >&2
    exit 1
fi
# debootstrap fetches by itself: through the proxy that apt uses, if it uses one.
http_proxy=${http_proxy:-}
eval "$(apt-config shell http_proxy Acquire::http::Proxy)"
[ -z "$http_proxy" ] || export http_proxy

work=$(mktemp -d "$1/.root.XXXXXX")
trap 'rm -rf "$work"' EXIT
trap 'exit 1' INT TERM
# What it mounts is mounted in here only, so that nothing is left over whatever happens.
if ! unshare --mount --pid --fork --kill-child debootstrap --variant=minbase --include=systemd,systemd-sysv \
    "$suite" "$work/root" "$mirror" >"$work/log" 2>&1; then
    tail -n 30 "$work/log" "$work/root/debootstrap/debootstrap.log" >&2 || true
    exit 1
fi
rm -f "$work"/root/var/cache/apt/archives/*.deb
tar --numeric-owner --one-file-system -C "$work/root" -cf "$work/tar" .
mv "$work/tar" "$file"
