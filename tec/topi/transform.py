"""Operators that move elements: shapes, slices, gathers, sorts; and products of matrices."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from .. import te
from ..errors import ExprError
from ..ir.dtype import dtype_info, normalize_dtype
from ..ops.layouts import Layout
from ..te import Tensor
from ..te.tensor_ops import BROADCAST, elementwise
from .operators import axis_of, compute, output, outputs, sizes, tensor, type_of
from .slices import slice_of, strided_slice
from .tag import INJECTIVE

__all__ = [
    "arange", "argsort", "concatenate", "cumprod", "cumsum", "einsum", "expand_dims", "flip", "full", "full_like", "gather", "gather_nd", "layout_transform",
    "matmul", "one_hot", "repeat", "reshape", "shape", "sort", "split", "squeeze", "stack", "strided_slice", "take", "tensordot", "tile",
    "topk", "transpose", "trilu", "where",
]  # fmt: skip


def transpose(a: Tensor, axes: Sequence[int] | None = None) -> Tensor:
    """`a` with its dimensions in the order `axes`, in reverse by default. Raises ExprError where that is no permutation.

    >>> topi.transpose(te.placeholder((2, 3, 4), name="a"), (2, 0, 1)).shape
    (4, 2, 3)
    """
    x = tensor(a, "transpose")
    perm = tuple(range(x.ndim))[::-1] if axes is None else tuple(axis_of(k, x.ndim, "transpose") for k in axes)
    return output("transpose", [x], INJECTIVE, perm=perm)


def reshape(a: Tensor, newshape: Any) -> Tensor:
    """The elements of `a`, row by row, as a tensor of `newshape`, in which one dimension may be -1. Raises ExprError where the counts differ.

    >>> topi.reshape(te.placeholder((2, 6), name="a"), (3, 4)).shape
    (3, 4)
    """
    x = tensor(a, "reshape")
    wanted = list(newshape) if isinstance(newshape, (tuple, list)) else [newshape]
    if any(isinstance(n, int) and n == -1 for n in wanted):
        at = next(k for k, n in enumerate(wanted) if isinstance(n, int) and n == -1)
        rest = sizes([*wanted[:at], *wanted[at + 1 :]], "reshape")
        wanted[at : at + 1] = []
        made = [*rest[:at], type_of(x).size // (math.prod(rest) or 1), *rest[at:]]
    else:
        made = list(sizes(wanted, "reshape"))
    return output("reshape", [x], INJECTIVE, shape=tuple(made))


def flatten_all(x: Tensor) -> Tensor:
    """The elements of `x` in one dimension."""
    return reshape(x, (-1,))


def expand_dims(a: Tensor, axis: int, num_newaxis: int = 1) -> Tensor:
    """`a` with `num_newaxis` dimensions of 1 put in at `axis` (of the result's dimensions).

    >>> topi.expand_dims(te.placeholder((2, 3), name="a"), axis=1).shape
    (2, 1, 3)
    """
    x = tensor(a, "expand_dims")
    at = axis_of(axis, x.ndim + 1, "expand_dims")
    shape = (*x.shape[:at], *[1] * num_newaxis, *x.shape[at:])
    return compute(shape, lambda *i: x(*i[:at], *i[at + num_newaxis :]), name="expand_dims", tag=BROADCAST)


def squeeze(a: Tensor, axis: int | Sequence[int] | None = None) -> Tensor:
    """`a` without its dimensions of 1, or without those of `axis`. Raises ExprError for one that is not 1.

    >>> topi.squeeze(te.placeholder((2, 1, 3), name="a"), axis=1).shape
    (2, 3)
    """
    x = tensor(a, "squeeze")
    shape = type_of(x).shape
    if axis is None:
        gone = [k for k, n in enumerate(shape) if isinstance(n, int) and n == 1]
    else:
        gone = [axis_of(k, x.ndim, "squeeze") for k in (axis if isinstance(axis, (tuple, list)) else [axis])]
    wrong = [k for k in gone if not (isinstance(shape[k], int) and shape[k] == 1)]
    if wrong:
        raise ExprError(f"squeeze of axis {wrong[0]} of {shape[wrong[0]]} elements", hint="axes of one element")
    kept = [k for k in range(x.ndim) if k not in gone]

    def body(*i: Any) -> Any:
        index: list[Any] = [0] * x.ndim
        for k, v in zip(kept, i):
            index[k] = v
        return x(*index)

    return compute(tuple(x.shape[k] for k in kept), body, name="squeeze", tag=INJECTIVE)


def concatenate(a_tuple: Sequence[Tensor], axis: int = 0) -> Tensor:
    """The tensors one after another along `axis`. Raises ExprError where other dimensions differ.

    >>> topi.concatenate([te.placeholder((n, 3), name="a") for n in (2, 4)]).shape
    (6, 3)
    """
    xs = [tensor(x, "concatenate") for x in a_tuple]
    if not xs:
        raise ExprError("concatenate of nothing", hint="one tensor at least")
    return output("concat", xs, INJECTIVE, axis=axis_of(axis, xs[0].ndim, "concatenate"))


def stack(a_tuple: Sequence[Tensor], axis: int = 0) -> Tensor:
    """The tensors, all of one shape, along a new dimension at `axis`.

    >>> topi.stack([te.placeholder((3,), name=name) for name in "ab"]).shape
    (2, 3)
    """
    return concatenate([expand_dims(x, axis) for x in a_tuple], axis)


def split(ary: Tensor, indices_or_sections: int | Sequence[int], axis: int = 0) -> list[Tensor]:
    """`ary` cut along `axis` into so many equal parts, or before each of the indices. Raises ExprError where the parts are not equal.

    >>> [x.shape for x in topi.split(te.placeholder((6, 2), name="a"), 3)]
    [(2, 2), (2, 2), (2, 2)]
    """
    x = tensor(ary, "split")
    at = axis_of(axis, x.ndim, "split")
    n = type_of(x).shape[at]
    if isinstance(indices_or_sections, int):
        parts = indices_or_sections
        if parts < 1 or n % parts != 0:
            raise ExprError(f"split of {n} elements into {parts} parts", hint="a divisor, or indices where parts begin")
        cuts = [n // parts * k for k in range(parts + 1)]
    else:
        cuts = [0, *indices_or_sections, n]
    return [slice_of(x, at, a, 1, b - a) for a, b in pairwise(cuts)]


def flip(a: Tensor, axis: int = 0) -> Tensor:
    """`a` from its last element to its first along `axis`.

    >>> a = te.placeholder((3,), name="a")
    >>> te.evaluate([topi.flip(a)], {a: np.float32([1, 2, 3])})[0]
    array([3., 2., 1.], dtype=float32)
    """
    x = tensor(a, "flip")
    at = axis_of(axis, x.ndim, "flip")
    return compute(x.shape, lambda *i: x(*i[:at], x.shape[at] - 1 - i[at], *i[at + 1 :]), name="flip", tag=INJECTIVE)


def tile(a: Tensor, reps: Sequence[int]) -> Tensor:
    """`a` repeated `reps` times, one number a dimension; the shorter of both is filled up with 1 in front.

    >>> a = te.placeholder((2,), name="a")
    >>> te.evaluate([topi.tile(a, (2,))], {a: np.float32([1, 2])})[0]
    array([1., 2., 1., 2.], dtype=float32)
    """
    x = tensor(a, "tile")
    while x.ndim < len(reps):
        x = expand_dims(x, 0)
    return output("tile", [x], INJECTIVE, repeats=(*[1] * (x.ndim - len(reps)), *reps))


def repeat(a: Tensor, repeats: int, axis: int = 0) -> Tensor:
    """Each element of `a` `repeats` times in a row along `axis`.

    >>> a = te.placeholder((2,), name="a")
    >>> te.evaluate([topi.repeat(a, 2)], {a: np.float32([1, 2])})[0]
    array([1., 1., 2., 2.], dtype=float32)
    """
    x = tensor(a, "repeat")
    at = axis_of(axis, x.ndim, "repeat")
    shape = (*x.shape[:at], x.shape[at] * repeats, *x.shape[at + 1 :])
    return compute(shape, lambda *i: x(*i[:at], i[at] // repeats, *i[at + 1 :]), name="repeat", tag=BROADCAST)


def take(a: Tensor, indices: Tensor, axis: int | None = None) -> Tensor:
    """The slices of `a` along `axis` (of `a` laid flat by default) that `indices` name; negative ones count from the end, others are clipped.

    >>> a, i = te.placeholder((4, 3), name="a"), te.placeholder((2,), "int32", name="i")
    >>> topi.take(a, i, axis=0).shape
    (2, 3)
    """
    x, index = tensor(a, "take"), tensor(indices, "take")
    x, at = (flatten_all(x), 0) if axis is None else (x, axis_of(axis, x.ndim, "take"))
    return output("gather", [x, index], INJECTIVE, axis=at)


def gather(data: Tensor, axis: int, indices: Tensor) -> Tensor:
    """out[i, j, k] = data[i, indices[i, j, k], k] for `axis` 1.

    >>> a, i = te.placeholder((4, 3), name="a"), te.placeholder((2, 3), "int32", name="i")
    >>> topi.gather(a, 0, i).shape
    (2, 3)
    """
    x = tensor(data, "gather")
    return output("gather_elements", [x, tensor(indices, "gather")], INJECTIVE, axis=axis_of(axis, x.ndim, "gather"))


def gather_nd(a: Tensor, indices: Tensor, batch_dims: int = 0) -> Tensor:
    """out[y...] = a[indices[0, y...], indices[1, y...], ...]: the first dimension of `indices` is a point of `a`.

    >>> a, i = te.placeholder((4, 3), name="a"), te.placeholder((2, 5), "int32", name="i")
    >>> topi.gather_nd(a, i).shape
    (5,)
    """
    index = tensor(indices, "gather_nd")
    if batch_dims:
        raise ExprError(
            "gather_nd with batch_dims",
            hint="tec.ops' operator gather_nd has them; its points lie along the last dimension",
        )
    return output(
        "gather_nd", [tensor(a, "gather_nd"), transpose(index, (*range(1, index.ndim), 0))], INJECTIVE, batch_dims=0
    )


def where(condition: Tensor, x: Any, y: Any) -> Tensor:
    """`x` where `condition` holds, else `y`; tensors broadcast, numbers stand for themselves.

    >>> c, x = te.placeholder((3,), "bool", name="c"), te.placeholder((3,), name="x")
    >>> topi.where(c, x, 0.0).shape
    (3,)
    """
    pick = lambda c, a, b: te.select(c if c.dtype == "bool" else c != 0, a, b)  # noqa: E731
    return elementwise(pick, tensor(condition, "where"), x, y, name="where", tag=BROADCAST)


def full(shape: Any, dtype: Any, fill_value: Any) -> Tensor:
    """A tensor of `shape` and `dtype` that holds `fill_value` everywhere.

    >>> te.evaluate([topi.full((2,), "float32", 7.0)], {})[0]
    array([7., 7.], dtype=float32)
    """
    return compute(shape, lambda *i: te.cast(dtype, fill_value), name="full", tag=BROADCAST)


def full_like(x: Tensor, fill_value: Any) -> Tensor:
    """A tensor like `x` that holds `fill_value` everywhere.

    >>> topi.full_like(te.placeholder((2, 3), "int32", name="x"), 7).dtype
    'int32'
    """
    return full(x.shape, x.dtype, fill_value)


def arange(start: int, stop: int | None = None, step: int = 1, dtype: str = "float32") -> Tensor:
    """start, start + step, ... below `stop`.

    >>> te.evaluate([topi.arange(1, 7, 2)], {})[0]
    array([1., 3., 5.], dtype=float32)
    """
    first, last = (0, start) if stop is None else (start, stop)
    count = max(0, math.ceil((last - first) / step))
    return compute((count,), lambda i: te.cast(dtype, first + i * step), name="arange", tag=INJECTIVE)


def shape(array: Tensor, dtype: str = "int32") -> Tensor:
    """The shape of `array` as a tensor.

    >>> te.evaluate([topi.shape(te.placeholder((2, 3), name="x"))], {})[0]
    array([2, 3], dtype=int32)
    """
    x = tensor(array, "shape")

    def body(i: Any) -> Any:
        value = te.const(0, dtype)
        for k, n in enumerate(x.shape):
            value = te.select(i == k, te.cast(dtype, n), value)
        return value

    return compute((x.ndim,), body, name="shape", tag=INJECTIVE)


def one_hot(indices: Tensor, on_value: Any, off_value: Any, depth: int, axis: int, dtype: str) -> Tensor:
    """`on_value` at the place along a new `axis` of `depth` that the index names, else `off_value`.

    >>> i = te.placeholder((2,), "int32", name="i")
    >>> te.evaluate([topi.one_hot(i, 1.0, 0.0, 3, -1, "float32")], {i: np.int32([2, 0])})[0]
    array([[0., 0., 1.],
           [1., 0., 0.]], dtype=float32)
    """
    x = tensor(indices, "one_hot")
    at = axis_of(axis, x.ndim + 1, "one_hot")
    on, off = te.const(on_value, dtype), te.const(off_value, dtype)
    dims = (*x.shape[:at], depth, *x.shape[at:])
    return compute(
        dims, lambda *i: te.select(x(*i[:at], *i[at + 1 :]) == i[at], on, off), name="one_hot", tag=INJECTIVE
    )


def trilu(data: Tensor, k: int, upper: bool) -> Tensor:
    """The upper or lower triangle of the last two dimensions from diagonal `k`; zero elsewhere.

    >>> a = te.placeholder((2, 2), name="a")
    >>> te.evaluate([topi.trilu(a, 0, upper=True)], {a: np.ones((2, 2), "float32")})[0]
    array([[1., 1.],
           [0., 1.]], dtype=float32)
    """
    return output("trilu", [tensor(data, "trilu")], INJECTIVE, k=k, upper=upper)


def _layout(name: str) -> Layout:
    try:
        layout = Layout(name)
        layout.dims  # noqa: B018 - read to check the name
    except ValueError as e:
        raise ExprError(str(e), hint='letters for axes, a number before a small one for a block: "NCHW16c"') from None
    return layout


def layout_transform(array: Tensor, src_layout: str, dst_layout: str) -> Tensor:
    """`array`, which lies as `src_layout` ("NCHW"), as `dst_layout` ("NCHW8c", "NHWC"). Raises ExprError for layouts that do not fit it.

    >>> topi.layout_transform(te.placeholder((1, 32, 7, 7), name="a"), "NCHW", "NCHW8c").shape
    (1, 4, 7, 7, 8)
    """
    x = tensor(array, "layout_transform")
    one, other = _layout(src_layout), _layout(dst_layout)
    axes = [{letter.upper() for d in layout.dims for letter in d} for layout in (one, other)]
    if axes[0] != axes[1] or len(one.dims) != x.ndim:
        raise ExprError(
            f"layout_transform of {x.name} ({x.ndim} dimensions) from {src_layout} to {dst_layout}: the axes differ"
        )
    return output(
        "transform_layout", [x], INJECTIVE, layouts=(one, other), sizes=tuple(one.sizes(type_of(x).shape).items())
    )


def sort(data: Tensor, axis: int = -1, is_ascend: bool = True) -> Tensor:
    """The elements in order along `axis`; NaN is above every number.

    >>> topi.sort(te.placeholder((4,), name="a")).shape
    (4,)
    """
    return _ordered(data, axis, is_ascend)[0]


def argsort(data: Tensor, axis: int = -1, is_ascend: bool = True, dtype: str = "float32") -> Tensor:
    """The indices that put `data` in order along `axis`; of equals the first comes first.

    >>> topi.argsort(te.placeholder((4,), name="a"), dtype="int32").dtype
    'int32'
    """
    index: Tensor = _ordered(data, axis, is_ascend)[1].astype(dtype)
    return index


def _ordered(data: Tensor, axis: int, ascending: bool) -> list[Tensor]:
    x = tensor(data, "sort")
    at = axis_of(axis, x.ndim, "sort")
    return outputs("topk", [x], axis=at, k=type_of(x).shape[at], largest=not ascending)


def topk(
    data: Tensor, k: int = 1, axis: int = -1, ret_type: str = "both", is_ascend: bool = False, dtype: str = "int64"
) -> Any:
    """The `k` largest elements along `axis` (smallest: `is_ascend`; all for a k below 1) and their indices, or what `ret_type` ("values", "indices") names of that.

    >>> [x.shape for x in topi.topk(te.placeholder((2, 8), name="a"), k=3)]
    [(2, 3), (2, 3)]
    """
    x = tensor(data, "topk")
    k = k if k > 0 else type_of(x).shape[axis]
    values, index = outputs("topk", [x], axis=axis_of(axis, x.ndim, "topk"), k=k, largest=not is_ascend)
    if ret_type not in ("both", "values", "indices"):
        raise ExprError(f"topk with ret_type {ret_type!r}", hint="it is 'both', 'values' or 'indices'")
    index = index if dtype == "int64" else index.astype(dtype)
    return values if ret_type == "values" else index if ret_type == "indices" else [values, index]


def _running(name: str, data: Tensor, axis: int | None, dtype: str | None, exclusive: bool | None) -> Tensor:
    x = tensor(data, name)
    x, at = (flatten_all(x), 0) if axis is None else (x, axis_of(axis, x.ndim, name))
    x = x if dtype in (None, x.dtype) else x.astype(dtype)
    return output(name, [x], axis=at, exclusive=bool(exclusive), reverse=False)


def cumsum(data: Tensor, axis: int | None = None, dtype: str | None = None, exclusive: bool | None = None) -> Tensor:
    """The running sum along `axis`, of `data` laid flat by default; `exclusive` leaves the element itself out.

    >>> topi.cumsum(te.placeholder((2, 3), name="a"), axis=1).shape
    (2, 3)
    """
    return _running("cumsum", data, axis, dtype, exclusive)


def cumprod(data: Tensor, axis: int | None = None, dtype: str | None = None, exclusive: bool | None = None) -> Tensor:
    """The running product along `axis`, of `data` laid flat by default; `exclusive` leaves the element itself out.

    >>> topi.cumprod(te.placeholder((2, 3), name="a"), axis=1).shape
    (2, 3)
    """
    return _running("cumprod", data, axis, dtype, exclusive)


# ---- products


def matmul(
    a: Tensor, b: Tensor, transp_a: bool = False, transp_b: bool = False, out_dtype: str | None = None
) -> Tensor:
    """The product of the last two dimensions of `a` and `b`, either transposed; leading ones broadcast. 16-bit floats add up in 32 bits, and
    with out_dtype "float32" are not rounded to 16. Where out_dtype is wider than the sums would be, the factors become it first, as in TVM.

    >>> topi.matmul(te.placeholder((2, 3), name="a"), te.placeholder((4, 3), name="b"), transp_b=True).shape
    (2, 4)
    """
    x, y = tensor(a, "matmul"), tensor(b, "matmul")
    out_dtype = None if out_dtype is None else normalize_dtype(out_dtype)
    wide = {"out_dtype": out_dtype} if out_dtype == "float32" and x.dtype == y.dtype != out_dtype else {}
    made = output("matmul", [x, y], transpose_a=bool(transp_a), transpose_b=bool(transp_b), **wide)
    if out_dtype is None or out_dtype == made.dtype:
        return made
    if dtype_info(out_dtype).bits > dtype_info(made.dtype).bits:
        made = matmul(x.astype(out_dtype), y.astype(out_dtype), transp_a, transp_b)
    return made.astype(out_dtype) if out_dtype != made.dtype else made


def tensordot(a: Tensor, b: Tensor, axes: Any = 2) -> Tensor:
    """Sums of products over axes of `a` and `b`: the last and the first so many, or the pairs of two lists.

    >>> topi.tensordot(te.placeholder((2, 3), name="a"), te.placeholder((3, 4), name="b"), axes=1).shape
    (2, 4)
    """
    x, y = tensor(a, "tensordot"), tensor(b, "tensordot")
    if isinstance(axes, int):
        of_a, of_b = list(range(x.ndim - axes, x.ndim)), list(range(axes))
    else:
        of_a, of_b = ([v] if isinstance(v, int) else list(v) for v in axes)
    of_a, of_b = [axis_of(k, x.ndim, "tensordot") for k in of_a], [axis_of(k, y.ndim, "tensordot") for k in of_b]
    if len(of_a) != len(of_b):
        raise ExprError(f"tensordot over {len(of_a)} and {len(of_b)} axes", hint="as many axes of each, in pairs")
    free = iter("abcdefghijklmnopqrstuvwxyz")
    left = [next(free) for _ in range(x.ndim)]
    right = [left[of_a[of_b.index(k)]] if k in of_b else next(free) for k in range(y.ndim)]
    kept = [c for k, c in enumerate(left) if k not in of_a] + [c for k, c in enumerate(right) if k not in of_b]
    return einsum(f"{''.join(left)},{''.join(right)}->{''.join(kept)}", x, y)


def einsum(subscripts: str, *operand: Tensor) -> Tensor:
    """Einstein's sums in NumPy's notation.

    >>> topi.einsum("ij,jk->ik", te.placeholder((2, 3), name="a"), te.placeholder((3, 4), name="b")).shape
    (2, 4)
    """
    return output("einsum", [tensor(x, "einsum") for x in operand], equation=subscripts)
