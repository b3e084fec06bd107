"""The order of a product's tiles on chips of several dies, each with an L2 of its own."""

from __future__ import annotations

import numpy as np
import pytest

import tec
from tec.choices import spaces
from tec.choices.families.products import tile_order
from tec.choices.parts.threads import neighbour_on_a_die
from tec.ops.registry import TensorType, get_op

MI300X = tec.Target("rocm -mcpu=gfx942")
SMALL = {
    "rows": 32,
    "columns": 32,
    "step": 64,
    "waves_m": 2,
    "waves_n": 2,
    "slice_k": 1,
    "stages": 1,
    "prefetch_distance": 1,
}


def _product(m, n, k, batch=(), dtype="float16", target=MI300X, template="matrix product"):
    types = [TensorType(dtype, (*batch, *s)) for s in ((m, k), (k, n))]
    xs = [tec.te.placeholder(t.shape, t.dtype, name=f"x{i}") for i, t in enumerate(types)]
    known, attrs = get_op("matmul"), {}
    outs = known.compute(attrs, xs, known.infer(types, attrs))[:1]
    return xs, next(s for s in spaces(outs, target) if s.template == template)


@pytest.mark.parametrize(
    ("batch", "more"), [((), {"group_m": 4}), ((3,), {"group_m": 2}), ((), {"group_m": 1, "split_k": 2})]
)
def test_runs_of_tiles_that_dies_do_not_divide(batch, more):
    m, n, k = 101, 80, 256
    xs, space = _product(m, n, k, batch)
    chosen = space.apply({**space.default, **SMALL, "split_k": 1, **more})
    f = tec.build(chosen.schedule, [*xs, *chosen.outputs], MI300X, name="product")
    dev, rng = tec.rocm_emu("gfx942", check="all"), np.random.default_rng(5)
    a, b = (rng.standard_normal([int(d.value) for d in x.shape]).astype("float16") for x in xs)
    out = tec.nd.empty((*batch, m, n), "float16", dev)
    f(tec.nd.array(a, dev), tec.nd.array(b, dev), out)
    want = a.astype("f8") @ b.astype("f8")
    assert np.abs(out.numpy() - want).max() <= 2e-3 * np.abs(want).max()


@pytest.mark.parametrize(("groups", "dies"), [(18, 8), (24, 8), (5, 8), (11, 4), (7, 1)])
def test_each_die_has_neighbours(groups, dies):
    """The work-groups that are dealt to a die, one after another, are neighbours, also where dies get different numbers of them."""
    dealt = [[neighbour_on_a_die(g, groups, dies) for g in range(die, groups, dies)] for die in range(dies)]
    assert [g for some in dealt for g in some] == list(range(groups))


def test_few_rows_of_tiles_by_many_columns_go_by_dies():
    """Row by row, each die would read all weights; where the matrix unit sets the time the order stays."""
    assert _product(101, 4240, 3032)[1].default["group_m"] > 0
    assert _product(3088, 2624, 1520)[1].default["group_m"] == 0


def test_a_die_holds_no_more_rows_than_it_has_tiles():
    """Of products of one column of tiles a die has every eighth row of tiles, not all of them: all dies together read the rows once."""
    m, n, k = 8192, 32, 4000
    _, space = _product(m, n, k)
    t = space.tiling({**space.default, **SMALL, "split_k": 1, "group_m": 0})
    asked = tile_order.beyond_bytes(t, space.shape, MI300X.machine, 1)
    assert asked <= 2 * k * (1.1 * m + MI300X.machine.dies * n)


def test_windows_that_overlap_are_priced_once_and_go_by_dies():
    """The windows of an image are many times its elements: as a matrix they would take longer to read than all else together, and each die would read the rows that
    the windows of its neighbours have too."""
    x, w = (tec.te.placeholder(s, "float32", name=n) for s, n in (((1, 336, 144, 144), "x"), ((12, 336, 3, 3), "w")))
    attrs = {"strides": (1, 1), "dilations": (1, 1), "before": (1, 1), "after": (1, 1), "groups": 1}
    known = get_op("conv")
    outs = known.compute(
        attrs, [x, w], known.infer([TensorType(t.dtype, tuple(int(d.value) for d in t.shape)) for t in (x, w)], attrs)
    )
    space = next(s for s in spaces(outs[:1], tec.Target("rocm -mcpu=gfx950")) if s.template == "matrix product")
    choice = space.default
    assert (choice["rows"], choice["columns"]) == (16, 64) and choice["group_m"] > 0
    assert space.cost(choice).seconds < 38e-6


def _blocks(n):
    """A product of 100 x 64 by 64 x n in float32 on an RX 7900 XTX, built."""
    target = tec.Target("rocm -mcpu=gfx1100")
    xs, space = _product(100, n, 64, dtype="float32", target=target, template="blocked product")
    chosen = space.apply({**space.default, "rows": 32, "columns": 64, "block": "4x8", "step": 16, "split_k": 1})
    return tec.build(chosen.schedule, [*xs, *chosen.outputs], target, name="product")


@pytest.mark.parametrize(("n", "by_columns"), [(26000, True), (2600, False)])
def test_blocks_read_what_the_cache_does_not_hold_once(n, by_columns):
    """Each row of tiles would bring the second operand's 6.7 MB again, which is more than the cache has: rows of tiles come first."""
    assert ("system_sgpr_workgroup_id_y 0" in _blocks(n).get_source("asm")) is by_columns


def test_blocks_by_columns(monkeypatch):
    monkeypatch.setattr("tec.choices.families.products.register_blocks.Blocks._band", lambda self: 4)
    f, dev, rng = _blocks(150), tec.rocm_emu("gfx1100"), np.random.default_rng(5)
    a, b = (rng.integers(-3, 4, shape).astype("float32") for shape in ((100, 64), (64, 150)))
    out = tec.nd.empty((100, 150), "float32", dev)
    f(tec.nd.array(a, dev), tec.nd.array(b, dev), out)
    np.testing.assert_array_equal(out.numpy(), a @ b)
