"""Depthwise convolutions of images as pixels by channels on GPUs: tiles of pixels of some channels a thread."""

from __future__ import annotations

from typing import Any

import numpy as np

import tec
from tec import te
from tec.choices import schedule, spaces
from tec.codegen.static_report import report
from tec.ops.layouts import Layout
from tec.ops.registry import TensorType, get_op
from tec.schedule import to_loops
from tests.thinned import thinned


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


def check(sizes: tuple[int, ...], dtype: str, chip: str, choice: dict[str, Any]) -> None:
    """Against the reference interpreter, on the software GPU under its checks, without spills."""
    xs, y = depthwise(*sizes, dtype)
    target = f"rocm -mcpu={chip}"
    chosen = schedule([y], target, choice)
    f = tec.build(chosen.schedule, [*xs, *chosen.outputs], target, name="kernel")
    rng = np.random.default_rng(5)
    values = [(rng.integers(-4, 5, [int(d.value) for d in x.shape]) / 4).astype(dtype) for x in xs]
    (want,) = te.evaluate([y], dict(zip(xs, values)))
    dev = tec.rocm_emu(chip, check="race,init,wait")
    on = [tec.nd.array(v, dev) for v in (*values, np.full_like(want, np.nan))]
    f(*on)
    np.testing.assert_array_equal(on[-1].numpy(), want)
    assert all(r.spills == 0 for r in report(f.imported_modules[0].get_source("asm")))


@thinned(
    1,
    ("chip", ["gfx942", "gfx1100"]),
    ("sizes,dtype,columns", [((2, 12, 5, 7, 3, 2), "float16", 4), ((1, 16, 9, 9, 7, 1), "float16", 1)]),
)
def test_pixels_a_thread(sizes: tuple[int, ...], dtype: str, columns: int, chip: str) -> None:
    alone = {"shared": False, "parts": 1, "piece": 0, "wide": 0}
    check(sizes, dtype, chip, {"template": "gpu reduction", **alone, "columns": columns})


@thinned(
    1,
    ("chip", ["gfx942", "gfx1100"]),
    (
        "sizes, dtype, tile",
        [
            ((1, 16, 6, 8, 3, 1), "float16", (3, 2, 4)),
            ((2, 12, 8, 8, 3, 2), "float16", (2, 2, 4)),
            ((1, 8, 4, 5, 5, 1), "float16", (2, 1, 4)),
            ((1, 6, 4, 4, 3, 1), "float32", (4, 2, 2)),
            ((8, 96, 4, 4, 5, 1), "float16", (1, 2, 8)),
        ],
    ),
)
def test_tiles_of_pixels(sizes: tuple[int, ...], dtype: str, tile: tuple[int, int, int], chip: str) -> None:
    """At the image's edges, with strides, batches, work-groups in the order of the dies."""
    check(
        sizes,
        dtype,
        chip,
        {**dict(zip(("rows", "columns", "channels"), tile)), "template": "gpu pixel windows", "threads": 64},
    )


def test_a_tile_has_its_pixels_alone() -> None:
    """Pixels counted through are rows apart: a thread's sums are of its tile, not of all that lies between its first and its last."""
    xs, y = depthwise(1, 16, 8, 8, 3, 1, "float16")
    choice = {"template": "gpu pixel windows", "rows": 4, "columns": 4, "channels": 2, "threads": 64}
    chosen = schedule([y], "rocm -mcpu=gfx942", choice)
    assert "alloc((1, 4, 4, 2)" in str(to_loops(chosen.schedule, [*xs, *chosen.outputs], "kernel"))


def test_defaults() -> None:
    """Tiles where the images have some, several pixels as they lie elsewhere, eight on NVIDIA."""

    def tile(target: str, *sizes: int) -> tuple[int, ...]:
        (space, *_) = spaces([depthwise(*sizes, "float16")[1]], target)
        return tuple(int(space.default.get(name, 0)) for name in ("rows", "columns", "channels"))

    assert tile("rocm -mcpu=mi300x", 32, 144, 56, 56, 3, 1) == (4, 4, 2)
    assert tile("rocm -mcpu=mi300x", 32, 96, 56, 56, 7, 1) == (4, 4, 2)
    assert tile("rocm -mcpu=mi300x", 1, 384, 14, 14, 7, 1) == (1, 1, 2)
    assert tile("rocm -mcpu=gfx1100", 32, 96, 56, 56, 7, 1)[2] == 4
    assert tile("rocm -mcpu=mi300x", 32, 512, 13, 13, 3, 1) == (1, 4, 0)
    assert tile("cuda -arch=sm_90", 32, 144, 56, 56, 3, 1) == (1, 8, 0)
