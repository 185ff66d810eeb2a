#!/bin/bash
# Makes archives of agent and collector from binaries that are built already, for systems without packages, and for trying out: a folder
# to unpack anywhere, the programs in its bin. Options as of debian/build.sh.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
# shellcheck source=../packages/lay-out.sh
. "$here/../packages/lay-out.sh"
options "$@"
level=-9
[ -z "$quick" ] || level=-1

build() { # package
    local package=$1 architecture name
    architecture=$(machine "$binaries/$package")
    name=$package-$version-linux-$architecture
    root=$work/tree/$package
    lay_out "$package" lib/systemd/system
    local folder=$work/$name
    mkdir -p "$folder/share"
    mv "$root/usr/bin" "$folder/bin"
    mv "$root/usr/share/doc/$package" "$folder/doc"
    mv "$root/usr/share/bash-completion" "$root/usr/share/zsh" "$root/usr/share/fish" "$folder/share"
    [ ! -d "$root/usr/share/tailwater" ] || mv "$root/usr/share/tailwater" "$folder/recordings"
    mv "$root/etc" "$folder/etc"
    mv "$root/lib/systemd" "$folder/systemd"
    [ ! -d "$root/usr/lib/sysusers.d" ] || mv "$root/usr/lib/sysusers.d" "$folder/sysusers.d"
    cp "$repository/LICENSE" "$folder/LICENSE"
    tar --sort=name --owner=0 --group=0 --numeric-owner --mtime="@$SOURCE_DATE_EPOCH" -C "$work" -c "$name" |
        gzip -n $level >"$out/$name.tar.gz"
    echo "$out/$name.tar.gz"
}

build tailwater
build tailwater-agent
