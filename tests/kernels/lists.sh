# Lists of packages beside the machine's own, whose sources stay as they are. To be read by a shell script.

fail() { echo "$0: $1" >&2; exit 1; }

# own_lists FOLDER SUITE [ARCHITECTURE]: sets $own, the options with which apt knows that suite alone, and $mirror.
own_lists() {
    # The mirror that this machine uses already: of Debian itself, not of its security updates or of others.
    mirror=$(apt-get indextargets --format '$(REPO_URI)' 2>/dev/null | grep -E '/debian/?$' | sed -n 1p)
    [ -n "$mirror" ] || mirror=http://deb.debian.org/debian/
    case $2 in *-security) mirror=$(echo "$mirror" | sed 's,/debian/*$,/debian-security/,') ;; esac
    lists=$1/lists/$2${3:+-$3}
    mkdir -p "$lists/state/partial" "$lists/cache/archives/partial" "$lists/parts"
    echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $mirror $2 main" >"$lists/sources.list"
    own="-o Dir::Etc::sourcelist=$lists/sources.list -o Dir::Etc::sourceparts=$lists/parts -o Dir::State::lists=$lists/state \
        -o Dir::Cache=$lists/cache -o Dir::Cache::archives=$lists/cache/archives -o Dir::State::status=/dev/null \
        -o APT::Default-Release= -o Acquire::Languages=none -o APT::Sandbox::User=root${3:+ -o APT::Architecture=$3 -o APT::Architectures=$3}"
    own_apt update -qq || fail "the list of packages of $2 cannot be had from $mirror"
}

# own_apt ARGUMENT...: apt-get with $own, quietly and up to three times, as a mirror may be in the middle of being renewed; what it said if
# it never succeeds.
own_apt() {
    for pause in 5 20 0; do
        # shellcheck disable=SC2086  # options on purpose
        said=$(apt-get $own "$@" 2>&1) && return 0
        sleep "$pause"
    done
    echo "$said" >&2
    return 1
}
