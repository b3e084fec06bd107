"""Operators of whole tensors: `A + B`, `2 * A`, `-A`, `A < B` each compute a tensor, element by element.

Shapes broadcast as NumPy's do: aligned at the last dimension, a dimension of 1 repeats. Types promote as in expressions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ..errors import ExprError
from ..ir import build, expr_ops
from ..ir.expr import Expr, IntImm
from ..ir.structural import structural_equal
from ..ir.visit import walk_exprs
from .build import is_axis
from .computation import compute
from .tensor import Tensor

# What is computed with one tensor and scalars, and what with several tensors: the tags by which schedules tell them apart.
ELEMWISE = "elemwise"
BROADCAST = "broadcast"


def elementwise(
    f: Callable[..., Any], *operands: Any, name: str | None = None, tag: str | None = None, shape: Any = None
) -> Tensor:
    """The tensor of `f` of the elements of `operands`: tensors, which broadcast, and scalars.

    `name`: of the operation, `T_add` for an `f` called `add` by default. `tag`: "elemwise" where one tensor is computed with, else
    "broadcast". `shape`: the result's, where it is not what the operands broadcast to. Raises ExprError.
    """
    tensors = [x for x in operands if isinstance(x, Tensor)]
    _no_axes(operands, max(tensors, key=lambda t: t.ndim))
    dims = broadcast_dims(*(t.shape for t in tensors)) if shape is None else shape

    def body(*i: Any) -> Any:
        return f(*(x(*broadcast_at(x.shape, i)) if isinstance(x, Tensor) else x for x in operands))

    if tag is None:
        tag = ELEMWISE if len(tensors) == 1 else BROADCAST
    return compute(dims, body, name=f"T_{name or f.__name__}", tag=tag)  # type: ignore[no-any-return]


def broadcast_dims(*shapes: Sequence[Expr]) -> tuple[Expr, ...]:
    """The common shape under NumPy's rule. Raises ExprError where there is none, or where symbolic sizes leave it open."""
    ndim = max(map(len, shapes), default=0)
    return tuple(
        _common([s[k - ndim + len(s)] for s in shapes if k - ndim + len(s) >= 0], shapes, k) for k in range(ndim)
    )


def _is_one(n: Expr) -> bool:
    return isinstance(n, IntImm) and n.value == 1


def _common(sizes: Sequence[Expr], shapes: Sequence[Sequence[Expr]], k: int) -> Expr:
    wide = [n for n in sizes if not _is_one(n)]
    if not wide:
        return sizes[0]
    for n in wide[1:]:
        if not (n is wide[0] or structural_equal(n, wide[0])):
            texts = " and ".join(f"({', '.join(map(str, s))})" for s in shapes)
            both = isinstance(n, IntImm) and isinstance(wide[0], IntImm)
            raise ExprError(
                f"shapes {texts} do not broadcast: dimension {k} is {wide[0]} and {n}",
                hint=None if both else "give sizes that are equal one variable",
            )
    return wide[0]


def broadcast_at(shape: Sequence[Expr], index: Sequence[Any]) -> tuple[Any, ...]:
    """The index into a tensor of `shape` for the element `index` of what it broadcasts to."""
    tail = index[len(index) - len(shape) :]
    return tuple(0 if _is_one(n) else i for n, i in zip(shape, tail))


def _no_axes(operands: Sequence[Any], tensor: Tensor) -> None:
    """Inside of a compute's function a tensor meets the value of one element: an index is missing."""
    for x in operands:
        if isinstance(x, Tensor) or not isinstance(x, expr_ops.ExprOps):
            continue
        if any(is_axis(e) for e in walk_exprs(build.convert(x))):
            tensor.asexpr()  # raises: says how to index it


expr_ops.elementwise = elementwise
