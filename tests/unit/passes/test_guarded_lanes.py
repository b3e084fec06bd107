"""Conditions of vectors: as in one lane's, the right side of `and` reads memory where the left side lets it."""

from __future__ import annotations

import numpy as np
import pytest

import tec
from tec import te


@pytest.mark.parametrize("is_or", [False, True])
@pytest.mark.parametrize("cpu", ["native", "haswell"])
def test_a_place_that_data_say_is_read_where_it_exists(cpu, is_or):
    n = te.size_var("n")
    at, x = te.placeholder((n,), "int32", name="at"), te.placeholder((n,), "float32", name="x")

    def holds(i):
        if is_or:
            return te.any(at(i) < 0, at(i) >= n, x(at(i)) > 0)
        return te.all(at(i) >= 0, at(i) < n, x(at(i)) > 0, x(i) < 5)

    y = te.compute((n,), lambda i: te.if_then_else(holds(i), x(i), te.const(-1, "float32")))
    s = te.create_schedule(y.op)
    _, lane = s[y].split(y.op.axis[0], 8)
    s[y].vectorize(lane)
    f = tec.build(s, [at, x, y], "llvm" if cpu == "native" else f"llvm -mcpu={cpu}")
    for size in (1, 7, 8, 33):
        places = np.resize(np.array([-(2**31), 2**31 - 1, 0, size - 1, size], "int32"), size)
        values = (np.arange(size) % 3 - 1).astype("float32")
        out = tec.nd.empty((size,), "float32")
        f(tec.nd.array(places), tec.nd.array(values), out)
        inside = (places >= 0) & (places < size)
        want = values[np.where(inside, places, 0)] > 0
        want = want | ~inside if is_or else want & inside
        np.testing.assert_array_equal(out.numpy(), np.where(want, values, -1))
