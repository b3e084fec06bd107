"""Convolutions whose channels become places of a larger image, as one operator that stores them there:

    conv  ->  reshape  ->  transpose  ->  reshape  ->  slice        becomes        conv_phases

Transposed convolutions are written so by phases (`graph.builders.conv`), and so are pixel shuffles. The copies between read and write all results, two or three times. On machines whose prices
tell both (`choices.operator_price`), where they say that it pays: phases are rows of one product, or each is one of its own, which gathers its windows again.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ...choices.families.products.halo import HaloConvolution
from ...choices.layouts import channel_block, filled_multiple
from ...choices.operator_price import MARGIN, operator_seconds, phases_margin
from ...ops.conv import stored_in_blocks
from ...ops.layouts import Layout, plain, space
from ...ops.registry import Attrs, TensorType
from ...ops.transform_layout import filled_channels
from ...records import dataclass
from ...target import Target
from ..graph import Graph, Node, Value
from .dead_code import dead_code
from .lone_convolutions import least_seconds
from .rewrite import Rebuild, rebuild, where_priced

_WINDOW = ("strides", "dilations")


@dataclass(frozen=True)
class _Chain:
    """A convolution and what places its results. counts: phases that have channels, of `factors` along each dimension; skipped: places of the convolution that are left out
    in front, first: places of the whole image; last: the node whose result it is; copies: nodes that move something."""

    conv: Node
    counts: tuple[int, ...]
    factors: tuple[int, ...]
    skipped: tuple[int, ...]
    first: tuple[int, ...]
    last: Node
    copies: tuple[Node, ...]


@where_priced
def stored_phases(graph: Graph, target: Target) -> Graph:
    """The graph with such convolutions in one operator."""
    users = graph.users()
    outputs = set(graph.outputs)
    found = (_chain(n, users, outputs) for n in graph.nodes if _is_open(n))
    is_alone = sum(n.op == "conv" for n in graph.nodes) == 1
    chains: dict[Node, tuple[_Chain, Attrs]] = {}
    for c in found:
        if c is not None:
            attrs, seconds = _best(c, target)
            if _pays(c, seconds, target, is_alone):
                chains[c.last] = c, attrs
    if not chains:
        return graph
    # What stood behind a convolution would else tell other passes how its image lies.
    return dead_code(rebuild(graph, lambda b, n: n in chains and _put(b, *chains[n])))


def _is_open(node: Node) -> bool:
    """Whether a convolution has one group, known weights of its own type, and known sizes, none of them 0."""
    if node.op != "conv" or not node.inputs[1].is_known or "layouts" in node.attrs or node.attrs.get("fill"):
        return False
    x, w = node.inputs
    is_plain = node.attrs["groups"] == 1 and x.dtype == w.dtype == node.outputs[0].dtype
    is_known = not x.type.is_symbolic and 0 not in (*x.shape, *node.outputs[0].shape)
    return is_plain and is_known and x.dtype.startswith(("float", "bfloat"))


def _chain(conv: Node, users: dict[Value, list[Node]], outputs: set[Value]) -> _Chain | None:
    """What stands behind a convolution, where that is such a chain."""
    copies: list[Node] = []

    def following(v: Value, op: str) -> Node | None:
        readers = users.get(v, [])
        return readers[0] if v not in outputs and len(readers) == 1 and readers[0].op == op else None

    def sliced(v: Value) -> tuple[Value, tuple[int, ...]]:
        starts = (0,) * (v.ndim - 2)
        while (node := following(v, "slice")) is not None and _is_crop(node):
            starts = tuple(a + b for a, b in zip(starts, node.attrs["starts"][2:]))
            v = node.outputs[0]
            copies.append(node)
        return v, starts

    v, skipped = sliced(conv.outputs[0])
    nd = v.ndim - 2
    split = following(v, "reshape")
    turn = following(split.outputs[0], "transpose") if split is not None else None
    if split is None or turn is None:
        return None
    n, channels, *sizes = split.outputs[0].shape
    counts = tuple(sizes[:nd])
    order = (0, 1, *(k for d in range(nd) for k in (2 + nd + d, 2 + d)))
    if (n, *sizes[nd:]) != (v.shape[0], *v.shape[2:]) or tuple(turn.attrs["perm"]) != order:
        return None
    copies.append(turn)
    v, factors = turn.outputs[0], counts
    while (node := following(v, "reshape") or following(v, "pad")) is not None and v.ndim != nd + 2:
        if node.op == "pad":
            filled = _filled(node, counts)
            if filled is None:
                return None
            factors = filled
            copies.append(node)
        v = node.outputs[0]
    if v.shape != (n, channels, *(q * s for q, s in zip(sizes[nd:], factors))):
        return None
    v, first = sliced(v)
    if v.node is None or 0 in v.shape:
        return None
    return _Chain(conv, counts, factors, skipped, first, v.node, tuple(copies))


def _is_crop(node: Node) -> bool:
    """Whether a slice leaves images and channels whole, and neighbours neighbours."""
    (x,) = node.inputs
    return set(node.attrs["steps"]) == {1} and node.outputs[0].shape[:2] == x.shape[:2]


def _filled(pad: Node, counts: Sequence[int]) -> tuple[int, ...] | None:
    """The phases with those that are zeros behind them, of a padding that does no more."""
    (x,), out = pad.inputs, pad.outputs[0]
    nd = len(counts)
    axes = [3 + 3 * d for d in range(nd)]  # of (n, channels, (place, phase, 1) for each dimension)
    is_so = x.ndim == 2 + 3 * nd and tuple(x.shape[k] for k in axes) == tuple(counts) and not any(pad.attrs["before"])
    if not is_so or pad.attrs.get("value") or any(n for k, n in enumerate(pad.attrs["after"]) if k not in axes):
        return None
    return tuple(out.shape[k] for k in axes)


def _attrs(c: _Chain) -> Attrs:
    own = c.conv.attrs
    return {
        **{k: tuple(own[k]) for k in _WINDOW}, "kernel": tuple(c.conv.inputs[1].shape[2:]), "factors": c.factors, "first": c.first,
        "before": tuple(b - n * s for b, n, s in zip(own["before"], c.skipped, own["strides"])), "out_space": tuple(c.last.outputs[0].shape[2:]),
    }  # fmt: skip


def _weights(c: _Chain) -> Any:
    """(phases of the output..., out, channels, taps...): phase r of the output is that of place r + first, zero where it has no channels."""
    data = np.asarray(c.conv.inputs[1].data)
    nd = len(c.counts)
    outs, *rest = data.shape
    parts = data.reshape(outs // math.prod(c.counts), *c.counts, *rest)
    parts = np.pad(parts, [(0, 0), *((0, s - k) for s, k in zip(c.factors, c.counts)), *[(0, 0)] * len(rest)])
    for d, (s, f) in enumerate(zip(c.factors, c.first)):
        parts = np.take(parts, [(r + f) % s for r in range(s)], axis=1 + d)
    return np.moveaxis(parts, 0, nd)


def _put(b: Rebuild, c: _Chain, attrs: Attrs) -> bool:
    x, w = c.conv.inputs
    data = _weights(c)
    data = data.reshape(*data.shape[: len(c.factors) + 2], -1)
    weights = b.new.constant(stored_in_blocks(data, attrs.get("block") or 1), w.name, w.dtype)
    out = c.last.outputs[0]
    (b.map[out],) = b.new.add("conv_phases", [b.value(x), weights], attrs, out.name, c.conv.origin)
    return True


def _pays(c: _Chain, one: float, target: Target, is_alone: bool) -> bool:
    """Whether one operator, of so many seconds, should take less time than a convolution and the copies behind it. Phases gather the windows of an image, and their price is compared with that of
    a convolution that does so too: prices of boxes are lower for the same time."""
    copies = sum(operator_seconds(n.op, [v.type for v in n.inputs], n.attrs, target) for n in c.copies)
    unpriced = (HaloConvolution.template,) if is_alone else ()
    return one < least_seconds(c.conv, target, is_alone, unpriced) + copies


def _best(c: _Chain, target: Target) -> tuple[Attrs, float]:
    """How phases are computed, as a batch or as rows of one product, and what that should take: the attributes, and seconds."""
    x, w = (v.type for v in c.conv.inputs)
    weights = TensorType(w.dtype, (*c.factors, c.last.outputs[0].shape[1], math.prod(w.shape[1:])))
    usual = _attrs(c)
    block = channel_block(target, w, x.dtype)
    if block and x.shape[1] % block == 0:
        usual["block"] = block
    ways = [(usual, phases_margin(target)), ({**usual, "together": True}, 1.0)]
    priced = [(a, n * min(_seconds(x, weights, a, target), pixels_seconds(x, weights, a, target))) for a, n in ways]
    return min(priced, key=lambda p: p[1])


def pixels(rank: int) -> Layout:
    """An image as a matrix of pixels by channels."""
    return Layout(f"(N{space(rank)})C")


def by_pixels(x: TensorType, attrs: Attrs) -> Attrs:
    """The attributes where the image lies as pixels by channels."""
    return {
        **{k: v for k, v in attrs.items() if k != "block"},
        "layouts": (pixels(x.ndim),),
        "space": (x.shape[0], *x.shape[2:]),
    }


def are_better_by_pixels(node: Node, target: Target) -> bool:
    """Whether phases should take less time from a copy of their image as pixels by channels than from the image as it is."""
    x, w = (v.type for v in node.inputs)
    return pixels_seconds(x, w, node.attrs, target) < MARGIN * _seconds(x, w, node.attrs, target)


def pixels_seconds(x: TensorType, w: TensorType, attrs: Attrs, target: Target) -> float:
    """What phases and the copy of their image to pixels by channels should take."""
    sizes = dict(zip("NC" + space(x.ndim), x.shape))
    filled, more = filled_channels(sizes, filled_multiple(target, x.shape[1], x.dtype), 1)
    image = TensorType(x.dtype, pixels(x.ndim).shape(filled))
    terms = w.shape[-1] // x.shape[1] * image.shape[1]
    copy = {"layouts": (plain(x.ndim), pixels(x.ndim)), "sizes": tuple(filled.items()), **more}
    own = _seconds(image, TensorType(w.dtype, (*w.shape[:-1], terms)), by_pixels(x, attrs), target)
    return own + operator_seconds("transform_layout", [x], copy, target)


def _seconds(x: TensorType, w: TensorType, attrs: Attrs, target: Target) -> float:
    return operator_seconds("conv_phases", [x, w], attrs, target)
