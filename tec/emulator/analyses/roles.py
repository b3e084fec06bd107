"""Which operands an instruction fills and which it reads: what the analyses of a kernel's text (waits, hazards, liveness, traces, order) have alike.

By the names and shapes of LLVM's text; what lies behind an address is not looked at. Registers that no operand names (SCC, VCC, EXEC) are the analyses' own.
"""

from __future__ import annotations

import re

from ..decode.inst import Inst, Operand

_MEMORY = (
    "global_",
    "cluster_",
    "flat_",
    "buffer_",
    "tbuffer_",
    "image_",
    "scratch_",
    "ds_",
    "s_load",
    "s_buffer_load",
    "s_atomic",
    "s_buffer_atomic",
    "s_store",
    "s_buffer_store",
)
_EXCHANGES = ("ds_bpermute", "ds_permute", "ds_swizzle")  # between lanes, past memory
# A carry, a lane mask or a second register besides the result.
_TWO_RESULTS = re.compile(r"v_(add|sub|subrev)b?(_co)|v_(addc|subb|subbrev)_|v_div_scale|v_mad_(co_)?[ui]64")
_SWAPS = re.compile(r"v_(permlane\d+_)?swap")
_NO_RESULT = re.compile(
    r"s_(cmp|bitcmp|nop|wait|barrier|sched|set(prio|reg|_)|sleep|clause|delay|endpgm|branch|cbranch|inst|code|dcache|icache|sendmsg|trap|setpc)"
)
_ACCUMULATES = re.compile(
    r"v_(fmac|mac_|dot\dc|dot2acc|pk_fmac|writelane|movrel|smfmac|swmmac|cvt_(scalef32_)?sr_|cvt_scalef32_(pk_|f16_)|cvt_pk_[fb][pf]8)|v_dual_(fmac|dot2acc)|v_(permlane\d+_)?swap|s_(bitset|cmov|fmac)"
)


def is_memory(op: str) -> bool:
    """Whether an opcode accesses global memory, scratch or LDS."""
    return op.startswith(_MEMORY) and not op.startswith(_EXCHANGES)


def returns(inst: Inst) -> bool:
    """Whether an atomic of global memory gives what was there."""
    return any(m in inst.mods for m in ("glc", "sc0")) or "RETURN" in inst.mods.get("th", "")


def fills(inst: Inst) -> bool:
    """Whether an access of memory, or an exchange between lanes, fills the registers of its first operand."""
    op = inst.op
    if "_load_lds" in op or "_async_" in op or "lds" in inst.mods:
        return False  # to LDS; its first operand is an address
    if op.startswith("ds_"):
        return any(word in op for word in ("read", "load", "_rtn", "permute", "swizzle"))
    if op.startswith("image_") and "_atomic" not in op:
        return "_store" not in op
    return returns(inst) if "_atomic" in op else "_load" in op


def roles(inst: Inst) -> tuple[list[Operand], list[Operand]]:
    """(operands that it fills, operands that it reads); some are both. Of the second half of a VOPD instruction ask by itself."""
    op, ops = inst.op, inst.operands
    if op.startswith(_MEMORY):
        if not fills(inst):
            return [], ops
        # A buffer atomic returns to the register that brings its data.
        both = op.startswith(("buffer_atomic", "image_atomic", "s_atomic", "s_buffer_atomic"))
        return ops[:1], ops if both else ops[1:]
    # From gfx10 on v_cmpx fills EXEC alone, which no operand names.
    if _NO_RESULT.match(op) or (op.startswith("v_cmpx") and len(ops) == 2):
        return [], ops
    two = _SWAPS.match(op) or (_TWO_RESULTS.match(op) and len(ops) > 2 and ops[1].kind == "s")
    n = 2 if two else 1
    return ops[:n], ops if _ACCUMULATES.match(op) else ops[n:]
