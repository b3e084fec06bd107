"""LDS loads within a region of `strips`: issued where they stand, read where their results are first used, written in one version or two.

A load is a line of its own in the region's body until the region ends; then it is spelled out. Any lanes can be served by looking at
their addresses: one load where all have the same, a wide one where they follow each other, else a gather. Three ways a load are many branches in a
row, over which LLVM cannot keep values in registers. So code that is worth it comes in two versions. The first takes the lanes of each address to
lie as `lane_patterns` expects, checks that once an address, with the furthest bounds of its loads, and reads with no more branches;
a strip that turns out otherwise leaves it, before it has stored anything, for the second, which takes whatever comes.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..analyses.lane_patterns import STRIP
from ..decode.inst import Inst
from ..support.lanes import apart, load_each
from .ops import Out
from .strip_screen import Screen, aligns

if TYPE_CHECKING:
    from .registers import Registers

LDS_READS = {
    "ds_read_b32": 1, "ds_read_b64": 2, "ds_read_b96": 3, "ds_read_b128": 4,
    "ds_load_b32": 1, "ds_load_b64": 2, "ds_load_b96": 3, "ds_load_b128": 4,
}  # fmt: skip
# Two-address forms: dwords of each half, bytes that an offset counts.
LDS_READS2 = {
    "ds_read2_b32": (1, 4), "ds_read2_b64": (2, 8), "ds_read2st64_b32": (1, 256), "ds_read2st64_b64": (2, 512),
    "ds_load_2addr_b32": (1, 4), "ds_load_2addr_b64": (2, 8),
    "ds_load_2addr_stride64_b32": (1, 256), "ds_load_2addr_stride64_b64": (2, 512),
}  # fmt: skip
_VEC = "<16 x i32>"
_NAME = re.compile(r"%[\w.]+")
_DEFINED = re.compile(r"\s*(%[\w.]+) = |([\w.]+):$")
_READ = "\0lds "
# Dwords that the lanes of one load may lie over, to be taken from wide loads: four of the host's widest vectors, which is what 16 lanes of 16 bytes
# in sequence fill. Beyond that lanes of several dwords are loaded one by one, and a gather is no slower for single dwords.
_WINDOW = 64
_EACH = (2, 4)  # dwords a lane that are loaded so: the host's gather fetches a dword at a time


@dataclass(slots=True)
class LdsRead:
    """A load that is issued and not yet read: address (a vector in the body), offset, registers, where it may fault."""

    address: str
    offset: int
    dwords: int
    kind: str
    index: int
    site: int
    pattern: tuple[int, ...] | None  # how its lanes lie, as far as can be expected
    # Once it is read: the values that stand for its dwords, the lanes that are on (a vector), and as an i16 where some may be off.
    values: tuple[str, ...] = ()
    mask: str = "splat (i1 true)"
    on: str | None = None


def is_read(inst: Inst) -> bool:
    return inst.op in LDS_READS or inst.op in LDS_READS2


def lds_read(w: Registers, inst: Inst) -> None:
    """Issue a load of LDS; it is read at the first use of its registers."""
    assert w.region is not None
    dst, addr = inst.operands
    two = LDS_READS2.get(inst.op)
    if two is None:
        dwords = LDS_READS[inst.op]
        parts = [(dwords, inst.take_int("offset"))]
    else:
        dwords, unit = two
        parts = [(dwords, unit * inst.take_int(f"offset{i}")) for i in (0, 1)]
    if addr.kind != "v" or addr.count != 1:
        raise w.fail(f"LDS address {addr.text}")
    if inst.take("gds") is not None:
        raise w.fail("GDS")
    if dst.kind not in ("v", "a") or dst.half or dst.count != dwords * len(parts):
        raise w.fail(f"{dst.text} as the destination of {dwords * len(parts)} dwords")
    address = w.reg("v", addr.index)
    at = dst.index
    reads = []
    for n, offset in parts:
        pattern = w.patterns.get(w.position)
        reads.append(LdsRead(address, offset, n, dst.kind, at, w.site(), pattern))  # type: ignore[attr-defined]
        at += n
    for read in reads:
        for k in range(read.dwords):
            w.region.loads[(read.kind, read.index + k)] = read
            if w.full:
                w.state.typed.pop((read.kind, read.index + k), None)
                w.dirty.pop((read.kind, read.index + k), None)
    if not w.full:  # the old values count, and so does EXEC as it stands here
        for read in reads:
            read_lds(w, read)


def read_lds(w: Registers, read: LdsRead) -> None:
    """Put the load in the body: its registers have its values from here on."""
    region, b = w.region, w.body
    assert region is not None
    keys = [(read.kind, read.index + k) for k in range(read.dwords)]
    wanted = [region.loads.get(key) is read for key in keys]
    for key, mine in zip(keys, wanted):
        if mine:
            del region.loads[key]
    if not any(wanted):
        return
    w.lds_dwords.add(read.dwords)
    if not w.full:
        read.mask, read.on = w.exec_mask(), w.exec_strip()
    read.values = tuple(b.name() for _ in keys)
    b.lines.append(f"{_READ}{len(region.reads)}")
    region.reads.append(read)
    held, w.deferred = w.deferred, None  # both halves of a VOPD instruction read before either writes: this is a read
    for key, value, mine in zip(keys, read.values, wanted):
        if mine:
            w.write_reg(*key, value)
    w.deferred = held


def read_pending(w: Registers) -> None:
    """Read the loads that nothing used so far."""
    assert w.region is not None
    while w.region.loads:
        read_lds(w, next(iter(w.region.loads.values())))


def has_expected(reads: list[LdsRead]) -> bool:
    """Whether a body with these loads comes in two versions."""
    return any(_within(read) is not None for read in reads)


def both_versions(w: Registers, body: list[str], undo: Callable[[], object] = lambda: None) -> None:
    """Write the body of the open region, with its loads spelled out. `undo` writes what sets back what the first version may have changed."""
    region, out = w.region, w.out
    assert region is not None
    expected = {id(r): p for r in region.reads if (p := _within(r)) is not None and aligns(w, r, p)}
    n = region.number
    if not expected:
        _Version(w, body).write()
        return
    _Version(w, body, expected).write()
    out.put(f"br label %r{n}e")
    out.label(f"r{n}g")
    undo()
    _Version(w, body, copy=".g").write()
    out.put(f"br label %r{n}e")
    out.label(f"r{n}e")


def _within(read: LdsRead) -> tuple[int, ...] | None:
    """The pattern of a load's lanes in dwords, where it saves looking at them."""
    if read.pattern is None or any(p % 4 for p in read.pattern):
        return None
    if max(read.pattern) + 4 * read.dwords > 4 * _WINDOW and read.dwords not in _EACH:
        return None
    return tuple(p // 4 for p in read.pattern)


class _Version:
    """One version of a region's body. `expected`: how the lanes of loads lie, by the load's id; those not there are looked at. `copy`: what
    the names of values and labels get behind them."""

    def __init__(
        self, w: Registers, body: list[str], expected: dict[int, tuple[int, ...]] | None = None, copy: str = ""
    ):
        assert w.region is not None
        self.out, self.lines, self.region, self.expected, self.copy = w.out, body, w.region, expected or {}, copy
        self.write_at = Out(f"x{w.region.number}{'g' if copy else ''}.", w.out.declares)
        self.screen = Screen(w, self.write_at) if "screen" in w.options.checks else None
        self.names: dict[str, str] = {}
        self.seen: dict[tuple[str, str | None, int], tuple[str, str, str]] = {}
        self.checked: dict[tuple[str, str | None], str] = {}
        self.begins: dict[tuple[str, str | None], str] = {}  # the lowest lane's address as a number
        # The furthest byte behind the lowest lane's address that the loads of an address read.
        self.reach: dict[tuple[str, str | None], int] = {}
        for read in w.region.reads:
            p = self.expected.get(id(read))
            if p is not None:
                key = read.address, read.on
                self.reach[key] = max(self.reach.get(key, 0), read.offset + 4 * (max(p) + read.dwords))

    def write(self) -> None:
        if self.copy:
            for line in self.lines:
                found = _DEFINED.match(line)
                if found is not None:
                    name = found[1] or f"%{found[2]}"
                    self.names[name] = name + self.copy
        b = self.write_at
        for line in self.lines:
            if line.startswith(_READ):
                self.read(self.region.reads[int(line.removeprefix(_READ))])
            else:
                b.lines.append(self.renamed(line))
        if self.screen is not None:
            self.screen.close()
        self.out.lines += b.lines

    def renamed(self, line: str) -> str:
        if not self.names:
            return line
        if line[-1:] == ":" and line[:1] not in (" ", "\0"):
            return self.names.get(f"%{line[:-1]}", f"%{line[:-1]}")[1:] + ":"
        return _NAME.sub(lambda m: self.names.get(m[0], m[0]), line)

    def name(self, name: str) -> str:
        return self.names.get(name, name)

    def read(self, read: LdsRead) -> None:
        p = self.expected.get(id(read))
        values = self.looked_at(read) if p is None else self.as_expected(read, p)
        self.names.update(zip(read.values, values))

    # Lanes as expected.
    def as_expected(self, read: LdsRead, p: tuple[int, ...]) -> list[str]:
        b, n = self.write_at, read.dwords
        pointer = self.base(read, p)
        if self.screen is not None:
            self.screen.run(read, p, self.begins[read.address, read.on])
        if read.offset:
            pointer = b.emit(f"getelementptr i8, ptr {pointer}, i64 {read.offset}")
        if max(p) == 0:
            words = []
            for k in range(n):
                at = b.emit(f"getelementptr i8, ptr {pointer}, i64 {4 * k}") if k else pointer
                word = b.emit(f"load i32, ptr {at}, align 1")
                one = b.emit(f"insertelement {_VEC} poison, i32 {word}, i64 0")
                words.append(b.emit(f"shufflevector {_VEC} {one}, {_VEC} poison, <16 x i32> zeroinitializer"))
            return words
        size = max(p) + n
        if p == tuple(n * i for i in range(STRIP)) and n in (1, 2, 4):
            return apart(b, [self.wide(pointer, i, STRIP) for i in range(n)])
        if size > _WINDOW:
            return load_each(b, n, [b.emit(f"getelementptr i8, ptr {pointer}, i64 {4 * x}") for x in p])
        parts = [self.wide(pointer, i, min(STRIP, size - STRIP * i)) for i in range((size + STRIP - 1) // STRIP)]
        return [self.picked(parts, [x + k for x in p]) for k in range(n)]

    def wide(self, pointer: str, i: int, dwords: int) -> str:
        """Dwords 16 i and on, of which there are `dwords`, as a whole vector."""
        b = self.write_at
        at = b.emit(f"getelementptr i8, ptr {pointer}, i64 {64 * i}") if i else pointer
        some = b.emit(f"load <{dwords} x i32>, ptr {at}, align 1")
        if dwords == STRIP:
            return some
        order = ", ".join(f"i32 {k}" if k < dwords else "i32 poison" for k in range(STRIP))
        return b.emit(f"shufflevector <{dwords} x i32> {some}, <{dwords} x i32> poison, <16 x i32> <{order}>")

    def picked(self, parts: list[str], places: list[int]) -> str:
        """The dwords at `places` of the parts laid end to end."""
        b = self.write_at
        pairs = []
        for i in range(0, len(parts), 2):
            second = parts[i + 1] if i + 1 < len(parts) else "poison"
            inside = [x - STRIP * i if 0 <= x - STRIP * i < 2 * STRIP else None for x in places]
            order = ", ".join("i32 poison" if x is None else f"i32 {x}" for x in inside)
            pairs.append((b.emit(f"shufflevector {_VEC} {parts[i]}, {_VEC} {second}, <16 x i32> <{order}>"), inside))
        value = pairs[0][0]
        for other, inside in pairs[1:]:
            order = ", ".join(f"i32 {k + STRIP * (x is not None)}" for k, x in enumerate(inside))
            value = b.emit(f"shufflevector {_VEC} {value}, {_VEC} {other}, <16 x i32> <{order}>")
        return value

    def base(self, read: LdsRead, p: tuple[int, ...]) -> str:
        """The lowest lane's address as a pointer; the lanes' places and the bounds of all that this address's loads read are checked where it is first asked for."""
        key = read.address, read.on
        found = self.checked.get(key)
        if found is not None:
            return found
        b, n = self.write_at, self.region.number
        address = self.name(read.address)
        first = b.emit(f"extractelement {_VEC} {address}, i64 {p.index(0)}")
        one = b.emit(f"insertelement {_VEC} poison, i32 {first}, i64 0")
        splat = b.emit(f"shufflevector {_VEC} {one}, {_VEC} poison, <16 x i32> zeroinitializer")
        delta = b.emit(f"sub {_VEC} {address}, {splat}")
        differs = b.emit(f"icmp ne {_VEC} {delta}, <" + ", ".join(f"i32 {4 * x}" for x in p) + ">")
        bits = b.emit(f"bitcast <16 x i1> {differs} to i16")
        if read.on is not None:
            bits = b.emit(f"or i16 {bits}, {b.emit(f'xor i16 {self.name(read.on)}, -1')}")
        at = b.emit(f"zext i32 {first} to i64")
        last = b.emit(f"sub i64 %lds_size, {self.reach[key]}")
        inside = b.emit(f"icmp sle i64 {at}, {last}")
        good = b.emit(f"and i1 {inside}, {b.emit(f'icmp eq i16 {bits}, 0')}")
        if self.screen is not None:
            good = self.screen.aligned(good, at)
        self.begins[key] = at
        on = b.fresh_label("as")
        b.put(f"br i1 {good}, label %{on}, label %r{n}g, !prof !1")
        b.label(on)
        found = self.checked[key] = b.emit(f"getelementptr i8, ptr %lds, i64 {at}")
        return found

    # Any lanes.
    def looked_at(self, read: LdsRead) -> list[str]:
        """16 lanes at one address, contiguous lanes, or lanes apart."""
        b, n = self.write_at, read.dwords
        if self.screen is not None:
            self.screen.any_lanes(read, self.name(read.address), self.name(read.mask), read.on and self.name(read.on))
        first, same, follow = self.pattern(read)
        tag = b.fresh_label("l")
        start = b.emit(f"add i32 {first}, {read.offset}") if read.offset else first
        at = b.emit(f"zext i32 {start} to i64")
        pointer = b.emit(f"getelementptr i8, ptr %lds, i64 {at}")
        one = b.emit(f"and i1 {same}, {b.emit(f'icmp sle i64 {at}, %lds_last{n}')}")
        b.put(f"br i1 {one}, label %{tag}o, label %{tag}n")
        b.label(f"{tag}o")
        ones = []
        for k in range(n):
            word = b.emit(f"load i32, ptr {b.emit(f'getelementptr i8, ptr {pointer}, i64 {4 * k}')}, align 1")
            low = b.emit(f"insertelement {_VEC} poison, i32 {word}, i64 0")
            ones.append(b.emit(f"shufflevector {_VEC} {low}, {_VEC} poison, <16 x i32> zeroinitializer"))
        b.put(f"br label %{tag}j")
        b.label(f"{tag}n")
        run = b.emit(f"and i1 {follow}, {b.emit(f'icmp sle i64 {at}, %lds_run{n}')}")
        b.put(f"br i1 {run}, label %{tag}c, label %{tag}g")
        b.label(f"{tag}c")
        big = b.emit(f"load <{16 * n} x i32>, ptr {pointer}, align 1")
        runs = [big]
        if n > 1:
            runs = [
                b.emit(f"shufflevector <{16 * n} x i32> {big}, <{16 * n} x i32> poison, <16 x i32> {_every(k, n)}")
                for k in range(n)
            ]
        b.put(f"br label %{tag}j")
        b.label(f"{tag}g")
        gathered = self.gather(read, tag)
        b.put(f"br label %{tag}j")
        b.label(f"{tag}j")
        return [
            b.emit(f"phi {_VEC} [ {ones[k]}, %{tag}o ], [ {runs[k]}, %{tag}c ], [ {gathered[k]}, %{tag}h ]")
            for k in range(n)
        ]

    def pattern(self, read: LdsRead) -> tuple[str, str, str]:
        """(lane 0's address, whether all lanes have it, whether lanes follow each other), once an address."""
        b, n = self.write_at, read.dwords
        key = read.address, read.on, n
        known = self.seen.get(key)
        if known is not None:
            return known
        address = self.name(read.address)
        first = b.emit(f"extractelement {_VEC} {address}, i64 0")
        low = b.emit(f"insertelement {_VEC} poison, i32 {first}, i64 0")
        splat = b.emit(f"shufflevector {_VEC} {low}, {_VEC} poison, <16 x i32> zeroinitializer")
        delta = b.emit(f"sub {_VEC} {address}, {splat}")
        out = []
        for want in ("zeroinitializer", "<" + ", ".join(f"i32 {4 * n * i}" for i in range(STRIP)) + ">"):
            differs = b.emit(f"icmp ne {_VEC} {delta}, {want}")
            bits = b.emit(f"bitcast <16 x i1> {differs} to i16")
            if read.on is not None:
                bits = b.emit(f"or i16 {bits}, {b.emit(f'xor i16 {self.name(read.on)}, -1')}")
            out.append(b.emit(f"icmp eq i16 {bits}, 0"))
        found = self.seen[key] = (first, out[0], out[1])
        return found

    def gather(self, read: LdsRead, tag: str) -> list[str]:
        """Lanes apart: each address checked, then a gather for each dword. Ends in block `<tag>h`."""
        b, address, mask = self.write_at, self.name(read.address), self.name(read.mask)
        where = b.emit(f"add {_VEC} {address}, splat (i32 {read.offset})") if read.offset else address
        wide = b.emit(f"zext {_VEC} {where} to <16 x i64>")
        low = b.emit(f"insertelement <16 x i64> poison, i64 %lds_last{read.dwords}, i64 0")
        limit = b.emit(f"shufflevector <16 x i64> {low}, <16 x i64> poison, <16 x i32> zeroinitializer")
        over = b.emit(f"and <16 x i1> {b.emit(f'icmp sgt <16 x i64> {wide}, {limit}')}, {mask}")
        bad = b.emit(f"bitcast <16 x i1> {over} to i16")
        b.put(f"br i1 {b.emit(f'icmp ne i16 {bad}, 0')}, label %{tag}b, label %{tag}h, !prof !0")
        b.label(f"{tag}b")
        b.declares.add("declare void @tec_lds_fault(ptr, i32, i16, <16 x i32>, i64)")
        b.put(
            f"call void @tec_lds_fault(ptr %ctx, i32 {read.site}, i16 {bad}, {_VEC} {where}, i64 %r{self.region.number}.ls)"
        )
        b.put("br label %fault")
        b.label(f"{tag}h")
        if read.on is None and read.dwords in _EACH:
            lanes = [b.emit(f"extractelement {_VEC} {where}, i64 {i}") for i in range(STRIP)]
            offsets = [b.emit(f"zext i32 {lane} to i64") for lane in lanes]
            return load_each(b, read.dwords, [b.emit(f"getelementptr i8, ptr %lds, i64 {x}") for x in offsets])
        name = "@llvm.masked.gather.v16i32.v16p0"
        b.declares.add(f"declare {_VEC} {name}(<16 x ptr>, <16 x i1>, {_VEC})")
        out = []
        for k in range(read.dwords):
            index = b.emit(f"add {_VEC} {where}, splat (i32 {4 * k})") if k else where
            pointers = b.emit(f"getelementptr i8, ptr %lds, {_VEC} {index}")
            call = f"call {_VEC} {name}(<16 x ptr> align 1 {pointers}, <16 x i1> {mask}, {_VEC} zeroinitializer)"
            out.append(b.emit(call))
        return out


def _every(k: int, n: int) -> str:
    return "<" + ", ".join(f"i32 {k + n * i}" for i in range(STRIP)) + ">"
