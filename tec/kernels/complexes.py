"""Complex numbers in kernels: a pair of real values, whose operations are those of its parts; loop IR knows no such type.

What takes more than a formula is a plain function of parts (`complex_math`), which is inlined like a user's.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import Any

import numpy as np

from ..ir import build as B
from ..ir.dtype import dtype_info
from . import complex_math
from .values import WEAK_FLOAT, WHOLE, Complex, describe, is_number, part_dtype, settle, type_of

# Names of Python's, NumPy's and cmath's functions, in the words of this module and of `complex_math`.
_NAMES = {"absolute": "abs", "conj": "conjugate", "phase": "angle", "divide": "truediv", "power": "pow"}
_OPERATORS: dict[str, ast.operator] = {
    "add": ast.Add(), "subtract": ast.Sub(), "multiply": ast.Mult(), "truediv": ast.Div(), "pow": ast.Pow(),
}  # fmt: skip
_MOST_POWER = 64  # a whole power up to it is products


class Method:
    """A method of a number, before it is called."""

    def __init__(self, call: Callable[..., Any]):
        self.call = call


def parts(t: Any, v: Any) -> tuple[Any, Any]:
    """The parts of a number, complex or real."""
    if isinstance(v, Complex):
        return _floated(v.real), _floated(v.imag)
    v = _floated(t.number(v, "a complex number's part"))
    return v, _like(v, 0.0)


def _like(v: Any, x: float) -> Any:
    """A constant of the type of `v`."""
    kind = type_of(v)
    return x if kind == WEAK_FLOAT else np.dtype(kind).type(x) if kind in WHOLE else x


def _floated(v: Any) -> Any:
    """A part is a float: a whole number of the kernel becomes float32, one of Python a float."""
    if isinstance(v, (bool, int)):
        return float(v)
    if is_number(v) or dtype_info(settle(v).dtype).is_float:
        return v if not isinstance(v, np.integer) else np.float32(v)
    return B.cast("float32", settle(v))


def dtype_of(v: Complex) -> str:
    """ "complex64" or "complex128"."""
    kinds = {type_of(p) for p in (v.real, v.imag)}
    return "complex128" if "float64" in kinds else "complex64"


def attribute(t: Any, v: Any, name: str) -> Any:
    """`v.name`, of a complex number or of a real one."""
    if name in ("conjugate", "conj"):
        return Method(lambda: _conjugate(t, v))
    if name == "real":
        return v.real if isinstance(v, Complex) else v
    if name == "imag":
        return v.imag if isinstance(v, Complex) else _like(v, 0.0) if type_of(v) in ("float", *WHOLE) else 0
    if name == "dtype":
        return dtype_of(v)
    if name == "astype":
        return Method(lambda to: converted(t, to, v))
    raise t.error(
        f"a complex number has no {name} here", hint="it has real, imag, conjugate(), dtype and astype(dtype)"
    )


def _conjugate(t: Any, v: Any) -> Any:
    return Complex(v.real, _minus(t, v.imag)) if isinstance(v, Complex) else v


def _minus(t: Any, v: Any) -> Any:
    if is_number(v):
        return -v
    return t.operate(ast.Mult(), v, -1.0, t.here) if not hasattr(v, "dtype") else B.neg(v)


def negative(t: Any, v: Complex) -> Complex:
    """`-v`."""
    return Complex(_minus(t, v.real), _minus(t, v.imag))


def converted(t: Any, to: Any, v: Any) -> Complex:
    """A number as complex64 or complex128."""
    dtype = part_dtype(to)
    if dtype is None:
        raise t.error(
            f"{describe(v)} becomes {describe(to)}", hint="take z.real or abs(z), or np.complex64, np.complex128"
        )
    re, im = parts(t, v)
    if dtype == WEAK_FLOAT:
        return Complex(re, im)
    return Complex(*[_of_type(t, p, dtype) for p in (re, im)])


def _of_type(t: Any, v: Any, dtype: str) -> Any:
    return np.dtype(dtype).type(v) if is_number(v) else t.as_type(v, dtype, t.here)


def operate(t: Any, op: ast.operator, x: Any, y: Any, node: ast.AST) -> Any:
    """`x op y`, one of which is complex."""
    for v in (x, y):
        if not isinstance(v, Complex):
            t.number(v, "a side of an operator")
    if isinstance(op, ast.Pow):
        return _power(t, x, y, node)
    x, y = t.held(x, "x"), t.held(y, "y")
    if isinstance(op, (ast.Add, ast.Sub)):
        return _sum(t, op, x, y, node)
    if isinstance(op, ast.Mult):
        return _product(t, x, y, node)
    if isinstance(op, ast.Div):
        if not isinstance(y, Complex):
            y = _floated(y)
            return Complex(t.operate(op, x.real, y, node), t.operate(op, x.imag, y, node))
        return _of_parts(t, complex_math.truediv, node, *parts(t, x), *parts(t, y))
    raise t.error(
        f"{describe(x)} and {describe(y)}: complex numbers have +, -, *, / and ** alone",
        node=node,
        hint="compare abs(z), z.real or z.imag",
    )


def _sum(t: Any, op: ast.operator, x: Any, y: Any, node: ast.AST) -> Complex:
    if not isinstance(y, Complex):
        return Complex(t.operate(op, *_pair(t, x.real, y), node), x.imag)
    if not isinstance(x, Complex):
        im = y.imag if isinstance(op, ast.Add) else _minus(t, y.imag)
        return Complex(t.operate(op, *_pair(t, x, y.real), node), im)
    return Complex(t.operate(op, x.real, y.real, node), t.operate(op, x.imag, y.imag, node))


def _product(t: Any, x: Any, y: Any, node: ast.AST) -> Complex:
    def times(a: Any, b: Any) -> Any:
        return t.operate(ast.Mult(), a, b, node)

    if not isinstance(y, Complex):
        y = _floated(y)
        return Complex(times(x.real, y), times(x.imag, y))
    if not isinstance(x, Complex):
        x = _floated(x)
        return Complex(times(x, y.real), times(x, y.imag))
    re = t.operate(ast.Sub(), times(x.real, y.real), times(x.imag, y.imag), node)
    return Complex(re, t.operate(ast.Add(), times(x.real, y.imag), times(x.imag, y.real), node))


def _pair(t: Any, a: Any, b: Any) -> tuple[Any, Any]:
    return _floated(a), _floated(b)


def _power(t: Any, x: Any, y: Any, node: ast.AST) -> Any:
    if isinstance(y, (int, np.integer)) and not isinstance(y, bool) and abs(int(y)) <= _MOST_POWER:
        n, base = abs(int(y)), t.held(Complex(*parts(t, x)), "base")
        out: Any = None
        while n:
            if n & 1:
                out = base if out is None else t.held(operate(t, ast.Mult(), out, base, node), "power")
            n >>= 1
            if n:
                base = t.held(operate(t, ast.Mult(), base, base, node), "base")
        one = Complex(_like(base.real, 1.0), _like(base.real, 0.0))
        out = one if out is None else out
        return operate(t, ast.Div(), one, out, node) if y < 0 else out
    return _of_parts(t, complex_math.power, node, *parts(t, x), *parts(t, y))


def compare(t: Any, op: ast.cmpop, x: Any, y: Any) -> Any:
    """`x == y` or `x != y`."""
    if not isinstance(op, (ast.Eq, ast.NotEq)):
        raise t.error("complex numbers have no order", hint="compare abs(z), z.real or z.imag")
    (a, b), (c, d) = parts(t, x), parts(t, y)
    re, im = (B.convert(t._compare(op, p, q)) for p, q in ((a, c), (b, d)))
    return B.logical_and(re, im) if isinstance(op, ast.Eq) else B.logical_or(re, im)


def concerns(f: Any, args: list[Any]) -> bool:
    """Whether a call is one of complex numbers."""
    if any(isinstance(a, Complex) for a in args):
        return (
            f is complex or part_dtype(f) is not None or not hasattr(f, "__code__") or _module(f).startswith("tec.te")
        )
    return f is complex or (isinstance(f, type) and part_dtype(f) is not None) or _module(f) == "cmath"


def _module(f: Any) -> str:
    return getattr(f, "__module__", None) or ""


def called(t: Any, f: Any, node: ast.Call, args: list[Any], named: dict[str, Any]) -> Any:
    """A function of complex numbers."""
    name = getattr(f, "__name__", "?")
    name = _NAMES.get(name, name)
    if f is complex and len(args) == 2:
        return _of_two(t, *args)
    if part_dtype(f) is not None and len(args) <= 1 and not named:
        return converted(t, f, args[0] if args else 0.0)
    if name in _OPERATORS and len(args) == 2:
        return operate(t, _OPERATORS[name], args[0], args[1], node)
    if name == "rect" and len(args) == 2:
        return _of_parts(t, complex_math.rect, node, *args)
    if len(args) == 1 and not named:
        (x,) = args
        if name in ("conjugate", "real", "imag"):
            found = attribute(t, x, name)
            return found.call() if isinstance(found, Method) else found
        if name == "negative":
            return negative(t, x)
        if name in ("abs", "angle"):
            return t.inlined(getattr(complex_math, "size" if name == "abs" else "angle"), node, list(parts(t, x)), {})
        if name == "polar":
            return tuple(t.inlined(g, node, list(parts(t, x)), {}) for g in (complex_math.size, complex_math.angle))
        if name in ("isnan", "isinf"):
            re, im = (t._math("math", name, [p]) for p in parts(t, x))
            return B.logical_or(re, im)
        if name in complex_math.FUNCTIONS:
            return _of_parts(t, getattr(complex_math, name), node, *parts(t, x))
    raise t.error(
        f"{name}() of complex numbers is not in the language of kernels",
        hint=f"there are {', '.join(('abs', 'angle', 'conj', 'real', 'imag', 'polar', 'rect', *complex_math.FUNCTIONS))}",
    )


def _of_two(t: Any, re: Any, im: Any) -> Any:
    """complex(re, im): re + im i, where both may be complex as well."""
    if isinstance(re, Complex) or isinstance(im, Complex):
        turned = operate(t, ast.Mult(), im, Complex(0.0, 1.0), t.here)
        return operate(t, ast.Add(), re, turned, t.here)
    return Complex(_floated(t.number(re, "the real part")), _floated(t.number(im, "the imaginary part")))


def _of_parts(t: Any, f: Any, node: ast.AST, *given: Any) -> Complex:
    """A function of `complex_math`, which gives two parts."""
    if all(is_number(v) for v in given):
        given = tuple(t.held(v, "part") for v in given)
    re, im = t.inlined(f, node, list(given), {})
    return Complex(re, im)
