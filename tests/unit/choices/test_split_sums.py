"""Products whose sum is computed in parts by several work-groups, and added up by a second kernel with what follows."""

from __future__ import annotations

import numpy as np
import pytest

import tec
from tec.choices import schedule, spaces
from tec.ops.registry import TensorType, get_op
from tests.thinned import thinned, thinned_rows


def _product(m, n, k, dtype, follows=False):
    types = [TensorType(dtype, s) for s in ((m, k), (n, k))]
    xs = [tec.te.placeholder(t.shape, t.dtype, name=f"x{i}") for i, t in enumerate(types)]
    known, attrs = get_op("matmul"), {"transpose_b": True}
    outs = known.compute(attrs, xs, known.infer(types, attrs))[:1]
    if follows:
        bias = tec.te.placeholder((n,), dtype, name="bias")
        y = outs[0]
        xs.append(bias)
        outs = [
            tec.te.compute(y.shape, lambda i, j: tec.te.maximum(y[i, j] + bias[j], tec.te.const(0, dtype)), name="out")
        ]
    return xs, outs


@thinned(1, ("chip", ["gfx942", "gfx90a", "gfx1100"]), ("splits", [2, 8]), ("follows", [False, True]))
def test_parts_add_up(chip, splits, follows):
    m, n, k = 48, 96, 1024
    xs, outs = _product(m, n, k, "float16", follows=follows)
    target = tec.Target(f"rocm -mcpu={chip}")
    space = next(s for s in spaces(outs, target) if s.template == "matrix product")
    choice = next(c for c in space.drafts() if c["split_k"] == splits)
    chosen = space.apply(choice)
    f = tec.build(chosen.schedule, [*xs, *chosen.outputs], target, name="product")
    dev, rng = tec.rocm_emu(chip, check="all"), np.random.default_rng(3)
    values = [rng.standard_normal([int(d.value) for d in x.shape]).astype("float16") for x in xs]
    out = tec.nd.empty((m, n), "float16", dev)
    f(*[tec.nd.array(v, dev) for v in values], out)
    want = values[0].astype("f8") @ values[1].astype("f8").T
    if follows:
        want = np.maximum(want + values[2].astype("f8"), 0)
    assert np.abs(out.numpy() - want).max() <= 2e-3 * np.abs(want).max()


def test_a_part_is_a_whole_number_of_steps():
    xs, outs = _product(64, 64, 448, "float16")
    space = next(s for s in spaces(outs, tec.Target("rocm -mcpu=gfx942")) if s.template == "matrix product")
    with pytest.raises(tec.ScheduleError, match="parts of whole steps"):
        space.apply({**space.default, "step": 64, "splits": 2})


def test_skinny_products_need_no_second_kernel():
    """Few rows and a long sum: wavefronts share it, and by the time model the bytes of the weights are most of the time. So it is by default, which a template
    of few rows makes, and by tiles."""
    m, n, k = 16, 4096, 4096
    xs, outs = _product(m, n, k, "float16")
    target = tec.Target("rocm -mcpu=gfx942")
    default, tiles = schedule(outs, target), next(s for s in spaces(outs, target) if s.template == "matrix product")
    assert default.choice["split_k"] > 1
    assert tiles.default["slice_k"] > 1
    least = 2 * (m * k + n * k + m * n) / target.machine.memory.gbps / 1e3
    for chosen in (default, tiles.apply(tiles.default)):
        f = tec.build(chosen.schedule, [*xs, *chosen.outputs], target, name="product")
        (launch,) = tec.model(f, [((m, k), "float16"), ((n, k), "float16"), ((m, n), "float16")]).launches
        assert launch.estimate.kernel_us < 1.35 * least


@thinned_rows(
    2,
    ("chip", "dtype", "turned", "choice"),
    [
        ("gfx942", "float16", True, {"rows": 64, "columns": 32, "step": 64, "ahead": 2}),  # sums over the tiles' memory
        ("gfx942", "float16", False, {"rows": 16, "columns": 32, "step": 64, "ahead": 2}),
        ("gfx90a", "int8", True, {"rows": 32, "columns": 16, "step": 64, "ahead": 1}),
        ("gfx942", "float32", True, {"rows": 32, "columns": 32, "step": 32, "ahead": 2, "slices": 2}),
        ("gfx90a", "float32", True, {"rows": 32, "columns": 64, "step": 32, "ahead": 1}),  # sums over both tiles: 48 KiB
        ("gfx942", "float16", True, {"rows": 64, "columns": 32, "step": 32, "ahead": 1, "waves_m": 2, "slices": 2}),
        ("gfx1100", "float16", True, {"rows": 16, "columns": 16, "step": 32, "ahead": 1}),
        ("gfx1201", "float16", False, {"rows": 32, "columns": 32, "step": 32, "ahead": 2}),
    ],
)  # fmt: skip
def test_wavefronts_share_a_sum(chip, dtype, turned, choice):
    m, n, k = 70, max(48, choice["columns"]), 768
    types = [TensorType(dtype, (m, k)), TensorType(dtype, (n, k) if turned else (k, n))]
    xs = [tec.te.placeholder(t.shape, t.dtype, name=f"x{i}") for i, t in enumerate(types)]
    known, attrs = get_op("matmul"), {"transpose_b": turned}
    y = known.compute(attrs, xs, known.infer(types, attrs))[0]
    bias = tec.te.placeholder((n,), y.dtype, name="bias")
    out = tec.te.compute((m, n), lambda i, j: tec.te.maximum(y[i, j] + bias[j], tec.te.const(0, y.dtype)), name="out")
    target = tec.Target(f"rocm -mcpu={chip}")
    space = next(s for s in spaces([out], target) if s.template == "matrix product")
    whole = {"waves_m": 1, "waves_n": 1, "band": 0, "splits": 1, "slices": 4, "interleave": chip.startswith("gfx9")}
    chosen = space.apply({**space.default, **whole, **choice})
    f = tec.build(chosen.schedule, [*xs, bias, *chosen.outputs], target, name="product")
    dev, rng = tec.rocm_emu(chip, check="all"), np.random.default_rng(3)
    values = [rng.integers(-2, 3, [int(d.value) for d in x.shape]).astype(x.dtype) for x in (*xs, bias)]
    got = tec.nd.empty((m, n), y.dtype, dev)
    f(*[tec.nd.array(v, dev) for v in values], got)
    a, b, c = (v.astype("f8") for v in values)
    np.testing.assert_array_equal(got.numpy(), np.maximum(a @ (b.T if turned else b) + c, 0).astype(y.dtype))


@pytest.mark.parametrize(("shape", "slices"), [((49, 512, 4608), 8), ((196, 256, 1024), 4)])
def test_eight_wavefronts_share_a_long_sum_of_few_tiles(shape, slices):
    _, outs = _product(*shape, "float16")
    space = next(s for s in spaces(outs, tec.Target("rocm -mcpu=gfx942")) if s.template == "matrix product")
    assert space.default["slice_k"] == slices


@pytest.mark.parametrize("slices", [1, 4])
def test_a_residual_is_on_its_way_before_the_sum(slices):
    """What an epilogue reads is asked for before the first multiply-add: nothing is loaded behind the last."""
    m, n, k = 70, 64, 512
    xs, (y,) = _product(m, n, k, "float16")
    r = tec.te.placeholder((m, n), "float16", name="r")
    out = tec.te.compute((m, n), lambda i, j: y[i, j] + r[i, j], name="out")
    target = tec.Target("rocm -mcpu=gfx942")
    space = next(s for s in spaces([out], target) if s.template == "matrix product")
    tile = {"rows": 32, "columns": 32, "waves_m": 1, "waves_n": 1, "splits": 1, "band": 0}
    chosen = space.apply({**space.default, **tile, "slices": slices})
    f = tec.build(chosen.schedule, [*xs, r, *chosen.outputs], target, name="product")
    code = f.imported_modules[0].get_source("asm").splitlines()
    last = max(k for k, line in enumerate(code) if "v_mfma" in line)
    assert not any("_load_" in line and "s_load" not in line for line in code[last:])
    dev, rng = tec.rocm_emu("gfx942", check="all"), np.random.default_rng(3)
    values = [rng.integers(-2, 3, [int(d.value) for d in x.shape]).astype("float16") for x in (*xs, r)]
    got = tec.nd.empty((m, n), "float16", dev)
    f(*[tec.nd.array(v, dev) for v in values], got)
    a, b, c = (v.astype("f8") for v in values)
    np.testing.assert_array_equal(got.numpy(), (a @ b.T + c).astype("float16"))


def test_what_a_thread_ends_lies_in_one_row():
    """Rows of 100 halves are no whole vectors of 16 bytes: eight neighbours would be of two rows, between which each sum branches."""
    target, us = tec.Target("rocm -mcpu=gfx1030"), {}
    for n in (96, 100):
        xs, outs = _product(64, n, 512, "float16")
        space = next(s for s in spaces(outs, target) if s.template == "blocked product")
        choice = next(c for c in space.drafts() if c["split_k"] > 1)
        chosen = space.apply(choice)
        f = tec.build(chosen.schedule, [*xs, *chosen.outputs], target, name="product")
        shapes = [((64, 512), "float16"), ((n, 512), "float16"), ((64, n), "float16")]
        us[n] = tec.model(f, shapes).launches[-1].estimate.kernel_us
    assert us[100] < 1.5 * us[96]
