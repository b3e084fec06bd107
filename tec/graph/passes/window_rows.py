"""Convolutions whose windows' rows are one run of memory each, by a copy of the image with channels last, zeros around it, and a row's pixels and channels as one axis:

    conv(x, w)  ->  conv(rows of x, rows of w's taps)        of one channel, along which windows move by a pixel's channels

Of few channels, or of a number that is no whole piece of 16 bytes, the places of a window else come one by one: each with its address, its condition and what fills its channels up.
On machines whose prices tell both (`choices.operator_price`), where they say that it pays. Related: the row-wise im2col of MEC (Cho and Brand, arXiv 1706.06873).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ...choices.operator_price import MARGIN, operator_seconds
from ...ops.contraction import piece_elems
from ...ops.layouts import Layout, plain, space
from ...ops.registry import Attrs, TensorType
from ...records import dataclass
from ...target import Target
from ...te import intrin
from ...te.numpy_dtype import np_dtype
from ..graph import Graph, Node, Value
from .lone_convolutions import alone, least_seconds
from .rewrite import Rebuild, rebuild, where_priced


@dataclass(frozen=True)
class Rows:
    """What a convolution becomes. before, after: zeros around the image; shape: of the image then, a row's pixels and channels as one axis; taps: elements of a row of the
    window, zeros of the weights behind its own; attrs: of the convolution of one channel."""

    before: tuple[int, ...]
    after: tuple[int, ...]
    shape: tuple[int, ...]
    taps: int
    attrs: Attrs

    @classmethod
    def of(cls, node: Node) -> Rows:
        """Of a convolution of known sizes."""
        x, w = node.inputs
        n, channels, *image = x.shape
        kernel = w.shape[-1]
        taps = -(-kernel * channels // piece_elems(x.dtype)) * piece_elems(x.dtype)
        strides, before, after = (list(node.attrs[k]) for k in ("strides", "before", "after"))
        # The last window asks for as much behind its own taps as the weights have zeros there.
        last = (node.outputs[0].shape[-1] - 1) * strides[-1] * channels + taps
        after[-1] = max(after[-1], -(-last // channels) - image[-1] - before[-1])
        padded = [b + size + a for b, size, a in zip(before, image, after)]
        none = (0,) * len(image)
        attrs: Attrs = {
            "strides": (*strides[:-1], strides[-1] * channels), "dilations": (*node.attrs["dilations"][:-1], 1), "before": none, "after": none, "groups": 1,
            **({"out_dtype": node.attrs["out_dtype"]} if node.attrs.get("out_dtype") else {}),
        }  # fmt: skip
        return cls(tuple(before), tuple(after), (n, 1, *padded[:-1], padded[-1] * channels), taps, attrs)


@where_priced
def window_rows(graph: Graph, target: Target) -> Graph:
    """The graph with such convolutions of its pictures by rows."""
    if not target.chip.loads_anywhere:
        return graph
    is_alone = alone(graph) is not None
    found = {n: Rows.of(n) for n in graph.nodes if _may_gain(n, target, is_alone)}
    kept = {n: rows for n, rows in found.items() if _pays(n, rows, target)}
    return rebuild(graph, lambda b, n: n in kept and _put(b, n, kept[n])) if kept else graph


def _may_gain(node: Node, target: Target, is_alone: bool) -> bool:
    """Whether a convolution of an image that is copied anyway has windows of several places a row, and channels that do not fill pieces."""
    if node.op != "conv" or not node.inputs[1].is_known or "layouts" in node.attrs or node.attrs.get("fill"):
        return False
    x, w = node.inputs
    if x.type.is_symbolic or 0 in (*x.shape, *node.outputs[0].shape) or x.dtype != w.dtype or node.attrs["groups"] > 1:
        return False
    is_odd = x.shape[1] % piece_elems(x.dtype) != 0
    is_run = (
        w.shape[-1] > 1 and node.attrs["dilations"][-1] == 1 and min(*node.attrs["before"], *node.attrs["after"]) >= 0
    )
    on_units = x.dtype in {i.in_dtype for i in intrin.shapes(target)} and x.dtype.startswith(("float", "bfloat"))
    return is_odd and is_run and on_units and (is_alone or _is_picture(x))


def _is_picture(x: Value) -> bool:
    """Whether an image is an input of the network, but for work on each of its elements: it lies as NCHW."""
    while x.node is not None:
        if x.node.definition.kind not in ("elementwise", "broadcast"):
            return False
        others = [v for v in x.node.inputs if not v.is_const]
        if len(others) != 1:
            return False
        (x,) = others
    return True


def _pays(node: Node, rows: Rows, target: Target) -> bool:
    """Whether the copy and the convolution by rows should take less time."""
    x, w = node.inputs
    g = Graph()
    image = g.input("x", x.dtype, rows.shape)
    g.add("conv", [image, g.constant(_weights(np.zeros(w.shape, np_dtype(w.dtype)), rows))], rows.attrs)
    seconds = _copy_seconds(x, rows, target) + least_seconds(g.nodes[0], target, True)
    return seconds < MARGIN * least_seconds(node, target, True)


def _copy_seconds(x: Value, rows: Rows, target: Target) -> float:
    """Of a copy with channels last, priced as of an image that has the zeros around it."""
    source, letters = plain(x.ndim), "NC" + space(x.ndim)
    n, channels = x.shape[:2]
    sizes = dict(zip(letters, (n, channels, *rows.shape[2:-1], rows.shape[-1] // channels)))
    attrs = {"layouts": (source, Layout(f"N{space(x.ndim)}C")), "sizes": tuple(sizes.items())}
    return operator_seconds("transform_layout", [TensorType(x.dtype, source.shape(sizes))], attrs, target)


def _weights(data: Any, rows: Rows) -> Any:
    """(outputs, 1, taps..., taps and channels of a row)."""
    data = np.moveaxis(data, 1, -1)
    *lead, kernel, channels = data.shape
    data = data.reshape(*lead, kernel * channels)
    data = np.pad(data, [*[(0, 0)] * len(lead), (0, rows.taps - kernel * channels)])
    return np.ascontiguousarray(data[:, None])


def _put(b: Rebuild, node: Node, rows: Rows) -> bool:
    x, w = node.inputs
    out, image = node.outputs[0], b.value(x)
    weights = b.new.constant(_weights(np.asarray(w.data), rows), w.name, w.dtype)
    if any((*rows.before, *rows.after)):
        (image,) = b.new.add(
            "pad", [image], {"before": (0, 0, *rows.before), "after": (0, 0, *rows.after)}, x.name, node.origin
        )
    (image,) = b.new.add("transpose", [image], {"perm": (0, *range(2, x.ndim), 1)}, x.name, node.origin)
    (image,) = b.new.add("reshape", [image], {"shape": rows.shape}, x.name, node.origin)
    (b.map[out],) = b.new.add("conv", [image, weights], rows.attrs, out.name, node.origin)
    return True
