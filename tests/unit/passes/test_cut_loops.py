"""Loops cut where conditions change, and squares turned in registers: what becomes of them, and that every bit is the scalar program's."""

from __future__ import annotations

from random import Random

import pytest
from pass_util import CPU, GPU, apply, arrays_for, count, parse_func

from tec.ir import Func
from tec.ir import expr as E
from tec.ir import stmt as S
from tec.ir.interp import run
from tec.ir.visit import visit
from tests import seeds

FLAT = ("flatten_buffers", "simplify")


def same(text: str, *passes: str) -> Func:
    """A function after the passes; its results must be those of its text."""
    func = parse_func(text)
    after = apply(func, CPU, *FLAT, *passes)
    arrays = arrays_for(func, {})
    got = {k: v.reshape(-1).copy() for k, v in arrays.items()}
    run(func, arrays, {})
    run(apply(after, CPU, "simplify", "remove_noop"), got, {}, check=True)
    for name, want in arrays.items():
        assert got[name].tobytes() == want.tobytes(), name
    return after


def padded(rng: Random) -> str:
    """A padding, or a choice of two by place, of two or three dimensions."""
    shape = [rng.randint(1, 9) for _ in range(rng.choice((2, 3)))]
    before, after = ([rng.randint(0, 3) for _ in shape] for _ in range(2))
    out = [n + b + a for n, b, a in zip(shape, before, after)]
    at = "ijk"[: len(shape)]
    conditions = []
    for v, n, b in zip(at, shape, before):
        conditions += [
            rng.choice((f"{v} >= {b}", f"{v} - {b} >= 0", f"{b} <= {v}", f"{v} > {b - 1}", f"not {v} < {b}"))
        ]
        conditions += [
            rng.choice((f"{v} < {n + b}", f"{v} - {b} < {n}", f"{v} <= {n + b - 1}", f"2 * {v} < {2 * (n + b)}"))
        ]
    rng.shuffle(conditions)
    read = ", ".join(f"{v} - {b}" for v, b in zip(at, before))
    lines = [f'def f(A: Buffer({tuple(shape)}, "float32"), C: Buffer({tuple(out)}, "float32")):']
    for d, (v, n) in enumerate(zip(at, out)):
        lines.append("    " * (d + 1) + f"for {v} in {'parallel' if d == 0 and rng.random() < 0.5 else 'range'}({n}):")
    value = f"if_then_else({' and '.join(conditions)}, A[{read}], 0.5)"
    lines.append("    " * (len(shape) + 1) + f"C[{', '.join(at)}] = max({value}, 0.25)")
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize("seed", seeds.some(12))
def test_paddings_keep_their_values(seed: int) -> None:
    same(padded(Random(seed)), "cut_loops", "vectorize_loops", "vectorize")


ROW = """
def f(A: Buffer((6, 40), "float32"), B: Buffer((6, 9), "float32"), C: Buffer((6, 49), "float32")):
    for i in parallel(6):
        for j in range(49):
            C[i, j] = if_then_else(j < 40, A[i, j], B[i, j - 40])
"""


def test_a_row_is_cut_into_copies_of_whole_vectors() -> None:
    after = same(ROW, "cut_loops", "vectorize_loops", "vectorize")
    assert count(after, "if_then_else") == 0 and not masked(after)
    assert count(same(ROW, "cut_loops"), S.BufferStore) == 2


def test_what_a_loop_does_not_change_is_asked_outside() -> None:
    text = ROW.replace("j < 40, A[i, j], B[i, j - 40]", "i < 3, A[i, min(j, 39)], B[i, min(j, 8)]")
    after = same(text, "cut_loops")
    assert count(after, "if_then_else") == 0 and count(after, S.IfThenElse) == 1


@pytest.mark.parametrize("condition", ["A[i, 0] > 0.0", "i + j > 12", "j % 2 == 0"])
def test_what_has_no_place_where_it_changes_stays(condition: str) -> None:
    text = ROW.replace("j < 40, A[i, j], B[i, j - 40]", f"{condition} and j < 40, A[i, min(j, 39)], B[i, j % 9]")
    after = same(text, "cut_loops")
    assert count(after, "if_then_else") == 1 and count(after, S.BufferStore) == 2


def test_many_choices_stay_one_store() -> None:
    value = "A[i, 0]"
    for k in reversed(range(40)):
        value = f"if_then_else(j < {k + 1}, A[i, {k}], {value})"
    after = same(ROW.replace("if_then_else(j < 40, A[i, j], B[i, j - 40])", value), "cut_loops")
    assert count(after, S.BufferStore) == 1


def test_gpus_are_left_alone() -> None:
    func = apply(parse_func(ROW), GPU, *FLAT)
    assert apply(func, GPU, "cut_loops") is func and apply(func, GPU, "turn_squares") is func


def masked(func: Func) -> list[E.BufferLoad]:
    found: list[E.BufferLoad] = []
    visit(func.body, lambda e: found.append(e) if isinstance(e, E.BufferLoad) and e.predicate is not None else None)
    return found


def gathers(func: Func) -> int:
    """Loads of lanes that do not lie side by side."""
    total = 0

    def on_expr(e: E.Expr) -> None:
        nonlocal total
        at = e.indices[-1] if isinstance(e, E.BufferLoad) else None
        total += isinstance(at, E.Ramp) and not (isinstance(at.stride, E.IntImm) and at.stride.value == 1)

    visit(func.body, on_expr)
    return total


SQUARE = """
def f(A: Buffer((16, 24), "float32"), B: Buffer((24, 16), "float32"), C: Buffer((24, 16), "float32")):
    for i in range(3):
        for j in range(2):
            for k in unrolled(8):
                for l in vectorized(8):
                    C[i * 8 + k, j * 8 + l] = VALUE
"""


@pytest.mark.parametrize("value, left", [
    ("A[j * 8 + l, i * 8 + k]", 0),
    ("max(A[j * 8 + l, i * 8 + k], 0.0) + B[i * 8 + k, j * 8 + l]", 0),
    ("A[j * 8 + l, i * 8 + k] + A[j * 8 + l, i * 8 + 7 - k]", 1),  # the other way round stays a gather
    ("if_then_else(k < 5, A[j * 8 + l, i * 8 + k], 0.0)", 1),  # a line of which not all may be read
])  # fmt: skip
def test_squares_are_lines_turned_round(value: str, left: int) -> None:
    after = same(SQUARE.replace("VALUE", value), "vectorize", "turn_squares")
    shuffles: list[E.Expr] = []
    visit(after.body, lambda e: shuffles.append(e) if isinstance(e, E.Shuffle) else None)
    assert (left > 0) == (gathers(after) > 0)
    assert bool(shuffles) == ("if_then_else" not in value)


def test_what_is_written_meanwhile_is_read_element_by_element() -> None:
    text = SQUARE.replace("C[i * 8 + k, j * 8 + l] = VALUE", "A[j * 8 + k, i * 8 + l] = A[j * 8 + l, i * 8 + k] + 1.0")
    assert gathers(same(text, "vectorize", "turn_squares")) == 1


PARTS = """
def f(A: Buffer((1300,), "float32"), B: Buffer((700,), "float32"), C: Buffer((2000,), "float32")):
    for i in parallel(7):
        for j in range(300):
            C[min(i * 300, 1700) + j] = if_then_else(min(i * 300, 1700) + j < 1300, A[min(i * 300, 1700) + j], B[min(i * 300, 1700) + j - 1300])
"""


def test_parts_of_a_row_ask_their_ends_first() -> None:
    """Of seven parts six have one answer: two loops of copies, and one that asks for each element."""
    after = same(PARTS, "cut_loops")
    assert count(after, S.For) == 1 + 3
    assert count(after, S.IfThenElse) == 2


def test_a_condition_that_a_value_names_stays_in_it() -> None:
    text = """
def f(A: Buffer((9,), "float32"), B: Buffer((1,), "float32"), C: Buffer((4, 9), "float32")):
    for i in range(4):
        for j in range(9):
            C[i, j] = let(few := B[0] < 0.25, if_then_else(few, A[j], if_then_else(few and i < 2, 1.0, 0.5)))
"""
    same(text, "cut_loops")
