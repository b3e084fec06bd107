"""Opcodes that wait, hint, read the machine's state, or do nothing here. Branches, barriers and the end of the program
belong to `translate`, since they shape the function that is written.
"""

from __future__ import annotations

from .asmparse import NO_OPERANDS, Inst
from .table import custom
from .wave import EXEC, Wave


def _nothing(w: Wave, inst: Inst) -> None:
    """Memory operations complete in order at once, so a wait has nothing to wait for."""


custom(" ".join(sorted(n for n in NO_OPERANDS if n != "s_sendmsg")), "wait")(_nothing)


@custom("s_sendmsg", "other")
def _sendmsg(w: Wave, inst: Inst) -> None:
    if "DEALLOC_VGPRS" not in inst.text:
        raise w.fail("this message")


@custom("s_denorm_mode s_round_mode", "other")
def _mode(w: Wave, inst: Inst) -> None:
    value = int(inst.operands[0].value)
    wanted = 15 if inst.op == "s_denorm_mode" else 0
    if value != wanted:
        raise w.fail(f"float mode {value} (modelled: denormals kept, round to nearest)")


@custom("s_setreg_imm32_b32", "other")
def _setreg(w: Wave, inst: Inst) -> None:
    """Only the float mode as it stands anyway: hwreg(HW_REG_MODE, 4, 4) = 15 and parts of it."""
    text = inst.operands[0].text.replace(" ", "")
    value = int(inst.operands[1].value)
    if text in ("hwreg(HW_REG_MODE,4,2)", "hwreg(HW_REG_MODE,6,2)") and value == 3:
        return
    if text == "hwreg(HW_REG_MODE,4,4)" and value == 15:
        return
    if text in ("hwreg(HW_REG_WAVE_MODE,25,1)", "hwreg(HW_REG_MODE,25,1)"):
        return  # a replay setting of gfx12
    raise w.fail(f"s_setreg {text} = {value}")


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
