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
if ! command -v apt-get >/dev/null 2>&1; then
    echo "install-build-deps: this machine has no apt-get, and what these Debian packages hold is missing:$packages" >&2
    echo "  remedy: install it with the machine's own package manager, where names may differ, and start again" >&2
    exit 1
fi
if [ "$(id -u)" -ne 0 ]; then
    echo "install-build-deps: needs root to install:$packages" >&2
    echo "  run: sudo $0" >&2
    exit 1
fi
export DEBIAN_FRONTEND=noninteractive
# shellcheck disable=SC2086  # a list of packages on purpose
if ! apt-get update -qq || ! apt-get install -y -qq --no-install-recommends $packages >/dev/null; then
    echo "install-build-deps: apt-get could not install:$packages" >&2
    echo "  remedy: see what it said above (no network, no room, another apt-get at work), and start again" >&2
    exit 1
fi
