"""gfx1250's vector registers beyond v255: which registers the operands mean behind `s_set_vgpr_msb`.

An operand's field has 8 bits; two more come from MODE, a pair for each place that an operand may have: src0, src1, src2 and the destination.
`s_set_vgpr_msb` sets all four (in MODE they are bits 12 to 19, the destination's first). LLVM's text prints the 8 bits, with the whole number in a comment. So a kernel's text is walked over all paths before anything
reads it, and its operands get their numbers; where paths that meet set different bits, an instruction that names vector registers is refused.
Source: LLVM's AMDGPULowerVGPREncoding and `getVGPRLoweringOperandTables`; ROCm's rocjitsu, `VgprMsbRole`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from ..decode.inst import Inst, KernelText, Operand
from ..errors import UnsupportedInstruction
from .flow import forward
from .modes import hwreg

_SRC0, _SRC1, _SRC2, _DST = range(4)
_FIRST_BIT = 12  # of the four pairs in MODE
_UNKNOWN = -1


def name_high_registers(text: KernelText) -> None:
    """Give vector operands the numbers of the registers that they mean."""
    if not any(i.op == "s_set_vgpr_msb" for i in text.insts):
        return
    found: dict[int, int] = {}

    def step(state: list[int], at: int) -> None:
        found[at] = state[0]
        state[0] = _after(text.insts[at], state[0])

    def join(into: list[int], other: list[int]) -> bool:
        changed = into[0] != other[0] and into[0] != _UNKNOWN
        if changed:
            into[0] = _UNKNOWN
        return changed

    forward(text, [0], list, step, join)
    for at, bits in found.items():
        inst = text.insts[at]
        if bits == _UNKNOWN and any(o.kind == "v" for half in (inst, inst.dual) if half for o in half.operands):
            raise UnsupportedInstruction(
                "vector registers whose upper bits (s_set_vgpr_msb) differ between paths",
                kernel=text.name, line=inst.line, instruction=inst.text,
            )  # fmt: skip
        if bits > 0:
            text.insts[at] = _renamed(inst, bits)


def _after(inst: Inst, bits: int) -> int:
    if inst.op == "s_set_vgpr_msb":
        return int(inst.operands[0].text or "0", 0) & 0xFF
    if inst.op.startswith("s_setreg"):
        name, first, width = hwreg(inst) or ("", 0, 0)
        if name == "MODE" and first < _FIRST_BIT + 8 and first + width > _FIRST_BIT:
            if inst.operands[1].kind != "int" or first > _FIRST_BIT or first + width < _FIRST_BIT + 8:
                return _UNKNOWN
            value = int(inst.operands[1].value) >> (_FIRST_BIT - first) & 0xFF
            return value >> 2 | (value & 3) << 6
    return bits


def _renamed(inst: Inst, bits: int) -> Inst:
    operands = list(inst.operands)
    for k, place in _places(inst):
        op = operands[k]
        high = bits >> 2 * place & 3
        if op.kind == "v" and high:
            operands[k] = replace(op, index=op.index + 256 * high)
    return replace(inst, operands=operands, dual=None if inst.dual is None else _renamed(inst.dual, bits))


def _places(inst: Inst) -> Iterator[tuple[int, int]]:
    """(operand, the place that it has in the encoding), of those that may be vector registers."""
    op, ops = inst.op, inst.operands
    if op.startswith("ds_"):
        first = _result(ops, "load" in op or "_rtn" in op or "permute" in op or "swizzle" in op)
        yield from first
        yield from zip(range(len(first), len(ops)), (_SRC0, _SRC1, _SRC2))
    elif op.startswith("buffer_"):
        yield from ((0, _DST), (1, _SRC0))
    elif op.startswith(("global_", "flat_", "scratch_", "cluster_")):
        gives = "_load" in op or ("_atomic" in op and "RETURN" in inst.mods.get("th", ""))
        first = _result(ops, gives)
        yield from first
        yield from zip(range(len(first), len(ops)), (_SRC0, _SRC1))
    elif op.startswith("v_cmpx"):
        yield from zip(range(len(ops)), (_SRC0, _SRC1))
    elif op.startswith("v_") and ops:
        yield 0, _DST
        carry = len(ops) > 1 and ops[1].kind in ("s", "special") and _second_result(op)
        # Behind the third source stand scales of matrix products, which have no such bits.
        yield from zip(range(2 if carry else 1, len(ops)), (_SRC0, _SRC1, _SRC2))


def _result(ops: list[Operand], gives: bool) -> list[tuple[int, int]]:
    return [(0, _DST)] if gives and ops else []


def _second_result(op: str) -> bool:
    return "_co_" in op or op.startswith(("v_div_scale", "v_mad_"))
