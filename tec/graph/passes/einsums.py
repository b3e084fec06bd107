"""Sums of products along named axes as matrix products:

    einsum("btd,dhk->bthk", x, w)    ->  reshape(matmul(reshape(x), reshape(w)))
    einsum("bqhk,bthk->bhqt", q, k)  ->  matmul(transpose(q), transpose(k))
    einsum("ij,jk,kl->il", x, y, z)  ->  einsum("ik,kl->il", einsum("ij,jk->ik", x, y), z)

JAX's exporters and models that are written by einsum have no other products. As an operator of its own a sum would be none of the templates' products, and attention
is not found in it. The transposes and reshapes go on with `move_views`. Axes that both operands and the result have stay apart, in front of the matrices.
More than two operands are multiplied in the order that takes the fewest multiply-adds: the sum over all axes at once takes as many as the product of all sizes.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence

from ...ops.dims import Dim, Size
from ...ops.matmul import accumulator
from ...ops.typical import typical
from ..graph import Graph, Node, Value
from .rewrite import Rebuild, rebuild

_ALL_ORDERS = 5  # operands of which all orders are tried: 180
# Places of an operand that has several products: a tile of vector units has as many, and is mostly empty with less.
_LEAST_LEFT = 32
_FLOATS = ("float16", "bfloat16", "float32", "float64")


def einsums_as_products(graph: Graph) -> Graph:
    """The graph with such sums of two operands as products, and those of more in pairs."""
    if not any(n.op == "einsum" for n in graph.nodes):
        return graph
    if any(_has_pairs(n) for n in graph.nodes):
        graph = rebuild(graph, _in_pairs)

    def handle(b: Rebuild, node: Node) -> bool:
        axes = _axes(node)
        if axes is None:
            return False
        b.map[node.outputs[0]] = _product(b, node, *axes)
        return True

    return rebuild(graph, handle)


def _has_pairs(node: Node) -> bool:
    """Whether a sum has more than two operands, none of which broadcasts, and a type that has a float to be added up in."""
    if node.op != "einsum" or len(node.inputs) < 3 or node.outputs[0].dtype not in _FLOATS:
        return False
    operands, arrow, out = node.attrs["equation"].partition("->")
    letters = operands.split(",")
    if not arrow or "." in node.attrs["equation"] or any(len(set(part)) != len(part) for part in (*letters, out)):
        return False
    if any(isinstance(n, int) and n == 0 for v in node.inputs for n in v.shape):
        return False
    sizes = {pair for part, v in zip(letters, node.inputs) for pair in zip(part, v.shape)}
    return len(sizes) == len({c for c, _ in sizes})


def _in_pairs(b: Rebuild, node: Node) -> bool:
    if not _has_pairs(node):
        return False
    operands, _, out = node.attrs["equation"].partition("->")
    made = node.outputs[0]
    # Products of some operands are kept in what sums are added up in, as exact as one sum of all: they may be large where the whole sum is not. Two operands that are none
    # are multiplied as they are, by matrix units where there are some for their type.
    wide = accumulator(made.dtype)
    values = [(part, b.value(v)) for part, v in zip(operands.split(","), node.inputs)]
    size = {c: typical(n) for part, v in values for c, n in zip(part, v.shape)}

    while len(values) > 1:
        i, j = _first_pair(tuple(part for part, _ in values), out, size)[1]
        (first, x), (second, y) = values[i], values[j]
        rest = [v for k, v in enumerate(values) if k not in (i, j)]
        kept = _kept(first + second, [part for part, _ in rest], out)
        if x.dtype != y.dtype:
            x, y = (b.cast(v, wide, origin=node.origin) for v in (x, y))
        attrs = {"equation": f"{first},{second}->{kept}", **({"out_dtype": wide} if x.dtype != wide else {})}
        (product,) = b.new.add("einsum", [x, y], attrs, made.name, node.origin)
        values = [*rest, (kept, product)]
    b.map[made] = b.cast(values[0][1], made.dtype, origin=node.origin)
    return True


def _kept(letters: str, rest: Sequence[str], out: str) -> str:
    """The axes of a product of two: those that the others or the result have."""
    if not rest:
        return out
    wanted = {*out, *itertools.chain.from_iterable(rest)}
    return "".join(dict.fromkeys(c for c in letters if c in wanted))


def _first_pair(parts: tuple[str, ...], out: str, size: Mapping[str, int]) -> tuple[int, tuple[int, int]]:
    """The multiply-adds of the cheapest order of products, and the pair that comes first in it. Of many operands the pair that is cheapest by itself."""
    best: tuple[int, tuple[int, int]] | None = None
    for i, j in itertools.combinations(range(len(parts)), 2):
        cost = math.prod(size[c] for c in {*parts[i], *parts[j]})
        rest = tuple(p for k, p in enumerate(parts) if k not in (i, j))
        if rest and len(parts) <= _ALL_ORDERS:
            cost += _first_pair((*rest, _kept(parts[i] + parts[j], rest, out)), out, size)[0]
        if best is None or cost < best[0]:
            best = cost, (i, j)
    assert best is not None
    return best


def _axes(node: Node) -> tuple[str, str, str] | None:
    """The letters of the operands and of the result, where they are those of a product of matrices with at least a row or a column each."""
    if node.op != "einsum" or len(node.inputs) != 2 or "float" not in node.outputs[0].dtype:
        return None
    if len({v.dtype for v in node.inputs}) != 1:
        return None
    operands, arrow, out = node.attrs["equation"].partition("->")
    a, comma, b = operands.partition(",")
    if not arrow or not comma or "." in node.attrs["equation"]:
        return None
    if any(len(set(letters)) != len(letters) for letters in (a, b, out)) or set(a) ^ set(b) != set(out) - (
        set(a) & set(b)
    ):
        return None
    sizes = [dict(zip(letters, v.shape)) for letters, v in zip((a, b), node.inputs)]
    common = set(a) & set(b)
    if any(sizes[0][c] != sizes[1][c] for c in common) or not common - set(out) or set(a) == set(b):
        return None  # a size of 1 that broadcasts; a product without a sum; a sum of each element's own products
    return None if any(n == 0 for s in sizes for n in s.values() if not isinstance(n, Dim)) else (a, b, out)


def _product(b: Rebuild, node: Node, first: str, second: str, out: str) -> Value:
    """A product of two operands by a matmul: axes of both first, then their own, then those that are summed."""
    (x, y), made = (b.value(v) for v in node.inputs), node.outputs[0]
    if x.is_const and not y.is_const:  # weights are the second operand of templates
        x, y, first, second = y, x, second, first
    size = dict(zip(first, x.shape)) | dict(zip(second, y.shape))
    lead = [c for c in out if c in first and c in second]

    def own(letters: str, other: str) -> list[str]:
        return [c for c in out if c in letters and c not in other]

    rows, columns, summed = own(first, second), own(second, first), [c for c in first if c in second and c not in out]
    # An operand is read turned rather than that the result is turned. Weights stay the second one.
    is_second, turned = (False, []) if y.is_const else _turned(out[len(lead) :], rows, columns, size)
    if is_second:
        x, y, first, second, rows, columns = y, x, second, first, columns, rows
    columns = [c for c in columns if c not in turned]

    def add(op: str, v: Value, **attrs: object) -> Value:
        return b.new.add(op, [v], attrs, made.name, node.origin)[0]

    def matrices(v: Value, letters: str, *parts: list[str]) -> Value:
        batches = [c for c in turned if c in letters]
        order = [*lead, *batches, *parts[0], *parts[1]]
        if order != list(letters):
            v = add("transpose", v, perm=tuple(letters.index(c) for c in order))
        each = [math.prod(size[c] for c in batches)] if turned and (lead or batches) else []
        shape = (*(size[c] for c in lead), *each, *(math.prod(size[c] for c in part) for part in parts))
        return v if v.shape == shape else add("reshape", v, shape=shape)

    product = b.new.add(
        "matmul", [matrices(x, first, rows, summed), matrices(y, second, summed, columns)],
        {"out_dtype": made.dtype} if made.dtype != x.dtype else {}, made.name, node.origin,
    )[0]  # fmt: skip
    order = [*lead, *turned, *rows, *columns]
    shape = tuple(size[c] for c in order)
    if product.shape != shape:
        product = add("reshape", product, shape=shape)
    return product if order == list(out) else add("transpose", product, perm=tuple(order.index(c) for c in out))


def _turned(out: str, rows: list[str], columns: list[str], size: Mapping[str, Size]) -> tuple[bool, list[str]]:
    """Whether the operand of the columns comes first, so that the result lies as `out` says, and the leading axes of the other one each of which has a product of its own, since
    all of the first operand's stand between them and what is left. What is left fills a tile: else the result is turned."""
    if list(out) in ([*rows, *columns], [*columns, *rows]):
        return list(out) != [*rows, *columns], []
    for is_second, first, other in ((False, rows, columns), (True, columns, rows)):
        turned = list(itertools.takewhile(set(other).__contains__, out))
        left = [c for c in other if c not in turned]
        if list(out) == [*turned, *first, *left] and math.prod(typical(size[c]) for c in left) >= _LEAST_LEFT:
            return is_second, turned
    return False, []
