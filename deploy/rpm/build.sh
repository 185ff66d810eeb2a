#!/bin/bash
# Makes the RPM packages of agent and collector from binaries that are built already. Options as of debian/build.sh.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
# shellcheck source=../packages/lay-out.sh
. "$here/../packages/lay-out.sh"
options "$@"
payload=w7.xzdio
[ -z "$quick" ] || payload=w1.gzdio

build() { # package role license
    local package=$1 role=$2 license=$3 program=$binaries/$1 architecture libgcc=
    root=$work/$package
    lay_out "$package" usr/lib/systemd/system
    architecture=$(machine "$program")
    if needs_libgcc "$program"; then libgcc="Requires: libgcc"; fi
    put 644 "$repository/LICENSE" "usr/share/licenses/$package/LICENSE"

    # Folders that are this package's own, and files; a configuration that was changed is never replaced.
    (cd "$root" && find "usr/share/doc/$package" "usr/share/licenses/$package" etc/tailwater -type d -printf '%%dir /%p\n'
        [ ! -d usr/share/tailwater ] || echo '%dir /usr/share/tailwater'
        find etc -type f -printf '%%config(noreplace) /%p\n'
        find . -path ./etc -prune -o -type f -printf '/%P\n') >"$work/$package.files"
    with_after_install "$here/package.spec.in" |
        sed -e "/^@DESCRIPTION@$/{r $work/description" -e 'd}' \
            -e "s/@PACKAGE@/$package/g" -e "s/@VERSION@/$version/" -e "s/@ROLE@/$role/" -e "s/@LICENSE@/$license/" \
            -e "s/@GLIBC@/$(glibc "$program")/" -e "s/^@LIBGCC@$/$libgcc/" -e "s/@MAINTAINER@/$maintainer/" \
            -e "s|@URL@|$(sed -n 's/^repository = "\(.*\)"$/\1/p' "$repository/Cargo.toml")|" >"$work/$package.spec"
    rpmbuild -bb --quiet --target "$architecture" \
        --define "_topdir $work/rpmbuild" --define "_rpmdir $out" --define "_build_name_fmt %%{NAME}-%%{VERSION}-%%{RELEASE}.%%{ARCH}.rpm" \
        --define "_binary_payload $payload" --define "tree $root" --define "list $work/$package.files" "$work/$package.spec" >&2
    echo "$out/$package-$version-1.$architecture.rpm"
}

# The long description is written once, for Debian.
describe() { sed -n '/^Description:/,$p' "$here/../debian/$1.control.in" | sed -e 1d -e 's/^ \.$//' -e 's/^ //' >"$work/description"; }

describe tailwater
build tailwater collector Apache-2.0
describe tailwater-agent
build tailwater-agent agent "Apache-2.0 AND (GPL-2.0-only OR BSD-2-Clause)"
