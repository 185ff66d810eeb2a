#!/bin/bash
# The tests that need no privileges, twice as many of their programs at a time as there are CPUs: most of them wait for processes, ports and
# timers, and one after the other they take four times as long. What a program printed is shown when it has ended; the examples of the
# documentation come last.
set -euo pipefail
cd "$(dirname "$0")/.."

# Those that wait longest, by name: where one of them began last, all would wait for it.
FIRST="pods tailwater versions top store_process grafana otlp webhook"

sync # what compiling left to be written would slow down whatever the tests write
mkdir -p target/units
rm -f target/units/*
./tests/programs.sh | awk -F'\t' -v first="$FIRST" '
    BEGIN { n = split(first, names, " "); for (i = 1; i <= n; i++) place[names[i]] = i }
    { print ($2 in place ? place[$2] : n + 1) "\t" $0 }' | sort -s -n -k 1,1 | cut -f 2- >target/units/programs

# In the folder of its crate, as cargo runs it.
one() {
    local folder=$1 program=$2 log status=0
    log=$PWD/target/units/$(basename "$program").log
    local began=$SECONDS
    (cd "$folder" && CARGO_MANIFEST_DIR=$folder "$program" --quiet --skip privileged_) >"$log" 2>&1 || status=$?
    printf '%s\t%s\n' "$((SECONDS - began))" "$(basename "$program")" >>target/units/seconds
    # In one piece, whoever else ends at this moment.
    flock target/units/programs cat "$log"
    [ "$status" -eq 0 ] || printf '%s\t%s\n' "$status" "$program" >>target/units/failed
}
export -f one

xargs -P "$((2 * $(nproc)))" -d '\n' -I {} bash -c 'IFS=$'"'\\t'"' read -r folder _ program <<<"$1"; one "$folder" "$program"' _ {} <target/units/programs
echo "Where the time of the tests without privileges went, s:"
sort -rn target/units/seconds | sed -n 1,10p
cargo test --workspace --locked --quiet --doc
./tests/failed.sh target/units
