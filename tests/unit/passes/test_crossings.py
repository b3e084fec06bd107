"""Places of neighbouring lanes that are divided once for all of them, on AMD GPUs."""

from __future__ import annotations

from random import Random

import pytest
from pass_util import CPU, GPU, apply, check_same, parse_func

from tec.ir import expr as E
from tec.ir.dtype import dtype_info
from tec.ir.visit import visit
from tests.seeds import some


def divisions_of_lanes(func):
    """Of places that differ from lane to lane."""
    found = []

    def on_expr(e):
        if type(e) in (E.FloorDiv, E.FloorMod) and dtype_info(e.dtype).lanes > 1 and not isinstance(e.a, E.Broadcast):
            found.append(e)

    visit(func.body, on_expr)
    return found


def padded(rng: Random) -> str:
    """A padded image whose rows no vector divides, each vector from its first place on."""
    lanes, (n, h, w) = rng.choice((2, 4, 8)), (rng.randint(1, 3), rng.randint(1, 5), rng.randint(8, 21))
    top, left, right = rng.randint(0, 2), rng.randint(0, 3), rng.randint(0, 3)
    high, wide = h + top, w + left + right
    vectors = n * high * wide // lanes
    at = f"(o * {lanes} + v)"
    y, x = f"{at} // {wide} % {high}", f"{at} % {wide}"
    image = f"{at} // {high * wide}"
    return f"""
def f(A: Buffer(({n * h * w},), "float32"), C: Buffer(({n * high * wide},), "float32")):
    for o in range({vectors}):
        for v in vectorized({lanes}):
            C[{at}] = if_then_else({y} >= {top} and {x} >= {left} and {x} < {left + w}, A[{image} * {h * w} + ({y} - {top}) * {w} + {x} - {left}], 0.5)
"""


@pytest.mark.parametrize("seed", some(6))
def test_padded_rows_are_divided_once_for_all_lanes(seed):
    func = parse_func(padded(Random(seed)))
    out = apply(func, GPU, "flatten_buffers", "vectorize")
    assert not divisions_of_lanes(out)
    check_same(func, out)
    check_same(func, apply(out, GPU, "simplify"))


def test_rows_shorter_than_a_vector_and_other_targets_divide_lane_by_lane():
    text = """
def f(A: Buffer((64,), "int32"), C: Buffer((64,), "int32")):
    for o in range(8):
        for v in vectorized(8):
            C[o * 8 + v] = (o * 8 + v) // 5 * 100 + (o * 8 + v) % 11
"""
    func = parse_func(text)
    for target, count in ((GPU, 1), (CPU, 2)):
        out = apply(func, target, "flatten_buffers", "vectorize")
        assert len(divisions_of_lanes(out)) == count
        check_same(func, out)
