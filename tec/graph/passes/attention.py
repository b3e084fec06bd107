"""Attention in what exporters write, as one operator (`tec.ops.attention`).

    matmul(softmax(matmul(q, k) * scale + mask), v)   ->  attention(q, k, v, mask)

Found with a scale on the scores or on q and k, soft caps, masks that add or choose, constant masks (a causal one becomes attributes), softmax in
float32 between casts of 16-bit scores, and heads as a dimension of their own or in the batch. Transposes around it go into the operator, which
reads and writes through any order of dimensions; key heads that were repeated for groups of queries are read where they lie.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import field
from typing import Any

import numpy as np

from ...choices.families.attention import matrix as attention
from ...ops.attention import PLAIN
from ...ops.dims import at_most
from ...records import dataclass
from ...target import Target
from ..graph import Graph, Node, Value
from ..precision import precision_of
from . import patterns
from .rewrite import Rebuild

HIDDEN = -1e9  # what float32 scores sink in: beside one that is seen, such a score has no weight
# What a score weighs nothing with beside seen ones, exp(-9984) being 0 in every type, unless it is greater than all of them by some 9,900. Exporters write
# -10,000 for 16 bits, the lowest float16 is -65,504, and -10,000 in bfloat16 is -9,984. The default of `mask_filter_value` in com.microsoft's attention is -10,000 too.
WEIGHTLESS = -9984.0
FEW_QUERIES = 16  # one tile of the smallest kind: the work is reading keys and values
SHORT = 256  # queries and keys up to which launches take longer than the products
_PRODUCT = ("transpose_a", "transpose_b", "view_a", "view_b", "out_dtype")
_SWAPPED = (0, 1, 3, 2)

_Order = tuple[int, ...]


@dataclass
class _Operand:
    """q, k or v: a value as it is stored, reshaped to four dimensions, and where (batch, heads, places, elements) are among them."""

    value: Value
    shape: tuple[Any, ...]
    order: _Order

    @property
    def lead(self) -> tuple[Any, Any]:
        return self.shape[self.order[0]], self.shape[self.order[1]]


@dataclass
class _Found:
    """An attention, and the node whose output it makes."""

    last: Node
    operands: list[_Operand] = field(default_factory=list)
    scale: float = 1.0
    softcap: float = 0.0
    biases: list[Value] = field(default_factory=list)
    # Where it holds the score stands, the number elsewhere.
    chosen: list[tuple[Value, float]] = field(default_factory=list)
    out_order: _Order = PLAIN
    lead: tuple[Any, Any] | None = None  # batch and heads, where scores were masked with them apart


def find_attention(graph: Graph, target: Target | None = None, dtype: str | None = None) -> Graph:
    """The graph with its attentions as nodes of their own, where the target's kernel serves them well."""
    if not any(n.op == "softmax" for n in graph.nodes):
        return graph
    look = _Look(graph)
    found = {
        f.last: f
        for n in graph.nodes
        if n.op == "matmul" and (f := look.attention(n)) is not None and _serves(f, target, dtype)
    }
    if not found:
        return graph
    b = Rebuild(graph)
    for node in graph.nodes:
        if node in found:
            _emit(b, found[node])
        else:
            b.copy(node)
    return b.finish()


def _serves(f: _Found, target: Target | None, dtype: str | None) -> bool:
    """Whether one kernel is better than three. In 16 bits matrix units do the products of long sequences faster than plain vector code, even with
    the scores in memory between them; the kernel on matrix units takes heads of known size that lie along the last dimension."""
    kind = f.last.outputs[0].dtype
    default = precision_of(dtype).default
    kind = default if default and kind == "float32" else kind
    if target is None or not (target.is_gpu and "float16" in kind and target.matrix_shapes("float16")):
        return True
    sizes = [o.shape[o.order[3]] for o in f.operands[1:]]
    if all(o.order[3] == 3 for o in f.operands) and attention.takes(target, kind, *sizes):
        return True
    queries, keys = (o.shape[o.order[2]] for o in f.operands[:2])
    return bool(at_most(queries, FEW_QUERIES) or at_most(queries * keys, SHORT * SHORT))


class _Look:
    """Finding, on the old graph."""

    def __init__(self, graph: Graph):
        self.users = graph.users()
        self.outputs = set(graph.outputs)

    def is_single(self, v: Value) -> bool:
        return len(self.users.get(v, ())) == 1 and v not in self.outputs

    def made_by(self, v: Value, *ops: str) -> Node | None:
        """The node of one of these operators that made v, where nothing else reads v."""
        return v.node if v.node is not None and v.node.op in ops and self.is_single(v) else None

    def through_casts(self, v: Value) -> Value:
        """Before casts between floats that only this reads."""
        while (n := self.made_by(v, "cast")) is not None and "float" in n.inputs[0].dtype and "float" in v.dtype:
            v = n.inputs[0]
        return v

    def through_views(self, f: _Found, v: Value) -> Value:
        """Before casts, and reshapes of scores that put heads into the batch or take them out of it."""
        while True:
            v = self.through_casts(v)
            n = self.made_by(v, "reshape")
            if n is None:
                return v
            wide, narrow = sorted((v, n.inputs[0]), key=lambda x: -x.ndim)
            lead = wide.shape[:2]
            if (wide.ndim, narrow.ndim) != (4, 3) or wide.shape[2:] != narrow.shape[1:] or f.lead not in (None, lead):
                return v
            f.lead, v = (lead[0], lead[1]), n.inputs[0]

    def scaled(self, v: Value) -> tuple[Value, float]:
        """v as another value times a number."""
        factor = 1.0
        while (n := self.made_by(v, "multiply", "divide")) is not None:
            a, c = n.inputs
            if n.op == "multiply" and a.is_known:
                a, c = c, a
            number = patterns.number(c)
            if number is None or a.shape != v.shape or (n.op == "divide" and not number):
                break
            factor = factor * number if n.op == "multiply" else factor / number
            v = a
        return v, factor

    def is_product(self, v: Value) -> bool:
        """Whether v is made of a matrix product element by element."""
        n = self.made_by(v, "matmul", "cast", "tanh", "multiply", "divide", "add", "where", "reshape")
        return n is not None and (
            n.op == "matmul" or any(self.is_product(i) for i in n.inputs if i.type.size == v.type.size)
        )

    def is_nan_of(self, rows: Value, weights: Value, choice: Node) -> bool:
        """Whether a choice gives 0 where the weights are no numbers, as a softmax's are in a row that sees no key: there the operator gives 0 by itself."""
        both = self.made_by(rows, "logical_and")
        n = self.made_by(rows if both is None else both.inputs[0], "isnan")
        if n is None or n.inputs[0] is not weights or weights.node is None or weights.node.op != "softmax":
            return False
        if weights in self.outputs or set(self.users[weights]) != {n, choice}:
            return False
        if both is None:
            return True
        # And where the score is minus infinity, so that other scores that are no numbers stay so.
        scores, hidden = weights.node.inputs[0], self.made_by(both.inputs[1], "equal")
        if hidden is None or hidden.inputs[0] is not scores or patterns.number(hidden.inputs[1]) != -math.inf:
            return False
        if scores in self.outputs or set(self.users[scores]) != {weights.node, hidden}:
            return False
        self.users[scores] = [weights.node]  # nothing asks it of the attention that stands for both
        return True

    # ---- the scores

    def attention(self, node: Node) -> _Found | None:
        """What ends in `node`, the product of weights and values."""
        if any(node.attrs.get(x) for x in _PRODUCT):
            return None
        f = _Found(node)
        weights, hidden = self.through_views(f, node.inputs[0]), None
        if (safe := self.made_by(weights, "where")) is not None and patterns.number(safe.inputs[1]) == 0:
            hidden, _, inner_weights = safe.inputs
            if inner_weights.shape != weights.shape:
                return None
            if self.is_nan_of(hidden, inner_weights, safe):
                weights, hidden = inner_weights, None
            else:
                weights = self.through_views(f, inner_weights)
        soft = self.made_by(weights, "softmax")
        if soft is None and safe is not None and hidden is None:
            soft = weights.node  # read by the check and by the choice after it
        if soft is None or soft.outputs[0].ndim not in (3, 4):
            return None
        rank = soft.outputs[0].ndim
        if [a % rank for a in soft.attrs["axes"]] != [rank - 1]:
            return None
        x, factor = self.scaled(self._masks(f, soft.inputs[0]))
        if hidden is not None and not _is_unseen(hidden, f.biases):
            return None
        if (cap := self.made_by(x, "tanh")) is not None and factor > 0:
            x, inner = self.scaled(cap.inputs[0])
            f.softcap, factor = factor, factor * inner
        x, more = self.scaled(self.through_views(f, x))
        f.scale = factor * more
        product = self.made_by(self.through_views(f, x), "matmul")
        if product is None or any(product.attrs.get(a) for a in _PRODUCT if a != "transpose_b"):
            return None
        return f if self._operands(f, product, node) else None

    def _masks(self, f: _Found, x: Value) -> Value:
        """The scores before masks, which go into `f`."""
        while True:
            x = self.through_views(f, x)
            if (n := self.made_by(x, "add")) is not None:
                a, c = n.inputs if self.is_product(n.inputs[0]) else reversed(n.inputs)
                if a.shape != x.shape or not self.is_product(a):
                    return x
                f.biases.append(c)
                x = self.without_zeros(a, c)
            elif (n := self.made_by(x, "where")) is not None:
                condition, a, c = n.inputs
                number = patterns.number(c)
                if number is None or not _hides(number, condition) or a.shape != x.shape:
                    return x
                f.chosen.append((condition, number))
                x = a
            else:
                return x

    def without_zeros(self, v: Value, bias: Value) -> Value:
        """Scores before a constant of zeros and ones that sets those to 0 which a constant bias hides: TensorFlow's choice between scores and a low number is
        scores * keep + low * (1 - keep)."""
        n = self.made_by(v, "multiply")
        if n is None or not bias.is_known:
            return v
        low = np.asarray(bias.data)
        for scores, keep in (n.inputs, n.inputs[::-1]):
            if keep.is_known and scores.shape == v.shape and keep.shape == bias.shape:
                kept = np.asarray(keep.data)
                most = WEIGHTLESS if (low == 0).any(-1).all() else HIDDEN
                if np.array_equal(kept, low == 0) and (low[kept == 0] <= most).all():
                    return scores
        return v

    # ---- the operands

    def _operands(self, f: _Found, product: Node, values: Node) -> bool:
        """Take queries, keys and values from the products. Whether they fit together."""
        (q, by_q), (k, by_k), v = self.scaled(product.inputs[0]), self.scaled(product.inputs[1]), values.inputs[1]
        f.scale *= by_q * by_k
        out = values.outputs[0]
        rank = out.ndim
        kinds = {q.dtype, k.dtype, v.dtype, out.dtype}
        if not q.ndim == k.ndim == v.ndim == rank or len(kinds) != 1 or "float" not in out.dtype:
            return False
        lead = q.shape[:-2]
        if k.shape[:-2] != v.shape[:-2] or lead != out.shape[:-2] or k.shape[:-2] not in (lead, (*lead[:-1], 1)):
            return False
        sides = [(q, PLAIN), (k, PLAIN if product.attrs.get("transpose_b") else _SWAPPED), (v, PLAIN)]
        if rank == 3:
            split = [_split(x, order) for x, order in sides]
            whole = [_whole(x, order) for x, order in sides]
            same = all(s is not None and s.lead == split[0].lead for s in split)  # type: ignore[union-attr]
            f.operands = [s for s in split if s is not None] if same else whole
        else:
            f.operands = [_lie(x, order) for x, order in sides]
        if f.lead not in (None, f.operands[0].lead):
            return False
        heads, key_heads = f.operands[0].lead[1], f.operands[1].lead[1]
        if f.operands[1].lead != f.operands[2].lead or not _divides(key_heads, heads):
            return False
        self._result(f, values)
        return True

    def _result(self, f: _Found, values: Node) -> None:
        """The transpose behind the result goes into the operator."""
        node, out = values, values.outputs[0]
        if out.ndim == 3 and self.is_single(out):
            after = self.users[out][0]
            if after.op == "transpose" and f.operands[0].lead == (1, out.shape[0]):
                perm = (0, *(p + 1 for p in after.attrs["perm"]))
                f.last, f.out_order = after, tuple(perm.index(a) for a in range(4))
                return
            if after.op != "reshape" or after.outputs[0].shape[:-2] != f.operands[0].lead:
                return
            node, out = after, after.outputs[0]
            if out.shape[2:] != values.outputs[0].shape[1:]:
                return
        if out.ndim != 4 or not self.is_single(out):
            return
        f.last = node
        after = self.users[out][0]
        if after.op == "transpose":
            perm = tuple(after.attrs["perm"])
            f.last, f.out_order = after, tuple(perm.index(a) for a in range(4))


def _is_unseen(rows: Value, biases: Sequence[Value]) -> bool:
    """Whether `rows` are those that a bias hides altogether: there the operator gives 0 by itself."""
    if rows.is_known:
        data = np.asarray(rows.data)
        known = [np.asarray(b.data) for b in biases if b.is_known and b.dtype != "bool"]
        return not data.any() or any(np.array_equal(data, b.max(-1, keepdims=True) == -np.inf) for b in known)
    if rows.node is None or rows.node.op != "equal":
        return False
    largest, low = rows.node.inputs
    top = largest.node
    if patterns.number(low) != -np.inf or top is None or top.op != "reduce_max" or top.inputs[0] not in biases:
        return False
    return [a % top.inputs[0].ndim for a in top.attrs["axes"]] == [top.inputs[0].ndim - 1]


def _hides(number: float, condition: Value) -> bool:
    """Whether a number in place of the scores that a condition does not choose hides them. In a row of such alone all weigh the same, so that scores must
    sink in it; beside one that is seen they need only weigh nothing."""
    return number <= HIDDEN or (number <= WEIGHTLESS and _always_sees(condition))


def _always_sees(condition: Value) -> bool:
    """Whether a condition is known, and chooses a score of every row."""
    return condition.is_known and condition.ndim > 0 and bool(np.asarray(condition.data).any(-1).all())


def _lie(v: Value, order: _Order) -> _Operand:
    """A value of four dimensions as it is stored: before transposes and before its heads were repeated."""
    while v.node is not None:
        node = v.node
        if node.op == "transpose":
            perm = node.attrs["perm"]
            order, v = tuple(perm[a] for a in order), node.inputs[0]
            continue
        wide = node.inputs[0] if node.op == "reshape" else None
        if wide is not None and (turned := _split_behind(v, wide)) is not None:
            v, shape, perm = turned
            return _Operand(v, shape, tuple(perm[a] for a in order))
        if wide is not None and wide.node is not None and wide.node.op == "reshape":
            if wide.node.inputs[0].shape == v.shape:  # a dimension of 1 put in and taken out
                v = wide.node.inputs[0]
                continue
        if wide is None or wide.ndim != 5 or wide.node is None or wide.node.op != "broadcast_to" or order[1] != 1:
            break
        narrow = wide.node.inputs[0]
        b, n, t, h = v.shape
        if narrow.ndim != 5 or wide.shape[0] != b or wide.shape[3:] != (t, h) or narrow.shape[2] != 1:
            break
        if (narrow.shape[:2], narrow.shape[3:]) != (wide.shape[:2], wide.shape[3:]):
            break
        shape = (*narrow.shape[:2], t, h)
        before = narrow.node.inputs[0] if narrow.node is not None and narrow.node.op == "reshape" else None
        if before is None or before.shape != shape:
            return _Operand(narrow, shape, order)
        v = before
    return _Operand(v, v.shape, order)


def _split_behind(v: Value, narrow: Value) -> tuple[Value, tuple[Any, ...], _Order] | None:
    """A transpose of three dimensions whose first becomes batch and heads (`torch.nn.MultiheadAttention`: places, batch times heads, elements): the value before it, its
    shape with that dimension divided, and where the four dimensions of `v` are in that; None for anything else."""
    while narrow.node is not None and narrow.node.op == "reshape":
        narrow = narrow.node.inputs[0]
    if (v.ndim, narrow.ndim) != (4, 3) or narrow.shape[1:] != v.shape[2:]:
        return None
    before, perm = narrow, (0, 1, 2)
    while before.node is not None and before.node.op == "transpose":
        earlier = before.node.attrs["perm"]
        before, perm = before.node.inputs[0], (earlier[perm[0]], earlier[perm[1]], earlier[perm[2]])
    if before is narrow:
        return None
    first, *others = perm
    shape = (*before.shape[:first], *v.shape[:2], *before.shape[first + 1 :])
    return before, shape, (first, first + 1, *(a + (a > first) for a in others))


def _whole(v: Value, order: _Order) -> _Operand:
    """Three dimensions as heads of one batch entry, before transposes."""
    while v.node is not None and v.node.op == "transpose":
        perm = (0, *(p + 1 for p in v.node.attrs["perm"]))
        order, v = tuple(perm[a] for a in order), v.node.inputs[0]
    return _Operand(v, (1, *v.shape), order)


def _split(v: Value, order: _Order) -> _Operand | None:
    """Three dimensions that were four, batch and heads apart; None where they were not."""
    while v.node is not None and v.node.op == "transpose" and v.node.attrs["perm"][0] == 0:
        perm = (0, *(p + 1 for p in v.node.attrs["perm"]))
        order, v = tuple(perm[a] for a in order), v.node.inputs[0]
    if v.node is None or v.node.op != "reshape":
        return None
    before = v.node.inputs[0]
    if before.ndim != 4 or before.shape[2:] != v.shape[1:] or before.shape[0] * before.shape[1] != v.shape[0]:
        return None
    return _lie(before, order)


def _divides(a: Any, b: Any) -> bool:
    return a == b or (isinstance(a, int) and isinstance(b, int) and b % a == 0)


# ---- the node


def _emit(b: Rebuild, f: _Found) -> None:
    new, lead = b.new, f.operands[0].lead
    inputs = [
        v if v.shape == o.shape else new.add("reshape", [v], {"shape": o.shape}, v.name)[0]
        for o in f.operands
        for v in [b.value(o.value)]
    ]
    attrs: dict[str, Any] = {"scale": f.scale, "softcap": f.softcap}
    extras = []
    for mask in [*f.biases, *[_mask(b, c, number) for c, number in f.chosen]]:
        v = _four(b, mask, lead)
        if v.is_known:
            known = _known(v, b)
            if isinstance(known, dict):
                if not known or "right" not in attrs:
                    attrs.update(known)
                    continue
            else:
                v = known
        extras.append(v)
    attrs["extras"] = tuple(f"bias{k or ''}" for k in range(len(extras)))
    for name, order in zip("qkv", (o.order for o in f.operands)):
        if order != PLAIN:
            attrs[f"{name}_order"] = order
    if f.out_order != PLAIN:
        attrs["out_order"] = f.out_order
    out = f.last.outputs[0]
    made = new.add("attention", [*inputs, *extras], attrs, out.name, f.last.origin)[0]
    b.map[out] = made if made.shape == out.shape else new.add("reshape", [made], {"shape": out.shape}, out.name)[0]


def _mask(b: Rebuild, condition: Value, number: float) -> Value:
    """What chooses scores, as what adds to them; it stays a choice where the others weigh nothing in any row."""
    if number == -np.inf or _always_sees(condition):
        return condition
    zero, low = (b.new.constant(np.float32(x), "mask") for x in (0.0, number))
    return b.new.add("where", [b.value(condition), zero, low], {}, "mask")[0]


def _four(b: Rebuild, mask: Value, lead: Sequence[Any]) -> Value:
    """A mask with four dimensions that broadcast to the scores."""
    v = b.map.get(mask, mask)
    if v.ndim == 4:
        return v
    head: tuple[Any, ...] = (1, 1)
    if v.ndim == 3 and v.shape[0] != 1:
        head = tuple(lead) if v.shape[0] != lead[1] or lead[0] == 1 else (1, lead[1])
    shape = (*head, *((1,) * (2 - v.ndim)), *v.shape[-2:])
    if v.is_known:
        return b.new.constant(np.asarray(v.data).reshape(shape), v.name, v.dtype)
    return b.new.add("reshape", [v], {"shape": shape}, v.name)[0]


def _known(v: Value, b: Rebuild) -> Value | dict[str, int]:
    """A constant mask as attributes where it says which places are seen, as a choice where it only hides, else as it is."""
    data = np.asarray(v.data)
    if data[:1, :1].size and (data == data[:1, :1]).all():
        data = data[:1, :1]  # one mask for all heads, which TensorFlow repeats
    keep = data if v.dtype == "bool" else data.astype(np.float64) > WEIGHTLESS
    if not keep.any(-1).all() or (v.dtype != "bool" and np.any(data[keep] != 0)):
        return v
    if keep.all():
        return {}
    if keep.shape[:2] == (1, 1):
        rows = keep[0, 0]
        s, t = rows.shape
        offset, seen = int(rows[0].nonzero()[0][-1]), int(rows[-1].sum())
        place = np.arange(s)[:, None] + offset
        behind = np.arange(t) <= place
        if s > 1 and np.array_equal(rows, behind):
            return {"right": 0, "offset": offset}
        if s > 1 and np.array_equal(rows, behind & (np.arange(t) > place - seen)):
            return {"right": 0, "offset": offset, "left": seen - 1}
    return b.new.constant(keep, v.name, "bool")
