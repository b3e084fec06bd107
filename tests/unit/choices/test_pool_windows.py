"""Windows of pools on AMD GPUs: written out by rows, without a division for each element, and a thread's own where sharing one costs more."""

from __future__ import annotations

import numpy as np
import pytest

import tec
from tec import te
from tec.choices import Scheduled, spaces
from tec.ops.registry import TensorType, get_op


def pool(op: str, kernel: int, stride: int, chip: str, shape: tuple[int, ...], dtype: str = "float32") -> tuple[te.Tensor, Scheduled]:  # fmt: skip
    known, x = get_op(op), te.placeholder(shape, dtype, name="x")
    around, out = kernel // 2, tuple((n - 1) // stride + 1 for n in shape[2:])
    attrs = {
        "kernel": (kernel,) * 2, "strides": (stride,) * 2, "dilations": (1, 1), "before": (around,) * 2, "after": (around,) * 2,
        "out_space": out, **({"include_pad": False} if op == "avg_pool" else {"indices": False}),
    }  # fmt: skip
    outs = known.compute(attrs, [x], known.infer([TensorType(dtype, shape)], attrs))[:1]
    space = next(s for s in spaces(outs, tec.Target(f"rocm -mcpu={chip}")) if s.template == "gpu reduction")
    return x, space.build(space.default)


@pytest.mark.parametrize("kernel, stride", [(3, 2), (5, 1), (7, 1), (9, 2)])
@pytest.mark.parametrize("op", ["max_pool", "avg_pool"])
def test_values(op: str, kernel: int, stride: int) -> None:
    shape, chip = (2, 3, 18, 19), "gfx90a"
    x, made = pool(op, kernel, stride, chip, shape)
    f, dev = (
        tec.build(made.schedule, [x, *made.outputs], f"rocm -mcpu={chip}", name="f"),
        tec.rocm_emu(chip, check="all"),
    )
    value = np.random.default_rng(kernel).standard_normal(shape).astype("float32")
    got = tec.nd.empty(tuple(int(n) for n in made.outputs[0].shape), "float32", dev)
    f(tec.nd.array(value, dev), got)
    around = kernel // 2
    padded = np.pad(value, [(0, 0), (0, 0), (around,) * 2, (around,) * 2], constant_values=np.nan)
    windows = np.lib.stride_tricks.sliding_window_view(padded, (kernel, kernel), (2, 3))[:, :, ::stride, ::stride]
    want = (np.nanmax if op == "max_pool" else np.nanmean)(windows, axis=(-2, -1))
    np.testing.assert_allclose(got.numpy(), want, rtol=1e-5, atol=1e-5)


def test_no_division_for_each_element() -> None:
    """Of 49 elements that a loop counts through, each asked for a row and a column: 292 us by the time model of an MI210 for 8 x 300 x 40 x 40 by 7 x 7, and 85 now."""
    x, made = pool("avg_pool", 7, 1, "gfx90a", (2, 30, 40, 40), "float16")
    code = tec.build(made.schedule, [x, *made.outputs], "rocm -mcpu=gfx90a", name="f").imported_modules[0].get_source("asm")  # fmt: skip
    assert code.count("buffer_load_ushort") == 49 and code.count("s_mul") <= 4


def test_threads_do_not_share_windows() -> None:
    """Maxima of 5 x 5 took 27 us by the time model of an MI355X with four threads a window, and 12 by one."""
    x, made = pool("max_pool", 5, 2, "gfx950", (8, 432, 48, 48), "float16")
    assert made.choice["wide"] == 0 and not made.choice["shared"]
