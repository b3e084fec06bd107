"""`check="barrier"` within a wave: whether all its lanes come to the same barriers.

A barrier counts waves, not lanes, so the two sides of a branch on which a wave's lanes differ may each hold one: the wave passes both in
turn, nothing hangs, and neither orders what the other side's lanes do. In every order of a right program the lanes that come to
a barrier have come to the one before it as well; lanes that have ended come to no more. Assembly written by hand may mask lanes off around a barrier
and put them on again, which is in order; compilers write no constant to EXEC but -1. Where a kernel does, lanes are
missed only if those that came to the barrier before are missing here.

On gfx12 a wave signals a barrier and waits at it in two instructions: once each, in this order.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ..context import CTX, STATE_LANES, STATE_MET, STATE_MET_SITE, STATE_SIGNALLED

if TYPE_CHECKING:
    from ..decode.inst import KernelText
    from ..translate.kernel import Translator

DIVERGED, UNSIGNALLED, SIGNALLED_TWICE = 25, 28, 29  # the faults' numbers
_MASKS = re.compile(r"s_mov_b(32|64)$")


def masks_by_hand(kernel: KernelText) -> bool:
    """Whether a constant other than -1 is written to EXEC."""
    for inst in kernel.insts:
        if _MASKS.match(inst.op) and inst.operands[0].text.startswith("exec"):
            value = inst.operands[1].value if len(inst.operands) > 1 else None
            if inst.operands[1].kind not in ("s", "v") and value not in (None, -1, 0xFFFFFFFF, 0xFFFFFFFFFFFFFFFF):
                return True
    return False


def check_lanes(w: Translator) -> None:
    """At a barrier: leave with a fault where a lane is here that was not at the wave's last one."""
    out, s = w.out, w.s

    def field(at: int, ty: str) -> tuple[str, str]:
        place = out.emit(f"getelementptr i8, ptr %st, i64 {at}")
        return place, out.emit(f"load {ty}, ptr {place}")

    now = w.exec_bits()
    if w.lanes == 32:
        now = s.zext("i32", "i64", now)
    _, lanes = field(STATE_LANES, "i64")  # that the wave began with
    now = s.and_(now, lanes, "i64")
    met_at, met = field(STATE_MET, "i64")
    site_at, site = field(STATE_MET_SITE, "i32")
    gained = s.and_(now, s.xor(met, "-1", "i64"), "i64")
    bad = s.and_(s.icmp("ne", "i64", gained, "0"), s.icmp("ne", "i64", met, "0"), "i1")
    if masks_by_hand(w.text):
        lost = s.and_(met, s.xor(now, "-1", "i64"), "i64")
        bad = s.and_(bad, s.icmp("ne", "i64", lost, "0"), "i1")
    apart, on = out.fresh_label("apart"), out.fresh_label("met")
    out.put(f"br i1 {bad}, label %{apart}, label %{on}, !prof !0")
    out.label(apart)
    other = out.emit(f"getelementptr i8, ptr %ctx, i64 {CTX['other_site']}")
    out.put(f"store i64 {s.zext('i32', 'i64', site)}, ptr {other}")
    lane = s.call("cttz", "i64", gained)
    out.declares.add("declare i32 @tec_fault(ptr, i64, i32, i64, i64)")
    out.emit(f"call i32 @tec_fault(ptr %ctx, i64 {DIVERGED}, i32 {w.site()}, i64 {lane}, i64 0)")
    out.put("br label %fault")
    out.label(on)
    some = s.icmp("ne", "i64", now, "0")  # a wave without lanes came by a branch that was left out
    out.put(f"store i64 {s.select(some, 'i64', now, met)}, ptr {met_at}")
    out.put(f"store i32 {w.site() + 1}, ptr {site_at}")


def check_signal(w: Translator, waits: bool) -> None:
    """Where a wave signals a barrier, or waits at it: leave with a fault if it has done so before, or not signalled."""
    out, s = w.out, w.s
    at = out.emit(f"getelementptr i8, ptr %st, i64 {STATE_SIGNALLED}")
    signalled = out.emit(f"load i32, ptr {at}")
    w.fault_if(s.icmp("eq" if waits else "ne", "i32", signalled, "0"), UNSIGNALLED if waits else SIGNALLED_TWICE)
    out.put(f"store i32 {int(not waits)}, ptr {at}")
