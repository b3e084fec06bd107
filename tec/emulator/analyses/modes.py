"""The MODE register over a kernel's paths: how floats are rounded, whether denormals are flushed, whether f16 overflows (FP16_OVFL).

A forward analysis: before each instruction, the bits of MODE that are the same on every path, and their values. So a translation rounds by what
is known, and refuses an instruction that needs a bit that is not. Values pass through scalar registers by moves of constants and by `s_getreg`, as in
code that keeps a mode and puts it back.
Source: CDNA3 and RDNA3 ISA manuals, "Mode register"; the fields of `s_setreg` in LLVM's "Syntax of AMDGPU Instruction Operands", hwreg.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from ..decode.inst import Inst, KernelText
from .flow import forward

# First bits of fields; those of f16 hold for f64 too.
ROUND_F32, ROUND_F16, DENORMALS_F32, DENORMALS_F16, OVERFLOW = (0, 2, 4, 6, 23)
NEAREST, UP, DOWN, ZERO = range(4)
_HWREG = re.compile(r"hwreg\((\w+)(?:,(\d+),(\d+))?\)$")
_WRITES = ("s_setreg", "s_denorm_mode", "s_round_mode")


@dataclass(frozen=True, slots=True)
class Mode:
    """Bits of MODE: their values, and those that differ between paths or come out of an unknown register."""

    value: int
    unknown: int = 0

    def written(self, offset: int, width: int, value: int, unknown: int = 0) -> Mode:
        mask = ((1 << width) - 1) << offset
        unknown = unknown << offset & mask
        return Mode((self.value & ~mask | value << offset & mask) & ~unknown, self.unknown & ~mask | unknown)

    def read(self, offset: int, width: int) -> Mode:
        mask = (1 << width) - 1
        return Mode(self.value >> offset & mask, self.unknown >> offset & mask)


@dataclass(slots=True)
class _State:
    mode: Mode
    # Scalar registers with values that are known, or known in part.
    scalars: dict[int, Mode] = field(default_factory=dict)


def hwreg(inst: Inst) -> tuple[str, int, int] | None:
    """(register, first bit, bits) that s_getreg or s_setreg names."""
    for op in inst.operands[:2]:
        found = _HWREG.match(op.text.replace(" ", ""))
        if found is not None:
            return found[1].removeprefix("HW_REG_").removeprefix("WAVE_"), int(found[2] or 0), int(found[3] or 32)
    return None


def _concerns(inst: Inst) -> bool:
    """Whether an instruction writes MODE, bits that gfx1250 has beyond the floats' apart."""
    if not inst.op.startswith(_WRITES):
        return False
    where = hwreg(inst)
    return where is None or where[0] != "MODE" or where[1] <= OVERFLOW


def find_modes(kernel: KernelText, start: int) -> dict[int, Mode]:
    """MODE before each instruction that a path reaches; empty where it is `start` throughout."""
    if not any(_concerns(i) for i in kernel.insts):
        return {}
    found: dict[int, Mode] = {}

    def step(state: _State, at: int) -> None:
        found[at] = state.mode
        _step(state, kernel.insts[at])

    forward(kernel, _State(Mode(start)), lambda s: _State(s.mode, dict(s.scalars)), step, _join)
    return found


def _join(into: _State, other: _State) -> bool:
    differs = (into.mode.value ^ other.mode.value) | into.mode.unknown | other.mode.unknown
    mode = Mode(into.mode.value & ~differs, differs)
    scalars = {r: v for r, v in into.scalars.items() if other.scalars.get(r) == v}
    changed = mode != into.mode or len(scalars) != len(into.scalars)
    into.mode, into.scalars = mode, scalars
    return changed


def _step(state: _State, inst: Inst) -> None:
    """What an instruction makes of the mode register, and of the scalars that are known."""
    op = inst.op
    if op in ("s_denorm_mode", "s_round_mode"):
        state.mode = state.mode.written(4 if op == "s_denorm_mode" else 0, 4, int(inst.operands[0].value))
        return
    if op.startswith("s_setreg"):
        where = hwreg(inst)
        if where is not None and where[0] == "MODE":
            source = inst.operands[1]
            known = (
                Mode(int(source.value))
                if source.kind == "int"
                else state.scalars.get(source.index, Mode(0, 0xFFFFFFFF))
            )
            state.mode = state.mode.written(where[1], where[2], known.value, known.unknown)
        return
    if not inst.operands or inst.operands[0].kind != "s" or op.startswith(("s_cmp", "s_bitcmp", "s_cbranch")):
        return
    for half in (inst,) if inst.dual is None else (inst, inst.dual):
        for o in half.operands[:2] if op.startswith("v_") else half.operands[:1]:
            if o.kind == "s":
                for r in range(o.index, o.index + max(1, o.count)):
                    state.scalars.pop(r, None)
    target = inst.operands[0].index
    if op in ("s_mov_b32", "s_movk_i32"):
        source = inst.operands[1]
        if source.kind == "int":
            state.scalars[target] = Mode(int(source.value) & 0xFFFFFFFF)
        elif source.kind == "s" and source.index in state.scalars:
            state.scalars[target] = state.scalars[source.index]
    elif op.startswith("s_getreg"):
        where = hwreg(inst)
        if where is not None and where[0] == "MODE":
            state.scalars[target] = state.mode.read(where[1], where[2])
