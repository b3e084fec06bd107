"""How operators let themselves be split: a label for each dimension of their inputs and outputs, as in an einsum.

A dimension whose label the outputs have may be split there and is split here; one whose label they have not is summed over, and leaves terms. None stands at
dimensions that no rank can have a part of: those that a softmax goes along, windows slide over, or that broadcast.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..graph import Node
from ..ops.attention import SCALES, SLOPES, is_bias, order_of
from ..ops.dims import Dim
from ..ops.matmul import parse_einsum
from ..ops.registry import BROADCAST, COLLECTIVE, ELEMENTWISE, OPS, TensorType, get_op, normalize_axis

Label = str | None


@dataclass
class Labels:
    """inputs, outputs: labels of the dimensions. summed: of labels that no output has, how terms are joined. held: inputs whose dimension of a label may be held by
    several ranks (heads of keys and values). also: labels worth a try though no operand is split there. linear: inputs of which a term makes a term."""

    inputs: list[list[Label]]
    outputs: list[list[Label]]
    summed: dict[str, str] = field(default_factory=dict)
    held: set[int] = field(default_factory=set)
    also: tuple[str, ...] = ()
    linear: tuple[tuple[int, ...], ...] = ()
    alone: set[str] = field(default_factory=set)  # labels of which every part knows its place: nothing is copied there


Rule = Callable[[Sequence[TensorType], Sequence[TensorType], dict[str, Any]], Labels | None]
RULES: dict[str, Rule] = {}


def rule(*names: str) -> Callable[[Rule], Rule]:
    def add(f: Rule) -> Rule:
        RULES.update(dict.fromkeys(names, f))
        return f

    return add


def labels_of(node: Node) -> Labels | None:
    """The labels of a node's dimensions; None for an operator that is run whole on every rank."""
    return labels_for(node.op, [v.type for v in node.inputs], [v.type for v in node.outputs], node.attrs)


def labels_for(op: str, ins: Sequence[TensorType], outs: Sequence[TensorType], attrs: dict[str, Any]) -> Labels | None:
    """`labels_of` for an operator by its name."""
    found = RULES.get(op)
    definition = get_op(op)
    if found is None and definition.kind in (ELEMENTWISE, BROADCAST):
        found = _broadcast
    if found is None and COLLECTIVE in definition.traits:
        found = _collective
    return found(ins, outs, attrs) if found is not None and ins else None


def _dims(t: TensorType, blocked: Sequence[int] = (), prefix: str = "d") -> list[Label]:
    return [None if k in blocked else f"{prefix}{k}" for k in range(t.ndim)]


def _whole(t: TensorType) -> list[Label]:
    return [None] * t.ndim


def _like(t: TensorType, out: TensorType) -> list[Label]:
    """The labels of what broadcasts to `out`."""
    lead = out.ndim - t.ndim
    return [f"d{k + lead}" if _same(n, out.shape[k + lead]) else None for k, n in enumerate(t.shape)]


def _same(a: Any, b: Any) -> bool:
    return bool(a == b) if isinstance(a, Dim) or isinstance(b, Dim) else a == b and a != 1


_LINEAR = {
    "add": ((0, 1),), "subtract": ((0, 1),), "neg": ((0,),), "identity": ((0,),), "multiply": ((0,), (1,)), "divide": ((0,),),
}  # fmt: skip


def _broadcast(ins: Sequence[TensorType], outs: Sequence[TensorType], attrs: dict[str, Any]) -> Labels:
    return Labels([_like(t, outs[0]) for t in ins], [_dims(outs[0])])


def _linear(name: str) -> Rule:
    def found(ins: Sequence[TensorType], outs: Sequence[TensorType], attrs: dict[str, Any]) -> Labels:
        made = _broadcast(ins, outs, attrs)
        # A term that is repeated would make the reduction longer.
        made.linear = tuple(which for which in _LINEAR[name] if all(ins[k].shape == outs[0].shape for k in which))
        return made

    return found


for _name in _LINEAR:
    RULES[_name] = _linear(_name)


def _collective(ins: Sequence[TensorType], outs: Sequence[TensorType], attrs: dict[str, Any]) -> Labels:
    """Of another mesh axis: what reduces elementwise may be split anywhere, what moves parts not along the first dimension."""
    blocked = () if ins[0].shape == outs[0].shape and attrs.get("reduction") else (0,)
    return Labels([_dims(ins[0], blocked)], [_dims(outs[0], blocked)])


@rule("broadcast_to")
def _broadcast_to(ins: Sequence[TensorType], outs: Sequence[TensorType], attrs: dict[str, Any]) -> Labels:
    return Labels([_like(ins[0], outs[0])], [[x if x in _like(ins[0], outs[0]) else None for x in _dims(outs[0])]])


# ---- products


@rule("matmul")
def _matmul(ins: Sequence[TensorType], outs: Sequence[TensorType], attrs: dict[str, Any]) -> Labels | None:
    if any(k in attrs for k in ("view_a", "view_b", "layout_b")):
        return None
    a, b = ins
    batch = outs[0].ndim - 2
    lead = TensorType("", outs[0].shape[:-2])

    def side(t: TensorType, last: list[Label], turned: Any) -> list[Label]:
        return _like(TensorType("", t.shape[:-2]), lead) + (last[::-1] if turned else last)

    labels: list[list[Label]] = [
        side(a, ["m", "k"], attrs.get("transpose_a")),
        side(b, ["k", "n"], attrs.get("transpose_b")),
    ]
    made = Labels(labels, [[*(f"d{k}" for k in range(batch)), "m", "n"]], {"k": "sum"}, linear=((0,), (1,)))
    if a.dtype in ("int8", "uint8"):
        made.linear = ()
    return made


@rule("einsum")
def _einsum(ins: Sequence[TensorType], outs: Sequence[TensorType], attrs: dict[str, Any]) -> Labels | None:
    terms, out = parse_einsum(attrs["equation"], [t.ndim for t in ins])
    if any(len(set(t)) != len(t) for t in terms):
        return None  # a diagonal
    sizes = {x: n for term, t in zip(terms, ins) for x, n in zip(term, t.shape) if n != 1}
    labels = [[x if n == sizes.get(x, 1) else None for x, n in zip(term, t.shape)] for term, t in zip(terms, ins)]
    names = {x for t in terms for x in t}
    return Labels(
        labels, [list(out)], dict.fromkeys(names - set(out), "sum"), linear=tuple((k,) for k in range(len(ins)))
    )


@rule("conv")
def _conv(ins: Sequence[TensorType], outs: Sequence[TensorType], attrs: dict[str, Any]) -> Labels | None:
    if attrs.get("layouts") or attrs.get("fill"):
        return None
    x, w = ins
    whole = [None] * (x.ndim - 2)
    if attrs["groups"] != 1:
        return Labels([["n", None, *whole], [None, None, *whole]], [["n", None, *whole]])
    return Labels([["n", "c", *whole], ["o", "c", *whole]], [["n", "o", *whole]], {"c": "sum"}, linear=((0,),))


@rule("attention")
def _attention(ins: Sequence[TensorType], outs: Sequence[TensorType], attrs: dict[str, Any]) -> Labels:
    """By batch, by heads, and by the queries' places, whose keys are then gathered."""
    extras = list(attrs.get("extras", ()))

    def placed(name: str, four: list[Label]) -> list[Label]:
        order = order_of(attrs, name)  # which dimension of the tensor is the batch, the head, the place, the element
        found: list[Label] = [None] * 4
        for x, k in zip(four, order):
            found[k] = x
        return found

    q = placed("q", ["b", "h", "s", None])
    labels = [q, placed("k", ["b", "h", None, None]), placed("v", ["b", "h", None, None])]
    sizes = {x: n for x, n in zip(q, ins[0].shape) if x}
    for name, t in zip(extras, ins[3:]):
        if name in SCALES:  # they lie as keys and values do
            labels.append(placed(name[0], ["b", "h", None, None]))
        elif t.ndim == 4:
            last = [None, None] if is_bias(name) else ["s", None]
            four: list[Label] = ["b", "h", "s", None] if is_bias(name) else ["b", "h", *last]
            labels.append([x if x and n == sizes.get(x) and n != 1 else None for x, n in zip(four, t.shape)])
        else:
            labels.append(["b"])
    made = Labels(labels, [placed("out", ["b", "h", "s", None])], held={1, 2}, also=("h",), alone={"s"})
    tells_place = attrs.get("left") is not None or attrs.get("right") is not None or SLOPES in extras
    if "start" in extras and tells_place:
        made.inputs = [[None if x == "s" else x for x in row] for row in made.inputs]
        made.outputs = [[None if x == "s" else x for x in row] for row in made.outputs]
    return made


@rule("rotary")
def _rotary(ins: Sequence[TensorType], outs: Sequence[TensorType], attrs: dict[str, Any]) -> Labels:
    lead = TensorType("", outs[0].shape[:-1])
    rows = [[*_like(TensorType("", t.shape[:-1]), lead), None] for t in ins]
    return Labels(rows, [[*_dims(lead), None]])


# ---- rows, reductions


def _along(axes: Sequence[int], ndim: int) -> set[int]:
    return {normalize_axis(a, ndim) for a in axes}


@rule("softmax", "log_softmax")
def _softmax(ins: Sequence[TensorType], outs: Sequence[TensorType], attrs: dict[str, Any]) -> Labels:
    blocked = list(_along(attrs["axes"], ins[0].ndim))
    return Labels([_dims(ins[0], blocked)], [_dims(outs[0], blocked)])


@rule("layer_norm", "rms_norm", "log_sum_exp")
def _layer_norm(ins: Sequence[TensorType], outs: Sequence[TensorType], attrs: dict[str, Any]) -> Labels:
    axis = normalize_axis(attrs["axis"], ins[0].ndim)
    blocked = range(axis, ins[0].ndim)
    return Labels([_dims(ins[0], blocked)], [_dims(t, blocked) for t in outs])


@rule("cumsum", "cumprod", "cummax", "argmax", "argmin", "topk")
def _one_axis(ins: Sequence[TensorType], outs: Sequence[TensorType], attrs: dict[str, Any]) -> Labels | None:
    if len(ins) != 1 or not isinstance(attrs.get("axis"), int) or not ins[0].ndim:
        return None
    axis = normalize_axis(attrs["axis"], ins[0].ndim)
    row = _dims(ins[0], [axis])
    return Labels([row], [row if t.ndim == len(row) else row[:axis] + row[axis + 1 :] for t in outs])


# The collective that does what an operator does to the results of parts (`OpDef.of_parts`).
_JOINED = {"reduce_sum": "sum", "reduce_mean": "avg", "reduce_max": "max", "reduce_min": "min", "reduce_prod": "prod"}


def _reduce(name: str) -> Rule:
    def found(ins: Sequence[TensorType], outs: Sequence[TensorType], attrs: dict[str, Any]) -> Labels:
        x, given = ins[0], attrs.get("axes")
        axes = set(range(x.ndim)) if given is None else _along(given, x.ndim)
        row = _dims(x)
        keeps = outs[0].ndim == x.ndim
        out: list[Label] = [None if k in axes else label for k, label in enumerate(row) if keeps or k not in axes]
        joined = _JOINED.get(get_op(name).of_parts or name)
        if joined is None or (joined == "avg" and "float" not in x.dtype) or x.dtype == "bool":
            row = [None if k in axes else label for k, label in enumerate(row)]
        summed = {f"d{k}": joined for k in axes} if joined else {}
        linear = ((0,),) if name in ("reduce_sum", "reduce_mean") else ()
        return Labels([row], [out], {k: v for k, v in summed.items() if v}, linear=linear)

    return found


for _name in (n for n, op in OPS.items() if op.of_parts or n in _JOINED):
    RULES[_name] = _reduce(_name)


# ---- shapes


@rule("reshape")
def _reshape(ins: Sequence[TensorType], outs: Sequence[TensorType], attrs: dict[str, Any]) -> Labels:
    """Dimensions in groups of equal products: the first one of a group on each side goes with the other's."""
    old, new = ins[0].shape, outs[0].shape
    a: list[Label] = [None] * len(old)
    b: list[Label] = [None] * len(new)
    i = j = group = 0
    while i < len(old) and j < len(new):
        if old[i] == 1:
            i += 1
            continue
        if new[j] == 1:
            j += 1
            continue
        a[i] = b[j] = f"g{group}"
        group += 1
        x, y = old[i], new[j]
        i, j = i + 1, j + 1
        while not _equal(x, y):
            if isinstance(x, Dim) or isinstance(y, Dim):
                return Labels([a], [b], linear=((0,),))  # what follows an open size is not told apart
            if x < y:
                x, i = x * old[i], i + 1
            else:
                y, j = y * new[j], j + 1
    return Labels([a], [b], linear=((0,),))


def _equal(a: Any, b: Any) -> bool:
    return bool(a == b)


@rule("transpose")
def _transpose(ins: Sequence[TensorType], outs: Sequence[TensorType], attrs: dict[str, Any]) -> Labels:
    row = _dims(ins[0])
    return Labels([row], [[row[p] for p in attrs["perm"]]], linear=((0,),))


@rule("slice")
def _slice(ins: Sequence[TensorType], outs: Sequence[TensorType], attrs: dict[str, Any]) -> Labels:
    cut = [
        k for k, n in enumerate(ins[0].shape)
        if not (attrs["starts"][k] == 0 and attrs["steps"][k] == 1 and _equal(attrs["sizes"][k], n))
    ]  # fmt: skip
    return Labels([_dims(ins[0], cut)], [_dims(outs[0], cut)], linear=((0,),))


@rule("concat")
def _concat(ins: Sequence[TensorType], outs: Sequence[TensorType], attrs: dict[str, Any]) -> Labels:
    axis = normalize_axis(attrs["axis"], outs[0].ndim)
    return Labels([_dims(t, [axis]) for t in ins], [_dims(outs[0], [axis])], linear=(tuple(range(len(ins))),))


@rule("pad")
def _pad(ins: Sequence[TensorType], outs: Sequence[TensorType], attrs: dict[str, Any]) -> Labels:
    cut = [k for k in range(ins[0].ndim) if not (attrs["before"][k] == 0 and attrs["after"][k] == 0)]
    return Labels([_dims(ins[0], cut), *(_whole(t) for t in ins[1:])], [_dims(outs[0], cut)])


@rule("tile")
def _tile(ins: Sequence[TensorType], outs: Sequence[TensorType], attrs: dict[str, Any]) -> Labels:
    cut = [k for k, r in enumerate(attrs["repeats"]) if r != 1]
    return Labels([_dims(ins[0], cut)], [_dims(outs[0], cut)])


@rule("gather")
def _gather(ins: Sequence[TensorType], outs: Sequence[TensorType], attrs: dict[str, Any]) -> Labels:
    """By the dimensions that are not looked up, and by the indices; a split table is `splitter`'s."""
    x, index = ins
    axis = normalize_axis(attrs["axis"], x.ndim)
    row = _dims(x, [axis])
    places = _dims(index, prefix="i")
    return Labels([row, places], [row[:axis] + places + row[axis + 1 :]], linear=((0,),))


@rule("gather_elements")
def _gather_elements(ins: Sequence[TensorType], outs: Sequence[TensorType], attrs: dict[str, Any]) -> Labels:
    axis = normalize_axis(attrs["axis"], outs[0].ndim)
    row = [None if k == axis or ins[0].shape[k] != n else f"d{k}" for k, n in enumerate(outs[0].shape)]
    return Labels([row, row], [row])


@rule("max_pool", "avg_pool", "lp_pool")
def _pool(ins: Sequence[TensorType], outs: Sequence[TensorType], attrs: dict[str, Any]) -> Labels | None:
    if attrs.get("layouts") or attrs.get("layout"):
        return None
    blocked = range(2, ins[0].ndim)
    return Labels([_dims(ins[0], blocked)], [_dims(t, blocked) for t in outs])


@rule("trilu")
def _trilu(ins: Sequence[TensorType], outs: Sequence[TensorType], attrs: dict[str, Any]) -> Labels:
    blocked = (ins[0].ndim - 2, ins[0].ndim - 1)
    return Labels([_dims(ins[0], blocked), *(_whole(t) for t in ins[1:])], [_dims(outs[0], blocked)])


@rule("require")
def _require(ins: Sequence[TensorType], outs: Sequence[TensorType], attrs: dict[str, Any]) -> Labels:
    return Labels([_dims(ins[0]), []], [_dims(outs[0])])


@rule("vjp")
def _vjp(ins: Sequence[TensorType], outs: Sequence[TensorType], attrs: dict[str, Any]) -> Labels | None:
    """As the operator that it is the gradient of; a label that the wanted input has not is summed over."""
    primal, own = list(ins[:-1]), dict(attrs["attrs"])
    made = get_op(attrs["of"]).infer(primal, own)
    forward = labels_for(attrs["of"], primal, made, own)
    if forward is None or forward.alone or any(how != "sum" for how in forward.summed.values()):
        return None
    rows = [*forward.inputs, forward.outputs[attrs["out"]]]
    if len(made) > 1:  # another output may be summed over what this one lacks
        common = {x for x in rows[-1] if x}
        rows = [[x if x in common else None for x in row] for row in rows]
    wanted = rows[attrs["wrt"]]
    lost = {x for row in rows for x in row if x} - {x for x in wanted if x}
    return Labels(rows, [wanted], dict.fromkeys(lost, "sum"))
