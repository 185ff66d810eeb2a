#!/bin/bash
# The tests that need no privileges, two of their programs at a time: most of them wait for processes, ports and timers, and one after the
# other they take twice as long. What a program printed is shown when it has ended; the examples of the documentation come last.
set -euo pipefail
cd "$(dirname "$0")/.."

mkdir -p target/units
rm -f target/units/*
./tests/programs.sh >target/units/programs

# In the folder of its crate, as cargo runs it.
one() {
    local folder=$1 program=$2 log status=0
    log=$PWD/target/units/$(basename "$program").log
    (cd "$folder" && CARGO_MANIFEST_DIR=$folder "$program" --quiet --skip privileged_) >"$log" 2>&1 || status=$?
    # In one piece, whoever else ends at this moment.
    flock target/units/programs cat "$log"
    [ "$status" -eq 0 ] || { echo "failed, status $status: $program" >>target/units/failed; }
}
export -f one

xargs -P 2 -d '\n' -I {} bash -c 'IFS=$'"'\\t'"' read -r folder _ program <<<"$1"; one "$folder" "$program"' _ {} <target/units/programs
cargo test --workspace --locked --quiet --doc
if [ -e target/units/failed ]; then
    cat target/units/failed >&2
    exit 1
fi
