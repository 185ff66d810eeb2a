#!/bin/bash
# The quick look before a commit: format, lints, and the unit tests of the crates that differ from a commit (HEAD, or what is given).
#
#   tests/check.sh [COMMIT]
#
# All crates are built together, as everywhere: for one alone cargo would choose other features and compile what is built already.
set -euo pipefail
cd "$(dirname "$0")/.."
since=${1:-HEAD}

cargo fmt --all --check
cargo clippy --workspace --all-targets --locked -- -D warnings

changed=$({ git diff --name-only "$since"; git ls-files --others --exclude-standard; } | sort -u)
cargo test --workspace --lib --no-run --locked --message-format=json 2>target/check.log |
    CHANGED=$changed python3 -c '
import json, os, sys
root, changed = os.getcwd(), os.environ["CHANGED"].split("\n")
tests = {}
for line in sys.stdin:
    built = json.loads(line)
    if built.get("executable") and built["profile"]["test"]:
        folder = os.path.relpath(os.path.dirname(built["manifest_path"]), root)
        tests[folder] = built["executable"]
# A file belongs to the innermost crate around it: collector/analysis lies in collector.
wanted = {max((f for f in tests if name.startswith(f + "/")), key=len, default=None) for name in changed}
for folder in sorted(wanted - {None}):
    print(folder, tests[folder])
' >target/check.txt || { tail -n 25 target/check.log >&2; exit 1; }

while read -r folder program; do
    echo "unit tests of $folder"
    (cd "$folder" && "$program" --skip privileged_ --quiet)
done <target/check.txt
[ -s target/check.txt ] || echo "no crate differs from $since: no unit test was run"
