"""How the lanes of an LDS load probably lie to each other: found by working the integer code of addresses out for one wave.

In: a kernel's text. Out: for each load of LDS the bytes from one lane's address to the next, where every strip of 16 lanes has the same.
It is a guess, on which fast code is written that checks it when it runs (`strip_reads`): the text is read once from its beginning to
its end, scalars that come out of memory are odd numbers, and work-items are taken to be numbered along x.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ..decode.inst import Inst, KernelText, Operand
from .roles import roles

STRIP = 16
Lanes = np.ndarray  # of u32
_Rule = Callable[..., Lanes]


def _shift(x: Lanes) -> Lanes:
    return x & np.uint32(31)


_RULES: dict[str, _Rule] = {
    "mov_b32": lambda a: a,
    "and_b32": lambda a, b: a & b, "or_b32": lambda a, b: a | b, "xor_b32": lambda a, b: a ^ b,
    "lshlrev_b32": lambda a, b: b << _shift(a), "lshrrev_b32": lambda a, b: b >> _shift(a),
    "add_u32": lambda a, b: a + b, "sub_u32": lambda a, b: a - b, "subrev_u32": lambda a, b: b - a,
    "mul_lo_u32": lambda a, b: a * b,
    "mul_u32_u24": lambda a, b: (a & np.uint32(0xFFFFFF)) * (b & np.uint32(0xFFFFFF)),
    "mad_u32_u24": lambda a, b, c: (a & np.uint32(0xFFFFFF)) * (b & np.uint32(0xFFFFFF)) + c,
    "lshl_add_u32": lambda a, b, c: (a << _shift(b)) + c, "add_lshl_u32": lambda a, b, c: (a + b) << _shift(c),
    "lshl_or_b32": lambda a, b, c: (a << _shift(b)) | c, "and_or_b32": lambda a, b, c: (a & b) | c,
    "or3_b32": lambda a, b, c: a | b | c, "add3_u32": lambda a, b, c: a + b + c, "xad_u32": lambda a, b, c: (a ^ b) + c,
    "bfe_u32": lambda a, b, c: (a >> _shift(b)) & ((np.uint32(1) << _shift(c)) - np.uint32(1)),
    "bfi_b32": lambda a, b, c: (a & b) | (~a & c),
}  # fmt: skip


class _Wave:
    """The registers of one wave, as far as integer code without memory makes them."""

    def __init__(self, lanes: int):
        self.lanes = np.arange(lanes, dtype=np.uint32)
        self.vectors: dict[int, Lanes] = {0: self.lanes}
        self.scalars: dict[int, int] = {}

    def value(self, op: Operand) -> Lanes | None:
        if op.neg or op.abs or op.sext or op.half:
            return None
        if op.kind == "v":
            return self.vectors.get(op.index)
        if op.kind == "int":
            return np.full_like(self.lanes, int(op.value) & 0xFFFFFFFF)
        if op.kind == "s":  # some large number whose low bits no mask or shift of an index meets
            return np.full_like(self.lanes, self.scalars.get(op.index, (0x9E37 * (op.index + 1) & 0x7FFF) << 16))
        return None

    def step(self, inst: Inst) -> None:
        written = [o for o in roles(inst)[0] if o.is_reg]
        name = inst.op.removeprefix("v_").removeprefix("dual_").replace("_nc_", "_")
        found = self._result(inst, name) if inst.encoding not in ("dpp", "dpp8", "e64_dpp", "sdwa") else None
        for op in written:
            for k in range(op.index, op.index + max(1, op.count)):
                (self.scalars if op.kind == "s" else self.vectors).pop(k, None)
        if not written or written[0].kind == "a":
            return
        first = written[0]
        if inst.op in ("s_mov_b32", "s_movk_i32") and inst.operands[1].kind == "int":
            self.scalars[first.index] = int(inst.operands[1].value) & 0xFFFFFFFF
        elif first.kind == "v" and found is not None:
            self.vectors[first.index] = found

    def _result(self, inst: Inst, name: str) -> Lanes | None:
        if not inst.op.startswith("v_") or "clamp" in inst.mods or not inst.operands:
            return None
        carry = "_co_" in name  # its second operand is the carry's mask
        sources = [self.value(o) for o in inst.operands[1 + carry :]]
        if name.startswith("mbcnt_lo") and len(sources) == 2 and sources[1] is not None:
            return np.asarray(np.minimum(self.lanes, np.uint32(32)) + sources[1])
        if name.startswith("mbcnt_hi") and len(sources) == 2 and sources[1] is not None:
            return np.asarray(np.maximum(self.lanes, np.uint32(32)) - np.uint32(32) + sources[1])
        rule = _RULES.get(name.replace("_co_", "_"))
        if rule is None or any(s is None for s in sources):
            return None
        try:
            return rule(*sources)
        except TypeError:  # more operands than the rule has: a form that it does not mean
            return None


def lane_patterns(text: KernelText, lanes: int, wanted: Callable[[Inst], bool]) -> dict[int, tuple[int, ...]]:
    """For the place of each instruction that is `wanted` (its second operand is an address): the bytes by which the 16 lanes of a strip lie
    behind the lowest of them, where all strips have the same."""
    wave, found = _Wave(lanes), dict[int, tuple[int, ...]]()
    for at, inst in enumerate(text.insts):
        if wanted(inst):
            address = wave.value(inst.operands[1])
            if address is not None:
                strips = address.reshape(-1, STRIP)
                apart = strips - strips.min(1, keepdims=True)
                if (apart == apart[0]).all():
                    found[at] = tuple(int(x) for x in apart[0])
        for part in (inst, inst.dual):
            if part is not None:
                wave.step(part)
    return found
