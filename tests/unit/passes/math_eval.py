"""Evaluate scalar expressions over NumPy arrays, operation by operation in the expression's own formats."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from tec.ir import expr as E
from tec.ir.dtype import dtype_info

Array = Any


def _fma(a: Array, b: Array, c: Array) -> Array:
    if a.dtype == np.float32:
        return (a.astype(np.float64) * b + c).astype(np.float32)
    split = 134217729.0
    p = a * b
    ah = a * split - (a * split - a)
    bh = b * split - (b * split - b)
    al, bl = a - ah, b - bh
    err = ((ah * bh - p) + ah * bl + al * bh) + al * bl
    s = p + c
    t = s - p
    e = (p - (s - t)) + (c - t)
    exact = s + (e + err)
    return np.where(np.isfinite(exact), exact, p + c)


_BINARY = {
    E.Add: np.add, E.Sub: np.subtract, E.Mul: np.multiply, E.EQ: np.equal, E.NE: np.not_equal, E.LT: np.less,
    E.LE: np.less_equal, E.GT: np.greater, E.GE: np.greater_equal, E.And: np.logical_and, E.Or: np.logical_or,
    E.Div: np.divide, E.Min: np.minimum, E.Max: np.maximum,
}  # fmt: skip
_LEAN = 0  # where `exp2_fast` errs to; see `leaning`


def _exp2_fast(x: Array) -> Array:
    """Of what is within a unit in the last place of the true value, the lower (-1), the upper (1), or the nearest."""
    y = np.exp2(x.astype(np.float64))
    with np.errstate(all="ignore"):
        half = np.where(np.isfinite(y), np.ldexp(0.5 * _LEAN, np.frexp(y)[1] - 24), 0)
        return (y + half).astype(x.dtype)


@contextmanager
def leaning(side: int) -> Iterator[None]:
    """Let the chips' own power of 2 be wrong by up to one unit in the last place meanwhile, always to one side."""
    global _LEAN
    _LEAN = side
    try:
        yield
    finally:
        _LEAN = 0


_CALLS = {
    "exp2_fast": _exp2_fast, "ldexp": lambda x, n: np.ldexp(x.astype(np.float64), n).astype(x.dtype),
    "rcp_fast": lambda x: (1 / x) * np.float32(1 + 2.0**-14),  # its worst: the step behind it squares the error
    "abs": np.abs, "sqrt": np.sqrt, "nearbyint": np.rint, "trunc": np.trunc, "copysign": np.copysign,
    "bitand": np.bitwise_and, "bitor": np.bitwise_or, "shl": np.left_shift, "shr": np.right_shift, "bitnot": np.invert,
}  # fmt: skip


def _mulhi(a: Array, b: Array) -> Array:
    mask = np.uint64(0xFFFFFFFF)
    s = np.uint64(32)
    al, ah, bl, bh = a & mask, a >> s, b & mask, b >> s
    mid = ah * bl + ((al * bl) >> s)
    mid2 = al * bh + (mid & mask)
    return ah * bh + (mid >> s) + (mid2 >> s)


def evaluate(e: E.Expr, env: dict[E.Var, Array]) -> Array:
    """The value of `e` for arrays in place of its variables."""
    with np.errstate(all="ignore"):
        return _eval(e, dict(env))


def _eval(e: E.Expr, env: dict[E.Var, Array]) -> Array:
    t = type(e)
    if t is E.Var:
        return env[e]
    if isinstance(e, (E.IntImm, E.FloatImm)):
        return np.asarray(e.value).astype(e.dtype)
    while isinstance(e, E.Let):
        env[e.var] = _eval(e.value, env)
        e = e.body
        t = type(e)
    if t in _BINARY:
        return _BINARY[t](_eval(e.a, env), _eval(e.b, env))
    if isinstance(e, E.Not):
        return ~_eval(e.a, env)
    if isinstance(e, E.Select):
        return np.where(_eval(e.cond, env), _eval(e.a, env), _eval(e.b, env))
    if isinstance(e, E.Cast):
        return _eval(e.value, env).astype(e.dtype)
    if isinstance(e, E.Call):
        args = [_eval(a, env) for a in e.args]
        if e.op == "fma":
            return _fma(*np.broadcast_arrays(*args))
        if e.op == "mulhi":
            return _mulhi(*args)
        if e.op == "reinterpret":
            return np.ascontiguousarray(args[0]).view(dtype_info(e.dtype).name)
        if e.op == "if_then_else":
            return np.where(*args)
        return _CALLS[e.op](*args)
    return env[e]  # type: ignore[index]
