# shellcheck shell=bash
# What every format of package has in common: its version, the files in it and where they go, its program without symbols, and the
# libraries that the program needs. Sourced by the script of each format, which then knows:
#   repository, version, commit, SOURCE_DATE_EPOCH, maintainer
# Knows no format.

repository=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
# What is in a package does not depend on who builds it.
umask 022

git() { command git -C "$repository" "$@" 2>/dev/null; }
# A source archive has no commits: then the version alone has to do, and the date of this file.
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct || stat -c %Y "${BASH_SOURCE[0]}")}
export SOURCE_DATE_EPOCH
commit=$(git rev-parse --short=8 HEAD) || commit="of the release"
maintainer="${DEBFULLNAME:-Tailwater maintainers} <${DEBEMAIL:-maintainers@tailwater.invalid}>"

# Cargo.toml's, followed by date and commit unless the commit is tagged with it.
version_of_source() {
    local cargo_version
    cargo_version=$(sed -n '/^\[workspace.package\]/,/^\[/s/^version = "\(.*\)"$/\1/p' "$repository/Cargo.toml")
    if git rev-parse HEAD >/dev/null && [ "$(git tag --points-at HEAD --list "v$cargo_version")" = "" ]; then
        echo "$cargo_version+git$(date -u -d "@$SOURCE_DATE_EPOCH" +%Y%m%d%H%M).$commit"
    else
        echo "$cargo_version"
    fi
}

# The options that the scripts share; each script sets `quick` (compress little: for tests) to what its own format takes for it.
#   --binaries FOLDER  --out FOLDER  --version VERSION  --quick
binaries=$repository/target/release
out=$repository/target/packages
version=
quick=
options() {
    while [ $# -gt 0 ]; do
        case $1 in
        --binaries) binaries=$2 && shift 2 ;;
        --out) out=$2 && shift 2 ;;
        --version) version=$2 && shift 2 ;;
        --quick) quick=yes && shift ;;
        *) echo "$0: $1 is no option: --binaries FOLDER, --out FOLDER, --version VERSION, --quick" >&2 && exit 64 ;;
        esac
    done
    version=${version:-$(version_of_source)}
    mkdir -p "$out"
    out=$(cd "$out" && pwd)
    binaries=$(cd "$binaries" && pwd)
    work=$(mktemp -d "$out/.build.XXXXXX")
    trap 'rm -rf "$work"' EXIT
}

# put MODE SOURCE DESTINATION: one file into the tree at $root.
put() { install -D -m "$1" "$2" "$root/$3"; }

# machine PROGRAM: x86_64 or aarch64.
machine() {
    case $(readelf -h "$1" | sed -n 's/^ *Machine: *//p') in
    *X86-64) echo x86_64 ;;
    AArch64) echo aarch64 ;;
    *) echo "packages: $1 is for a machine that no package is made for" >&2 && return 65 ;;
    esac
}

# glibc PROGRAM: the first version of glibc that has all it asks for. Fails if it needs any library that is not glibc's or GCC's.
glibc() {
    local foreign
    foreign=$(readelf -dW "$1" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p' |
        grep -vE '^(libc|libm|libdl|libpthread|librt|libutil)\.so|^ld-linux|^libgcc_s\.so\.1$') || true
    if [ -n "$foreign" ]; then
        echo "packages: $1 needs $foreign, which no package here depends on" >&2
        return 65
    fi
    readelf -VW "$1" | grep -oE 'GLIBC_[0-9]+\.[0-9]+' | sed 's/GLIBC_//' | sort -uV | tail -n 1
}

# needs_libgcc PROGRAM
needs_libgcc() { readelf -dW "$1" | grep -F '[libgcc_s.so.1]' >/dev/null; }

# lay_out PACKAGE UNITS: the tree of a package at $root; UNITS is the folder that this family of systems has its units in.
lay_out() {
    local package=$1 units=$2 binary=$binaries/$1 documentation=usr/share/doc/$1 name=agent.toml
    [ "$package" = tailwater ] && name=tailwater.toml
    if [ ! -x "$binary" ]; then
        echo "packages: $binary is not built" >&2
        echo "  remedy: make build, or give the folder of the binaries by --binaries" >&2
        exit 66
    fi
    mkdir -p "$root/usr/bin"
    strip_program "$binary" "$root/usr/bin/$package"
    put 644 "$repository/deploy/systemd/$package.service" "$units/$package.service"
    if [ -e "$repository/deploy/systemd/$package.sysusers" ]; then
        put 644 "$repository/deploy/systemd/$package.sysusers" "usr/lib/sysusers.d/$package.conf"
    fi
    put 644 "$repository/deploy/$package.toml" "etc/tailwater/$name"
    put 644 "$repository/deploy/README.md" "$documentation/README.md"
    case $package in
    tailwater)
        local page recording
        for page in "$repository"/collector/docs/*.md; do put 644 "$page" "$documentation/$(basename "$page")"; done
        mkdir -p "$root/$documentation/examples"
        cp -R "$repository/dashboards" "$root/$documentation/examples/dashboards"
        # Something to look at where nothing drops packets: tailwater replay FILE --serve.
        for recording in "$repository"/deploy/recordings/*; do
            [ ! -e "$recording" ] || put 644 "$recording" "usr/share/tailwater/$(basename "$recording")"
        done
        ;;
    tailwater-agent)
        put 644 "$repository/deploy/systemd/network-namespaces.conf" "$documentation/examples/network-namespaces.conf"
        put 644 "$repository/deploy/systemd/frame-headers.conf" "$documentation/examples/frame-headers.conf"
        ;;
    esac
    completions bash "usr/share/bash-completion/completions/$package"
    completions zsh "usr/share/zsh/$([ "$units" = lib/systemd/system ] && echo vendor-completions || echo site-functions)/_$package"
    completions fish "usr/share/fish/vendor_completions.d/$package.fish"
    # A folder made by mktemp is nobody else's to look into; a package's root is.
    chmod -R u=rwX,go=rX "$root"
}

# strip_program FROM TO: without symbols, which go into a file beside the packages that debuggers find by its build ID or name.
strip_program() {
    local objcopy strip file
    objcopy=$(tool objcopy "$1") strip=$(tool strip "$1")
    file=$out/symbols/$(basename "$1")_${version}_$(machine "$1").debug
    mkdir -p "$out/symbols"
    "$objcopy" --only-keep-debug "$1" "$file"
    "$strip" --strip-unneeded --remove-section=.comment -o "$2" "$1"
    "$objcopy" --add-gnu-debuglink="$file" "$2"
    chmod 644 "$file"
    chmod 755 "$2"
}

# tool NAME PROGRAM: this machine's own binutils know no other machine's programs, LLVM's do.
tool() {
    if [ "$(machine "$2")" = "$(uname -m)" ]; then echo "$1"; else echo "llvm-$1-19"; fi
}

# completions SHELL DESTINATION: by the program itself, or, where it is another machine's, by this machine's of the same source.
completions() {
    local program=$root/usr/bin/$package
    [ "$(machine "$program")" = "$(uname -m)" ] || program=$repository/target/$(uname -m)-unknown-linux-gnu/release/$package
    mkdir -p "$root/$(dirname "$2")"
    "$program" completions "$1" >"$root/$2"
}

# with_after_install FILE: FILE with what every format says at the end of an installation in the place that is left for it.
with_after_install() {
    sed -e "/^@AFTER_INSTALL@$/{r $repository/deploy/packages/after-install.sh" -e 'd}' "$1"
}
