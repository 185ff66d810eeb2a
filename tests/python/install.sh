#!/bin/sh
# Installs requirements.txt from the package index into target/python. Does nothing when it is there already.
set -eu
cd "$(dirname "$0")/../.."
wanted=tests/python/requirements.txt
folder=target/python
cmp -s "$wanted" "$folder/installed.txt" && exit 0
rm -rf "$folder"
mkdir -p target
python3 -m venv "$folder"
deploy/again.sh "$folder/bin/pip" install --quiet --disable-pip-version-check --requirement "$wanted"
cp "$wanted" "$folder/installed.txt"
