#!/usr/bin/env python3
"""Asks other people's methods of root-cause analysis which host was hurt.

rank.py CASES ANSWERS: for each recording of CASES (JSON) its table of signals lies beside that file. Every method gets it in rows of 50 ms and
in rows of a second (the mean of twenty), is told when the injection began, and ranks columns; whose host comes first is its answer.
"""

import importlib.metadata
import json
import multiprocessing
import os
import random
import sys
import time
import warnings
import zlib

# One process at a time is measured.
for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[name] = "1"
warnings.filterwarnings("ignore")

import numpy as np
import pandas as pd

# What comes later than this after the injection began is no more about it.
LASTS_S = 2.5
# Whoever takes longer than that has no answer for somebody on call.
WITHIN_S = 60


def chance(data, at):
    """No method: the columns in a random order."""
    columns = [c for c in data.columns if c != "time"]
    random.shuffle(columns)
    return columns


def nsigma(data, at):
    """How many standard deviations a column rises above what it was (fse-baro)."""
    from baro.root_cause_analysis import nsigma
    return nsigma(data, inject_time=at)["ranks"]


def baro(data, at):
    """The same by median and quartiles: BARO's RobustScorer (Pham et al., FSE 2024; fse-baro)."""
    from baro.root_cause_analysis import robust_scorer
    return robust_scorer(data, inject_time=at)["ranks"]


def parts(data, at):
    """What was before and what after, of columns that change in both."""
    before = data[data["time"] < at].drop(columns="time")
    after = data[data["time"] >= at].drop(columns="time")
    both = [c for c in before if before[c].nunique() > 1 and after[c].nunique() > 1]
    return before[both], after[both]


def epsilon(data, at):
    """Epsilon-diagnosis (Shan et al., WWW 2019; sfr-pyrca), with all that it finds in place of three."""
    from pyrca.analyzers.epsilon_diagnosis import EpsilonDiagnosis
    before, after = parts(data, at)
    length = min(len(before), len(after))
    before, after = before.tail(length), after.head(length)
    still = [c for c in before if before[c].nunique() > 1 and after[c].nunique() > 1]
    model = EpsilonDiagnosis(EpsilonDiagnosis.config_class(root_cause_top_k=len(still)))
    model.train(before[still])
    found = model.find_root_causes(after[still]).to_dict()["root_cause_nodes"]
    return [name for name, _ in found]


def rcd(data, at):
    """Root Cause Discovery (Ikram et al., NeurIPS 2022; sfr-pyrca)."""
    from pyrca.analyzers.rcd import RCD
    before, after = parts(data, at)
    found = RCD(RCD.config_class(k=10)).find_root_causes(before, after).to_dict()["root_cause_nodes"]
    return [name for name, _ in found]


def rcaeval(module, method):
    """A method of RCAEval, which takes itself to be on a Python that it knows."""
    import RCAEval.utility
    RCAEval.utility.is_py310 = lambda: True
    wrapped = getattr(importlib.import_module(f"RCAEval.e2e.{module}"), method)
    # Without the wrapper that gives the columns in their own order where a method fails: the method is what its closure holds.
    return next(cell.cell_contents for cell in wrapped.__closure__ if callable(cell.cell_contents))


def independent(data, at):
    """Columns of which none follows from others, at most one for each two rows: on all of them a test of partial correlation fails, as its
    matrix is singular. Those that say most come first (QR with column pivoting)."""
    from scipy.linalg import qr
    before, after = parts(data, at)
    values = pd.concat([before, after])
    scaled = ((values - values.mean()) / values.std()).to_numpy()
    _, triangle, order = qr(scaled, mode="economic", pivoting=True)
    size = np.abs(np.diag(triangle))
    kept = order[: min(int((size > size[0] * 1e-3).sum()), len(values) // 2)]
    return data[["time", *values.columns[np.sort(kept)]]]


def circa(data, at):
    """CIRCA (Li et al., KDD 2022) on a graph by the PC algorithm (RCAEval)."""
    few = independent(data, at)
    # It takes rows to be a second apart.
    return rcaeval("circa", "circa")(few.assign(time=range(len(few))), inject_time=int((data["time"] < at).sum()))["ranks"]


def pc_pagerank(data, at):
    """PageRank on a graph by the PC algorithm (RCAEval)."""
    return rcaeval("pc_pagerank", "pc_pagerank")(independent(data, at), inject_time=at)["ranks"]


METHODS = {
    "chance": (chance, None),
    "n-sigma": (nsigma, "fse-baro"),
    "BARO": (baro, "fse-baro"),
    "ε-diagnosis": (epsilon, "sfr-pyrca"),
    "RCD": (rcd, "sfr-pyrca"),
    "CIRCA": (circa, "RCAEval"),
    "PC, PageRank": (pc_pagerank, "RCAEval"),
}


def ask(method, data, at, seed, to):
    # The same each time that it is asked, and another for each recording.
    random.seed(seed)
    np.random.seed(zlib.crc32(seed.encode()))
    # What libraries print is theirs; their progress bars would hide ours.
    nothing = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, 1)
    os.dup2(nothing, 2)
    try:
        to.send((list(METHODS[method][0](data, at)), None))
    except Exception as error:  # whatever it is, it is the answer
        to.send(([], f"{type(error).__name__}: {' '.join(str(error).split())[:120]}"))


def answer(method, data, at, seed):
    """Columns by rank, or why there are none; and how long it took."""
    mine, theirs = multiprocessing.Pipe(duplex=False)
    begun = time.monotonic()
    process = multiprocessing.Process(target=ask, args=(method, data, at, seed, theirs))
    process.start()
    theirs.close()
    try:
        columns, error = mine.recv() if mine.poll(WITHIN_S) else ([], f"no answer within {WITHIN_S} s")
    except EOFError:
        columns, error = [], "its process ended"
    took = time.monotonic() - begun
    process.kill()
    process.join()
    if not columns and error is None:
        error = "it finds no cause"
    return columns, error, took


def main():
    wanted, out = sys.argv[1:]
    with open(wanted) as file:
        cases = json.load(file)
    answers = []
    for number, case in enumerate(cases, 1):
        at = case["injected_at"]
        data = pd.read_csv(os.path.join(os.path.dirname(wanted), case["cell"] + ".csv"))
        data = data[data["time"] < at + LASTS_S].ffill().fillna(0)
        second = data.assign(time=np.floor(data["time"])).groupby("time", as_index=False).mean()
        for signals, table, since in (("50 ms", data, at), ("1 s", second, np.floor(at))):
            for method, (_, package) in METHODS.items():
                columns, error, took = answer(method, table, since, case["cell"])
                hosts = list(dict.fromkeys(column.split("_")[0] for column in columns))
                name = f"{method} ({package} {importlib.metadata.version(package)})" if package else method
                answers.append(dict(cell=case["cell"], method=name, signals=signals, hosts=hosts, error=error, seconds=took))
        print(f"{number} of {len(cases)}: {case['cell']}", flush=True)
    with open(out, "w") as file:
        json.dump(answers, file)


if __name__ == "__main__":
    main()
