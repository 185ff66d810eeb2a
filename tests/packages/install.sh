#!/bin/sh
# Installs what making packages and testing them needs beyond what building the programs does. Does nothing when all of it is there.
set -eu

packages=""
add() { case " $packages " in *" $1 "*) ;; *) packages="$packages $1" ;; esac; }
need() { # command package
    if ! command -v "$1" >/dev/null 2>&1; then add "$2"; fi
}
need rpmbuild rpm
need objcopy binutils
need xz xz-utils
need debootstrap debootstrap
need unshare util-linux
need nsenter util-linux
need pivot_root util-linux

[ -z "$packages" ] && exit 0
if ! command -v apt-get >/dev/null 2>&1; then
    echo "packages/install: this machine has no apt-get, and what these Debian packages hold is missing:$packages" >&2
    echo "  remedy: install it with the machine's own package manager, where names may differ, and start again" >&2
    exit 1
fi
if [ "$(id -u)" -ne 0 ]; then
    echo "packages/install: needs root to install:$packages" >&2
    echo "  run: sudo $0" >&2
    exit 1
fi
export DEBIAN_FRONTEND=noninteractive
# shellcheck disable=SC2086  # a list of packages on purpose
if ! apt-get update -qq || ! apt-get install -y -qq --no-install-recommends $packages >/dev/null; then
    echo "packages/install: apt-get could not install:$packages" >&2
    echo "  remedy: see what it said above (no network, no room, another apt-get at work), and start again" >&2
    exit 1
fi
