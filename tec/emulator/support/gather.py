"""Loads and stores of global memory and LDS whose lanes do not all follow each other: groups of 16 lanes, each in its cheapest way.

A group in runs is as many accesses as it has runs, of the host's widest vector each: 16 lanes of a dword, 4 of 16 bytes, as tiles with short or permuted rows have them.
One whose lanes load from the same address is a broadcast. Another whose lanes are all on takes one access a lane, if that is of two or four dwords: a
host's gather or scatter moves dword by dword. The rest is gathered or scattered under its mask. Used by `support.memory`, after the addresses are
checked.
"""

from __future__ import annotations

from collections.abc import Iterable

from ..translate.ops import Out
from .lanes import STRIP, VEC, apart, load_each, splat, store_each
from .template import ir

_HALF = 8  # lanes of a run of bytes or 16-bit words
_SINGLE = (2, 4)  # dwords of accesses that are made lane by lane


def grouped(w: int, n: int, space: str, load: bool) -> str:
    """IR for one group: from the addresses %here under the mask %on (its bits: %bits) to or from the dwords at %to, a vector of w dwords further for each; LDS begins at %base."""
    b = Out("v")
    _Group(b, w, n, space, load).write()
    return "\n".join(b.lines) + "\n"


def narrow(space: str, bits: int, load: bool, signed: bool) -> str:
    """IR for one group of bytes or 16-bit words, at the pointers %p0: two accesses where all lanes are on in two runs, one a lane where all are on, else under the
    mask. A host has no gather of them, so LLVM makes a branch for each lane of one."""
    b, ty = Out("v"), f"i{bits}"
    at = "i64" if space == "global" else "i32"
    elements = f"<16 x {ty}>"
    on, row, each, part, end = (b.fresh_label(x) for x in ("on", "row", "each", "part", "end"))

    def wide(value: str) -> str:
        return b.emit(f"{'sext' if signed else 'zext'} {elements} {value} to {VEC}")

    old = b.emit(f"load {VEC}, ptr %to, align 64")
    kept = b.emit(f"trunc {VEC} {old} to {elements}")
    b.put(f"br i1 {b.emit('icmp eq i16 %bits, -1')}, label %{on}, label %{part}")
    b.label(on)
    pointers = [b.emit(f"extractelement <16 x ptr> %p0, i64 {i}") for i in range(STRIP)]
    if space == "scratch":  # whose lanes are a dword or more apart
        b.put(f"br label %{each}")
    else:
        b.put(f"br i1 {_in_runs(b, at, bits // 8, _HALF)}, label %{row}, label %{each}")
        b.label(row)
        half, order = f"<{_HALF} x {ty}>", range(STRIP)
        if load:
            x, y = (b.emit(f"load {half}, ptr {pointers[first]}, align 1") for first in (0, _HALF))
            both = b.emit(f"shufflevector {half} {x}, {half} {y}, {_order(order)}")
            b.put(f"store {VEC} {wide(both)}, ptr %to, align 64")
        else:
            for first in (0, _HALF):
                part_of = _order(order[first : first + _HALF])
                run = b.emit(f"shufflevector {elements} {kept}, {elements} poison, {part_of}")
                b.put(f"store {half} {run}, ptr {pointers[first]}, align 1")
        b.put(f"br label %{end}")
    b.label(each)
    got = "poison"
    for i, pointer in enumerate(pointers):
        if load:
            one = b.emit(f"load {ty}, ptr {pointer}, align 1")
            got = b.emit(f"insertelement {elements} {got}, {ty} {one}, i64 {i}")
        else:
            b.put(f"store {ty} {b.emit(f'extractelement {elements} {kept}, i64 {i}')}, ptr {pointer}, align 1")
    if load:
        b.put(f"store {VEC} {wide(got)}, ptr %to, align 64")
    b.put(f"br label %{end}")
    b.label(part)
    where = "<16 x ptr> align 1 %p0, <16 x i1> %on"
    if load:
        got = b.emit(f"call {elements} @llvm.masked.gather.v16{ty}.v16p0({where}, {elements} zeroinitializer)")
        b.put(f"store {VEC} {b.emit(f'select <16 x i1> %on, {VEC} {wide(got)}, {VEC} {old}')}, ptr %to, align 64")
    else:
        b.put(f"call void @llvm.masked.scatter.v16{ty}.v16p0({elements} {kept}, {where})")
    b.put(f"br label %{end}")
    b.label(end)
    return "\n".join(b.lines) + "\n"


def in_strips(w: int, at: str, before: str, body: str) -> str:
    """IR from the block `before` to the function's end: `body` for one group of 16 lanes after another, with %here, %bits, %on and %to, and the group's first lane in %first.
    %lanes has room for all addresses. A loop, since copies of a body for each group take LLVM most of the library's time."""
    return ir("memory.strips", w=w, at=at, before=before, shift="trunc i64 %first to i32" if w == 32 else "add i64 %first, 0", body=body)  # fmt: skip


class _Group:
    """The text for one group; see the module."""

    def __init__(self, b: Out, w: int, n: int, space: str, load: bool):
        self.b, self.n, self.space, self.load = b, n, space, load
        self.at = "i64" if space == "global" else "i32"
        self.vector = f"<16 x {self.at}>"
        self.slots = [b.emit(f"getelementptr i8, ptr %to, i64 {4 * w * k}") for k in range(n)]

    def write(self) -> None:
        b, at, n = self.b, self.at, self.n
        on, row, rest, part, end = (b.fresh_label(x) for x in ("on", "row", "rest", "part", "end"))
        b.put(f"br i1 {b.emit('icmp eq i16 %bits, -1')}, label %{on}, label %{part}")
        b.label(on)
        lanes = STRIP if n == 3 else STRIP // n  # of a run
        b.put(f"br i1 {_in_runs(b, at, 4 * n, lanes)}, label %{row}, label %{rest}")
        b.label(row)
        self._runs([self._pointer(self._lane(i)) for i in range(0, STRIP, lanes)])
        b.put(f"br label %{end}")
        b.label(rest)
        if self.load:
            same, other = b.fresh_label("same"), b.fresh_label("other")
            lowest = self._lane(0)
            ones = b.emit(f"insertelement {self.vector} poison, {at} {lowest}, i64 0")
            ones = b.emit(f"shufflevector {self.vector} {ones}, {self.vector} poison, <16 x i32> zeroinitializer")
            b.put(f"br i1 {_equal(b, self.vector, '%here', ones)}, label %{same}, label %{other}")
            b.label(same)
            start = self._pointer(lowest)
            self._keep([splat(b, b.emit(f"load i32, ptr {self._further(start, 4 * k)}, align 1")) for k in range(n)])
            b.put(f"br label %{end}")
            b.label(other)
        if n in _SINGLE:
            self._lane_by_lane()
            b.put(f"br label %{end}")
        else:
            b.put(f"br label %{part}")
        b.label(part)
        self._under_mask()
        b.put(f"br label %{end}")
        b.label(end)

    def _lane(self, i: int) -> str:
        return self.b.emit(f"extractelement {self.vector} %here, i64 {i}")

    def _runs(self, starts: list[str]) -> None:
        """Lanes that follow each other from each of `starts` on: one wide access for each."""
        b, n = self.b, self.n
        if self.load and n == 3:
            wide = b.emit(f"load <48 x i32>, ptr {starts[0]}, align 1")
            self._keep(
                [b.emit(f"shufflevector <48 x i32> {wide}, <48 x i32> poison, {_every(k, 3)}") for k in range(3)]
            )
        elif self.load:
            self._keep(apart(b, [b.emit(f"load {VEC}, ptr {start}, align 1") for start in starts]))
        else:
            ends = _end_to_end(b, self._kept())
            size = STRIP * n // len(starts)
            for k, start in enumerate(starts):
                order = _order(range(size * k, size * k + size))
                whole = f"<{STRIP * n} x i32>"
                run = b.emit(f"shufflevector {whole} {ends}, {whole} poison, {order}") if len(starts) > 1 else ends
                b.put(f"store <{size} x i32> {run}, ptr {start}, align 1")

    def _lane_by_lane(self) -> None:
        b = self.b
        lanes = [self._pointer(self._lane(i)) for i in range(STRIP)]
        if self.load:
            self._keep(load_each(b, self.n, lanes))
        else:
            store_each(b, self._kept(), lanes)

    def _under_mask(self) -> None:
        """A gather or scatter for each dword."""
        b = self.b
        old = self._kept()
        values = [] if self.load else old
        for k in range(self.n):
            here = b.emit(f"add {self.vector} %here, splat ({self.at} {4 * k})") if k else "%here"
            # a 32-bit index (checked, so never negative) lets the host gather 16 lanes at once
            places = b.emit(
                f"inttoptr {self.vector} {here} to <16 x ptr>"
                if self.space == "global"
                else f"getelementptr i8, ptr %base, {self.vector} {here}"
            )
            where = f"<16 x ptr> align 1 {places}, <16 x i1> %on"
            if self.load:  # lanes that are off keep what is in %out
                values.append(b.emit(f"call {VEC} @llvm.masked.gather.v16i32.v16p0({where}, {VEC} {old[k]})"))
            else:
                b.put(f"call void @llvm.masked.scatter.v16i32.v16p0({VEC} {values[k]}, {where})")
        if self.load:
            self._keep(values)

    def _pointer(self, address: str) -> str:
        if self.space == "global":
            return self.b.emit(f"inttoptr i64 {address} to ptr")
        return self.b.emit(f"getelementptr i8, ptr %base, i64 {self.b.emit(f'zext i32 {address} to i64')}")

    def _further(self, place: str, nbytes: int) -> str:
        return self.b.emit(f"getelementptr i8, ptr {place}, i64 {nbytes}")

    def _keep(self, values: list[str]) -> None:
        for value, slot in zip(values, self.slots):
            self.b.put(f"store {VEC} {value}, ptr {slot}, align 64")

    def _kept(self) -> list[str]:
        return [self.b.emit(f"load {VEC}, ptr {slot}, align 64") for slot in self.slots]


def _in_runs(b: Out, at: str, step: int, lanes: int) -> str:
    """Whether the addresses %here are runs of so many lanes, `step` bytes apart."""
    vector = f"<16 x {at}>"
    firsts = _order(i // lanes * lanes for i in range(STRIP))
    starts = b.emit(f"shufflevector {vector} %here, {vector} poison, {firsts}")
    steps = "<" + ", ".join(f"{at} {step * (i % lanes)}" for i in range(STRIP)) + ">"
    return _equal(b, vector, b.emit(f"sub {vector} %here, {starts}"), steps)


def _equal(b: Out, vector: str, x: str, y: str) -> str:
    bits = b.emit(f"bitcast <16 x i1> {b.emit(f'icmp ne {vector} {x}, {y}')} to i16")
    return b.emit(f"icmp eq i16 {bits}, 0")


def _order(lanes: Iterable[int]) -> str:
    places = [f"i32 {i}" for i in lanes]
    return f"<{len(places)} x i32> <{', '.join(places)}>"


def _every(k: int, n: int) -> str:
    return "<16 x i32> <" + ", ".join(f"i32 {k + n * i}" for i in range(STRIP)) + ">"


def _end_to_end(b: Out, vectors: list[str]) -> str:
    """A vector of each dword, as lanes of those dwords in sequence."""
    n, size, parts = len(vectors), STRIP, vectors
    while len(parts) & len(parts) - 1:
        parts = [*parts, "poison"]
    total = len(parts) * STRIP
    while len(parts) > 1:
        order = ", ".join(f"i32 {k}" for k in range(2 * size))
        parts = [
            b.emit(f"shufflevector <{size} x i32> {x}, <{size} x i32> {y}, <{2 * size} x i32> <{order}>")
            for x, y in zip(parts[::2], parts[1::2])
        ]
        size *= 2
    places = ", ".join(f"i32 {k * STRIP + lane}" for lane in range(STRIP) for k in range(n))
    return b.emit(f"shufflevector <{total} x i32> {parts[0]}, <{total} x i32> poison, <{STRIP * n} x i32> <{places}>")
