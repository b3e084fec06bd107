"""Conditions that are the same for a whole work-group stand around its kernel once."""

from __future__ import annotations

import numpy as np
from pass_util import ALL, CPU, GPU, apply, check_same, count, parse_func

import tec
from tec.graph import Graph
from tec.ir import stmt as S

_BANDS = """
def f(A: Buffer((40,), "float32"), C: Buffer((20,), "float32")):
    for b in thread("blockIdx.x", 6):
        for t in thread("threadIdx.x", 4):
            acc = alloc((1,), "float32", scope="local")
            if likely(b // 2 + b % 2 * 3 < 5):
                acc[0] = 0.0
            for k in range(2):
                s = alloc((4,), "float32", scope="shared")
                if likely(b // 2 + b % 2 * 3 < 5):
                    s[t] = if_then_else(likely(b // 2 + b % 2 * 3 < 5) and t < 3, A[(b // 2 + b % 2 * 3) * 8 + k * 4 + t], 0.0)
                if likely(b // 2 + b % 2 * 3 < 5):
                    acc[0] = acc[0] + s[(t + 1) % 4]
            if likely(b % 2 * 3 + b // 2 < 5):
                if likely(t < 3):
                    C[(b % 2 * 3 + b // 2) * 4 + t] = acc[0]
"""


def test_work_groups_beyond_the_last_tile_do_nothing() -> None:
    """The condition is found although a sum in it stands in another order; what goes by the thread stays."""
    func = parse_func(_BANDS)
    out = apply(func, GPU, "whole_groups")
    assert str(out).count("< 5") == 1 and count(out, S.IfThenElse) == 2
    assert "likely(t < 3)" in str(out)
    check_same(func, apply(out, GPU, *ALL), split=GPU)


def test_what_lasts_elsewhere_keeps_the_conditions_where_they_are() -> None:
    """A store that all work-groups make; and one under another condition, of which only what both share could go out."""
    every = _BANDS.replace("    acc[0] = 0.0", "    acc[0] = 0.0\n            C[19] = 1.0")
    other = _BANDS.replace("if likely(b % 2 * 3 + b // 2 < 5)", "if likely(b % 2 * 3 + b // 2 < 4)")
    assert str(apply(parse_func(every), GPU, "whole_groups")) == str(parse_func(every))
    out = apply(parse_func(other), GPU, "whole_groups")
    assert str(out).count("< 4") == 1 and str(out).count("< 5") == str(parse_func(other)).count("< 5")
    check_same(parse_func(other), apply(out, GPU, *ALL), split=GPU)


def test_a_condition_of_a_thread_is_none_of_the_group() -> None:
    func = parse_func(_BANDS.replace("b % 2 * 3 + b // 2 < 5", "t < 2").replace("b // 2 + b % 2 * 3 < 5", "t < 2"))
    assert str(apply(func, GPU, "whole_groups")) == str(func)


def test_other_targets_keep_theirs() -> None:
    assert str(apply(parse_func(_BANDS), CPU, "whole_groups")) == str(parse_func(_BANDS))


def test_bands_over_dies_are_right() -> None:
    """Nine tiles of an MI300X's product, in bands over eight dies: sixteen work-groups, seven of which have no tile, on the software GPU."""
    g = Graph()
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal(shape).astype("float16") for shape in ((96, 80), (80, 96)))
    g.set_outputs(g.add("matmul", [g.input("a", "float16", a.shape), g.input("b", "float16", b.shape)], {}), ["y"])
    tile = {
        "template": "matrix product",
        "rows": 32,
        "columns": 32,
        "step": 64,
        "waves_m": 2,
        "waves_n": 2,
        "instruction": "16x16x32",
        "swizzle": True,
    }
    choice = {**tile, "stages": 1, "prefetch_distance": 1, "group_m": 1, "interleave": True, "split_k": 1}
    net = tec.compile(g, GPU, cache=False, choices=lambda *_: choice)
    (made,) = net.report.choices.values()
    assert made["choice"]["group_m"] == 1
    got = net.run({"a": a, "b": b}, device=tec.rocm_emu("gfx942", check="all"))[0]
    np.testing.assert_allclose(got, a.astype("f4") @ b.astype("f4"), rtol=0.01, atol=0.05)
    assert net.get_source("ir").count("< 9") <= 2  # around the kernel, and perhaps at its end
