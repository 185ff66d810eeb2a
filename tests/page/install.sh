#!/bin/sh
# Installs what the browser tests need: Chromium (with a font for what the page's own lacks) from Debian, and playwright-core, which
# drives it, from the lockfile beside this script. Does nothing when all of it is there.
set -eu
cd "$(dirname "$0")"

packages=""
command -v chromium >/dev/null 2>&1 || packages="$packages chromium"
[ -e /usr/share/fonts/truetype/dejavu/DejaVuSans.ttf ] || packages="$packages fonts-dejavu-core"
if [ -n "$packages" ]; then
    if [ "$(id -u)" -ne 0 ]; then
        echo "page/install: needs root to install:$packages" >&2
        echo "  run: sudo $0" >&2
        exit 1
    fi
    export DEBIAN_FRONTEND=noninteractive
    apt-get update -qq
    # shellcheck disable=SC2086  # a list of packages on purpose
    apt-get install -y -qq --no-install-recommends $packages >/dev/null
fi

command -v npm >/dev/null 2>&1 || {
    echo "page/install: the browser tests need Node 20 or later" >&2
    exit 1
}
if ! cmp -s package-lock.json node_modules/.built-from; then
    npm ci --ignore-scripts --loglevel=error
    cp package-lock.json node_modules/.built-from
fi
