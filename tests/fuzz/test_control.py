"""Random control flow in ONNX models against ONNX Runtime: compiled once for all sizes and values where that is possible, else by a session.

`TEC_FUZZ_SEEDS=n` sets how many run in the slow test, `TEC_FUZZ_FIRST` the first. One alone: `python -m tests.fuzz.control_worker SEED SEED+1`.
"""

from __future__ import annotations

import os

import pytest

from . import control_programs, control_worker

SEEDS = (
    1,
    3,
    14,
    41,
    101,
)  # loops in branches, scans backwards, a layer of a batch of one with a length that is constant, sizes that must be numbers


@pytest.mark.parametrize("seed", SEEDS)
def test_control_flow(seed: int) -> None:
    assert not control_worker.check(seed).startswith("bad")


def test_control_flow_on_the_software_gpu() -> None:
    assert control_worker.check(3, "rocm -mcpu=gfx942", "rocm_emu:gfx942") == "ran"


def test_every_form_comes_up() -> None:
    assert {k for seed in range(30) for k in control_programs.program(seed).kinds} == set(control_programs.FORMS)


@pytest.mark.slow
@pytest.mark.parametrize("target", ["llvm", "rocm -mcpu=gfx942", "rocm -mcpu=gfx1100"])
def test_much_control_flow(target: str) -> None:
    first, count = int(os.environ.get("TEC_FUZZ_FIRST", "10000")), int(os.environ.get("TEC_FUZZ_SEEDS", "400"))
    chip = target.partition("=")[2]
    device = f"rocm_emu:{chip}" if chip else None
    outcomes = {
        s: control_worker.check(s, target, device) for s in range(first, first + (count // 10 if chip else count))
    }
    assert not {s: o for s, o in outcomes.items() if o.startswith("bad")}
