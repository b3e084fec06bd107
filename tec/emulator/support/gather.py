"""Loads and stores of global memory and LDS whose lanes do not all follow each other: groups of 16 lanes, each in its cheapest way.

A group in sequence is one wide access, and one whose lanes load from the same address a broadcast. Another whose lanes are all on takes one access a
lane, if that is of two or four dwords: a host's gather or scatter moves dword by dword. The rest is gathered or scattered under its mask. Used by
`support.memory`, after the addresses are checked.
"""

from __future__ import annotations

from ..translate.ops import Out
from .lanes import STRIP, VEC, apart, load_each, splat, store_each

_SINGLE = (2, 4)  # dwords of accesses that are made lane by lane


def grouped(w: int, n: int, space: str, load: bool) -> str:
    """IR from %addr (w addresses), %m (mask bits) to or from the dwords in %out, one vector of w dwords after another; LDS begins at %base."""
    b = Out("v")
    for first in range(0, w, STRIP):
        _group(b, w, n, first, space, load)
    return "\n".join(b.lines) + "\n"


def _group(b: Out, w: int, n: int, first: int, space: str, load: bool) -> None:
    """The text for one group, from lane `first` on; see the module."""
    emit, put = b.emit, b.put
    at = "i64" if space == "global" else "i32"
    vector = f"<16 x {at}>"
    order = ", ".join(f"i32 {first + i}" for i in range(STRIP))
    address = emit(f"shufflevector <{w} x {at}> %addr, <{w} x {at}> poison, <16 x i32> <{order}>")
    mask = emit(f"trunc i{w} {emit(f'lshr i{w} %m, {first}')} to i16")
    slots = [emit(f"getelementptr i8, ptr %out, i64 {4 * (w * k + first)}") for k in range(n)]
    on, row, rest, part, end = (b.fresh_label(x) for x in ("on", "row", "rest", "part", "end"))
    put(f"br i1 {emit(f'icmp eq i16 {mask}, -1')}, label %{on}, label %{part}")

    b.label(on)
    lowest = emit(f"extractelement {vector} {address}, i64 0")
    one = emit(f"insertelement {vector} poison, {at} {lowest}, i64 0")
    apart_by = emit(
        f"sub {vector} {address}, {emit(f'shufflevector {vector} {one}, {vector} poison, <16 x i32> zeroinitializer')}"
    )

    def lie(steps: str) -> str:
        bits = emit(f"bitcast <16 x i1> {emit(f'icmp ne {vector} {apart_by}, {steps}')} to i16")
        return emit(f"icmp eq i16 {bits}, 0")

    def pointer(address: str) -> str:
        if space == "global":
            return emit(f"inttoptr i64 {address} to ptr")
        return emit(f"getelementptr i8, ptr %base, i64 {emit(f'zext i32 {address} to i64')}")

    def further(place: str, nbytes: int) -> str:
        return emit(f"getelementptr i8, ptr {place}, i64 {nbytes}")

    def keep(values: list[str]) -> None:
        for value, slot in zip(values, slots):
            put(f"store {VEC} {value}, ptr {slot}, align 64")

    def kept() -> list[str]:
        return [emit(f"load {VEC}, ptr {slot}, align 64") for slot in slots]

    put(f"br i1 {lie('<' + ', '.join(f'{at} {4 * n * i}' for i in range(STRIP)) + '>')}, label %{row}, label %{rest}")
    b.label(row)
    start = pointer(lowest)
    if load and n == 3:
        wide = emit(f"load <48 x i32>, ptr {start}, align 1")
        keep([emit(f"shufflevector <48 x i32> {wide}, <48 x i32> poison, {_every(k, 3)}") for k in range(3)])
    elif load:
        keep(apart(b, [emit(f"load {VEC}, ptr {further(start, 64 * k)}, align 1") for k in range(n)]))
    else:
        put(f"store <{STRIP * n} x i32> {_end_to_end(b, kept())}, ptr {start}, align 1")
    put(f"br label %{end}")

    b.label(rest)
    if load:
        same, other = b.fresh_label("same"), b.fresh_label("other")
        put(f"br i1 {lie('zeroinitializer')}, label %{same}, label %{other}")
        b.label(same)
        start = pointer(lowest)
        keep([splat(b, emit(f"load i32, ptr {further(start, 4 * k)}, align 1")) for k in range(n)])
        put(f"br label %{end}")
        b.label(other)
    if n in _SINGLE:
        lanes = [pointer(emit(f"extractelement {vector} {address}, i64 {i}")) for i in range(STRIP)]
        if load:
            keep(load_each(b, n, lanes))
        else:
            store_each(b, kept(), lanes)
        put(f"br label %{end}")
    else:
        put(f"br label %{part}")

    b.label(part)
    lane_mask = emit(f"bitcast i16 {mask} to <16 x i1>")
    values = [] if load else kept()
    for k in range(n):
        here = emit(f"add {vector} {address}, splat ({at} {4 * k})") if k else address
        # a 32-bit index (checked, so never negative) lets the host gather 16 lanes at once
        places = emit(
            f"inttoptr {vector} {here} to <16 x ptr>"
            if space == "global"
            else f"getelementptr i8, ptr %base, {vector} {here}"
        )
        if load:
            values.append(
                emit(
                    f"call {VEC} @llvm.masked.gather.v16i32.v16p0(<16 x ptr> align 1 {places}, <16 x i1> {lane_mask}, {VEC} zeroinitializer)"
                )
            )
        else:
            put(
                f"call void @llvm.masked.scatter.v16i32.v16p0({VEC} {values[k]}, <16 x ptr> align 1 {places}, <16 x i1> {lane_mask})"
            )
    if load:
        keep(values)
    put(f"br label %{end}")
    b.label(end)


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
