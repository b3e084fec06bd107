"""The k largest of a line by a work-group: the k-th is searched bit by bit, and what is no smaller sorted by counting.

Elements become unsigned keys in whose order they stand (NaN above all). Each step asks how many keys reach a number: every thread counts its own, wavefronts add up by
`ballot`, and meet in shared memory. Of equal keys at the end the first places are searched alike. Then k elements are left, each of which counts those ahead of it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .. import te
from ..ir.dtype import dtype_info
from ..ops.registry import TensorType, static_shape
from ..target import Target
from ..te import Tensor
from . import loops

MOST = 256  # that are looked for: each counts those ahead of it
_KEPT = 32  # keys of a thread that stay in its registers; with more they are made again at each step


def can(dtype: str, k: int) -> bool:
    """Whether keys of 32 bits stand for the type, and there are few enough to be sorted by counting."""
    return dtype_info(dtype).bytes <= 4 and dtype != "bool" and k <= MOST


def key(v: Any, largest: bool) -> Any:
    """An element's number, 32 bits without a sign, in the order of elements; the other way round for the smallest."""
    info = dtype_info(v.dtype)
    if info.is_float:
        v = v.astype("float32") + te.const(0, "float32")  # both zeros are one
        bits = te.call_intrin("int32", "reinterpret", v)
        flip = te.bitwise_or(bits >> 31, te.const(-(1 << 31), "int32"))
        made = te.bitwise_xor(bits, flip).astype("uint32")
        made = te.select(v != v, te.const((1 << 32) - 1, "uint32"), made)
    elif info.is_signed:
        made = te.bitwise_xor(v.astype("int32"), te.const(-(1 << 31), "int32")).astype("uint32")
    else:
        made = v.astype("uint32")
    return made if largest else te.bitwise_xor(made, te.const((1 << 32) - 1, "uint32"))


def selected(x: Tensor, axis: int, k: int, largest: bool, out: TensorType, target: Target) -> list[Tensor]:
    """Values and places of the k largest of each line, in order."""
    lines, kept = loops.Lines(static_shape(x), axis), loops.Lines(out.shape, axis)
    threads = min(1024 if lines.n > 16384 else 256, target.max_threads)
    threads = max(threads, -(-k // 64) * 64)

    def body(ib: Any, sources: list[Any], results: list[Any]) -> None:
        with ib.new_scope():
            bx, tx = te.thread_axis("blockIdx.x"), te.thread_axis("threadIdx.x")
            ib.scope_attr(bx, "thread_extent", lines.count)
            ib.scope_attr(tx, "thread_extent", threads)
            _Selection(ib, sources[0], results, lines, kept, k, largest, target, threads, bx.var, tx.var).run()

    return loops.extern("topk", [x], [(out.shape, x.dtype), (out.shape, "int64")], body)


class _Selection:
    """The statements for one line."""

    def __init__(
        self, ib: Any, src: Any, results: list[Any], lines: loops.Lines, kept: loops.Lines, k: int, largest: bool, target: Target, threads: int,
        line: Any, t: Any,
    ):  # fmt: skip
        self.ib, self.src, self.results, self.lines, self.kept = ib, src, results, lines, kept
        self.k, self.largest, self.threads, self.line, self.t = k, largest, threads, line, t
        self.wave = target.wavefront_size
        self.waves = threads // self.wave
        self.piece = max(1, min(4, 16 // dtype_info(src.dtype).bytes))
        while lines.n % self.piece:
            self.piece //= 2
        self.own = -(-lines.n // (threads * self.piece)) * self.piece
        self.keys: Any = None

    def run(self) -> None:
        ib, k, n = self.ib, self.k, self.lines.n
        if self.own <= _KEPT:
            keys = ib.allocate("uint32", (self.own,), "keys", scope="local")
            self.each(lambda j, at: keys.__setitem__(j, self._made(at)))
            self.keys = keys
        counts = ib.allocate("int32", (2 * self.waves,), "counts", scope="shared")
        least = self._search(counts, 32, lambda v, probe, at: v >= probe, k, "uint32")
        # Of equal keys those at the first places: the greatest number of places that leaves too few is one short.
        more = self._count(counts, 0, lambda v, at: v > least)
        beside = ib.let("beside", k - more)
        bits = max(1, n.bit_length())
        last = loops.scalar(ib, "int32", "last", te.const(0, "int32"))
        for b in reversed(range(bits)):
            found = self._count(counts, b % 2, self._before(least, ib.let("probe", last[0] + (1 << b))))
            with ib.if_scope(found < beside):
                last[0] = last[0] + (1 << b)
        self._sorted(least, ib.let("end", last[0] + 1))

    def _before(self, least: Any, probe: Any) -> Callable[[Any, Any], Any]:
        return lambda v, at: te.all(v == least, at < probe)

    def _made(self, at: Any) -> Any:
        return key(self.src[self.lines.at(self.line, at)], self.largest)

    def each(self, do: Callable[[int, Any], None]) -> None:
        """`do(number, place)` for a thread's elements that there are."""
        ib, n, stride = self.ib, self.lines.n, self.threads * self.piece

        def pieces(p: Any, number: int) -> None:
            begin = ib.let("begin", p * stride + self.t * self.piece)
            with ib.if_scope(begin < n):
                for j in range(self.piece):
                    do(number + j, begin + j)

        turns = self.own // self.piece
        if self.own <= _KEPT:
            for p in range(turns):
                with ib.new_scope():
                    pieces(p, p * self.piece)
        else:
            with ib.for_range(0, turns, "p") as p:
                pieces(p, 0)

    def value(self, j: int, at: Any) -> Any:
        return self.keys[j] if self.keys is not None else self._made(at)

    def _count(self, counts: Any, slot: Any, holds: Callable[[Any, Any], Any]) -> Any:
        """In how many elements of the line it holds, known to all threads; calls after one another take turns at two slots."""
        ib = self.ib
        mine = loops.scalar(ib, "int32", "mine", te.const(0, "int32"))

        def add(j: int, at: Any) -> None:
            mine[0] = mine[0] + holds(self.value(j, at), at).astype("int32")

        self.each(add)
        total = ib.let("total", mine[0])
        step = 1
        while step < self.wave:
            total = ib.let("total", total + te.call_intrin("int32", "shuffle_xor", total, step, self.wave))
            step *= 2
        if self.waves == 1:
            return total
        with ib.if_scope(te.indexmod(self.t, self.wave) == 0):
            counts[slot * self.waves + te.indexdiv(self.t, self.wave)] = total
        whole = te.const(0, "int32")
        for w in range(self.waves):
            whole = whole + ib.let("part", counts[slot * self.waves + w])
        return ib.let("whole", whole)

    def _search(self, counts: Any, bits: int, holds: Callable[[Any, Any, Any], Any], k: int, dtype: str) -> Any:
        """The greatest number that so many keys reach."""
        ib = self.ib
        found = loops.scalar(ib, dtype, "found", te.const(0, dtype))
        with ib.for_range(0, bits, "b") as b:
            probe = ib.let("probe", te.bitwise_or(found[0], te.const(1, dtype) << (bits - 1 - b).astype(dtype)))
            count = self._count(counts, te.indexmod(b, 2), lambda v, at: holds(v, probe, at))
            with ib.if_scope(count >= k):
                found[0] = probe
        return ib.let("least", found[0])

    def _sorted(self, least: Any, end: Any) -> None:
        """The k that are left to shared memory in any order; then each to the place that the number of those ahead of it says."""
        ib, k = self.ib, self.k
        keys = ib.allocate("uint32", (k,), "best", scope="shared")
        places = ib.allocate("int32", (k,), "places", scope="shared")
        filled = ib.allocate("int32", (1,), "filled", scope="shared")
        with ib.if_scope(self.t == 0):
            filled[0] = te.const(0, "int32")

        def keep(j: int, at: Any) -> None:
            v = ib.let("v", self.value(j, at))
            with ib.if_scope(te.any(v > least, te.all(v == least, at < end))):
                slot = ib.let("slot", te.call_intrin("int32", "atomic_add", filled[0], te.const(1, "int32")))
                # Exchanged, not stored: no two threads have one slot, which only they know.
                ib.emit(te.call_intrin("uint32", "atomic_exch", keys[slot], v))
                ib.emit(te.call_intrin("int32", "atomic_exch", places[slot], at))

        self.each(keep)
        own = ib.let("own", te.min(self.t, k - 1))
        v, at = ib.let("v", keys[own]), ib.let("at", places[own])
        ahead = loops.scalar(ib, "int32", "ahead", te.const(0, "int32"))
        with ib.for_range(0, k, "c") as c:
            u, other = ib.let("u", keys[c]), ib.let("other", places[c])
            ahead[0] = ahead[0] + te.any(u > v, te.all(u == v, other < at)).astype("int32")
        with ib.if_scope(self.t < k):
            to = self.kept.at(self.line, ahead[0])
            self.results[0][to] = self.src[self.lines.at(self.line, at)]
            self.results[1][to] = at.astype("int64")
