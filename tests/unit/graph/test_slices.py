"""Queries, keys and values of one product are read where they lie: no function copies them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tec
from tec.errors import PackageError
from tec.graph.graph import Graph
from tec.runtime.plans.check_plan import check_structure

TEXTS, PLACES, HEADS, SIZE = 2, 5, 3, 32
BACK = (0, 2, 1, 3)  # (texts, places, heads, size)


def attention_of_one_product(dtype: str = "float32") -> tuple[Graph, np.ndarray[Any, Any]]:
    width, rng = HEADS * SIZE, np.random.default_rng(1)
    w = (rng.standard_normal((width, 3 * width)) / width**0.5).astype(dtype)
    g = Graph("joined")
    x = g.input("x", dtype, (TEXTS, PLACES, width))
    y = g.add("matmul", [x, g.constant(w, "w")], {})[0]
    parts = []
    for k in range(3):
        cut = {"starts": (0, 0, k * width), "steps": (1, 1, 1), "sizes": (TEXTS, PLACES, width)}
        part = g.add("slice", [y], cut)[0]
        parts.append(g.add("reshape", [part], {"shape": (TEXTS, PLACES, HEADS, SIZE)})[0])
    orders = {f"{n}_order": BACK for n in ("q", "k", "v", "out")}
    g.set_outputs(g.add("attention", parts, {"scale": SIZE**-0.5, "extras": (), **orders}))
    return g, w


def wanted(x: np.ndarray[Any, Any], w: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    y = (x.astype("f8") @ w.astype("f8")).reshape(TEXTS, PLACES, 3, HEADS, SIZE).transpose(2, 0, 3, 1, 4)
    s = np.exp(y[0] @ y[1].swapaxes(-1, -2) * SIZE**-0.5)
    out: np.ndarray[Any, Any] = (s / s.sum(-1, keepdims=True) @ y[2]).transpose(BACK)
    return out


@pytest.mark.parametrize("target, dtype", [("llvm", "float32"), ("rocm -mcpu=gfx942", "float16")])
def test_attention_reads_the_parts_of_one_product_where_they_lie(target: str, dtype: str) -> None:
    g, w = attention_of_one_product(dtype)
    net = tec.compile(g, target=target, cache=False)
    assert not any("slice" in s.function for s in net.plan.flat if hasattr(s, "function"))
    x = np.random.default_rng(2).standard_normal((TEXTS, PLACES, HEADS * SIZE)).astype(dtype)
    device = None if target == "llvm" else tec.rocm_emu("gfx942", check="bounds")
    (got,) = net.run({"x": x}, **({} if device is None else {"device": device}))
    np.testing.assert_allclose(got, wanted(x, w), atol=1e-5 if dtype == "float32" else 4e-3)


def test_a_view_that_reaches_beyond_its_memory_is_refused() -> None:
    """The rows of the last part end with the product; a byte further on they do not."""
    net = tec.compile(attention_of_one_product()[0], target="llvm", cache=False)
    last = max((v for v in net.plan.values.values() if v.place == "alias" and v.offset), key=lambda v: v.offset)
    object.__setattr__(last, "offset", last.offset + 64)
    with pytest.raises(PackageError, match="strides of its own"):
        check_structure(net.plan, net.params, net.signature)
