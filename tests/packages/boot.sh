#!/bin/sh
# Boots the system in a folder: its own systemd is process 1 of process, mount, network, host name and cgroup namespaces. What it can
# reach of this machine is read-only, so that it changes no setting of the kernel and no device. Killed with its parent.
#   boot.sh FOLDER CGROUP     CGROUP: folder of an empty cgroup (version 2), which becomes its root
set -eu

case $1 in
--inside)
    root=$2
    mount --bind "$root" "$root"
    cd "$root"
    mount -t proc -o nosuid,nodev,noexec proc proc
    # systemd-sysctl and its kin would set what belongs to the whole machine.
    for path in sys sysrq-trigger; do
        [ -e "proc/$path" ] || continue
        mount --bind "proc/$path" "proc/$path"
        mount -o remount,bind,ro,nosuid,nodev,noexec "proc/$path"
    done
    mount -t sysfs -o ro,nosuid,nodev,noexec sysfs sys
    mount -t cgroup2 -o nosuid,nodev,noexec cgroup2 sys/fs/cgroup
    mount -t tmpfs -o mode=755,nosuid,noexec tmpfs dev
    for device in null:1:3 zero:1:5 full:1:7 random:1:8 urandom:1:9 tty:5:0; do
        numbers=${device#*:}
        mknod -m 666 "dev/${device%%:*}" c "${numbers%:*}" "${numbers#*:}"
    done
    mkdir dev/pts dev/shm
    mount -t devpts -o newinstance,ptmxmode=0666,mode=620,gid=5,nosuid,noexec devpts dev/pts
    mount -t tmpfs -o mode=1777,nosuid,nodev tmpfs dev/shm
    ln -s pts/ptmx dev/ptmx
    ln -s /proc/self/fd dev/fd
    mount -t tmpfs -o mode=755,nosuid,nodev tmpfs run
    mount -t tmpfs -o mode=1777,nosuid,nodev tmpfs tmp
    pivot_root . mnt
    cd /
    umount -l /mnt
    # "container" tells systemd that machine, clock and modules are not its own; it reads options from its own command line then.
    exec env -i container=tailwater-tests PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
        setpriv --bounding-set=-sys_module,-sys_time,-sys_rawio,-sys_boot \
        /lib/systemd/systemd --system --unit=multi-user.target --show-status=no
    ;;
--in-cgroup)
    # Process 1 alone moves: the one that waits for it would be a process in the root of a tree that systemd keeps for itself.
    echo 0 >"$3/cgroup.procs"
    exec unshare --cgroup sh "$0" --inside "$2"
    ;;
*)
    exec unshare --ipc --mount --net --pid --uts --fork --kill-child=KILL sh "$0" --in-cgroup "$1" "$2"
    ;;
esac
