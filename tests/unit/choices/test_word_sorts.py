"""The largest of lines by sorts of words, on a CPU."""

from __future__ import annotations

import numpy as np
import pytest

import tec
from tec.graph import Graph
from tests.seeds import first


def _best(x: np.ndarray, axis: int, k: int, largest: bool) -> tuple[tec.Network, list[np.ndarray]]:
    g = Graph("g")
    g.set_outputs(
        g.add(
            "topk", [g.input("x", str(x.dtype), x.shape)], {"axis": axis, "k": k, "largest": largest, "sorted": True}
        ),
        ["v", "i"],
    )
    net = tec.compile(g, target="llvm", cache=False)
    return net, [np.asarray(a) for a in net.run({"x": x})]


@pytest.mark.parametrize(
    ("n", "k", "largest", "dtype", "axis"),
    [
        (97, 40, True, "float32", 1),  # the whole line at once
        (1001, 20, False, "float32", 1),  # the best so far, and what comes behind them
        (70, 70, True, "float16", 0),
        (300, 33, False, "uint32", 1),
        (200, 17, True, "int8", 0),
    ],
)
def test_words_are_in_the_order_of_elements(n, k, largest, dtype, axis):
    """Lines of distinct, of few different, of equal, of rising and falling numbers; of floats with NaNs, which are above all, and zeros of both signs."""
    rng = np.random.default_rng(first(n))
    x = (
        (rng.standard_normal((6, n)) * 50).astype(dtype)
        if dtype != "uint32"
        else rng.integers(0, 1 << 32, (6, n), dtype)
    )
    x[1], x[2], x[3], x[4] = x[1] // 20, 1, np.sort(x[3]), np.sort(x[4])[::-1]
    if dtype.startswith("float"):
        x[5, ::7], x[1, ::3], x[1, 1::3] = np.nan, -0.0, 0.0
    net, (values, places) = _best(np.ascontiguousarray(x.T) if axis == 0 else x, axis, k, largest)
    assert [c["choice"]["algorithm"] for c in net.report.choices.values()] == ["words"]
    numbers = np.where(np.isnan(x), np.inf, x).astype("f8") if dtype.startswith("float") else x.astype("i8")
    wanted = np.argsort(-numbers if largest else numbers, axis=1, kind="stable")[:, :k]
    np.testing.assert_array_equal(places.T if axis == 0 else places, wanted)
    np.testing.assert_array_equal(values.T if axis == 0 else values, np.take_along_axis(x, wanted, 1))


def test_elements_of_64_bits_are_sorted_by_a_heap():
    net, (values, _) = _best(np.random.default_rng(first(3)).standard_normal((2, 60)), 1, 20, True)
    assert [c["choice"]["algorithm"] for c in net.report.choices.values()] == ["heap"]
    assert (np.diff(values) <= 0).all()
