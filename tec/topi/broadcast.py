"""Operators of two tensors, or of a tensor and a scalar: element by element, shapes broadcast as NumPy's do."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from .. import te
from ..errors import ExprError, listed
from ..ir import build
from ..ir.structural import structural_equal
from ..te import Tensor
from ..te.build import as_shape
from ..te.tensor_ops import BROADCAST, broadcast_dims, elementwise
from .operators import check_sizes, tensor

__all__ = [
    "add", "bitwise_and", "bitwise_or", "bitwise_xor", "broadcast_to", "divide", "elemwise_sum", "equal", "expand_like", "floor_divide", "floor_mod", "greater", "greater_equal",
    "left_shift", "less", "less_equal", "logical_and", "logical_or", "logical_xor", "maximum", "minimum", "mod", "multiply", "not_equal", "power",
    "right_shift", "subtract",
]  # fmt: skip


def _binary(name: str, f: Callable[[Any, Any], Any], text: str, of: str = "float32") -> Callable[[Any, Any], Any]:
    def operator(lhs: Any, rhs: Any) -> Any:
        if not isinstance(lhs, Tensor) and not isinstance(rhs, Tensor):
            return f(lhs, rhs)  # of two scalars it is an expression
        return elementwise(f, lhs, rhs, name=name)

    operator.__name__ = operator.__qualname__ = name
    operator.__doc__ = f"""{text}, element by element. Operands: tensors, which broadcast, and scalars; of two scalars the expression. Raises ExprError.

    >>> a, b = te.placeholder((2, 3), "{of}", name="a"), te.placeholder((3,), "{of}", name="b")
    >>> topi.{name}(a, b).shape
    (2, 3)
    """
    return operator


def _compare(how: str) -> Callable[[Any, Any], Any]:
    return lambda a, b: build.compare(how, a, b)


add = _binary("add", build.add, "lhs + rhs")
subtract = _binary("subtract", build.sub, "lhs - rhs")
multiply = _binary("multiply", build.mul, "lhs * rhs")
divide = _binary("divide", te.div, "lhs / rhs; integers divide toward zero")
floor_divide = _binary("floor_divide", te.floordiv, "lhs // rhs, toward minus infinity")
mod = _binary("mod", te.truncmod, "The rest of lhs / rhs, of the sign of lhs")
floor_mod = _binary("floor_mod", te.floormod, "The rest of lhs // rhs, of the sign of rhs")
power = _binary("power", te.power, "lhs to the power of rhs")
maximum = _binary("maximum", te.maximum, "The larger one")
minimum = _binary("minimum", te.minimum, "The smaller one")
left_shift = _binary("left_shift", build.left_shift, "lhs << rhs", "int32")
right_shift = _binary("right_shift", build.right_shift, "lhs >> rhs", "int32")
bitwise_and = _binary("bitwise_and", te.bitwise_and, "lhs & rhs", "int32")
bitwise_or = _binary("bitwise_or", te.bitwise_or, "lhs | rhs", "int32")
bitwise_xor = _binary("bitwise_xor", te.bitwise_xor, "lhs ^ rhs", "int32")
logical_and = _binary("logical_and", lambda a, b: te.all(a, b), "lhs and rhs, both bool", "bool")
logical_or = _binary("logical_or", lambda a, b: te.any(a, b), "lhs or rhs, both bool", "bool")
logical_xor = _binary("logical_xor", _compare("ne"), "Exactly one of lhs and rhs, both bool", "bool")
greater = _binary("greater", _compare("gt"), "lhs > rhs")
greater_equal = _binary("greater_equal", _compare("ge"), "lhs >= rhs")
less = _binary("less", _compare("lt"), "lhs < rhs")
less_equal = _binary("less_equal", _compare("le"), "lhs <= rhs")
equal = _binary("equal", _compare("eq"), "lhs == rhs")
not_equal = _binary("not_equal", _compare("ne"), "lhs != rhs")


def elemwise_sum(xs: Sequence[Tensor]) -> Tensor:
    """The sum of some tensors, element by element. Raises ExprError for none.

    >>> x = te.placeholder((3,), name="x")
    >>> te.evaluate([topi.elemwise_sum([x, x, x])], {x: np.float32([1, 2, 3])})[0]
    array([3., 6., 9.], dtype=float32)
    """
    if not xs:
        raise ExprError("elemwise_sum of no tensors", hint="give a list of at least one")
    total = tensor(xs[0], "elemwise_sum")
    for x in xs[1:]:
        total = add(total, tensor(x, "elemwise_sum"))
    return total if len(xs) > 1 else elementwise(lambda e: e, total, name="elemwise_sum")  # a tensor of its own


def broadcast_to(data: Tensor, shape: Any) -> Tensor:
    """`data` repeated to `shape` under NumPy's rule. Raises ExprError where the shapes do not fit.

    >>> topi.broadcast_to(te.placeholder((3,), name="x"), (2, 3)).shape
    (2, 3)
    """
    x = tensor(data, "broadcast_to")
    wanted = as_shape(shape, "broadcast_to")
    common = broadcast_dims(x.shape, wanted)
    if len(common) != len(wanted) or not all(map(structural_equal, common, wanted)):
        raise ExprError(
            f"{x.name} of shape ({', '.join(map(str, x.shape))}) does not broadcast to ({', '.join(map(str, wanted))})",
            hint="sizes that are equal or 1, aligned at the last dimension",
        )
    return elementwise(lambda v: v, x, name="broadcast_to", tag=BROADCAST, shape=wanted)


def expand_like(a: Tensor, shape_like: Tensor, axis: Sequence[int]) -> Tensor:
    """`a` with new dimensions at `axis`, of the sizes that `shape_like` has there. Raises ExprError where these are not all that `a` lacks.

    >>> topi.expand_like(te.placeholder((3,), name="a"), te.placeholder((3, 3, 2), name="b"), [1, 2]).shape
    (3, 3, 2)
    """
    x, like = tensor(a, "expand_like"), tensor(shape_like, "expand_like")
    new = {k % max(like.ndim, 1) for k in axis}
    if len(new) + x.ndim != like.ndim:
        if x.ndim == 1 and len(new) == like.ndim:  # a number, as one element
            check_sizes("expand_like of a number", (x.shape[0], 1))
            return elementwise(lambda v: v, x, name="expand_like", tag=BROADCAST, shape=like.shape)
        raise ExprError(
            f"expand_like of {x.ndim} dimensions to {like.ndim} by {len(new)} new ones",
            hint="axis names each dimension of shape_like that a has not",
        )
    check_sizes("expand_like", *zip(x.shape, [n for k, n in enumerate(like.shape) if k not in new]))
    made: Tensor = te.compute(
        like.shape, lambda *i: x(*(at for k, at in enumerate(i) if k not in new)), name="expand_like", tag=BROADCAST
    )
    return made


__dir__ = listed(__name__)
