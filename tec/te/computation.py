"""`compute`: a tensor by a function of its indices, checked at once; and `scan`, a recurrence of such tensors."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from types import FunctionType
from typing import Any

from ..errors import ExprError, caller_loc
from ..ir import build
from ..ir.expr import Expr, IntImm, IterVar, Reduce, Var
from ..ir.visit import walk_exprs
from .build import as_shape, called, check_name, data_axis, is_axis, is_reduce_axis
from .complexes import Complex, ComplexTensor
from .dependent import boxed
from .like import FunctionOfEach
from .operation import ComputeOp, PlaceholderOp, ScanOp
from .tags import current_tag
from .tensor import Tensor


class RegionValue:
    """What a compute's function may give in place of an element's value: the value of a region (a call of a tensor intrinsic)."""

    def expand(
        self, lead: Sequence[IterVar], own: Sequence[IterVar], what: str
    ) -> tuple[tuple[Expr, ...], dict[str, Any]]:
        """The elements' values at `own`, the axes of the region, inside of `lead`; and notes for the operation's `attrs`."""
        raise NotImplementedError


def compute(
    shape: Any,
    fcompute: FunctionOfEach,
    name: str = "compute",
    tag: str = "",
    attrs: dict[str, Any] | None = None,
    varargs_names: Sequence[str] | None = None,
) -> Any:
    """A tensor whose element at each index is `fcompute(*index)`.

    shape: of the output, as of `placeholder`. fcompute: a function of one index variable per dimension (`lambda *i:`
    takes all of them). It returns the expression of an element, or a tuple of expressions for several outputs. A
    reduction must be outermost. tag, attrs: notes for schedules. varargs_names: names for the indices of `*i`.
    Returns the Tensor, or a tuple of them. Raises ExprError for a function that does not fit the shape, and for an
    expression that uses axes of other computations.

    >>> A, B = (tec.placeholder((1024,), name=x) for x in "AB")
    >>> tec.compute(A.shape, lambda i: A[i] + B[i], name="C")
    Tensor(shape=[1024], dtype=float32, op=C)
    """
    check_name(name, "compute")
    what = called("compute", name)
    dims = as_shape(shape, what)
    if not callable(fcompute):
        raise ExprError(
            f"{what} takes a function of the indices, not {fcompute!r}", hint="tec.compute(shape, lambda i, j: ...)"
        )
    names = _index_names(fcompute, len(dims), what, varargs_names)
    given = len(names)
    axes = [data_axis(n, d) for n, d in zip([*names, *(f"i{k}" for k in range(given, len(dims)))], dims)]
    loc = caller_loc()
    for a in axes:
        a.loc = loc
    notes = {} if attrs is None else dict(attrs)
    result = fcompute(*[a.var for a in axes[:given]])
    if isinstance(result, RegionValue):
        bodies, more = result.expand(axes[:given], axes[given:], what)
        notes.update(more)
    else:
        if given < len(dims):
            raise _wrong_count(given, len(dims), what)
        if isinstance(result, Complex):
            axes.append(data_axis("part", build.const(2)))
            axes[-1].loc = loc
            notes["complex"] = result.dtype
            result = result.body(axes[-1].var)
        bodies = _as_bodies(result, what)
    _check_bodies(bodies, {id(a.var) for a in axes}, what)
    bodies = boxed(bodies, axes, what)
    op = ComputeOp(name, axes, bodies, tag or current_tag(), notes, loc)
    if "complex" in notes:
        return ComplexTensor(op.outputs[0])
    return op.outputs if len(bodies) > 1 else op.outputs[0]


def _index_names(f: Callable[..., Any], ndim: int, what: str, varargs_names: Sequence[str] | None) -> list[str]:
    if type(f) is FunctionType and not f.__dict__ and not f.__defaults__:  # most, of which `inspect` asks too much
        code = f.__code__
        if not (code.co_kwonlyargcount or code.co_flags & inspect.CO_VARARGS) and code.co_argcount <= ndim:
            return list(code.co_varnames[: code.co_argcount])
    try:
        params = list(inspect.signature(f).parameters.values())
    except (TypeError, ValueError):
        return [f"i{k}" for k in range(ndim)]
    own = [p.name for p in params if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD) and p.default is p.empty]
    optional = [
        p.name for p in params if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD) and p.default is not p.empty
    ]
    star = any(p.kind is p.VAR_POSITIONAL for p in params)
    if any(p.kind is p.KEYWORD_ONLY and p.default is p.empty for p in params):
        raise ExprError(
            f"the function of {what} has keyword-only arguments; it is called with one index a dimension",
            hint="take the indices by position: lambda i, j: ..., or lambda *i: ...",
        )
    if len(own) > ndim:
        raise _wrong_count(len(own), ndim, what)
    if star:
        rest = list(varargs_names) if varargs_names else [f"i{k}" for k in range(len(own), ndim)]
        if len(own) + len(rest) != ndim:
            raise ExprError(
                f"{what}: {len(rest)} varargs_names for {ndim - len(own)} indices",
                hint="one name for each index that *args take",
            )
        return [*own, *rest]
    return [*own, *optional[: ndim - len(own)]]


def _wrong_count(given: int, ndim: int, what: str) -> ExprError:
    return ExprError(
        f"the function of {what} takes {given} ind{'ex' if given == 1 else 'ices'}, its shape has {ndim} dimension{'s'[: ndim != 1]}",
        hint=f"write lambda {', '.join('ijklmnopqrst'[:ndim])}: ... or lambda *i: ...",
    )


def _as_bodies(body: Any, what: str) -> tuple[Expr, ...]:
    if isinstance(body, (list, tuple)):
        if not body:
            raise ExprError(f"the function of {what} gives no value", hint="return an expression or a tuple of them")
        return tuple(_as_body(b, what) for b in body)
    return (_as_body(body, what),)


def _as_body(body: Any, what: str) -> Expr:
    if body is None:
        raise ExprError(f"the function of {what} returns None", hint="return the expression of one element")
    if isinstance(body, (str, dict, set)):
        raise ExprError(
            f"the function of {what} returns {body!r}, which is no expression",
            hint="return a number, an expression, or a tuple of these; a def needs its return",
        )
    try:
        e = build.convert(body)
    except ExprError as err:
        raise ExprError(f"the function of {what} gives no expression: {err.message}", hint=err.hint) from None
    if e.dtype == "handle":
        raise ExprError(f"the function of {what} gives a pointer, not a value", hint="read what is there: A[i]")
    return e


def _check_bodies(bodies: tuple[Expr, ...], own: set[int], what: str) -> None:
    """Reductions stand outermost, all of one kind; no variable of a foreign axis, no reduce axis outside a reduction."""
    reduces = [b for b in bodies if isinstance(b, Reduce)]
    if reduces and len(reduces) != len(bodies):
        raise ExprError(
            f"{what} has outputs that reduce and outputs that do not", hint="put them in computes of their own"
        )
    if reduces:
        first = reduces[0]
        for k, r in enumerate(reduces):
            same = r.combiner is first.combiner and [*map(id, r.axis)] == [*map(id, first.axis)]
            if not same or r.value_index != k or len(reduces) != len(r.source):
                raise ExprError(
                    f"the outputs of {what} are not the values of one reduction, in order",
                    hint="return what one reducer call gives: lambda i: argmax((idx, val), axis=k)",
                )
    inside = set(own)
    if reduces:
        inside.update(id(a.var) for a in reduces[0].axis)
        roots = [e for r in reduces[:1] for e in (*r.source, r.condition, *r.init)]
    else:
        roots = list(bodies)
    nodes = [e for root in roots for e in walk_exprs(root)]
    if any(type(e) is Reduce for e in nodes):
        raise ExprError(
            f"{what}: a reduction must be the outermost expression of a compute",
            hint="make the reduction a tensor of its own and read it: S = tec.compute(..., lambda i: tec.sum(...))",
        )
    for e in nodes:
        if is_axis(e) and id(e) not in inside:
            _stray_axis(e, what)
    if reduces:
        c = reduces[0].combiner
        for e in (e for root in (*c.result, *c.identity) for e in walk_exprs(root)):
            if is_axis(e):
                raise ExprError(
                    f"the reducer {c.name} of {what} uses axis {e.name}: it combines values that are the same for all elements",
                    hint="put the axis into the expression that is reduced; a start value of each element's own is init=",
                )


def _stray_axis(v: Var, what: str) -> None:
    if is_reduce_axis(v):
        raise ExprError(
            f"{what} uses reduce axis {v.name} outside of a reduction over it",
            hint=f"wrap it: tec.sum(..., axis={v.name}), and list every axis: axis=[{v.name}, ...]",
        )
    raise ExprError(f"{what} uses axis {v.name} of another compute", hint="use the indices that the function is given")


# ---- scan


def scan(
    init: Any,
    update: Any,
    state_placeholder: Any,
    inputs: Any = None,
    name: str = "scan",
    tag: str = "",
    attrs: dict[str, Any] | None = None,
) -> Any:
    """A recurrence over the first dimension, which is the time.

    init: its first rows, (k, ...) with k >= 1. update: row t from the rows before t, (T, ...). state_placeholder:
    stands for the whole state, (T, ...), in `update`. inputs: other tensors that the recurrence reads. Each of the
    first three is a tensor, or a list of equal length. Returns the state after the scan, (T, ...), or a list. Raises
    ExprError if shapes, types or counts do not agree.

    >>> X, S = tec.placeholder((16, 64), name="X"), tec.placeholder((16, 64), name="S")
    >>> first = tec.compute((1, 64), lambda _, i: X[0, i])
    >>> step = tec.compute((16, 64), lambda t, i: S[t - 1, i] + X[t, i])
    >>> R = tec.scan(first, step, S, inputs=[X])
    """
    check_name(name, "scan")
    what = called("scan", name)
    lists = [
        _tensor_list(v, f"{k} of {what}")
        for k, v in (("init", init), ("update", update), ("state_placeholder", state_placeholder))
    ]
    first, step, state = lists
    if not first or not len(first) == len(step) == len(state):
        raise ExprError(
            f"{what} has {len(first)} init, {len(step)} update and {len(state)} state tensors",
            hint="give as many of each",
        )
    for i, u, s in zip(first, step, state):
        if not isinstance(s.op, PlaceholderOp):
            raise ExprError(f"the state of {what}, {s.name}, is no placeholder", hint="tec.placeholder((T, ...))")
        if not i.ndim == u.ndim == s.ndim or s.ndim == 0:
            raise ExprError(
                f"{what}: init, update and state have {i.ndim}, {u.ndim} and {s.ndim} dimensions",
                hint="all have the time as their first dimension",
            )
        if not i.dtype == u.dtype == s.dtype:
            raise ExprError(
                f"{what}: init is {i.dtype}, update {u.dtype}, state {s.dtype}",
                hint="give all three one dtype: cast the values, or pass dtype= to the placeholder of the state",
            )
        for d in range(s.ndim):
            for t, label in ((i, "init"), (u, "update")):
                a, b = t.shape[d], s.shape[d]
                if (d > 0 or t is u) and isinstance(a, IntImm) and isinstance(b, IntImm) and a.value != b.value:
                    raise ExprError(
                        f"{what}: dimension {d} of {label} is {a}, of the state {b}",
                        hint="init, update and state agree in all dimensions but the first, which is time",
                    )
        a, b = i.shape[0], s.shape[0]
        if isinstance(a, IntImm) and (a.value < 1 or (isinstance(b, IntImm) and a.value > b.value)):
            raise ExprError(f"{what}: init has {a} rows of the state's {b}", hint="at least the first row")
    extra = _tensor_list(inputs, f"inputs of {what}") if inputs is not None else []
    op = ScanOp(name, first, step, state, extra, tag or current_tag(), attrs)
    return op.outputs if len(op.outputs) > 1 else op.outputs[0]


def _tensor_list(value: Any, what: str) -> list[Tensor]:
    items = [value] if isinstance(value, Tensor) else list(value) if isinstance(value, (list, tuple)) else None
    if items is None or not all(isinstance(t, Tensor) for t in items):
        raise ExprError(
            f"{what} is a tensor or a list of tensors, not {value!r}",
            hint="pass what tec.compute or tec.placeholder gave",
        )
    return items
