"""Named values in `simplify`: what is known of one while its body is simplified is known of nothing else."""

from __future__ import annotations

import random

from pass_util import CPU, apply, check_same

from tec.ir import Buffer, Func
from tec.ir import build as B
from tec.ir import expr as E
from tec.ir import stmt as S


def _function(r: random.Random) -> Func:
    """Nests of named values, side by side and in one another; some variables are named again in another nest, by another value."""
    x, y = Buffer("x", "int32", (E.IntImm(512),)), Buffer("y", "int32", (E.IntImm(64),))
    i = E.Var("i", "int32")
    names = [E.Var(f"v{k}", "int32") for k in range(4)]

    def value(known: list[E.Var]) -> E.Expr:
        base = r.choice(known)
        made = [
            lambda: base * r.choice((1, 2, 4)) + r.randrange(4),
            lambda: B.floormod(base, E.IntImm(r.choice((2, 4, 8)))),
            lambda: B.floordiv(base, E.IntImm(r.choice((1, 2, 4)))),
            lambda: E.BufferLoad(x, (B.floormod(base, E.IntImm(512)),)),
            lambda: E.IntImm(r.randrange(8)),
        ]
        return B.convert(r.choice(made)(), "int32")

    def stored(known: list[E.Var]) -> S.Stmt:
        a, n = r.choice(known), r.choice((2, 4, 8))
        at = B.floormod(r.choice(known), E.IntImm(64))
        picked = E.Select(E.LT(B.floormod(a, E.IntImm(n)), E.IntImm(r.randrange(n))), B.floordiv(a, E.IntImm(n)), at)
        return S.BufferStore(y, E.Add(picked, B.floormod(a * 4 + r.randrange(4), E.IntImm(4))), (at,))

    def nest(known: list[E.Var], depth: int) -> S.Stmt:
        free = [v for v in names if all(v is not k for k in known)]
        if not depth or not free:
            return stored(known)
        parts: list[S.Stmt] = []
        for _ in range(r.randrange(1, 4)):
            v = r.choice(free)
            body = nest([*known, v], depth - 1)
            if r.random() < 0.3:
                body = S.IfThenElse(E.LT(v, E.IntImm(r.randrange(1, 9))), body)
            parts += [S.LetStmt(v, value(known), S.seq(stored([*known, v]), body)), stored(known)]
        return S.seq(*parts)

    return Func("f", (x, y), S.For(i, E.IntImm(0), E.IntImm(9), nest([i], 3)), {"writes": ("y",)})


def test_what_is_known_of_a_value_is_known_of_nothing_else() -> None:
    for seed in range(60):
        func = _function(random.Random(seed))
        out = apply(func, CPU, "simplify")
        check_same(func, out)
        assert str(apply(out, CPU, "simplify")) == str(out), seed
