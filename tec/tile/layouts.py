"""Layouts: which thread holds which element of a tile, in which register. Linear maps over bits.

A tile's sides are powers of two, so a coordinate is a row of bits, and each of these bits is one bit of a register's number or of a thread's:

    Dim(size, registers, threads)        bit k of the register's number along this dimension counts registers[k] elements,
                                         bit b of the thread's number counts s elements for each (b, s) of `threads`
    Layout                               a Dim for each dimension

A bit of the thread's number that no dimension names leaves the coordinates alone: such threads hold copies. Lanes are the low bits of the
thread's number, waves the high ones. Registers have a number along each dimension, so that a tile is an array in a thread. Broadcasting,
reductions and new dimensions work on a layout dimension by dimension; a reshape renames bits. Two values meet without a move where their
Dims are equal. The general form of these maps is that of Triton's linear layouts (arXiv 2505.23819); here each bit belongs to one dimension.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import product
from typing import Any

from ..ir.matrix import MatrixInstr
from ..records import dataclass


def bits(n: int) -> int:
    """log2 of a power of two."""
    return n.bit_length() - 1


@dataclass(frozen=True, slots=True)
class Dim:
    """How the coordinates of one dimension come about; see the module."""

    size: int
    registers: tuple[int, ...] = ()
    threads: tuple[tuple[int, int], ...] = ()

    @property
    def held(self) -> int:
        """Registers along this dimension."""
        return 1 << len(self.registers)

    def coordinate(self, register: Any, thread: Any) -> Any:
        """The coordinate of a register of a thread: numbers, arrays or expressions."""
        total: Any = 0
        for low, count, stride in runs([(k, s) for k, s in enumerate(self.registers)]):
            total = total + _field(register, low, count, len(self.registers)) * stride
        for low, count, stride in runs(self.threads):
            total = total + _field(thread, low, count, 0) * stride
        return total

    def low_run(self) -> int:
        """How many neighbouring elements a thread's first registers hold."""
        n = 0
        while n < len(self.registers) and self.registers[n] == 1 << n:
            n += 1
        return 1 << n


Layout = tuple[Dim, ...]
ONE = Dim(1)


def runs(pairs: Sequence[tuple[int, int]]) -> list[tuple[int, int, int]]:
    """(first bit, bits, stride) of bits that follow each other while their strides double."""
    out: list[tuple[int, int, int]] = []
    for bit, stride in pairs:
        if out and out[-1][0] + out[-1][1] == bit and out[-1][2] << out[-1][1] == stride:
            out[-1] = (out[-1][0], out[-1][1] + 1, out[-1][2])
        else:
            out.append((bit, 1, stride))
    return out


def _field(n: Any, low: int, count: int, total: int) -> Any:
    """`count` bits of a number, from bit `low` on; `total`: bits that it has, 0 where that is not known."""
    if low:
        n = n // (1 << low)
    return n if total and low + count == total else n % (1 << count)


def whole(shape: Sequence[int]) -> Layout:
    """One thread holds everything, in order."""
    return tuple(Dim(n, tuple(1 << k for k in range(bits(n)))) for n in shape)


@lru_cache(maxsize=4096)
def blocked(shape: tuple[int, ...], order: tuple[int, ...], vector: int, threads: int) -> Layout:
    """Neighbours along order[0] in a thread's registers, up to `vector` of them; then threads along order[0], order[1], ...; the rest registers again."""
    return _dealt(shape, ((order[0], vector),) if order else (), order, threads)


@lru_cache(maxsize=256)
def turning(shape: tuple[int, int], along: int, vector: int, run: int, threads: int) -> Layout:
    """Blocks in a thread: `vector` neighbours along a dimension in its first registers, `run` along the other; then threads as in `blocked`."""
    return _dealt(shape, ((along, vector), (1 - along, run)), (along, 1 - along), threads)


def _dealt(shape: tuple[int, ...], first: tuple[tuple[int, int], ...], order: tuple[int, ...], threads: int) -> Layout:
    """Each (dimension, elements) of `first` in a thread's registers, as far as the dimension goes; then threads along the dimensions in their order; the rest
    registers again."""
    registers: list[list[int]] = [[] for _ in shape]
    of_threads: list[list[tuple[int, int]]] = [[] for _ in shape]
    done = [0] * len(shape)

    def take(d: int) -> int:
        done[d] += 1
        return 1 << done[d] - 1

    for d, count in first:
        registers[d] = [take(d) for _ in range(min(bits(count), bits(shape[d])))]
    bit = 0
    for d in order:
        while bit < bits(threads) and done[d] < bits(shape[d]):
            of_threads[d].append((bit, take(d)))
            bit += 1
    for d in order:
        while done[d] < bits(shape[d]):
            registers[d].append(take(d))
    return tuple(Dim(n, tuple(r), tuple(t)) for n, r, t in zip(shape, registers, of_threads))


def accumulators(instr: MatrixInstr, shape: tuple[int, int], waves: tuple[int, int]) -> Layout:
    """A product's sums as the matrix unit leaves them: the unit's tiles repeat over `waves` (rows, columns) of waves, then over registers."""
    lanes = bits(instr.wave)
    out = []
    for d in (0, 1):
        registers, threads = [], []
        for k in range(bits(instr.acc_elems)):
            step = _coordinate(instr, 0, 1 << k)[d]
            if step:
                registers.append(step)
        for k in range(lanes):
            step = _coordinate(instr, 1 << k, 0)[d]
            if step:
                threads.append((k, step))
        at = instr.shape("acc")[d]
        first = lanes + (bits(waves[1]) if d == 0 else 0)
        for k in range(bits(waves[d])):
            if at < shape[d]:
                threads.append((first + k, at))
                at *= 2
        while at < shape[d]:
            registers.append(at)
            at *= 2
        out.append(Dim(shape[d], tuple(registers), tuple(threads)))
    return tuple(out)


def _coordinate(instr: MatrixInstr, lane: int, i: int) -> tuple[int, int]:
    _, row, column = instr.coords("acc", lane, i)
    return int(row), int(column)


def reshaped(layout: Layout, shape: Sequence[int]) -> Layout:
    """The layout of the same elements under another shape: bits keep their place and change dimension."""
    where: list[tuple[str, int, int]] = []  # for each bit of the flat number, from low to high: what it is
    for d in range(len(layout) - 1, -1, -1):
        of = {s: ("register", d, k) for k, s in enumerate(layout[d].registers)}
        of |= {s: ("thread", d, b) for b, s in layout[d].threads}
        where += [of[1 << k] for k in range(bits(layout[d].size))]
    out: list[Dim] = []
    at = 0
    for n in reversed(shape):
        mine = where[at : at + bits(n)]
        at += bits(n)
        regs = [(d, k, 1 << j) for j, (what, d, k) in enumerate(mine) if what == "register"]
        out.append(
            Dim(
                n,
                tuple(s for _, _, s in sorted(regs, key=lambda r: r[2])),
                tuple((b, 1 << j) for j, (what, _, b) in enumerate(mine) if what == "thread"),
            )
        )
    return tuple(reversed(out))


def register_bits(layout: Layout) -> list[tuple[int, int]]:
    """(dimension, bit of its register number) of each register bit, in the order of the flat element number, low to high."""
    out = []
    for d in range(len(layout) - 1, -1, -1):
        ordered = sorted(range(len(layout[d].registers)), key=lambda k: layout[d].registers[k])
        out += [(d, k) for k in ordered]
    return out


def spare(layout: Layout, threads: int) -> list[int]:
    """Bits of the thread's number that name no element: threads that differ in them alone hold copies."""
    used = {b for d in layout for b, _ in d.threads}
    return [b for b in range(bits(threads)) if b not in used]


def table(layout: Layout, threads: int) -> dict[tuple[int, ...], list[tuple[int, tuple[int, ...]]]]:
    """For each element its holders: (thread, register along each dimension). For tests and pictures."""
    out: dict[tuple[int, ...], list[tuple[int, tuple[int, ...]]]] = {}
    for t in range(threads):
        along = [[(d.coordinate(k, t), k) for k in range(d.held)] for d in layout]
        for place in product(*along):
            out.setdefault(tuple(at for at, _ in place), []).append((t, tuple(k for _, k in place)))
    return out


def show(layout: Layout, threads: int = 1) -> str:
    """A picture of a layout of one or two dimensions: for each element the thread and register that hold it, T3:1 for register 1 of thread 3.

    >>> from tec.tile.layouts import blocked
    >>> print(tl.show(blocked((2, 4), (1, 0), 2, 4), threads=4))
    T0:0 T0:1 T1:0 T1:1
    T2:0 T2:1 T3:0 T3:1
    """
    found = table(layout, threads)
    shape = [d.size for d in layout]
    rows = shape[0] if len(shape) > 1 else 1

    def cell(at: tuple[int, ...]) -> str:
        t, r = found[at][0]
        flat = 0
        for d, k in zip(layout, r):
            flat = flat * d.held + k
        return f"T{t}:{flat}"

    lines = [[cell((i, j) if len(shape) > 1 else (j,)) for j in range(shape[-1])] for i in range(rows)]
    width = max(len(c) for line in lines for c in line)
    return "\n".join(" ".join(c.ljust(width) for c in line).rstrip() for line in lines)


# ---- shared memory


def conflicts(addresses: Sequence[int], element_bytes: int, banks: int = 32, bank_bytes: int = 4) -> int:
    """Turns that one access of shared memory takes: the most different words that one bank is asked for by the lanes of a group. `addresses` in
    elements, a lane each; lanes that share a word share a turn."""
    words: dict[int, set[int]] = {}
    for a in addresses:
        word = a * element_bytes // bank_bytes
        words.setdefault(word % banks, set()).add(word)
    return max((len(w) for w in words.values()), default=0)


def padded(columns: int, element_bytes: int, vector: int = 1) -> int:
    """Elements from row to row of a tile in shared memory, `columns` a power of two: an odd number of accesses of `vector` elements (of one bank's
    four bytes at least), so that rows that follow each other begin in different banks and a column of as many rows as there are banks asks each once."""
    unit = min(columns, max(vector, 4 // element_bytes))
    return columns if columns // unit % 2 else columns + unit
