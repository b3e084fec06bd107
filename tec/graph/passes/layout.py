"""Blocked layout for the CPU: convolutions and what stands between them work on NCHWc, so that a vector of channels is contiguous.

Convolutions ask for it; elementwise work, sums, pooling and channel concatenation pass it on; everything else gets NCHW
back through `unpack`. Weights are packed here, once.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ...ops import blocked as _blocked  # noqa: F401  (registers the operators)
from ...ops.matmul import accumulator
from ...ops.registry import FINITE, SHAPED
from ...target import Target
from ...te.evaluate import np_dtype
from ..graph import Graph, Node, Value
from .rewrite import Rebuild

# Channels that fill up a block are 0 after a convolution, and the next one multiplies them by 0: they must stay finite on the
# way (1 / 0 would come out as 0 * inf). So elementwise work is blocked where it makes finite numbers of any finite ones.
_FEW_CHANNELS = 4  # inputs with so few channels stay NCHW: a block would be mostly padding


class _Layout(Rebuild):
    """`map` holds plain values, `packed` their blocked twins; each is made from the other when asked for."""

    def __init__(self, graph: Graph, block: int):
        super().__init__(graph)
        self.block = block
        self.packed: dict[Value, Value] = {}

    def plain(self, v: Value) -> Value:
        if v.is_const or v in self.map:
            return self.value(v)
        out = self.new.add("unpack", [self.packed[v]], {"channels": v.shape[1]}, v.name)[0]
        self.map[v] = out
        return out

    value_of = plain

    def blocked(self, v: Value) -> Value:
        if v not in self.packed:
            self.packed[v] = self.new.add("pack", [self.plain(v)], {"block": self.block}, v.name + "_nchwc")[0]
        return self.packed[v]

    def copy(self, node: Node) -> list[Value]:
        outs = self.new.add(
            node.op, [self.plain(v) for v in node.inputs], node.attrs, node.outputs[0].name, node.origin
        )
        self.map.update(zip(node.outputs, outs))
        return outs

    def finish(self) -> Graph:
        self.new.set_outputs([self.plain(v) for v in self.old.outputs], self.old.output_names)
        return self.new


def blocked_layout(graph: Graph, target: Target) -> Graph:
    """The graph with its 2-D convolutions in blocked layout; the same graph where it has none."""
    block = max(8, target.vector_bytes // 4)
    if not any(_blockable(n, block) for n in graph.nodes):
        return graph
    b = _Layout(graph, block)
    for node in graph.nodes:
        if not _place(b, node):
            b.copy(node)
    return b.finish()


_MOST_MERGED = 8  # groups that are computed as one, mostly zeros, so that they fill a block: vectors are worth as much


def _blockable(node: Node, block: int) -> bool:
    if node.op != "conv" or node.inputs[0].ndim != 4 or not node.inputs[1].is_const or node.attrs.get("fill"):
        return False
    return _is_depthwise(node) or _merged(node, block) > 0


def _is_depthwise(node: Node) -> bool:
    w, groups = node.inputs[1].shape, node.attrs["groups"]
    return bool(groups == w[0] and w[1] == 1 and groups > 1)


def _merged(node: Node, block: int) -> int:
    """How many groups of channels go into one that is made of whole blocks; 0 where none do."""
    w, groups = node.inputs[1].shape, node.attrs["groups"]
    if groups == 1:
        return 1
    count = math.lcm(*(block // math.gcd(block, n) for n in (w[1], w[0] // groups)))
    return count if count <= _MOST_MERGED and groups % count == 0 else 0


def _place(b: _Layout, node: Node) -> bool:
    """Put the node on blocked values where it can work on them; False leaves it to a plain copy."""
    out = node.outputs[0]
    if _blockable(node, b.block):
        b.packed[out] = _conv(b, node)
        return True
    if out.ndim != 4 or len(node.outputs) != 1 or not any(v in b.packed for v in node.inputs):
        return False
    if node.definition.kind in ("elementwise", "broadcast"):
        if not _stays_finite(node, b.block):
            return False
        operands = [_operand(b, v, out) for v in node.inputs]
        if any(o is None for o in operands):
            return False
        b.packed[out] = b.new.add(node.op, [o for o in operands if o is not None], node.attrs, out.name, node.origin)[0]
        return True
    x = node.inputs[0]
    if node.op == "max_pool" and not node.attrs.get("indices") and len(node.attrs["kernel"]) == 2:
        attrs = {k: node.attrs[k] for k in ("kernel", "strides", "dilations", "before", "after")}
        b.packed[out] = b.new.add(
            "max_pool_nchwc", [b.blocked(x)], {**attrs, "out_space": tuple(out.shape[2:])}, out.name, node.origin
        )[0]
        return True
    if node.op == "reduce_mean" and out.shape[2:] == (1, 1) and out.shape[:2] == x.shape[:2]:
        b.packed[out] = b.new.add("mean_nchwc", [b.blocked(x)], {}, out.name, node.origin)[0]
        return True
    if (
        node.op == "concat"
        and node.attrs["axis"] % 4 == 1
        and all(v.shape[1] % b.block == 0 for v in node.inputs[:-1])
        and all(v in b.packed for v in node.inputs)
    ):
        b.packed[out] = b.new.add("concat", [b.blocked(v) for v in node.inputs], node.attrs, out.name, node.origin)[0]
        return True
    return False


def _stays_finite(node: Node, block: int) -> bool:
    """Whether the channels that fill up a block stay finite; where there are none, all but changes of shape may be blocked."""
    if SHAPED in node.definition.traits:
        return False
    by_constant = node.op == "divide" and node.inputs[1].is_const
    return FINITE in node.definition.traits or by_constant or node.outputs[0].shape[1] % block == 0


def _operand(b: _Layout, v: Value, out: Value) -> Value | None:
    """A value as the operand of blocked elementwise work: blocked itself, or a constant of one value (a channel)."""
    if v in b.packed:
        # A channel vector (1, C, 1, 1) or a full tensor; both broadcast alike once blocked.
        return b.packed[v] if v.shape[1] == out.shape[1] else None
    if v.is_const:
        shape = (1,) * (4 - v.ndim) + v.shape
        if v.type.size == 1:
            return b.new.constant(np.asarray(v.data).reshape(()), v.name, v.dtype)
        if shape == (1, out.shape[1], 1, 1):
            return b.new.constant(
                _block_channels(np.asarray(v.data).reshape(-1), b.block).reshape(1, -1, 1, 1, b.block), v.name, v.dtype
            )
        return None
    return b.blocked(v) if v.shape == out.shape else None


def _block_channels(vector: Any, block: int) -> Any:
    """A vector over channels, filled up with its last value to a multiple of the block."""
    return np.pad(vector, (0, -len(vector) % block), mode="edge")


def _conv(b: _Layout, node: Node) -> Value:
    """The blocked convolution, in the type that it sums in: 16-bit floats and bytes are widened on their way in, as the plain one widens them."""
    x, w = node.inputs
    out = node.outputs[0]
    acc = accumulator(x.dtype)
    made = _sum(b, node, np.asarray(w.data).astype(np_dtype(acc)), acc)
    return made if acc == out.dtype else b.new.add("cast", [made], {"dtype": out.dtype}, out.name)[0]


def _wide(b: _Layout, v: Value, acc: str) -> Value:
    return v if v.dtype == acc else b.new.add("cast", [v], {"dtype": acc}, v.name)[0]


def _sum(b: _Layout, node: Node, data: Any, acc: str) -> Value:
    x, w = node.inputs
    block, groups = b.block, node.attrs["groups"]
    attrs = {k: node.attrs[k] for k in ("strides", "dilations", "before", "after")}
    attrs["kernel"] = tuple(data.shape[2:])
    name = node.outputs[0].name
    if _is_depthwise(node):
        full = np.pad(data[:, 0], ((0, -len(data) % block), (0, 0), (0, 0)))
        weights = full.reshape(-1, block, *data.shape[2:]).transpose(0, 2, 3, 1)
        taps = b.new.constant(np.ascontiguousarray(weights), w.name)
        return b.new.add("depthwise_nchwc", [_wide(b, b.blocked(x), acc), taps], attrs, name, node.origin)[0]
    if groups > 1:
        data = _diagonal(data, groups, _merged(node, block))
        attrs["groups"] = groups // _merged(node, block)
    out_c, in_c, kh, kw = data.shape
    outs = np.pad(data, ((0, -out_c % block), (0, 0), (0, 0), (0, 0))).reshape(-1, block, in_c, kh, kw)
    if groups == 1 and in_c <= _FEW_CHANNELS and x not in b.packed:
        weights = outs.transpose(0, 2, 3, 4, 1)
        source = b.plain(x)
    else:
        full = np.pad(outs, ((0, 0), (0, 0), (0, -in_c % block), (0, 0), (0, 0)))
        weights = full.reshape(full.shape[0], block, -1, block, kh, kw).transpose(0, 2, 4, 5, 3, 1)
        source = b.blocked(x)
    packed = b.new.constant(np.ascontiguousarray(weights), w.name)
    return b.new.add("conv_nchwc", [_wide(b, source, acc), packed], attrs, name, node.origin)[0]


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
