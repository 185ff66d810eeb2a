#!/bin/bash
# Fuzzes the parsers of foreign bytes, guided by coverage, on the stable toolchain: each target for FUZZ_SECONDS (60), or TARGET alone. What is new
# and interesting goes to target/fuzz/corpus, and what broke a parser to target/fuzz/found, with the command that shows it again.
#
#   tests/fuzz/run.sh             fuzzes
#   tests/fuzz/run.sh minimize    takes over into tests/fuzz/corpus what covers more than the seeds there
set -euo pipefail
cd "$(dirname "$0")/../.."
seconds=${FUZZ_SECONDS:-60}
targets=${TARGET:-$(sed -n 's/.*Target { name: "\([a-z_]*\)".*/\1/p' tests/fuzz/src/lib.rs)}

# libFuzzer is C++17: whichever compiler is there.
RUSTC_WORKSPACE_WRAPPER=$PWD/tests/fuzz/instrument.sh \
    cargo build --workspace --locked --quiet --features tailwater-fuzz/guided --bin fuzz --target-dir "${FUZZ_TARGET_DIR:-target}"
fuzz=${FUZZ_TARGET_DIR:-target}/debug/fuzz

failed=0
for target in $targets; do
    new=target/fuzz/corpus/$target found=target/fuzz/found/$target log=target/fuzz/$target.log
    mkdir -p "$new" "$found"
    if [ "${1:-}" = minimize ]; then
        TAILWATER_FUZZ_TARGET=$target "$fuzz" -merge=1 -rss_limit_mb=1024 -timeout=10 \
            "tests/fuzz/corpus/$target" "$new" 2>&1 | tail -n 3
        continue
    fi
    if TAILWATER_FUZZ_TARGET=$target "$fuzz" -max_total_time="$seconds" -timeout=10 -rss_limit_mb=1024 -max_len=65536 \
        -print_final_stats=1 -artifact_prefix="$found/" "$new" "tests/fuzz/corpus/$target" >"$log" 2>&1; then
        echo "$target: $(grep -E 'DONE|^Done' "$log" | tail -n 1)"
    else
        failed=1
        tail -n 40 "$log" >&2
        echo "$target: broken by what is in $found: TAILWATER_FUZZ_TARGET=$target $fuzz $found/FILE shows it; once repaired, keep the file in tests/fuzz/corpus/$target" >&2
    fi
done
exit $failed
