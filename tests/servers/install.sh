#!/bin/sh
# Fetches servers that tests talk to from Debian's archive, and unpacks them into a folder (target/servers): nothing is installed, so no
# service starts and nothing of the machine changes, but for one file that Debian's Alertmanager reads at a fixed place (below).
# Does nothing for what is there.
#   install.sh FOLDER PACKAGE...
set -eu

again=$(cd "$(dirname "$0")/../../deploy" && pwd)/again.sh
folder=$1
shift
mkdir -p "$folder"
folder=$(cd "$folder" && pwd)
# Two tests may want it at the same time.
exec 9>"$folder/.lock"
flock 9
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
            "$again" apt-get update -qq
            updated=yes
        fi
        (cd "$work" && "$again" apt-get download -qq "$package" >/dev/null)
    fi
    dpkg-deb -x "$work"/*.deb "$folder"
    rm -rf "$work"
    : >"$folder/.$package"
done

# Upstream's Alertmanager carries its templates in the program; Debian's reads them from here, and does not start without them. Nothing
# is put over what is there: the package itself, installed later, replaces these.
there=/usr/share/prometheus/alertmanager
for file in default.tmpl email.tmpl; do
    [ -e "$folder$there/$file" ] || continue
    [ -e "$there/$file" ] && continue
    sudo=""
    [ "$(id -u)" -eq 0 ] || sudo=sudo
    if ! $sudo install -D -m 644 "$folder$there/$file" "$there/$file"; then
        echo "servers/install: $there/$file cannot be put in place" >&2
        echo "  remedy: sudo install -D -m 644 $folder$there/$file $there/$file" >&2
        exit 1
    fi
done
