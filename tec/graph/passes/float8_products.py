"""Products of what is dequantized from 8-bit floats as products of these floats, where the target has a matrix unit for them.

    matmul(cast(q) * s, cast(w) * t)   ->   matmul(q, w) in float32 * (s * t)

In: networks that quantize to 8-bit floats and back around products and convolutions (ONNX's QDQ form), with weights that an importer has marked as
dequantized (`Value.quantized`). Products of 8-bit floats are exact in float32, so that results differ by the order of scaling and summing alone.

A unit for the FNUZ form (CDNA3) takes the OCP's e4m3 too: the same bits are half the number there, but for negative zero and NaN.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ...ir.dtype import dtype_info
from ...target import Target
from ...te import intrin
from ...te.numpy_dtype import np_dtype
from ..graph import Graph, Node, Value
from .rewrite import Rebuild, rebuild

_OCP, _FNUZ = "float8_e4m3", "float8_e4m3fnuz"
_NEGATIVE_ZERO, _NO_NUMBER = 0x80, 0x7F  # bits of e4m3


def float8_products(graph: Graph, target: Target) -> Graph:
    """The graph with products of 8-bit floats; the same where the target has no unit for them."""
    units = units_of(target)
    if not units or not any(_marked(n) for n in graph.nodes):
        return graph
    halves: dict[Value, Value] = {}

    def operand(b: Rebuild, q: Value, taken: str) -> Value:
        """8-bit floats as the unit takes them."""
        if q.dtype == taken:
            return b.value(q)
        if q not in halves:
            halves[q] = _halved(b, b.value(q))
        return halves[q]

    def handle(b: Rebuild, node: Node) -> bool:
        if not _marked(node):
            return False
        x, w = node.inputs
        made, known = _dequantized(x), w.quantized
        if made is None or known is None or node.attrs.get("fill"):
            return False
        q, scale = made
        factor = _by_column(node, known.data, known.scale)
        taken = q.dtype if q.dtype in units else _FNUZ if q.dtype == _OCP and _FNUZ in units else None
        if factor is None or taken is None or q.dtype != known.dtype:
            return False
        out = node.outputs[0]
        halved = taken != q.dtype
        data = (np.asarray(known.data) * (0.5 if halved else 1)).astype(np_dtype(taken))
        attrs = {**node.attrs, **({"out_dtype": "float32"} if node.op == "matmul" else {})}
        (y,) = b.new.add(
            node.op, [operand(b, q, taken), b.new.constant(data, w.name, taken)], attrs, out.name, node.origin
        )
        times = b.new.constant((factor * (4 if halved else 1)).astype(np.float32), "scale")
        both = b.new.add("multiply", [_float32(b, b.value(scale)), times], {}, "scale")[0]
        (y,) = b.new.add("multiply", [y, both], {}, out.name)
        b.map[out] = b.cast(y, out.dtype, out.name)
        return True

    return rebuild(graph, handle)


def units_of(target: Target) -> frozenset[str]:
    """The 8-bit floats that the target's matrix units take."""
    if not target.is_gpu:
        return frozenset()
    known = {i.in_dtype for i in intrin.shapes(target)} | {i for i, _, _ in target.chip.warpgroup}
    return frozenset(d for d in known if d.startswith("float8"))


def _marked(node: Node) -> bool:
    if node.op not in ("matmul", "conv") or node.outputs[0].dtype not in ("float32", "float16", "bfloat16"):
        return False
    return bool(node.inputs[1].quantized is not None and node.inputs[1].quantized.dtype)


def _dequantized(v: Value) -> tuple[Value, Value] | None:
    """(8-bit floats, their one scale) of a value that is their product."""
    node = v.node
    if node is not None and node.op == "cast" and v.dtype in ("float16", "bfloat16"):
        node = node.inputs[0].node
    if node is None or node.op != "multiply" or node.inputs[1].type.size != 1:
        return None
    made, scale = node.inputs
    if made.node is not None and made.node.op == "subtract" and _is_zero(made.node.inputs[1]):
        made = made.node.inputs[0]
    if made.node is None or made.node.op != "cast" or not dtype_info(made.node.inputs[0].dtype).is_float8:
        return None
    q = made.node.inputs[0]
    return (q, scale) if q.shape == v.shape else None


def _is_zero(v: Value) -> bool:
    return v.is_known and not np.any(np.asarray(v.data).astype(np.float32))


def _by_column(node: Node, data: Any, scale: Any) -> Any:
    """Weights' scales so that they broadcast against the product: one, or one a column or output channel; None for others."""
    scale, data = np.asarray(scale), np.asarray(data)
    if scale.size == 1:
        return scale.reshape(())
    channel = 0 if node.op == "conv" else data.ndim - (2 if node.attrs.get("transpose_b") else 1)
    shape = [1] * (data.ndim - scale.ndim) + list(scale.shape)
    if scale.size != data.shape[channel] or shape[channel] != scale.size:
        return None
    return scale.reshape((scale.size, *[1] * (data.ndim - 2 if node.op == "conv" else 0)))


def _float32(b: Rebuild, v: Value) -> Value:
    v = b.cast(v, "float32")
    return v if v.ndim == 0 else b.new.add("reshape", [v], {"shape": ()}, v.name)[0]


def _halved(b: Rebuild, q: Value) -> Value:
    """e4m3 as FNUZ numbers of half the size: the same bits, negative zero as zero, NaN as NaN's."""
    add = b.new.add

    def byte(x: int) -> Value:
        return b.new.constant(np.uint8(x), "byte", "uint8")

    (bits,) = add("bitcast", [q], {"dtype": "uint8"}, q.name)
    (zero,) = add("equal", [bits, byte(_NEGATIVE_ZERO)], {}, q.name)
    (size,) = add("bitwise_and", [bits, byte(_NO_NUMBER)], {}, q.name)
    (none,) = add("equal", [size, byte(_NO_NUMBER)], {}, q.name)
    (bits,) = add("where", [none, byte(_NEGATIVE_ZERO), bits], {}, q.name)  # where FNUZ has its NaN
    (bits,) = add("where", [zero, byte(0), bits], {}, q.name)
    return add("bitcast", [bits], {"dtype": _FNUZ}, q.name)[0]
