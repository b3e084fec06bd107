"""Ragged tiles that random schedules found computed wrong: reads past an edge, and of elements that nothing wrote."""

from __future__ import annotations

from pass_util import ALL, GPU, apply, check_same, parse_func

_TUPLE = """
def f(A: Buffer((9, 19), "int32"), V: Buffer((9,), "int32")):
    for b in thread("blockIdx.x", 1):
        for t in thread("threadIdx.x", 5):
            acc = alloc((6,), "int32", scope="local")
            for i in range(6):
                if likely(i + t < 9):
                    acc[i] = -2147483648
            for k in range(19):
                for i in range(6):
                    if likely(i + t < 9):
                        old: int32 = acc[i]
                        new: int32 = A[i + t, k]
                        acc[i] = select(old > new, old, new)
            for i in range(2):
                if likely(i * 5 + t < 9):
                    V[i * 5 + t] = acc[i * 5]
"""

_HOLES = """
def f(A: Buffer((7, 5), "float32"), C: Buffer((5,), "float32")):
    for b in thread("blockIdx.x", 3):
        for t in thread("threadIdx.x", 2):
            acc = alloc((1,), "float32", scope="local")
            if likely(b * 2 + t < 5):
                acc[0] = 0.0
            s = alloc((7, 2), "float32", scope="shared")
            for o in range(4):
                for u in range(2):
                    if likely(o * 2 + u < 7):
                        if likely(b * 2 + t < 5):
                            s[o * 2 + u, t] = A[o * 2 + u, b * 2 + t]
            for r in range(7):
                if likely(b * 2 + t < 5):
                    acc[0] = acc[0] + s[r, t]
            if likely(b * 2 + t < 5):
                C[b * 2 + t] = acc[0]
"""


def test_a_let_under_a_dropped_guard_does_not_read_past_the_edge() -> None:
    """A reduction of a tuple reads its inputs in lets before the stores."""
    func = parse_func(_TUPLE)
    out = apply(func, GPU, "unify_threads", "pad_tiles")
    assert "if_then_else(likely" in str(out)
    check_same(func, apply(out, GPU, *ALL[1:]), split=GPU)


def test_a_tile_with_a_kept_guard_has_holes() -> None:
    """Two guards on a fill, one of which the index needs: the elements that the other leaves out have no value."""
    func = parse_func(_HOLES)
    check_same(func, apply(func, GPU, *ALL), split=GPU)


_WHERE = """
def f(A: Buffer((9, 19), "int32"), V: Buffer((9,), "int32")):
    for b in thread("blockIdx.x", 1):
        for t in thread("threadIdx.x", 5):
            acc = alloc((6,), "int32", scope="local")
            for i in range(6):
                if likely(i + t < 9):
                    acc[i] = 0
                for k in range(19):
                    if likely(i + t < 9):
                        if A[i + t, k] >= 0:
                            acc[i] = acc[i] + A[i + t, k]
            for i in range(2):
                if likely(i * 5 + t < 9):
                    V[i * 5 + t] = acc[i * 5]
"""


def test_a_condition_that_reads_stays_under_the_dropped_guard() -> None:
    """A reduction's `where` that reads."""
    func = parse_func(_WHERE)
    check_same(func, apply(func, GPU, *ALL), split=GPU)


def test_a_loop_as_long_as_memory_says_stays_under_the_dropped_guard() -> None:
    func = parse_func(
        _WHERE.replace("range(19)", "range(min(max(A[i + t, 0], 0), 19))").replace(
            "for k in range(min(max(A[i + t, 0], 0), 19)):\n                    if likely(i + t < 9):",
            "if likely(i + t < 9):\n                    for k in range(min(max(A[i + t, 0], 0), 19)):",
        )
    )
    check_same(func, apply(func, GPU, *ALL), split=GPU)
