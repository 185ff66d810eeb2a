#!/bin/bash
# Makes everything that is handed out, in target/packages: .deb, .rpm and .tar.gz of agent and collector, for every Linux with glibc 2.28
# or later; their symbols; bills of materials; checksums of all. For x86-64, and for 64-bit ARM where Rust's library for it is installed
# (rustup target add aarch64-unknown-linux-gnu).
#   build.sh [--profile PROFILE]
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
# shellcheck source=lay-out.sh
. "$here/lay-out.sh"
profile=release
case ${1:-} in
'') ;;
--profile) profile=$2 ;;
*) echo "build.sh: $1 is no option: --profile PROFILE" >&2 && exit 64 ;;
esac
version=$(version_of_source)
# What installing needs of a network, compressed.
agent_bytes_max=8000000
collector_bytes_max=20000000

rm -rf "$out"
mkdir -p "$out"
for architecture in x86_64 aarch64; do
    target=$architecture-unknown-linux-gnu
    if [ ! -d "$(cd "$repository" && rustc --print sysroot)/lib/rustlib/$target/lib" ]; then
        echo "packages: none for $target: Rust's library for it is not installed (rustup target add $target)" >&2
        continue
    fi
    binaries=$("$here/../portable/build.sh" --architecture "$architecture" --profile "$profile")
    for format in debian rpm tarball; do
        "$here/../$format/build.sh" --binaries "$binaries" --out "$out" --version "$version"
    done
    for package in tailwater-agent tailwater; do
        "$here/sbom.sh" "$package" "$target" "$version" >"$out/${package}_${version}_$architecture.cdx.json"
    done
done

for file in "$out"/*.{deb,rpm,tar.gz}; do
    case $(basename "$file") in
    tailwater-agent*) most=$agent_bytes_max ;;
    *) most=$collector_bytes_max ;;
    esac
    if [ "$(stat -c %s "$file")" -gt "$most" ]; then
        echo "packages: $file has $(stat -c %s "$file") bytes, more than $most" >&2
        exit 1
    fi
done
# Symbols are fetched by who debugs.
tar --sort=name --owner=0 --group=0 --numeric-owner --mtime="@$SOURCE_DATE_EPOCH" -C "$out" -c symbols |
    xz -T0 -3 >"$out/tailwater-symbols_$version.tar.xz"
rm -rf "$out/symbols"
(cd "$out" && sha256sum -- *.* >SHA256SUMS)
