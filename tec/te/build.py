"""Variables, placeholders, axes and buffers: `var`, `placeholder`, `reduce_axis`, `thread_axis`, `decl_buffer`.

They take what users write (ints, NumPy integers, variables, lambdas), check it at once and make operations. `compute`
and `scan` are in `computation`.
"""

from __future__ import annotations

from typing import Any, TypeGuard
from weakref import WeakValueDictionary

import numpy as np

from ..errors import ExprError, caller_loc
from ..ir import build
from ..ir.buffer import FRAGMENT_SCOPES, GLOBAL, LOCAL, SHARED, SHARED_DYN, WMMA_SCOPES, Buffer
from ..ir.dtype import FLOAT_MAX, dtype_info, int_range, normalize_dtype
from ..ir.expr import Expr, FloatImm, IntImm, IterKind, IterVar, Range, TensorRead, Var
from ..ir.expr_ops import ExprOps
from ..ir.visit import walk_exprs
from ..likeness import meant
from .complexes import PART, ComplexTensor
from .like import DTypeLike, ExprLike, ShapeLike
from .operation import PlaceholderOp
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
        raise ExprError(f"the name of a {what} is text, not {name!r}", hint='a text: name="A"')
    return name


def called(kind: str, name: str) -> str:
    """An operation in a message: its kind and its name, where it was given one."""
    return kind if name == kind else f"{kind} {name}"


def var(name: str = "tindex", dtype: DTypeLike = "int32") -> Var:
    """A scalar variable: a symbolic size, or a scalar argument of a function.

    name: shown in loops and messages. dtype: of the value, int32 by default. Returns a Var. Raises ExprError for a
    name that is not text, and for an unknown dtype.

    >>> n = tec.var("n")
    >>> tec.placeholder((n, 128), name="A").shape
    (n, 128)
    """
    return Var(check_name(name, "variable"), normalize_dtype(dtype))


def size_var(name: str = "size", dtype: DTypeLike = "int32") -> Var:
    """A variable that is known not to be negative: a symbolic size.

    dtype: an integer type, int32 by default. Returns a Var. Raises ExprError for another dtype.

    >>> n = te.size_var("n")
    >>> te.compute((n + 1,), lambda i: i, name="A").shape
    (n + 1,)
    """
    dtype = normalize_dtype(dtype)
    if not dtype_info(dtype).is_int:
        raise ExprError(
            f"a size has an integer type, not {dtype}", hint="int32 or int64; tec.var makes a variable of any type"
        )
    return Var(check_name(name, "variable"), dtype, True)


def const(value: ExprLike, dtype: DTypeLike | None = None) -> Expr:
    """A constant.

    value: a bool, int, float, NumPy number or constant. dtype: its type; by default int32 for an int (int64 if it needs it),
    float32 for a float, and bool for a bool. Returns an expression. Raises ExprError for a number that the type does
    not hold: an integer beyond its range, or a finite float that would become infinity.

    >>> tec.const(3).dtype, tec.const(0.5, "float16").dtype
    ('int32', 'float16')
    """
    if not isinstance(value, (bool, int, float, np.generic, IntImm, FloatImm)):
        raise ExprError(
            f"cannot make a constant of {value!r} ({type(value).__name__})", hint="a bool, int, float or NumPy number"
        )
    return build.literal(value, dtype)


def as_extent(value: Any, what: str) -> Expr:
    """A dimension: a non-negative int or an integer expression; a whole float (32 / 4) is the int. Raises ExprError for one that is read from a tensor."""
    e = _as_count(value, what)
    if not isinstance(e, (IntImm, Var)) and any(isinstance(part, TensorRead) for part in walk_exprs(e)):
        raise ExprError(
            f"{what} is read from a tensor: {e}",
            hint="sizes are known before the code runs: take the largest, or a variable tec.var('n'); the extent of a reduction may be read",
        )
    return e


def _as_count(value: Any, what: str) -> Expr:
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
        raise ExprError(f"{what} is negative: {e.value}", hint="sizes are 0 or more")
    return e


def as_shape(shape: Any, what: str) -> tuple[Expr, ...]:
    """A tuple of dimensions; one int or expression stands for a vector."""
    if isinstance(shape, (int, np.integer, Expr, IterVar)) and not isinstance(shape, bool):
        shape = (shape,)
    if isinstance(shape, (str, dict, set, ExprOps)) or not hasattr(shape, "__iter__"):
        raise ExprError(f"the shape of {what} is {shape!r}", hint="give a tuple: (n, 128)")
    return tuple(as_extent(d, f"dimension {k} of {what}") for k, d in enumerate(shape))


def as_dtype(dtype: Any, what: str) -> str:
    """A dtype string; ExprError that names `what` otherwise."""
    try:
        return normalize_dtype(dtype)
    except ExprError as e:
        raise ExprError(f"{what}: {e.message}", hint=e.hint) from None


def placeholder(shape: ShapeLike, dtype: DTypeLike | None = None, name: str = "placeholder") -> Any:
    """An input tensor.

    shape: a tuple of sizes, which are ints or integer expressions; one size stands for a vector. dtype: of an
    element, float32 by default; complex64 and complex128 give a ComplexTensor. name: shown in loops and messages. Returns a Tensor. Raises ExprError for a negative
    or fractional size and for an unknown dtype.

    >>> tec.placeholder((1024, 64), "float16", name="A")
    Tensor(shape=[1024, 64], dtype=float16, op=A)
    """
    check_name(name, "placeholder")
    what = called("placeholder", name)
    given = str(np.dtype(dtype)) if isinstance(dtype, type) and issubclass(dtype, np.complexfloating) else str(dtype)
    if given in PART:
        op = PlaceholderOp(name, (*as_shape(shape, what), build.const(2)), PART[given])
        op.attrs["complex"] = given
        return ComplexTensor(op.output(0))
    return PlaceholderOp(name, as_shape(shape, what), as_dtype(dtype, what)).output(0)


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
            raise ExprError(
                f"the domain of {what} ends before it begins: ({begin}, {end})",
                hint="(begin, end) with end not below begin; of one number the domain begins at 0",
            )
        return Range(begin, extent)
    extent = _as_count(dom, f"the domain of {what}")
    return Range(build.const(0, extent.dtype), extent)


def reduce_axis(dom: Any, name: str = "rv", thread_tag: str = "") -> IterVar:
    """An axis to reduce over.

    dom: (begin, end), or an extent; ints or integer expressions. name: of the loop. thread_tag: a launch index for
    the loop. Returns an IterVar. Raises ExprError for a domain that ends before it begins, or is not of integers.

    >>> A, B = tec.placeholder((16, 128), name="A"), tec.placeholder((128, 32), name="B")
    >>> k = tec.reduce_axis((0, 128), name="k")
    >>> C = tec.compute((16, 32), lambda i, j: tec.sum(A[i, k] * B[k, j], axis=k), name="C")
    """
    r = as_range(dom, f"reduce axis {check_name(name, 'reduce axis')}")
    is_size = isinstance(r.min, IntImm) and r.min.value >= 0
    v = Var(name, r.extent.dtype, is_size)
    _AXIS_VARS[id(v)] = v
    _REDUCE_VARS[id(v)] = v
    return IterVar(v, r, IterKind.REDUCE, thread_tag, caller_loc())


def thread_axis(dom: Any = None, tag: str = "", name: str = "") -> IterVar:
    """A launch index to which a schedule binds loops.

    dom: the extent, as for `reduce_axis`; None takes that of the loop. tag: "blockIdx.x|y|z", "threadIdx.x|y|z" or
    "vthread". A tag alone may come first. Returns an IterVar. Raises ExprError for an unknown tag.

    >>> bx, tx = tec.thread_axis("blockIdx.x"), tec.thread_axis((0, 64), "threadIdx.x")
    """
    if isinstance(dom, str):
        dom, tag = (None, dom) if not tag else (tag, dom)
    if tag not in _THREAD_TAGS:
        question = meant(tag, _THREAD_TAGS[:-1])
        raise ExprError(f"unknown thread axis {tag!r}", hint=question or f"known: {', '.join(_THREAD_TAGS[:-1])}")
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


def is_reduce_axis(v: Var) -> bool:
    """Whether `v` is the variable of a reduce axis."""
    return _REDUCE_VARS.get(id(v)) is v


# ---- buffers


def _broadcast_strides(shape: tuple[Expr, ...]) -> tuple[Expr, ...]:
    """Row-major strides, 0 where a dimension has one element."""
    out: list[Expr] = []
    step: Expr = build.const(1)
    for n in reversed(shape):
        out.insert(0, build.if_then_else(build.compare("eq", n, 1), build.const(0), step))
        step = build.mul(step, n)
    return tuple(out)


def decl_buffer(
    shape: ShapeLike,
    dtype: DTypeLike | None = None,
    name: str = "buffer",
    data: Var | None = None,
    strides: Any = None,
    elem_offset: Any = None,
    scope: str = "",
    data_alignment: int = -1,
    offset_factor: int = 0,
    buffer_type: str = "",
) -> Buffer:
    """Storage with a layout of its own, for arguments (`binds`) and hand-written code.

    shape, dtype: as of `placeholder`. data: the variable of its pointer. strides, elem_offset: in elements; symbolic
    ones are bound at the call. scope: as in `Stage.set_scope`. data_alignment: in bytes, a power of two, 64 by
    default. offset_factor: the offset is a multiple of this many elements; an offset that is not given becomes a
    variable. buffer_type: "auto_broadcast" lets every index along a dimension of one element be that element, also if
    the dimension is known only at the call. Returns a Buffer. Raises ExprError.

    >>> tile = te.decl_buffer((16, 16), "float16", name="tile", offset_factor=16)
    >>> tile.elem_offset, tile.offset_factor
    (tile_elem_offset, 16)
    """
    check_name(name, "buffer")
    what = f"buffer {name}"
    dims = as_shape(shape, what)
    steps = tuple(as_index_expr(s, f"stride {k} of {what}") for k, s in enumerate(strides)) if strides else ()
    if steps and len(steps) != len(dims):
        raise ExprError(
            f"{what} has {len(dims)} dimensions and {len(steps)} strides", hint="one stride a dimension, in elements"
        )
    if buffer_type not in ("", "auto_broadcast") or (buffer_type and steps):
        raise ExprError(
            f"buffer_type {buffer_type!r} of {what}", hint='"auto_broadcast", of a buffer without strides of its own'
        )
    if buffer_type:
        steps = _broadcast_strides(dims)
    scope = WMMA_SCOPES.get(scope, scope or GLOBAL)
    if scope not in (GLOBAL, SHARED, SHARED_DYN, LOCAL, *FRAGMENT_SCOPES):
        raise ExprError(
            f"unknown scope {scope!r} of {what}", hint="global, shared, shared.dyn, local or fragment.a, .b, .acc"
        )
    if data_alignment != -1 and (data_alignment < 1 or data_alignment & (data_alignment - 1)):
        raise ExprError(f"data_alignment of {what} is {data_alignment}", hint="a power of two, in bytes")
    return Buffer(
        name,
        as_dtype(dtype, what),
        dims,
        steps,
        _offset(elem_offset, offset_factor, name),
        scope,
        64 if data_alignment == -1 else data_alignment,
        data,  # type: ignore[arg-type]  # None makes a pointer of the buffer's name
        caller_loc(),
        offset_factor,
    )


def _offset(elem_offset: Any, factor: int, name: str) -> Any:
    """Where a buffer begins, in elements: as given, or a variable if it is to be a multiple of `factor`."""
    what = f"buffer {name}"
    if factor < 0:
        raise ExprError(f"offset_factor of {what} is {factor}", hint="a number of elements from 0 on; 0 for any offset")
    if elem_offset is None:
        return Var(f"{name}_elem_offset", "int32", True) if factor else 0
    offset: Any = elem_offset if isinstance(elem_offset, int) else as_index_expr(elem_offset, f"elem_offset of {what}")
    if isinstance(offset, IntImm):
        offset = offset.value
    if isinstance(offset, int) and offset < 0:
        raise ExprError(
            f"elem_offset of {what} is negative: {offset}", hint="a buffer begins at its pointer or behind it"
        )
    return offset


def as_index_expr(value: Any, what: str) -> Expr:
    """An integer expression; negative ones too."""
    e = build.convert(value)
    if not dtype_info(e.dtype).is_int:
        raise ExprError(f"{what} has type {e.dtype}: {e}", hint="an integer")
    return e


# ---- limits of types


def max_value(dtype: DTypeLike) -> Expr:
    """The largest finite value of `dtype`, as a constant. Raises ExprError for a pointer.

    >>> te.max_value("int8"), te.max_value("uint8")
    (int8(127), uint8(255))
    """
    return _limit(dtype, 1)


def min_value(dtype: DTypeLike) -> Expr:
    """The most negative finite value of `dtype`, as a constant. Raises ExprError for a pointer.

    >>> te.min_value("int8"), te.min_value("uint8")
    (int8(-128), uint8(0))
    """
    return _limit(dtype, -1)


def _limit(dtype: Any, sign: int) -> Expr:
    dtype = normalize_dtype(dtype)
    element = dtype_info(dtype).element
    if element in FLOAT_MAX:
        return build.const(sign * FLOAT_MAX[element], dtype)
    if element == "handle":
        raise ExprError("a pointer has no largest value", hint="pass the type of what it points to")
    return build.const(int_range(element)[sign > 0], dtype)


def infinity(dtype: DTypeLike) -> Expr:
    """Positive infinity of `dtype`, as a constant. Raises ExprError for a type that has none.

    >>> -te.infinity("float32")
    float32("-inf")
    """
    dtype = normalize_dtype(dtype)
    if not dtype_info(dtype).is_float or "e4m3" in dtype or "fnuz" in dtype:
        raise ExprError(f"{dtype} has no infinity", hint="use tec.max_value(dtype)")
    return build.const(float("inf"), dtype)
