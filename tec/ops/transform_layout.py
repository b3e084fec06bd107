"""Copies from one layout to another, which stand where a value's producer and its reader want different ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .. import te
from ..te import Tensor
from .forms import Form, carry
from .layouts import Layout, plain, whole
from .registry import INJECTIVE, Attrs, TensorType, fail, register, static_shape


def _type(types: Sequence[TensorType], attrs: Attrs) -> list[TensorType]:
    source, made = attrs["layouts"]
    sizes = dict(attrs["sizes"])
    if types[0].shape != source.shape({**sizes, "C": attrs.get("from_channels", sizes["C"])}):
        raise fail(f"{types[0]} does not lie as {source} of {sizes}")
    return [TensorType(types[0].dtype, made.shape(sizes))]


def filled_channels(sizes: Attrs, fill: int, groups: int) -> tuple[Attrs, Attrs]:
    """The sizes of an image's axes where the channels of each of some groups are filled up to a multiple of `fill`, and what else of that the operator is told."""
    channels = sizes["C"]
    filled = channels + groups * (-(channels // groups) % fill)
    if filled == channels:
        return sizes, {}
    return {**sizes, "C": filled}, {"from_channels": channels, **({"groups": groups} if groups > 1 else {})}


@register("transform_layout", INJECTIVE, _type, takes=1)
def _transform_layout(attrs: Attrs, inputs: list[Tensor], outputs: list[TensorType]) -> list[Tensor]:
    """The input, which lies as the first of `layouts`, as the second one. `sizes`: (axis, size) of the result's axes, of which channels may be more
    than there are (`from_channels`), behind those of each of `groups`: these, and what fills up a block, are 0."""
    x = inputs[0]
    source, made = attrs["layouts"]
    sizes = dict(attrs["sizes"])
    there = {**sizes, "C": attrs.get("from_channels", sizes["C"])}
    block = made.blocks.get("c", 1)
    fills = there["C"] != sizes["C"] or sizes["C"] % block != 0
    groups = attrs.get("groups", 1)
    own, filled = there["C"] // groups, sizes["C"] // groups

    def body(*i: Any) -> Any:
        at = made.place(i, sizes)
        if groups > 1:
            group, channel = te.indexdiv(whole(at["C"]), filled), te.indexmod(whole(at["C"]), filled)
            value = x(*source.index({**at, "C": group * own + channel}, there))
            return te.if_then_else(channel < own, value, te.const(0, x.dtype)) if fills else value
        value = x(*source.index(at, there))
        return te.if_then_else(whole(at["C"]) < there["C"], value, te.const(0, x.dtype)) if fills else value

    assert static_shape(x) == source.shape(there)
    tensors = [te.compute(outputs[0].shape, body, name="transform_layout")]
    rank = len(sizes)
    for lies, other, into in ((made, source, True), (source, made, False)):
        width = lies.blocks.get("c", 1)
        if other == plain(rank) and lies == Layout(f"{other}{width}c") and (into or not fills) and rank > 2:
            attrs = {"block": width, "into": into, "channels": there["C"]}
            return carry(Form("relayout", (x,), (outputs[0],), attrs), tensors)
    return tensors
