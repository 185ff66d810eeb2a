#!/bin/sh
# Makes a minimal Debian with systemd, of this machine's release or of another, from the mirror that its apt is configured with, as a
# tar file. Of this machine's it has rpm as well, for the packages of other families. Does nothing when the file is there. Prints its name.
#   root.sh FOLDER [SUITE]
set -eu

# shellcheck disable=SC1091  # a file of the machine
own=$(. /etc/os-release && echo "$VERSION_CODENAME")
suite=${2:-$own}
include=systemd,systemd-sysv
[ "$suite" != "$own" ] || include=$include,rpm
file=$1/$suite-$(dpkg --print-architecture)-$include.tar
echo "$file"
[ -e "$file" ] && exit 0
mkdir -p "$1"
# shellcheck disable=SC2016  # apt fills these in
mirror=$(apt-get indextargets --format '$(SITE) $(RELEASE) $(COMPONENT)' 'Created-By: Packages' |
    awk -v suite="$own" '($2 == suite || $2 == "stable") && $3 == "main" && $1 ~ /^(https?|file|copy):/ { if (!found++) print $1 }')
mirror=${TAILWATER_TEST_MIRROR:-$mirror}
if [ -z "$mirror" ]; then
    echo "packages/root: apt of this machine knows no mirror of $suite main that debootstrap can fetch from" >&2
    echo "  remedy: TAILWATER_TEST_MIRROR=http://deb.debian.org/debian" >&2
    exit 1
fi
# debootstrap fetches by itself: through the proxy that apt uses, if it uses one.
http_proxy=${http_proxy:-}
https_proxy=${https_proxy:-}
eval "$(apt-config shell http_proxy Acquire::http::Proxy https_proxy Acquire::https::Proxy)"
for proxy in http_proxy https_proxy; do
    eval "value=\$$proxy"
    # shellcheck disable=SC2163,SC2154  # the variable that it names; eval sets it
    case $value in '' | DIRECT) unset "$proxy" ;; *) export "$proxy" ;; esac
done

work=$(mktemp -d "$1/.root.XXXXXX")
trap 'rm -rf "$work"' EXIT
trap 'exit 1' INT TERM
# What it mounts is mounted in here only, so that nothing is left over whatever happens. Twice, as a mirror may be in the middle of being renewed.
make_root() {
    rm -rf "$work/root"
    unshare --mount --pid --fork --kill-child debootstrap --variant=minbase --include="$include" \
        "$suite" "$work/root" "$mirror" >"$work/log" 2>&1
}
if ! make_root && ! { sleep 20; make_root; }; then
    tail -n 30 "$work/log" "$work/root/debootstrap/debootstrap.log" >&2 || true
    exit 1
fi
rm -f "$work"/root/var/cache/apt/archives/*.deb
tar --numeric-owner --one-file-system -C "$work/root" -cf "$work/tar" .
mv "$work/tar" "$file"
