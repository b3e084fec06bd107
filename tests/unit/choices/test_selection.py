"""The largest of short lines by a wavefront each, or by a part of one, on AMD GPUs."""

from __future__ import annotations

import numpy as np

import tec
from tec.choices.families import selection
from tec.choices.parts import loops
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
    selects("gfx942", n, k, largest, dtype)


@thinned_rows(
    2,
    ("chip", "n", "k", "largest", "dtype"),
    [("gfx942", 80, 8, True, "float16"), ("gfx90a", 48, 5, False, "float32"), ("gfx1100", 61, 1, True, "float32"), ("gfx942", 128, 9, True, "float16")],
)  # fmt: skip
def test_of_many_lines_as_many_lanes_as_are_looked_for_take_one(chip, n, k, largest, dtype, monkeypatch):
    """Several elements a lane: their runs become one. 5 lines stand for many."""
    monkeypatch.setattr(selection, "_FULL", 0)
    asked = []
    sort = loops.sorted_lanes
    monkeypatch.setattr(loops, "sorted_lanes", lambda *a: asked.append((len(a[1]), a[3])) or sort(*a))
    selects(chip, n, k, largest, dtype)
    lanes = max(2, 1 << (k - 1).bit_length(), 1 << (-(-n // 16) - 1).bit_length())
    assert set(asked) == {(-(-n // lanes), lanes)}


def selects(chip, n, k, largest, dtype):
    x = np.random.default_rng(first(n)).standard_normal((5, n)).astype(dtype)
    x[1], x[2], x[3, ::7] = np.round(x[1]), 1, np.nan
    g = Graph("g")
    g.set_outputs(
        g.add("topk", [g.input("x", dtype, x.shape)], {"axis": 1, "k": k, "largest": largest, "sorted": True}),
        ["v", "i"],
    )
    net = tec.compile(g, target=f"rocm -mcpu={chip}", cache=False)
    assert [c["choice"]["by_wave"] for c in net.report.choices.values()] == [True]
    values, places = (np.asarray(a) for a in net.run({"x": x}, device=tec.rocm_emu(chip, check="all")))
    numbers = np.where(np.isnan(x), np.inf, x)
    wanted = np.argsort(-numbers if largest else numbers, axis=1, kind="stable")[:, :k]
    np.testing.assert_array_equal(places, wanted)
    np.testing.assert_array_equal(values, np.take_along_axis(x, wanted, 1))
