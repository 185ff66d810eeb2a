#!/usr/bin/env python3
"""How much each number of the analysis matters: what recordings are told as at half of it and at double, against what they are told as.

    constants.py INPUTS OUT [NAME...]

INPUTS is a folder that collector/examples/inputs.rs filled, OUT the table (Markdown), NAME some constants instead of all. The analysis is
copied into target/constants and built there once for each changed number: this tree is not touched. A number that changes nothing of all
recordings is held against the analysis' own tests as well: the name of one that fails with it stands in the table."""

import os, pathlib, re, shutil, subprocess, sys, time

ROOT = pathlib.Path(__file__).resolve().parents[2]
COPY = ROOT / "target/constants"
RULES = COPY / "collector/analysis/src"
# What the analysis shares with those that show the same.
SHARED = COPY / "collector/model/src"
NUMBER = r"[0-9][0-9_]*(?:\.[0-9_]+)?"
CONSTANT = re.compile(rf"^(?:pub(?:\([a-z]+\))? )?const ([A-Z_0-9]+): (u64|u32|usize|f64) = ({NUMBER});$")
FIELD = re.compile(rf"^            ([a-z_]+): ({NUMBER}),$")

# No rule of a verdict: how much is kept, and units.
LEFT_OUT = re.compile(r".*_MAX$|^WINDOW_NS$|^HISTORY_WINDOWS$|^BINS_.*")


def copy():
    shutil.rmtree(COPY / "collector", ignore_errors=True)
    COPY.mkdir(parents=True, exist_ok=True)
    for crate in ("model", "analysis"):
        # With the time of now: what an interrupted run built of a changed number is newer than this tree's files, and must not pass for them.
        shutil.copytree(ROOT / "collector" / crate, COPY / "collector" / crate, copy_function=shutil.copyfile)
    manifest = (ROOT / "Cargo.toml").read_text()
    members = 'members = ["collector/model", "collector/analysis"]'
    manifest = re.sub(r"^members = .*$", members, manifest, flags=re.M)
    # Profiles of packages that are not in the copy.
    manifest = re.sub(r"\[profile\.dev\.package\.[a-z-]+\]\n(?:[^\[\n].*\n)*", "", manifest)
    (COPY / "Cargo.toml").write_text(manifest)
    shutil.copy(ROOT / "Cargo.lock", COPY / "Cargo.lock")


def constants():
    """(file, line, name, value as written, first sentence of what stands above it)"""
    for path in [*sorted(RULES.rglob("*.rs")), SHARED / "window.rs"]:
        if path.name.endswith("tests.rs") or path.name == "fixture.rs":
            continue
        lines = path.read_text().split("\n")
        # Two numbers below one comment share it; the next comment begins anew.
        about, used, defaults = [], False, False
        for number, line in enumerate(lines):
            if line.startswith("#[cfg(test)]"):
                break
            defaults = (defaults or line.startswith("impl Default for")) and line != "}"
            if line.strip().startswith("///"):
                about, used = ([] if used else about) + [line.strip()[3:].strip()], False
                continue
            found = CONSTANT.match(line)
            field = defaults and path.name == "config.rs" and FIELD.match(line)
            if found and not LEFT_OUT.match(found.group(1)):
                yield path, number, found.group(1), found.group(3), " ".join(about)
            elif field:
                yield path, number, field.group(1), field.group(2), described(lines, field.group(1))
            if found:
                used = True
            elif line.strip():
                about, used = [], False


def described(lines, field):
    """What stands above a field of the configuration."""
    for number, line in enumerate(lines):
        if re.match(rf"    pub {field}: ", line):
            above = []
            while lines[number - 1].strip().startswith("///"):
                number -= 1
                above.insert(0, lines[number].strip()[3:].strip())
            return " ".join(above)
    return ""


def changed(value, factor):
    if "." in value:
        return repr(float(value.replace("_", "")) * factor)
    return str(max(1, int(int(value.replace("_", "")) * factor)))


def verdicts(inputs):
    # As tests are built: a build in four seconds matters more than a run in one.
    build = ["cargo", "build", "--offline", "--quiet", "-p", "tailwater-analysis", "--example", "verdicts"]
    built = subprocess.run(build, cwd=COPY, capture_output=True, text=True)
    if built.returncode:
        return None, built.stderr.strip().split("\n")[0]
    run = subprocess.run([COPY / "target/debug/examples/verdicts", *inputs], capture_output=True, text=True, timeout=600)
    if run.returncode:
        return None, run.stderr.strip().split("\n")[0]
    told = {}
    for line in run.stdout.splitlines():
        recording, incident, digest, *verdict = line.split("\t")
        told[recording, incident] = verdict, digest
    return told, None


def failing_test():
    """The name of a test of the analysis that does not hold with the changed number; None: all do."""
    test = ["cargo", "test", "--offline", "--quiet", "-p", "tailwater-analysis", "--lib"]
    run = subprocess.run(test, cwd=COPY, capture_output=True, text=True)
    if run.returncode == 0:
        return None
    found = re.search(r"^---- (?:[a-z_0-9]+::)*([a-z_0-9]+) stdout ----$", run.stdout, flags=re.M)
    return found.group(1) if found else "(does not compile)"


def said(before, told, why):
    """What a changed number does, in words, and how many verdicts and how much at all it changes."""
    if told is None:
        return f"does not run: {why}", 1, 1
    verdict = lambda of, key: of[key][0] if key in of else None
    all_of_it = sorted(key for key in before.keys() | told.keys() if before.get(key) != told.get(key))
    other_verdict = [key for key in all_of_it if verdict(before, key) != verdict(told, key)]
    if not all_of_it:
        return "nothing", 0, 0
    if not other_verdict:
        return f"no verdict; tells {len(all_of_it)} otherwise", 0, len(all_of_it)
    recordings = list(dict.fromkeys(recording for recording, _ in other_verdict))
    names = ", ".join(recordings[:3]) + (", …" if len(recordings) > 3 else "")
    return f"{len(other_verdict)} ({names})", len(other_verdict), len(all_of_it)


def main():
    folder, out, *only = sys.argv[1:]
    inputs = sorted(str(path) for path in pathlib.Path(folder).glob("*.inputs"))
    copy()
    before, why = verdicts(inputs)
    if before is None:
        sys.exit(f"constants: the analysis as it is does not run: {why}")
    rows, begun = [], time.monotonic()
    everything = [one for one in constants() if not only or one[2] in only]
    for count, (file, number, name, value, about) in enumerate(everything, 1):
        text = file.read_text()
        lines, cells, verdicts_most, most, held = text.split("\n"), [], 0, 0, False
        for factor in (0.5, 2):
            other = changed(value, factor)
            if other == value:
                cells.append("the same number")
                continue
            lines_changed = list(lines)
            at = lines[number].rindex(value)
            lines_changed[number] = lines[number][:at] + other + lines[number][at + len(value):]
            file.write_text("\n".join(lines_changed))
            cell, differ, otherwise = said(before, *verdicts(inputs))
            if otherwise == 0:
                test = failing_test()
                cell += f"; `{test}` fails" if test else ""
                held = held or test is not None
            cells.append(f"{other}: {cell}")
            verdicts_most, most = max(verdicts_most, differ), max(most, otherwise)
        file.write_text(text)
        path = file.relative_to(RULES) if file.is_relative_to(RULES) else file.relative_to(COPY / "collector")
        first = re.split(r"(?<=[.:;]) ", about)[0].rstrip(".:;")
        rows.append((verdicts_most, most, held, f"| `{path}` | `{name}` | {value} | {first} | {cells[0]} | {cells[1]} |"))
        print(f"{count} of {len(everything)}, {time.monotonic() - begun:.0f} s: {name} {cells}", file=sys.stderr, flush=True)
    decide = sum(1 for of_verdicts, _, _, _ in rows if of_verdicts)
    only_tests = sum(1 for _, most, held, _ in rows if most == 0 and held)
    silent = sum(1 for _, most, held, _ in rows if most == 0 and not held)
    incidents = sum(1 for _, incident in before if incident)
    version = subprocess.run(["git", "describe", "--always", "--dirty"], cwd=ROOT, capture_output=True, text=True).stdout.strip()
    head = f"""# The analysis' numbers

What {len(inputs)} recordings with {incidents} incidents are told as when a number is half of what it is, and double: how many incidents get another verdict
(severity, kind, root, resource, first culprit; or are told only then, or not any more), and in which recordings; where no verdict changes, how many
incidents or recordings are told otherwise in anything at all (confidence, chain, counts, words, topology, congestion). Where nothing changes, a
test of the rule that fails is named. `make constants` makes this table; at {version}. {decide} of {len(rows)} change a verdict, {only_tests} are held by tests
alone, {silent} by nothing.

Recordings with a comma in their name are made of others (`collector/tests/composed/compose.rs`): hosts that no agent watches, windows that are missing,
clocks that disagree, and what no machine of the laboratory has.

| file | number | value | what it is | half | double |
|---|---|---|---|---|---|
"""
    pathlib.Path(out).write_text(head + "\n".join(row for _, _, _, row in rows) + "\n")


main()
