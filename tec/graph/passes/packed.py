"""Packed weights stay packed: products with them are operators of their own, in the order that the target's kernels read.

    matmul(x, dequantize(codes, scales))   ->   packed_matmul(x, codes, scales)      (codes in panels, or as words along the sum)
                                           ->   packed_matmul(q, codes, scales, s) with q, s = round_blocks(x) where the model allows that (`rounds`) and
                                                the target multiplies bytes in fours
    matmul(mx_round(x), dequantize(codes, scales))   ->   mx_matmul(mx_quantize(x), codes, scales) of two microscaling formats, where the target has a unit for them

A gather of rows makes the numbers that it takes (fusion puts `dequantize` into it). What any other node reads becomes numbers here, once.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ...choices import layouts as preferred
from ...ir.microscaling import BLOCK, format_of, pack
from ...ops.packed import WORD_BITS, Weights, unpacked
from ...records import dataclass
from ...target import Target
from ..graph import Graph, Node, Value
from ..operators import run_op
from .rewrite import Rebuild, rebuild

_MANY_ROWS, _SMALL = 256, 1 << 16  # rows of a product, elements of a matrix
LEAST_BLOCK = 16  # codes with a scale of their own: with fewer, the scales take more room than they


def pack_weights(graph: Graph, target: Target) -> Graph:
    """The graph with packed products, and no other constant left packed that something but a gather reads."""
    if not any(n.op == "dequantize" for n in graph.nodes):
        return graph
    users, outputs = graph.users(), set(graph.outputs)
    known: dict[tuple[Node, bool], _Matrix | None] = {}
    products = _Products(target)

    def matrix(node: Node) -> tuple[Node, bool, _Matrix] | None:
        """The packed matrix that a product's second operand is: its node, and whether that is [n, k]."""
        y = node.inputs[1] if node.op == "matmul" else None
        if (
            y is None
            or y.ndim != 2
            or any(node.attrs.get(a) for a in ("transpose_a", "view_a", "view_b", "layout_b", "out_dtype"))
        ):
            return None  # fmt: skip
        turned = bool(node.attrs.get("transpose_b"))
        while y.node is not None and y.node.op == "transpose":
            turned, y = not turned, y.node.inputs[0]
        source = y.node
        if source is None or source.op != "dequantize" or not all(v.is_known for v in source.inputs):
            return None
        if node.inputs[0].dtype not in ("float32", "float16", "bfloat16") or node.inputs[0].ndim < 2:
            return None
        if not target.is_gpu and not source.attrs.get("rounds") and _is_small(y, node.inputs[0]):
            return None
        key = source, turned
        if key not in known:
            known[key] = _Matrix.of(source, turned)
        found = known[key]
        return (source, turned, found) if found is not None else None

    def stays(v: Value) -> bool:
        """Whether all that reads v takes it as it is."""
        return v not in outputs and all(
            (n.op == "gather" and n.inputs[1] is not v)
            or (n.op == "matmul" and n.inputs[0] is not v and matrix(n) is not None)
            or (n.op == "transpose" and stays(n.outputs[0]))
            for n in users.get(v, ())
        )

    def handle(b: Rebuild, node: Node) -> bool:
        if node.op == "dequantize" and all(v.is_known for v in node.inputs):
            out = node.outputs[0]
            if stays(out):
                return False
            types = [v.type for v in node.inputs]
            (made,) = run_op(node.definition, node.attrs, [v.data for v in node.inputs], types, [out.type])
            b.map[out] = b.new.constant(made, out.name, out.dtype)
            return True
        found = matrix(node)
        if found is None:
            return False
        products.put(b, node, *found)
        return True

    return rebuild(graph, handle)


def _is_small(matrix: Value, x: Value) -> bool:
    """Whether a matrix's numbers fit a core's caches and many rows meet them: they take no memory to speak of, and products with numbers are up to 1.9 times as quick as those that
    decode theirs for each block of rows."""
    rows, size = x.type.size // max(1, x.shape[-1]) if isinstance(x.type.size, int) else 0, matrix.type.size
    return rows >= _MANY_ROWS and isinstance(size, int) and size <= _SMALL


class _Products:
    """Packed products of one graph: matrices are stored, and operands rounded, once for all that read them."""

    def __init__(self, target: Target):
        self.target = target
        self.stored: dict[tuple[Node, bool, int], tuple[Weights, list[Value]]] = {}
        self.rounded: dict[tuple[Value, int], list[Value]] = {}  # by value and block: its bytes and their scales
        self.scaled: dict[tuple[Node, bool, int], list[Value]] = {}  # elements and scales as that unit reads them
        # By value and microscaling format: its elements and their scales.
        self.elements: dict[tuple[Value, str], list[Value]] = {}

    def put(self, b: Rebuild, node: Node, source: Node, turned: bool, m: _Matrix) -> None:
        """The product `node` with the packed matrix of `source`."""
        if self._scaled(b, node, source, turned, m):
            return
        group = self._group(node, source, m)
        key = source, turned, group
        if key not in self.stored:
            self.stored[key] = m.stored(b, preferred.packed(self.target), source.inputs[0].name, group)
        w, constants = self.stored[key]
        x, out, add = b.value(node.inputs[0]), node.outputs[0], b.new.add
        if x.ndim > 2:
            (x,) = add("reshape", [x], {"shape": (x.type.size // x.shape[-1], x.shape[-1])}, x.name)
        if x.shape[1] < w.k:
            (x,) = add("pad", [x], {"before": (0, 0), "after": (0, w.k - x.shape[1])}, x.name)
        attrs: dict[str, Any] = {
            "bits": w.bits, "block": w.block, "panel": w.panel, "depth": w.k, "columns": w.n, "zero": w.zero
        }  # fmt: skip
        if w.format:
            attrs["format"] = w.format
        if group > 1:
            attrs["group"] = group
            of = node.inputs[0], w.block
            if of not in self.rounded:
                self.rounded[of] = add("round_blocks", [x], {"block": w.block}, x.name)
            x, scales = self.rounded[of]
            constants = [*constants, scales]
        (y,) = add("packed_matmul", [x, *constants], attrs, out.name, node.origin)
        b.map[out] = y if y.shape == out.shape else add("reshape", [y], {"shape": out.shape}, out.name)[0]

    def _scaled(self, b: Rebuild, node: Node, source: Node, turned: bool, m: _Matrix) -> bool:
        """The product on a unit for two microscaling formats, where its other operand is rounded to one (`mx_round`), and the target has such a unit."""
        rounded = node.inputs[0]
        while (
            rounded.node is not None
            and rounded.node.op in ("cast", "reshape")
            and rounded.type.shape[-1] == rounded.node.inputs[0].shape[-1]
        ):
            rounded = rounded.node.inputs[0]
        made, out, add = rounded.node, node.outputs[0], b.new.add
        if made is None or made.op != "mx_round" or not m.format or m.block != BLOCK or not self.target.is_gpu:
            return False
        n, k = m.codes.shape
        step = max((shape[2] for shape in self.target.chip.scaled_matrix), default=0)
        if not step or k % step or k != rounded.shape[-1] or not all(isinstance(d, int) for d in rounded.shape):
            return False
        if out.dtype not in ("float32", "float16", "bfloat16"):
            return False
        form = format_of(made.attrs["format"]).name
        of = made.inputs[0], form
        if of not in self.elements:
            x = b.value(made.inputs[0])
            if x.ndim != 2:
                (x,) = add("reshape", [x], {"shape": (x.type.size // k, k)}, x.name)
            self.elements[of] = add("mx_quantize", [x], {"format": form}, made.outputs[0].name)
        key = source, turned, 0
        if key not in self.scaled:
            name, f = source.inputs[0].name, format_of(m.format)
            elements = b.new.constant(np.ascontiguousarray(pack(m.codes, f)), name, "uint8")
            self.scaled[key] = [elements, b.new.constant(np.ascontiguousarray(m.scales), name + "_scale", "uint8")]
        attrs = {"format_a": form, "format_b": m.format, "out_dtype": out.dtype}
        (y,) = add("mx_matmul", [*self.elements[of], *self.scaled[key]], attrs, out.name, node.origin)
        b.map[out] = y if y.shape == out.shape else add("reshape", [y], {"shape": out.shape}, out.name)[0]
        return True

    def _group(self, product: Node, source: Node, m: _Matrix) -> int:
        """Codes that the target multiplies with bytes of x at once, where the model lets x be rounded; else 1."""
        if self.target.is_gpu or not source.attrs.get("rounds") or product.inputs[0].dtype != "float32" or m.format:
            return 1
        group = preferred.packed_group(self.target)
        return group if m.block % group == 0 and (m.zeros is not None or m.zero == int(m.zero)) else 1


@dataclass
class _Matrix:
    """A packed matrix by its columns: codes [n, k], one a byte; scales and zero points [n, blocks]."""

    codes: Any
    scales: Any
    zeros: Any
    zero: float
    bits: int
    block: int
    scale_dtype: str
    format: str = ""

    @classmethod
    def of(cls, node: Node, turned: bool) -> _Matrix | None:
        """From a `dequantize` of [k, n], or [n, k] where `turned`; None where its blocks do not lie along k, or are small."""
        attrs = node.attrs
        codes = unpacked(node.inputs[0].data, attrs["bits"], attrs["shape"][-1])
        axis, block = attrs["axis"], attrs["block"]
        blocks = [np.asarray(v.data) for v in node.inputs[1:]]
        if not turned:
            codes, axis, blocks = codes.T, 1 - axis, [a.T for a in blocks]
        n, k = codes.shape
        if axis == 0:  # all of a column shares one
            if blocks[0].shape[1] != 1:
                return None
            blocks = [a if len(a) == 1 else np.repeat(a, block, 0)[:n] for a in blocks]
        per = 4 if attrs["bits"] == 6 else WORD_BITS // attrs["bits"]
        if blocks[0].shape[1] == 1:
            block = max(LEAST_BLOCK, -(-k // per) * per)
        if block < LEAST_BLOCK or block % per:
            return None
        scales, *zeros = (np.broadcast_to(a, (n, a.shape[1])) for a in blocks)
        codes = np.pad(codes, ((0, 0), (0, -k % block)))
        zero = 0.0 if attrs.get("format") else float(attrs.get("zero", 1 << (attrs["bits"] - 1)))
        if zeros and (zeros[0] == zeros[0].flat[0]).all():  # the same for all
            zero, zeros = float(zeros[0].flat[0]), []
        return cls(
            codes,
            scales,
            zeros[0] if zeros else None,
            zero,
            attrs["bits"],
            block,
            node.inputs[1].dtype,
            attrs.get("format", ""),
        )

    def stored(self, b: Rebuild, panel: int, name: str, group: int) -> tuple[Weights, list[Value]]:
        n, k = self.codes.shape
        bits = 8 if panel and self.bits == 6 else self.bits  # in panels one a byte
        w = Weights(bits, self.block, panel, k, n, self.zero, group, self.format)
        made = [b.new.constant(w.store(self.codes), name, w.codes_dtype)]
        made.append(b.new.constant(w.store_blocks(self.scales), name + "_scale", self.scale_dtype))
        if self.zeros is not None:
            zeros = w.store_blocks(self.zeros)
            made.append(b.new.constant(zeros, name + "_zero", self.scale_dtype if zeros.dtype.kind != "u" else "uint8"))
        return w, made
