"""Opcodes that wait, hint, read the machine's state, or do nothing here. Branches, barriers and the end of the program
belong to `translate`, since they shape the function that is written.
"""

from __future__ import annotations

from ..analyses.modes import hwreg
from ..checks.order import ACQUIRES, READS, RELEASES
from ..chips import CHIPS
from ..decode.inst import NO_OPERANDS, Inst
from ..translate.wave import EXEC, M0, Wave
from .table import custom


def _nothing(w: Wave, inst: Inst) -> None:
    """Memory operations complete in order at once, so a wait has nothing to wait for."""


custom(" ".join(sorted(n for n in NO_OPERANDS if n != "s_sendmsg")), "wait")(_nothing)


# With no operands, or one that changes nothing here: how long to sleep, what to fetch.
custom("v_nop v_clrexcp v_pipeflush s_wakeup s_dcache_inv_vol s_dcache_wb_vol", "wait")(_nothing)
custom("s_sleep_var s_prefetch_data_pc_rel", "other")(_nothing)


@custom("s_setvskip", "other", (9,))
def _skip_off(w: Wave, inst: Inst) -> None:
    """The end of a stretch that waves pass over; its beginning is a branch (`analyses.skipped`)."""


@custom("s_sendmsg", "other")
def _sendmsg(w: Wave, inst: Inst) -> None:
    """Registers given back early; an interrupt, at which the host serves the requests that wait in memory (`hostcalls`)."""
    if "DEALLOC_VGPRS" in inst.text:
        return
    if "MSG_INTERRUPT" not in inst.text:
        raise w.fail("this message")
    w.out.declares.add("declare i32 @tec_message(ptr, i32)")
    w.leave_on_fault(w.out.emit(f"call i32 @tec_message(ptr %ctx, i32 {w.site()})"))  # type: ignore[attr-defined]


@custom("ds_gws_init", "other")
def _gws_init(w: Wave, inst: Inst) -> None:
    """How many are to come, which each barrier says as well."""
    inst.take("gds")
    inst.take("offset")


@custom("ds_gws_barrier", "other")
def _gws_barrier(w: Wave, inst: Inst) -> None:
    """The barrier of cooperative groups: one wave of each work-group comes (ROCm's __ockl_grid_sync), the operand's first lane says how many less one."""
    inst.take("gds")
    offset = inst.take_int("offset")
    if w.options.trace:  # one work-group runs alone
        return
    value = w.reg(inst.operands[0].kind, inst.operands[0].index)
    first = "0" if w.full else w.s.and_(w.s.trunc("i64", "i32", w.s.call("cttz", "i64", w.s.zext(w.mask_type, "i64", w.exec_bits()))), str(w.lanes - 1))  # fmt: skip
    more = w.out.emit(f"extractelement {w.v.type('i32')} {value}, i32 {first}")
    number = w.s.and_(w.s.add(w.s.lshr(w.reg("s", M0), "16"), str(offset)), "63")
    if w.order is not None:  # type: ignore[attr-defined]
        at = w.s.add(w.ctx_load("gws", "i64"), w.s.shl(w.s.zext("i32", "i64", number), "4", "i64"), "i64")  # type: ignore[attr-defined]
        where = w.v.splat("i64", at)
        w._order(where, "1", RELEASES)  # type: ignore[attr-defined]
    w.out.declares.add("declare i32 @tec_gws_barrier(ptr, i32, i32, i32)")
    w.leave_on_fault(w.out.emit(f"call i32 @tec_gws_barrier(ptr %ctx, i32 {number}, i32 {more}, i32 {w.site()})"))  # type: ignore[attr-defined]
    if w.order is not None:  # type: ignore[attr-defined]
        w._order(where, "1", READS)  # type: ignore[attr-defined]
        w._order(where, "0", ACQUIRES)  # type: ignore[attr-defined]


@custom("s_denorm_mode s_round_mode", "other")
def _mode(w: Wave, inst: Inst) -> None:
    """What it sets is followed by `modes`."""


@custom("s_setreg_imm32_b32 s_setreg_b32", "other")
def _setreg(w: Wave, inst: Inst) -> None:
    """MODE is followed by `modes`; where scratch lies (gfx10's FLAT_SCR) is known without it, and so are results between vector instructions, for which code
    waits by itself under gfx12's SCHED_MODE."""
    found = hwreg(inst)
    if found is None or found[0] not in ("MODE", "FLAT_SCR_LO", "FLAT_SCR_HI", "SCHED_MODE"):
        raise w.fail(f"s_setreg {inst.operands[0].text}")


@custom("s_getreg_b32", "other")
def _getreg(w: Wave, inst: Inst) -> None:
    """MODE; the die that the work-group runs on (work-groups are dealt to dies in turn); the place within it, which is always the first; a clock."""
    name, first, width = hwreg(inst) or ("", 0, 32)
    if name == "MODE":
        value = str(w.mode(first, width))
    elif name == "XCC_ID":
        dies = CHIPS[w.chip].machine.dies
        value = w.s.trunc("i64", "i32", w.out.emit(f"urem i64 {w.ctx_load('group', 'i64')}, {dies}"))  # type: ignore[attr-defined]
    elif name in ("HW_ID", "HW_ID1", "HW_ID2"):
        value = "0"
    elif name == "IB_STS2" and (first, width) == (6, 4):
        value = "0"  # no work-groups in clusters (gfx1250): ids are where RDNA 4 has them
    elif name.startswith("SHADER_CYCLES"):
        w.out.declares.add("declare i64 @llvm.readcyclecounter()")
        clock = w.out.emit("call i64 @llvm.readcyclecounter()")
        clock = w.s.lshr(clock, "32" if name.endswith("_HI") else "0", "i64")
        value = w.s.and_(w.s.lshr(w.s.trunc("i64", "i32", clock), str(first)), str((1 << width) - 1))
    else:
        raise w.fail(f"s_getreg {inst.operands[1].text}")
    w.write_scalar(inst.operands[0], value)


@custom("s_get_shader_cycles_u64", "other", (12,))
@custom("s_memtime s_memrealtime", "other")
def _time(w: Wave, inst: Inst) -> None:
    w.out.declares.add("declare i64 @llvm.readcyclecounter()")
    w.write_scalar(inst.operands[0], w.out.emit("call i64 @llvm.readcyclecounter()"), "i64")


@custom("s_sendmsg_rtn_b32 s_sendmsg_rtn_b64", "other", (11, 12))
def _message_back(w: Wave, inst: Inst) -> None:
    """A clock, which is all that compilers ask for but on their way into a trap."""
    w.out.declares.add("declare i64 @llvm.readcyclecounter()")
    clock = w.out.emit("call i64 @llvm.readcyclecounter()")
    if inst.op.endswith("b64"):
        w.write_scalar(inst.operands[0], clock, "i64")
    else:
        w.write_scalar(inst.operands[0], w.s.trunc("i64", "i32", clock))


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
