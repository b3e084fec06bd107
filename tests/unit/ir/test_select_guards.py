"""A select evaluates both sides: its condition must not loosen what keeps an access in range."""

import functools

import pytest

from tec import te
from tec.ir import LT, BufferLoad, Call, Div, FloorDiv
from tec.ir.arith import Analyzer
from tec.ir.arith.analyzer import conjuncts
from tec.ir.build import buffer_load, const, if_then_else, logical_and, logical_or, maximum, minimum, select, truncdiv
from tec.ir.visit import walk_exprs

X = te.decl_buffer((9,), name="X")
y = te.var("y")
CLAMPED = maximum(minimum(y, 8), 0)
INSIDE = te.all(y >= 0, y < 9)


def index_of(e):
    return next(x for x in walk_exprs(e) if isinstance(x, BufferLoad)).indices[0]


def test_an_index_stays_clamped_in_a_select():
    e = Analyzer().simplify(select(INSIDE, buffer_load(X, [CLAMPED]), const(0.0)))
    assert index_of(e) is not y


def test_an_index_is_freed_where_only_one_side_runs():
    e = Analyzer().simplify(if_then_else(INSIDE, buffer_load(X, [CLAMPED]), const(0.0)))
    assert isinstance(e, Call) and index_of(e) is y


def test_a_divisor_stays_clamped_in_a_select():
    e = Analyzer().simplify(select(y >= 1, truncdiv(const(100), maximum(y, 1)), 0))
    assert next(x for x in walk_exprs(e) if isinstance(x, (Div, FloorDiv))).b is not y


def test_a_guard_stays_before_what_it_guards():
    """`y < 9` follows from `y < 8`, but that is asked behind an access that needs it."""
    read = buffer_load(X, [y]) > 0.0
    guarded = Analyzer().simplify(logical_and(y < 9, logical_and(read, y < 8)))
    assert [type(x) for x in conjuncts(guarded)] == [LT, type(read), LT]
    assert [str(x) for x in conjuncts(Analyzer().simplify(logical_and(y < 9, y < 8)))] == ["y < 8"]


@pytest.mark.parametrize("both", [logical_and, logical_or])
def test_a_chain_of_conditions_is_looked_at_part_by_part(both, monkeypatch):
    """Not pair by pair, with each side under the other: that doubles the work with every part."""
    scopes = []
    monkeypatch.setattr(Analyzer, "under", lambda f, c, e, old=Analyzer.under: (scopes.append(e), old(f, c, e))[1])
    parts = [te.var(f"v{i}") // 3 < i + 1 for i in range(12)]
    chain = functools.reduce(both, parts)
    assert Analyzer().simplify(chain) is chain
    assert len(scopes) == len(parts)
    again = Analyzer().simplify(both(parts[0], both(chain, parts[3])))  # each part once
    assert len([x for x in walk_exprs(again) if isinstance(x, LT)]) == len(parts)
