"""Whole lines in order, each by a work-group that sorts it in shared memory."""

from __future__ import annotations

import numpy as np
import pytest

import tec
from tec.graph import Graph
from tests.seeds import first
from tests.thinned import thinned_rows


def network(n, k, largest, dtype, target):
    g = Graph("g")
    x = g.input("x", dtype, (3, n, 2))
    g.set_outputs(g.add("topk", [x], {"axis": 1, "k": k, "largest": largest, "sorted": True}), ["v", "i"])
    net = tec.compile(g, target, cache=False)
    return net, [c["choice"]["algorithm"] for c in net.report.choices.values()]


@thinned_rows(
    3,
    ("chip", "n", "k", "largest", "dtype"),
    [
        ("gfx942", 700, 700, True, "float16"),  # words of 32 bits
        ("gfx942", 300, 300, False, "float32"),
        ("gfx1100", 2049, 257, True, "int32"),
        ("gfx90a", 513, 400, False, "int8"),
    ],
)
def test_values_and_places(chip, n, k, largest, dtype):
    """Lines of distinct, of few different and of equal numbers, and with NaNs, which are above all; of equals the first comes first."""
    rng = np.random.default_rng(first(n))
    x = (rng.standard_normal((3, n, 2)) * 40).astype(dtype)
    x[1], x[2, :, 0] = x[1] // 16, 1
    if dtype.startswith("float"):
        x[0, ::7, 1] = np.nan
    net, algorithms = network(n, k, largest, dtype, f"rocm -mcpu={chip}")
    assert algorithms == ["shared"]
    values, places = (np.asarray(a) for a in net.run({"x": x}, device=tec.rocm_emu(chip, check="all")))
    numbers = np.where(np.isnan(x), np.inf, x).astype("f8")
    wanted = np.argsort(-numbers if largest else numbers, axis=1, kind="stable")[:, :k]
    np.testing.assert_array_equal(places, wanted)
    np.testing.assert_array_equal(values, np.take_along_axis(x, wanted, 1))


@pytest.mark.parametrize(
    ("n", "dtype", "algorithm"), [(4096, "float32", "shared"), (8000, "float16", "shared"), (4097, "float32", "bitonic")]
)  # fmt: skip
def test_one_kernel_where_shared_memory_has_room(n, dtype, algorithm):
    net, algorithms = network(n, n, True, dtype, "cuda -arch=sm_90a")
    assert algorithms == [algorithm]
    kernels = sum(m.get_source("ptx").count(".entry") for m in net.module.imported_modules)
    assert (kernels == 1) == (algorithm == "shared")
