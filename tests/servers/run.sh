#!/bin/sh
# Runs a server that install.sh unpacked, in a mount namespace where the unpacked /usr/share is the machine's: some find their files by
# absolute paths (Alertmanager its templates). It keeps this process's id.
#   run.sh FOLDER PROGRAM [ARGUMENT...]
set -eu

folder=$(cd "$1" && pwd)
program=$folder/usr/bin/$2
shift 2
if [ "$(id -u)" -eq 0 ]; then how=--mount; else how="--map-root-user --mount"; fi
# shellcheck disable=SC2086 # two words
exec unshare $how sh -c 'mount --bind "$0/usr/share" /usr/share && exec "$@"' "$folder" "$program" "$@"
