"""Bad models, graphs and packages through tec.compile, tec.load and run, in a process of their own.

Whatever is done to a valid model (its bytes, its nodes), to a graph that a program built, or to a saved network, tec refuses it
with a TecError or gives the numbers that the operators mean (`tec.graph.run_graph`; ONNX Runtime too, where it is installed and
takes the model). The process never ends and never hangs. Seeds are fixed; a failure names its seed:

    python -m tests.fuzz.model_worker SEED 1

`TEC_FUZZ_SECONDS` says how long: 4 by default, 300 for the slow test.
"""

import os
import selectors
import subprocess
import sys

import pytest

from tests import seeds

HANG_SECONDS = 60
ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def drive(first: int, seconds: float) -> dict[str, int]:
    """Runs seeds from `first` on for some time; the number of each outcome. A worker that dies or hangs fails the test."""
    counts: dict[str, int] = {}
    worker = subprocess.Popen(
        [sys.executable, "-X", "faulthandler", "-m", "tests.fuzz.model_worker", str(first), str(seconds)],
        cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert worker.stdout is not None and worker.stderr is not None
    seed = "none"
    try:
        with selectors.DefaultSelector() as ready:
            ready.register(worker.stdout, selectors.EVENT_READ)
            while True:
                assert ready.select(HANG_SECONDS), f"seed {seed} takes more than {HANG_SECONDS} s"
                line = worker.stdout.readline()
                if not line:
                    break
                what, seed, *rest = line.rstrip("\n").split(" ", 2)
                if what == "end":
                    outcome = rest[0].strip("'\"")
                    assert not outcome.startswith("bad"), f"seed {seed}: {outcome}"
                    counts[outcome] = counts.get(outcome, 0) + 1
        status = worker.wait(HANG_SECONDS)
        assert status == 0, f"seed {seed} ended the process with {status}: {worker.stderr.read()[-2000:]}"
    finally:
        worker.kill()
        worker.wait()
        worker.stdout.close()
        worker.stderr.close()
    return counts


def test_refused_or_right():
    counts = drive(seeds.first(), float(os.environ.get("TEC_FUZZ_SECONDS", "1")))
    assert counts.get("ran", 0) > 0 and counts.get("refused", 0) > 0, counts


@pytest.mark.slow
def test_refused_or_right_for_minutes():
    seconds = float(os.environ.get("TEC_FUZZ_SECONDS", "300"))
    counts = drive(seeds.first(1_000_000), seconds)
    assert sum(counts.values()) > seconds / 5, counts
