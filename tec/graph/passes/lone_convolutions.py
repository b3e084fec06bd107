"""The layout of a lone convolution on a GPU: nothing before or after it works in the layout that it likes best, so that a copy stands on either side.

In: a graph before `choose_layouts`. Out: the layouts by which the convolution and the copies around it cost least. Each way is priced by what templates do with its te
definitions (`choices.operator_price`), as the groups of the network will be: a copy is a launch and a trip to memory more, which is most of a small convolution's time, while
a plain image gathers its windows element by element.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from ...choices.layouts import Convolution, channel_block, is_pointwise
from ...choices.operator_price import MARGIN, gathered_price, operator_seconds
from ...ops.layouts import Layout, is_same_memory, plain, space
from ...ops.registry import Attrs, TensorType
from ...ops.transform_layout import filled_channels
from ...records import dataclass
from ...target import Target
from ..graph import Graph, Node
from .layout_choice import wanted

_WINDOW = ("strides", "dilations", "before", "after")
# Templates whose price does not count what windows wait that are gathered element by element: 984 channels of 19 x 19 to 12 by 5 x 5 on an MI300X should take 22 us and took
# 212 by the time model, 28 from pixels.
GATHERS = ("blocked product",)


@dataclass(frozen=True)
class Lone:
    """The node, and its layouts; None: as it is."""

    node: Node
    convolution: Convolution | None


def lone_convolution(graph: Graph, target: Target) -> Lone | None:
    """The layouts of a convolution that has nothing but elementwise work beside it; None of a larger graph, where a size is open, and of windows on machines
    whose prices do not tell what it costs to gather them. One of a pixel is a product of the weights with each image, which every machine's prices tell."""
    if not target.is_gpu:
        return None
    node = alone(graph)
    if node is None or not (target.machine.priced_by_model or target.machine.judged or _is_product(node)):
        return None
    usual = wanted(node, target, ())
    if usual is None:
        return None
    x, w = node.inputs
    if x.type.is_symbolic or w.type.is_symbolic or usual.x == plain(x.ndim):
        return None
    gathers = GATHERS if target.machine.priced_by_model and not _is_product(node) else ()
    least = MARGIN * _seconds(node, usual, target, gathers)
    made: Convolution | None = usual
    for other in _others(node, target, usual):
        cost = _seconds(node, other, target, gathers) * _too_low(node, other, target)
        # Blocks of channels are filled up, which prices tell better than what finding places takes.
        if cost < least * (MARGIN if made is not None and made.block else 1.0):
            made, least = other, cost
    return Lone(node, made)


def alone(graph: Graph) -> Node | None:
    """The one convolution of a graph of nothing else but elementwise work, the sums of its taps and the copy that makes rows of its windows (`window_rows`)."""
    found = [n for n in graph.nodes if n.op == "conv"]
    if len(found) != 1:
        return None
    copies = _copies(found[0])
    others = (n for n in graph.nodes if n.op not in ("conv", "reshape", "tap_sum") and n not in copies)
    return found[0] if all(n.definition.kind in ("elementwise", "broadcast") for n in others) else None


def _copies(node: Node) -> set[Node]:
    """The nodes that copy the image of a convolution of one channel."""
    x, found = node.inputs[0], set[Node]()
    while x.shape[1] == 1 or found:
        if x.node is None or x.node.op not in ("reshape", "transpose", "pad"):
            break
        found.add(x.node)
        x = x.node.inputs[0]
    return found


def least_seconds(node: Node, target: Target, is_alone: bool, unpriced: tuple[str, ...] = ()) -> float:
    """What a convolution should take: alone by the best way, copies around it counted, else in the layout that it wants, in which images lie there already. unpriced: templates that
    shall gather no windows."""
    usual = wanted(node, target, ())
    if not is_alone:
        return _seconds(node, usual, target, unpriced, are_copied=False)
    ways = (usual, *_others(node, target, usual))
    return min(_seconds(node, way, target, unpriced) * _too_low(node, way, target) for way in ways)


def _too_low(node: Node, way: Convolution | None, target: Target) -> float:
    """By what factor the price of a way is too low: that of long windows gathered from a plain image (`gathered_price`)."""
    is_plain = way is None or (way.x == plain(node.inputs[0].ndim) and not way.block)
    return gathered_price(target, math.prod(node.inputs[1].shape[2:])) if is_plain else 1.0


def _is_product(node: Node) -> bool:
    """Whether each pixel is a sum of that pixel's channels alone."""
    return bool(node.attrs["groups"] == 1 and is_pointwise(node.inputs[1].type, node.attrs))


def _others(node: Node, target: Target, usual: Convolution | None) -> Iterator[Convolution | None]:
    """Other ways than the usual one: without copies, as it is, and with the weights along the sum and the results flat in their pixels, which are the same memory; and of an image that is
    copied to pixels, results that are stored so, without a copy back. Of single pixels an image as it is has runs that wide loads bring, which an AMD GPU's products ask for."""
    x = node.inputs[0]
    by_pixels = usual is not None and usual.x.is_flat and usual.x == usual.y and "I" in usual.weights.dims[-1]
    if usual is not None and by_pixels and target.machine.priced_by_model:  # on NVIDIA nobody measured it
        yield replace(usual, y=_flat_pixels(x.ndim))
    has_runs = target.machine.priced_by_model and _is_product(node)
    if node.attrs["groups"] == 1 and not node.attrs.get("fill") and not has_runs:
        # First: of equal price their weights need no division, and windows less of it where a piece along the sum is channels of one place.
        block = channel_block(target, node.inputs[1].type, x.dtype)
        for b in (block, 0) if block else (0,):
            yield Convolution(plain(x.ndim), Layout(f"O(I{space(x.ndim)})"), _flat_pixels(x.ndim), block=b)
    yield None


def _flat_pixels(rank: int) -> Layout:
    """Plain images whose pixels are one axis."""
    axes = space(rank)
    return Layout(f"NC({axes})" if len(axes) > 1 else f"NC{axes}")


def _seconds(
    node: Node, way: Convolution | None, target: Target, unpriced: tuple[str, ...] = (), are_copied: bool = True
) -> float:
    """What a convolution and the copies around it should take; infinite where no template serves it, and where one that is `unpriced` would gather windows."""
    x, w = (v.type for v in node.inputs)
    y = node.outputs[0].type
    if way is None:
        return operator_seconds("conv", [x, w], node.attrs, target, unpriced)
    sizes = dict(zip("NC" + space(x.ndim), x.shape))
    groups, own_in = node.attrs["groups"] // way.merged, w.shape[1] * way.merged
    own_in += -own_in % (way.block or way.fill)
    sizes, filled = filled_channels(sizes, way.fill, groups)
    source = TensorType(x.dtype, way.x.shape(sizes))
    weights = dict(zip("OI" + space(x.ndim), (w.shape[0], own_in, *w.shape[2:])))
    attrs: Attrs = {
        **{k: tuple(node.attrs[k]) for k in _WINDOW}, "groups": groups, "kernel": tuple(w.shape[2:]),
        "layouts": (way.x, way.weights, way.y), **({"space": (x.shape[0], *x.shape[2:])} if way.x.is_flat else {}),
        **{k: node.attrs[k] for k in ("fill", "out_dtype") if node.attrs.get(k)}, **({"block": way.block} if way.block else {}),
    }  # fmt: skip
    out = dict(zip("NC" + space(y.ndim), y.shape))
    made = TensorType(y.dtype, way.y.shape(out))
    types = [source, TensorType(w.dtype, way.weights.shape(weights))]
    seconds = operator_seconds("conv", types, attrs, target, unpriced if way.x == plain(x.ndim) else ())
    if are_copied:
        seconds += _copy(x, plain(x.ndim), way.x, sizes, filled, target)
        seconds += _copy(made, way.y, plain(y.ndim), out, {}, target)
    return seconds


def _copy(t: TensorType, source: Layout, to: Layout, sizes: dict[str, Any], more: Attrs, target: Target) -> float:
    if source == to or (not more and is_same_memory(source, to, sizes)):
        return 0.0
    return operator_seconds(
        "transform_layout", [t], {"layouts": (source, to), "sizes": tuple(sizes.items()), **more}, target
    )
