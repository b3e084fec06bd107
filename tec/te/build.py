"""The front doors of the language: var, placeholder, compute, scan, reduce_axis, thread_axis, decl_buffer.

They take what users write (ints, NumPy integers, variables, lambdas), check it at once and make operations.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any, TypeGuard
from weakref import WeakValueDictionary

import numpy as np

from ..errors import ExprError, caller_loc
from ..ir import build
from ..ir.buffer import FRAGMENT_SCOPES, GLOBAL, LOCAL, SHARED, SHARED_DYN, Buffer
from ..ir.dtype import dtype_info, int_range, normalize_dtype
from ..ir.expr import Expr, IntImm, IterKind, IterVar, Range, Reduce, Var
from ..ir.visit import walk_exprs
from .dependent import boxed
from .operation import ComputeOp, PlaceholderOp, ScanOp
from .tags import current_tag
from .tensor import Tensor

# Variables that belong to an axis, by id. An axis is meaningless outside of its own operation, so compute looks here for
# strays. Entries go with their variables.
_AXIS_VARS: WeakValueDictionary[int, Var] = WeakValueDictionary()
_REDUCE_VARS: WeakValueDictionary[int, Var] = WeakValueDictionary()

_THREAD_TAGS = (
    "blockIdx.x",
    "blockIdx.y",
    "blockIdx.z",
    "threadIdx.x",
    "threadIdx.y",
    "threadIdx.z",
    "vthread",
    "cthread",
)


def check_name(name: Any, what: str) -> str:
    if not isinstance(name, str) or not name:
        raise ExprError(f"the name of a {what} is text, not {name!r}")
    return name


def var(name: str = "tindex", dtype: Any = "int32") -> Var:
    """A scalar variable: an unknown size or a scalar argument.

    >>> n = tec.var("n")
    >>> A = tec.placeholder((n,), name="A")
    """
    return Var(check_name(name, "variable"), normalize_dtype(dtype))


def size_var(name: str = "size", dtype: Any = "int32") -> Var:
    """A variable that is known not to be negative: a size. Raises ExprError for a dtype that is no integer."""
    dtype = normalize_dtype(dtype)
    if not dtype_info(dtype).is_int:
        raise ExprError(f"a size has an integer type, not {dtype}")
    return Var(check_name(name, "variable"), dtype, True)


def const(value: Any, dtype: Any = None) -> Expr:
    """A constant; without `dtype` an int is int32 (int64 where it needs it), a float float32, a bool bool."""
    if not isinstance(value, (bool, int, float, np.generic)):
        raise ExprError(f"cannot make a constant of {value!r} ({type(value).__name__})")
    return build.const(value, dtype)


def as_extent(value: Any, what: str) -> Expr:
    """A dimension: a non-negative int or an integer expression; a whole float (32 / 4) is the int."""
    if isinstance(value, (float, np.floating)) and float(value).is_integer():
        value = int(value)
    if (
        isinstance(value, (bool, np.bool_, float, np.floating))
        or value is None
        or isinstance(value, (str, list, tuple))
    ):
        raise ExprError(
            f"{what} is {value!r}", hint="a dimension is an int or an integer expression such as tec.var('n')"
        )
    if isinstance(value, Tensor) and value.ndim:
        raise ExprError(f"{what} is a tensor ({value.name})", hint="a dimension is an int or an integer expression")
    e = build.convert(value)
    info = dtype_info(e.dtype)
    if not info.is_int or info.lanes != 1:
        raise ExprError(f"{what} has type {e.dtype}: {e}", hint="a dimension is an integer")
    if isinstance(e, IntImm) and e.value < 0:
        raise ExprError(f"{what} is negative: {e.value}")
    return e


def as_shape(shape: Any, what: str) -> tuple[Expr, ...]:
    """A tuple of dimensions; one int or expression stands for a vector."""
    if isinstance(shape, (int, np.integer, Expr, IterVar)) and not isinstance(shape, bool):
        shape = (shape,)
    if isinstance(shape, (str, dict, set)) or not hasattr(shape, "__iter__") or isinstance(shape, Tensor):
        raise ExprError(f"the shape of {what} is {shape!r}", hint="give a tuple: (n, 128)")
    return tuple(as_extent(d, f"dimension {k} of {what}") for k, d in enumerate(shape))


def as_dtype(dtype: Any, what: str) -> str:
    """A dtype string; ExprError that names `what` otherwise."""
    try:
        return normalize_dtype(dtype)
    except ExprError as e:
        raise ExprError(f"{what}: {e.message}", hint=e.hint) from None


def placeholder(shape: Any, dtype: Any = None, name: str = "placeholder") -> Tensor:
    """An input tensor of `shape` (ints and integer expressions) and `dtype` (float32 by default)."""
    check_name(name, "placeholder")
    return PlaceholderOp(name, as_shape(shape, f"placeholder {name}"), as_dtype(dtype, f"placeholder {name}")).output(0)


def data_axis(name: str, extent: Expr) -> IterVar:
    """A spatial axis of [0, extent)."""
    v = Var(name, extent.dtype, True)
    _AXIS_VARS[id(v)] = v
    return IterVar(v, Range(build.const(0, extent.dtype), extent), IterKind.DATA)


def as_range(dom: Any, what: str) -> Range:
    """A Range from (begin, end), an extent or a Range."""
    if isinstance(dom, Range):
        return dom
    if isinstance(dom, (tuple, list)):
        if len(dom) != 2:
            raise ExprError(f"the domain of {what} is {dom!r}", hint="give (begin, end)")
        try:
            begin, end = build.match(dom[0], dom[1])
        except ExprError as e:
            raise ExprError(f"the domain of {what}: {e.message}", hint="give (begin, end)") from None
        if not dtype_info(begin.dtype).is_int:
            raise ExprError(f"the domain of {what} has type {begin.dtype}", hint="begin and end are integers")
        extent = build.sub(end, begin)
        if isinstance(extent, IntImm) and extent.value < 0:
            raise ExprError(f"the domain of {what} ends before it begins: ({begin}, {end})")
        return Range(begin, extent)
    extent = as_extent(dom, f"the domain of {what}")
    return Range(build.const(0, extent.dtype), extent)


def reduce_axis(dom: Any, name: str = "rv", thread_tag: str = "") -> IterVar:
    """An axis to reduce over: `dom` is (begin, end), or an extent.

    >>> k = tec.reduce_axis((0, 128), name="k")
    >>> C = tec.compute((m, n), lambda i, j: tec.sum(A[i, k] * B[k, j], axis=k))
    """
    r = as_range(dom, f"reduce axis {check_name(name, 'reduce axis')}")
    is_size = isinstance(r.min, IntImm) and r.min.value >= 0
    v = Var(name, r.extent.dtype, is_size)
    _AXIS_VARS[id(v)] = v
    _REDUCE_VARS[id(v)] = v
    return IterVar(v, r, IterKind.REDUCE, thread_tag, caller_loc())


def thread_axis(dom: Any = None, tag: str = "", name: str = "") -> IterVar:
    """A launch index to bind loops to: `thread_axis("threadIdx.x")`, `thread_axis((0, 64), "threadIdx.x")` or `"vthread"`."""
    if isinstance(dom, str):
        dom, tag = (None, dom) if not tag else (tag, dom)
    if tag not in _THREAD_TAGS:
        raise ExprError(f"unknown thread axis {tag!r}", hint=f"known: {', '.join(_THREAD_TAGS[:-1])}")
    tag = "vthread" if tag == "cthread" else tag
    r = as_range(dom, f"thread axis {tag}") if dom is not None else None
    return IterVar(
        Var(name or tag.replace(".", "_"), r.extent.dtype if r else "int32", True),
        r,
        IterKind.THREAD,
        tag,
        caller_loc(),
    )


# In a layout's function (`Stage.transform_layout`): between dimensions that other compilers keep apart in memory.
AXIS_SEPARATOR = "axis_separator"


def is_axis(e: Expr) -> TypeGuard[Var]:
    """Whether `e` is the variable of an operation's axis."""
    return isinstance(e, Var) and _AXIS_VARS.get(id(e)) is e


# ---- compute


def compute(
    shape: Any,
    fcompute: Callable[..., Any],
    name: str = "compute",
    tag: str = "",
    attrs: dict[str, Any] | None = None,
    varargs_names: Sequence[str] | None = None,
) -> Any:
    """A tensor whose element at each index is `fcompute(*index)`.

    Parameters: `shape`, the output's; `fcompute`, a function of one index variable a dimension (`lambda *i:` takes them
    all) that gives an expression, or a tuple of them for several outputs; `tag`, `attrs`, notes for schedules.
    Returns the Tensor, or a tuple of them. Raises ExprError.

    >>> C = tec.compute(A.shape, lambda i: A[i] + B[i], name="C")
    """
    check_name(name, "compute")
    what = f"compute {name}"
    dims = as_shape(shape, what)
    if not callable(fcompute):
        raise ExprError(
            f"{what} takes a function of the indices, not {fcompute!r}", hint="tec.compute(shape, lambda i, j: ...)"
        )
    names = _index_names(fcompute, len(dims), what, varargs_names)
    axes = [data_axis(n, d) for n, d in zip(names, dims)]
    loc = caller_loc()
    for a in axes:
        a.loc = loc
    bodies = _as_bodies(fcompute(*[a.var for a in axes]), what)
    _check_bodies(bodies, {id(a.var) for a in axes}, what)
    bodies = boxed(bodies, axes, what)
    notes = {} if attrs is None else dict(attrs)
    op = ComputeOp(name, axes, bodies, tag or current_tag(), notes, loc)
    return op.outputs if len(bodies) > 1 else op.outputs[0]


def _index_names(f: Callable[..., Any], ndim: int, what: str, varargs_names: Sequence[str] | None) -> list[str]:
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
        raise ExprError(f"the function of {what} has keyword-only arguments; it is called with one index a dimension")
    if len(own) > ndim or (not star and len(own) + len(optional) < ndim):
        raise ExprError(
            f"the function of {what} takes {len(own)} ind{'ex' if len(own) == 1 else 'ices'}, its shape has {ndim} dimension{'s'[: ndim != 1]}",
            hint=f"write lambda {', '.join('ijklmnopqrst'[:ndim])}: ... or lambda *i: ...",
        )
    if star:
        rest = list(varargs_names) if varargs_names else [f"i{k}" for k in range(len(own), ndim)]
        if len(own) + len(rest) != ndim:
            raise ExprError(f"{what}: {len(rest)} varargs_names for {ndim - len(own)} indices")
        return [*own, *rest]
    return [*own, *optional[: ndim - len(own)]]


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
        raise ExprError(f"the function of {what} returns {body!r}, which is no expression")
    try:
        e = build.convert(body)
    except ExprError as err:
        raise ExprError(f"the function of {what} gives no expression: {err.message}", hint=err.hint) from None
    if e.dtype == "handle":
        raise ExprError(f"the function of {what} gives a pointer, not a value")
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
    if _REDUCE_VARS.get(id(v)) is v:
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
    """A recurrence over the first dimension.

    `state_placeholder` stands for the whole state, (T, ...); `init` gives its first rows; `update` computes row t from
    rows before t. One tensor or a list of equal length each. Returns the state after the scan.

    >>> X = tec.placeholder((m, n), name="X")
    >>> S = tec.placeholder((m, n), name="S")
    >>> first = tec.compute((1, n), lambda _, i: X[0, i])
    >>> step = tec.compute((m, n), lambda t, i: S[t - 1, i] + X[t, i])
    >>> R = tec.scan(first, step, S, inputs=[X])
    """
    check_name(name, "scan")
    lists = [
        _tensor_list(v, f"{k} of scan {name}")
        for k, v in (("init", init), ("update", update), ("state_placeholder", state_placeholder))
    ]
    first, step, state = lists
    if not first or not len(first) == len(step) == len(state):
        raise ExprError(
            f"scan {name} has {len(first)} init, {len(step)} update and {len(state)} state tensors",
            hint="give as many of each",
        )
    for i, u, s in zip(first, step, state):
        if not isinstance(s.op, PlaceholderOp):
            raise ExprError(f"the state of scan {name}, {s.name}, is no placeholder", hint="tec.placeholder((T, ...))")
        if not i.ndim == u.ndim == s.ndim or s.ndim == 0:
            raise ExprError(
                f"scan {name}: init, update and state have {i.ndim}, {u.ndim} and {s.ndim} dimensions",
                hint="all have the time as their first dimension",
            )
        if not i.dtype == u.dtype == s.dtype:
            raise ExprError(f"scan {name}: init is {i.dtype}, update {u.dtype}, state {s.dtype}")
        for d in range(s.ndim):
            for t, label in ((i, "init"), (u, "update")):
                a, b = t.shape[d], s.shape[d]
                if (d > 0 or t is u) and isinstance(a, IntImm) and isinstance(b, IntImm) and a.value != b.value:
                    raise ExprError(f"scan {name}: dimension {d} of {label} is {a}, of the state {b}")
        a, b = i.shape[0], s.shape[0]
        if isinstance(a, IntImm) and (a.value < 1 or (isinstance(b, IntImm) and a.value > b.value)):
            raise ExprError(f"scan {name}: init has {a} rows of the state's {b}", hint="at least the first row")
    extra = _tensor_list(inputs, f"inputs of scan {name}") if inputs is not None else []
    op = ScanOp(name, first, step, state, extra, tag or current_tag(), attrs)
    return op.outputs if len(op.outputs) > 1 else op.outputs[0]


def _tensor_list(value: Any, what: str) -> list[Tensor]:
    items = [value] if isinstance(value, Tensor) else list(value) if isinstance(value, (list, tuple)) else None
    if items is None or not all(isinstance(t, Tensor) for t in items):
        raise ExprError(f"{what} is a tensor or a list of tensors, not {value!r}")
    return items


# ---- buffers


def decl_buffer(
    shape: Any,
    dtype: Any = None,
    name: str = "buffer",
    data: Var | None = None,
    strides: Any = None,
    elem_offset: Any = None,
    scope: str = "",
    data_alignment: int = -1,
    offset_factor: int = 0,
) -> Buffer:
    """Storage with a layout of its own, for arguments and hand-written code.

    strides, elem_offset: in elements, may be symbolic (bound at the call); data_alignment: bytes; offset_factor: the
    offset is a multiple of this many elements (an unnamed offset is then made). Returns a Buffer.
    """
    check_name(name, "buffer")
    what = f"buffer {name}"
    dims = as_shape(shape, what)
    steps = tuple(as_index_expr(s, f"stride {k} of {what}") for k, s in enumerate(strides)) if strides else ()
    if steps and len(steps) != len(dims):
        raise ExprError(f"{what} has {len(dims)} dimensions and {len(steps)} strides")
    scope = scope or GLOBAL
    if scope not in (GLOBAL, SHARED, SHARED_DYN, LOCAL, *FRAGMENT_SCOPES):
        raise ExprError(
            f"unknown scope {scope!r} of {what}", hint="global, shared, shared.dyn, local or fragment.a, .b, .acc"
        )
    if data_alignment != -1 and (data_alignment < 1 or data_alignment & (data_alignment - 1)):
        raise ExprError(f"data_alignment of {what} is {data_alignment}", hint="a power of two, in bytes")
    if offset_factor < 0:
        raise ExprError(f"offset_factor of {what} is {offset_factor}")
    if elem_offset is None:
        elem_offset = Var(f"{name}_elem_offset", "int32", True) if offset_factor else 0
    offset: Any = elem_offset if isinstance(elem_offset, int) else as_index_expr(elem_offset, f"elem_offset of {what}")
    if isinstance(offset, IntImm):
        offset = offset.value
    if isinstance(offset, int) and offset < 0:
        raise ExprError(f"elem_offset of {what} is negative: {offset}")
    return Buffer(
        name,
        as_dtype(dtype, what),
        dims,
        steps,
        offset,
        scope,
        64 if data_alignment == -1 else data_alignment,
        data,  # type: ignore[arg-type]  # None makes a pointer of the buffer's name
        caller_loc(),
        offset_factor,
    )


def as_index_expr(value: Any, what: str) -> Expr:
    """An integer expression; negative ones too."""
    e = build.convert(value)
    if not dtype_info(e.dtype).is_int:
        raise ExprError(f"{what} has type {e.dtype}: {e}", hint="an integer")
    return e


# ---- limits of types


def max_value(dtype: Any) -> Expr:
    """The largest finite value of `dtype`, as a constant."""
    return _limit(dtype, 1)


def min_value(dtype: Any) -> Expr:
    """The smallest (most negative) finite value of `dtype`, as a constant."""
    return _limit(dtype, -1)


_FLOAT_MAX = {
    "float64": float(np.finfo(np.float64).max), "float32": float(np.finfo(np.float32).max), "float16": 65504.0,
    "bfloat16": 3.3895313892515355e38, "float8_e4m3": 448.0, "float8_e5m2": 57344.0, "float8_e4m3fnuz": 240.0,
    "float8_e5m2fnuz": 57344.0,
}  # fmt: skip


def _limit(dtype: Any, sign: int) -> Expr:
    dtype = normalize_dtype(dtype)
    element = dtype_info(dtype).element
    if element in _FLOAT_MAX:
        return build.const(sign * _FLOAT_MAX[element], dtype)
    if element == "handle":
        raise ExprError("a pointer has no largest value")
    return build.const(int_range(element)[sign > 0], dtype)


def infinity(dtype: Any) -> Expr:
    """Positive infinity; ExprError for a type that has none."""
    dtype = normalize_dtype(dtype)
    if not dtype_info(dtype).is_float or "e4m3" in dtype or "fnuz" in dtype:
        raise ExprError(f"{dtype} has no infinity", hint="use tec.max_value(dtype)")
    return build.const(float("inf"), dtype)
