#!/usr/bin/env python3
"""How much each number of the analysis matters: what recordings are told as at half of it and at double, against what they are told as.

    constants.py INPUTS OUT [NAME...]

INPUTS is a folder that the examples `inputs` and `simulated` filled, OUT the table (Markdown); NAME some constants instead of all (a name, or
`file.rs:NAME` where two files have one of it): their rows are replaced, all others stay. What stands above the table's counts is written by
hand and kept. The analysis is copied into target/constants and built there once for each changed number: this tree is not touched.

A number that changes nothing of them is held against the analysis' own tests, its unit tests and those of collector/analysis/tests: the name of
one that fails with it stands in the table. A build that fails holds nothing, and ends the run: then this file is wrong. Recordings with a comma
in their name are made of others (composed): they are many, and asked last, of what nothing else holds."""

import pathlib, re, shutil, subprocess, sys, time

ROOT = pathlib.Path(__file__).resolve().parents[2]
COPY = ROOT / "target/constants"
RULES = COPY / "collector/analysis/src"
# What the analysis shares with those that show the same.
SHARED = COPY / "collector/model/src"
NUMBER = r"[0-9][0-9_]*(?:\.[0-9_]+)?"
CONSTANT = re.compile(r"^(?:pub(?:\([a-z]+\))? )?const ([A-Z_0-9]+): (u8|u64|u32|usize|i64|f64) = (.+);$")
FIELD = re.compile(rf"^            ([a-z_]+): ({NUMBER}),$")
ROW = re.compile(r"^\| `([^`]+)` \| `([^`]+)` \|")
COUNTS = re.compile(r"^Of [0-9]+ numbers .*$", re.M)
COLUMNS = "| file | number | value | what it is | half | double |\n|---|---|---|---|---|---|\n"

# No rule of a verdict: how much is kept, and units.
LEFT_OUT = re.compile(r".*_MAX$|^WINDOW_NS$|^HISTORY_WINDOWS$|^BINS_.*")
BUILD_S, RUN_S, TEST_S = 600, 600, 600


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
            # What is made of another constant is no choice of its own.
            if found and not LEFT_OUT.match(found.group(1)) and not re.search("[A-Za-z]", found.group(3)):
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


def place(path):
    return str(path.relative_to(RULES) if path.is_relative_to(RULES) else path.relative_to(COPY / "collector"))


def changed(value, factor):
    if not re.fullmatch(NUMBER, value):
        return f"({value}) / 2" if factor < 1 else f"({value}) * 2"
    if "." in value:
        return repr(float(value.replace("_", "")) * factor)
    return str(max(1, int(int(value.replace("_", "")) * factor)))


def cargo(*arguments):
    """A call in the copy; ends everything where it does not build."""
    command = ["cargo", *arguments, "--offline", "--quiet", "-p", "tailwater-analysis"]
    built = subprocess.run(command, cwd=COPY, capture_output=True, text=True, timeout=BUILD_S)
    if built.returncode:
        sys.exit(f"constants: {' '.join(command)} failed:\n{built.stderr}")


def verdicts(inputs):
    # As tests are built: a build in four seconds matters more than a run in one.
    cargo("build", "--example", "verdicts")
    try:
        run = subprocess.run([COPY / "target/debug/examples/verdicts", *inputs], capture_output=True, text=True, timeout=RUN_S)
    except subprocess.TimeoutExpired:
        return None, f"not over after {RUN_S} s"
    if run.returncode:
        return None, run.stderr.strip().split("\n")[0]
    told = {}
    for line in run.stdout.splitlines():
        recording, incident, digest, *verdict = line.split("\t")
        told[recording, incident] = verdict, digest
    return told, None


def failing_test():
    """The name of a test of the analysis that does not hold with the changed number; None: all do."""
    for which in ("--lib",), ("--tests",):
        cargo("test", "--no-run", *which)
        test = ["cargo", "test", "--offline", "--quiet", "--no-fail-fast", "-p", "tailwater-analysis", *which]
        try:
            run = subprocess.run(test, cwd=COPY, capture_output=True, text=True, timeout=TEST_S)
        except subprocess.TimeoutExpired:
            return f"(the tests are not over after {TEST_S} s)"
        found = re.search(r"^---- (?:[a-z_0-9]+::)*([a-z_0-9]+) stdout ----$", run.stdout, flags=re.M)
        if found:
            return found.group(1)
        if run.returncode:
            sys.exit(f"constants: {' '.join(test)} ended with {run.returncode} and no test that failed:\n{run.stderr}")
    return None


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


def row(inputs, file, number, name, value, about):
    text = file.read_text()
    lines, tried = text.split("\n"), []
    for factor in (0.5, 2):
        other = changed(value, factor)
        if other == value:
            tried.append("the same number")
            continue
        lines_changed = list(lines)
        at = lines[number].rindex(value)
        lines_changed[number] = lines[number][:at] + other + lines[number][at + len(value):]
        file.write_text("\n".join(lines_changed))
        test = None
        for composed, (some, told) in enumerate(inputs.items()):
            if composed and test:
                break
            cell, _, otherwise = said(told, *verdicts(some))
            if otherwise:
                break
            test = None if composed else failing_test()
        tried.append(f"{other}: {cell}" + (f"; `{test}` fails" if test else ""))
    file.write_text(text)
    first = re.split(r"(?<=[.:;]) ", about)[0].rstrip(".:;")
    return f"| `{place(file)}` | `{name}` | {value} | {first} | {tried[0]} | {tried[1]} |"


def counts(rows):
    """What is said above the table of its rows."""
    cells = [[cell.strip() for cell in one.strip("|\n").split(" | ")][-2:] for one in rows]
    decides = lambda one: any(re.search(r": [0-9]+ \(|does not run", cell) for cell in one)
    tells = lambda one: any("otherwise" in cell for cell in one)
    held = lambda one: any("fails" in cell for cell in one)
    verdict = sum(1 for one in cells if decides(one))
    otherwise = sum(1 for one in cells if not decides(one) and tells(one))
    by_tests = sum(1 for one in cells if not decides(one) and not tells(one) and held(one))
    return (
        f"Of {len(rows)} numbers {verdict} change a verdict, {otherwise} more change what else is told, {by_tests} are held by tests alone, "
        f"{len(rows) - verdict - otherwise - by_tests} by nothing."
    )


def main():
    folder, out, *only = sys.argv[1:]
    out = pathlib.Path(out)
    paths = sorted(pathlib.Path(folder).glob("*.inputs"))
    if not paths:
        sys.exit(f"constants: no recordings in {folder}: `make constants` fills it")
    copy()
    # What each group of recordings is told as by the analysis as it is.
    inputs, incidents = {}, 0
    for composed in (False, True):
        some = tuple(str(path) for path in paths if ("," in path.name) == composed)
        if not some:
            continue
        inputs[some], why = verdicts(some)
        if inputs[some] is None:
            sys.exit(f"constants: the analysis as it is does not run: {why}")
        incidents += sum(1 for _, incident in inputs[some] if incident)
    test = failing_test()
    if test:
        sys.exit(f"constants: the analysis as it is fails `{test}`")
    head, rows = out.read_text().split(COLUMNS)
    rows = {match.groups(): line for line in rows.splitlines() if (match := ROW.match(line))}
    everything = list(constants())
    asked = [one for one in everything if not only or one[2] in only or f"{place(one[0])}:{one[2]}" in only]
    unknown = set(only) - {one[2] for one in asked} - {f"{place(one[0])}:{one[2]}" for one in asked}
    if unknown:
        sys.exit(f"constants: no such number: {', '.join(sorted(unknown))}")
    begun = time.monotonic()
    for count, one in enumerate(asked, 1):
        key = place(one[0]), one[2]
        rows[key] = row(inputs, *one)
        print(f"{count} of {len(asked)}, {time.monotonic() - begun:.0f} s: {rows[key]}", file=sys.stderr, flush=True)
        # Each row as soon as it is known: a run of an hour that is ended keeps what it found.
        table = [rows[key] for key in dict.fromkeys((place(one[0]), one[2]) for one in everything) if key in rows]
        out.write_text(COUNTS.sub(lambda _: counts(table), head) + COLUMNS + "\n".join(table) + "\n")
    print(f"{len(paths)} recordings with {incidents} incidents", file=sys.stderr)


main()
