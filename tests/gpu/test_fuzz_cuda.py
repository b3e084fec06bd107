"""Random kernels under random schedules on an NVIDIA GPU, against te.evaluate: TEC_FUZZ_SEEDS of them (50 by default)."""

from __future__ import annotations

import os

import pytest

import tec
from tests.conformance.harness import cuda_target
from tests.fuzz.kernel_programs import program, reference
from tests.fuzz.kernel_schedules import schedule
from tests.fuzz.kernel_worker import on_device

SEEDS = int(os.environ.get("TEC_FUZZ_SEEDS", "50"))
pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("seed", range(SEEDS))
def test_random_kernel(seed: int) -> None:
    p = program(seed)
    want = reference(p)
    try:
        s = schedule(seed, p.outputs, True)
        on_device(p, s, cuda_target(), tec.cuda(0), want)
    except (tec.ScheduleError, tec.LoweringError) as refused:
        pytest.skip(f"refused: {str(refused).splitlines()[0]}")
