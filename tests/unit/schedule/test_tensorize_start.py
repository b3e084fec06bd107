"""The start of a tensorized reduction stays inside of the tensor where the loops around it do not divide."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tec
from tec import te


def row_product(n: int) -> Any:
    """c[1, n] += a[1, 1] * b[1, n], with a start of its own."""
    a, b = te.placeholder((1, 1), name="a"), te.placeholder((1, n), name="b")
    kk = te.reduce_axis((0, 1), "kk")
    c = te.compute((1, n), lambda i, j: te.sum(a[i, kk] * b[kk, j], axis=kk), name="c")

    def body(ins: Any, outs: Any) -> Any:
        def loop(value: Any) -> Any:
            ib = te.ir_builder.create()
            with ib.for_range(0, n, "j") as j:
                ib.emit(outs[0].vstore((0, j), value(j)))
            return ib.get()

        def term(j: Any) -> Any:
            return ins[0].vload((0, 0)) * ins[1].vload((0, j))

        zero = tec.const(0.0, "float32")
        return loop(term), loop(lambda j: zero), loop(lambda j: outs[0].vload((0, j)) + term(j))

    binds = {
        t: te.decl_buffer(t.shape, t.dtype, t.op.name, strides=[te.var(f"{t.op.name}_stride"), 1], offset_factor=1)
        for t in (a, b, c)
    }
    return te.decl_tensor_intrin(c.op, body, "row_product", binds)


@pytest.mark.parametrize("parts", [3, 4, 5])
def test_a_later_split_that_does_not_divide(parts: int) -> None:
    m, n, depth = 14, 6, 5
    a, b = te.placeholder((m, depth), name="A"), te.placeholder((depth, n), name="B")
    k = te.reduce_axis((0, depth), "k")
    c = te.compute((m, n), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="C")
    s = tec.create_schedule(c.op)
    i, j = s[c].op.axis
    io, _, ii, ji = s[c].tile(i, j, 1, n)
    ko, ki = s[c].split(s[c].op.reduce_axis[0], factor=1)
    s[c].reorder(io, ko, ii, ji, ki)
    s[c].tensorize(ii, row_product(n))
    s[c].split(io, nparts=parts)
    rng = np.random.default_rng(parts)
    x, y = rng.standard_normal((m, depth), np.float32), rng.standard_normal((depth, n), np.float32)
    memory = np.full((m + 8, n), 7, np.float32)
    tec.build(s, [a, b, c], "llvm", check="bounds")(x, y, memory[:m])
    np.testing.assert_allclose(memory[:m], x @ y, rtol=1e-5)
    assert (memory[m:] == 7).all(), "the start was written beyond the tensor"
