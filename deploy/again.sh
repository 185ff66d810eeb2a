#!/bin/sh
# Runs a command that fetches something, and runs it again where it fails: an index that is being renewed answers a moment later.
#   again.sh COMMAND...
set -u

for pause in 5 20; do
    "$@" && exit 0
    echo "again: $1 failed: once more in $pause s" >&2
    sleep "$pause"
done
exec "$@"
