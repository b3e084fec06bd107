"""The largest of short lines by a wavefront each, or by a part of one, on AMD GPUs."""

from __future__ import annotations

import numpy as np

import tec
from tec.graph import Graph
from tests.seeds import first
from tests.thinned import thinned_rows


@thinned_rows(
    3,
    ("n", "k", "largest", "dtype"),
    [
        (97, 5, False, "float32"),
        (301, 40, True, "float16"),
        (170, 12, True, "float32"),
        (149, 3, False, "float16"),
        (11, 11, True, "float16"),
        (20, 3, False, "float32"),
    ],
)
def test_a_wavefront_alone_selects_of_a_short_line(n, k, largest, dtype):
    """Lines of distinct, of few different and of equal numbers, and with NaNs, which are above all."""
    x = np.random.default_rng(first(n)).standard_normal((5, n)).astype(dtype)
    x[1], x[2], x[3, ::7] = np.round(x[1]), 1, np.nan
    g = Graph("g")
    g.set_outputs(
        g.add("topk", [g.input("x", dtype, x.shape)], {"axis": 1, "k": k, "largest": largest, "sorted": True}),
        ["v", "i"],
    )
    net = tec.compile(g, target="rocm -mcpu=gfx942", cache=False)
    assert [c["choice"]["by_wave"] for c in net.report.choices.values()] == [True]
    values, places = (np.asarray(a) for a in net.run({"x": x}, device=tec.rocm_emu("gfx942", check="all")))
    numbers = np.where(np.isnan(x), np.inf, x)
    wanted = np.argsort(-numbers if largest else numbers, axis=1, kind="stable")[:, :k]
    np.testing.assert_array_equal(places, wanted)
    np.testing.assert_array_equal(values, np.take_along_axis(x, wanted, 1))
