#!/bin/sh
# Installs the software of the lab (real servers and the tools that place them) from Debian, without starting any of
# its services. Does nothing when all of it is there.
set -eu

packages=""
add() { case " $packages " in *" $1 "*) ;; *) packages="$packages $1" ;; esac; }
need() { # command-or-file package
    if ! command -v "$1" >/dev/null 2>&1 && [ ! -e "$1" ]; then add "$2"; fi
}
need /usr/sbin/apache2 apache2-bin
need /usr/sbin/nginx nginx
need /usr/bin/wrk wrk
need /usr/sbin/php-fpm8.2 php8.2-fpm
need /usr/sbin/haproxy haproxy
need /usr/bin/gunicorn gunicorn
need /usr/lib/python3/dist-packages/psycopg2 python3-psycopg2
need /usr/lib/python3/dist-packages/redis python3-redis
need /usr/bin/redis-server redis-server
need /usr/bin/memcached memcached
need /usr/lib/postgresql/15/bin/postgres postgresql-15
need /usr/sbin/pgbouncer pgbouncer
need setpriv util-linux
need /usr/share/tomcat10/lib/catalina.jar tomcat10-common
need /usr/share/tomcat10/bin/bootstrap.jar tomcat10-common
need /usr/share/tomcat10/lib/tomcat-jdbc.jar libtomcat10-java
need /usr/bin/javac openjdk-17-jdk-headless
need /usr/share/java/mariadb-java-client.jar libmariadb-java
need /usr/sbin/mariadbd mariadb-server-core
need /usr/bin/mariadb mariadb-client-core
need /usr/bin/mariadb-install-db mariadb-server-core
need ip iproute2
need ss iproute2
need /usr/sbin/nft nftables
need losetup mount
need mkfs.ext4 e2fsprogs

[ -z "$packages" ] && exit 0
# Debian starts a service as soon as its package is unpacked, unless this hook says no. A hook that somebody else put there
# stays as it is, if it says no as well.
policy=/usr/sbin/policy-rc.d
mine=""
if [ "$(id -u)" -ne 0 ] || ! command -v apt-get >/dev/null 2>&1; then
    : # nothing will be installed, as the last line says
elif [ ! -e "$policy" ]; then
    printf '#!/bin/sh\n# Put here by the lab of Tailwater while it installs packages.\nexit 101\n' >"$policy"
    chmod 755 "$policy"
    mine=yes
elif "$policy" mariadb start >/dev/null 2>&1; then
    echo "lab/install: $policy lets services start; the lab's packages would start their servers on this machine." >&2
    echo "  remedy: make it exit 101 for the time of the installation" >&2
    exit 1
fi
trap '[ -z "$mine" ] || rm -f "$policy"' EXIT INT TERM

# shellcheck disable=SC2086  # a list of packages on purpose
"$(dirname "$0")/../../deploy/debian-packages.sh" "$0" $packages
