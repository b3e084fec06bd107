"""Products: they are the graph compiler's, with its templates for each target; what follows one element by element is fused with it."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from . import build, dtypes
from .array import Array, node_of, pair
from .errors import ArrayTypeError, ArrayValueError
from .manipulation import axis_of
from .node import Node
from .node import broadcast_shapes as common
from .statistical import reduce


def _numbers(name: str, a: Node) -> None:
    if a.dtype == "bool":
        raise ArrayTypeError(f"{name} of bools", hint='tec.array.astype(x, "int32")')


def _product(a: Node, b: Node) -> Node:
    """Products of the last two dimensions of operands of at least two."""
    m, k, n = a.shape[-2], a.shape[-1], b.shape[-1]
    batch = common([a.shape[:-2], b.shape[:-2]])
    if k != b.shape[-2] or batch is None:
        raise ArrayValueError(
            f"matmul of shapes {a.shape} and {b.shape}",
            hint="the last extent of the first is the last but one of the second",
        )
    shape = (*batch, m, n)
    if k == 0 or 0 in shape:
        return build.full(0, shape, a.dtype, a.device)
    out = () if a.dtype not in ("float16", "bfloat16") else (("out_dtype", str(a.dtype)),)
    if dtypes.is_int(a.dtype):
        out = (("out_dtype", str(a.dtype)),)
    return build.matmul(a, b, shape, out)


def matmul(x1: Array, x2: Array, /) -> Array:
    """The matrix product of the last two dimensions. Other dimensions broadcast. An array of one dimension is a row
    (x1) or a column (x2).

    >>> xp.matmul(xp.ones((2, 3)), xp.ones((3, 4))).shape
    (2, 4)
    """
    node_of(x1), node_of(x2)
    a, b = pair(x1, x2)
    _numbers("matmul", a)
    build.one_device((a, b))
    if not a.shape or not b.shape:
        raise ArrayValueError("matmul of an array of 0 dimensions", hint="x * y multiplies by a number")
    row, column = len(a.shape) == 1, len(b.shape) == 1
    a = build.reshape(a, (1, *a.shape)) if row else a
    b = build.reshape(b, (*b.shape, 1)) if column else b
    made = _product(a, b)
    shape = made.shape[: -2 if row else -1] + (made.shape[-1:] if row and not column else ())
    if row or column:
        shape = tuple(
            m
            for k, m in enumerate(made.shape)
            if not (row and k == len(made.shape) - 2) and not (column and k == len(made.shape) - 1)
        )
        made = build.reshape(made, shape)
    return Array(made)


def matrix_transpose(x: Array, /) -> Array:
    """The last two dimensions exchanged.

    >>> xp.matrix_transpose(xp.asarray([[1, 2], [3, 4]]))
    Array([[1, 3],
           [2, 4]], dtype=int64)
    """
    node_of(x)
    return x.mT


def vecdot(x1: Array, x2: Array, /, *, axis: int = -1) -> Array:
    """The sum of products along `axis`, which both have; others broadcast.

    >>> xp.vecdot(xp.asarray([1, 2]), xp.asarray([3, 4]))
    Array(11, dtype=int64)
    """
    node_of(x1), node_of(x2)
    a, b = pair(x1, x2)
    _numbers("vecdot", a)
    if not a.shape or not b.shape or not -min(len(a.shape), len(b.shape)) <= axis < 0:
        raise ArrayValueError(
            f"vecdot of shapes {a.shape} and {b.shape} along axis {axis}",
            hint="an axis is negative: -1 is the last of both",
        )
    if a.shape[axis] != b.shape[axis]:
        raise ArrayValueError(
            f"vecdot of shapes {a.shape} and {b.shape} along axis {axis}", hint="vectors of one length along the axis"
        )
    product = build.binary("multiply", build.unary("conj", a) if dtypes.is_complex(a.dtype) else a, b)
    return Array(reduce("sum", product, axis, False))


def tensordot(x1: Array, x2: Array, /, axes: Any = 2) -> Array:
    """The sum of products over the last `axes` dimensions of the first and the first ones of the second; or over two lists of dimensions.

    >>> xp.tensordot(xp.ones((2, 3)), xp.ones((3, 4)), axes=1).shape
    (2, 4)
    """
    node_of(x1), node_of(x2)
    a, b = pair(x1, x2)
    _numbers("tensordot", a)
    if isinstance(axes, (tuple, list)):
        left, right = (
            [axis_of(k, len(n.shape)) for k in (g if isinstance(g, Sequence) else (g,))]
            for n, g in ((a, axes[0]), (b, axes[1]))
        )
    else:
        if not 0 <= axes <= min(len(a.shape), len(b.shape)):
            raise ArrayValueError(
                f"tensordot of shapes {a.shape} and {b.shape} over {axes} axes",
                hint="the extents of the axes that are multiplied are equal",
            )
        left, right = list(range(len(a.shape) - axes, len(a.shape))), list(range(axes))
    if (
        [a.shape[k] for k in left] != [b.shape[k] for k in right]
        or len(set(left)) != len(left)
        or len(set(right)) != len(right)
    ):
        raise ArrayValueError(
            f"tensordot of shapes {a.shape} and {b.shape} over {axes}",
            hint="the extents of the axes that are multiplied are equal",
        )
    rows = [k for k in range(len(a.shape)) if k not in left]
    columns = [k for k in range(len(b.shape)) if k not in right]
    shape = tuple(a.shape[k] for k in rows) + tuple(b.shape[k] for k in columns)
    m, n = prod(a.shape[k] for k in rows), prod(b.shape[k] for k in columns)
    inner = prod(a.shape[k] for k in left)
    a = build.reshape(build.transpose(a, (*rows, *left)), (m, inner))
    b = build.reshape(build.transpose(b, (*right, *columns)), (inner, n))
    return Array(build.reshape(_product(a, b), shape))


def _product_with(self: Array, other: Any) -> Array:
    node_of(other, "the operand of @")
    return matmul(self, other)


def _matmul_in_place(self: Array, other: Any) -> Array:
    made = _product_with(self, other)._node
    if made.dtype != self.dtype or made.shape != self.shape:
        raise ArrayValueError(
            f"an array of shape {self.shape} cannot become one of {made.dtype} and shape {made.shape} in place",
            hint="x = x @ y",
        )
    self._become(made)
    return self


def _product_before(self: Array, other: Any) -> Array:
    node_of(other, "the operand of @")
    return matmul(other, self)


for _name, _method in (("matmul", _product_with), ("imatmul", _matmul_in_place), ("rmatmul", _product_before)):
    setattr(Array, f"__{_name}__", _method)
