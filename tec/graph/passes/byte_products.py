"""Products and convolutions of quantized bytes for matrix units, which take x as signed bytes (those of GPUs, Arm's dot product) or as
unsigned ones (x86's dot product).

An importer writes x - zero in int32, times constant weights. With s what x is shifted by (128 for unsigned x that is wanted signed, -128 the other
way round, 0 where it is as wanted):

    (x - zero) . w  =  (x - s) . w  +  (s - zero) * sum of w along k

The first product is one of int8; the second factor is a constant for each output channel. A convolution's padding, 0 in x - zero,
is zero - s in x - s: it needs a constant zero point.

An x86 core without a dot product of bytes multiplies pairs of 16 bits (vpmaddwd), which hold x - zero as it is: nothing is shifted. A multiplication in 32
bits takes twice as long as one of floats there.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ...target import Target
from ...te import intrin
from ..graph import Graph, Node, Value
from .rewrite import Rebuild, rebuild

_AVX2_BYTES = 32  # of a vector
_VIEWS = ("reshape", "transpose")  # of an operand, which passes may have moved behind its zero point


def byte_products(graph: Graph, target: Target) -> Graph:
    """The graph with int32 products of bytes as such of the bytes that the target has a matrix unit for, or of 16 bits."""
    wanted = bytes_of(target)
    if wanted is None:
        pairs = None if target.is_gpu else intrin.vector_dot(target, "int16")
        return graph if pairs is None else _word_products(graph, pairs)
    dot = None if target.is_gpu else intrin.vector_dot(target, wanted)
    shifted: dict[Value, Value] = {}

    def as_wanted(b: Rebuild, x: Value) -> Value:
        """x less its shift, as the bytes that are wanted."""
        if x.dtype == wanted:
            return b.value(x)
        if x not in shifted:
            wide = b.cast(b.value(x), "int32", x.name)
            (wide,) = b.new.add("subtract", [wide, b.new.constant(np.int32(_shift(x, wanted)), "half")], {}, x.name)
            shifted[x] = b.cast(wide, wanted, x.name)
        return shifted[x]

    def handle(b: Rebuild, node: Node) -> bool:
        if node.op not in ("matmul", "conv") or not node.outputs or node.outputs[0].dtype != "int32":
            return False
        x, w = node.inputs
        source, zero, views = _source(x)
        if source is None or not w.is_known or w.dtype not in ("int8", "int32"):
            return False
        data = np.asarray(w.data)
        missing = _missing(node, data, dot)
        if x.dtype == wanted and w.dtype == "int8" and not missing:
            return False
        if data.size == 0 or data.min() < -128 or data.max() > 127:
            return False
        shift = _shift(source, wanted)
        plan = _matmul(node, data, zero) if node.op == "matmul" else _conv(node, data, wanted, shift, zero)
        if plan is None:
            return False
        attrs, sums = plan
        out = node.outputs[0]
        operand = viewed(b, as_wanted(b, source), views, x.name)
        if missing:
            operand, data = _filled(b, operand, data, missing)
        weights = b.new.constant(data.astype(np.int8), w.name, "int8")
        (y,) = b.new.add(node.op, [operand, weights], attrs, out.name, node.origin)
        total = b.new.constant(sums, "sums", "int32")
        if zero is None or zero.is_known:
            known = shift - (np.asarray(zero.data).astype(np.int32) if zero is not None else 0)
            rest = b.new.constant((known * sums).astype(np.int32), "offset", "int32")
        else:
            (offset,) = b.new.add("subtract", [b.new.constant(np.int32(shift), "half"), b.value(zero)], {}, zero.name)
            (rest,) = b.new.add("multiply", [offset, total], {}, out.name)
        b.map[out] = y if rest.is_known and not np.any(rest.data) else b.new.add("add", [y, rest], {}, out.name)[0]
        return True

    return rebuild(graph, handle)


def _word_products(graph: Graph, pairs: intrin.VectorDot) -> Graph:
    """The graph with int32 products of bytes, less their zero points, as such of 16 bits."""
    words: dict[tuple[Value, Value | None], Value] = {}

    def as_words(b: Rebuild, x: Value, zero: Value | None) -> Value:
        """x less its zero point in int16."""
        if (x, zero) not in words:
            wide = b.cast(b.value(x), "int16", x.name)
            if zero is not None and zero.is_known:
                (wide,) = b.new.add("subtract", [wide, b.new.constant(np.asarray(zero.data).astype(np.int16), zero.name)], {}, x.name)  # fmt: skip
            elif zero is not None:
                (wide,) = b.new.add("subtract", [wide, b.cast(b.value(zero), "int16", zero.name)], {}, x.name)
            words[x, zero] = wide
        return words[x, zero]

    def handle(b: Rebuild, node: Node) -> bool:
        if node.op not in ("matmul", "conv") or not node.outputs or node.outputs[0].dtype != "int32":
            return False
        x, w = node.inputs
        source, zero, views = _source(x)
        if source is None or not w.is_known or w.dtype not in ("int8", "uint8", "int32"):
            return False
        data = np.asarray(w.data)
        if data.size == 0 or data.min() < -128 or data.max() > 255 or node.attrs.get("groups", 1) != 1:
            return False
        missing = _missing(node, data, pairs)
        operand = viewed(b, as_words(b, source, zero), views, x.name)
        if missing:
            operand, data = _filled(b, operand, data, missing)
        weights = b.new.constant(data.astype(np.int16), w.name, "int16")
        out = node.outputs[0]
        attrs = {**node.attrs, "out_dtype": "int32"}
        b.map[out] = b.new.add(node.op, [operand, weights], attrs, out.name, node.origin)[0]
        return True

    return rebuild(graph, handle)


def behind_views(x: Value) -> tuple[Value, list[Node]]:
    """What x is a view of, and the views in order."""
    views: list[Node] = []
    while x.node is not None and x.node.op in _VIEWS:
        views.insert(0, x.node)
        x = x.node.inputs[0]
    return x, views


def viewed(b: Rebuild, x: Value, views: list[Node], name: str) -> Value:
    """The same views of x, a value of the new graph."""
    for view in views:
        (x,) = b.new.add(view.op, [x], view.attrs, name)
    return x


def _source(x: Value) -> tuple[Value | None, Value | None, list[Node]]:
    """(bytes, zero point, the views that x is of them) of an operand; (None, None, []) for others."""
    of, views = behind_views(x)
    if x.dtype != "int32" or not views:
        return *_bytes(x), []
    source, zero = _bytes(of)
    return (source, zero, views) if zero is None or zero.type.size == 1 else (None, None, [])


def _missing(node: Node, data: Any, dot: intrin.VectorDot | None) -> int:
    """Terms that the sum of a product lacks of whole groups of a CPU's dot product."""
    turned = node.attrs.get("transpose_a") or node.attrs.get("transpose_b")
    return 0 if dot is None or node.op != "matmul" or turned or data.ndim != 2 else -data.shape[0] % dot.group


def _filled(b: Rebuild, x: Value, data: Any, missing: int) -> tuple[Value, Any]:
    """The operands with so many further terms of zeros: a copy of x takes less than products of single bytes do."""
    after = (0,) * (x.ndim - 1) + (missing,)
    (x,) = b.new.add("pad", [x], {"before": (0,) * x.ndim, "after": after}, x.name)
    return x, np.concatenate([data, np.zeros((missing, data.shape[1]), data.dtype)])


def bytes_of(target: Target) -> str | None:
    """The bytes that the target's matrix unit takes for x; None where it has no such unit."""
    if target.is_gpu:
        return "int8" if any(i.in_dtype == "int8" for i in intrin.shapes(target)) else None
    return next((d for d in ("uint8", "int8") if intrin.vector_dot(target, d) is not None), None)


def multiplies_integers(target: Target) -> bool:
    """Whether products of bytes are quicker as integers than as floats: by a unit for bytes, or by pairs of 16 bits from AVX2 on. SSE2 has such pairs, but no
    multiplication of 32 bits, by which windows of one channel go."""
    if bytes_of(target) is not None:
        return True
    return not target.is_gpu and target.vector_bytes >= _AVX2_BYTES and intrin.vector_dot(target, "int16") is not None


def _shift(x: Value, wanted: str) -> int:
    """What is subtracted from bytes x to have them as wanted."""
    return 0 if x.dtype == wanted else 128 if wanted == "int8" else -128


def _bytes(v: Value) -> tuple[Value | None, Value | None]:
    """(bytes, zero point) of bytes, or of bytes less a zero point in int32."""
    if v.dtype in ("int8", "uint8"):
        return v, None
    if v.dtype != "int32" or v.node is None:
        return None, None
    zero = None
    node = v.node
    if node.op == "subtract" and node.inputs[0].node is not None:
        zero, node = node.inputs[1], node.inputs[0].node
    if node.op != "cast" or node.inputs[0].dtype not in ("int8", "uint8") or node.inputs[0].shape != v.shape:
        return None, None
    return node.inputs[0], zero


def _matmul(node: Node, data: Any, zero: Value | None) -> tuple[dict[str, Any], Any] | None:
    """Attributes and sums of w, which broadcast to the output. A zero point may be one value, or one a row."""
    ta, tb = node.attrs.get("transpose_a", False), node.attrs.get("transpose_b", False)
    if zero is not None and zero.type.size != 1 and (ta or zero.ndim == 0 or zero.shape[-1] != 1):
        return None
    sums = data.sum(-1 if tb else -2, dtype=np.int32)
    attrs = {**node.attrs, "out_dtype": "int32"}
    return attrs, sums[..., None, :] if data.ndim > 2 else sums


def _conv(node: Node, data: Any, wanted: str, shift: int, zero: Value | None) -> tuple[dict[str, Any], Any] | None:
    if (
        node.inputs[0].ndim != 4
        or node.attrs["groups"] != 1
        or (zero is not None and not (zero.is_known and zero.type.size == 1))
    ):
        return None
    point = int(np.asarray(zero.data).reshape(())) if zero is not None else 0
    fill = point + (node.attrs.get("fill") or 0) - shift  # what the padding holds, in x as it is wanted
    if not np.iinfo(wanted).min <= fill <= np.iinfo(wanted).max:
        return None
    sums = data.sum((1, 2, 3), dtype=np.int32).reshape(-1, 1, 1)
    return {**node.attrs, "fill": fill} if fill else {k: v for k, v in node.attrs.items() if k != "fill"}, sums
