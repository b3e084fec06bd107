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

from ..door import of_tec
from ..errors import ExprError, kind_of
from ..ir import expr as E
from ..ir import interp_ops
from ..ir.dtype import dtype_info
from ..ir.func import Func
from ..ir.interp import run
from ..ir.visit import free_vars
from .numpy_dtype import np_dtype
from .operation import ComputeOp, ExternOp, Operation, PlaceholderOp, ScanOp, topo_order
from .tensor import Tensor

Array = Any  # np.ndarray of any dtype
_CHUNK = 1 << 24  # elements of an index space that are worked on at once


@of_tec(ExprError).named("te.evaluate")
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
        if all(v in env for v in free_vars(dim)):
            want = int(_Values(values={}, env=env).of(dim))
            if want != have:
                raise ExprError(
                    f"dimension {k} of the array for {t.name} is {have}, not {want}",
                    hint="pass an array of the placeholder's shape",
                )
    return np.asarray(x, np_dtype(t.dtype))


def _run(op: Operation, values: dict[Tensor, Array], env: dict[E.Var, Array]) -> list[Array]:
    if isinstance(op, ComputeOp):
        return _compute(op, values, env)
    if isinstance(op, ScanOp):
        return _scan(op, values, env)
    if isinstance(op, ExternOp):
        return _extern(op, values, env)
    if isinstance(op, PlaceholderOp):
        raise ExprError(f"no array given for placeholder {op.name}", hint="pass it in feeds")
    raise ExprError(f"{op!r} cannot be evaluated", hint="build it: tec.build(schedule, tensors, target)")


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


_BINARY: dict[type, Callable[[Array, Array], Array]] = {**interp_ops.BINARY, E.And: np.logical_and}


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
        raise ExprError(f"{kind_of(e)} cannot be evaluated: {e}", hint="build it: tec.build(schedule, tensors, target)")

    def _call(self, e: E.Call) -> Array:
        args = [self.of(a) for a in e.args]
        if interp_ops.is_elementwise(e.op):
            return np.asarray(interp_ops.apply(e.op, args, e.dtype, e.args[0].dtype)).astype(
                np_dtype(e.dtype), copy=False
            )
        if e.op == "if_then_else":
            return np.where(*args).astype(np_dtype(e.dtype), copy=False)
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
        return interp_ops.to_integer(x, dtype).astype(to)
    if info.element == "bfloat16":
        x = interp_ops.odd_float32(x)  # so that it is rounded once
    return x.astype(to)
