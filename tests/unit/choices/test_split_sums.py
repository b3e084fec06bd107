"""Products whose sum is computed in parts by several work-groups, and added up by a second kernel with what follows."""

from __future__ import annotations

import numpy as np
import pytest

import tec
from tec.choices import schedule, spaces
from tec.ops.registry import TensorType, get_op


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


@pytest.mark.parametrize("chip", ["gfx942", "gfx90a", "gfx1100"])
@pytest.mark.parametrize("splits", [2, 8])
@pytest.mark.parametrize("follows", [False, True])
def test_parts_add_up(chip, splits, follows):
    m, n, k = 48, 96, 1024
    xs, outs = _product(m, n, k, "float16", follows=follows)
    target = tec.Target(f"rocm -mcpu={chip}")
    space = next(s for s in spaces(outs, target) if s.template == "matrix product")
    choice = next(c for c in space.drafts() if c["splits"] == splits)
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


def test_skinny_products_fill_the_chip():
    """Few rows and a long sum: more work-groups than tiles, and by the time model near the bytes of the weights."""
    m, n, k = 16, 4096, 4096
    xs, outs = _product(m, n, k, "float16")
    target = tec.Target("rocm -mcpu=gfx942")
    chosen = schedule(outs, target)
    assert chosen.choice["splits"] > 1
    f = tec.build(chosen.schedule, [*xs, *chosen.outputs], target, name="product")
    p = tec.model(f, [((m, k), "float16"), ((n, k), "float16"), ((m, n), "float16")])
    us = sum(r.estimate.kernel_us for r in p.launches)
    least = 2 * (m * k + n * k + m * n) / target.machine.memory.gbps / 1e3
    assert us < 1.6 * least
    assert np.prod(p.launches[0].grid) >= target.machine.units
