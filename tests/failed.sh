#!/bin/bash
# The end of a run of test programs whose outputs are in a folder: what each that failed printed last, where whoever reads only the end of a
# long output finds it; and then which they were. Fails if one did.
# Usage: failed.sh FOLDER; in it `failed` (status and program, by tab) and PROGRAM.log.
set -euo pipefail
[ -e "$1/failed" ] || exit 0

LINES_SHOWN=60

while IFS=$'\t' read -r status program; do
    echo "What $(basename "$program") printed last, before it failed with status $status:"
    tail -n "$LINES_SHOWN" "$1/$(basename "$program").log"
done <"$1/failed" >&2
sed 's/^\([^\t]*\)\t/failed, status \1: /' "$1/failed" >&2
exit 1
