#!/bin/bash
# The end of a run of test programs whose outputs are in a folder: what each that failed printed last, where whoever reads only the end of a
# long output finds it; and then which they were. Fails if one did.
# Usage: failed.sh FOLDER; in it `failed` (status and program, by tab) and PROGRAM.log.
set -euo pipefail
[ -e "$1/failed" ] || exit 0

# All of them together, so that the first one's are at that end, too.
LINES_SHOWN=60
each=$((LINES_SHOWN / $(wc -l <"$1/failed")))
[ "$each" -ge 12 ] || each=12

while IFS=$'\t' read -r status program; do
    echo "What $(basename "$program") printed last, before it failed with status $status:"
    # Frames of a backtrace, and the lines that say nothing, would take the place of what does.
    grep -vE '^ +[0-9]+: |^ +at |^stack backtrace:|^note: |^$|^test .* \.\.\. (ok|ignored)|^ok$' \
        "$1/$(basename "$program").log" | tail -n "$each" || true
done <"$1/failed" >&2
sed 's/^\([^\t]*\)\t/failed, status \1: /' "$1/failed" >&2
exit 1
