#!/bin/bash
# Compiles one of this workspace's crates with what libFuzzer looks at: counters of edges, and what is compared with what. Cargo calls it in
# place of rustc (RUSTC_WORKSPACE_WRAPPER), so that other people's crates are those of every other build. These flags are what cargo-fuzz
# gives, but for the sanitizers: LLVM's pass is in the stable compiler, they are not.
set -eu
rustc=$1
shift
case " $* " in
*" --crate-name build_script_"* | *" --crate-type proc-macro "* | *" --print="* | *" -vV "*) exec "$rustc" "$@" ;;
esac
exec "$rustc" "$@" --cfg fuzzing -Ccodegen-units=1 -Cpasses=sancov-module \
    -Cllvm-args=-sanitizer-coverage-level=4 -Cllvm-args=-sanitizer-coverage-inline-8bit-counters \
    -Cllvm-args=-sanitizer-coverage-pc-table -Cllvm-args=-sanitizer-coverage-trace-compares \
    -Cllvm-args=-simplifycfg-branch-fold-threshold=0
