"""Layout for matrix units: convolutions and what stands between them work on images as (pixels, channels) matrices.

Convolutions ask for it; elementwise work, sums, pooling, channel concatenation and slices pass it on; everything else gets
NCHW back. Weights are put in order here, once. So the conversions stand at the edges alone (see tec/ops/nhwc.py).
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ...ops import nhwc as _nhwc  # noqa: F401  (registers the operators)
from ...ops.registry import SHAPED
from ...target import Target
from ...te import intrin
from ..graph import Graph, Node, Value
from .rewrite import Rebuild

_WINDOW = ("strides", "dilations", "before", "after")
_FILL = 4  # channels that come from NCHW are filled up to a multiple: 8- and 16-byte accesses stay within a tap


class _Pixels(Rebuild):
    """`map` holds plain values, `flat` their twins as matrices; each is made from the other when asked for."""

    def __init__(self, graph: Graph):
        super().__init__(graph)
        self.flat: dict[Value, Value] = {}

    def value(self, v: Value) -> Value:
        if v not in self.map and v in self.flat:
            n, c, h, w = v.shape
            if h == w == 1:
                self.map[v] = self.new.add("reshape", [self.flat[v]], {"shape": v.shape}, v.name)[0]
            else:
                self.map[v] = self.new.add("from_pixels", [self.flat[v]], {"space": (n, h, w)}, v.name)[0]
        return super().value(v)

    def pixels(self, v: Value) -> Value:
        if v not in self.flat:
            n, c, h, w = v.shape
            if h == w == 1:
                self.flat[v] = self.new.add("reshape", [self.value(v)], {"shape": (n, c)}, v.name)[0]
            else:
                self.flat[v] = self.new.add("to_pixels", [self.value(v)], {}, v.name)[0]
        return self.flat[v]


def pixel_layout(graph: Graph, target: Target) -> Graph:
    """The graph with its 2-D convolutions on (pixels, channels) matrices where the target has a matrix unit for their type."""
    units = {i.in_dtype for i in intrin.shapes(target)}
    if not any(_convertible(n, units) for n in graph.nodes):
        return graph
    b = _Pixels(graph)
    for node in graph.nodes:
        if not (_conv(b, node) if _convertible(node, units) else _follow(b, node)):
            b.copy(node)
    return b.finish()


def _convertible(node: Node, units: set[str]) -> bool:
    if node.op != "conv" or node.inputs[0].ndim != 4 or not node.inputs[1].is_const:
        return False
    x, w = node.inputs
    groups = node.attrs["groups"]
    return x.dtype == w.dtype and x.dtype in units and (groups == 1 or (_is_depthwise(node) and x.dtype != "int8"))


def _is_depthwise(node: Node) -> bool:
    w, groups = node.inputs[1].shape, node.attrs["groups"]
    return bool(groups == w[0] and w[1] == 1)


def _space(v: Value) -> tuple[int, int, int]:
    n, _, h, w = v.shape
    return n, h, w


def _conv(b: _Pixels, node: Node) -> bool:
    x, w = node.inputs
    out = node.outputs[0]
    data = np.asarray(w.data)
    attrs: dict[str, Any] = {k: tuple(node.attrs[k]) for k in _WINDOW}
    attrs |= {"kernel": tuple(w.shape[2:]), "space": _space(x)}
    if node.attrs.get("fill"):
        attrs["fill"] = node.attrs["fill"]
    if node.attrs["groups"] != 1:
        taps = b.new.constant(np.ascontiguousarray(data.reshape(w.shape[0], -1).T), w.name, w.dtype)
        made = b.new.add("depthwise_pixels", [b.pixels(x), taps], attrs, out.name, node.origin)[0]
    else:
        fill = -x.shape[1] % _FILL if x not in b.flat and math.prod(w.shape[2:]) > 1 else 0
        if fill:
            source = b.new.add("to_pixels", [b.value(x)], {"channels": x.shape[1] + fill}, x.name)[0]
            data = np.pad(data, ((0, 0), (0, fill), (0, 0), (0, 0)))
        else:
            source = b.pixels(x)
        matrix = np.ascontiguousarray(data.transpose(0, 2, 3, 1).reshape(w.shape[0], -1))
        made = b.new.add(
            "conv_pixels", [source, b.new.constant(matrix, w.name, w.dtype)], attrs, out.name, node.origin
        )[0]
    b.flat[out] = made
    return True


def _follow(b: _Pixels, node: Node) -> bool:
    """Put the node on matrices where its input is one and it can work so; False leaves it to a plain copy."""
    out = node.outputs[0]
    if out.ndim != 4 or len(node.outputs) != 1 or not any(v in b.flat for v in node.inputs):
        return False
    kind, x = node.definition.kind, node.inputs[0]
    if kind in ("elementwise", "broadcast") and SHAPED not in node.definition.traits:
        return _elementwise(b, node)
    if node.op == "max_pool" and not node.attrs.get("indices") and len(node.attrs["kernel"]) == 2:
        attrs = {k: tuple(node.attrs[k]) for k in ("kernel", *_WINDOW, "out_space")}
        b.flat[out] = b.new.add("max_pool_pixels", [b.pixels(x)], {**attrs, "space": _space(x)}, out.name, node.origin)[
            0
        ]
        return True
    if node.op == "reduce_mean" and out.shape[2:] == (1, 1) and out.shape[:2] == x.shape[:2]:
        n, c, h, w = x.shape
        (image,) = b.new.add("reshape", [b.pixels(x)], {"shape": (n, h * w, c)}, x.name)
        (mean,) = b.new.add(
            "reduce_mean", [image], {**node.attrs, "axes": (1,), "keepdims": False}, out.name, node.origin
        )
        b.flat[out] = mean
        return True
    if node.op == "concat" and node.attrs["axis"] % 4 == 1 and all(v in b.flat for v in node.inputs):
        b.flat[out] = b.new.add("concat", [b.flat[v] for v in node.inputs], {"axis": 1}, out.name, node.origin)[0]
        return True
    if node.op == "slice" and x in b.flat and all(out.shape[k] == x.shape[k] for k in (0, 2, 3)):
        starts, steps = node.attrs["starts"], node.attrs["steps"]
        if all(starts[k] == 0 and steps[k] == 1 for k in (0, 2, 3)):
            rows = math.prod(_space(x))
            attrs = {"starts": (0, starts[1]), "steps": (1, steps[1]), "sizes": (rows, out.shape[1])}
            b.flat[out] = b.new.add("slice", [b.flat[x]], attrs, out.name, node.origin)[0]
            return True
    return False


def _elementwise(b: _Pixels, node: Node) -> bool:
    out = node.outputs[0]
    n, c, h, w = out.shape
    pixels = h * w
    operands: list[Value] = []
    apart = False  # an operand of one value a channel and an image: such rows are seen image by image
    for v in node.inputs:
        shape = (1,) * (4 - v.ndim) + v.shape
        if v.is_const and v.type.size == 1:
            operands.append(b.new.constant(np.asarray(v.data).reshape(()), v.name, v.dtype))
        elif v.is_const and shape == (1, c, 1, 1):
            operands.append(b.new.constant(np.asarray(v.data).reshape(-1), v.name, v.dtype))
        elif v.shape == out.shape:
            operands.append(b.pixels(v))
        elif not v.is_const and v.shape == (n, c, 1, 1):
            operands.append(b.pixels(v))
            apart = apart or n != 1
        else:
            return False
    if apart and pixels != 1:
        seen = []
        for v, o in zip(node.inputs, operands):
            if v.shape == out.shape or (v.shape == (n, c, 1, 1) and not v.is_const):
                image = (n, pixels if v.shape == out.shape else 1, c)
                o = b.new.add("reshape", [o], {"shape": image}, v.name)[0]
            seen.append(o)
        (made,) = b.new.add(node.op, seen, node.attrs, out.name, node.origin)
        (made,) = b.new.add("reshape", [made], {"shape": (n * pixels, c)}, out.name)
    else:
        (made,) = b.new.add(node.op, operands, node.attrs, out.name, node.origin)
    b.flat[out] = made
    return True
