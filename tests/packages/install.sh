#!/bin/sh
# Installs what making packages and testing them needs beyond what building the programs does. Does nothing when all of it is there.
set -eu

packages=""
need() { # command package
    if ! command -v "$1" >/dev/null 2>&1; then packages="$packages $2"; fi
}
need rpmbuild rpm
need objcopy binutils
need xz xz-utils
need debootstrap debootstrap
need unshare util-linux
need nsenter util-linux
need pivot_root util-linux

[ -z "$packages" ] && exit 0
if [ "$(id -u)" -ne 0 ]; then
    echo "packages/install: needs root to install:$packages" >&2
    echo "  run: sudo $0" >&2
    exit 1
fi
export DEBIAN_FRONTEND=noninteractive
apt-get update -qq
# shellcheck disable=SC2086  # a list of packages on purpose
apt-get install -y -qq --no-install-recommends $packages >/dev/null
