"""Products on AMD GPUs whose rows begin anywhere in memory and end within a vector: loads stay whole, and nothing leaks from the row beside."""

from __future__ import annotations

import numpy as np

import tec
from tec.choices import schedule, spaces
from tec.ops.registry import TensorType, get_op
from tests.thinned import thinned_rows


@thinned_rows(
    2,
    "chip, m, n, k, dtype, turned",
    [
        ("gfx942", 37, 69, 171, "float16", False),
        ("gfx942", 37, 69, 630, "float16", False),
        ("gfx942", 37, 69, 83, "float16", True),
        ("gfx90a", 33, 67, 171, "float32", False),
        ("gfx1100", 35, 70, 131, "float16", False),
    ],
)
def test_odd_rows_come_by_whole_loads(chip, m, n, k, dtype, turned):
    shapes = (m, k), (n, k) if turned else (k, n)
    types = [TensorType(dtype, s) for s in shapes]
    xs = [tec.te.placeholder(s, dtype, name=f"x{i}") for i, s in enumerate(shapes)]
    op, attrs, target = get_op("matmul"), {"transpose_b": turned}, tec.Target(f"rocm -mcpu={chip}")
    outs = op.compute(attrs, xs, op.infer(types, attrs))
    made = schedule(outs, target, next(s for s in spaces(outs, target) if s.template == "matrix product").default)
    f, dev = tec.build(made.schedule, [*xs, *made.outputs], target, name="product"), tec.rocm_emu(chip, check="all")
    rng = np.random.default_rng(7)
    x, w = (rng.standard_normal(s).astype(dtype) for s in shapes)
    x[1::2] = np.nan  # behind the end of each other row stands what must not be multiplied
    out = tec.nd.empty((m, n), dtype, dev)
    f(tec.nd.array(x, dev), tec.nd.array(w, dev), out)
    got, want = out.numpy(), x[::2].astype("f8") @ (w.T if turned else w).astype("f8")
    assert np.abs(got[::2] - want).max() <= (2e-3 if dtype == "float16" else 1e-5) * np.abs(want).max()
    assert np.isnan(got[1::2]).all()
    code = f.get_source("asm")
    assert "dwordx4" in code or "load_b128" in code
    if turned:  # else the first step's elements are turned one by one
        assert not any(word in code for word in ("load_ushort", "load_u16", "load_short", "load_d16"))
