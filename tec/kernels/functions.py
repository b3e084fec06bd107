"""What calls of functions mean: Python's builtins, functions of math, NumPy and te, types as conversions."""

from __future__ import annotations

import ast
import math
import operator
from functools import partial
from types import BuiltinFunctionType, FunctionType, MethodType
from typing import Any

import numpy as np

from ..ir import build as B
from ..ir import expr as E
from ..ir.dtype import dtype_info, with_lanes
from ..likeness import meant
from . import complexes, elsewhere, language, library, numbers
from .expressions import AsType
from .values import (
    Array,
    Complex,
    InnerFunction,
    Record,
    Records,
    Weak,
    as_dtype,
    describe,
    is_scalar,
    level,
    part_dtype,
    settle,
)
from .words import Words

# Functions of math and NumPy -> operations of the IR, and how many numbers they take.
_MATH = {
    **dict.fromkeys(
        "exp exp2 expm1 log log2 log10 log1p sqrt sin cos tan asin acos atan sinh cosh tanh asinh acosh atanh erf".split(), 1
    ),
    **dict.fromkeys("atan2 fmod copysign hypot pow".split(), 2), "fma": 3,
}  # fmt: skip
_OTHER_NAMES = {
    "fabs": "abs", "absolute": "abs", "arcsin": "asin", "arccos": "acos", "arctan": "atan", "arctan2": "atan2", "arcsinh": "asinh",
    "arccosh": "acosh", "arctanh": "atanh", "power": "pow", "float_power": "pow", "rint": "nearbyint", "rad2deg": "degrees", "deg2rad": "radians",
}  # fmt: skip
# Functions that are operators, by Python's and NumPy's names.
_OPERATORS: dict[Any, ast.operator] = {
    f: op
    for op, functions in (
        (ast.Add(), (operator.add, np.add)), (ast.Sub(), (operator.sub, np.subtract)), (ast.Mult(), (operator.mul, np.multiply)),
        (ast.Div(), (operator.truediv, np.divide)), (ast.FloorDiv(), (operator.floordiv, np.floor_divide)),
        (ast.Mod(), (operator.mod, np.remainder)), (ast.Pow(), (operator.pow,)), (ast.BitAnd(), (operator.and_, np.bitwise_and)),
        (ast.BitOr(), (operator.or_, np.bitwise_or)), (ast.BitXor(), (operator.xor, np.bitwise_xor)),
        (ast.LShift(), (operator.lshift, np.left_shift)), (ast.RShift(), (operator.rshift, np.right_shift)),
    )
    for f in functions
}  # fmt: skip
_COMPARISONS: dict[Any, ast.cmpop] = {
    operator.lt: ast.Lt(), np.less: ast.Lt(), operator.le: ast.LtE(), np.less_equal: ast.LtE(), operator.gt: ast.Gt(), np.greater: ast.Gt(),
    operator.ge: ast.GtE(), np.greater_equal: ast.GtE(), operator.eq: ast.Eq(), np.equal: ast.Eq(), operator.ne: ast.NotEq(),
    np.not_equal: ast.NotEq(),
}  # fmt: skip
# Plain functions that are inlined, by the name of what is called: of numbers as they are, and of floats.
_OF_NUMBERS: dict[str, Any] = {
    f.__name__: f
    for f in (numbers.sign, numbers.square, numbers.positive, numbers.negative, numbers.clip, numbers.gcd, numbers.lcm, numbers.isqrt)
}  # fmt: skip
_OF_NUMBERS |= {"conj": numbers.positive, "conjugate": numbers.positive, "real": numbers.positive}
_OF_FLOATS: dict[str, Any] = {
    f.__name__: f
    for f in (
        numbers.reciprocal, numbers.heaviside, numbers.signbit, numbers.modf, numbers.cbrt, numbers.logaddexp, numbers.logaddexp2, numbers.sinc,
        numbers.isclose, numbers.erfc, numbers.gamma, numbers.lgamma,
    )
}  # fmt: skip
_OF_FLOATS |= {"round": numbers.rounded, "around": numbers.rounded}
_HINTS = {
    "sorted": "kernels sort by their own loops", "map": "write a loop", "list": "use a tuple, or tec.local((n,), dtype)", "any": "write or",
    "all": "write and", "input": "pass it as an argument", "open": "kernels reach no files", "isinstance": "types are known: ask a.dtype",
    "str": "text is for print()",
}  # fmt: skip


_GENERATORS = (np.random.RandomState, np.random.Generator)


class Functions(Words):
    """Handlers for calls; helpers, which are inlined, are `Translator`'s."""

    # ---- calls

    def called(self, node: ast.Call) -> Any:
        """The value of a call: of a word of the language, of a type, of Python's own functions, or of a function that is translated in its place."""
        f = self.expr(node.func)
        if f is print:
            self.output.printed(self, node)
            return None
        f, args, named = self._unwrapped(f, *self._given(node))
        if isinstance(f, complexes.Method):
            return f.call(*args)
        if isinstance(f, InnerFunction):
            return self.inlined(f, node, args, named)
        if isinstance(f, AsType):
            to = args[0] if args else named.get("dtype")
            if part_dtype(to) is not None or isinstance(f.value, Complex):
                return complexes.converted(self, to, f.value)
            return self._converted(self._dtype(to, "the dtype of astype"), f.value)
        inner = getattr(f, "__tec_kernel__", None)
        if isinstance(inner, FunctionType):
            return self.inlined(inner, node, args, named)
        try:
            word = language.WORDS.get(f)
        except TypeError:
            word = None
        if word is not None:
            return self.word(word, node, args, named)
        if hashable(f) and len(args) == 2 and not named:
            if f in _OPERATORS:
                a, b = self.held(args, "side")
                return self.operate(_OPERATORS[f], a, b, node)
            if f in _COMPARISONS:
                return self._compare(_COMPARISONS[f], *self.held(args, "side"))
        if f is np.where and len(args) == 3 and not named:
            test = self.truth(args[0])
            return self._selected(test, *args[1:]) if isinstance(test, E.Expr) else args[1 if test else 2]
        if complexes.concerns(f, args):
            return complexes.called(self, f, node, args, named)
        dtype = as_dtype(f) if isinstance(f, type) else None
        if dtype is not None and len(args) == 1 and not named:
            return (
                self._converted(_number_type(f, args[0], dtype), args[0])
                if not known(args)
                else self.compute(f, args[0])
            )
        return self._function(f, node, args, named)

    def _given(self, node: ast.Call) -> tuple[list[Any], dict[str, Any]]:
        """The arguments of a call; a starred tuple is its elements."""
        if any(k.arg is None for k in node.keywords):
            raise self.error("** in a call", hint="name each argument")
        n = len(node.args)
        plain = [a.value if isinstance(a, ast.Starred) else a for a in node.args]
        values = self.ordered(*[lambda x=x: self.expr(x) for x in (*plain, *[k.value for k in node.keywords])])
        args: list[Any] = []
        for a, v in zip(node.args, values):
            if isinstance(a, ast.Starred) and not isinstance(v, tuple):
                raise self.error(f"* of {describe(v)} in a call", hint="it takes a tuple")
            args += v if isinstance(a, ast.Starred) else (v,)
        return args, {str(k.arg): v for k, v in zip(node.keywords, values[n:])}

    def _unwrapped(self, f: Any, args: list[Any], named: dict[str, Any]) -> tuple[Any, list[Any], dict[str, Any]]:
        """A partial as its function and all arguments; a method as a function of its object."""
        while isinstance(f, (partial, MethodType)):
            if isinstance(f, MethodType):
                f, args = f.__func__, [f.__self__, *args]
            else:
                args = [*[self.outside(a, "an argument of a partial") for a in f.args], *args]
                named = {**{k: self.outside(v, k) for k, v in f.keywords.items()}, **named}
                f = f.func
        return f, args, named

    def _converted(self, dtype: str, v: Any) -> Any:
        v = self.number(v, f"what becomes {dtype}")
        return self.as_type(v, with_lanes(dtype, dtype_info(settle(v).dtype).lanes), self.here)

    def _function(self, f: Any, node: ast.Call, args: list[Any], named: dict[str, Any]) -> Any:
        builtin = _BUILTINS.get(f) if hashable(f) else None
        if builtin is not None:
            if named:
                raise self.error(
                    f"{f.__name__} with {', '.join(named)}= is not in the language of kernels",
                    hint="leave the keyword out",
                )
            return builtin(self, *args) if _takes(builtin, len(args)) else self._wrong_count(f, args)
        module, name = getattr(f, "__module__", None) or "", getattr(f, "__name__", "")
        if module.startswith("numpy.random") or isinstance(getattr(f, "__self__", None), _GENERATORS):
            raise self.error(
                f"{name} of numpy.random would give one number, for all threads and launches",
                hint=elsewhere.here(name) or "tec.random.uniform(seed, index, draw) is another number for each",
            )
        if isinstance(f, np.ufunc) or module == "math" or module.startswith("numpy"):
            if known((*args, *named.values())):
                return self.compute(f, *args, **named) if named else self.compute(f, *args)
            own = self._library(module, name, node, args, named)
            return own if own is not None else self._math(module or "numpy", name, args)
        if module.startswith(("tec.te", "tec.ir.build")):
            return self._te(f, name, args, named)
        if isinstance(f, FunctionType):
            return self.inlined(f, node, args, named)
        if isinstance(f, (BuiltinFunctionType, type)) and hashable(f):
            hint = _HINTS.get(name) or elsewhere.here(name)
            raise self.error(f"{name}() is not in the language of kernels", hint=hint)
        raise self.error(
            f"{describe(f)} cannot be called in a kernel",
            hint=(
                f"{f}.x, .y and .z are numbers; tec.grid_idx(1) is the place in the grid"
                if isinstance(f, language.Index3)
                else None
            )
            or elsewhere.here(name.rpartition(".")[2])
            or "kernels call plain Python functions, and those of tec and math",
        )

    def _wrong_count(self, f: Any, args: list[Any]) -> Any:
        raise self.error(
            f"{f.__name__}() of {len(args)} argument{'s'[: len(args) != 1]}",
            hint="min, max and sum take numbers, a tuple, or an array of one dimension",
        )

    def _library(self, module: str, name: str, node: Any, args: list[Any], named: dict[str, Any]) -> Any:
        """A function of math or NumPy that is a plain function here; None if it is none of these."""
        if name in ("logical_and", "logical_or", "logical_xor") and len(args) == 2:
            a, b = (B.convert(self.truth(v)) for v in args)
            return B.compare("ne", a, b) if name == "logical_xor" else getattr(B, name)(a, b)
        if name == "logical_not" and len(args) == 1:
            return B.logical_not(B.convert(self.truth(args[0])))
        if name in ("invert", "bitwise_invert") and len(args) == 1:
            return B.bitwise_not(settle(self.number(args[0], "the operand")))
        if name == "hypot" and len(args) > 2:
            squares = [self.operate(ast.Mult(), v, v, self.here) for v in self.held(args, "side")]
            total = squares[0]
            for q in squares[1:]:
                total = self.operate(ast.Add(), total, q, self.here)
            return self._math(module, "sqrt", [total])
        f: Any = _OF_NUMBERS.get(name) or _OF_FLOATS.get(name)
        if f is None:
            return None
        if name == "isclose" and module != "math":
            f = numbers.numpy_isclose
        given = [v if v is None else self.number(v, f"an argument of {name}") for v in args]
        if name in _OF_NUMBERS:
            return self.inlined(
                f, node, self.held([settle(v) if isinstance(v, Weak) else v for v in given], "x"), named
            )
        reals = [v if known((v,)) else self._real(v) for v in given]
        narrow = next((r.dtype for r in reals if isinstance(r, E.Expr) and dtype_info(r.dtype).bits == 16), None)
        if narrow is not None:
            reals = [B.cast("float32", r) if isinstance(r, E.Expr) else r for r in reals]
        dtype = narrow or next((r.dtype for r in reals if isinstance(r, E.Expr)), "float32")
        out = self.inlined(f, node, self.held(reals, "x"), named)
        if isinstance(out, tuple):
            return tuple(B.cast(dtype, settle(p)) for p in out)
        e = settle(out)
        return e if e.dtype == "bool" else B.cast(dtype, e)

    def _math(self, module: str, name: str, args: list[Any]) -> Any:
        """A function of math or NumPy on numbers, some known at run time alone."""
        op = _OTHER_NAMES.get(name, name)
        values = [self.number(a, f"an argument of {name}") for a in args]
        if op in ("maximum", "minimum", "fmax", "fmin") and len(values) == 2:
            (x, y), weak = level(*values)
            keeps_nan = op in ("maximum", "minimum") and dtype_info(B.match(x, y)[0].dtype).is_float
            out = (
                B.call("max_nan" if "ax" in op else "min_nan", *B.match(x, y))
                if keeps_nan
                else (B.maximum if "ax" in op else B.minimum)(x, y)
            )
            return Weak(out) if weak else out
        if op == "abs" and len(values) == 1:
            return Weak(B.absolute(values[0].expr)) if isinstance(values[0], Weak) else B.absolute(values[0])
        parts, weak = level(*values)
        if op in ("isnan", "isinf", "isfinite") and len(parts) == 1:
            return B.call(op, self._real(parts[0]))
        if op in ("floor", "ceil", "trunc", "nearbyint") and len(parts) == 1:
            x = settle(parts[0])
            if not dtype_info(x.dtype).is_float:
                return x
            out = B.call(op, x)
            if module == "math":  # as Python's, a whole number
                return B.cast(
                    with_lanes("int64" if x.dtype == "float64" and not weak else "int32", dtype_info(x.dtype).lanes),
                    out,
                )
            return Weak(out) if weak else out
        if op == "log" and len(parts) == 2:
            return self.operate(
                ast.Div(), self._math(module, "log", [args[0]]), self._math(module, "log", [args[1]]), self.here
            )
        if op in ("degrees", "radians") and len(parts) == 1:
            return self.operate(ast.Mult(), args[0], 180 / math.pi if op == "degrees" else math.pi / 180, self.here)
        if op == "ldexp" and len(parts) == 2:
            return B.call("ldexp", self._real(parts[0]), B.cast("int32", settle(parts[1])))
        takes = _MATH.get(op)
        if takes is not None and takes != len(parts):
            raise self.error(
                f"{module}.{name} takes {takes} number{'s' * (takes > 1)}, {len(parts)} given",
                hint="as many numbers as the function has parameters",
            )
        if takes is None:
            there = (*_MATH, *_OF_NUMBERS, *_OF_FLOATS)
            raise self.error(
                f"{module}.{name} is not in the language of kernels",
                hint=meant(name, there) or f"there are {', '.join(sorted(there))}",
            )
        reals = [self._real(p) for p in parts]
        same = reals[0]
        for r in reals[1:]:
            same, _ = B.match(same, r)
        out = B.call(op, *[B.cast(same.dtype, r) for r in reals])
        return Weak(B.cast("float64", out)) if weak else out

    def _real(self, v: Any) -> E.Expr:
        e = settle(v)
        info = dtype_info(e.dtype)
        return e if info.is_float else B.cast(with_lanes("float32", info.lanes), e)

    def _te(self, f: Any, name: str, args: list[Any], named: dict[str, Any]) -> Any:
        """A function of te on values."""
        values = [*args, *named.values()]
        numbers = [v for v in values if is_scalar(v)]
        parts, weak = level(*numbers)
        leveled = iter(parts)
        settled = [next(leveled) if is_scalar(v) else v for v in values]
        if any(isinstance(v, (Array, tuple)) for v in values):
            raise self.error(
                f"tec.{name} of {', '.join(map(describe, values))} is not in the language of kernels",
                hint="reductions are loops here; min(), max() and functions of numbers are there",
            )
        try:
            out = f(*settled[: len(args)], **dict(zip(named, settled[len(args) :])))
        except TypeError as e:
            raise self.error(f"tec.{name}: {e}") from None
        if not isinstance(out, E.Expr) or isinstance(out, E.Reduce):
            raise self.error(
                f"tec.{name} gives {describe(out)}, no number", hint="it is for tensors; kernels compute with numbers"
            )
        if name in ("popcount", "clz", "ctz") and dtype_info(out.dtype).lanes == 1:
            return B.cast("int32", out)  # a count, whatever it is of
        return Weak(out) if weak and out.dtype == "float64" else out

    def inlined(self, f: FunctionType | InnerFunction, node: ast.Call, args: list[Any], named: dict[str, Any]) -> Any:
        raise NotImplementedError


def known(values: Any) -> bool:
    """Whether all is known at compile time."""
    return not any(
        isinstance(v, (E.Expr, Weak, Array, Complex, Records, Record)) or (isinstance(v, tuple) and not known(v))
        for v in values
    )


def hashable(v: Any) -> bool:
    try:
        hash(v)
    except TypeError:
        return False
    return True


def _number_type(f: Any, v: Any, dtype: str) -> str:
    """int() of a float64 or of a wide integer is int64."""
    if f is int and isinstance(v, E.Expr):
        info = dtype_info(v.dtype)
        if info.bits == 64 or (info.kind == "uint" and info.bits == 32):
            return "int64"
    return dtype


def _takes(f: Any, n: int) -> bool:
    code = f.__code__
    most = 1 << 30 if code.co_flags & 4 else code.co_argcount - 1
    return bool(code.co_argcount - 1 - len(f.__defaults__ or ()) <= n <= most)


def _len(t: Functions, v: Any) -> Any:
    if isinstance(v, (Array, Records)) and v.shape:
        d = v.shape[0]
        return d.value if isinstance(d, E.IntImm) else d
    if isinstance(v, (tuple, str)):
        return len(v)
    raise t.error(f"len() of {describe(v)}", hint="arrays, tuples and text have a length")


def _extremum(name: str) -> Any:
    def f(t: Functions, first: Any, *rest: Any) -> Any:
        if isinstance(first, Array) and len(first.shape) == 1 and not rest:
            return _by(t, library.extremum, first, name)
        values = list(first) if isinstance(first, tuple) and not rest else [first, *rest]
        for v in values:
            t.number(v, f"an argument of {name}()")
        if known(values):
            return (min if name == "min" else max)(values)
        parts, weak = level(*values)
        out = parts[0]
        for p in parts[1:]:
            out = (B.minimum if name == "min" else B.maximum)(out, p)
        return Weak(B.cast("float64", out)) if weak else out

    return f


def _abs(t: Functions, v: Any) -> Any:
    if known((v,)):
        return t.compute(abs, v)
    return Weak(B.absolute(v.expr)) if isinstance(v, Weak) else B.absolute(t.number(v, "the argument of abs()"))


def _round(t: Functions, v: Any, digits: Any = None) -> Any:
    if known((v, digits)):
        return t.compute(round, v) if digits is None else t.compute(round, v, digits)
    if digits is not None:
        return t._library("numpy", "round", t.node, [v, digits], {})
    e = settle(t.number(v, "the argument of round()"))
    return (
        e
        if not dtype_info(e.dtype).is_float
        else B.cast("int64" if e.dtype == "float64" else "int32", B.call("nearbyint", e))
    )


def _pow(t: Functions, a: Any, b: Any) -> Any:
    return t.operate(ast.Pow(), a, b, t.here)


def _divmod(t: Functions, a: Any, b: Any) -> Any:
    a, b = t.held(a, "a"), t.held(b, "b")
    return t.operate(ast.FloorDiv(), a, b, t.here), t.operate(ast.Mod(), a, b, t.here)


def _by(t: Functions, f: Any, *arguments: Any) -> Any:
    """A function of `library`, in place of the call."""
    inlined: Any = t.inlined
    return inlined(f, t.here, list(arguments), {})


def _sum(t: Functions, v: Any, start: Any = 0) -> Any:
    if isinstance(v, Array) and len(v.shape) == 1:
        return _by(t, library.total, v, start)
    if not isinstance(v, tuple):
        raise t.error(
            f"sum() of {describe(v)}", hint="add them up in a loop; sum() takes a tuple or an array of one dimension"
        )
    out = start
    for part in v:
        out = t.operate(ast.Add(), t.held(out, "sum"), part, t.here)
    return out


def _enumerate(t: Functions, v: Any, start: Any = 0) -> Any:
    if not isinstance(v, tuple) or not known((start,)):
        raise t.error(
            f"enumerate() of {describe(v)}", hint="for k, v in enumerate(a): takes an array, a range or a tuple"
        )
    return tuple(t.compute(enumerate, v, start))


def _zip(t: Functions, *vs: Any) -> Any:
    for v in vs:
        if not isinstance(v, tuple):
            raise t.error(
                f"zip() of {describe(v)}",
                hint="for x, y in zip(a, b): takes arrays and ranges, or tuples; beside a tuple, count: for i in range(n): ... a[i], t[i]",
            )
    return tuple(zip(*vs))


def _reversed(t: Functions, v: Any) -> Any:
    if isinstance(v, Array):
        return t.view(v, (slice(None, None, -1),), t.here)
    if not isinstance(v, tuple):
        raise t.error(
            f"reversed() of {describe(v)}", hint="it takes a tuple or an array; range(n - 1, -1, -1) counts down"
        )
    return v[::-1]


def _tuple(t: Functions, v: Any) -> Any:
    if not isinstance(v, tuple):
        raise t.error(f"tuple() of {describe(v)}", hint="write the elements: (a[0], a[1])")
    return v


_BUILTINS: dict[Any, Any] = {
    len: _len, min: _extremum("min"), max: _extremum("max"), abs: _abs, round: _round, pow: _pow, divmod: _divmod, tuple: _tuple,
    sum: _sum, enumerate: _enumerate, zip: _zip, reversed: _reversed,
}  # fmt: skip
