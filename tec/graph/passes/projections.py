"""Few rows through constant matrices on a GPU: products of one operand are one, with the norm before and the gate behind (`tec.ops.projection`).

A decoder's step is as long as its launches are many. Where a network has few rows (a token of each of some texts):

    q, k, v = h Wq, h Wk, h Wv      ->   slices of projection(x, g, [Wq Wk Wv])        h = x / sqrt(mean(x^2) + eps) * g
    silu(h W1) * (h W2)             ->   projection(x, g, [W1 W2], gate)

The gate's two may be halves of one product. Matrices whose numbers come later (`deferred`) are read by no pass: each stays a product of its own. The norm of a row
in 16 bits is computed in float32; what was rounded between norm and product no longer is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field
from typing import Any

import numpy as np

from ...choices.families.products.few_rows_matrix import most_rows
from ...ops.packed import Weights
from ...records import dataclass
from ...target import Target
from ..graph import Graph, Node, Value
from .rewrite import Rebuild, rebuild

_PLAIN = ("transpose_a", "view_a", "view_b", "layout_b", "out_dtype")
_HALVES = ("float16", "bfloat16")
_PACKED = ("bits", "block", "panel", "depth", "zero", "format")


@dataclass
class _Projection:
    """Products of few rows; the norm that made the rows, and the gate that ends them."""

    products: list[Node]
    x: Value
    scale: Value | None = None
    eps: float | None = None
    gate: Node | None = None
    inside: list[Node] = field(default_factory=list)  # between products and gate
    made: Value | None = None


def find_projections(graph: Graph, target: Target) -> Graph:
    """The graph with its projections, where the target has a kernel for them."""
    if not target.is_gpu:
        return graph
    look = _Look(graph, target)
    found: dict[Node, _Projection] = {}
    for p in look.projections():
        found.update((n, p) for n in [*p.products, *p.inside, *([p.gate] if p.gate else [])])
    if not found:
        return graph

    def handle(b: Rebuild, node: Node) -> bool:
        p = found.get(node)
        if p is None:
            return False
        if p.made is None:
            p.made = _emit(b, p)
        if node is p.gate:
            out = node.outputs[0]
            b.map[out] = b.new.add("reshape", [p.made], {"shape": out.shape}, out.name)[0]
        elif p.gate is None:
            at = sum(n.outputs[0].shape[1] for n in p.products[: p.products.index(node)])
            out = node.outputs[0]
            if out.shape == p.made.shape:
                b.map[out] = p.made
            else:
                attrs = {"starts": (0, at), "steps": (1, 1), "sizes": out.shape}
                b.map[out] = b.new.add("slice", [p.made], attrs, out.name, node.origin)[0]
        return True

    return rebuild(graph, handle)


def _emit(b: Rebuild, p: _Projection) -> Value:
    first = p.products[0]
    rows, depth = first.inputs[0].shape
    inputs = [b.value(p.x)]
    if inputs[0].ndim != 2:
        inputs = b.new.add("reshape", inputs, {"shape": (rows, depth)}, p.x.name)
    attrs: dict[str, Any] = {"depth": depth, "columns": sum(n.outputs[0].shape[1] for n in p.products)}
    if p.scale is not None:
        inputs.append(_vector(b, p.scale))
        attrs["eps"] = p.eps
    if p.gate is not None:
        attrs["gate"] = "silu"
    if first.op == "packed_matmul":
        attrs |= {a: first.attrs[a] for a in _PACKED if a in first.attrs}
        sides: list[list[Value]] = [n.inputs[1:] for n in p.products]
        for parts in zip(*sides):
            inputs.append(_joined(b, parts, [False] * len(parts)))
    else:
        turned = [not n.attrs.get("transpose_b") for n in p.products]
        inputs.append(_joined(b, [n.inputs[1] for n in p.products], turned))
    return b.new.add("projection", inputs, attrs, first.outputs[0].name, first.origin)[0]


def _vector(b: Rebuild, scale: Value) -> Value:
    if scale.ndim == 1:
        return b.value(scale)
    if scale.is_known:
        return b.new.constant(np.reshape(scale.data, -1), scale.name, scale.dtype)
    return b.new.add("reshape", [b.value(scale)], {"shape": (scale.type.size,)}, scale.name)[0]


def _joined(b: Rebuild, parts: Sequence[Value], turned: Sequence[bool]) -> Value:
    """Matrices one below the other; `turned`: those that are to be transposed before. A single one stays what it is."""
    if len(parts) == 1 and not turned[0]:
        return b.value(parts[0])
    rows = [np.asarray(v.data).T if t else np.asarray(v.data) for v, t in zip(parts, turned)]
    return b.new.constant(np.concatenate(rows), parts[0].name, parts[0].dtype)


class _Look:
    """Finding, on the old graph."""

    def __init__(self, graph: Graph, target: Target):
        self.graph, self.users, self.outputs = graph, graph.users(), set(graph.outputs)
        self.target = target

    def projections(self) -> list[_Projection]:
        by_row: dict[tuple[Value, Any], list[Node]] = {}
        for n in self.graph.nodes:
            key = _kind(n, self.target)
            if key is not None:
                by_row.setdefault((_shown(n.inputs[0]), key), []).append(n)
        of_row: dict[Value, list[Node]] = {}
        for (row, _), nodes in by_row.items():
            of_row.setdefault(row, []).extend(nodes)
        out = []
        for (row, _), nodes in by_row.items():
            p = _Projection(nodes, row)
            norm = self.norm(row)
            if norm is not None and all(r in of_row[row] for r in self.readers(row)):
                p.x, p.scale, p.eps = norm
            if len(nodes) == 2:
                self.gate(p)
            elif len(nodes) == 1:
                self.gate_of_halves(p)
            if p.scale is not None or p.gate is not None or len(nodes) > 1:
                out.append(p)
        return out

    def readers(self, v: Value) -> list[Node]:
        """What reads a value, through reshapes."""
        found: list[Node] = []
        for n in self.users.get(v, ()):
            found += self.readers(n.outputs[0]) if n.op == "reshape" else [n]
        return found

    def only(self, v: Value, *ops: str) -> Node | None:
        """The one node that reads a value, through reshapes, where it is of one of these operators."""
        found = self.readers(v)
        return found[0] if len(found) == 1 and found[0].op in ops and v not in self.outputs else None

    def norm(self, row: Value) -> tuple[Value, Value, float] | None:
        """(x, scale, eps) where `row` is x / sqrt(mean(x^2) + eps) * scale; x in 16 bits is cast for it, and so is the result."""
        last = row.node
        if last is not None and last.op == "cast" and row.dtype in _HALVES and last.inputs[0].dtype == "float32":
            last = last.inputs[0].node
        if last is None or last.op != "multiply" or row in self.outputs:
            return None
        scale, inner = _constant_first(last.inputs)
        if (
            scale is None
            or scale.type.size != row.shape[-1]
            or inner.node is None
            or inner.node.op not in ("multiply", "divide")
        ):
            return None  # fmt: skip
        for x, root in (inner.node.inputs, inner.node.inputs[::-1]):
            if (
                root.node is None
                or x.shape != row.shape
                or (inner.node.op == "divide" and root is not inner.node.inputs[1])
            ):
                continue  # fmt: skip
            n: Node | None = root.node
            if inner.node.op == "multiply":
                if n is None or n.op not in ("reciprocal", "rsqrt"):
                    continue
                n = n if n.op == "rsqrt" else n.inputs[0].node
            if n is None or n.op not in ("sqrt", "rsqrt") or n.inputs[0].node is None or n.inputs[0].node.op != "add":
                continue
            eps, mean = _constant_first(n.inputs[0].node.inputs)
            if (
                eps is None
                or not eps.is_known
                or eps.type.size != 1
                or mean.node is None
                or mean.node.op != "reduce_mean"
            ):
                continue
            axes = [a % row.ndim for a in mean.node.attrs["axes"]]
            square = mean.node.inputs[0].node
            if square is None or square.op != "square" or square.inputs[0] is not x or axes != [row.ndim - 1]:
                continue
            if x.dtype == row.dtype:
                return x, scale, float(np.reshape(eps.data, ()))
            if x.node is not None and x.node.op == "cast" and x.node.inputs[0].dtype == row.dtype:
                return x.node.inputs[0], scale, float(np.reshape(eps.data, ()))
        return None

    def gate(self, p: _Projection) -> None:
        """The gate that ends two products: a * sigmoid(a) * b."""
        if p.products[0].outputs[0].shape != p.products[1].outputs[0].shape:
            return
        for a, c in (p.products, p.products[::-1]):
            found = self.gated(a.outputs[0], c.outputs[0])
            if found is not None:
                p.products, (p.gate, p.inside) = [a, c], found
                return

    def gate_of_halves(self, p: _Projection) -> None:
        """The same of the halves of one product, the first of which goes through the sigmoid."""
        y = p.products[0].outputs[0]
        halves = self.readers(y)
        if y in self.outputs or len(halves) != 2 or y.shape[1] % 2:
            return
        half = y.shape[1] // 2
        if any(n.op != "slice" for n in halves):
            return
        halves.sort(key=lambda n: tuple(n.attrs["starts"]))
        for n, first in zip(halves, (0, half)):
            wide, attrs = n.inputs[0].shape, n.attrs
            before, zeros, ones = tuple(wide[:-1]), (0,) * (len(wide) - 1), (1,) * len(wide)
            whole = wide[-1] == 2 * half and n.outputs[0].shape == (*before, half)
            if not whole or (tuple(attrs["starts"]), tuple(attrs["steps"])) != ((*zeros, first), ones):
                return
        found = self.gated(halves[0].outputs[0], halves[1].outputs[0])
        if found is not None:
            p.gate, p.inside = found[0], [*self.reshapes(y), *halves, *found[1]]

    def gated(self, a: Value, c: Value) -> tuple[Node, list[Node]] | None:
        """The node that makes a * sigmoid(a) * c, and those between."""
        swish = self.swish(a)
        if swish is None:
            return None
        after = self.only(swish[-1].outputs[0], "multiply")
        if after is None or after is not self.only(c, "multiply"):
            return None
        return after, [*swish, *self.reshapes(a), *self.reshapes(c)]

    def reshapes(self, v: Value) -> list[Node]:
        return [m for n in self.users.get(v, ()) if n.op == "reshape" for m in (n, *self.reshapes(n.outputs[0]))]

    def swish(self, v: Value) -> list[Node] | None:
        """The nodes of v * sigmoid(v), where nothing else reads v."""
        if v in self.outputs:
            return None
        found = self.readers(v)
        if len(found) == 1 and found[0].op == "silu" and found[0].attrs.get("alpha", 1.0) == 1.0:
            return found
        sigmoid = next((n for n in found if n.op == "sigmoid"), None)
        if len(found) != 2 or sigmoid is None:
            return None
        last = self.only(sigmoid.outputs[0], "multiply")
        return [sigmoid, last] if last is not None and last in found else None


def _kind(n: Node, target: Target) -> Any:
    """What makes products one matrix; None for another node than a product of few rows with a constant matrix. A matrix whose numbers come later is joined with none."""
    if n.op not in ("matmul", "packed_matmul") or not all(v.data is not None for v in n.inputs[1:]):
        return None
    x = n.inputs[0]
    rows = x.shape[0] if x.ndim == 2 and isinstance(x.shape[0], int) else 0
    if rows < 1:
        return None
    packed = Weights.of(n.attrs) if n.op == "packed_matmul" else None
    most = most_rows(target, x.dtype, x.shape[1], n.outputs[0].shape[-1], packed)
    if rows > max(most, 1):
        return None
    if packed is not None and not packed.panel:
        later = not all(v.is_known for v in n.inputs[1:])
        if later and most == 1:  # joined ones are one launch, a norm alone is no gain
            return None
        alike = *(n.attrs.get(a) for a in _PACKED), *(v.dtype for v in n.inputs)
        return n.op, len(n.inputs), *alike, n.inputs[1] if later else None
    if (
        n.op == "matmul"
        and n.inputs[1].ndim == 2
        and not any(n.attrs.get(a) for a in _PLAIN)
        and "float" in n.inputs[0].dtype
    ):
        later = not n.inputs[1].is_known
        if later and not n.attrs.get("transpose_b"):
            return None
        return n.op, n.inputs[1].dtype, n.inputs[1] if later else None
    return None


def _shown(v: Value) -> Value:
    """What a reshape shows."""
    while v.node is not None and v.node.op == "reshape":
        v = v.node.inputs[0]
    return v


def _constant_first(pair: Sequence[Value]) -> tuple[Value | None, Value]:
    a, c = pair
    return (a, c) if a.data is not None else (c, a) if c.data is not None else (None, a)
