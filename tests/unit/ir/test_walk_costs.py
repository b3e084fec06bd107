"""What walks and simplification cost beside their results, counted: a network's compilation makes tens of thousands of them."""

from __future__ import annotations

import gc

import pytest

import tec
from tec.ir import expr as E
from tec.ir import stmt as S
from tec.ir.arith import Analyzer
from tec.ir.arith.scope import Scope
from tec.ir.effects import effects
from tec.ir.visit import free_vars, substituter, visit
from tests.counting import cost


def loops() -> S.Stmt:
    a = tec.placeholder((64, 64), name="A")
    b = tec.compute((64, 64), lambda i, j: tec.if_then_else(i < j, a[i, j], 0.0) * 2.0, name="B")
    return tec.lower(tec.create_schedule(b.op), [a, b], simple_mode=True)["main"].body


def test_walks_leave_nothing_for_the_garbage_collector() -> None:
    body, x = loops(), tec.var("x")
    seen: list[object] = []
    effects(body)  # tables that are made once
    gc.collect()
    gc.disable()
    try:
        for _ in range(10):
            visit(body, seen.append, seen.append)
            visit(body, None, seen.append)
            effects(body)
            free_vars(body)
            substituter({x: E.IntImm(1)})(x + 1)
        assert gc.collect() == 0
    finally:
        gc.enable()
    assert seen


def test_a_statement_is_visited_after_what_stands_in_it() -> None:
    body = loops()
    order: list[int] = []
    visit(body, lambda e: order.append(id(e)), lambda s: order.append(id(s)))
    assert order[-1] == id(body) and len(order) == len(set(order))
    statements: list[int] = []
    visit(body, None, lambda s: statements.append(id(s)))
    assert statements == [k for k in order if k in set(statements)]


def test_choices_in_one_another_cost_no_more_than_the_square_of_their_number() -> None:
    """What stands below a choice is simplified under its condition only where the condition bears on it."""

    def calls(choices: int) -> int:
        out: E.Expr = tec.var("x", "float32")
        i = tec.var("i")
        for k in range(choices):
            a, b = tec.var(f"a{k}", "float32"), tec.var(f"b{k}", "float32")
            out = E.Select(E.LT(a, b), E.Add(E.Cast("float32", E.Mod(i, E.IntImm(k + 2))), out), out)
        return cost(lambda: Analyzer().simplify(out)).calls

    assert calls(8) < 4.5 * calls(4)


def test_conditions_that_bear_on_a_choice_still_do() -> None:
    """A proof goes from a condition to what is asked by way of what is known of both."""
    ana = Analyzer()
    i, n, m = tec.var("i"), tec.var("n"), tec.var("m")
    ana.add_constraint(n <= m)
    x = tec.var("x", "float32")
    e = E.Select(i < n, E.Select(i < m, x, E.FloatImm(0.0)), E.FloatImm(1.0))
    assert str(ana.simplify(e)) == str(E.Select(i < n, x, E.FloatImm(1.0)))
    j = tec.var("j")
    ana.bind(j, i + 1)  # it stands for i
    e = E.Select(i < n, E.Select(j <= m, x, E.FloatImm(0.0)), E.FloatImm(1.0))
    assert str(ana.simplify(e)) == str(E.Select(i < n, x, E.FloatImm(1.0)))


def test_a_sum_costs_as_much_as_it_has_terms() -> None:
    def calls(terms: int) -> int:
        total: E.Expr = E.IntImm(0)
        for k in range(terms):
            total = E.Add(total, E.Mul(tec.var(f"x{k}"), E.IntImm(k + 2)))
        return cost(lambda: Analyzer().simplify(total)).calls

    assert calls(120) < 2.6 * calls(60)


def test_a_condition_is_assumed_once_for_all_that_stands_under_it(monkeypatch: pytest.MonkeyPatch) -> None:
    assumed: list[E.Expr] = []
    assume = Scope.assume
    monkeypatch.setattr(Scope, "assume", lambda self, c: (assumed.append(c), assume(self, c))[1])
    n = tec.var("n")
    i, j, k = (tec.var(name) for name in "ijk")
    ana = Analyzer()
    for v in (i, j, k):
        ana.bind(v, E.Range(E.IntImm(0), E.IntImm(64)))
    cond = i * 4 + j < n

    def guarded(at: int) -> E.Expr:
        return tec.if_then_else(cond, tec.max(i * 4 + j, n - 1) + k + at, 0)

    ana.simplify(guarded(1))
    first = len(assumed)
    ana.simplify(guarded(2))
    assert first and len(assumed) == first
    # What the condition says is known under it alone, and a variable bound later is known under it too.
    m = tec.var("m")
    assert str(ana.simplify(tec.if_then_else(cond, tec.max(i * 4 + j, n - 1), 0))).count("max") == 0
    assert str(ana.simplify(tec.max(i * 4 + j, n - 1))).count("max") == 1
    with ana.scope():
        ana.bind(m, E.Range(E.IntImm(0), E.IntImm(8)))
        assert str(ana.simplify(tec.if_then_else(cond, m // 8 + i, 0))) == str(
            ana.simplify(tec.if_then_else(cond, i, 0))
        )


def test_text_of_a_node_with_many_readers_is_made_once() -> None:
    """A gradient's definition has few nodes, and millions of paths to them."""

    def doubled(times: int) -> E.Expr:
        e: E.Expr = tec.var("x")
        for _ in range(times):
            e = E.Add(e, e)
        return e

    assert str(doubled(3)) == "x + x + (x + x) + (x + x + (x + x))"
    short, long = (cost(lambda n=n: str(doubled(n))).calls for n in (6, 12))  # type: ignore[misc]
    assert long < 4 * short
