"""Loads and stores of global memory and LDS whose lanes do not all follow each other: groups of 16 lanes, each in its cheapest way.

A group in sequence is one wide access, and one whose lanes load from the same address a broadcast. Another whose lanes are all on takes one access a
lane, if that is of two or four dwords: a host's gather or scatter moves dword by dword. The rest is gathered or scattered under its mask. Used by
`support.memory`, after the addresses are checked.
"""

from __future__ import annotations

from ..translate.ops import Out
from .lanes import STRIP, VEC, apart, load_each, splat, store_each
from .template import ir

_SINGLE = (2, 4)  # dwords of accesses that are made lane by lane


def grouped(w: int, n: int, space: str, load: bool) -> str:
    """IR for one group: from the addresses %here under the mask %on (its bits: %bits) to or from the dwords at %to, a vector of w dwords further for each; LDS begins at %base."""
    b = Out("v")
    _Group(b, w, n, space, load).write()
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
        lowest = b.emit(f"extractelement {self.vector} %here, i64 0")
        one = b.emit(f"insertelement {self.vector} poison, {at} {lowest}, i64 0")
        ones = b.emit(f"shufflevector {self.vector} {one}, {self.vector} poison, <16 x i32> zeroinitializer")
        apart_by = b.emit(f"sub {self.vector} %here, {ones}")
        in_row = "<" + ", ".join(f"{at} {4 * n * i}" for i in range(STRIP)) + ">"
        b.put(f"br i1 {self._are(apart_by, in_row)}, label %{row}, label %{rest}")
        b.label(row)
        self._row(lowest)
        b.put(f"br label %{end}")
        b.label(rest)
        if self.load:
            same, other = b.fresh_label("same"), b.fresh_label("other")
            b.put(f"br i1 {self._are(apart_by, 'zeroinitializer')}, label %{same}, label %{other}")
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

    def _row(self, lowest: str) -> None:
        """Lanes that follow each other: one wide access."""
        b, n, start = self.b, self.n, self._pointer(lowest)
        if self.load and n == 3:
            wide = b.emit(f"load <48 x i32>, ptr {start}, align 1")
            self._keep(
                [b.emit(f"shufflevector <48 x i32> {wide}, <48 x i32> poison, {_every(k, 3)}") for k in range(3)]
            )
        elif self.load:
            self._keep(apart(b, [b.emit(f"load {VEC}, ptr {self._further(start, 64 * k)}, align 1") for k in range(n)]))
        else:
            b.put(f"store <{STRIP * n} x i32> {_end_to_end(b, self._kept())}, ptr {start}, align 1")

    def _lane_by_lane(self) -> None:
        b = self.b
        lanes = [self._pointer(b.emit(f"extractelement {self.vector} %here, i64 {i}")) for i in range(STRIP)]
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

    def _are(self, apart_by: str, steps: str) -> str:
        """Whether all lanes are so far from the first."""
        bits = self.b.emit(f"bitcast <16 x i1> {self.b.emit(f'icmp ne {self.vector} {apart_by}, {steps}')} to i16")
        return self.b.emit(f"icmp eq i16 {bits}, 0")

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
