#!/bin/sh
# Installs what tests/python/install.sh and what it installs need of Debian. Does nothing when it is there already.
set -eu

packages=""
command -v python3 >/dev/null 2>&1 || packages="$packages python3"
# For the tests that open segments with DuckDB and pandas.
python3 -c 'import ensurepip, venv' 2>/dev/null || packages="$packages python3-venv"
# Rotel, which OTLP is tested with, is linked with the library of the Python that it is installed for.
version=$(python3 -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null || echo 3)
ls /usr/lib/*/libpython"$version".so.1.0 >/dev/null 2>&1 || packages="$packages libpython$version"

[ -z "$packages" ] && exit 0
# shellcheck disable=SC2086  # a list of packages on purpose
"$(dirname "$0")/../../deploy/debian-packages.sh" "$0" $packages
