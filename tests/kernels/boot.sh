#!/bin/sh
# Boots a kernel in QEMU without any hardware's help (TCG), on this machine's root read-only, and runs one command in it.
#   boot.sh KERNEL FOLDER SECONDS COMMAND
# KERNEL: a folder that fetch.sh printed. FOLDER: made anew; what the guest says is in FOLDER/out, its kernel's log in FOLDER/console.
# CPUS, PROCESSOR, MEMORY_MIB and CGROUPS (v2, hybrid) change the machine, APPEND what its kernel is told. Ends with what the command ended with,
# or 90 where the guest did not get that far.
set -eu

kernel=$1 folder=$2 seconds=$3 command=$4
here=$(cd "$(dirname "$0")" && pwd)
qemu=$("$here/qemu.sh" "${CACHE:-/var/cache/tailwater-kernels}")
release=$(ls "$kernel/lib/modules" | sed -n 1p)
memory=${MEMORY_MIB:-1536} cpus=${CPUS:-2}
rm -rf "$folder"
mkdir -p "$folder/init/bin" "$folder/init/modules" "$folder/init/dev" "$folder/init/proc" "$folder/init/sys"
folder=$(cd "$folder" && pwd)

# The smallest root that can mount the real one: a shell and the modules for that, unpacked, in the order in which they need each other.
init=$folder/init
cp /bin/busybox "$init/bin/"
cp "$here/init" "$init/init"
echo "$command" >"$init/command"
(cd "$kernel/lib/modules" && pwd -P) >"$init/modules/tree"
: >"$init/modules/order"
for module in virtio_pci virtiofs overlay virtio_blk ext4 tcp_diag; do
    /sbin/modprobe -d "$kernel" -S "$release" --show-depends "$module" 2>/dev/null | awk '$1 == "insmod" { print $2 }' |
        while read -r file; do
            name=$(basename "$file" | sed -E 's/\.(xz|zst|gz)$//')
            [ -e "$init/modules/$name" ] && continue
            case $file in
            *.xz) xz -dc "$file" ;;
            *.zst) zstd -qdc "$file" ;;
            *.gz) gzip -dc "$file" ;;
            *) cat "$file" ;;
            esac >"$init/modules/$name"
            echo "$name" >>"$init/modules/order"
        done
done
(cd "$init" && find . | cpio -o -H newc --quiet) | gzip -1 >"$folder/initrd"
rm -rf "$init"
image=$(ls "$kernel"/boot/vmlinuz-* "$kernel"/usr/lib/modules/*/vmlinuz 2>/dev/null | sed -n 1p)
truncate -s 256M "$folder/disk"

daemon=/usr/lib/qemu/virtiofsd
[ -x "$daemon" ] && options="-o source=/ -o cache=always -o sandbox=chroot" || {
    daemon=/usr/libexec/virtiofsd
    options="--shared-dir=/ --cache=always --sandbox=chroot --announce-submounts"
}
children=""
ends() {
    trap - EXIT INT TERM
    # shellcheck disable=SC2086  # pids on purpose
    [ -z "$children" ] || kill $children 2>/dev/null || true
    rm -f "$folder/initrd" "$folder/disk" "$folder/share"
}
trap ends EXIT
trap 'exit 130' INT TERM
# shellcheck disable=SC2086
"$daemon" --socket-path="$folder/share" $options >"$folder/share.log" 2>&1 &
children=$!
tries=0
while [ ! -S "$folder/share" ]; do
    tries=$((tries + 1))
    [ "$tries" -lt 100 ] || { echo "boot: the host's root cannot be shared: $(tail -n 1 "$folder/share.log")" >&2; exit 90; }
    sleep 0.05
done
# A processor with what the host's programs may use. The timer check of early boot fails where the host is busy.
timeout --foreground -k 2 "$seconds" "$qemu/usr/bin/qemu-system-x86_64" -L "$qemu/usr/share/qemu" -L /usr/share/seabios -machine q35 -accel tcg,thread=multi -cpu "${PROCESSOR:-Haswell-noTSX}" \
    -smp "$cpus" -m "$memory" -nodefaults -no-user-config -display none -no-reboot \
    -kernel "$image" -initrd "$folder/initrd" \
    -append "console=ttyS0,115200 panic=-1 quiet no_timer_check tailwater.cgroups=${CGROUPS:-v2} ${APPEND:-}" \
    -serial "file:$folder/console" -serial "file:$folder/out" \
    -drive "file=$folder/disk,format=raw,if=virtio,cache=unsafe" \
    -object "memory-backend-memfd,id=mem,size=${memory}M,share=on" -numa node,memdev=mem \
    -chardev "socket,id=share,path=$folder/share" -device vhost-user-fs-pci,queue-size=1024,chardev=share,tag=host \
    >"$folder/qemu.log" 2>&1 &
guest=$!
children="$children $guest"
wait "$guest" || true
code=$(tr -d '\r' <"$folder/out" | sed -n 's/^exit //p' | tail -n 1)
exit "${code:-90}"
