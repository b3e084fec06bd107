"""Attention on matrix units: which lane holds which score, weight and value, so that weights stay in registers between the two products.

AMD's units give the scores turned round, S^T = K Q^T: a lane then holds scores of one query, in runs of keys, which is how O^T = V^T P^T wants its
second operand. NVIDIA's mma.sync takes them as they are, S = Q K^T: two neighbouring tiles of scores make the first operand of O = P V. So the
keys that an operand of the second product has in a lane are what the first product must have left there: rows of K are read in that order.
On RDNA3 both halves of a wavefront hold all of an operand, but half of a result each; they exchange what they lack.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

import numpy as np

from .... import te
from ....ir.matrix import MatrixInstr
from ....records import dataclass
from ....target.lds import LdsPhase
from ....te.like import Index

_IN_A_ROW = LdsPhase(32, 8)  # assumed of chips on which the order of lanes was not measured


@dataclass(frozen=True)
class Fragments:
    """The layouts of one instruction's use for both products. `instr` has the k that both take at once."""

    instr: MatrixInstr
    phase: LdsPhase = _IN_A_ROW  # lanes whose 16 bytes of shared memory are read together
    narrows: bool = True  # whether the chip makes the operands' type of float32 by an instruction

    @property
    def turned(self) -> bool:
        """Whether products are computed as their transposes, a query a column."""
        return self.instr.unit != "mma.sync"

    @property
    def query_role(self) -> str:
        """The operand that queries and weights are; keys and values are the other."""
        return "b" if self.turned else "a"

    @property
    def key_role(self) -> str:
        return "a" if self.turned else "b"

    @property
    def queries(self) -> int:
        """Of a tile."""
        return self.instr.n if self.turned else self.instr.m

    @property
    def keys(self) -> int:
        """Of a tile of scores; also the elements of values of a tile of results."""
        return self.instr.m if self.turned else self.instr.n

    @property
    def weights(self) -> int:
        """A lane's own weights of an operand of the second product."""
        return self.instr.elems(self.query_role) // self.copies

    @property
    def copies(self) -> int:
        """How many lanes hold the same weights."""
        return 2 if self.instr.copies > 1 else 1

    @property
    def slots(self) -> int:
        """Queries of a tile that a lane has scores of."""
        return 1 if self.turned else 2

    def slot(self, i: int) -> int:
        """The slot that the lane's element `i` of an accumulator belongs to."""
        return 0 if self.turned else i // 2

    def query(self, lane: Index, slot: int) -> Index:
        """The query of a slot, in its tile."""
        return lane % self.instr.n if self.turned else lane // 4 + 8 * slot

    @property
    def partners(self) -> tuple[int, ...]:
        """Lanes, by xor, that have the other scores of a lane's queries."""
        if not self.turned:
            return (1, 2)
        return tuple(1 << b for b in range(10) if self.instr.n <= 1 << b < self.instr.wave)

    def value_column(self, lane: Index, i: Index) -> Any:
        """The element of the values, in its tile, that the lane's element `i` of a result is."""
        _, row, column = self.instr.coords("acc", lane, i)
        return row if self.turned else column

    def operand(self, role: str, lane: Index, i: Index) -> tuple[Any, Any]:
        """(which row of Q, K or V^T, which k) the lane's element `i` of an operand is."""
        _, row, column = self.instr.coords(role, lane, i)
        return (row, column) if role == "a" else (column, row)

    def key(self, lane: Any, i: int) -> Any:
        """The key, within a block, that the lane's score number `i` is of: the tiles' elements counted through."""
        vector, own = divmod(i, self.weights)
        if self.copies > 1:
            return lane // 16 * self.weights + own + self.instr.k * vector
        return self.operand(self.query_role, lane, own)[1] + self.instr.k * vector

    def key_row(self, tile: int, row: Index) -> Any:
        """The key that row (or column) `row` of a tile of scores is of, within a block."""
        start, bits = _key_rows(self, tile % self.period)
        return _moved_bits(row, bits, self.keys) + (self.period * self.keys * (tile // self.period) + start)

    def place(self, key: Index) -> Any:
        """Where a key's row of a block lies in shared memory: those of a tile of scores one behind the other, so that lanes read rows side by side."""
        whole = self.period * self.keys
        within = te.indexmod(key, whole)
        return _moved_bits(within, _places(self), whole) + (key - within)

    def read_clocks(self, stride_bytes: int) -> int:
        """Clocks that reading an operand takes of rows so far apart in shared memory, in phases of its lanes."""
        return _read_clocks(self, stride_bytes)

    @property
    def period(self) -> int:
        """Tiles of scores after which the order of keys repeats."""
        return max(1, self.weights // self.instr.acc_elems)


def _moved_bits(x: Index, runs: tuple[tuple[int, int, int], ...], end: int) -> Any:
    """A number below `end` whose runs of bits (first, how many, first of the result) are put elsewhere."""
    out: Any = 0
    for first, count, to in runs:
        part = x if first == 0 else te.indexdiv(x, 1 << first)
        part = part if 1 << first + count >= end else te.indexmod(part, 1 << count)
        out = part * (1 << to) + out
    return out


@lru_cache(maxsize=64)
def _places(f: Fragments) -> tuple[tuple[int, int, int], ...]:
    """The runs of bits of `Fragments.place`, the inverse of `key_row`."""
    images = {}
    for tile in range(f.period):
        start, bits = _key_rows(f, tile)
        if tile and tile & (tile - 1) == 0:
            images[start.bit_length() - 1] = (tile * f.keys).bit_length() - 1
        for first, count, to in bits:
            images |= {to + k: first + k for k in range(count)}
    return tuple(_runs([images[b] for b in range(len(images))]))


@lru_cache(maxsize=1 << 10)
def _read_clocks(f: Fragments, stride_bytes: int) -> int:
    lane = np.arange(f.instr.wave)
    _, row, column = (np.broadcast_to(x, lane.shape) for x in f.instr.coords(f.key_role, lane, 0))
    if f.key_role == "b":
        row, column = column, row
    word = (row * stride_bytes + column * (16 // f.instr.elems(f.key_role))) // 4
    clocks, order = 0, f.phase.lanes_of(f.instr.wave)
    for first in range(0, len(order), f.phase.lanes):
        words = {int(word[k]) + w for k in order[first : first + f.phase.lanes] for w in range(4)}
        clocks += max(Counter(w % f.phase.banks for w in words).values())
    return clocks


@lru_cache(maxsize=64)
def _key_rows(f: Fragments, tile: int) -> tuple[int, tuple[tuple[int, int, int], ...]]:
    """The key of row 0 of a tile, and (first bit, bits, first bit of the key) of each run of bits of the row."""
    lane, acc = np.arange(f.instr.wave), f.instr.acc_elems
    table = np.full(f.keys, -1)
    for i in range(acc):
        _, row, column = (np.broadcast_to(x, lane.shape) for x in f.instr.coords("acc", lane, i))
        at = row if f.turned else column
        key = np.broadcast_to(f.key(lane, tile * acc + i), lane.shape)
        assert ((table[at] == -1) | (table[at] == key)).all()
        table[at] = key
    images = [int(table[1 << b] - table[0]).bit_length() - 1 for b in range(f.keys.bit_length() - 1)]
    rows = np.arange(f.keys)
    assert (table == table[0] + sum((rows >> b & 1) << to for b, to in enumerate(images))).all()
    return int(table[0]), tuple(_runs(images))


def _runs(images: list[int]) -> Iterator[tuple[int, int, int]]:
    first = 0
    for b in range(1, len(images) + 1):
        if b == len(images) or images[b] != images[b - 1] + 1:
            yield first, b - first, images[first]
            first = b
