#!/bin/sh
# Installs Debian packages, or says in one sentence why it cannot.
#   debian-packages.sh FOR PACKAGE...      FOR: the script that found them missing, as it was called
# Nothing is asked, nothing recommended comes along.
set -eu

script=$1
shift
[ $# -eq 0 ] && exit 0
folder=${script%/*} name=${script##*/}
who=${folder##*/}/${name%.sh}
if ! command -v apt-get >/dev/null 2>&1; then
    echo "$who: this machine has no apt-get, and what these Debian packages hold is missing: $*" >&2
    echo "  remedy: install it with the machine's own package manager, where names may differ, and start again" >&2
    exit 1
fi
if [ "$(id -u)" -ne 0 ]; then
    echo "$who: needs root to install: $*" >&2
    echo "  run: sudo $script" >&2
    exit 1
fi
export DEBIAN_FRONTEND=noninteractive
# A mirror that is being renewed, or another apt-get at work, is over in a while.
install() {
    apt-get update -qq && apt-get install -y -qq --no-install-recommends -o DPkg::Lock::Timeout=300 "$@" >/dev/null
}
for pause in 5 20 0; do
    install "$@" && exit 0
    sleep "$pause"
done
echo "$who: apt-get could not install: $*" >&2
echo "  remedy: see what it said above (no network, no room, another apt-get at work), and start again" >&2
exit 1
