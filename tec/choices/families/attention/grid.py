"""How an attention fills a GPU: tiles of queries over work-groups, blocks of keys over more of them where queries are few, and the kernel that joins.

Where queries are few and keys many, each of `splits` work-groups leaves the maximum, sum and weighted values of its keys, which a second small kernel
joins ("flash decoding", Dao and others 2023).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol

from .... import te
from ....ir import Expr
from ....ops.attention import Geometry
from ....records import dataclass
from ....target import Target
from ....te.ir_builder import BufferVar
from ....te.like import Index
from ...parts import loops
from ...parts.threads import neighbour_on_a_die
from .kernel import Kernel
from .softmax import joined

# Threads of a work-group that joins: they wait for memory alone, so that few of them on many units are best.
_JOINING = 64


class Tile(Protocol):
    """One work-group's queries: its loop over blocks of keys, then what it found."""

    def run(self, split: Index, splits: int) -> None: ...

    def results(self, out: Results) -> None: ...


@dataclass
class Rows:
    """Rows of a tile as queries: of one head, or folded, of all heads that share keys."""

    kernel: Kernel
    folded: bool
    b: Index
    head: Index  # the query head, or the key head where folded

    @property
    def count(self) -> Any:
        g = self.kernel.g
        return g.queries * g.group if self.folded else g.queries

    @property
    def key_head(self) -> Index:
        return self.head if self.folded else te.indexdiv(self.head, self.kernel.g.group)

    def at(self, row: Index) -> tuple[Any, Any]:
        """(query head, query) of a row."""
        g = self.kernel.g
        if not self.folded:
            return self.head, row
        return self.head * g.group + te.indexdiv(row, g.queries), te.indexmod(row, g.queries)

    def reach(self, first: Index, tile: int) -> tuple[Any, Any]:
        """The first and the last query of a tile's rows."""
        if self.folded:
            return 0, self.kernel.g.queries - 1
        return first, te.min(first + tile, self.count) - 1

    def blocks(self, low: Expr, high: Expr, keys: int, split: Index, splits: int) -> tuple[Any, Any]:
        """The blocks of keys, begin and end, that a split has of those which queries low to high see anything of; none where it ends before it begins."""
        ib = self.kernel.ib
        begin, end = self.kernel.key_range(self.b, low, high, keys)
        if splits > 1:
            each = ib.let("each", ceil_div(end - begin, splits))
            begin = ib.let("begin", begin + split * each)
            end = te.min(end, begin + each)
        return begin, end


def ceil_div(a: Index, b: int) -> Index:
    return -(-a // b) if isinstance(a, int) else te.indexdiv(a + (b - 1), b)


def is_sorted(g: Geometry, target: Target, bytes_: int) -> bool:
    """Whether tiles under a causal mask go by their length, the longest of all heads first, rather than head by head: so that no unit has two of the longest.
    Heads then pass through the second-level cache side by side, which half of it must hold: units ask for the same keys at other times."""
    cache = target.machine.level("L2")
    sizes_ = (g.batch, g.key_heads, g.keys, g.size, g.value_size)
    if cache is None or not all(isinstance(n, int) for n in sizes_):
        return False
    return bool(2 * g.batch * g.key_heads * g.keys * (g.size + g.value_size) * bytes_ <= cache.size_bytes)


@dataclass
class Grid:
    """Work-groups of `threads` (x, y): `tile` rows of queries of a head each, or of the heads that share keys (`folded`)."""

    k: Kernel
    folded: bool
    tile: int
    splits: int
    threads: tuple[int, int]
    resident: int = 0  # work-groups that a unit is to hold at once, where that bounds registers
    early: bool = False  # both kernels begin before the one ahead has ended, where that pays
    sorted: bool = False  # see `is_sorted`
    columns: int = 1  # of a thread of the kernel that joins
    dies: int = 1  # that work-groups are dealt to in turn, each with an L2 of its own

    @property
    def heads(self) -> Any:
        return self.k.g.key_heads if self.folded else self.k.g.heads

    @property
    def rows(self) -> Any:
        return self.k.g.queries * self.k.g.group if self.folded else self.k.g.queries

    def launch(self, make: Callable[[Rows, Any, Any, Any], Tile]) -> None:
        """`make(rows, first row, threadIdx.x, threadIdx.y)` gives each work-group's tile."""
        k, splits = self.k, self.splits
        ib, g = k.ib, k.g
        tiles = ceil_div(self.rows, self.tile)
        parts: Any = None
        if splits > 1:
            # Of each split: weighted values, then the maximum and the sum.
            parts = ib.allocate(
                k.acc, (g.batch * self.heads * tiles * self.tile * splits * (g.value_size + 2),), "parts"
            )
        with ib.new_scope():
            tx, ty = te.thread_axis("threadIdx.x"), te.thread_axis("threadIdx.y")
            b, head, split, at = self._dealt(tiles) or self._in_order(tiles)
            for axis, n in zip((tx, ty), self.threads):
                ib.scope_attr(axis, "thread_extent", n)
            if self.resident:
                ib.scope_attr(None, "min_blocks", self.resident)
            if self.early:
                ib.scope_attr(None, "early_start", None)
            # Under a causal mask the last queries see the most keys: they begin first, and no unit is left with one of them at the end.
            first = (tiles - 1 - at if k.scores.attrs.get("right") is not None else at) * self.tile
            of = Rows(k, self.folded, b, head)
            t = make(of, first, tx.var, ty.var)
            t.run(split, splits)
            t.results(Results(self, of, split, parts, tiles))
        if parts is not None:
            self._join(parts, tiles)

    def _in_order(self, tiles: Index) -> tuple[Any, Any, Any, Any]:
        """A work-group's (batch entry, head, split, tile): head by head, or tile by tile (`sorted`). Work-groups start in the order of x, then y, then z."""
        axes = [te.thread_axis(f"blockIdx.{c}") for c in ("zxy" if self.sorted else "xyz")]
        for axis, n in zip(axes, (tiles * self.splits, self.heads, self.k.g.batch)):
            self.k.ib.scope_attr(axis, "thread_extent", n)
        x, y, z = (a.var for a in axes)
        if self.splits == 1:
            return z, y, 0, x
        return z, y, te.indexmod(x, self.splits), te.indexdiv(x, self.splits)

    def _dealt(self, tiles: Index) -> tuple[Any, Any, Any, Any] | None:
        """The same with all that read the same keys on one die, one after another: its L2 keeps what the first has brought. None where nothing is read twice."""
        g, ib = self.k.g, self.k.ib
        shared = 1 if self.folded else g.group
        if self.dies == 1 or not all(isinstance(n, int) for n in (tiles, shared, self.heads, g.batch)):
            return None
        members, lines = tiles * shared, g.batch * (self.heads // shared) * self.splits
        if members == 1:
            return None
        block = te.thread_axis("blockIdx.x")
        ib.scope_attr(block, "thread_extent", members * lines)
        turn = ib.let("turn", neighbour_on_a_die(block.var, members * lines, self.dies))
        line = ib.let("line", te.indexdiv(turn, members))
        member = ib.let("member", te.indexmod(turn, members))
        split, of_all, key_heads = te.indexmod(line, self.splits), te.indexdiv(line, self.splits), self.heads // shared
        head = ib.let("head", te.indexmod(of_all, key_heads) * shared + te.indexdiv(member, tiles))
        return ib.let("batch", te.indexdiv(of_all, key_heads)), head, ib.let("split", split), te.indexmod(member, tiles)

    def place(self, tiles: Index, b: Index, head: Index, row: Index, split: Index) -> Any:
        """Where a split's part of a row begins."""
        line = ((b * self.heads + head) * (tiles * self.tile) + row) * self.splits + split
        return line * (self.k.g.value_size + 2)

    def _join(self, parts: BufferVar, tiles: Index) -> None:
        """Each element of the result from its splits, some neighbours a thread."""
        k = self.k
        ib, g = k.ib, k.g
        wide = math.gcd(self.columns, g.value_size)
        width = g.value_size // wide
        total_elements = g.batch * self.heads * self.rows * width
        with loops.launch(ib, (ceil_div(total_elements, _JOINING),), (_JOINING,)) as (block, thread):
            if self.early:
                ib.scope_attr(None, "early_start", None)
            e = block * _JOINING + thread
            with ib.if_scope(e < total_elements):
                column, line = te.indexmod(e, width) * wide, te.indexdiv(e, width)
                row, b_head = te.indexmod(line, self.rows), te.indexdiv(line, self.rows)
                b, head = te.indexdiv(b_head, self.heads), te.indexmod(b_head, self.heads)
                first = ib.let("at", self.place(tiles, b, head, row, 0))
                values, total, top = joined(
                    k, parts, self.splits, lambda split: first + split * (g.value_size + 2), column, wide
                )
                query_head, i = Rows(k, self.folded, b, head).at(row)
                at = (b, query_head, i)
                for v, value in enumerate(values):
                    k.write((*at, column + v), k.normalized(value, total, top, at))


@dataclass
class Results:
    """Where a work-group's rows go: the result, or a split's part."""

    grid: Grid
    of: Rows
    split: Index
    parts: BufferVar | None
    tiles: Index

    @contextmanager
    def row(self, row: Index, top: Expr, total: Index, is_first: Index) -> Iterator[Callable[[Any, Any], None]]:
        """Puts elements of one row: `put(column, sum of weighted values)`. `is_first`: whether this thread is the first of those that share the
        row; `top` is the maximum that the weights are relative to, in powers of e."""
        k = self.grid.k
        ib, g = k.ib, k.g
        if (parts := self.parts) is None:
            head, i = self.of.at(row)
            with ib.if_scope(row < self.of.count):
                place = (self.of.b, head, i)
                one = ib.let("one", k.normalized(k.const(1), total, top, place))
                yield lambda column, value: k.write((*place, column), value * one)
            return
        at = ib.let("at", self.grid.place(self.tiles, self.of.b, self.of.head, row, self.split))
        with ib.if_scope(is_first):
            parts[at + g.value_size] = top
            parts[at + g.value_size + 1] = total

        def put(column: Index, value: Expr) -> None:
            parts[at + column] = value

        yield put
