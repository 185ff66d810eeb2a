#!/bin/sh
# Unpacks a QEMU whose emulation other kernels survive, and prints its folder. Debian 12's own, 7.2, leaves wrong flags after cmpxchg16b and
# runs code that a guest with several CPUs patched meanwhile: guests panic. Its libraries are those that install.sh has brought.
#   qemu.sh FOLDER
set -eu

folder=$1/qemu
# shellcheck disable=SC1091
. "$(dirname "$0")/lists.sh"
if [ ! -e "$folder/complete" ]; then
    rm -rf "$folder"
    mkdir -p "$folder"
    own_lists "$1" bookworm-backports
    for package in qemu-system-x86 qemu-system-data; do
        (cd "$folder" && own_apt download "$package") || fail "$package cannot be had from $mirror"
        dpkg -x "$folder/$package"_*.deb "$folder"
        rm -f "$folder/$package"_*.deb
    done
    "$folder/usr/bin/qemu-system-x86_64" --version >"$folder/complete" || fail "QEMU does not start"
fi
echo "$folder"
