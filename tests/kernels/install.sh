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
need ipvsadm ipvsadm
[ -x /bin/busybox ] && /bin/busybox insmod --help >/dev/null 2>&1 || packages="$packages busybox-static"
# Part of QEMU until Debian 12, a package of its own from then on.
[ -x /usr/lib/qemu/virtiofsd ] || [ -x /usr/libexec/virtiofsd ] || {
    case " $packages " in *" qemu-system-x86 "*) ;; *) packages="$packages virtiofsd" ;; esac
}

[ -z "$packages" ] && exit 0
# shellcheck disable=SC2086  # a list of packages on purpose
"$(dirname "$0")/../../deploy/debian-packages.sh" "$0" $packages
