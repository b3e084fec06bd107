"""What the code generator remembers of a node is about that node, as long as it remembers it."""

from __future__ import annotations

import numpy as np

import tec
from tec import te


def test_conditions_that_load_are_told_apart() -> None:
    """Each becomes a branch within a branch, by a node that lives as long as its emission."""
    n, kinds = 64, 6
    x = te.placeholder((n,), name="x")
    flags = te.placeholder((kinds, 2, n), "bool", name="flags")

    def term(k: int, i: te.Expr) -> te.Expr:
        return te.if_then_else(te.all(flags[k, 0, i], flags[k, 1, i]), x[i] + float(k), te.const(0.0, "float32"))

    y = te.compute((n,), lambda i: sum((term(k, i) for k in range(1, kinds)), term(0, i)), name="y")
    f = tec.build(te.create_schedule(y), [x, flags, y], "llvm")
    rng = np.random.default_rng(0)
    a, b = rng.random(n, np.float32), rng.random((kinds, 2, n)) < 0.5
    out = np.zeros(n, np.float32)
    f(a, b, out)
    want = sum(np.where(b[k, 0] & b[k, 1], a + np.float32(k), 0) for k in range(kinds))
    np.testing.assert_allclose(out, want, rtol=1e-5)
