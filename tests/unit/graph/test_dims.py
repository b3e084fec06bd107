"""Symbolic sizes: the normal form and the bounds against numbers, te and plan forms, conditions."""

import itertools
import random

import pytest

from tec.ir import IntImm
from tec.ir.arith import Analyzer
from tec.ir.visit import substitute
from tec.ops.dims import Dim, UndecidedSize, data_of, evaluate, maximum, minimum, require
from tec.ops.guards import Guard, recording
from tec.ops.size_exprs import from_expr
from tec.ops.size_text import names_in, parse_size
from tec.ops.size_vars import variable
from tec.runtime.modules import exprs
from tests import seeds

B, S = Dim("b"), Dim("s")


def random_size(rng: random.Random, depth: int, env=None):
    """A size of random operations over the symbols, or over their numbers in `env`: the same draws give the same operations."""
    if depth == 0:
        pick = rng.choice([B, S, rng.randint(-4, 9)])
        return env[str(pick)] if env is not None and isinstance(pick, Dim) else pick
    a, b = random_size(rng, depth - 1, env), random_size(rng, depth - 1, env)
    kind = rng.randrange(7)
    if kind < 2:
        return a + b
    if kind == 2:
        return a - b
    if kind == 3:
        return a * b
    if kind == 4:
        return a // rng.randint(1, 6)
    if kind == 5:
        return a % rng.randint(1, 6)
    least, most = (minimum, maximum) if env is None else (min, max)
    return least(a, b) if rng.random() < 0.5 else most(a, b)


@pytest.mark.parametrize("seed", seeds.some(150))
def test_forms_and_bounds_hold_for_numbers(seed):
    """The same operations on numbers give what the normal form gives; bounds, te expression and plan data agree."""
    values = list(itertools.product([1, 2, 3, 7, 12], [1, 2, 5, 8]))
    size = random_size(random.Random(seed), 3)
    low, high = size.bounds() if isinstance(size, Dim) else (size, size)
    compiled = exprs.compile_expr(data_of(size))
    for b, s in values:
        rng = random.Random(seed)
        env = {"b": b, "s": s}
        number = random_size(rng, 3, env)
        assert evaluate(size, env) == number == exprs.evaluate(compiled, env)
        assert low <= number <= high
        if isinstance(size, Dim):
            e = substitute(size.asexpr(), {variable(n): IntImm(v) for n, v in env.items()})
            assert Analyzer().simplify(e).value == number
    if isinstance(size, Dim):
        assert from_expr(size.asexpr()) == size


def test_equal_sizes_have_one_form():
    assert B * S * 384 == 12 * (S * 32) * B and hash(B + 1) == hash(1 + B)
    assert (B * S * 12) // (S * 12) == B and (B * 6) // 4 == (B + B * 2) // 2
    assert (B * 8) % 4 == 0 and -1 % B == B - 1 and 0 % B == 0
    assert ((S - 1) // 2 + 1 - 1) // 2 == (S - 1) // 4
    assert B != S and B != 4 and B - B == 0 and isinstance(B - B, int)


def test_order_is_proved_or_refused():
    assert B >= 1 and B * S > 0 and B * S - S >= 0 and min(S, 2**63 - 1) == S
    assert (S // 4) * 4 <= S and (S // 4) * 4 > S - 4
    with pytest.raises(UndecidedSize, match="whether b < 5 is not known"):
        B < 5  # noqa: B015
    with pytest.raises(UndecidedSize, match="a number is needed where the size is b"):
        range(B)


def test_conditions_are_noted_and_then_known():
    guards: list[Guard] = []
    with recording(guards):
        assert require(S, "<=", 512, "positions")
        assert S <= 600 and require(S, "<=", 512, "again") and not require(S + 513, "<=", 512, "never")
        assert require(2, "<=", B // 4, "rows") and not (B // 4 < 2) and not (B // 4 < 1) and bool(B // 4)
        guards.pop()
    assert [(str(g.size), g.what) for g in guards] == [("-s+512", "s <= 512 (positions)")]
    with pytest.raises(UndecidedSize):
        require(S, "<=", 512, "no one listens")


def test_a_size_that_may_be_empty():
    past, seq = Dim("past", least=0), Dim("seq")
    assert past.bounds()[0] == 0
    assert (past + seq).bounds()[0] == 1
    assert past >= 0
    for what in (lambda: past > 0, lambda: past >= 1, lambda: seq <= past + 1):
        with pytest.raises(UndecidedSize):
            what()
    assert seq < past + seq + 1
    assert evaluate(past * 4 + seq, {"past": 0, "seq": 3}) == 3
    assert evaluate(past + seq, {"seq": 1}).bounds()[0] == 1  # the name keeps what it is
    assert (past * 2 + 1) // 2 == past


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("a + b", 10), ("2*a", 14), ("(a + 1) // 2", 4), ("a % b", 1), ("max(a, b, 9)", 9), ("Min(a, b)", 3), ("a - b + 1", 5),
    ],
)  # fmt: skip
def test_sizes_as_text(text, value):
    assert evaluate(parse_size(text, Dim), {"a": 7, "b": 3}) == value
    assert names_in(text) <= {"a", "b"}
    assert names_in(text)


@pytest.mark.parametrize(
    "text",
    [
        "a / b",
        "batch size",
        "a.b",
        "f(a)",
        "a if b else c",
        "__import__('os')",
        "a[0]",
        "",
        "1 +",
        "max()",
        "a//0",
        "(" * 150 + "a",
    ],
)
def test_other_text_is_no_size(text):
    assert parse_size(text, Dim) is None


def test_names_alone():
    assert names_in("past_sequence_length") == set()
    assert names_in("4") == set()
    assert parse_size("n", Dim) == Dim("n")


def test_conditions_that_bound_parts_of_themselves() -> None:
    """What is asked of x // 256 bounds x, of which the condition itself is made (swift_f0's padded samples)."""
    n = Dim("n")
    x = maximum(256 - n, 0) + 255 * maximum(256, n) + n
    gap = 256 * (x // 256) - x
    with recording([]):
        for _ in range(2):
            assert require(gap, "<=", 0, "whole windows") and require(0, "<=", gap, "whole windows")


def test_deep_sizes_come_soon():
    """Each level asks for the bounds and the text of the one below several times: what was found is kept (twelve levels took hours)."""
    n = Dim("n")
    size = n
    for k in range(12):
        size = maximum((size * 3 + 7 + k) // 2, n + 3)
    with recording([Guard(n - 4, "n >= 4")]):
        assert size.bounds()[0] >= 1000
