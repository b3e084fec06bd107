"""Random kernels give what the same text gives as Python: on the interpreter, the CPU and the software GPU."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tec
from tests import seeds
from tests.conformance.harness import Step, interpret
from tests.fuzz.kernel_functions import BLOCKS, THREADS, N, Writer, reference
from tests.fuzz.loading import module_of

# Of a night; of the gate's, 1 runs on one chip in software and 4 on the other.
SEEDS = int(os.environ.get("TEC_FUZZ_KERNELS", "6"))


def load(text: str, folder: Path, seed: int) -> Any:
    return tec.kernel(module_of(text, folder / f"random_kernel_{seed}.py").kernel)


# 170: a branch of a known length beside one that depends on a loop.
QUICK = (*(seeds.some(SEEDS) if seeds.number() else (1, 4)), 170)


@pytest.mark.parametrize(
    "seed",
    [*QUICK, *(pytest.param(k, marks=pytest.mark.slow) for k in seeds.some(max(200, SEEDS)) if k not in QUICK)],
)
def test_random_kernel(seed: int, tmp_path: Path) -> None:
    text = Writer(seed, meets=seed % 2 == 1).text()
    x = np.random.default_rng(seed).integers(0, 40, N).astype(np.int32)
    want = np.full(N, -1, np.int32)
    reference(text, x, want)
    kernel = load(text, tmp_path, seed)
    config = (BLOCKS, THREADS)

    def check(got: Any, where: str) -> None:
        np.testing.assert_array_equal(got, want, err_msg=f"seed {seed} on {where}\n{text}")

    out = np.full(N, -1, np.int32)
    kernel[config](x, out)
    check(out, "the CPU")
    both = ("llvm", "rocm -mcpu=gfx942")  # half of the time goes here, so the gate takes them in turn
    for target in both if seeds.number() else both[seed % 2 :][:1]:
        out = np.full(N, -1, np.int32)
        interpret(Step(kernel, config, (x, out)), tec.Target(target))
        check(out, f"the interpreter for {target}")
    if seed % 4 < 2:
        dev = tec.rocm_emu("gfx1100" if seed % 8 < 4 else "gfx942", check={"bounds", "race", "init"})
        given = tec.nd.array(np.full(N, -1, np.int32), dev)
        kernel[config](tec.nd.array(x, dev), given)
        check(given.numpy(), str(dev))
