#!/bin/bash
# What services of graphs need beyond the laboratory's servers: Node, the service of goroutines compiled into target/goroutines, and Tomcat's servlet
# compiled into target/tomcat, by the compiler that came with the laboratory's own. Debian's Node and Go are installed where this machine has none
# (root). Does nothing where that was done since its source changed.
set -euo pipefail
cd "$(dirname "$0")/../.."

out=target/goroutines/graphnode
missing=()
command -v node >/dev/null || missing+=(nodejs)
[ "$out" -nt tests/graph/goroutines.go ] || command -v go >/dev/null || missing+=(golang-go)
./deploy/debian-packages.sh "$0" "${missing[@]}"
application=target/tomcat/WEB-INF
class=$application/classes/Service.class
if [ ! "$class" -nt tests/graph/Service.java ] || [ ! "$class" -nt tests/graph/web.xml ]; then
    mkdir -p "$application/classes"
    cp tests/graph/web.xml "$application/web.xml"
    javac -cp /usr/share/tomcat10/lib/servlet-api.jar -d "$application/classes" tests/graph/Service.java
fi
[ "$out" -nt tests/graph/goroutines.go ] && exit 0
# Neither a module nor another toolchain is looked for, and nothing is kept in anybody's home, which may be none; the standard library is all
# that it needs.
export GOCACHE=$PWD/target/goroutines/cache GOPATH=$PWD/target/goroutines/path
GO111MODULE=off GOTOOLCHAIN=local GOFLAGS= go build -o "$out" ./tests/graph/goroutines.go
