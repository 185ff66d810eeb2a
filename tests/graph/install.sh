#!/bin/bash
# Compiles the service of goroutines for service graphs into target/goroutines, with the Go of this machine, or with Debian's, which is
# installed if there is none (root). The standard library is all that it needs. Does nothing where that was done since its source changed.
set -euo pipefail
cd "$(dirname "$0")/../.."

out=target/goroutines/graphnode
[ "$out" -nt tests/goroutines/main.go ] && exit 0
command -v go >/dev/null || ./deploy/debian-packages.sh "$0" golang-go
# Neither a module nor another toolchain is looked for, and nothing is kept in anybody's home, which may be none.
export GOCACHE=$PWD/target/goroutines/cache GOPATH=$PWD/target/goroutines/path
GO111MODULE=off GOTOOLCHAIN=local GOFLAGS= go build -o "$out" ./tests/goroutines/main.go
