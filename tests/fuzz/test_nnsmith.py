"""Models that another project's fuzzer makes (`nnsmith_models`), in worker processes: right numbers, or refused with a reason.

`make fuzz-nnsmith` makes them, in an environment of its own, and runs this. `TEC_NNSMITH` names their folder.
"""

import collections
import os
import selectors
import subprocess
import sys
from pathlib import Path

import pytest

HANG_SECONDS = 120
ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.slow
def test_right_or_refused_with_a_reason():
    folder = os.environ.get("TEC_NNSMITH", "")
    seeds = sorted(int(p.stem) for p in Path(folder).glob("*.onnx")) if folder else []
    if not seeds:
        pytest.skip("TEC_NNSMITH names no folder of models; make fuzz-nnsmith")
    counts: collections.Counter[str] = collections.Counter()
    faults: list[str] = []
    at = 0
    while at < len(seeds):  # a model that ends its worker, or hangs, is a fault; the next worker goes on behind it
        first = seeds[at]
        worker = subprocess.Popen(
            [sys.executable, "-m", "tests.fuzz.nnsmith_worker", folder, str(first), str(seeds[-1] + 1 - first)],
            cwd=ROOT, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert worker.stdout is not None
        try:
            with selectors.DefaultSelector() as ready:
                ready.register(worker.stdout, selectors.EVENT_READ)
                while ready.select(HANG_SECONDS) and (line := worker.stdout.readline()):
                    what, seed, *rest = line.rstrip("\n").split(" ", 2)
                    if what == "end":
                        at = seeds.index(int(seed)) + 1
                        outcome = rest[0].strip("'\"")
                        counts[outcome.partition(":")[0]] += 1
                        if not outcome.startswith("ran"):
                            faults.append(f"{seed}: {outcome}")
        finally:
            worker.kill()
            status = worker.wait()
            worker.stdout.close()
        if at < len(seeds) and status != 0:
            faults.append(f"{seeds[at]}: ends its process or hangs, {status}")
            counts["dead"] += 1
            at += 1
    print(dict(counts))
    assert not faults, faults
