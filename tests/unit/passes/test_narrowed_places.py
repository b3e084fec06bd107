"""Places that are narrowed parts of a number in int64: the number itself where a loop counts it, the bits that are left where data made it."""

from __future__ import annotations

import numpy as np

import tec
from tec import te


def test_an_index_that_data_made_keeps_the_bits_that_it_was_narrowed_to():
    n, m, k = (te.size_var(c) for c in "nmk")
    code, table = te.placeholder((n,), "int64", name="code"), te.placeholder((256, m, k), "float32", name="table")
    y = te.compute((n, m, k), lambda i, a, b: table(te.floordiv(code(i), te.const(3, "int64")).astype("int32"), a, b))
    f = tec.build(te.create_schedule(y.op), [code, table, y], "llvm")
    rows = np.arange(20)
    of_table, out = np.arange(256 * 6, dtype="float32").reshape(256, 3, 2), tec.nd.empty((20, 3, 2), "float32")
    f(tec.nd.array(3 * (rows + (rows << 32))), tec.nd.array(of_table), out)
    np.testing.assert_array_equal(out.numpy(), of_table[rows])
