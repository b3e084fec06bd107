"""Attention: softmax(q k^T scale + bias) v as one operator, in te as it is written down.

`tec.choices.families.attention` has it as one loop over blocks of keys that keeps no matrix of scores.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from .. import te
from ..records import dataclass
from ..te import Tensor
from .dims import as_size
from .forms import Form, carry
from .matmul import accumulator
from .registry import (
    OPAQUE,
    PITCHED,
    SUMS,
    Attrs,
    TensorType,
    broadcast_index,
    broadcast_shapes,
    fail,
    register,
    static_shape,
)
from .rotary import Read, Rotation, turned

PER_ENTRY = ("start", "length")  # extra inputs of one integer a batch entry
SINK = "sink"  # a score beside those of the keys, which has no value; four dimensions that broadcast to (batch, heads, queries, 1)
SLOPES = "slopes"  # what scores gain by a place that the key stands further on (Press and others, arXiv 2108.12409); dimensions as of sinks
TABLE = "table"  # of blocks, where keys and values lie in blocks of a pool: see `_attention`
SCALES = ("k_scale", "v_scale")  # what a key's and a value's elements are multiplied by: see `_attention`
# Types of keys and values beside the queries' own, by that one: each holds fewer bits, and what it holds is a number of the other.
NARROWER = {
    "float32": ("float16", "bfloat16", "int8", "float8_e4m3"), "float16": ("int8", "float8_e4m3"), "bfloat16": ("int8", "float8_e4m3"),
}  # fmt: skip
ANGLES = ("cos", "sin")  # and tables of the angles that queries are turned by; names of the others begin with "bias"
PLAIN = (0, 1, 2, 3)  # batch, heads, places, size of a head
OPERANDS = ("q", "k", "v", "out")


@dataclass(frozen=True)
class Geometry:
    """Sizes of an attention, as numbers or expressions: batch, query heads, key heads, queries, keys, sizes of a key and of a value."""

    batch: Any
    heads: Any
    key_heads: Any
    queries: Any
    keys: Any
    size: Any
    value_size: Any

    @property
    def group(self) -> Any:
        """Query heads that share a key head."""
        return self.heads // self.key_heads


def order_of(attrs: Attrs, operand: str) -> tuple[int, ...]:
    """Where the operand's (batch, heads, places, size) stand among its own dimensions."""
    return tuple(attrs.get(f"{operand}_order", PLAIN))


def stored(order: Sequence[int], index: Sequence[Any]) -> tuple[Any, ...]:
    """An index (batch, head, place, element) as the operand's own."""
    out: list[Any] = [0] * 4
    for axis, i in zip(order, index):
        out[axis] = i
    return tuple(out)


def table_at(attrs: Attrs) -> int | None:
    """Which input is the table of blocks; None where keys lie one behind the other."""
    extras = attrs.get("extras", ())
    return 3 + extras.index(TABLE) if TABLE in extras else None


def geometry(shapes: Sequence[Sequence[Any]], attrs: Attrs) -> Geometry:
    """The sizes from the shapes of all inputs as they are stored."""
    (b, n, s, h), (_, m, t, _), (_, _, _, w) = (
        tuple(shape[a] for a in order_of(attrs, x)) for x, shape in zip("qkv", shapes)
    )
    table = table_at(attrs)
    if table is not None:
        t = t * shapes[table][1]
    return Geometry(b, n, m, s, t, h, w)


def block_of(table: Callable[..., Any], b: Any, number: Any, blocks: Any) -> Any:
    """The place in the pool of a batch entry's block; one that is outside is the nearest, so that nothing beyond the pool is read."""
    return te.max(te.min(table(b, number).astype("int32"), blocks - 1), 0)


def _type(types: Sequence[TensorType], attrs: Attrs) -> list[TensorType]:
    """The result's type. Raises where operands, their orders or their extras do not fit each other."""
    extras = attrs.get("extras", ())
    known = all(name in (*PER_ENTRY, *ANGLES, *SCALES, SINK, SLOPES, TABLE) or is_bias(name) for name in extras)
    if len(types) != 3 + len(extras) or len(set(extras)) != len(extras) or not known:
        raise fail(
            f"attention of {len(types)} inputs with extras {extras}",
            hint="queries, keys and values come first, then one input for each name in extras",
        )
    for name in OPERANDS:
        if sorted(order_of(attrs, name)) != [0, 1, 2, 3]:
            raise fail(
                f"attention: {name}_order {order_of(attrs, name)} is no order of four dimensions",
                hint="a permutation of (0, 1, 2, 3)",
            )
    q, k, v = types[:3]
    if any(t.ndim != 4 for t in types[:3]) or k.dtype != v.dtype or "float" not in q.dtype:
        raise fail(f"attention of {q}, {k} and {v}")
    if k.dtype != q.dtype and k.dtype not in NARROWER.get(q.dtype, ()):
        raise fail(f"attention of {q}, {k} and {v}")
    _check_scales(dict(zip(extras, types[3:])), k, v, attrs)
    b, n, s, h = (q.shape[a] for a in order_of(attrs, "q"))
    kb, m, t, kh = (k.shape[a] for a in order_of(attrs, "k"))
    at = table_at(attrs)
    if at is not None:
        table, plain = types[at], all(order_of(attrs, x) == PLAIN for x in "kv")
        if table.ndim != 2 or table.shape[0] != b or table.dtype not in ("int32", "int64") or not plain:
            raise fail(f"attention of {q} and {k} in blocks by the table {table}")
        kb, t = b, t * table.shape[1]
        if v.shape[:3] != k.shape[:3]:
            raise fail(f"attention of {q}, {k} and {v}")
    elif tuple(v.shape[a] for a in order_of(attrs, "v")[:3]) != (kb, m, t):
        raise fail(f"attention of {q}, {k} and {v}")
    if (kb, kh) != (b, h) or n % m != 0:
        raise fail(f"attention of {q}, {k} and {v}")
    tables = [x for name, x in zip(extras, types[3:]) if name in ANGLES]
    if tables and not _fit(tables, (b, n, s, h), attrs):
        raise fail(f"attention: queries {q} turned by {', '.join(map(str, tables))}")
    for name, x in zip(extras, types[3:]):
        if name in (*ANGLES, *SCALES, TABLE):
            continue
        if name in (SINK, SLOPES):
            if x.ndim != 4 or broadcast_shapes(x.shape, (b, n, s, 1)) != (b, n, s, 1) or "float" not in x.dtype:
                raise fail(f"attention: {name} {x} for queries {(b, n, s)}")
        elif name not in PER_ENTRY:
            if broadcast_shapes(x.shape, (b, n, s, t)) != (b, n, s, t) or x.ndim != 4:
                raise fail(f"attention: bias {x} for scores {(b, n, s, t)}")
            if x.dtype != "bool" and "float" not in x.dtype:
                raise fail(
                    f"attention: bias {x} is neither bool nor float",
                    hint="a mask of bool (true: the key counts) or numbers that are added to the scores",
                )
        elif x.shape != (b,) or x.dtype not in ("int32", "int64"):
            raise fail(
                f"attention: {name} {x}: one integer a batch entry is wanted", hint="int32 or int64 of shape (batch,)"
            )
    shape = stored(order_of(attrs, "out"), (b, n, s, v.shape[order_of(attrs, "v")[3]]))
    return [TensorType(q.dtype, shape)]


def _check_scales(extras: dict[str, TensorType], k: TensorType, v: TensorType, attrs: Attrs) -> None:
    """Raises unless keys and values both have scales, or both none; integers have some."""
    found = [extras.get(name) for name in SCALES]
    if found == [None, None] and "float" in k.dtype:
        return
    for operand, of, scale in zip("kv", (k, v), found):
        axis = order_of(attrs, operand)[3]
        wanted = tuple(1 if a == axis else n for a, n in enumerate(of.shape))
        if scale is None or scale.shape != wanted or "float" not in scale.dtype:
            raise fail(f"attention: {operand}_scale {scale} for {of}: floats {wanted} are wanted")


def is_packed(inputs: Sequence[Any]) -> bool:
    """Whether keys and values are of another type than queries, or have scales."""
    return bool(inputs[1].dtype != inputs[0].dtype)


def is_bias(name: str) -> bool:
    """Whether an extra input is added to scores, or chooses them."""
    return name.startswith("bias")


def _fit(tables: Sequence[TensorType], queries: Sequence[Any], attrs: Attrs) -> bool:
    """Whether these are the cosines and the sines for queries (batch, heads, places, size)."""
    cos, lead = tables[0], tuple(queries[:3])
    if len(tables) != 2 or tables[1] != cos or cos.ndim != 4 or "float" not in cos.dtype:
        return False
    fits = Rotation.of(queries[3], cos.shape[3], attrs) is not None
    return fits and broadcast_shapes(cos.shape[:3], lead) == lead


def _flops(types: Sequence[TensorType], outs: Sequence[TensorType], attrs: Attrs) -> int:
    g = geometry([t.shape for t in types], attrs)
    total: int = 2 * g.batch * g.heads * g.queries * g.keys * (g.size + g.value_size)
    return total


@dataclass(frozen=True)
class Scores:
    """What becomes of a product of a query and a key, the same in te and in loops. `read(name, index)`: an element of an extra input."""

    attrs: Attrs
    acc: str
    shapes: dict[str, tuple[Any, ...]]  # of the extra inputs
    kinds: dict[str, str]  # their types

    @property
    def scale(self) -> float:
        return float(self.attrs["scale"])

    @property
    def are_products(self) -> bool:
        """Whether a score is a product times `scale` and nothing else."""
        return not self.attrs.get("softcap") and not any(is_bias(n) or n == SLOPES for n in self.shapes)

    @property
    def has_range(self) -> bool:
        """Whether a query's own place says which keys it sees."""
        return self.attrs.get("left") is not None or self.attrs.get("right") is not None

    def turn(self, size: Any) -> Rotation | None:
        """How queries are turned; None where they are not."""
        return Rotation.of(size, self.shapes["cos"][3], self.attrs) if "cos" in self.shapes else None

    def angles(self, read: Callable[..., Any], b: Any, head: Any, place: Any) -> tuple[Read, Read]:
        """Reads of a query's cosines and sines by their column."""

        def of(name: str) -> Read:
            at = broadcast_index(self.shapes[name][:3], (b, head, place))
            return lambda column: read(name, (*at, column)).astype(self.acc)

        return of("cos"), of("sin")

    def offset(self, read: Callable[..., Any], b: Any) -> Any:
        """The place of the first query among the keys."""
        if "start" in self.shapes:
            return read("start", (b,)).astype("int32")
        return as_size(self.attrs.get("offset", 0))

    def capped(self, score: Any) -> Any:
        cap = self.attrs.get("softcap", 0.0)
        return te.tanh(score * te.const(1.0 / cap, self.acc)) * te.const(cap, self.acc) if cap else score

    def biased(self, score: Any, read: Callable[..., Any], index: Sequence[Any]) -> Any:
        """The score with the biases at (batch, head, query, key)."""
        if SLOPES in self.shapes:
            b, head, i, key = index
            # By how far the two are apart, not by the key's place, which float32 rounds in a long text.
            apart = (key - (i + self.offset(read, b))).astype(self.acc)
            at = broadcast_index(self.shapes[SLOPES], (b, head, i, 0))
            score = score + read(SLOPES, at).astype(self.acc) * apart
        for name, shape in self.shapes.items():
            if not is_bias(name):
                continue
            bias = read(name, broadcast_index(shape, index))
            if self.kinds[name] == "bool":
                score = te.select(bias, score, te.const(float("-inf"), self.acc))
            else:
                score = score + bias.astype(self.acc)
        return score

    def sunk(self, total: Any, top: Any, read: Callable[..., Any], index: Sequence[Any]) -> Any:
        """The sum of a query's weights exp(score - top), by (batch, head, query), with that of its sink. What is far above all scores makes it infinite, and
        the result 0."""
        if SINK not in self.shapes:
            return total
        at = broadcast_index(self.shapes[SINK], (*index, 0))
        return total + te.exp(read(SINK, at).astype(self.acc) - top)

    def seen(self, read: Callable[..., Any], b: Any, place: Any, key: Any) -> Any:
        """Whether the query at `place` (its offset counted) sees the key; None where all do."""
        left, right = self.attrs.get("left"), self.attrs.get("right")
        conditions = []
        if right is not None:
            conditions.append(key <= place + right)
        if left is not None:
            conditions.append(key >= place - left)
        if "length" in self.shapes:
            conditions.append(key < read("length", (b,)).astype("int32"))
        return te.all(*conditions) if conditions else None


def scores_of(inputs: Sequence[Tensor], attrs: Attrs) -> Scores:
    extras = dict(zip(attrs.get("extras", ()), inputs[3:]))
    shapes = {k: static_shape(t) for k, t in extras.items()}
    return Scores(attrs, accumulator(inputs[0].dtype), shapes, {k: t.dtype for k, t in extras.items()})


def _host(attrs: Attrs, arrays: Sequence[Any], outs: Sequence[TensorType]) -> list[Any]:
    """In NumPy, head by head, so that no more than one head's scores are held."""
    q, k, v = (np.transpose(np.asarray(x), order_of(attrs, n)) for n, x in zip("qkv", arrays))
    extras = {n: np.asarray(x) for n, x in zip(attrs.get("extras", ()), arrays[3:])}
    wide = np.float64 if q.dtype == np.float64 else np.float32
    if SCALES[0] in extras:
        own = (np.transpose(extras[f"{n}_scale"], order_of(attrs, n)).astype(wide) for n in "kv")
        k, v = (np.multiply(x.astype(wide), scale) for x, scale in zip((k, v), own))
    if TABLE in extras:
        k, v = (_gathered(x, extras[TABLE]) for x in (k, v))
    (b, n, s, h), (_, m, t, _) = q.shape, k.shape
    if "cos" in extras:
        turn = Rotation.of(h, extras["cos"].shape[3], attrs)
        assert turn is not None
        q = turned(q.astype(wide), extras["cos"].astype(wide), extras["sin"].astype(wide), turn).astype(q.dtype)
    y = np.empty((b, n, s, v.shape[3]), q.dtype)
    for e in range(b):
        seen = _host_seen(attrs, extras, e, s, t)
        for head in range(n):
            kv = head // (n // m)
            x = q[e, head].astype(wide) @ k[e, kv].astype(wide).T * wide(attrs["scale"])
            if attrs.get("softcap", 0.0):
                x = np.tanh(x / wide(attrs["softcap"])) * wide(attrs["softcap"])
            for bias in (np.broadcast_to(x, (b, n, s, t))[e, head] for m, x in extras.items() if is_bias(m)):
                x = np.where(bias, x, -np.inf) if bias.dtype == bool else x + bias.astype(wide)
            if SLOPES in extras:
                slope = np.broadcast_to(extras[SLOPES], (b, n, s, 1))[e, head].astype(wide)
                x = x + slope * (np.arange(t) - _host_places(attrs, extras, e, s)).astype(wide)
            x = np.where(seen, x, -np.inf)
            with np.errstate(invalid="ignore"):
                top = np.maximum(x.max(1, keepdims=True, initial=-np.inf), -np.finfo(np.float32).max)
                p = np.exp(x - top)
                total = p.sum(1, keepdims=True)
                if SINK in extras:
                    with np.errstate(over="ignore"):
                        total += np.exp(np.broadcast_to(extras[SINK], (b, n, s, 1))[e, head].astype(wide) - top)
                y[e, head] = np.where(total == 0, 0, p @ v[e, kv].astype(wide) / np.where(total == 0, 1, total))
    order = order_of(attrs, "out")
    return [np.ascontiguousarray(np.transpose(y, np.argsort(order)))]


def _host_places(attrs: Attrs, extras: dict[str, Any], e: int, queries: int) -> Any:
    """The queries' places among the keys of batch entry e, [queries, 1]."""
    first = int(extras["start"][e]) if "start" in extras else int(attrs.get("offset", 0))
    return first + np.arange(queries)[:, None]


def _host_seen(attrs: Attrs, extras: dict[str, Any], e: int, queries: int, keys: int) -> Any:
    """Which keys each query of batch entry e sees, as an array [queries, keys]."""
    key, place = np.arange(keys), _host_places(attrs, extras, e, queries)
    seen = np.ones((queries, keys), bool)
    if attrs.get("right") is not None:
        seen &= key <= place + attrs["right"]
    if attrs.get("left") is not None:
        seen &= key >= place - attrs["left"]
    if "length" in extras:
        seen &= key < int(extras["length"][e])
    return seen


def _gathered(pool: Any, table: Any) -> Any:
    """Blocks [blocks, heads, places, size] as what a table [batch, blocks of one] makes of them: [batch, heads, places, size]."""
    found = pool[np.clip(table, 0, len(pool) - 1)]
    b, n, m, t, h = found.shape
    return np.swapaxes(found, 1, 2).reshape(b, m, n * t, h)


def _turned_first(query: Any, turn: Rotation, angles: Any, lead: tuple[Any, ...], dtype: str) -> Any:
    """Queries by their logical index as a stage of their own, turned."""

    def one(*i: Any) -> Any:
        *at, d = i
        return turn.one(d, lambda p: query(*at, p), *angles(*at)).astype(dtype)

    made = te.compute((*lead, turn.size), one, name="attention_queries")
    return lambda *i: made(*i).astype(accumulator(dtype))


def _reader(operand: str, x: Tensor, attrs: Attrs, extras: dict[str, Tensor], acc: str) -> Callable[..., Any]:
    """Reads of keys or values by (batch, head, place, element), as numbers of the accumulator's type."""
    read, scale = _rows_of(operand, x, attrs, extras), extras.get(f"{operand}_scale")
    if scale is None:
        return lambda *i: read(*i).astype(acc)
    factor = _rows_of(operand, scale, attrs, extras)
    return lambda b, head, place, d: read(b, head, place, d).astype(acc) * factor(b, head, place, 0).astype(acc)


def _rows_of(operand: str, x: Tensor, attrs: Attrs, extras: dict[str, Tensor]) -> Callable[..., Any]:
    """Reads of what lies as keys or values do."""
    order, at = order_of(attrs, operand), table_at(attrs)
    if at is None:
        return lambda *i: x(*stored(order, i))
    blocks, _, length, _ = static_shape(x)

    def paged(b: Any, head: Any, place: Any, d: Any) -> Any:
        block = block_of(extras[TABLE], b, te.indexdiv(place, length), blocks)
        return x(block, head, te.indexmod(place, length), d)

    return paged


def _weighted(s: Tensor, value: Callable[..., Any], g: Geometry, acc: str) -> tuple[Tensor, Tensor, Tensor]:
    """The largest of scores (batch, heads, queries, keys), the sums of their weights, and of values by them."""
    lead = (g.batch, g.heads, g.queries)
    j1, j2, j3 = (te.reduce_axis((0, g.keys), f"j{x}") for x in (1, 2, 3))
    top = te.compute(lead, lambda *i: te.max(s(*i, j1), axis=j1), name="attention_max")
    # A row of -inf alone has no largest number to take off; its sum is 0.
    floor = te.const(LOWEST[acc], acc)
    power = te.compute(s.shape, lambda *i: te.exp(s(*i) - te.maximum(top(*i[:3]), floor)), name="attention_exp")
    total = te.compute(lead, lambda *i: te.sum(power(*i, j2), axis=j2), name="attention_sum")
    summed = te.compute(
        (*lead, g.value_size),
        lambda b, n, i, w: te.sum(
            power(b, n, i, j3) * value(b, te.indexdiv(n, g.group), j3, w),
            axis=j3,
        ),
        name="attention_values",
    )
    return top, total, summed


@register("attention", OPAQUE, _type, flops=_flops, traits=[SUMS, PITCHED], host=_host)
def _attention(attrs: Attrs, inputs: list[Tensor], outputs: list[TensorType]) -> list[Tensor]:
    """softmax(q k^T * scale + bias) v over the keys. q (batch, heads, queries, size), k (batch, key heads, keys, size), v (batch, key
    heads, keys, value size); a key head serves heads / key heads query heads. Attributes, all but `scale` with defaults:

    extras: names of the inputs behind q, k and v: "bias..." (any number; four dimensions that broadcast to the scores; added, or bool: the
    pairs to keep), "sink" (four dimensions that broadcast to (batch, heads, queries, 1): a score more, whose value is 0), "slopes" (the same; a score gains slope * (the key's place - the query's)), "start" (place of the first query among the keys, one a batch entry), "length" (keys of each batch entry that count), "cos" and "sin"
    (angles that queries are turned by when they are read, four dimensions that broadcast to queries in the order above, the last as `rotary` has it with
    `interleaved` and `whole`; of any float type).
    "table" (integers [batch, blocks of an entry]): keys and values are pools [blocks, key heads, places of a block, size], and key j of entry b lies in block
    table[b, j // places] at j % places; the entry has as many keys as its row has places, of which "length" or `right` say how many count.
    "k_scale" and "v_scale" (floats, of the shape of keys and of values with one element a row): keys and values are codes (int8, float8_e4m3, or floats of fewer bits than the
    queries'), and a row's numbers are its codes times its scale. Floats of fewer bits may have none.
    offset: that place where it is the same for all. left, right: a query at place p sees keys p - left to p + right; right 0 is causal.
    softcap: c * tanh(score / c) before the bias. q_order, k_order, v_order, out_order: which dimension of the tensor, as it is stored, is
    the batch, the head, the place, the element.

    A query that sees no key gives 0. 16-bit floats accumulate in float32.
    """
    q, k, v = inputs[:3]
    extras = dict(zip(attrs.get("extras", ()), inputs[3:]))
    scores = scores_of(inputs, attrs)
    g = geometry([static_shape(t) for t in inputs], attrs)
    acc, dtype = scores.acc, outputs[0].dtype

    def read(name: str, index: Sequence[Any]) -> Any:
        return extras[name](*index)

    h = te.reduce_axis((0, g.size), "h")
    key, value = (_reader(x, t, attrs, extras, acc) for x, t in (("k", k), ("v", v)))

    def query(b: Any, n: Any, i: Any, d: Any) -> Any:
        return q(*stored(order_of(attrs, "q"), (b, n, i, d))).astype(acc)

    turn = scores.turn(g.size)
    if turn is not None:
        query = _turned_first(query, turn, lambda *i: scores.angles(read, *i), (g.batch, g.heads, g.queries), q.dtype)

    def product(b: Any, n: Any, i: Any, j: Any) -> Any:
        x = query(b, n, i, h)
        return te.sum(x * key(b, te.indexdiv(n, g.group), j, h), axis=h)

    raw = te.compute((g.batch, g.heads, g.queries, g.keys), product, name="attention_product")

    def score(b: Any, n: Any, i: Any, j: Any) -> Any:
        x = scores.biased(scores.capped(raw(b, n, i, j) * te.const(scores.scale, acc)), read, (b, n, i, j))
        seen = scores.seen(read, b, i + scores.offset(read, b), j)
        return x if seen is None else te.select(seen, x, te.const(float("-inf"), acc))

    s = te.compute(raw.shape, score, name="attention_scores")
    top, total, summed = _weighted(s, value, g, acc)

    def body(*i: Any) -> Any:
        b, n, p, w = (i[a] for a in order_of(attrs, "out"))
        whole = scores.sunk(total(b, n, p), te.maximum(top(b, n, p), te.const(LOWEST[acc], acc)), read, (b, n, p))
        return normalized(summed(b, n, p, w), whole, acc).astype(dtype)

    made = te.compute(outputs[0].shape, body, name="attention")
    return carry(Form("attention", tuple(inputs), tuple(outputs), dict(attrs)), [made])


# The largest negative numbers: where running maxima start.
LOWEST = {"float32": -3.4028234e38, "float64": -1.7976931348623157e308}


def normalized(value: Any, total: Any, acc: str) -> Any:
    """A sum of weighted values over the sum of the weights; 0 where nothing was seen."""
    one, zero = te.const(1, acc), te.const(0, acc)
    return te.select(total == zero, zero, value / te.select(total == zero, one, total))
