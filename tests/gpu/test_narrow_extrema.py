"""The lesser of 16-bit integers, asked for whether it is the bound, on a real NVIDIA GPU: ptxas before 13.4 answers for the empty half of a register."""

from __future__ import annotations

import numpy as np
import pytest

import tec
from tec import te
from tec.choices.parts.threads import bind_rows

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("rows", [2, 4, 8])
def test_rows_of_a_pad(rows: int) -> None:
    """Four rows a thread of nine: where the last of them begin is the lesser of eight and five. Once a fifth of the result was another row's."""
    a = te.placeholder((423, 2, 1288), name="a")
    b = te.compute((425, 9, 1293), lambda i, j, k: te.if_then_else(
        te.all(i >= 1, i < 424, j >= 5, j < 7, k >= 5), a[i - 1, j - 5, k - 5], 0.0
    ), name="b")  # fmt: skip
    s = tec.create_schedule(b.op)
    bind_rows(s, b.op, 64, rows)
    made, dev = tec.build(s, [a, b], "cuda -arch=sm_90a"), tec.cuda(0)
    given = np.random.default_rng(0).standard_normal((423, 2, 1288)).astype(np.float32)
    x, y = tec.nd.array(given, dev), tec.nd.array(np.full((425, 9, 1293), 7, "float32"), dev)
    made(x, y)
    np.testing.assert_array_equal(y.numpy(), np.pad(given, [(1, 1), (5, 2), (5, 0)]))
