"""The gradient of an operator as an operator: `vjp` (vector-Jacobian product), made from the operator's own te definition.

    vjp(inputs..., head; of="softmax", attrs=(("axes", (1,)),), wrt=0, out=0)

`head` is the gradient of some value by output `out` of the operator; the result is that by its input `wrt`. An operator for which better
work exists (a product's gradients are products) has a rule of its own on its `OpDef` (see tec/graph/gradient_rules.py).
"""

from __future__ import annotations

from collections.abc import Sequence

from ..autodiff import gradient
from ..te import Tensor
from .registry import OPAQUE, Attrs, TensorType, fail, get_op, register, static_shape


def _vjp_type(types: Sequence[TensorType], attrs: Attrs) -> list[TensorType]:
    *primal, head = types
    outs = get_op(attrs["of"]).infer(primal, dict(attrs["attrs"]))
    want = outs[attrs["out"]]
    if head != want:
        raise fail(f"the gradient of {attrs['of']} takes a head of {want}, not {head}")
    return [primal[attrs["wrt"]]]


@register("vjp", OPAQUE, _vjp_type)
def _vjp(attrs: Attrs, inputs: list[Tensor], outputs: list[TensorType]) -> list[Tensor]:
    """The gradient by input `wrt` of the operator `of` with `attrs` (a tuple of pairs), given that by its output `out`, the last input."""
    *primal, head = inputs
    definition, own = get_op(attrs["of"]), dict(attrs["attrs"])
    types = definition.infer([TensorType(t.dtype, static_shape(t)) for t in primal], own)
    made = definition.compute(own, primal, types)
    return gradient(made[attrs["out"]], [primal[attrs["wrt"]]], head)
