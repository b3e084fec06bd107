"""Constants of kernels: named tuples and dataclasses, as arguments and from outside; numbers that are equal to Python and differ in code."""

from __future__ import annotations

import collections
import dataclasses
from typing import Any, NamedTuple

import numpy as np
import pytest

import tec

Pair = collections.namedtuple("Pair", "a b")


class Nested(NamedTuple):
    scale: float
    pair: Any


@dataclasses.dataclass(frozen=True)
class Frozen:
    a: float
    b: float
    pair: Any = None


@dataclasses.dataclass
class Open:
    a: float
    b: float


OUTSIDE = Pair(3.0, Nested(2.0, Pair(1, 4.0)))


@tec.kernel
def by_fields(x: Any, p: Any) -> None:
    i = tec.grid_idx(1)
    if i < len(x):
        x[i] = x[i] * p.a + p.b


@pytest.mark.parametrize("record", (Pair, Frozen, Open))
def test_fields_of_an_argument(record: Any) -> None:
    """Another value is another constant, be the object the same or not."""
    for a, b in ((2.0, 3.0), (4.0, -1.0), (2.0, 3.0)):
        x = np.ones(10, np.float32)
        by_fields.launch(10)(x, record(a, b))
        np.testing.assert_array_equal(x, np.full(10, a + b, np.float32))
    if record is Open:
        held, x = Open(2.0, 1.0), np.ones(4, np.float32)
        by_fields.launch(4)(x, held)
        held.a = 5.0
        by_fields.launch(4)(x, held)
        np.testing.assert_array_equal(x, np.full(4, 16.0, np.float32))


def test_nested_records_from_outside_keep_names_and_places() -> None:
    @tec.kernel
    def k(x: Any, n: Any) -> None:
        i = tec.grid_idx(1)
        q = OUTSIDE.b
        scale, inner = n
        if i < len(x):
            x[i] = OUTSIDE.a * x[i] + q.pair.b + q[0] + scale + inner.a + n.pair[1] + len(n)

    x = np.arange(5, dtype=np.float32)
    k.launch(5)(x, Nested(10.0, Pair(100.0, 1000.0)))
    np.testing.assert_array_equal(x, 3 * np.arange(5, dtype=np.float32) + 6 + 10 + 1100 + 2)


def test_constants_that_are_equal_to_python_are_told_apart() -> None:
    @tec.kernel
    def halves(o: Any, t: Any) -> None:
        o[0] = 1.0 / (o[1] * t[0])
        o[2] = tec.cast("float32", t[1] // 2) + t[1] * 0.5

    for t, want in (((0.0, 1), np.inf), ((-0.0, 1), -np.inf), ((0.0, 1.0), np.inf)):
        o = np.ones(4, np.float32)
        halves[1, 1](o, t)
        assert o[0] == want and o[2] == 0.5

    @tec.kernel
    def typed(o: Any, t: Any) -> None:
        o[0] = tec.cast("float64", t[0] + o.shape[0] * 0) if t[0].dtype == "float32" else 7.0

    for value, want in ((np.float32(1), 1.0), (np.int32(1), 7.0), (np.float32(1), 1.0)):
        p = np.zeros(1)
        typed[1, 1](p, (value,))
        assert p[0] == want, value


def test_constants_beside_arrays_that_share_memory() -> None:
    """Code that knows of the sharing has the constants too."""

    @tec.kernel
    def shift(x: Any, y: Any, p: Any) -> None:
        i = tec.grid_idx(1)
        if i < len(x):
            y[i] = x[i] + p.b

    for device in (tec.cpu(), tec.rocm_emu("gfx942")):
        held = tec.nd.array(np.arange(9, dtype=np.float32), device)
        shift[9, 1](held, held, Pair(0.0, 2.5))
        np.testing.assert_array_equal(held.numpy(), np.arange(9, dtype=np.float32) + 2.5)


def test_what_is_no_constant_is_refused() -> None:
    x = np.ones(4, np.float32)
    with pytest.raises(tec.TecError, match=r"the right side of [*] is the array p__0, a number is wanted"):
        by_fields.launch(4)(x, Pair(x, 1.0))
    with pytest.raises(tec.TecError, match="holds what is no constant"):
        by_fields.launch(4)(x, Pair({1: x}, 1.0))
    with pytest.raises(tec.TecError, match="no attribute c"):

        @tec.kernel
        def k(x: Any, p: Any) -> None:
            x[0] = p.c

        k[1, 1](x, Pair(1.0, 2.0))
