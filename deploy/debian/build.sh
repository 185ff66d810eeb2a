#!/bin/bash
# Makes the Debian packages of agent and collector from binaries that are built already.
#   build.sh [--binaries FOLDER] [--out FOLDER] [--version VERSION] [--quick]
# --quick compresses little: for tests. The version is Cargo.toml's, followed by date and commit unless the commit is tagged with it.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
# shellcheck source=../packages/lay-out.sh
. "$here/../packages/lay-out.sh"
options "$@"
compression=(-Zxz)
[ -z "$quick" ] || compression=(-Zgzip -z1)

maintainer_script() {
    with_after_install "$here/$1.in" | sed -e "s/@PACKAGE@/$package/g" >"$root/DEBIAN/$1"
    chmod 755 "$root/DEBIAN/$1"
}

build() { # package configuration-file
    package=$1
    root=$work/$package
    local documentation=usr/share/doc/$package program=$binaries/$package architecture depends
    lay_out "$package" lib/systemd/system
    case $(machine "$program") in x86_64) architecture=amd64 ;; aarch64) architecture=arm64 ;; esac
    # By itself, so that its failure is this script's.
    depends=$(glibc "$program")
    depends="libc6 (>= $depends)"
    if needs_libgcc "$program"; then depends="$depends, libgcc-s1"; fi

    mkdir -p "$root/DEBIAN"
    echo "/etc/tailwater/$2" >"$root/DEBIAN/conffiles"
    put 644 "$here/copyright" "$documentation/copyright"
    {
        printf '%s (%s) unstable; urgency=medium\n\n' "$package" "$version"
        printf '  * Built from commit %s.\n\n' "$commit"
        printf ' -- %s  %s\n' "$maintainer" "$(LC_ALL=C date -u -R -d "@$SOURCE_DATE_EPOCH")"
    } | gzip -9n >"$root/$documentation/changelog.gz"
    for script in postinst prerm postrm; do maintainer_script $script; done
    sed -e "s/@VERSION@/$version/" -e "s/@ARCHITECTURE@/$architecture/" -e "s/@MAINTAINER@/$maintainer/" \
        -e "s/@LIBRARIES@/$depends/" \
        -e "s/@INSTALLED_SIZE@/$(du -k -s --apparent-size "$root" | cut -f1)/" \
        "$here/$package.control.in" >"$root/DEBIAN/control"
    (cd "$root" && find . -path ./DEBIAN -prune -o -type f -printf '%P\0' | LC_ALL=C sort -z | xargs -0 md5sum) \
        >"$root/DEBIAN/md5sums"
    chmod -R u=rwX,go=rX "$root"
    dpkg-deb "${compression[@]}" --root-owner-group --build "$root" "$out/${package}_${version}_$architecture.deb" >/dev/null
    echo "$out/${package}_${version}_$architecture.deb"
}

build tailwater tailwater.toml
build tailwater-agent agent.toml
