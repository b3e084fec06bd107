"""Derivatives of an expression by the tensor elements that it reads.

    partials(A[i] * exp(B[i, k]))   ->   A[i]: exp(B[i, k]),   B[i, k]: A[i] * exp(B[i, k])

In: the body of a compute. Out: for each read the conditions under which it counts, and the derivative. Reverse mode over the graph
of nodes, so that a node that is used twice is gone through once. Conditions, indices and integers have no derivative; a function
that rounds has 0. Of a maximum of equal values each gets half, as in PyTorch.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from ..errors import ExprError
from ..ir import build as B
from ..ir import expr as E
from ..ir.dtype import dtype_info

Guards = tuple[E.Expr, ...]
Partial = tuple[E.TensorRead, Guards, E.Expr]


def _call(op: str, *args: E.Expr) -> E.Expr:
    return E.Call(op, args, args[0].dtype)


def _const(value: float, like: E.Expr) -> E.Expr:
    return B.const(value, like.dtype)


# Of y = f(x) the derivative, in terms of x and y.
_UNARY: dict[str, Callable[[E.Expr, E.Expr], E.Expr]] = {
    "exp": lambda x, y: y,
    "exp_below": lambda x, y: y,
    "exp2": lambda x, y: y * _const(math.log(2), x),
    "exp2_fast": lambda x, y: y * _const(math.log(2), x),
    "exp10": lambda x, y: y * _const(math.log(10), x),
    "expm1": lambda x, y: y + _const(1, x),
    "log": lambda x, y: _const(1, x) / x,
    "log2": lambda x, y: _const(1 / math.log(2), x) / x,
    "log10": lambda x, y: _const(1 / math.log(10), x) / x,
    "log1p": lambda x, y: _const(1, x) / (x + _const(1, x)),
    "sqrt": lambda x, y: _const(0.5, x) / y,
    "rsqrt": lambda x, y: _const(-0.5, x) * y * y * y,
    "sin": lambda x, y: _call("cos", x),
    "cos": lambda x, y: _const(0, x) - _call("sin", x),
    "tan": lambda x, y: y * y + _const(1, x),
    "asin": lambda x, y: _call("rsqrt", _const(1, x) - x * x),
    "acos": lambda x, y: _const(0, x) - _call("rsqrt", _const(1, x) - x * x),
    "atan": lambda x, y: _const(1, x) / (x * x + _const(1, x)),
    "sinh": lambda x, y: _call("cosh", x),
    "cosh": lambda x, y: _call("sinh", x),
    "tanh": lambda x, y: _const(1, x) - y * y,
    "asinh": lambda x, y: _call("rsqrt", x * x + _const(1, x)),
    "acosh": lambda x, y: _call("rsqrt", x * x - _const(1, x)),
    "atanh": lambda x, y: _const(1, x) / (_const(1, x) - x * x),
    "sigmoid": lambda x, y: y * (_const(1, x) - y),
    "erf": lambda x, y: _const(2 / math.sqrt(math.pi), x) * _call("exp", _const(0, x) - x * x),
    "abs": lambda x, y: B.select(
        B.compare("gt", x, 0), _const(1, x), B.select(B.compare("lt", x, 0), _const(-1, x), _const(0, x))
    ),
}
_BINARY: dict[str, Callable[[E.Expr, E.Expr, E.Expr], tuple[E.Expr, E.Expr]]] = {
    # x ** n at x = 0 has the slope of its power, log(0) is never asked for
    "pow": lambda a, b, y: (
        b * _call("pow", a, b - _const(1, a)),
        B.select(
            B.compare("gt", a, 0), y * _call("log", B.select(B.compare("gt", a, 0), a, _const(1, a))), _const(0, a)
        ),
    ),
    "atan2": lambda a, b, y: (b / (a * a + b * b), _const(0, a) - a / (a * a + b * b)),
    "hypot": lambda a, b, y: (a / y, b / y),
    "fmod": lambda a, b, y: (_const(1, a), _const(0, a) - _call("trunc", a / b)),
    "floor_remainder": lambda a, b, y: (_const(1, a), _const(0, a) - _call("floor_divide", a, b)),
    "copysign": lambda a, b, y: (
        B.select(B.compare("eq", B.compare("lt", a, 0), B.compare("lt", y, 0)), _const(1, a), _const(-1, a)),
        _const(0, a),
    ),
    "max_nan": lambda a, b, y: _shares(a, b),
    "min_nan": lambda a, b, y: _shares(b, a),
}
_FLAT = frozenset(
    {
        "floor",
        "ceil",
        "trunc",
        "round",
        "nearbyint",
        "floor_divide",
        "isnan",
        "isinf",
        "isfinite",
        "reinterpret",
        "undef",
    }
)


def _shares(a: E.Expr, b: E.Expr) -> tuple[E.Expr, E.Expr]:
    """What a and b get of max(a, b), and of min(b, a)."""
    one, half, zero = _const(1, a), _const(0.5, a), _const(0, a)
    return (
        B.select(B.compare("gt", a, b), one, B.select(B.compare("eq", a, b), half, zero)),
        B.select(B.compare("lt", a, b), one, B.select(B.compare("eq", a, b), half, zero)),
    )


class _Reverse:
    """One walk over an expression; see the module."""

    def __init__(self, wanted: Callable[[E.TensorRead], bool], what: str):
        self.wanted = wanted
        self.what = what
        self.lets: dict[int, E.Expr] = {}
        self.adjoint: dict[int, list[tuple[Guards, E.Expr]]] = {}
        self.moves: dict[int, bool] = {}

    def operands(self, e: E.Expr) -> tuple[E.Expr, ...]:
        """What the value depends on smoothly; conditions and indices left out."""
        if isinstance(e, E.Var):
            return (self.lets[id(e)],) if id(e) in self.lets else ()
        if isinstance(e, E.Let):
            self.lets[id(e.var)] = e.value
            return (e.body,)
        if isinstance(e, E.Select):
            return (e.a, e.b)
        if isinstance(e, E.Cast):
            return (e.value,)
        if isinstance(e, E.Call):
            return e.args[1:] if e.op == "if_then_else" else e.args
        return (e.a, e.b) if isinstance(e, E.BinaryExpr) else ()

    def depends(self, e: E.Expr) -> bool:
        """Whether the value moves with an element that is asked for."""
        hit = self.moves.get(id(e))
        if hit is None:
            self.moves[id(e)] = False
            inner = [self.depends(x) for x in self.operands(e)]
            hit = isinstance(e, E.TensorRead) and self.wanted(e)
            hit = (hit or any(inner)) and dtype_info(e.dtype).is_float
            self.moves[id(e)] = hit
        return hit

    def order(self, root: E.Expr) -> list[E.Expr]:
        """The nodes that depend on such an element, each before its operands."""
        done: set[int] = set()
        out: list[E.Expr] = []

        def go(e: E.Expr) -> None:
            if id(e) in done or not self.depends(e):
                return
            done.add(id(e))
            for x in self.operands(e):
                go(x)
            out.append(e)

        go(root)
        return out[::-1]

    def give(self, e: E.Expr, guards: Guards, value: E.Expr) -> None:
        if not self.depends(e) or B.is_const(value, 0):
            return
        mine = self.adjoint.setdefault(id(e), [])
        for k, (have, total) in enumerate(mine):
            if [*map(id, have)] == [*map(id, guards)]:
                mine[k] = (have, total + value)
                return
        mine.append((guards, value))

    def step(self, e: E.Expr, guards: Guards, g: E.Expr) -> None:
        """Hand the adjoint of a node on to its operands."""
        if isinstance(e, (E.Let, E.Var)):
            self.give(self.operands(e)[0], guards, g)
        elif isinstance(e, E.Add):
            self.give(e.a, guards, g)
            self.give(e.b, guards, g)
        elif isinstance(e, E.Sub):
            self.give(e.a, guards, g)
            self.give(e.b, guards, _const(0, g) - g)
        elif isinstance(e, E.Mul):
            self.give(e.a, guards, g * e.b)
            self.give(e.b, guards, g * e.a)
        elif isinstance(e, E.Div):
            self.give(e.a, guards, g / e.b)
            self.give(e.b, guards, _const(0, g) - g * e / e.b)
        elif isinstance(e, (E.Max, E.Min)):
            a, b = _shares(e.a, e.b) if isinstance(e, E.Max) else _shares(e.b, e.a)
            self.give(e.a, guards, g * a)
            self.give(e.b, guards, g * b)
        elif isinstance(e, E.Select):
            self.give(e.a, guards, B.select(e.cond, g, _const(0, g)))
            self.give(e.b, guards, B.select(e.cond, _const(0, g), g))
        elif isinstance(e, E.Cast):
            self.give(e.value, guards, B.cast(e.value.dtype, g))
        elif isinstance(e, E.Call):
            self.call(e, guards, g)
        else:
            raise ExprError(
                f"{self.what}: no derivative of {type(e).__name__}: {e}",
                hint="write the derivative as a compute of your own",
            )

    def call(self, e: E.Call, guards: Guards, g: E.Expr) -> None:
        if e.op == "if_then_else":
            cond, a, b = e.args
            self.give(a, (*guards, cond), g)
            self.give(b, (*guards, B.logical_not(cond)), g)
        elif e.op in _UNARY:
            self.give(e.args[0], guards, g * _UNARY[e.op](e.args[0], e))
        elif e.op in _BINARY:
            slopes = _BINARY[e.op](e.args[0], e.args[1], e)
            for x, slope in zip(e.args, slopes):
                self.give(x, guards, g * slope)
        elif e.op == "fma":
            a, b, c = e.args
            self.give(a, guards, g * b)
            self.give(b, guards, g * a)
            self.give(c, guards, g)
        elif e.op == "ldexp":
            self.give(e.args[0], guards, E.Call("ldexp", (g, e.args[1]), g.dtype))
        elif e.op not in _FLAT:
            raise ExprError(
                f"{self.what}: no derivative of {e.op}", hint="write it with functions that have one (tec.exp, ...)"
            )


def partials(root: E.Expr, wanted: Callable[[E.TensorRead], bool], what: str) -> list[Partial]:
    """(read, conditions, derivative) of each read of `root` that is `wanted`; one read may come with several conditions.
    Raises ExprError, which says `what`, for an operation without a derivative."""
    walk = _Reverse(wanted, what)
    if not walk.depends(root):
        return []
    walk.give(root, (), _const(1, root))
    out: list[Partial] = []
    for e in walk.order(root):
        for guards, g in walk.adjoint.get(id(e), ()):
            if isinstance(e, E.TensorRead):
                out.append((e, guards, g))
            else:
                walk.step(e, guards, g)
    return out
