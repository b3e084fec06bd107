"""Maxima beside storage that is never NaN are comparisons: which storage that is, and that NaN among the operands still loses."""

from __future__ import annotations

import numpy as np
import pytest
from pass_util import CPU, GPU, apply, parse_func

from tec.ir import Func
from tec.ir import expr as E
from tec.ir.interp import run
from tec.ir.visit import visit

TEXT = """
def f(A: Buffer((40,), "float32"), C: Buffer((1,), "float32")):
    part = alloc((8,), "float32")
    part[ramp(0, 1, 8)] = broadcast(START, 8)
    for k in range(5):
        part[ramp(0, 1, 8)] = max(part[ramp(0, 1, 8)], A[ramp(k * 8, 1, 8)])
    whole = alloc((1,), "float32")
    whole[0] = float32("-inf")
    for j in range(8):
        whole[0] = max(part[j], whole[0])
    C[0] = whole[0]
"""


def choices(func: Func) -> int:
    found: list[E.Expr] = []
    visit(func.body, lambda e: found.append(e) if isinstance(e, E.Select) else None)
    return len(found)


@pytest.mark.parametrize("start, made", [('float32("-inf")', 2), ("-3.0", 2), ("A[0]", 1), ('float32("nan")', 1)])
@pytest.mark.parametrize("what", ["max", "min"])
def test_numbers(start: str, made: int, what: str) -> None:
    text = TEXT.replace("START", start).replace("max(", f"{what}(")
    func = parse_func(text)
    after = apply(func, CPU, "compare_numbers")
    assert choices(after) == made
    rng = np.random.default_rng(1)
    for holes in (0, 3, 40):
        x = rng.standard_normal(40).astype("f4")
        x[rng.permutation(40)[:holes]] = np.nan
        got, want = np.zeros(1, "f4"), np.zeros(1, "f4")
        run(func, {"A": x, "C": want}, {})
        run(after, {"A": x, "C": got}, {}, check=True)
        assert got.tobytes() == want.tobytes()


def test_what_is_not_a_number_for_sure() -> None:
    """Products may be NaN, and so may what the caller gave; GPUs are left alone."""
    text = TEXT.replace("START", "0.0")
    assert (
        choices(apply(parse_func(text.replace("max(part[j], whole[0])", "part[j] * A[j]")), CPU, "compare_numbers"))
        == 1
    )
    assert (
        choices(
            apply(
                parse_func(text.replace("whole[0] = max(part[j], whole[0])", "C[0] = max(C[0], A[j])")),
                CPU,
                "compare_numbers",
            )
        )
        == 1
    )
    func = parse_func(text)
    assert apply(func, GPU, "compare_numbers") is func
