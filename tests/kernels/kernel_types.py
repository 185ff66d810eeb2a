#!/usr/bin/env python3
"""Makes, from a kernel's type information, the little of it that Tailwater's programs ask for, to be held against them in `make test`.

    kernel_types.py OBJECTS OUT NAME=SOURCE...

OBJECTS: folder of the compiled `*.bpf.o`. SOURCE: a kernel's image (a vmlinuz of x86-64 or arm64), or a C header with all types of a
kernel as bpftool writes it (`bpftool btf dump file vmlinux format c`), for kernels that can be had in no other way. For each NAME:

OUT/NAME.btf     the types that relocations ask for, by `bpftool gen min_core_btf`
OUT/NAME.offers  text: the release, how many helpers and kinds of map the kernel has, and the hooks that programs are made for, with the
                 types of their arguments. A header tells no functions.

OUT/asked says what the programs asked for when the files were made: when they ask for more, the files are made anew.
"""
import glob
import json
import lzma
import os
import re
import struct
import subprocess
import sys
import tempfile
import zlib

BTF_START = bytes.fromhex("9feb01001800000000000000")


def said_by(*command):
    return subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout


def unpacked(data):
    """The bytes of a compressed stream, by its first ones."""
    if data.startswith(b"\xfd7zXZ\0"):
        return lzma.LZMADecompressor().decompress(data)
    if data.startswith(b"\x1f\x8b"):
        return zlib.decompressobj(31).decompress(data)
    if data.startswith(b"\x28\xb5\x2f\xfd"):
        # What follows the frame is not its own, of which the program complains after having written all of it.
        return subprocess.run(["zstd", "-dcq"], input=data, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=False).stdout
    if data.startswith(b"\x02\x21\x4c\x18"):
        return subprocess.run(["lz4", "-dcq"], input=data, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=False).stdout
    return data


def kernel_of(image):
    """The kernel inside a bootable image: Documentation/arch/x86/boot.rst, drivers/firmware/efi/libstub/zboot-header.S."""
    if image[0x202:0x206] == b"HdrS":
        setup_sectors = image[0x1F1] or 4
        at, length = struct.unpack_from("<II", image, 0x248)
        at += (setup_sectors + 1) * 512
        return unpacked(image[at:at + length])
    if image[4:8] == b"zimg":
        at, length = struct.unpack_from("<II", image, 8)
        return unpacked(image[at:at + length])
    return unpacked(image)


def types_of_image(path, to):
    with open(path, "rb") as file:
        image = file.read()
    kernel = kernel_of(image)
    # The first is of the kernel itself; none other is in an image.
    at = kernel.find(BTF_START)
    if at < 0:
        sys.exit(f"kernel_types.py: {path} has no type information (CONFIG_DEBUG_INFO_BTF), or is packed in a way that is not known here")
    length, = struct.unpack_from("<I", kernel, at + 4)
    strings_at, strings_length = struct.unpack_from("<II", kernel, at + 16)
    with open(to, "wb") as file:
        file.write(kernel[at:at + length + strings_at + strings_length])
    release = re.search(rb"Linux version (\S+) ", kernel)
    return release[1].decode() if release else "unknown"


def types_of_header(path, to):
    with tempfile.TemporaryDirectory() as folder:
        source, compiled = f"{folder}/types.c", f"{folder}/types.o"
        with open(source, "w", encoding="utf-8") as file:
            file.write(f'#include "{os.path.abspath(path)}"\nint kept;\n')
        said_by("gcc", "-w", "-g", "-fno-eliminate-unused-debug-types", "-c", source, "-o", compiled)
        said_by("pahole", "-J", compiled)
        said_by("objcopy", "-O", "binary", "--only-section=.BTF", "--set-section-flags", ".BTF=alloc", compiled, to)
    return ""


def name_of(types, number):
    kind = types.get(number)
    if kind is None:
        return "void"
    if kind["kind"] == "PTR":
        pointee = name_of(types, kind["type_id"])
        return pointee + "*" if pointee.endswith("*") else pointee + " *"
    if kind["kind"] == "CONST":
        return "const " + name_of(types, kind["type_id"])
    if kind["kind"] in ("STRUCT", "UNION", "ENUM", "FWD"):
        return {"FWD": kind.get("fwd_kind", "struct")}.get(kind["kind"], kind["kind"].lower()) + " " + kind["name"]
    return kind["name"]


def offers(full, wanted):
    types = {kind["id"]: kind for kind in json.loads(said_by("bpftool", "-j", "btf", "dump", "file", full))["types"]}

    def arguments(number):
        return [name_of(types, p["type_id"]) for p in types[number]["params"]]

    found, most = {}, {}
    for kind in types.values():
        if kind["kind"] == "TYPEDEF" and kind["name"].startswith("btf_trace_"):
            hook = ("tracepoint", kind["name"].removeprefix("btf_trace_"))
            if hook in wanted:
                # Its first argument is the context of whoever attaches.
                found[hook] = arguments(types[kind["type_id"]]["type_id"])[1:]
        elif kind["kind"] == "FUNC" and ("function", kind["name"]) in wanted:
            found["function", kind["name"]] = arguments(kind["type_id"])
        elif kind["kind"].startswith("ENUM"):
            for value in kind["values"]:
                # The first number that stands for no helper; the last kind of map.
                if value["name"] == "__BPF_FUNC_MAX_ID":
                    most["helpers_below"] = value["val"]
                elif value["name"].startswith("BPF_MAP_TYPE_") and kind["name"] == "bpf_map_type":
                    most["map_kinds_below"] = max(most.get("map_kinds_below", 0), value["val"] + 1)
    return [f"{name} {most[name]}" for name in sorted(most)] + [
        f"{kind} {name}({', '.join(found[kind, name])})" for kind, name in sorted(found)
    ]


def main():
    objects, out = sorted(glob.glob(f"{sys.argv[1]}/*.bpf.o")), sys.argv[2]
    if not objects:
        sys.exit(f"kernel_types.py: no compiled programs in {sys.argv[1]}")
    wanted = set()
    for compiled in objects:
        for section in re.findall(rb" (tp_btf|fentry|fexit|iter)/(\w+)", said_by("readelf", "-SW", compiled)):
            kind, name = (part.decode() for part in section)
            wanted.add({"tp_btf": ("tracepoint", name), "iter": ("function", "bpf_iter_" + name)}.get(kind, ("function", name)))
    asked = set()
    os.makedirs(out, exist_ok=True)
    for argument in sys.argv[3:]:
        name, source = argument.split("=", 1)
        with tempfile.TemporaryDirectory() as folder:
            full = f"{folder}/full.btf"
            release = types_of_header(source, full) if source.endswith(".h") else types_of_image(source, full)
            said = subprocess.run(
                ["bpftool", "-d", "gen", "min_core_btf", full, f"{out}/{name}.btf", *objects],
                check=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True).stdout
            asked |= set(re.findall(r"relo #\d+: <(?:byte_off|byte_sz|field_exists|signed|lshift_u64|rshift_u64|enumval_\w+)> \[\d+\] ([^(=\n]+?) [(=]", said))
            lines = [f"release {release or name.split(chr(45))[0]}", *offers(full, wanted)]
        with open(f"{out}/{name}.offers", "w", encoding="utf-8") as file:
            file.write("\n".join(lines) + "\n")
        print(f"{name}: {release or 'of a header'}, {os.path.getsize(f'{out}/{name}.btf')} bytes")
    with open(f"{out}/asked", "w", encoding="utf-8") as file:
        file.write("\n".join(sorted(asked)) + "\n")


main()
