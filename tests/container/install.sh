#!/bin/sh
# Installs what the check of the container file needs: buildah, and mmdebstrap for the base images. Does nothing when both are there.
set -eu

packages=""
need() { # command package
    if ! command -v "$1" >/dev/null 2>&1; then packages="$packages $2"; fi
}
need buildah buildah
need mmdebstrap mmdebstrap
need jq jq
need curl curl

[ -z "$packages" ] && exit 0
if [ "$(id -u)" -ne 0 ]; then
    echo "container/install: needs root to install:$packages" >&2
    echo "  run: sudo $0" >&2
    exit 1
fi
export DEBIAN_FRONTEND=noninteractive
apt-get update -qq
# shellcheck disable=SC2086  # a list of packages on purpose
apt-get install -y -qq --no-install-recommends $packages >/dev/null
