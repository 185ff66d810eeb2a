#!/bin/sh
# Installs what booting other kernels needs: QEMU, a way to share a folder with its guest, and the parts of a small root.
set -eu

packages=""
need() { # command package
    if ! command -v "$1" >/dev/null 2>&1; then packages="$packages $2"; fi
}
need qemu-system-x86_64 qemu-system-x86
need cpio cpio
need depmod kmod
need xz xz-utils
need zstd zstd
need mkfs.ext4 e2fsprogs
need setpriv util-linux
need python3 python3
[ -x /bin/busybox ] && /bin/busybox insmod --help >/dev/null 2>&1 || packages="$packages busybox-static"
# Part of QEMU until Debian 12, a package of its own from then on.
[ -x /usr/lib/qemu/virtiofsd ] || [ -x /usr/libexec/virtiofsd ] || {
    case " $packages " in *" qemu-system-x86 "*) ;; *) packages="$packages virtiofsd" ;; esac
}

[ -z "$packages" ] && exit 0
if ! command -v apt-get >/dev/null 2>&1; then
    echo "kernels/install: this machine has no apt-get, and what these Debian packages hold is missing:$packages" >&2
    echo "  remedy: install it with the machine's own package manager, where names may differ, and start again" >&2
    exit 1
fi
if [ "$(id -u)" -ne 0 ]; then
    echo "kernels/install: needs root to install:$packages" >&2
    echo "  run: sudo $0" >&2
    exit 1
fi
export DEBIAN_FRONTEND=noninteractive
# shellcheck disable=SC2086  # a list of packages on purpose
if ! apt-get update -qq || ! apt-get install -y -qq --no-install-recommends $packages >/dev/null; then
    echo "kernels/install: apt-get could not install:$packages" >&2
    echo "  remedy: see what it said above (no network, no room, another apt-get at work), and start again" >&2
    exit 1
fi
