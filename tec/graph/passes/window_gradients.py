"""Gradients of convolutions and poolings as the operators that do the work in one call, in place of `vjp`'s sums over each element's own places:

    vjp(x, w, g; of="conv", wrt=0)   ->  conv_transpose(g, w)
    vjp(x, w, g; of="conv", wrt=1)   ->  one product of g and what each tap reads of x, both by channels, over all places of all images
    vjp(x, g; of="max_pool")         ->  where(x == max, g / how many are it, 0), of windows side by side

In those sums every step asks whether a window reaches the element, and none of the templates' products is found.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

from ...ops.matmul import accumulator
from ...ops.registry import Attrs
from ..builders import Builder
from ..builders.conv import conv_transpose
from ..graph import Graph, Node, Value
from .rewrite import Rebuild, rebuild

_PRODUCT = 16  # channels of an image from which each tap is a product by itself: narrower ones share one, of all taps side by side


def window_gradients(graph: Graph) -> Graph:
    """The graph with such gradients of images of known sizes."""
    found = {n: make for n in graph.nodes if n.op == "vjp" and (make := _maker(n)) is not None}

    def handle(b: Rebuild, node: Node) -> bool:
        make = found.get(node)
        if make is None:
            return False
        made = make(Builder(b.new), dict(node.attrs["attrs"]), *[b.value(v) for v in node.inputs])
        b.map[node.outputs[0]] = b.cast(made, node.outputs[0].dtype, origin=node.origin)
        return True

    return rebuild(graph, handle) if found else graph


def _maker(node: Node) -> Any:
    """What makes the gradient of a node, None for another node."""
    of, attrs = node.attrs["of"], dict(node.attrs["attrs"])
    known = all(isinstance(n, int) and n > 0 for v in node.inputs for n in v.shape)
    if not known or node.attrs["out"] or "layouts" in attrs or "float" not in node.outputs[0].dtype:
        return None
    if of == "conv" and not (attrs.keys() - {"strides", "dilations", "before", "after", "groups"}):
        if len({v.dtype for v in node.inputs}) == 1 and node.inputs[0].ndim == node.inputs[1].ndim:
            return (_by_image, _by_weights)[node.attrs["wrt"]]
    if of == "max_pool" and not attrs.get("indices") and _side_by_side(node.inputs[0], attrs):
        return _by_maxima
    return None


def _by_image(b: Builder, attrs: Attrs, x: Value, w: Value, g: Value) -> Value:
    return conv_transpose(b, g, w, attrs["strides"], attrs["dilations"], attrs["before"], x.shape[2:], attrs["groups"])


def _by_weights(b: Builder, attrs: Attrs, x: Value, w: Value, g: Value) -> Value:
    """Both sides with channels first, whose rows are all places of all images: sums of products of float16 are taken in float32, as the convolution's."""
    groups, wide = attrs["groups"], accumulator(x.dtype)
    space = range(2, x.ndim)
    own, cin = w.shape[0] // groups, w.shape[1]
    places = math.prod(g.shape[2:]) * x.shape[0]
    reach = [(n - 1) * s + (k - 1) * d + 1 for n, s, k, d in zip(g.shape[2:], attrs["strides"], w.shape[2:], attrs["dilations"])]  # fmt: skip
    after = [max(0, n - m - p) for n, m, p in zip(reach, x.shape[2:], attrs["before"])]
    if any(attrs["before"]) or any(after):
        x = b.op("pad", x, before=(0, 0, *attrs["before"]), after=(0, 0, *after), mode="constant")
    by_channel = (1, 0, *space)
    x, g = b.transpose(x, by_channel), b.transpose(g, by_channel)
    rows = b.reshape(g, (groups, own, places))

    def read(tap: Sequence[int]) -> Value:
        """What a tap reads: an element for each place of the output."""
        starts = (0, 0, *(t * d for t, d in zip(tap, attrs["dilations"])))
        steps = (1, 1, *attrs["strides"])
        part = b.op("slice", x, starts=starts, steps=steps, sizes=(*x.shape[:2], *g.shape[2:]))
        return b.reshape(part, (groups, cin, places))

    taps = [read(t) for t in itertools.product(*map(range, w.shape[2:]))]
    if own == cin == 1:  # a sum for each tap of each channel
        sums = [b.op("reduce_sum", b.cast(b.op("multiply", rows, t), wide), axes=(1, 2), keepdims=False) for t in taps]
        return b.reshape(b.stack(sums, 1), w.shape)
    columns = taps if cin >= _PRODUCT else [b.reshape(b.stack(taps, 2), (groups, cin * len(taps), places))]
    products = [b.op("matmul", rows, c, transpose_b=True, out_dtype=wide) for c in columns]
    if cin >= _PRODUCT:
        return b.reshape(b.stack(products, 3), w.shape)
    return b.reshape(products[0], w.shape)


def _side_by_side(x: Value, attrs: Attrs) -> bool:
    """Whether each element lies in at most one window."""
    if (
        any(attrs["before"])
        or any(d != 1 for d in attrs["dilations"])
        or tuple(attrs["kernel"]) != tuple(attrs["strides"])
    ):
        return False
    return all(n * k <= m for n, k, m in zip(attrs["out_space"], attrs["kernel"], x.shape[2:]))


def _by_maxima(b: Builder, attrs: Attrs, x: Value, g: Value) -> Value:
    """Elements that share a maximum share its gradient."""
    kernel, out, lead = tuple(attrs["kernel"]), tuple(attrs["out_space"]), x.shape[:2]
    inner = tuple(n * k for n, k in zip(out, kernel))
    sizes = (*lead, *out)
    parts = []
    for tap in itertools.product(*map(range, kernel)):
        parts.append(b.op("slice", x, starts=(0, 0, *tap), steps=(1, 1, *kernel), sizes=sizes))
    top = parts[0]
    for p in parts[1:]:
        top = b.op("maximum", top, p)
    is_top = [b.cast(b.op("equal", p, top), g.dtype) for p in parts]
    count = is_top[0]
    for p in is_top[1:]:
        count = b.op("add", count, p)
    share = b.op("divide", g, count)
    given = [b.op("multiply", p, share) for p in is_top]
    # [.., taps.., out..] to [.., out 0, tap 0, out 1, tap 1, ..]
    d = len(kernel)
    whole = b.reshape(b.stack(given, 2), (*lead, *kernel, *out))
    order = (0, 1, *itertools.chain.from_iterable((2 + d + k, 2 + k) for k in range(d)))
    made = b.reshape(b.transpose(whole, order), (*lead, *inner))
    if inner == x.shape[2:]:
        return made
    after = tuple(m - n for m, n in zip(x.shape[2:], inner))
    return b.op("pad", made, before=(0,) * x.ndim, after=(0, 0, *after), mode="constant")
