"""Layouts of images: convolutions and what stands between them work on values that lie as the target's templates like (`tec.choices.layouts`).

Convolutions ask for a layout; elementwise work, sums, pooling, concatenation and slices of channels take that of their input; everything else gets NCHW.
`transform_layout` stands where a value is wanted otherwise than it was made: at the edges alone. Weights are put in order here, once.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ...choices import layouts as preferred
from ...ops.conv import stored_in_blocks
from ...ops.layouts import Layout, is_same_memory, plain, plain_weights, space
from ...ops.registry import FINITE, SHAPED, WINDOWED
from ...ops.transform_layout import filled_channels
from ...target import Target
from ...te.numpy_dtype import np_dtype
from ..graph import Graph, Node, Value
from .layout_choice import Layouts, choose, wanted
from .lone_convolutions import lone_convolution
from .rewrite import Rebuild
from .stored_phases import are_better_by_pixels, by_pixels, pixels

_WINDOW = ("strides", "dilations", "before", "after")


class _Twins(Rebuild):
    """`map` holds plain values, `twins` the same in other layouts; each is made from another when asked for."""

    def __init__(self, graph: Graph):
        super().__init__(graph)
        self.twins: dict[Value, dict[Layout, Value]] = {}

    def value(self, v: Value) -> Value:
        if not v.is_const and v not in self.map and v in self.twins:
            (layout, twin) = next(iter(self.twins[v].items()))
            self.map[v] = self._relayout(twin, layout, plain(v.ndim), v)
        return super().value(v)

    def twin(self, v: Value, layout: Layout, fill: int = 1, groups: int = 1) -> Value:
        """The value in a layout, the channels of each of some groups filled up to a multiple."""
        if layout == plain(v.ndim):
            return self.value(v)
        made = self.twins.get(v, {})
        if layout in made and fill == 1:
            return made[layout]
        near = next((lies for lies in made if fill == 1 and is_same_memory(lies, layout, sizes_of(v))), None)
        if near is not None:  # a reshape
            twin = self._relayout(made[near], near, layout, v)
        else:
            twin = self._relayout(self.value(v), plain(v.ndim), layout, v, fill, groups)
        if fill == 1:
            self.twins.setdefault(v, {})[layout] = twin
        return twin

    def _relayout(self, made: Value, source: Layout, target: Layout, v: Value, fill: int = 1, groups: int = 1) -> Value:
        sizes = sizes_of(v)
        if fill > 1 and v.shape[1] // groups % fill:
            filled, more = filled_channels(sizes, fill, groups)
            attrs = {"layouts": (source, target), "sizes": tuple(filled.items()), **more}
            return self.lies(self.new.add("transform_layout", [made], attrs, v.name)[0], target)
        if is_same_memory(source, target, sizes):
            return self.lies(self.new.add("reshape", [made], {"shape": target.shape(sizes)}, v.name)[0], target)
        attrs = {"layouts": (source, target), "sizes": tuple(sizes.items())}
        return self.lies(self.new.add("transform_layout", [made], attrs, v.name)[0], target)

    def lies(self, made: Value, layout: Layout) -> Value:
        made.layout = layout
        return made

    def put(self, node: Node, layout: Layout, inputs: list[Value], attrs: dict[str, Any], op: str = "") -> bool:
        """The node's output, made in a layout by its operator (or `op`) on other operands."""
        out = node.outputs[0]
        (made,) = self.new.add(op or node.op, inputs, attrs, out.name, node.origin)
        return self.keep(out, layout, made)

    def keep(self, out: Value, layout: Layout, made: Value) -> bool:
        if layout == plain(out.ndim):
            self.map[out] = made
        else:
            self.twins.setdefault(out, {})[layout] = self.lies(made, layout)
        return True


def sizes_of(v: Value) -> dict[str, int]:
    """Sizes of the axes of a plain value."""
    return dict(zip("NC" + space(v.ndim), v.shape))


def choose_layouts(graph: Graph, target: Target, chosen: Layouts | None = None) -> Graph:
    """The graph with its convolutions of constant weights in the layouts that the target's templates like, or in those that are `chosen`; the same graph
    where it has none."""
    if not any(n.op == "conv_phases" or wanted(n, target, ()) for n in graph.nodes):
        return graph
    b, chosen = _Twins(graph), chosen if chosen is not None else choose(graph, target)
    lone = lone_convolution(graph, target)
    for node in graph.nodes:
        if node in chosen.convolutions:
            own = chosen.convolutions[node]
            is_put = own is not None and _conv(b, node, own)
        elif node in chosen.others:
            is_put = chosen.others[node] != plain(4) and _follow(b, node, chosen.others[node])
        elif node.op == "conv_phases":
            is_put = _phases(b, node, target)
        else:
            if lone is not None and lone.node is node:
                own = lone.convolution
            else:
                own = wanted(node, target, b.twins.get(node.inputs[0], ()) if node.inputs else ())
            is_put = _conv(b, node, own) if own else _follow(b, node)
        if not is_put:
            b.copy(node)
    return b.finish()


def _conv(b: _Twins, node: Node, wanted: preferred.Convolution) -> bool:
    """A convolution in the layouts that its target wants, its weights stored so. True: it takes the node's place."""
    x, w = node.inputs
    out = node.outputs[0]
    data = np.asarray(w.data)
    dtype = wanted.dtype or x.dtype
    if wanted.dtype:
        data = data.astype(np_dtype(dtype))
    data = _diagonal(data, node.attrs["groups"], wanted.merged)
    groups = node.attrs["groups"] // wanted.merged
    fill = -data.shape[1] % wanted.fill
    if wanted.weights.group > 1:  # the image's blocks of channels are whole, and those of the weights are smaller
        fill = -x.shape[1] % wanted.x.blocks["c"]
    if fill:
        data = np.pad(data, [(0, fill if k == 1 else 0) for k in range(data.ndim)])
    letters, kernel = plain_weights(x.ndim), data.shape[2:]
    if wanted.block:
        stored = stored_in_blocks(data.reshape(*data.shape[:2], -1), wanted.block)
    else:
        stored = wanted.weights.store(data, letters.name)
    weights = b.new.constant(stored, w.name, dtype if wanted.dtype else w.dtype)
    source = b.cast(b.twin(x, wanted.x, wanted.fill if fill and wanted.fill > 1 else 1, groups), dtype, x.name)
    if groups > 1 and data.shape[1] == 1:
        # A channel each, those that fill up a block too.
        groups = wanted.weights.sizes(weights.shape, dict(zip(space(x.ndim), data.shape[2:])))["O"]
    attrs = {
        **{k: tuple(node.attrs[k]) for k in _WINDOW}, "groups": groups, "kernel": tuple(kernel), **({"block": wanted.block} if wanted.block else {}),
        "layouts": (wanted.x, wanted.weights, wanted.y), "fill": node.attrs.get("fill") or None,
        **({"out_dtype": node.attrs["out_dtype"]} if "out_dtype" in node.attrs else {}),
    }  # fmt: skip
    (made,) = b.new.add("conv", [source, weights], attrs | _space(x, wanted.x), out.name, node.origin)
    return b.keep(out, wanted.y, b.cast(made, out.dtype, out.name))


def _phases(b: _Twins, node: Node, target: Target) -> bool:
    """Phases of an image that lies as pixels by channels, or is better copied to them. False leaves it as it is."""
    x, w = node.inputs
    lies = pixels(x.ndim)
    is_there = lies in b.twins.get(x, ())
    if not is_there and not are_better_by_pixels(node, target):
        return False
    fill = 1 if is_there else preferred.filled_multiple(target, x.shape[1], x.dtype)
    data = np.asarray(w.data)
    block = node.attrs.get("block") or 1
    data = data.reshape(*data.shape[:-1], x.shape[1] // block, -1, block)  # blocks of channels, taps, channels
    data = np.moveaxis(data, -2, -3).reshape(*w.shape[:-1], -1, x.shape[1])
    data = np.pad(data, [*[(0, 0)] * (data.ndim - 1), (0, -x.shape[1] % fill)])
    weights = b.new.constant(np.ascontiguousarray(data.reshape(*w.shape[:-1], -1)), w.name, w.dtype)
    image = b.twin(x, lies, fill if x.shape[1] % fill else 1)
    return b.put(node, plain(x.ndim), [image, weights], by_pixels(x.type, node.attrs))


def _space(x: Value, layout: Layout) -> dict[str, Any]:
    return {"space": (x.shape[0], *x.shape[2:])} if layout.is_flat else {}


def _diagonal(data: Any, groups: int, count: int) -> Any:
    """Weights (out, in / groups, ...) of `groups` groups as those of groups / count: zero between channels of different ones."""
    if count == 1:
        return data
    outs, ins, *window = data.shape
    own = outs // groups
    parts = data.reshape(groups // count, count, own, ins, *window)
    full = np.zeros((groups // count, count, own, count, ins, *window), data.dtype)
    for k in range(count):
        full[:, k, :, k] = parts[:, k]
    return full.reshape(outs, count * ins, *window)


def _follow(b: _Twins, node: Node, chosen: Layout | None = None) -> bool:
    """Put the node on a layout that its inputs have, or on a chosen one, where it can work so; False leaves it to a plain copy."""
    out = node.outputs[0]
    if len(node.outputs) != 1 or out.ndim < 4:
        return False
    layout = chosen or next((x for v in node.inputs for x in b.twins.get(v, ()) if v.ndim == out.ndim), None)
    if layout is None:
        return False
    x, traits = node.inputs[0], node.definition.traits
    if node.definition.kind in ("elementwise", "broadcast"):
        return _elementwise(b, node, layout)
    if WINDOWED in traits and not node.attrs.get("indices") and layout.axis("N") == 0 and _moves_channels(layout):
        return b.put(
            node, layout, [b.twin(x, layout)], {**node.attrs, "layouts": (layout, layout), **_space(x, layout)}
        )
    if node.op == "reduce_mean" and out.shape == (*x.shape[:2], *(1,) * (x.ndim - 2)):
        return _mean(b, node, layout)
    if (
        node.op == "concat"
        and node.attrs["axis"] % out.ndim == 1
        and (chosen or all(layout in b.twins.get(v, ()) for v in node.inputs))
    ):
        block = layout.blocks.get("c", 1)
        if all(v.shape[1] % block == 0 for v in node.inputs[:-1]):
            return b.put(node, layout, [b.twin(v, layout) for v in node.inputs], {"axis": layout.axis("C")})
    if node.op == "slice" and layout in b.twins.get(x, ()) and not layout.blocks:
        return _slice(b, node, layout)
    return False


def _moves_channels(layout: Layout) -> bool:
    """Whether channels are other than in NCHW: where only pixels are flat, windows are better off with rows."""
    return bool(layout.blocks) or layout.axis("C") == len(layout.dims) - 1


def _mean(b: _Twins, node: Node, layout: Layout) -> bool:
    x, axes = node.inputs[0], space(node.inputs[0].ndim)
    if layout.axis("N") != layout.axis(axes[0]):
        along = tuple(dict.fromkeys(layout.axis(a) for a in axes))
        return b.put(node, layout, [b.twin(x, layout)], {**node.attrs, "axes": along})
    n, c, *extents = x.shape
    shape, pixels = _by_image(layout, n, c, math.prod(extents))
    (image,) = b.new.add("reshape", [b.twin(x, layout)], {"shape": shape}, x.name)
    return b.put(node, layout, [image], {**node.attrs, "axes": (pixels,), "keepdims": False})


def _by_image(layout: Layout, n: Any, c: Any, pixels: Any) -> tuple[tuple[Any, Any, Any], int]:
    """The shape of a matrix of channels and the pixels of all images, seen image by image, and its dimension of pixels."""
    return ((c, n, pixels), 2) if layout.axis("C") == 0 else ((n, pixels, c), 1)


def _slice(b: _Twins, node: Node, layout: Layout) -> bool:
    x, out = node.inputs[0], node.outputs[0]
    starts, steps = node.attrs["starts"], node.attrs["steps"]
    others = [k for k in range(x.ndim) if k != 1]
    if any(out.shape[k] != x.shape[k] or starts[k] != 0 or steps[k] != 1 for k in others):
        return False
    twin = b.twin(x, layout)
    at = layout.axis("C")
    attrs = {
        key: tuple(own if k == at else rest[k] for k in range(twin.ndim))
        for key, own, rest in (
            ("starts", starts[1], [0] * twin.ndim), ("steps", steps[1], [1] * twin.ndim), ("sizes", out.shape[1], twin.shape),
        )
    }  # fmt: skip
    return b.put(node, layout, [twin], attrs)


def _elementwise(b: _Twins, node: Node, layout: Layout) -> bool:
    out = node.outputs[0]
    if SHAPED in node.definition.traits or not _stays_finite(node, layout):
        return False
    operands = [_operand(b, v, out, layout) for v in node.inputs]
    if any(o is None for o in operands):
        return False
    known = [o for o in operands if o is not None]
    n, c, *extents = out.shape
    gates = [v.shape != out.shape and not v.is_const for v in node.inputs]
    if len(layout.dims) > 2 or n == 1 or not any(gates) or math.prod(extents) == 1:
        return b.put(node, layout, known, node.attrs)
    # Operands of one value a channel and an image, where rows are pixels of all images: they are seen image by image.
    seen = [
        b.new.add("reshape", [o], {"shape": _by_image(layout, n, c, 1 if gate else math.prod(extents))[0]}, v.name)[0] if gate or v.shape == out.shape else o
        for v, o, gate in zip(node.inputs, known, gates)
    ]  # fmt: skip
    (made,) = b.new.add(node.op, seen, node.attrs, out.name, node.origin)
    return b.keep(out, layout, b.new.add("reshape", [made], {"shape": layout.shape(sizes_of(out))}, out.name)[0])


def _stays_finite(node: Node, layout: Layout) -> bool:
    """Whether channels that fill up a block stay finite: they are 0 after a convolution, and the next one multiplies them by 0, so 1 / 0 would come out
    as 0 * inf. So elementwise work is blocked where it makes finite numbers of any finite ones, or where there are none."""
    by_constant = node.op == "divide" and node.inputs[1].is_const
    full = node.outputs[0].shape[1] % layout.blocks.get("c", 1) == 0
    return FINITE in node.definition.traits or by_constant or full


def _operand(b: _Twins, v: Value, out: Value, layout: Layout) -> Value | None:
    """A value as the operand of elementwise work in a layout; a constant of one value (a channel) broadcasts."""
    ones = (1,) * (out.ndim - 2)
    if v.is_known and v.type.size == 1:
        return b.new.constant(np.asarray(v.data).reshape(()), v.name, v.dtype)
    if v.is_known and (1,) * (out.ndim - v.ndim) + v.shape == (1, out.shape[1], *ones):
        # What fills up a block is the last value again: a divisor of 0 would not stay finite.
        stored = layout.store(np.asarray(v.data).reshape(1, -1, *ones), plain(out.ndim).name, "edge")
        return b.new.constant(stored, v.name, v.dtype)
    if v.shape == out.shape:
        return b.twin(v, layout)
    if v.is_const or v.ndim != out.ndim or v.shape[1] != out.shape[1]:
        return None
    whole_images = v.shape[0] == out.shape[0] and v.shape[2:] == ones
    return b.twin(v, layout) if whole_images or (layout.blocks and layout in b.twins.get(v, ())) else None
