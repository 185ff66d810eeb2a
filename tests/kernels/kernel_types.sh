#!/bin/sh
# Makes tests/kernels/types anew: of each kernel of the matrix, and of some on arm64, what the programs ask of its types.
#   kernel_types.sh OBJECTS       the folder of the compiled programs
#   HEADERS=FOLDER         with 5.15-x86_64.h and 5.15-arm64.h, all types of an Ubuntu 22.04's kernel in C
#                          (bpftool btf dump file vmlinux format c): Debian has no 5.15
set -eu

here=$(dirname "$0")
out=$here/types
cache=/var/cache/tailwater-kernels
HEADERS=${HEADERS-$cache/headers}

missing=
for package in dwarves kmod zstd lz4; do
    dpkg -s "$package" >/dev/null 2>&1 || missing="$missing $package"
done
# shellcheck disable=SC2086  # a list of packages on purpose
[ -z "$missing" ] || "$here/../../deploy/debian-packages.sh" "$0" $missing

set -- "$1"
one() { # NAME SUITE PATTERN [ARCHITECTURE]
    kernel=$("$here/fetch.sh" "$cache" "$2" "$3" ${4+"$4"})
    image=$(ls "$kernel"/boot/vmlinuz-* "$kernel"/usr/lib/modules/*/vmlinuz 2>/dev/null | sed -n 1p)
    sources="$sources $1=$image"
}
sources=
one 5.10-x86_64 bullseye-security 'linux-image-5\.10\.0-[0-9]+-cloud-amd64-unsigned'
one 6.1-x86_64 bookworm 'linux-image-6\.1\.0-[0-9]+-cloud-amd64-unsigned'
one 6.1-rt-x86_64 bookworm 'linux-image-6\.1\.0-[0-9]+-rt-amd64-unsigned'
one 6.1-arm64 bookworm 'linux-image-6\.1\.0-[0-9]+-cloud-arm64-unsigned' arm64
one 6.12-x86_64 bookworm-backports 'linux-image-6\.12\..*-cloud-amd64-unsigned'
one 6.16-x86_64 trixie-backports 'linux-image-6\.16\..*-cloud-amd64'
one newest-x86_64 trixie-backports 'linux-binary-7\..*-cloud-amd64'
one newest-arm64 trixie-backports 'linux-binary-7\..*-cloud-arm64' arm64
for name in 5.15-x86_64 5.15-arm64; do
    if [ -e "$HEADERS/$name.h" ]; then
        sources="$sources $name=$HEADERS/$name.h"
    else
        echo "kernels/types: $HEADERS/$name.h is not there: $name stays as it is, and knows nothing that is asked for newly" >&2
    fi
done
# shellcheck disable=SC2086  # a list on purpose: no path in it has a space
python3 "$here/kernel_types.py" "$1" "$out" $sources
