"""What attention shares on every target: the base of its templates, sizes, reading operands through their order, the range of keys that a tile sees."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from functools import cached_property
from typing import Any, ClassVar

from .... import te
from ....ir import Expr
from ....ir.visit import free_vars
from ....ops.attention import (
    LOWEST,
    TABLE,
    Geometry,
    Scores,
    block_of,
    geometry,
    is_packed,
    normalized,
    order_of,
    scores_of,
    stored,
    table_at,
)
from ....ops.forms import Form
from ....ops.rotary import Rotation
from ....ops.typical import supposing
from ....records import dataclass
from ....te.ir_builder import BufferVar, IRBuilder
from ....te.like import Index
from ...group import extent
from ...parts import loops
from ...space import Choice

FEW = 16  # queries up to which the heads of a group go into one tile
OPEN = 2048  # queries and keys, for choices where their number is open


@dataclass
class Kernel:
    """What the loops of one attention share: its sizes, and reading operands by their logical index."""

    form: Form
    ib: IRBuilder
    sources: dict[str, BufferVar]
    out: BufferVar

    def __post_init__(self) -> None:
        self.g = self.sizes_of(self.form)
        self.scores: Scores = scores_of(self.form.inputs, self.form.attrs)
        self.acc = self.scores.acc
        self.places = places_of(self.form) or 0  # keys of a block, where they lie in blocks of a pool
        self.block: Any = None  # the one that is read now, where all keys that follow are of it, and its first key
        self.block_first: Any = 0

    def enter(self, b: Index, key: Index) -> None:
        """What follows reads keys from `key` on of batch entry b, no further than to the end of their block."""
        if self.places:
            number = te.indexdiv(key, self.places)
            self.block = self.entry(b, number)
            self.block_first = self.ib.let("block_first", number * self.places)

    def entry(self, b: Index, number: Any) -> Any:
        """The place in the pool of a batch entry's block."""
        return self.ib.let("block_at", self._block_of(b, number))

    def _block_of(self, b: Index, number: Any) -> Any:
        table, blocks = self.sources[TABLE], self.form.inputs[1].shape[0]
        return block_of(lambda *i: table[i], b, number, _size(blocks))

    @staticmethod
    def sizes_of(form: Form) -> Geometry:
        """Sizes as numbers, or as expressions where they are open."""
        return geometry([[_size(d) for d in t.shape] for t in form.inputs], form.attrs)

    @classmethod
    def of(cls, form: Form, ib: IRBuilder, sources: list[BufferVar], out: BufferVar) -> Kernel:
        names = ("q", "k", "v", *form.attrs.get("extras", ()))
        return cls(form, ib, dict(zip(names, sources)), out)

    def at(self, operand: str, *index: Any) -> Any:
        """An element of q, k or v by (batch, head, place, element), in the accumulator's type."""
        x, scale = self.code_at(operand, *index), self.scale_at(operand, *index[:3])
        return x if scale is None else x * scale

    def code_at(self, operand: str, *index: Any) -> Any:
        """The same before it is multiplied by its row's scale."""
        return self._read(operand, operand, *index).astype(self.acc)

    def scale_at(self, operand: str, *row: Any) -> Any:
        """What the elements of a row (batch, head, place) of k or v are multiplied by; None where they are numbers as they are."""
        name = f"{operand}_scale"
        return self._read(operand, name, *row, 0).astype(self.acc) if name in self.sources else None

    def stored_at(self, operand: str, *index: Any) -> Any:
        """An element in the queries' type."""
        if is_packed(self.form.inputs) and operand != "q":
            return self.at(operand, *index).astype(self.sources["q"].dtype)
        return self._read(operand, operand, *index)

    def _read(self, operand: str, name: str, *index: Any) -> Expr:
        """An element of an operand, or of what lies as it does."""
        if self.places and operand in ("k", "v"):
            b, head, place, d = index
            if self.block is not None:
                return self.sources[name][self.block, head, place - self.block_first, d]
            block = self._block_of(b, te.indexdiv(place, self.places))
            return self.sources[name][block, head, te.indexmod(place, self.places), d]
        return self.sources[name][stored(order_of(self.form.attrs, operand), index)]

    def near(self, operand: str, b: Index, head: Index, first: Expr) -> Callable[[Any, Any], Any]:
        """Reads of a place and an element of keys or values, in the queries' type, for places that lie in one block with `first` where keys lie in blocks: one entry of the table
        for all of them."""
        if not self.places or operand == "q" or self.block is not None:
            return lambda place, d: self.stored_at(operand, b, head, place, d)
        number = self.ib.let("number", te.indexdiv(first, self.places))
        block, source = self.entry(b, number), self.sources[operand]
        scale, dtype = self.sources.get(f"{operand}_scale"), self.sources["q"].dtype

        def read(place: Any, d: Any) -> Any:
            row = block, head, place - number * self.places
            x = source[(*row, d)]
            if scale is not None:
                x = x.astype(self.acc) * scale[(*row, 0)].astype(self.acc)
            return x.astype(dtype)

        return read

    @cached_property
    def turn(self) -> Rotation | None:
        """How queries are turned when they are read."""
        return self.scores.turn(self.g.size)

    def query(self, b: Index, head: Index, place: Index, d: Index, reach: tuple[int, int] | None = None) -> Any:
        """An element of a query, turned where they are, in the operand's own type. `reach`: see `Rotation.one`."""
        if self.turn is None:
            return self.stored_at("q", b, head, place, d)
        cos, sin = self.scores.angles(self.extra, b, head, place)
        y = self.turn.one(d, lambda p: self.at("q", b, head, place, p), cos, sin, reach)
        return y.astype(self.sources["q"].dtype)

    def each_element(self, b: Index, head: Index, place: Index, put: Callable[[Any, Any], None]) -> None:
        """`put(d, element)` for all of a query, turned where they are, in the accumulator's type: a pair at a time, what both need read once."""
        ib, turn, size = self.ib, self.turn, self.g.size
        first = 0
        if turn is not None:
            first = 2 * turn.half
            cos, sin = self.scores.angles(self.extra, b, head, place)
            with ib.for_range(0, turn.half, "pair") as n:
                both = [
                    ib.let(name, y)
                    for name, y in zip(
                        ("one", "other"), turn.both(n, lambda d: self.at("q", b, head, place, d), cos, sin)
                    )
                ]
                for d, y in zip(turn.pair(n), both):
                    put(d, y)
        if not isinstance(size, int) or first < size:
            with ib.for_range(first, size, "d") as d:
                put(d, self.at("q", b, head, place, d))

    def extra(self, name: str, index: Sequence[Any]) -> Expr:
        return self.sources[name][tuple(index)]

    def write(self, index: Sequence[Any], value: Expr) -> None:
        self.out[stored(order_of(self.form.attrs, "out"), index)] = value.astype(self.out.dtype)

    def const(self, value: float) -> Expr:
        return te.const(value, self.acc)

    @property
    def lowest(self) -> Expr:
        return self.const(LOWEST[self.acc])

    def normalized(self, value: Expr, total: Index, top: Expr, index: Sequence[Any]) -> Any:
        """A sum of values over that of the weights exp(score - top) of a query (batch, head, place), its sink's among them."""
        return normalized(value, self.scores.sunk(total, top, self.extra, index), self.acc)

    def key_range(self, b: Index, first: Index, last: Index, block: int) -> tuple[Any, Any]:
        """The blocks of keys, begin and end, that queries first to last of batch entry b see anything of."""
        attrs = self.form.attrs
        begin: Any = 0
        end = self.last_key(b, last) + 1
        offset = self.scores.offset(self.extra, b) if self.scores.has_range else 0
        if attrs.get("left") is not None:
            begin = te.max(te.indexdiv(te.max(first + offset - attrs["left"], 0), block), 0)
        if isinstance(end, int):
            return begin, -(-end // block)
        return begin, te.indexdiv(te.max(end, 0) + (block - 1), block)

    def last_key(self, b: Index, last: Index) -> Any:
        """The last key that queries up to `last` of batch entry b may see; below 0 where they see none."""
        end: Any = self.g.keys
        if self.form.attrs.get("right") is not None:
            end = te.min(end, last + self.scores.offset(self.extra, b) + (self.form.attrs["right"] + 1))
        if "length" in self.scores.shapes:
            end = te.min(end, self.extra("length", (b,)).astype("int32"))
        return end - 1

    def biased(self, product: Expr, at: Sequence[Any]) -> Any:
        """The score of a product, scaled, of the query and key that lie at (batch entry, head, query, key)."""
        return self.scores.biased(self.scores.capped(product), self.extra, at)

    def inside(self, key: Index, block: int) -> list[Expr]:
        """The condition that there is a key of a block of so many; none where all blocks are whole."""
        keys = self.g.keys
        return [] if isinstance(keys, int) and keys % block == 0 else [key < keys]

    def seen(self, score: Expr, b: Index, i: Index, key: Index, conditions: Sequence[Any] = ()) -> Expr:
        """A score of query `i` and a key, -inf where the query does not see the key, or one of some conditions does not hold."""
        seen = self.scores.seen(self.extra, b, i + self.scores.offset(self.extra, b), key)
        conditions = [*conditions, *([] if seen is None else [seen])]
        return te.select(te.all(*conditions), score, self.const(float("-inf"))) if conditions else score


class AttentionSpace(loops.LoopForm):
    """What the templates of attention have in common: its sizes, typical ones where they are open, and loops in place of the form."""

    kind: ClassVar[str] = "attention"
    open_queries: ClassVar[int] = OPEN  # how many are expected where their number is open
    is_alone: bool = False  # whether no template is made for as few queries

    def read_form(self) -> None:
        self.dtype, self.g = self.form.inputs[0].dtype, Kernel.sizes_of(self.form)
        self.batch: int = self.g.batch if isinstance(self.g.batch, int) else 1
        self.queries: int = self.g.queries if isinstance(self.g.queries, int) else self.open_queries
        self.length: int = self.g.keys if isinstance(self.g.keys, int) else OPEN

    def supposed(self) -> AbstractContextManager[object]:
        """Caches are as long as choices think: by the price of a few keys no second kernel that joins parts of many would ever pay."""
        q, *rest = ({v.name for d in t.shape for v in free_vars(d)} for t in self.form.inputs)
        return supposing(set().union(*rest) - q, q, OPEN)

    def loops(self, kernel: Kernel, choice: Choice) -> None:
        """The attention's loops by a legal choice."""
        raise NotImplementedError

    def body(self, choice: Choice, ib: IRBuilder, sources: list[BufferVar], results: list[BufferVar]) -> None:
        self.loops(Kernel.of(self.form, ib, sources, results[0]), choice)


class SplitAttention(AttentionSpace):
    """Of templates that fold the heads of few queries into one tile, and divide many keys over work-groups (`grid`)."""

    @cached_property
    def rows(self) -> tuple[int, bool]:
        """Queries of one tile's head, or of its group of heads where they are few."""
        s = self.g.queries
        folded = isinstance(s, int) and s <= FEW and self.g.group != 1
        return (self.queries * self.g.group if folded else self.queries), folded

    def groups(self, tile: int) -> int:
        """Work-groups of so many rows, before keys are divided."""
        rows, folded = self.rows
        heads: int = self.g.key_heads if folded else self.g.heads
        return self.batch * heads * -(-rows // tile)

    def splits(self, tile: int, keys: int, beside: int = 2) -> int:
        """So many that `beside` work-groups a compute unit have four blocks of keys each at least, or as few as a rule says."""
        least = int(self.rule("blocks", 4, keys=self.length, rows=self.rows[0]))
        wanted: int = min(beside * self.target.machine.units // self.groups(tile), self.length // (least * keys))
        return max((int(n) for n in self.parameters["splits"] if n <= wanted), default=1)


def places_of(form: Form) -> int | None:
    """Keys of a block, where they lie in blocks of a pool; None where they lie one behind the other."""
    if table_at(form.attrs) is None:
        return None
    return int(_size(form.inputs[1].shape[2]))


def _size(d: Expr) -> Any:
    n = extent(d)
    return d if n is None else n
