"""What a tensor expression means, in NumPy: the values of tensors for given inputs, with no schedule and no code.

`evaluate([C], {A: a, B: b})` runs each operation over its whole index space with array arithmetic. It is the reference
that schedules and backends are held against, and what folds constants of a graph. Values are rounded to their dtype
after each operation; float functions are taken in float64 and rounded. Reads outside of a tensor (which `if_then_else`
guards) are clamped.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ..errors import ExprError
from ..ir import expr as E
from ..ir.dtype import dtype_info, int_range
from ..ir.func import Func
from ..ir.interp import run
from ..ir.interp_ops import odd_float32
from ..ir.visit import free_vars
from .numpy_dtype import np_dtype
from .operation import ComputeOp, ExternOp, Operation, PlaceholderOp, ScanOp, topo_order
from .tensor import Tensor

Array = Any  # np.ndarray of any dtype
_CHUNK = 1 << 24  # elements of an index space that are worked on at once


def evaluate(
    outputs: Sequence[Tensor], feeds: Mapping[Tensor, Array], variables: Mapping[E.Var, int] | None = None
) -> list[Array]:
    """The values of `outputs`, as NumPy arrays.

    `feeds` gives an array for each placeholder that they need (and may give one for any other tensor); variables in the
    placeholders' shapes are bound from the arrays. Raises ExprError for a missing or misshapen array.

    >>> A = tec.placeholder((3,), name="A")
    >>> B = tec.compute((3,), lambda i: A[i] * 2.0)
    >>> tec.evaluate([B], {A: np.float32([1, 2, 3])})[0].tolist()
    [2.0, 4.0, 6.0]
    """
    env: dict[E.Var, Array] = {v: np.asarray(x, np_dtype(v.dtype)) for v, x in (variables or {}).items()}
    values: dict[Tensor, Array] = {}
    for t, x in feeds.items():
        values[t] = _fed(t, np.asarray(x), env)
    with np.errstate(all="ignore"):
        order = topo_order(outputs)
        # What depends on the state of a recurrence has a value at each of its steps alone: _scan works it out.
        inside: set[Operation] = {
            s.op for op in order if isinstance(op, ScanOp) for s in op.state_placeholder if s not in values
        }
        for op in order:
            if op in inside or (not isinstance(op, ScanOp) and any(t.op in inside for t in op.inputs)):
                inside.add(op)
            elif not all(t in values for t in op.outputs):
                for t, x in zip(op.outputs, _run(op, values, env)):
                    values.setdefault(t, x)
    return [values[t] for t in outputs]


def _fed(t: Tensor, x: Array, env: dict[E.Var, Array]) -> Array:
    if x.ndim != t.ndim:
        raise ExprError(f"the array for {t.name} has {x.ndim} dimensions, the tensor {t.ndim}", hint="reshape it")
    for k, (dim, have) in enumerate(zip(t.shape, x.shape)):
        if isinstance(dim, E.Var):
            env.setdefault(dim, np.asarray(have, np_dtype(dim.dtype)))
        if all(v in env for v in _vars(dim)):
            want = int(_Values(values={}, env=env).of(dim))
            if want != have:
                raise ExprError(
                    f"dimension {k} of the array for {t.name} is {have}, not {want}",
                    hint="pass an array of the placeholder's shape",
                )
    return np.asarray(x, np_dtype(t.dtype))


def _vars(e: E.Expr) -> list[E.Var]:
    return free_vars(e)


def _run(op: Operation, values: dict[Tensor, Array], env: dict[E.Var, Array]) -> list[Array]:
    if isinstance(op, ComputeOp):
        return _compute(op, values, env)
    if isinstance(op, ScanOp):
        return _scan(op, values, env)
    if isinstance(op, ExternOp):
        return _extern(op, values, env)
    if isinstance(op, PlaceholderOp):
        raise ExprError(f"no array given for placeholder {op.name}", hint="pass it in feeds")
    raise ExprError(f"{op!r} cannot be evaluated")


def _extent(e: E.Expr, env: dict[E.Var, Array]) -> int:
    return int(_Values({}, env).of(e))


def _compute(op: ComputeOp, values: dict[Tensor, Array], env: dict[E.Var, Array]) -> list[Array]:
    data = [(a, _extent(a.dom.extent, env)) for a in op.axis if a.dom is not None]
    shape = tuple(n for _, n in data)
    first = op.body[0]
    if isinstance(first, E.Reduce):
        return _reduce(op, first, data, values, env)
    scope = dict(env)
    for k, (a, n) in enumerate(data):
        scope[a.var] = np.arange(n, dtype=np_dtype(a.var.dtype)).reshape((n,) + (1,) * (len(data) - k - 1))
    ev = _Values(values, scope)
    return [np.array(np.broadcast_to(ev.of(b), shape), np_dtype(b.dtype)) for b in op.body]


_UFUNC: dict[str, Any] = {
    "sum": np.add,
    "prod": np.multiply,
    "min": np.fmin,
    "max": np.fmax,
    "minimum": np.minimum,
    "maximum": np.maximum,
    "all": np.logical_and,
    "any": np.logical_or,
}


def _reduce(
    op: ComputeOp, r: E.Reduce, data: list[tuple[E.IterVar, int]], values: dict[Tensor, Array], env: dict[E.Var, Array]
) -> list[Array]:
    """The values of a reduction over all places of `data`, one array for each of its results. Reduce axes are dimensions of arrays as long as these stay
    small, and steps of a loop beyond."""
    shape = tuple(n for _, n in data)
    dtypes = [np_dtype(s.dtype) for s in r.source]
    outer = dict(env)
    for k, (a, n) in enumerate(data):
        outer[a.var] = np.arange(n, dtype=np_dtype(a.var.dtype)).reshape((n,) + (1,) * (len(data) - k - 1))
    start = r.init or r.combiner.identity
    first = _Values(values, outer)
    acc = [np.array(np.broadcast_to(first.of(s), shape), t) for s, t in zip(start, dtypes)]
    axes = [(a, _extent(a.dom.min, env), _extent(a.dom.extent, env)) for a in r.axis if a.dom is not None]
    # Reduce axes go innermost into the array; those that would make it too large are stepped through here.
    inner, size = len(axes), max(1, math.prod(shape))
    while inner > 0 and size * axes[inner - 1][2] <= _CHUNK:
        size *= max(1, axes[inner - 1][2])
        inner -= 1
    for point in np.ndindex(*[n for _, _, n in axes[:inner]]):
        scope = dict(env)
        tail = len(axes) - inner
        for k, (a, n) in enumerate(data):
            scope[a.var] = np.arange(n, dtype=np_dtype(a.var.dtype)).reshape((n,) + (1,) * (len(data) - k - 1 + tail))
        for (a, lo, _), p in zip(axes, point):
            scope[a.var] = np.asarray(lo + p, np_dtype(a.var.dtype))
        for k, (a, lo, n) in enumerate(axes[inner:]):
            scope[a.var] = np.arange(lo, lo + n, dtype=np_dtype(a.var.dtype)).reshape((n,) + (1,) * (tail - k - 1))
        ev = _Values(values, scope)
        full = shape + tuple(n for _, _, n in axes[inner:])
        cond = np.broadcast_to(ev.of(r.condition), full)
        whole = bool(cond.all())
        got = []
        for s, identity in zip(r.source, r.combiner.identity):
            x = np.broadcast_to(ev.of(s), full)
            got.append(x if whole else np.where(cond, x, first.of(identity)).astype(x.dtype))
        acc = _combine(
            r.combiner, acc, [g.reshape((*shape, math.prod(g.shape[len(shape) :]))) for g in got], env, dtypes
        )
    return [acc[b.value_index] for b in op.body if isinstance(b, E.Reduce)]


def _combine(
    c: E.CommReducer, acc: list[Array], got: list[Array], env: dict[E.Var, Array], dtypes: list[np.dtype[Any]]
) -> list[Array]:
    """`acc` combined with all values along the last axis of `got`, in order."""
    ufunc = _UFUNC.get(c.name) if len(acc) == 1 else None
    if ufunc is not None and got[0].shape[-1] == 1:  # one sum or product of two: rounded once in any case
        return [np.asarray(ufunc(acc[0], got[0][..., 0])).astype(dtypes[0], copy=False)]
    if ufunc is not None and got[0].shape[-1]:
        wide = got[0].astype(np.float64) if c.name in ("sum", "prod") and dtypes[0].kind not in "iub" else got[0]
        total = ufunc.reduce(wide, axis=-1, dtype=None if wide.dtype.kind == "b" else wide.dtype)
        return [np.asarray(ufunc(acc[0].astype(wide.dtype), total)).astype(dtypes[0])]
    for k in range(got[0].shape[-1]):
        scope = dict(env)
        scope.update(zip(c.lhs, acc))
        scope.update(zip(c.rhs, [g[..., k] for g in got]))
        ev = _Values({}, scope)
        acc = [np.asarray(ev.of(e), t) for e, t in zip(c.result, dtypes)]
    return acc


def _scan(op: ScanOp, values: dict[Tensor, Array], env: dict[E.Var, Array]) -> list[Array]:
    begin, steps = _extent(op.scan_axis.dom.min, env), _extent(op.scan_axis.dom.extent, env)  # type: ignore[union-attr]
    states = []
    for s, i in zip(op.state_placeholder, op.init):
        x = np.zeros([_extent(d, env) for d in s.shape], np_dtype(s.dtype))
        x[:begin] = values[i]
        states.append(x)
    for t in range(begin, begin + steps):
        got = evaluate(
            op.update, {**values, **dict(zip(op.state_placeholder, states))}, {v: int(x) for v, x in env.items()}
        )
        for x, u in zip(states, got):
            x[t] = u[t]
    return states


def _extern(op: ExternOp, values: dict[Tensor, Array], env: dict[E.Var, Array]) -> list[Array]:
    outs = [np.zeros([_extent(d, env) for d in b.shape], np_dtype(b.dtype)) for b in op.output_placeholders]
    buffers = (*op.input_placeholders, *op.output_placeholders)
    func = Func(op.name, buffers, op.body)
    arrays = [*[np.asarray(values[t], order="C") for t in op._inputs], *outs]
    run(func, arrays)
    return outs


# ---- expressions


def _truncated(a: Array, b: Array) -> Array:
    b = np.where(b == 0, np.ones_like(b), b)
    q = np.floor_divide(a, b)
    return np.where((q < 0) & (q * b != a), q + np.ones_like(q), q)


def _div(a: Array, b: Array) -> Array:
    return np.divide(a, b) if a.dtype.kind not in "iub" else _truncated(a, b)


def _mod(a: Array, b: Array) -> Array:
    return a - b * _truncated(a, b)


def _safe(f: Callable[[Array, Array], Array]) -> Callable[[Array, Array], Array]:
    return lambda a, b: f(a, np.where(b == 0, np.ones_like(b), b)) if b.dtype.kind in "iu" else f(a, b)


_BINARY: dict[type, Callable[[Array, Array], Array]] = {
    E.Add: np.add, E.Sub: np.subtract, E.Mul: np.multiply, E.Div: _div, E.Mod: _mod, E.FloorDiv: _safe(np.floor_divide),
    E.FloorMod: _safe(np.mod), E.Min: np.fmin, E.Max: np.fmax, E.And: np.logical_and, E.Or: np.logical_or,
    E.EQ: np.equal, E.NE: np.not_equal, E.LT: np.less, E.LE: np.less_equal, E.GT: np.greater, E.GE: np.greater_equal,
}  # fmt: skip

_erf = np.vectorize(math.erf, otypes=[np.float64])


def _round_away(x: Array) -> Array:
    return np.trunc(x + np.copysign(np.nextafter(0.5, 0.0), x))


def _by_float32(f: Callable[[Array, Array], Array], a: Array, b: Array) -> Array:
    """A division of floats below float32, which NumPy may not know, as NumPy has it for float16."""
    return f(a.astype(np.float32), b.astype(np.float32)).astype(a.dtype) if a.dtype.itemsize < 4 else f(a, b)


_FLOAT: dict[str, Callable[..., Array]] = {
    "exp10": lambda x: np.power(10.0, x), "rsqrt": lambda x: 1.0 / np.sqrt(x), "asin": np.arcsin, "acos": np.arccos,
    "atan": np.arctan, "asinh": np.arcsinh, "acosh": np.arccosh, "atanh": np.arctanh, "atan2": np.arctan2, "erf": _erf,
    "sigmoid": lambda x: np.where(x >= 0, 1 / (1 + np.exp(-np.abs(x))), np.exp(-np.abs(x)) / (1 + np.exp(-np.abs(x)))),
    "round": _round_away, "nearbyint": np.rint, "pow": np.power, "exp_below": np.exp, "exp2_fast": np.exp2, "div_fast": np.divide, "fma": lambda a, b, c: a * b + c,
    "floor_divide": lambda a, b: _by_float32(np.floor_divide, a, b), "floor_remainder": lambda a, b: _by_float32(np.remainder, a, b),
    **{n: getattr(np, n) for n in (
        "exp exp2 expm1 log log2 log10 log1p sqrt sin cos tan sinh cosh tanh floor ceil trunc fmod copysign hypot".split())},
}  # fmt: skip


def _popcount(x: Array) -> Array:
    return np.bitwise_count(x.view(f"u{x.itemsize}"))


def _clz(x: Array) -> Array:
    bits = x.itemsize * 8
    u = x.view(f"u{x.itemsize}").astype(np.uint64)
    out = np.full(u.shape, bits)
    for k in range(bits):
        out = np.where((u >> np.uint64(k)) & np.uint64(1), bits - 1 - k, out)
    return out


def _ctz(x: Array) -> Array:
    low = x & -x if x.dtype.kind == "i" else x & (~x + x.dtype.type(1))
    return np.where(x == 0, x.itemsize * 8, x.itemsize * 8 - 1 - _clz(low))


_OTHER: dict[str, Callable[..., Array]] = {
    "abs": np.abs, "isnan": np.isnan, "isinf": np.isinf, "isfinite": np.isfinite, "bitand": np.bitwise_and,
    "bitor": np.bitwise_or, "bitxor": np.bitwise_xor, "shl": np.left_shift, "shr": np.right_shift,
    "bitnot": np.bitwise_not, "popcount": _popcount, "clz": _clz, "ctz": _ctz, "min_nan": np.minimum, "max_nan": np.maximum,
    "likely": lambda c: c, "ldexp": lambda a, b: np.ldexp(a.astype(np.float64), b), "if_then_else": np.where,
}  # fmt: skip


class _Values:
    """Values of expressions over arrays: `env` for variables, `values` for tensors. A shared node is worked out once."""

    def __init__(self, values: dict[Tensor, Array], env: dict[E.Var, Array]):
        self.values = values
        self.env = env
        self._memo: dict[int, tuple[E.Expr, Array]] = {}

    def of(self, e: E.Expr) -> Array:
        hit = self._memo.get(id(e))
        if hit is not None:
            return hit[1]
        x = self._eval(e)
        self._memo[id(e)] = (e, x)
        return x

    def _eval(self, e: E.Expr) -> Array:
        f = _BINARY.get(type(e))
        if f is not None:
            a, b = self.of(e.a), self.of(e.b)  # type: ignore[attr-defined]
            return np.asarray(f(a, b)).astype(np_dtype(e.dtype), copy=False)
        match e:
            case E.Var():
                if e not in self.env:
                    raise ExprError(f"no value for variable {e.name}", hint="pass it in variables")
                return self.env[e]
            case E.IntImm() | E.FloatImm():
                return np.asarray(e.value, np_dtype(e.dtype))
            case E.TensorRead():
                return self._read(e)
            case E.Cast():
                return cast_array(self.of(e.value), e.dtype)
            case E.Select():
                return np.where(self.of(e.cond), self.of(e.a), self.of(e.b))
            case E.Not():
                return np.logical_not(self.of(e.a))
            case E.Call():
                return self._call(e)
            case E.Let():
                inner = _Values(self.values, {**self.env, e.var: self.of(e.value)})
                return inner.of(e.body)
        raise ExprError(f"a {type(e).__name__} cannot be evaluated: {e}")

    def _call(self, e: E.Call) -> Array:
        args = [self.of(a) for a in e.args]
        if e.op in _FLOAT:
            wide = [a.astype(np.float64) for a in args]
            return np.asarray(_FLOAT[e.op](*wide)).astype(np_dtype(e.dtype))
        if e.op in _OTHER:
            return np.asarray(_OTHER[e.op](*args)).astype(np_dtype(e.dtype), copy=False)
        if e.op == "reinterpret":
            return np.ascontiguousarray(args[0]).view(np_dtype(e.dtype)).reshape(args[0].shape)
        raise ExprError(
            f"operation {e.op} cannot be evaluated without a device",
            hint="build it and run it: tec.build(tec.create_schedule(C.op), [A, C])",
        )

    def _read(self, e: E.TensorRead) -> Array:
        array = self.values[e.tensor]
        if not e.indices:
            return array
        idx = []
        for i, n in zip(e.indices, array.shape):
            x = self.of(i)
            idx.append(np.clip(x, 0, max(n - 1, 0)))
        if 0 in array.shape or any(not i.size for i in idx):
            return np.zeros(np.broadcast_shapes(*[i.shape for i in idx]), array.dtype)
        view = _as_view(array, idx)
        return view if view is not None else array[tuple(idx)]


def _as_view(array: Array, idx: list[Array]) -> Array | None:
    """The read as a transposed view, where each index is a constant or runs along a dimension of its own."""
    ndim = max(i.ndim for i in idx)
    order: list[tuple[int, int]] = []
    slices: list[Any] = []
    for d, i in enumerate(idx):
        along = [k for k in range(i.ndim) if i.shape[k] > 1]
        if not along:
            slices.append(int(i.reshape(-1)[0]) if i.size else slice(0, 0))
            if not i.size:
                return None
            continue
        flat = i.reshape(-1)
        if len(along) != 1 or flat[-1] - flat[0] != flat.size - 1 or (flat[1:] - flat[:-1] != 1).any():
            return None
        order.append((along[0] + ndim - i.ndim, d))
        slices.append(slice(int(flat[0]), int(flat[-1]) + 1))
    if len({k for k, _ in order}) != len(order):
        return None
    kept = array[tuple(slices)]
    position = {d: p for p, (_, d) in enumerate(order)}
    order.sort()
    kept = kept.transpose([position[d] for _, d in order])
    shape = [1] * ndim
    for (k, _), n in zip(order, kept.shape):
        shape[k] = n
    return kept.reshape(shape)


def cast_array(x: Array, dtype: str) -> Array:
    """`x` converted as `Cast` does: float to int truncates and saturates (NaN to 0), int to int wraps, to bool is != 0."""
    info = dtype_info(dtype)
    to = np_dtype(dtype)
    if info.kind == "bool":
        return x != 0
    if info.is_int and x.dtype.kind not in "iub":
        lo, hi = int_range(dtype)
        wide = np.trunc(np.nan_to_num(x.astype(np.float64), nan=0.0, posinf=np.inf, neginf=-np.inf))
        inside = (wide >= lo) & (wide <= hi)
        below = np.where(inside, wide, 0)
        whole = below.astype(np.uint64 if info.kind == "uint" else np.int64)
        return (
            np.where(inside & (wide < float(hi)), whole, np.where(wide > 0, hi, lo)).astype(to)
            if lo < 0
            else _unsigned(wide, whole, hi, to)
        )
    if info.element == "bfloat16":
        x = odd_float32(x)  # so that it is rounded once
    return x.astype(to)


def _unsigned(wide: Array, whole: Array, hi: int, to: np.dtype[Any]) -> Array:
    top = np.uint64(hi)
    return np.where(wide <= 0, np.uint64(0), np.where(wide >= float(hi), top, whole)).astype(to)
