"""Operand routing: DPP (a lane reads another lane's src0) and SDWA (a byte or word of a register, gfx9).

Source: AMD's ISA manuals, "Data-parallel primitives" and "Sub-dword addressing". A DPP lane whose source lane lies
outside its row, or is off in EXEC, reads 0 with bound_ctrl, else it keeps its old result.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..decode.inst import Inst, Operand

if TYPE_CHECKING:
    from .wave import Wave


def _dpp_lane(w: Wave, inst: Inst) -> list[int | None]:
    """The source lane of each lane; None where it lies outside."""
    lanes = range(w.lanes)
    value = inst.take_list("quad_perm")
    if value is not None:
        return [(l & ~3) | value[l & 3] for l in lanes]
    value = inst.take_list("dpp8")
    if value is not None:
        return [(l & ~7) | value[l & 7] for l in lanes]
    for name in ("row_shl", "row_shr", "row_ror", "row_share", "row_xmask", "row_newbcast", "row_bcast"):
        if inst.mods.get(name) is None:
            continue
        n = inst.take_int(name)
        if name == "row_shl":
            return [l + n if (l & 15) + n < 16 else None for l in lanes]
        if name == "row_shr":
            return [l - n if (l & 15) >= n else None for l in lanes]
        if name == "row_ror":
            return [(l & ~15) | ((l - n) & 15) for l in lanes]
        if name in ("row_share", "row_newbcast"):
            return [(l & ~15) | n for l in lanes]
        if name == "row_xmask":
            return [(l & ~15) | ((l ^ n) & 15) for l in lanes]
        if n == 15:  # lane 15 of each row to the whole next row
            return [(l & ~15) - 1 if l >= 16 else None for l in lanes]
        return [31 if l >= 32 else None for l in lanes]
    if inst.take("row_mirror") is not None:
        return [(l & ~15) | (15 - (l & 15)) for l in lanes]
    if inst.take("row_half_mirror") is not None:
        return [(l & ~7) | (7 - (l & 7)) for l in lanes]
    for name in ("wave_shl", "wave_shr", "wave_rol", "wave_ror"):
        if inst.mods.get(name) is None:
            continue
        n = inst.take_int(name)
        step = n if name in ("wave_shl", "wave_rol") else -n
        if name in ("wave_rol", "wave_ror"):
            return [(l + step) % w.lanes for l in lanes]
        return [l + step if 0 <= l + step < w.lanes else None for l in lanes]
    raise w.fail("a DPP control that is not known")


def dpp_source(w: Wave, inst: Inst, raw: str) -> str:
    """src0 after DPP; sets `w.dpp_mask` where some lanes must not be written."""
    source = _dpp_lane(w, inst)
    row_mask = inst.take_int("row_mask", 15)
    bank_mask = inst.take_int("bank_mask", 15)
    bound_ctrl = inst.take("bound_ctrl") is not None  # either spelling, :0 and :1, means "read zero"
    fetch_inactive = inst.take_int("fi") == 1
    ops = w.v
    ty, mask_ty = ops.type("i32"), ops.type("i1")
    order = f"<{w.lanes} x i32> <" + ", ".join(f"i32 {l if l is not None else 0}" for l in source) + ">"
    value = w.out.emit(f"shufflevector {ty} {raw}, {ty} poison, {order}")
    inside = ops.vector_const("i1", [int(l is not None) for l in source])
    valid = inside
    if not w.full and not fetch_inactive:
        active = w.exec_mask()
        moved = w.out.emit(f"shufflevector {mask_ty} {active}, {mask_ty} poison, {order}")
        valid = ops.and_(moved, inside, "i1")
    value = ops.select(valid, "i32", value, ops.const("i32", 0))
    allowed = [(row_mask >> (l // 16 % 4)) & 1 and (bank_mask >> (l // 4 % 4)) & 1 for l in range(w.lanes)]
    if not bound_ctrl and (None in source or not (w.full or fetch_inactive)):
        mask = valid
        if not all(allowed):
            mask = ops.and_(mask, ops.vector_const("i1", [int(bool(x)) for x in allowed]), "i1")
        w.dpp_mask = mask
    elif not all(allowed):
        w.dpp_mask = ops.vector_const("i1", [int(bool(x)) for x in allowed])
    return value


_SEL = {"BYTE_0": (0, 8), "BYTE_1": (8, 8), "BYTE_2": (16, 8), "BYTE_3": (24, 8), "WORD_0": (0, 16), "WORD_1": (16, 16)}


def sdwa_select(w: Wave, inst: Inst, op: Operand, position: int, raw: str) -> str:
    """The selected byte or word of src0 or src1, zero- or sign-extended."""
    sel = inst.take(f"src{position - 1}_sel") or "DWORD"
    if sel == "DWORD":
        return raw
    if sel not in _SEL:
        raise w.fail(f"SDWA selection {sel}")
    shift, width = _SEL[sel]
    up = w.v.shl(raw, w.v.const("i32", 32 - shift - width)) if shift + width < 32 else raw
    return w.v.bin("ashr" if op.sext else "lshr", "i32", up, w.v.const("i32", 32 - width))


def sdwa_insert(w: Wave, inst: Inst, op: Operand, value: str) -> str:
    """The result placed in the selected byte or word of the destination."""
    sel = inst.take("dst_sel") or "DWORD"
    unused = inst.take("dst_unused") or "UNUSED_PAD"
    if sel == "DWORD":
        return value
    if sel not in _SEL or unused not in ("UNUSED_PAD", "UNUSED_PRESERVE", "UNUSED_SEXT"):
        raise w.fail(f"SDWA destination {sel} {unused}")
    shift, width = _SEL[sel]
    field = ((1 << width) - 1) << shift
    placed = w.v.and_(w.v.shl(value, w.v.const("i32", shift)), w.v.const("i32", field))
    if unused == "UNUSED_PRESERVE":
        return w.v.or_(placed, w.v.and_(w.reg(op.kind, op.index), w.v.const("i32", ~field)))
    if unused == "UNUSED_SEXT":
        up = w.v.shl(placed, w.v.const("i32", 32 - shift - width))
        return w.v.ashr(up, w.v.const("i32", 32 - shift - width))
    return placed
