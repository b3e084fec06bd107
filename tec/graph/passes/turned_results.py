"""Products on GPUs whose results are transposed, by the transposed operands, which costs no copy:

    transpose(matmul(x[k, m], y[k, n], transpose_a))  ->  matmul(y, x, transpose_a)

Chains of products come so from torch.einsum, which contracts two operands at a time and turns the result round. A product that reads neither operand transposed stays: the
other one would read both so.
"""

from __future__ import annotations

from ...ops.views import Steps, squeezed_steps
from ...target import Target
from ..graph import Graph, Node, Value
from .rewrite import Rebuild, rebuild

_PAIRS = (("transpose_a", "transpose_b"), ("view_a", "view_b"))


def turned_results(graph: Graph, target: Target) -> Graph:
    """The graph with such products turned round; the others are left without a reader."""
    if not target.is_gpu or not any(n.op == "matmul" for n in graph.nodes):
        return graph
    users, outputs = graph.users(), set(graph.outputs)

    def product_of(node: Node) -> Node | None:
        """The product whose result, which nothing else reads, a transpose turns round."""
        steps: Steps = (("transpose", tuple(node.attrs["perm"])),)
        v = node.inputs[0]
        while v.node is not None and v not in outputs and len(users[v]) == 1:
            if v.node.op == "matmul":
                return v.node if _turns(v, steps) and _is_turned(v.node) else None
            if v.node.op != "reshape":
                break
            steps, v = (("reshape", v.shape), *steps), v.node.inputs[0]
        return None

    found = {n: p for n in graph.nodes if n.op == "transpose" and (p := product_of(n)) is not None}

    def handle(b: Rebuild, node: Node) -> bool:
        if node not in found:
            return False
        product, out = found[node], node.outputs[0]
        attrs = dict(product.attrs)
        for a, c in _PAIRS:
            attrs[a], attrs[c] = product.attrs.get(c), product.attrs.get(a)
        for key in _PAIRS[0]:
            attrs[key] = not attrs[key]
        operands = [b.value(v) for v in reversed(product.inputs)]
        (made,) = b.new.add("matmul", operands, attrs, out.name, product.origin)
        b.map[out] = b.new.add("reshape", [made], {"shape": out.shape}, out.name, node.origin)[0]
        return True

    return rebuild(graph, handle) if found else graph


def _is_turned(product: Node) -> bool:
    """Whether it reads an operand transposed, and its second one as it came."""
    return any(map(product.attrs.get, _PAIRS[0])) and not product.attrs.get("layout_b")


def _turns(v: Value, steps: Steps) -> bool:
    """Whether the steps exchange the last two dimensions alone."""
    made = [to for kind, to in squeezed_steps(steps, v.shape) if kind == "transpose"]
    long = [k for k in range(v.ndim) if v.shape[k] != 1]
    order = (*range(len(long) - 2), len(long) - 1, len(long) - 2)
    return long[-2:] == [v.ndim - 2, v.ndim - 1] and made == [order]
