"""Attention of bfloat16 on a CPU's tile registers (AMX): both products of a block of keys by the matrix unit, the softmax between them in vectors.

    S^T = K Q^T      keys as they lie are the first operand; queries are packed once a tile, neighbours of an element's pair beside each other
    O^T = V^T P^T    weights are packed as they are made; values are turned once a head of keys, before all tiles

A vector has a query a lane, as in `attention`, whose loops stand around: maxima, sums and scalings are lane-wise. Sums are float32, products of bfloat16
exact; weights are rounded to bfloat16, as on GPUs. Float16 stays in vectors: as bfloat16 it would lose three of its bits. Keys behind the last whole block
go by vectors too.
"""

from __future__ import annotations

import math
from typing import Any, ClassVar

from .... import te
from ....ir import build
from ....ir.dtype import with_lanes
from ....ir.expr import Call, Expr, Shuffle
from ....ir.stmt import Evaluate
from ....ops.attention import order_of
from ....ops.forms import Form
from ....target import Target
from ....te.ir_builder import BufferVar
from ....te.like import Index
from ...cost import Footprint, on_cores
from ...parts import loops
from ...rules import figures
from ...space import Choice
from .cpu import CpuAttention, Tile, by_heads, by_lanes, tasks_kind
from .few import MOST
from .kernel import Kernel

DTYPE = "bfloat16"
ROWS = 16  # of a tile, of 64 bytes each: 32 numbers of 16 bits, or 16 sums
DEPTH = 32  # numbers of a sum that one instruction takes
WEIGHT_CLOCKS = 1.5  # of a score between the products: scaling, masks, an exponential, rounding, in vectors of 16
DOT_CLOCKS = 16  # of one instruction: 16 by 16 sums of 32 products


def fits(form: Form, target: Target) -> bool:
    """Whether the chip has the registers, heads are whole tiles that lie along the last dimension, and there may be queries enough."""
    if target.is_gpu or DTYPE not in target.core.tiles or form.inputs[0].dtype != DTYPE:
        return False
    g = Kernel.sizes_of(form)
    sizes = (
        isinstance(g.size, int) and g.size % DEPTH == 0 and isinstance(g.value_size, int) and g.value_size % ROWS == 0
    )
    along = all(order_of(form.attrs, x)[3] == 3 for x in "kv")
    lead = isinstance(g.heads, int) and isinstance(g.key_heads, int)
    blocks = not isinstance(g.keys, int) or g.keys >= DEPTH
    return sizes and along and lead and blocks and not (isinstance(g.queries, int) and g.queries * g.group <= MOST)


def is_worth(form: Form, target: Target) -> bool:
    """Whether there are scores enough for each core, or how many is open."""
    g = Kernel.sizes_of(form)
    work = [g.batch, g.heads, g.queries, g.keys]
    least = figures.of(TileAttention.template, target)["least_scores"]
    return not all(isinstance(n, int) for n in work) or math.prod(work) >= least * target.machine.units


class TileAttention(CpuAttention):
    """See the module: a tile of `queries` by blocks of `keys`."""

    template: ClassVar[str] = "cpu tile attention"

    def read_form(self) -> None:
        super().read_form()
        keys = tuple(n for n in (64, 32, 128) if not isinstance(self.g.keys, int) or n <= self.g.keys)
        self.parameters = {"queries": (32, 64), "keys": keys, "rows": (8, 4)}

    @property
    def default(self) -> Choice:
        g = self.g
        # 64 queries read keys half as often; of few, 32 leave tasks for twice the threads.
        few = isinstance(g.queries, int) and g.queries < 512
        short = isinstance(g.keys, int) and g.keys % 64 >= 32
        return self.choice(queries=32 if few else 64, keys=32 if short else 64, rows=8)

    def sketch(self, choice: Choice) -> Footprint:
        """Products at the unit's rate, and the softmax between them, by the share of lanes that have a query."""
        g, rows = self.g, -(-self.queries // choice["queries"]) * choice["queries"]
        scores = self.batch * g.heads * rows * self.length
        return on_cores(scores * ((g.size + g.value_size) * DOT_CLOCKS / (ROWS * ROWS * DEPTH) + WEIGHT_CLOCKS))

    def loops(self, kernel: Kernel, choice: Choice) -> None:
        few = kernel.g.queries * kernel.g.group
        if isinstance(few, int):
            _on_tiles(kernel, choice)
            return
        with kernel.ib.if_scope(few <= MOST):
            by_heads(kernel, choice, self.lanes)
        with kernel.ib.else_scope():
            _on_tiles(kernel, choice)


def _on_tiles(kernel: Kernel, choice: Choice) -> None:
    """Values turned, then tiles of queries."""
    values = Values(kernel, choice["keys"])
    values.turn()
    by_lanes(kernel, choice, lambda *at: RegisterTile(values, kernel, choice, *at))


class Values:
    """Values with an element a row, of all keys of whole blocks: (batch, key heads, elements, keys)."""

    def __init__(self, kernel: Kernel, keys: int):
        g = kernel.g
        self.kernel = kernel
        self.keys = te.indexdiv(g.keys, keys) * keys if not isinstance(g.keys, int) else g.keys // keys * keys
        self.size = g.value_size

    def turn(self) -> None:
        k = self.kernel
        ib, g = k.ib, k.g
        self.buffer = ib.allocate(DTYPE, (te.max(g.batch * g.key_heads * self.size * self.keys, 1),), "turned_values")
        pieces = te.indexdiv(self.keys, DEPTH) if not isinstance(self.keys, int) else self.keys // DEPTH
        with ib.for_range(0, g.batch * g.key_heads * pieces, "task", kind=tasks_kind(g)) as task:
            piece, line = ib.let("piece", te.indexmod(task, pieces)), ib.let("line", te.indexdiv(task, pieces))
            b, head = te.indexdiv(line, g.key_heads), te.indexmod(line, g.key_heads)
            with ib.for_range(0, self.size, "d") as d, ib.for_range(0, DEPTH, "lane", kind="vectorize") as lane:
                key = piece * DEPTH + lane
                self.buffer[(line * self.size + d) * self.keys + key] = k.stored_at("v", b, head, key, d)

    def at(self, b: Index, head: Index, d: Index, key: Index) -> Any:
        """Where an element begins."""
        return ((b * self.kernel.g.key_heads + head) * self.size + d) * self.keys + key


class RegisterTile(Tile):
    """One tile of queries of one head; see the module."""

    def __init__(self, values: Values, *args: Any):
        super().__init__(*args)
        self.turned = values

    def run(self) -> None:
        w = self.width
        self.queries = self.ib.allocate(DTYPE, (self.g.size * w,), "query_pairs", scope="local")
        self.pairs = self.ib.allocate(DTYPE, (self.keys * w,), "weight_pairs", scope="local")
        super().run()

    def _put_queries(self) -> None:
        """Element by element: `Tile` turns squares into float32, and the unit takes pairs of bfloat16."""
        self._put_each_query()

    def _put_query(self, i: Index, d: Index, x: Any) -> None:
        if not isinstance(self.g.keys, int) or self.g.keys % self.keys:  # the last keys go by vectors
            super()._put_query(i, d, x)
        pair, one = te.indexdiv(d, 2), te.indexmod(d, 2)
        self.queries[(pair * self.width + i) * 2 + one] = x.astype(DTYPE)

    # ---- operations on tiles: 0 to 3 hold sums, 4 and 5 the first operand, 6 and 7 the second

    def _effect(self, op: str, *args: Any, **attrs: Any) -> None:
        self.ib.emit(Evaluate(Call(op, tuple(build.convert(a) for a in args), "int32", attrs)))

    def _load(self, tile: int, first: Index, stride: Any, columns: int = DEPTH) -> None:
        self._effect("tile_load", first, stride, tile=tile, rows=ROWS, columns=columns)

    def _dots(self, firsts: int, seconds: int) -> None:
        for a in range(firsts):
            for b in range(seconds):
                self._effect("tile_dot", c=2 * a + b, a=4 + a, b=6 + b, group=2, rows=ROWS, dtype=DTYPE)

    # ---- a block

    def _score_block(self, key: Index, count: Index) -> None:
        """Scores of a whole block of keys in tile registers, two by two tiles at a time; of fewer keys as elsewhere."""
        if count is not self.keys:
            super()._score_block(key, count)
            return
        ib, k, w = self.ib, self.kernel, self.width
        apart = _apart(k, "k")
        for first in range(0, w, 2 * ROWS):
            with ib.for_range(0, self.keys // (2 * ROWS), "j") as pair:
                j = pair * 2 * ROWS
                for n in range(4):
                    self._effect("tile_zero", tile=n, acc="float32", rows=ROWS, columns=ROWS)
                with ib.for_range(0, self.g.size // DEPTH, "c") as c:
                    for a in range(2):
                        row = k.stored_at("k", self.b, self.kv, key + j + a * ROWS, c * DEPTH)
                        self._load(4 + a, row, apart)
                        at = (c * ROWS * w + first + a * ROWS) * 2
                        self._load(6 + a, self.queries[at], 2 * w)
                    self._dots(2, 2)
                for n in range(4):
                    to = self.p[(j + n // 2 * ROWS) * w + first + n % 2 * ROWS]
                    self._effect("tile_store", to, w, tile=n, rows=ROWS, columns=ROWS)
        scale = k.const(k.scores.scale)
        with ib.for_range(0, self.keys, "j") as j:
            place = ib.let("key", key + j)
            with self._lanes() as lane:
                self.p[j * w + lane] = self._masked(self.p[j * w + lane] * scale, lane, place)

    def _value_block(self, key: Index, count: Index) -> None:
        if count is not self.keys:
            super()._value_block(key, count)
            return
        ib, w, size = self.ib, self.width, self.g.value_size
        self._pack_weights()
        with ib.for_range(0, size, "d") as d, self._lanes() as lane:
            self.o[d * w + lane] = self.o[d * w + lane] * self.factor[lane]
        for first in range(0, w, 2 * ROWS):
            with ib.for_range(0, size // (2 * ROWS), "d") as pair:
                self._sum_values(key, pair * 2 * ROWS, 2, first)
            if size % (2 * ROWS):
                self._sum_values(key, size - ROWS, 1, first)

    def _sum_values(self, key: Index, d: Index, rows: int, first: int) -> None:
        """What `rows` tiles of elements from d on sum up for 32 queries."""
        w, values = self.width, self.turned
        sums = [(2 * a + b, self.o[(d + a * ROWS) * w + first + b * ROWS]) for a in range(rows) for b in range(2)]
        for n, at in sums:
            self._load(n, at, w, ROWS)
        with self.ib.for_range(0, self.keys // DEPTH, "c") as c:
            for a in range(rows):
                at = values.at(self.b, self.kv, d + a * ROWS, key + c * DEPTH)
                self._load(4 + a, values.buffer[at], values.keys)
            for b in range(2):
                self._load(6 + b, self.pairs[(c * ROWS * w + first + b * ROWS) * 2], 2 * w)
            self._dots(rows, 2)
        for n, at in sums:
            self._effect("tile_store", at, w, tile=n, rows=ROWS, columns=ROWS)

    def _pack_weights(self) -> None:
        """Weights of two keys beside each other, query by query."""
        ib, w = self.ib, self.width
        mixed = tuple(x for n in range(ROWS) for x in (n, ROWS + n))
        with ib.for_range(0, self.keys // 2, "pair") as pair:
            for first in range(0, w, ROWS):
                rows = [self._vector(self.p, (pair * 2 + j) * w + first) for j in range(2)]
                both = Shuffle(tuple(r.astype(with_lanes(DTYPE, ROWS)) for r in rows), mixed)
                at = (pair * w + first) * 2
                loops.put_vector(ib, self.pairs, at, both)

    @staticmethod
    def _vector(buffer: BufferVar, base: Index) -> Expr:
        return loops.vector(buffer, base, ROWS)


def _apart(k: Kernel, operand: str) -> Any:
    """Elements from one place of an operand to the next. Rows of a state have room along their places, which stand before what they are made of."""
    axis = order_of(k.form.attrs, operand)[2]
    total: Any = 1
    for n in k.sources[operand].buffer.shape[axis + 1 :]:
        total = total * n
    return total
