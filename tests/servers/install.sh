#!/bin/sh
# Fetches servers that tests talk to from Debian's archive, and unpacks them into a folder (target/servers): nothing is installed, so no
# service starts and nothing of the machine changes. Does nothing for what is there.
#   install.sh FOLDER PACKAGE...
set -eu

folder=$1
shift
mkdir -p "$folder"
folder=$(cd "$folder" && pwd)
updated=""
for package in "$@"; do
    [ -e "$folder/.$package" ] && continue
    work=$(mktemp -d "$folder/.fetch.XXXXXX")
    trap 'rm -rf "$work"' EXIT INT TERM
    # apt-get checks the archive's signature and the package's hash.
    if ! (cd "$work" && apt-get download -qq "$package" >/dev/null 2>&1); then
        if [ -z "$updated" ]; then
            if [ "$(id -u)" -ne 0 ]; then
                echo "servers/install: $package is not in apt's lists, or cannot be fetched" >&2
                echo "  remedy: sudo apt-get update, then again" >&2
                exit 1
            fi
            apt-get update -qq
            updated=yes
        fi
        (cd "$work" && apt-get download -qq "$package" >/dev/null)
    fi
    dpkg-deb -x "$work"/*.deb "$folder"
    rm -rf "$work"
    : >"$folder/.$package"
done
