#!/bin/bash
# Builds agent and collector so that they run on every Linux with glibc 2.28 or later (RHEL 8, Ubuntu 20.04, Debian 11), whatever this
# machine has: Zig's linker knows the symbols of every version of glibc, and its C compiler the headers. Prints the folder of the programs.
#   build.sh [--architecture x86_64|aarch64] [--profile PROFILE]
# Another architecture needs Rust's library for it: rustup target add aarch64-unknown-linux-gnu.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
repository=$(cd "$here/../.." && pwd)
glibc=2.28
architecture=$(uname -m)
profile=release
while [ $# -gt 0 ]; do
    case $1 in
    --architecture) architecture=$2 && shift 2 ;;
    --profile) profile=$2 && shift 2 ;;
    *) echo "build.sh: $1 is no option: --architecture ARCHITECTURE, --profile PROFILE" >&2 && exit 64 ;;
    esac
done
target=$architecture-unknown-linux-gnu
cd "$repository"

if [ ! -d "$(rustc --print sysroot)/lib/rustlib/$target/lib" ]; then
    echo "portable/build: Rust's library for $target is not installed" >&2
    echo "  remedy: rustup target add $target" >&2
    exit 69
fi

# Zig and its wrapper for cargo, as the package index of Python has them, by their hashes.
zig=$repository/target/zig
if ! cmp -s "$here/requirements.txt" "$zig/installed.txt"; then
    rm -rf "$zig"
    mkdir -p "$repository/target"
    if ! python3 -m venv "$zig" >&2; then
        echo "portable/build: Python makes no virtual environment here" >&2
        echo "  remedy: sudo apt-get install python3-venv" >&2
        exit 69
    fi
    "$zig/bin/pip" install --quiet --disable-pip-version-check --require-hashes --requirement "$here/requirements.txt" >&2
    cp "$here/requirements.txt" "$zig/installed.txt"
fi
# What Zig compiled for this version of glibc is kept beside it, and not in somebody's home.
export ZIG_GLOBAL_CACHE_DIR=$zig/cache ZIG_LOCAL_CACHE_DIR=$zig/cache CARGO_ZIGBUILD_CACHE_DIR=$zig/cache
PATH=$zig/bin:$PATH
CARGO_ZIGBUILD_ZIG_PATH=$("$zig/bin/python3" -c 'import os, ziglang; print(os.path.join(os.path.dirname(ziglang.__file__), "zig"))')
export CARGO_ZIGBUILD_ZIG_PATH

cargo-zigbuild zigbuild --locked --profile "$profile" --target "$target.$glibc" -p tailwater-agent -p tailwater >&2
case $profile in dev) profile=debug ;; esac
echo "$(cargo metadata --format-version 1 --no-deps --offline | jq -r .target_directory)/$target/$profile"
