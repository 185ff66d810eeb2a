#!/bin/bash
# The privileged tests, as root. Those that load kernel programs into this machine, take its CPUs and its cgroups, or compare counts run one
# after the other and alone. Before them, side by side, the few that have a machine or a browser of their own and measure nothing of this
# one: guests in QEMU, a Debian with its own systemd, the page on made data. Says at the end where the time went.
set -euo pipefail
cd "$(dirname "$0")/.."

# Programs by name, in two lanes that take about as long as each other.
LANES=("privileged_kernels page" "privileged_packages page_login page_silences page_sizing page_traces replay_page")

out=target/privileged
mkdir -p "$out"
rm -f "$out"/*
./tests/programs.sh >"$out/programs"

# One program in the folder of its crate, as cargo runs it: FOLDER NAME PROGRAM.
one() {
    local folder=$1 name=$2 program=$3 status=0 began=$SECONDS listed log
    log=$out/$(basename "$program").log
    listed=$("$program" --list privileged_ 2>/dev/null) || true
    [[ $listed == *": test"* ]] || return 0
    echo "     Running $name ($program)"
    (cd "$folder" && CARGO_MANIFEST_DIR=$folder "$program" privileged_ --test-threads=1 --nocapture) 2>&1 | tee "$log" || status=$?
    printf '%s\t%s\n' "$((SECONDS - began))" "$name" >>"$out/seconds"
    [ "$status" -eq 0 ] || printf '%s\t%s\n' "$status" "$program" >>"$out/failed"
}

# The programs of these names, in their order; what each printed is shown in one piece.
lane() {
    local name
    for name in "$@"; do
        while IFS=$'\t' read -r folder of program; do
            [ "$of" = "$name" ] || continue
            one "$folder" "$of" "$program" >"$out/$name.shown" </dev/null
            flock "$out/programs" cat "$out/$name.shown"
        done <"$out/programs"
    done
}

for names in "${LANES[@]}"; do
    # shellcheck disable=SC2086 # a list of names
    lane $names &
done
wait

while IFS=$'\t' read -r folder name program; do
    [[ " ${LANES[*]} " == *" $name "* ]] || one "$folder" "$name" "$program" </dev/null
done <"$out/programs"

echo "$(wc -l <"$out/seconds") programs with privileged tests were run. Where the time went, s:"
sort -rn "$out/seconds" | sed -n 1,15p
./tests/failed.sh "$out"
