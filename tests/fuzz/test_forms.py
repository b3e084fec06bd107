"""Random schedules of convolutions, scans, argmax, gathers, triangles and more: NumPy, interpreter, CPU, software GPUs.

`TEC_FUZZ_SEEDS=n` sets how many run (20 in the normal tests, 10,000 under `make fuzz`, where every tenth runs on a software GPU too),
`TEC_FUZZ_FIRST` the first, `TEC_FUZZ_JOBS` the workers beside each other. One alone: `python -m tests.fuzz.form_worker SEED SEED+1`.
"""

from __future__ import annotations

import os
import sys
from typing import Any

import pytest

from . import form_programs, form_worker
from .test_kernels import FIRST, check

WORKER = (sys.executable, "-m", "tests.fuzz.form_worker")


def test_random_forms() -> None:
    check(FIRST, int(os.environ.get("TEC_FUZZ_SEEDS", "10")), WORKER)


@pytest.mark.slow
def test_many_random_forms() -> None:
    check(FIRST + 1000, int(os.environ.get("TEC_FUZZ_SEEDS", "10000")), WORKER)


def test_every_form_comes_up() -> None:
    kinds = {k for seed in range(200) for k in form_programs.program(seed).kinds}
    assert kinds == set(form_programs.FORMS)


def test_a_schedule_that_takes_the_interpreter_minutes_is_left_out() -> None:
    # A histogram for each element of each element of its reader, 6 million atomics.
    report = form_worker.check(212184, False)
    assert not report["failed"] and report["refused"] == [["interpreter", "6310704 statements"]]


def test_a_wrong_result_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def off_by_one(seed: int, gpu: bool = False) -> Any:
        p = program(seed, gpu)
        p.outputs[0].x.reshape(-1)[-1] += 1
        return p

    program = form_worker.program
    monkeypatch.setattr(form_worker, "program", off_by_one)
    failed = form_worker.check(1, True)["failed"]
    assert len(failed) == 3 and all("Mismatch" in f["error"] for f in failed)
