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
# shellcheck disable=SC2086  # a list of packages on purpose
"$(dirname "$0")/../../deploy/debian-packages.sh" "$0" $packages
