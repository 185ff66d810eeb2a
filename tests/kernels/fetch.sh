#!/bin/sh
# Unpacks the newest kernel of a Debian suite whose package matches, and prints the folder: FOLDER/RELEASE with boot/ and lib/modules/.
# Never installs anything; the lists of packages are its own, so that the machine's sources stay as they are.
#   fetch.sh FOLDER SUITE PATTERN [ARCHITECTURE]
#   e.g. fetch.sh /var/cache/tailwater-kernels bookworm 'linux-image-6\.1\..*-cloud-amd64-unsigned'
set -eu

folder=$1 suite=$2 pattern=$3 architecture=${4-}
# shellcheck disable=SC1091
. "$(dirname "$0")/lists.sh"

# A kernel that was unpacked within the last week is not looked for again.
for known in "$folder/kernels/$suite"/*; do
    [ -e "$known/complete" ] && [ "$(cat "$known/complete")" = "$pattern" ] && [ -n "$(find "$known/complete" -mtime -7)" ] || continue
    echo "$known"
    exit 0
done

own_lists "$folder" "$suite" "$architecture"
# A version that left the archive before its list did is replaced by the one before it, and named.
# shellcheck disable=SC2086
candidates=$(apt-cache $own search --names-only "^$pattern\$" | awk '{ print $1 }' | sort -rV | sed -n 1,6p)
[ -n "$candidates" ] || fail "$suite has no package that matches $pattern"
for package in $candidates; do
    release=$(echo "$package" | sed -E 's/^linux-(image|binary)-//; s/-unsigned$//')
    kernel=$folder/kernels/$suite/$release
    [ -e "$kernel/complete" ] && break
    rm -rf "$kernel"
    mkdir -p "$kernel" "$folder/download"
    case $package in
    # From 6.19 on the files are in three packages.
    linux-binary-*) packages="$package linux-modules-$release linux-base-$release" ;;
    *) packages=$package ;;
    esac
    for one in $packages; do
        rm -f "$folder/download/$one"_*.deb
        (cd "$folder/download" && own_apt download "$one") || { rm -rf "$kernel"; kernel=; break; }
        dpkg -x "$folder/download/$one"_*.deb "$kernel"
        rm -f "$folder/download/$one"_*.deb
    done
    [ -n "$kernel" ] && break
    echo "kernels/fetch: $one is listed in $suite and not there any more: an older one takes its place" >&2
done
[ -n "$kernel" ] || fail "no kernel that matches $pattern can be had from $mirror"
if [ ! -e "$kernel/complete" ]; then
    # Where /usr is merged the modules are below it.
    [ -d "$kernel/lib/modules" ] || { mkdir -p "$kernel/lib" && ln -s ../usr/lib/modules "$kernel/lib/modules"; }
    depmod -b "$kernel" "$release"
fi
echo "$pattern" >"$kernel/complete"
echo "$kernel"
