"""The operators that `benchmarks.cliffs` draws, in small and odd sizes, against NumPy (ONNX's reference) on this CPU: by its own vectors, and by AVX2's alone."""

from __future__ import annotations

from random import Random
from typing import Any

import numpy as np
import pytest
from onnx.reference import ReferenceEvaluator

import tec
from benchmarks.cliff_cases import KINDS, Bounds, draw
from tests import seeds

BOUNDS = Bounds(3_000_000, 2**16)
TARGETS = ("llvm", "llvm -mcpu=haswell")


def compare(kind: str, seed: int) -> None:
    case = draw(kind, Random(seeds.stream(f"{kind} {seed}")), BOUNDS)
    model = case.model()
    want = ReferenceEvaluator(model).run(None, case.inputs)
    for target in TARGETS:
        net = tec.compile(model, target, cache=False, progress=lambda *a: None)
        for _ in range(3):  # the third time directly
            for got, w in zip(net.run(case.inputs), want, strict=True):
                assert got.shape == w.shape, f"{case.name} on {target}"
                if kind == "top k" and got.dtype == np.int64:
                    continue  # equal elements may change places
                close(got, w, f"{case.name} on {target}")


def close(got: Any, want: Any, what: str) -> None:
    if want.dtype.kind in "iu":
        np.testing.assert_array_equal(got, want, err_msg=what)
        return
    top = max(1e-3, float(np.abs(want).max(initial=0)))
    np.testing.assert_allclose(got, want, rtol=2e-4, atol=2e-5 * top, err_msg=what)


@pytest.mark.parametrize("seed", range(4 if seeds.number() else 1))
@pytest.mark.parametrize("kind", KINDS)
def test_against_numpy(kind: str, seed: int) -> None:
    compare(kind, seed)
