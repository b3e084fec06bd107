"""The quick look of `checks.screening` at LDS loads within a region of `strips`: what `support.screen` does for others, in line.

What a version of a region's body finds is gathered, and looked at once at its end: the launch begins again then, so nothing that the wave did since
counts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..analyses.lane_patterns import STRIP
from ..context import SCREENED
from .ops import Out

if TYPE_CHECKING:
    from .registers import Registers
    from .strip_reads import LdsRead

_VEC, _BITS = "<16 x i32>", "<16 x i1>"
_UNSEEN, _LOADED = 31, 32  # of a dword: bytes that nothing was stored to, or another wave's store; a load by this wave
_WIDEST = 64  # dwords that are looked at together
_ALIGN = {1: 4, 2: 8, 3: 16, 4: 16}  # dwords of a load -> what `check="align"` asks of its address


def aligns(w: Registers, read: LdsRead, p: tuple[int, ...]) -> bool:
    """Whether the lanes' addresses are aligned where the lowest is, as far as anyone asks."""
    if "screen" not in w.options.checks:
        return True
    n = _ALIGN[read.dwords] if "align" in w.options.checks else 4
    return all((read.offset + 4 * x) % n == 0 for x in p)


class Screen:
    """Writes the looks of one version of a region's body to `b`."""

    def __init__(self, w: Registers, b: Out):
        self.w, self.b = w, b
        self.arrays: tuple[int, ...] = w.text.arrays[1:] if "arrays" in w.options.checks else ()  # type: ignore[attr-defined]
        self.align = "align" in w.options.checks
        self.found: list[str] = []  # i1 values, true where there may be something
        self.sites: list[int] = []

    def aligned(self, good: str, at: str) -> str:
        low = self.b.emit(f"and i64 {at}, {15 if self.align else 3}")
        return self.b.emit(f"and i1 {good}, {self.b.emit(f'icmp eq i64 {low}, 0')}")

    def run(self, read: LdsRead, p: tuple[int, ...], at: str) -> None:
        """Lanes at the places `p`, in dwords behind the address `at`, which is a multiple of 4."""
        b, n = self.b, read.dwords
        self.sites.append(read.site)
        start = b.emit(f"add i64 {at}, {read.offset}") if read.offset else at
        if self.arrays:
            end = b.emit(f"add i64 {start}, {4 * (max(p) + n) - 1}")
            self.found.append(b.emit(f"icmp ne i64 {self._array(start, 'i64')}, {self._array(end, 'i64')}"))
        first = b.emit(f"lshr i64 {start}, 2")
        touched = sorted({x + k for x in p for k in range(n)})
        if touched[-1] < _WIDEST:
            self._look(first, 0, touched)
            return
        for x in sorted(set(p)):
            self._look(first, x, list(range(n)))

    def _look(self, first: str, place: int, touched: list[int]) -> None:
        """Dwords `touched` behind dword `first` + `place`, by one load of each map."""
        b = self.b
        size = next(s for s in (1, 2, 4, 8, 16, 32, 64) if s > touched[-1])
        at = b.emit(f"add i64 {first}, {place}") if place else first
        n = size // 8
        ty = f"<{n} x i64>" if n > 1 else f"i{8 * size}"

        def bits(value: int) -> str:
            words = [sum(value << 8 * (x % 8) for x in touched if x // 8 == k) for k in range(max(1, n))]
            return "<" + ", ".join(f"i64 {word}" for word in words) + ">" if n > 1 else str(words[0])

        theirs, own = (b.emit(f"getelementptr i8, ptr %screen_{name}, i64 {at}") for name in ("lds", "own"))
        wrong = b.emit(f"and {ty} {b.emit(f'load {ty}, ptr {theirs}, align 1')}, {bits(_UNSEEN)}")
        if n > 1:
            some = b.emit(f"bitcast <{n} x i1> {b.emit(f'icmp ne {ty} {wrong}, zeroinitializer')} to i{n}")
            self.found.append(b.emit(f"icmp ne i{n} {some}, 0"))
        else:
            self.found.append(b.emit(f"icmp ne {ty} {wrong}, 0"))
        if self.w.many:  # type: ignore[attr-defined]
            old = b.emit(f"load {ty}, ptr {own}, align 1")
            b.put(f"store {ty} {b.emit(f'or {ty} {old}, {bits(_LOADED)}')}, ptr {own}, align 1")

    def any_lanes(self, read: LdsRead, address: str, mask: str, on: str | None) -> None:
        """16 lanes wherever they are; `mask`: of those that are on, and `on` as a number where some may be off."""
        b = self.b
        self.sites.append(read.site)
        where = b.emit(f"add {_VEC} {address}, splat (i32 {read.offset})") if read.offset else address
        name = "@tec_screen_strip"
        b.declares.add(f"declare i1 {name}({_VEC}, i16, ptr, i64)")
        fine = b.emit(f"call i1 {name}({_VEC} {where}, i16 {on or -1}, ptr %ctx, i64 {4 * read.dwords})")
        self.found.append(b.emit(f"xor i1 {fine}, true"))
        if self.align:
            low = b.emit(f"and {_VEC} {where}, splat (i32 {_ALIGN[read.dwords] - 1})")
            self._lanes(f"icmp ne {_VEC} {low}, zeroinitializer", mask)
        if self.arrays:
            end = b.emit(f"add {_VEC} {where}, splat (i32 {4 * read.dwords - 1})")
            begins, ends = self._array(where, _VEC), self._array(end, _VEC)
            self._lanes(f"icmp ne {_VEC} {begins}, {ends}", mask)
            bounds = []
            for kind, other in (("umax", "0"), ("umin", "255")):
                kept = b.emit(f"select <16 x i1> {mask}, {_VEC} {begins}, {_VEC} splat (i32 {other})")
                b.declares.add(f"declare i32 @llvm.vector.reduce.{kind}.v{STRIP}i32({_VEC})")
                bounds.append(b.emit(f"call i32 @llvm.vector.reduce.{kind}.v{STRIP}i32({_VEC} {kept})"))
            self.found.append(b.emit(f"icmp ugt i32 {bounds[0]}, {bounds[1]}"))

    def _lanes(self, condition: str, mask: str) -> None:
        """Something where a condition holds in a lane that is on."""
        b = self.b
        bits = b.emit(f"bitcast <16 x i1> {b.emit(f'and <16 x i1> {b.emit(condition)}, {mask}')} to i16")
        self.found.append(b.emit(f"icmp ne i16 {bits}, 0"))

    def _array(self, place: str, ty: str) -> str:
        """The number of the array in which a place (or places) lies."""
        b = self.b
        total = "zeroinitializer" if ty == _VEC else "0"
        for start in self.arrays:
            limit = f"splat (i32 {start})" if ty == _VEC else str(start)
            past = b.emit(f"icmp uge {ty} {place}, {limit}")
            wide = b.emit(f"zext {_BITS if ty == _VEC else 'i1'} {past} to {ty}")
            total = b.emit(f"add {ty} {total}, {wide}")
        return total

    def close(self) -> None:
        """Leave the wave where anything was found."""
        if not self.found:
            return
        b = self.b
        total = self.found[0]
        for other in self.found[1:]:
            total = b.emit(f"or i1 {total}, {other}")
        again, on = b.fresh_label("again"), b.fresh_label("on")
        b.put(f"br i1 {total}, label %{again}, label %{on}, !prof !0")
        b.label(again)
        b.declares.add("declare i32 @tec_fault(ptr, i64, i32, i64, i64)")
        b.emit(f"call i32 @tec_fault(ptr %ctx, i64 {SCREENED}, i32 {self.sites[0]}, i64 0, i64 0)")
        b.put("br label %fault")
        b.label(on)
