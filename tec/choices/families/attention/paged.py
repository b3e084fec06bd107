"""Attention on a GPU whose keys and values lie in blocks of a pool, found through a table (Kwon and others, arXiv 2309.06180).

The templates are those of keys in one piece. What differs is where a row is read: the table gives the block, and the row's place in the block is the rest.
Few queries ask the table for the keys of the next step while those of this one are on their way, so that no load waits for two. A tile of keys in shared
memory is part of one block where blocks are whole tiles: then one entry of the table serves all of its rows.
"""

from __future__ import annotations

from typing import Any, ClassVar

from .... import te
from ....te.like import Index
from .few_rows import FewRowsAttention, Streams
from .few_rows_matrix import DirectWave, FewRowsMatrixAttention
from .gpu import GpuAttention
from .matrix import MatrixAttention
from .wave import Wave


class _PagedStreams(Streams):
    """Streams of keys whose blocks are looked up a step ahead."""

    def _number(self, base: Any, u: int) -> Any:
        """The block of key `u` of a step of this lane, no further than that of the last key that is seen. Where a block is a whole number of streams' steps,
        all lanes have the same one, which AMD's scalar unit reads."""
        places = self.k.places
        key = base + u * self.streams
        if places % self.streams:
            key = key + self.stream
        return te.min(te.indexdiv(key, places), te.indexdiv(self.last, places))

    def _enter(self, base: Any) -> None:
        self.ahead_entries = self._local("int32", self.ahead, "entries")
        for u in range(self.ahead):
            self.ahead_entries[u] = self.k.entry(self.of.b, self._number(base, u))

    def _bring(self, base: Any, there: list[Any], block: int) -> None:
        ib, places = self.ib, self.k.places
        own = [ib.let("entry", self.ahead_entries[u]) for u in range(self.ahead)]
        at = [ib.let("at", te.indexmod(key, places)) for key in there]
        for operand, to in (("k", self.keys), ("v", self.values)):
            for u in range(self.ahead):
                self._put(operand, to, u, (own[u], self.of.key_head, at[u]))
        for u in range(self.ahead):
            self.ahead_entries[u] = self.k.entry(self.of.b, self._number(base + block, u))


class PagedFewRows(FewRowsAttention):
    """Few queries of each text: a step of a server."""

    template: ClassVar[str] = "few rows attention, paged"
    measured_as: ClassVar[str] = FewRowsAttention.template

    def streams_of(self, *args: Any) -> Streams:
        return _PagedStreams(*args)


class _PagedDirect(DirectWave):
    """Blocks of a wavefront are looked up a step ahead: one entry of the table serves a wavefront's block where blocks of the pool are a whole number of them."""

    @property
    def _is_whole(self) -> bool:
        return bool(self.k.places % self.keys == 0)

    def _block_of(self, key: Any) -> Any:
        """The entry of a key's block, no further than that of the last key that is seen."""
        places = self.k.places
        return self.k.entry(self.of.b, te.min(te.indexdiv(key, places), te.indexdiv(self.last, places)))

    def _enter(self, key: Any, apart: int) -> None:
        if not self._is_whole:
            return
        # Entries of the block whose loads come next, and of the one behind it.
        self.entries = self.ib.allocate("int32", (2,), "entries", scope="local")
        self.entries[0] = self._block_of(key)
        self.entries[1] = self._block_of(key + apart)

    def _go_on(self, after: Any, apart: int) -> None:
        if self._is_whole:
            self.entries[0] = self.entries[1]
            self.entries[1] = self._block_of(after + apart)

    def _row_of(self, operand: str, key: Index) -> tuple[Any, ...]:
        place = self._place(key)
        own = self.entries[0] if self._is_whole else self._block_of(place)
        return own, self.of.key_head, te.indexmod(place, self.k.places)


class PagedFewRowsMatrix(FewRowsMatrixAttention):
    """The same on matrix units."""

    template: ClassVar[str] = "few rows attention by matrix units, paged"
    measured_as: ClassVar[str] = FewRowsMatrixAttention.template
    wave_loops: ClassVar[type[DirectWave]] = _PagedDirect


class _PagedWave(Wave):
    """A tile of keys in one block has one entry of the table."""

    def _blocks(self, key: Index) -> None:
        if self.k.places % self.keys == 0:
            self.k.enter(self.of.b, key)
        super()._blocks(key)


class PagedMatrix(MatrixAttention):
    """Tiles of queries on matrix units: pieces of prompts."""

    template: ClassVar[str] = "matrix attention, paged"
    measured_as: ClassVar[str] = MatrixAttention.template
    wave_loops: ClassVar[type[Wave]] = _PagedWave


class PagedVector(GpuAttention):
    """Tiles of queries by vector code, for types and heads that matrix units do not take."""

    template: ClassVar[str] = "gpu attention, paged"
    measured_as: ClassVar[str] = GpuAttention.template


SPACES = (PagedFewRowsMatrix, PagedFewRows, PagedMatrix, PagedVector)
