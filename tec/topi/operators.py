"""The road from a function of this package to an operator of `tec.ops`: its checks and its te definition."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

from .. import te
from ..errors import ExprError, ImportModelError
from ..ir.expr import Expr, Var
from ..ir.visit import walk_exprs
from ..ops.registry import TensorType, get_op, normalize_axis, static_shape
from ..ops.size_exprs import from_expr
from ..ops.size_vars import adopt
from ..te import Tensor, tag_scope
from ..te.build import as_extent
from ..te.tags import current_tag


def tensor(x: Any, what: str) -> Tensor:
    """`x`, which must be a tensor."""
    if not isinstance(x, Tensor):
        raise ExprError(f"{what} takes tensors, not {x!r}", hint="declare it with tec.placeholder or tec.compute")
    return x


def compute(shape: Any, f: Callable[..., Any], name: str, tag: str) -> Tensor:
    """`te.compute` of one output."""
    made: Tensor = te.compute(shape, f, name=f"T_{name}", tag=tag)
    return made


def size(n: Any, what: str) -> Any:
    """A dimension as the operators know it, from an int or an expression of the user's variables."""
    e: Expr = as_extent(n, what)
    for v in walk_exprs(e):
        if isinstance(v, Var):
            adopt(v)
    return from_expr(e)


def sizes(shape: Any, what: str) -> tuple[Any, ...]:
    """`size` of each dimension; one number stands for a vector's shape."""
    return tuple(size(n, what) for n in (shape if isinstance(shape, (tuple, list)) else (shape,)))


def type_of(x: Tensor) -> TensorType:
    """dtype and shape of a tensor as the operators know them."""
    sizes(x.shape, f"a dimension of {x.name}")
    return TensorType(x.dtype, static_shape(x))


def check_sizes(what: str, *pairs: tuple[Any, Any]) -> None:
    """Raises ExprError for the first pair of sizes that are certain to differ: numbers, not variables."""
    for a, b in pairs:
        m, n = getattr(a, "value", a), getattr(b, "value", b)
        if isinstance(m, int) and isinstance(n, int) and m != n:
            raise ExprError(f"{what}: {m} and {n} elements meet", hint="sizes that meet are equal")


def axis_of(axis: Any, ndim: int, what: str) -> int:
    """An axis counted from the front. Raises ExprError where it is no integer, or there is no such dimension."""
    if not isinstance(axis, int) or isinstance(axis, bool):
        raise ExprError(f"{what}: the axis is {axis!r}", hint="an integer")
    try:
        return normalize_axis(axis, ndim)
    except ImportModelError as e:
        raise ExprError(
            f"{what}: {e.message}", hint=e.hint or "inputs and attributes as of the ONNX operator of that name"
        ) from None


def outputs(name: str, inputs: list[Tensor], tag: str = "", /, **attrs: Any) -> list[Tensor]:
    """The outputs of operator `name` of `tec.ops`. Raises ExprError where the inputs or the attributes do not fit it."""
    op = get_op(name)
    try:
        types = [type_of(x) for x in inputs]
        made = op.infer(types, attrs)
        with tag_scope(tag) if tag and not current_tag() else nullcontext():
            return op.compute(attrs, inputs, made)
    except ImportModelError as e:
        raise ExprError(e.message, hint=e.hint) from None


def output(name: str, inputs: list[Tensor], tag: str = "", /, **attrs: Any) -> Tensor:
    """The first output of operator `name`."""
    return outputs(name, inputs, tag, **attrs)[0]
