#!/bin/bash
# What services of graphs need beyond the laboratory's servers: Node, and the service of goroutines compiled into target/goroutines. Debian's Node
# and Go are installed where this machine has none (root). Does nothing where that was done since its source changed.
set -euo pipefail
cd "$(dirname "$0")/../.."

out=target/goroutines/graphnode
missing=()
command -v node >/dev/null || missing+=(nodejs)
[ "$out" -nt tests/graph/goroutines.go ] || command -v go >/dev/null || missing+=(golang-go)
./deploy/debian-packages.sh "$0" "${missing[@]}"
[ "$out" -nt tests/graph/goroutines.go ] && exit 0
# Neither a module nor another toolchain is looked for, and nothing is kept in anybody's home, which may be none; the standard library is all
# that it needs.
export GOCACHE=$PWD/target/goroutines/cache GOPATH=$PWD/target/goroutines/path
GO111MODULE=off GOTOOLCHAIN=local GOFLAGS= go build -o "$out" ./tests/graph/goroutines.go
