"""Depthwise convolutions of images as pixels by channels on GPUs: some pixels of some channels a thread."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tec
from tec import te
from tec.choices import schedule, spaces
from tec.codegen.static_report import report
from tec.ops.layouts import Layout
from tec.ops.registry import TensorType, get_op


def depthwise(n: int, c: int, h: int, w: int, k: int, stride: int, dtype: str) -> tuple[list[te.Tensor], te.Tensor]:
    """With a relu behind."""
    attrs: dict[str, Any] = {
        "kernel": (k, k), "strides": (stride,) * 2, "dilations": (1, 1), "before": (k // 2,) * 2, "after": (k // 2,) * 2, "groups": c,
        "space": (n, h, w), "layouts": (Layout("(NHW)C"), Layout("(HW)O"), Layout("(NHW)C")),
    }  # fmt: skip
    shapes = (n * h * w, c), (k * k, c)
    xs = [te.placeholder(s, dtype, name=name) for s, name in zip(shapes, "xw")]
    op = get_op("conv")
    (y,) = op.compute(attrs, xs, op.infer([TensorType(dtype, s) for s in shapes], attrs))
    return xs, te.compute(y.shape, lambda *i: te.max(y(*i), te.const(0, dtype)), name="relu")


@pytest.mark.parametrize("chip", ["gfx942", "gfx1100"])
@pytest.mark.parametrize(
    "sizes,dtype,columns",
    [
        ((1, 16, 6, 8, 3, 1), "float16", 4),
        ((2, 12, 5, 7, 3, 2), "float16", 4),
        ((1, 8, 5, 9, 7, 1), "float16", 2),
        ((1, 6, 4, 4, 3, 1), "float32", 8),
        ((1, 16, 9, 9, 7, 1), "float16", 1),
    ],
)
def test_pixels_a_thread(sizes: tuple[int, ...], dtype: str, columns: int, chip: str) -> None:
    xs, y = depthwise(*sizes, dtype)
    target = f"rocm -mcpu={chip}"
    alone = {"shared": False, "parts": 1, "piece": 0, "outputs": 1, "wide": 0}
    chosen = schedule([y], target, {"template": "gpu reduction", **alone, "columns": columns})
    f = tec.build(chosen.schedule, [*xs, *chosen.outputs], target, name="kernel")
    rng = np.random.default_rng(5)
    values = [(rng.integers(-4, 5, [int(d.value) for d in x.shape]) / 4).astype(dtype) for x in xs]
    (want,) = te.evaluate([y], dict(zip(xs, values)))
    dev = tec.rocm_emu(chip, check="race,init,wait")
    on = [tec.nd.array(v, dev) for v in (*values, np.full_like(want, np.nan))]
    f(*on)
    np.testing.assert_array_equal(on[-1].numpy(), want)
    assert all(r.spills == 0 for r in report(f.imported_modules[0].get_source("asm")))


def test_defaults() -> None:
    """Several pixels where enough threads are left, whole rows of threads, on AMD."""

    def columns(target: str, *sizes: int) -> int:
        (space, *_) = spaces([depthwise(*sizes, "float16")[1]], target)
        return int(space.default["columns"])

    assert columns("rocm -mcpu=mi300x", 32, 144, 56, 56, 3, 1) == 4
    assert columns("rocm -mcpu=mi300x", 32, 96, 56, 56, 7, 1) == 4
    assert columns("rocm -mcpu=mi300x", 1, 144, 56, 56, 3, 1) == 1
    assert columns("rocm -mcpu=gfx1100", 33, 512, 7, 7, 3, 1) == 1
    assert columns("cuda -arch=sm_90", 32, 144, 56, 56, 3, 1) == 1
