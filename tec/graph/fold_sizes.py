"""Arithmetic on shapes while they are symbolic: what an exporter's Shape -> Gather -> Concat -> Reshape comes to.

A `sizes` node (`Graph.sizes`) holds an integer tensor whose elements are sizes. `fold_sizes` works out operators on such tensors and
constants element by element, in Python's integers and `Dim`s, so that the sizes stay known at compile time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np

from ..ops.dims import Dim, UndecidedSize, is_symbolic, maximum, minimum

if TYPE_CHECKING:
    from .graph import Value

_MOST = 4096  # elements: a shape is short
_MOST_DENOMINATOR = 1000  # of a float that scales a size: 0.5, 1.5, 0.3333, 0.7; sizes stay far from 2^31
_ROUND = frozenset({"floor", "ceil", "cast"})


def sizes_in(v: Value) -> Any:
    """The sizes that a value holds, as an array of ints and `Dim`s; None for any other value."""
    if v.is_known:
        data = np.asarray(v.data)
        if data.size > _MOST or data.dtype.kind not in "iub":
            # A float that counts something: 2.0 as a scale, the result of a Floor.
            if data.size > _MOST or data.dtype.kind != "f" or not np.all(np.isfinite(data) & (data == np.floor(data))):
                return None
            return np.vectorize(int, otypes=[object])(data) if data.size else data.astype(object)
        return data.astype(object)
    if v.node is not None and v.node.op == "sizes":
        attrs = v.node.attrs
        out = np.empty(len(attrs["values"]), object)
        out[:] = attrs["values"]
        return out.reshape(attrs["shape"])
    return None


def fold_sizes(op: str, inputs: Sequence[Value], attrs: dict[str, Any]) -> tuple[Any, str] | None:
    """(sizes, dtype) of an operator that takes symbolic sizes and gives sizes; None where it is another one."""
    if not any(v.node is not None and (v.node.op == "sizes" or op in _ROUND) for v in inputs):
        return None
    rounds = op in _ROUND and (op != "cast" or attrs["dtype"].startswith("int"))
    rounded = _rounded(op, inputs[0]) if rounds else None
    if rounded is not None:
        return rounded, attrs["dtype"] if op == "cast" else inputs[0].dtype
    f = _FOLD.get(op)
    if op == "divide" and inputs[0].dtype.startswith("float"):
        f = _each(_ratio)
    arrays = [sizes_in(v) for v in inputs]
    if f is None or any(a is None for a in arrays):
        return None
    try:
        result = f(attrs, *arrays)
    except (UndecidedSize, ZeroDivisionError, ValueError, IndexError, TypeError):
        return None  # it is worked out when the network runs
    if result is None or np.size(result) > _MOST:
        return None
    dtype = attrs["dtype"] if op == "cast" else "bool" if op in _BOOL else inputs[1 if op == "where" else 0].dtype
    return np.asarray(result, dtype=object), dtype


def fraction_of(x: float) -> Fraction:
    """The fraction that a float stands for: the simplest that is as near as float32 tells. UndecidedSize where it has no small parts."""
    found = Fraction(float(x)).limit_denominator(_MOST_DENOMINATOR)
    if np.float32(float(found)) != np.float32(x):
        raise UndecidedSize(f"{x} is no simple fraction")
    return found


def scaled(n: Any, scale: float) -> Any:
    """floor(n * scale), for a size and a float."""
    f = fraction_of(scale)
    return n * f.numerator // f.denominator


def _rounded(op: str, v: Value) -> Any:
    """Sizes times or by a float that is no whole number, rounded: floor, ceil, or a cast to an integer type, which cuts off. None for others."""
    node = v.node
    if node is None or node.op not in ("multiply", "divide") or not v.dtype.startswith("float"):
        return None
    sizes, factor = sizes_in(node.inputs[0]), node.inputs[1]
    if sizes is None and node.op == "multiply":
        sizes, factor = sizes_in(node.inputs[1]), node.inputs[0]
    if (
        sizes is None
        or not factor.is_known
        or factor.type.size > _MOST
        or is_symbolic(np.asarray(factor.data).tolist())
    ):
        return None

    def one(n: Any, x: Any) -> Any:
        f = fraction_of(x) if node.op == "multiply" else 1 / fraction_of(x)
        low = n * f.numerator
        if (low >= 0) is False:
            raise UndecidedSize("a rounded size below 0")
        return (low + (f.denominator - 1 if op == "ceil" else 0)) // f.denominator

    try:
        return np.asarray(np.frompyfunc(one, 2, 1)(sizes, np.asarray(factor.data).astype(float)), object)
    except (UndecidedSize, ZeroDivisionError, ValueError, OverflowError):
        return None


def _each(f: Callable[..., Any]) -> Callable[..., Any]:
    ufunc: dict[int, Any] = {}

    def apply(attrs: dict[str, Any], *arrays: Any) -> Any:
        n = len(arrays)
        if n not in ufunc:
            ufunc[n] = np.frompyfunc(f, n, 1)
        return ufunc[n](*arrays)

    return apply


def _divide(a: Any, b: Any) -> Any:
    """Integer division as ONNX has it, toward zero; only where the signs are known to be equal, or the quotient exact."""
    if a >= 0 and b > 0:
        return a // b
    raise UndecidedSize("a quotient whose sign is not known")


def _ratio(a: Any, b: Any) -> Any:
    """A quotient of floats, where it is a whole number."""
    q = a // b
    if _equal(q * b, a):
        return q
    raise UndecidedSize("a quotient that is no whole number")


def _equal(a: Any, b: Any) -> bool:
    gap = a - b
    if not isinstance(gap, Dim):
        return bool(gap == 0)
    low, high = gap.bounds()
    if low > 0 or high < 0:
        return False
    raise UndecidedSize(f"whether {a} is {b}")


def _gather(attrs: dict[str, Any], x: Any, index: Any) -> Any:
    if any(isinstance(i, Dim) for i in index.reshape(-1)):
        return None
    return np.take(x, index.astype(np.int64), axis=attrs["axis"])


def _slice(attrs: dict[str, Any], x: Any) -> Any:
    index = [b + s * np.arange(n) for b, s, n in zip(attrs["starts"], attrs["steps"], attrs["sizes"])]
    return x[np.ix_(*index)] if index else x


def _reduce(f: Callable[[Any, Any], Any], start: Any) -> Callable[..., Any]:
    def apply(attrs: dict[str, Any], x: Any) -> Any:
        axes = tuple(a % x.ndim for a in attrs["axes"])
        kept = [k for k in range(x.ndim) if k not in axes]
        rows = np.transpose(x, (*kept, *axes)).reshape(*[x.shape[k] for k in kept], -1)
        flat = rows.reshape(-1, rows.shape[-1])
        out = np.empty(len(flat), object)
        for k, row in enumerate(flat):
            values = list(row)
            total = values.pop(0) if start is None else start
            for v in values:
                total = f(total, v)
            out[k] = total
        shape = [1 if k in axes else n for k, n in enumerate(x.shape) if attrs.get("keepdims", True) or k not in axes]
        return out.reshape(shape)

    return apply


def _cast(attrs: dict[str, Any], x: Any) -> Any:
    kind = attrs["dtype"]
    if kind == "bool":
        return np.frompyfunc(lambda v: bool(v), 1, 1)(x)
    # Sizes are exact in all of these but for the narrow floats; a size in int32 is at most LARGEST.
    return x if kind in ("int64", "int32", "float32", "float64") else None


_BOOL = frozenset({"equal", "not_equal", "less", "less_equal", "greater", "greater_equal"})
_FOLD: dict[str, Callable[..., Any]] = {
    "add": _each(lambda a, b: a + b),
    "subtract": _each(lambda a, b: a - b),
    "multiply": _each(lambda a, b: a * b),
    "divide": _each(_divide),
    "floor_mod": _each(lambda a, b: a % b),
    "maximum": _each(maximum),
    "minimum": _each(minimum),
    "neg": _each(lambda a: -a),
    "abs": _each(lambda a: a if a >= 0 else -a),
    "identity": lambda attrs, x: x,
    "floor": lambda attrs, x: x,
    "ceil": lambda attrs, x: x,
    "round_even": lambda attrs, x: x,
    "equal": _each(_equal),
    "not_equal": _each(lambda a, b: not _equal(a, b)),
    "less": _each(lambda a, b: a < b),
    "less_equal": _each(lambda a, b: a <= b),
    "greater": _each(lambda a, b: a > b),
    "greater_equal": _each(lambda a, b: a >= b),
    "where": _each(lambda c, a, b: a if c else b),
    "cast": _cast,
    "concat": lambda attrs, *xs: np.concatenate(xs, attrs["axis"]),
    "gather": _gather,
    "slice": _slice,
    "reshape": lambda attrs, x: x.reshape(attrs["shape"]),
    "transpose": lambda attrs, x: x.transpose(attrs["perm"]),
    "broadcast_to": lambda attrs, x: np.broadcast_to(x, attrs["shape"]),
    "tile": lambda attrs, x: np.tile(x, attrs["repeats"]),
    "reduce_prod": _reduce(lambda a, b: a * b, 1),
    "reduce_sum": _reduce(lambda a, b: a + b, 0),
    "reduce_max": _reduce(maximum, None),
    "reduce_min": _reduce(minimum, None),
}
