"""Windows of pools on AMD GPUs: written out by rows, without a division for each element, a thread's own where sharing one costs more, and tiles of them by a thread."""

from __future__ import annotations

import numpy as np
import pytest

import tec
from tec import te
from tec.choices import Scheduled, spaces
from tec.ops.registry import TensorType, get_op


def pool(
    op: str, kernel: int, stride: int, chip: str, shape: tuple[int, ...], dtype: str = "float32", template: str = "gpu reduction"
) -> tuple[te.Tensor, Scheduled]:  # fmt: skip
    known, x = get_op(op), te.placeholder(shape, dtype, name="x")
    around, out = kernel // 2, tuple((n - 1) // stride + 1 for n in shape[2:])
    attrs = {
        "kernel": (kernel,) * 2, "strides": (stride,) * 2, "dilations": (1, 1), "before": (around,) * 2, "after": (around,) * 2,
        "out_space": out, **({"include_pad": False} if op == "avg_pool" else {"indices": False}),
    }  # fmt: skip
    outs = known.compute(attrs, [x], known.infer([TensorType(dtype, shape)], attrs))[:1]
    space = next(s for s in spaces(outs, tec.Target(f"rocm -mcpu={chip}")) if s.template == template)
    return x, space.build(space.default)


@pytest.mark.parametrize("kernel, stride", [(3, 2), (5, 1), (7, 1), (9, 2)])
@pytest.mark.parametrize("op", ["max_pool", "avg_pool"])
@pytest.mark.parametrize("template, chip", [("gpu reduction", "gfx90a"), ("gpu plain windows", "gfx942")])
def test_values(template: str, chip: str, op: str, kernel: int, stride: int) -> None:
    shape = (2, 3, 18, 19)
    x, made = pool(op, kernel, stride, chip, shape, template=template)
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


def test_tiles_by_a_thread_are_the_default() -> None:
    """What windows have in common is loaded once: 77 us by the time model of an MI210 for 64 x 208 x 208 by 7 x 7 in float32, and 26 so."""
    x = te.placeholder((1, 64, 208, 208), "float32", name="x")
    attrs = {"kernel": (7, 7), "strides": (1, 1), "dilations": (1, 1), "before": (3, 3), "after": (3, 3), "out_space": (208, 208), "include_pad": True}  # fmt: skip
    known = get_op("avg_pool")
    outs = known.compute(attrs, [x], known.infer([TensorType("float32", (1, 64, 208, 208))], attrs))
    found = spaces(outs, tec.Target("rocm -mcpu=gfx90a"))[0]
    assert found.template == "gpu plain windows" and found.default["rows"] > 1


@pytest.mark.parametrize("template", ["gpu reduction", "gpu plain windows"])
def test_neighbours_run_on_one_die(template: str) -> None:
    """Rows that neighbours' windows have in common came to each die's L2: 42 us by the time model of an MI355X for 2 x 320 x 104 x 104 by 5 x 5 in float32, 28 by neighbours on a die,
    and 15 with tiles."""
    x, made = pool("avg_pool", 5, 1, "gfx942", (2, 64, 104, 104), template=template)
    text = str(next(iter(tec.lower(made.schedule, [x, *made.outputs], target="rocm -mcpu=gfx942"))))
    assert "blockIdx_x % 8 * " in text and "blockIdx_x // 8 * 64" in text


@pytest.mark.parametrize("chip", ["gfx90a", "gfx942", "gfx1100"])
def test_maxima_of_halves_are_no_float32(chip: str) -> None:
    x, made = pool("max_pool", 3, 1, chip, (2, 3, 18, 19), "float16", "gpu plain windows")
    code = tec.build(made.schedule, [x, *made.outputs], f"rocm -mcpu={chip}", name="f").imported_modules[0].get_source("asm")  # fmt: skip
    assert "max_f16" in code and "cvt" not in code
