#!/bin/bash
# Compiles the tests (the examples are held by the linter alone) and prints their programs, a line each: folder of the crate, name, program.
set -euo pipefail
cd "$(dirname "$0")/.."

cargo test --workspace --locked --no-run --tests --message-format=json-render-diagnostics |
    python3 -c '
import json, os, sys
for line in sys.stdin:
    built = json.loads(line)
    if built.get("executable") and built.get("profile", {}).get("test"):
        print(os.path.dirname(built["manifest_path"]), built["target"]["name"], built["executable"], sep="\t")
'
