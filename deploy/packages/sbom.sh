#!/bin/bash
# What a program is made of, as a bill of materials in CycloneDX's JSON: every crate that is linked into it, with its version, licence and
# the checksum that Cargo.lock holds it to, and which of them asked for which. SQLite and Zstandard are inside the crates that end in -sys.
#   sbom.sh PACKAGE TARGET VERSION         to standard output
set -euo pipefail
package=$1 target=$2 version=$3
cd "$(dirname "$0")/../.."
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# Cargo's own list knows features and platform; macros run while building and are not in the program.
cargo tree --quiet --locked --package "$package" --target "$target" --edges normal --prefix none --no-dedupe --format '{p}' |
    grep -v '(proc-macro)' | awk '{ sub(/^v/, "", $2); print $1 " " $2 }' | sort -u >"$work/linked"
awk '/^\[\[package\]\]/ { name = ""; version = "" } /^name = / { name = $3 } /^version = / { version = $3 }
    /^checksum = / { gsub(/"/, ""); print name " " version " " $3 }' Cargo.lock | tr -d '"' >"$work/checksums"
cargo metadata --quiet --locked --format-version 1 --filter-platform "$target" >"$work/metadata"

jq --rawfile linked "$work/linked" --rawfile checksums "$work/checksums" --arg package "$package" --arg version "$version" \
    --arg time "$(date -u -d "@${SOURCE_DATE_EPOCH:-$(date +%s)}" +%Y-%m-%dT%H:%M:%SZ)" '
    def lines: split("\n") | map(select(. != ""));
    def key: "\(.name) \(.version)";
    def reference: "pkg:cargo/\(.name)@\(.version)";
    ($linked | lines | map({key: ., value: true}) | from_entries) as $in
    | ($checksums | lines | map(split(" ") | {key: "\(.[0]) \(.[1])", value: .[2]}) | from_entries) as $sha256
    | (.packages | map(select($in[key])) | sort_by(key)) as $crates
    | ($crates | map({key: .id, value: reference}) | from_entries) as $references
    | ($crates | map(select(.name == $package)) | first) as $program
    | {
        bomFormat: "CycloneDX", specVersion: "1.5", version: 1,
        metadata: {
            timestamp: $time,
            component: {
                type: "application", "bom-ref": ($program | reference), name: $package, version: $version,
                licenses: [{expression: $program.license}]
            }
        },
        components: [$crates[] | select(.id != $program.id) | {
            type: "library", "bom-ref": reference, name, version, purl: reference,
            licenses: (if .license then [{expression: (.license | gsub("/"; " OR "))}] else [] end),
            hashes: (if $sha256[key] then [{alg: "SHA-256", content: $sha256[key]}] else [] end)
        }],
        dependencies: [.resolve.nodes[] | select($references[.id]) | {
            ref: $references[.id],
            dependsOn: [.deps[] | select(any(.dep_kinds[]; .kind == null)) | $references[.pkg] // empty] | unique
        }] | sort_by(.ref)
    }' "$work/metadata"
