#!/bin/bash
# Makes the Debian packages of agent and collector from binaries that are built already.
#   build.sh [--binaries FOLDER] [--out FOLDER] [--version VERSION] [--quick]
# --quick compresses little: for tests. The version is Cargo.toml's, followed by date and commit unless the commit is tagged with it.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
repository=$(cd "$here/../.." && pwd)
binaries=$repository/target/release
out=$repository/target/packages
compression=(-Zxz)
version=
while [ $# -gt 0 ]; do
    case $1 in
    --binaries) binaries=$2 && shift 2 ;;
    --out) out=$2 && shift 2 ;;
    --version) version=$2 && shift 2 ;;
    --quick) compression=(-Zgzip -z1) && shift ;;
    *) echo "build.sh: $1 is no option: --binaries FOLDER, --out FOLDER, --version VERSION, --quick" >&2 && exit 64 ;;
    esac
done
mkdir -p "$out"
out=$(cd "$out" && pwd)
work=$(mktemp -d "$out/.build.XXXXXX")
trap 'rm -rf "$work"' EXIT
# What is in a package does not depend on who builds it.
umask 022

cargo_version=$(sed -n '/^\[workspace.package\]/,/^\[/s/^version = "\(.*\)"$/\1/p' "$repository/Cargo.toml")
git() { command git -C "$repository" "$@" 2>/dev/null; }
# A source archive has no commits: then the version alone has to do, and the date of this file.
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct || stat -c %Y "$here/build.sh")}
export SOURCE_DATE_EPOCH
version=${version:-$cargo_version}
if commit=$(git rev-parse --short=8 HEAD) && [ "$version" = "$cargo_version" ] && [ "$(git tag --points-at HEAD --list "v$cargo_version")" = "" ]; then
    version="$cargo_version+git$(date -u -d "@$SOURCE_DATE_EPOCH" +%Y%m%d%H%M).$commit"
fi
architecture=$(dpkg --print-architecture)
maintainer="${DEBFULLNAME:-Tailwater maintainers} <${DEBEMAIL:-maintainers@tailwater.invalid}>"

# Of which packages, in which versions, the program of a package needs libraries.
libraries() {
    printf 'Source: tailwater\n\nPackage: %s\nArchitecture: any\n' "$1" >"$work/debian/control"
    (cd "$work" && dpkg-shlibdeps -O "debian/$1/usr/bin/$1") | sed -n 's/^shlibs:Depends=//p'
}

# put MODE SOURCE DESTINATION: one file into the package's tree.
put() { install -D -m "$1" "$2" "$root/$3"; }

maintainer_script() {
    sed -e "s/@PACKAGE@/$package/g" "$here/$1.in" >"$root/DEBIAN/$1"
    chmod 755 "$root/DEBIAN/$1"
}

build() { # package configuration-file
    package=$1
    root=$work/debian/$package
    local binary=$binaries/$package documentation=usr/share/doc/$package
    if [ ! -x "$binary" ]; then
        echo "build.sh: $binary is not built" >&2
        echo "  remedy: cargo build --release -p $package, or give the folder of the binaries by --binaries" >&2
        exit 66
    fi
    mkdir -p "$root/DEBIAN" "$root/usr/bin"
    strip --strip-unneeded --remove-section=.comment -o "$root/usr/bin/$package" "$binary"
    chmod 755 "$root/usr/bin/$package"
    put 644 "$repository/deploy/systemd/$package.service" "lib/systemd/system/$package.service"
    if [ -e "$repository/deploy/systemd/$package.sysusers" ]; then
        put 644 "$repository/deploy/systemd/$package.sysusers" "usr/lib/sysusers.d/$package.conf"
    fi
    put 644 "$repository/deploy/$package.toml" "etc/tailwater/$2"
    echo "/etc/tailwater/$2" >"$root/DEBIAN/conffiles"

    put 644 "$repository/deploy/README.md" "$documentation/README.md"
    put 644 "$here/copyright" "$documentation/copyright"
    case $package in
    tailwater)
        for page in "$repository"/collector/docs/*.md; do put 644 "$page" "$documentation/$(basename "$page")"; done
        mkdir -p "$root/$documentation/examples"
        cp -R "$repository/dashboards" "$root/$documentation/examples/dashboards"
        ;;
    tailwater-agent)
        put 644 "$repository/deploy/systemd/network-namespaces.conf" "$documentation/examples/network-namespaces.conf"
        ;;
    esac
    {
        printf '%s (%s) unstable; urgency=medium\n\n' "$package" "$version"
        printf '  * Built from commit %s.\n\n' "${commit:-of the release}"
        printf ' -- %s  %s\n' "$maintainer" "$(LC_ALL=C date -u -R -d "@$SOURCE_DATE_EPOCH")"
    } | gzip -9n >"$root/$documentation/changelog.gz"

    completions() { mkdir -p "$root/$(dirname "$2")" && "$root/usr/bin/$package" completions "$1" >"$root/$2"; }
    completions bash "usr/share/bash-completion/completions/$package"
    completions zsh "usr/share/zsh/vendor-completions/_$package"
    completions fish "usr/share/fish/vendor_completions.d/$package.fish"

    for script in postinst prerm postrm; do maintainer_script $script; done
    # By itself, so that its failure is this script's.
    depends=$(libraries "$package")
    sed -e "s/@VERSION@/$version/" -e "s/@ARCHITECTURE@/$architecture/" -e "s/@MAINTAINER@/$maintainer/" \
        -e "s/@LIBRARIES@/$depends/" \
        -e "s/@INSTALLED_SIZE@/$(du -k -s --apparent-size "$root" | cut -f1)/" \
        "$here/$package.control.in" >"$root/DEBIAN/control"
    (cd "$root" && find . -path ./DEBIAN -prune -o -type f -printf '%P\0' | LC_ALL=C sort -z | xargs -0 md5sum) \
        >"$root/DEBIAN/md5sums"
    # A folder made by mktemp is nobody else's to look into; a package's root is.
    chmod -R u=rwX,go=rX "$root"
    dpkg-deb "${compression[@]}" --root-owner-group --build "$root" "$out/${package}_${version}_$architecture.deb" >/dev/null
    echo "$out/${package}_${version}_$architecture.deb"
}

build tailwater tailwater.toml
build tailwater-agent agent.toml
