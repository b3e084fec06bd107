"""Moves between the lanes of a wave: a bit of the lane's number and a bit of a register's number change places.

A matrix unit of NVIDIA leaves two neighbours of a row in a lane and the next two in the next lane, so that a store from there writes 4 bytes of float16 a lane. After
two such exchanges each lane of four holds eight neighbours:

    lane      0     1     2     3                lane      0       1       2       3
    word 0   0 1   2 3   4 5   6 7               words    0..7   8..15  16..23  24..31
    word 1   8 9  10 11 12 13 14 15       ->
    ...

An exchange costs a shuffle and three selects for two words. Shared memory would take a write, a read and two meetings of all waves.
"""

from __future__ import annotations

from ..ir import build as B
from ..ir import expr as E
from ..ir import stmt as S
from ..ir.buffer import Buffer
from ..ir.dtype import dtype_info, with_lanes
from .layouts import Dim, Layout, bits
from .state import Held, Point, State

WORD_BYTES = 4  # what a shuffle moves

Step = tuple[int, int]  # a bit of the lane's number, a bit of the register's number along the dimension


def steps(layout: Layout, d: int, run: int, lanes: int) -> tuple[list[Step], Layout]:
    """The exchanges after which a thread's first registers hold `run` neighbours along dimension d, and the layout then; fewer where no more can be had."""
    out: list[Step] = []
    dim = layout[d]
    while dim.low_run() < run:
        low = dim.low_run()
        k = bits(low)
        bit = next((b for b, stride in dim.threads if stride == low and b < bits(lanes)), None)
        if bit is None or k >= len(dim.registers):
            break
        registers = (*dim.registers[:k], low, *dim.registers[k + 1 :])
        threads = tuple((b, dim.registers[k] if b == bit else stride) for b, stride in dim.threads)
        dim = Dim(dim.size, registers, threads)
        out.append((bit, k))
    return out, (*layout[:d], dim, *layout[d + 1 :])


class Exchange(State):
    """Exchanges of held tiles."""

    def exchanged(self, held: Held, d: int, todo: list[Step], layout: Layout) -> Held:
        """A tile after exchanges along dimension d, which `steps` gave with the layout. A thread's first registers along d fill words."""
        dtype = held.buffer.dtype
        per = WORD_BYTES // dtype_info(dtype).bytes
        of_words = _of_words(held.layout, d, per)
        words = self.array("words", "int32", [x.held for x in of_words])

        def elements(buffer: Buffer, p: Point) -> tuple[E.Expr, ...]:
            at = [a.register for a in p]
            first = B.mul(at[d], per)
            at[d] = E.Ramp(first, E.IntImm(1), per) if per > 1 else first
            # A vector lies along the last dimension, which is the one that memory is contiguous in.
            return tuple(at)

        def pack(p: Point) -> S.Stmt:
            value = B.reinterpret("int32", E.BufferLoad(held.buffer, elements(held.buffer, p)))
            return self.store(words, [a.register for a in p], value)

        self.visit(of_words, pack, 1)
        for bit, k in todo:
            self._exchange(words, of_words, d, bit, k - bits(per))
        made = self.array("exchanged", dtype, [x.held for x in layout])

        def unpack(p: Point) -> S.Stmt:
            word = E.BufferLoad(words, tuple(a.register for a in p))
            value = B.reinterpret(with_lanes(dtype, per) if per > 1 else dtype, word)
            return S.BufferStore(made, value, elements(made, p), None, self.loc)

        self.visit(of_words, unpack, 1)
        return Held(made, layout)

    def _exchange(self, words: Buffer, layout: Layout, d: int, bit: int, k: int) -> None:
        """Register bit k along dimension d and a bit of the lane's number change places."""
        dim = layout[d]
        half = (*layout[:d], Dim(dim.size, dim.registers[:k] + dim.registers[k + 1 :], dim.threads), *layout[d + 1 :])
        upper = self.let("upper", B.compare("ne", B.floormod(B.floordiv(self.thread, 1 << bit), 2), 0))

        def swap(p: Point) -> S.Stmt:
            at = [a.register for a in p]
            low, high = B.floormod(at[d], 1 << k), B.floordiv(at[d], 1 << k)
            places = []
            for side in (0, 1):
                at[d] = B.add(B.add(B.mul(high, 2 << k), low), side << k)
                places.append(tuple(at))
            x, y, got = (E.Var(name, "int32") for name in ("x", "y", "got"))
            sent = E.Call("shuffle_xor", (B.select(upper, x, y), E.IntImm(1 << bit), E.IntImm(self.wave)), "int32")
            body = S.seq(
                self.store(words, places[0], B.select(upper, got, x)),
                self.store(words, places[1], B.select(upper, y, got)),
            )
            body = S.LetStmt(got, sent, body, self.loc)
            for var, place in ((y, places[1]), (x, places[0])):
                body = S.LetStmt(var, E.BufferLoad(words, place), body, self.loc)
            return body

        self.visit(half, swap, 1)


def _of_words(layout: Layout, d: int, per: int) -> Layout:
    """The layout of words of so many neighbours along a dimension."""
    dim = layout[d]
    registers = tuple(s // per for s in dim.registers[bits(per) :])
    threads = tuple((b, s // per) for b, s in dim.threads)
    return (*layout[:d], Dim(dim.size // per, registers, threads), *layout[d + 1 :])


__all__ = ["WORD_BYTES", "Exchange", "steps"]
