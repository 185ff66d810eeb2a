#!/bin/sh
# Installs requirements.txt from the package index into target/peers. Does nothing when it is there already.
set -eu
cd "$(dirname "$0")/../.."
wanted=tests/peers/requirements.txt
folder=target/peers
cmp -s "$wanted" "$folder/installed.txt" && exit 0
rm -rf "$folder"
mkdir -p target
python3 -m venv "$folder"
"$folder/bin/pip" install --quiet --disable-pip-version-check --no-deps --requirement "$wanted"
# With what the rest needs itself, of any version.
grep -vE '^(#|fse-baro|RCAEval|sfr-pyrca)' "$wanted" >"$folder/rest.txt"
"$folder/bin/pip" install --quiet --disable-pip-version-check --requirement "$folder/rest.txt"
cp "$wanted" "$folder/installed.txt"
