"""Independent kernels of one function as one."""

from __future__ import annotations

import pytest
from pass_util import CPU, GPU, apply, check_same, parse_func

from tec.ir import Func

TWO = """
@attrs(side_by_side=2)
def f(A: Buffer((64,), "float32"), X: Buffer((64,), "float32"), C: Buffer((2,), "float32")):
    for b in thread("blockIdx.x", 4):
        for t in thread("threadIdx.x", 16):
            A[b * 16 + t] = X[b * 16 + t] + 1.0
    for c in thread("blockIdx.x", 2):
        for u in thread("threadIdx.x", 16):
            if u == 0:
                C[c] = X[c * 16]
"""
ONE_GROUP = """
@attrs(side_by_side=2)
def f(A: Buffer((16,), "float32"), X: Buffer((16,), "float32"), C: Buffer((1,), "float32")):
    for t in thread("threadIdx.x", 16):
        A[t] = X[t] + 1.0
    for u in thread("threadIdx.x", 16):
        if u == 0:
            C[0] = X[0]
"""
FEWER = TWO.replace('u in thread("threadIdx.x", 16)', 'u in thread("threadIdx.x", 8)')
MORE = TWO.replace('u in thread("threadIdx.x", 16)', 'u in thread("threadIdx.x", 32)')


THREE = (
    TWO.replace("side_by_side=2", "side_by_side=3").replace(", C: ", ', D: Buffer((16,), "float32"), C: ')
    + """    for d in thread("blockIdx.x", 1):
        for w in thread("threadIdx.x", 16):
            D[w] = X[w] * 2.0
"""
)


def launches(func: Func) -> int:
    return str(func.body).count('thread("threadIdx.x"')


@pytest.mark.parametrize("text", [TWO, ONE_GROUP, FEWER, MORE])
def test_the_last_work_groups_are_the_second_kernels(text: str) -> None:
    before = parse_func(text)
    after = apply(before, GPU, "join_launches")
    assert launches(before) == 2 and launches(after) == 1
    check_same(before, after)


def test_three_are_one() -> None:
    before = parse_func(THREE)
    after = apply(before, GPU, "join_launches")
    assert launches(before) == 3 and launches(after) == 1
    check_same(before, after)


def test_two_of_three_are_one_where_the_third_cannot_be() -> None:
    before = parse_func(THREE.replace('b in thread("blockIdx.x"', 'b in thread("blockIdx.y"'))
    after = apply(before, GPU, "join_launches")
    assert launches(after) == 2
    check_same(before, after)


@pytest.mark.parametrize(
    "text",
    [
        TWO.replace("@attrs(side_by_side=2)\n", ""),  # nobody says that they are independent
        FEWER.replace(
            "            if u", '            barrier(scope="shared")\n            if u'
        ),  # all threads must come there
        TWO.replace('c in thread("blockIdx.x", 2)', 'c in thread("blockIdx.y", 2)'),
    ],
)
def test_kernels_that_stay_apart(text: str) -> None:
    assert launches(apply(parse_func(text), GPU, "join_launches")) == 2


def test_shared_memory_must_hold_both() -> None:
    held = """            S = alloc((12000,), "float32", scope="shared")
            S[u] = X[u]
"""
    first = held.replace("u]", "t]").replace("S", "T")
    apart = TWO.replace("            A[", first + "            A[").replace(
        "            if u", held + "            if u"
    )
    assert (
        launches(apply(parse_func(TWO.replace("            if u", held + "            if u")), GPU, "join_launches"))
        == 1
    )
    assert launches(apply(parse_func(apart), GPU, "join_launches")) == 2


def test_a_cpu_has_no_launches() -> None:
    func = parse_func("def f(A: Buffer((4,), 'float32')):\n    A[0] = 1.0\n    A[1] = 2.0\n".replace("'", '"'))
    assert apply(func, CPU, "join_launches") is func
