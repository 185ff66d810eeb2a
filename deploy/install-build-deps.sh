#!/bin/sh
# Installs what building Tailwater needs on a bare Debian machine beyond the Rust toolchain: clang and LLVM for the kernel programs,
# libbpf's headers, a C compiler for the TLS library. Does nothing when all of it is there.
set -eu

packages=""
add() { case " $packages " in *" $1 "*) ;; *) packages="$packages $1" ;; esac; }
need() { # command-or-file package
    if ! command -v "$1" >/dev/null 2>&1 && [ ! -e "$1" ]; then add "$2"; fi
}
need clang-19 clang-19
need llvm-strip-19 llvm-19
need /usr/include/bpf/bpf_helpers.h libbpf-dev
need cc gcc
need /usr/include/stdio.h libc6-dev
need make make
need jq jq
need curl curl
need bpftool bpftool
# The test of the packages' units.
need systemd-analyze systemd

[ -z "$packages" ] && exit 0
# shellcheck disable=SC2086  # a list of packages on purpose
"$(dirname "$0")/debian-packages.sh" "$0" $packages
