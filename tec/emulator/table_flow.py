"""Opcodes that wait, hint, read the machine's state, or do nothing here. Branches, barriers and the end of the program
belong to `translate`, since they shape the function that is written.
"""

from __future__ import annotations

import re

from .asmparse import NO_OPERANDS, Inst
from .table import custom
from .wave import EXEC, Wave


def _nothing(w: Wave, inst: Inst) -> None:
    """Memory operations complete in order at once, so a wait has nothing to wait for."""


custom(" ".join(sorted(n for n in NO_OPERANDS if n != "s_sendmsg")), "wait")(_nothing)


custom("v_nop", "wait")(_nothing)


@custom("s_sendmsg", "other")
def _sendmsg(w: Wave, inst: Inst) -> None:
    """Registers given back early; an interrupt, at which the host serves the requests that wait in memory (`hostcalls`)."""
    if "DEALLOC_VGPRS" in inst.text:
        return
    if "MSG_INTERRUPT" not in inst.text:
        raise w.fail("this message")
    w.out.declares.add("declare i32 @tec_message(ptr, i32)")
    w.leave_on_fault(w.out.emit(f"call i32 @tec_message(ptr %ctx, i32 {w.site()})"))  # type: ignore[attr-defined]


@custom("s_denorm_mode s_round_mode", "other")
def _mode(w: Wave, inst: Inst) -> None:
    w.set_float_mode(4 if inst.op == "s_denorm_mode" else 0, 4, int(inst.operands[0].value))


_MODE = re.compile(r"hwreg\(HW_REG_(?:WAVE_)?MODE(?:,(\d+),(\d+))?\)$")


@custom("s_setreg_imm32_b32", "other")
def _setreg(w: Wave, inst: Inst) -> None:
    """The MODE register: rounding in bits 0 to 3, denormals in bits 4 to 7 (f32, then f16 and f64)."""
    found = _MODE.match(inst.operands[0].text.replace(" ", ""))
    if found is None:
        raise w.fail(f"s_setreg {inst.operands[0].text}")
    offset, width = int(found[1] or 0), int(found[2] or 32)
    if (offset, width) == (25, 1):
        return  # a replay setting of gfx12
    w.set_float_mode(offset, width, int(inst.operands[1].value))


@custom("s_memtime s_memrealtime", "other")
def _time(w: Wave, inst: Inst) -> None:
    w.out.declares.add("declare i64 @llvm.readcyclecounter()")
    w.write_scalar(inst.operands[0], w.out.emit("call i64 @llvm.readcyclecounter()"), "i64")


@custom("s_wqm_b64 s_wqm_b32", "salu")
def _wqm(w: Wave, inst: Inst) -> None:
    """Whole quads: a group of four lanes is on where one of them is."""
    t = "i64" if inst.op.endswith("64") else "i32"
    s = w.s
    a = w.scalar(inst.operands[1], t)
    mask = int("0x" + "1" * (int(t[1:]) // 4), 16)
    any_ = s.or_(s.or_(a, s.lshr(a, "1", t), t), s.or_(s.lshr(a, "2", t), s.lshr(a, "3", t), t), t)
    value = s.mul(s.and_(any_, s.const(t, mask), t), "15", t)
    w.set_scc(s.icmp("ne", t, value, "0"))
    w.write_scalar(inst.operands[0], value, t)


assert EXEC == 126
