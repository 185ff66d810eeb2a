#!/bin/sh
# Installs what the browser tests need: Chromium (with a font for what the page's own lacks) from Debian, and playwright-core, which
# drives it, from the lockfile beside this script. Does nothing when all of it is there.
set -eu
cd "$(dirname "$0")"
# Two tests may want it at the same time.
exec 9<.
flock 9

packages=""
command -v chromium >/dev/null 2>&1 || packages="$packages chromium"
[ -e /usr/share/fonts/truetype/dejavu/DejaVuSans.ttf ] || packages="$packages fonts-dejavu-core"
# shellcheck disable=SC2086  # a list of packages on purpose
[ -z "$packages" ] || ../../deploy/debian-packages.sh "$0" $packages

command -v npm >/dev/null 2>&1 || {
    echo "page/install: the browser tests need Node 20 or later" >&2
    exit 1
}
if ! cmp -s package-lock.json node_modules/.built-from; then
    ../../deploy/again.sh npm ci --ignore-scripts --loglevel=error
    cp package-lock.json node_modules/.built-from
fi
