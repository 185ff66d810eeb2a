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
# shellcheck disable=SC2086  # a list of packages on purpose
"$(dirname "$0")/../../deploy/debian-packages.sh" "$0" $packages
