"""Whether each register that a kernel reads was surely filled before, in every lane that reads it.

In: a kernel's text and the registers that the hardware fills. Out: yes, or a no that may be too careful. It is a forward analysis over all paths, which
follows the lanes that are on. EXEC is named by a chain of the places that made it smaller: a register filled under a chain is filled for all that
runs under the same chain or a longer one. Where EXEC grows again by a mask that was saved, the chain is again what it was when that was done; where
nothing is known of the lanes it begins anew. Paths with different chains meet under what their chains have in common and a place of its own. The two
halves of a register are filled each for itself.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from ..decode.inst import TTMP0, Inst, KernelText, Operand
from .flow import forward
from .roles import is_memory, roles
from .skeleton import registers

VCC, EXEC, M0 = 106, 126, 124
_SCC = -1  # among the keys of halves
Chain = tuple[int, ...]
# A mask in SGPRs: the chain of the lanes that are on together with it, and the chain under which that holds, _ANY of them, or _FIRST: the mask has the lanes
# of the first side of a branch, of which the other side are the rest.
_ANY, _FIRST = (-1,), (-2,)
_Mask = tuple[Chain, Chain]
_SETS_SCC = re.compile(
    r"s_((cmp|bitcmp[01]|cmpk)_|\w*saveexec|(?!\w+_f(16|32)$|(add|sub)_(nc_)?u64)(add|sub|addc|subb|and|or|xor|nand|nor|xnor|andn2|orn2|"
    r"and_not1|or_not1|not|lshl|lshr|ashr|lshl[1-4]_add|bfe|min|max|abs|absdiff|wqm|bcnt[01]|quadmask|addk|add_co|sub_co|add_co_ci|sub_co_ci)_)"
)
_READS_SCC = re.compile(r"s_(cselect|addc|subb|cmov|cbranch_scc|add_co_ci|sub_co_ci)")
_READS_RESULT = ("s_addk", "s_mulk", "s_cmovk")
_READS_VCC = ("s_cbranch_vcc", "v_div_fmas", "v_dual_cndmask")
_FLAGS = ("scc", "src_scc", "src_vccz")  # sources beside the registers
# Where an undefined value would be reported, or go where nobody follows it.
_DECIDES = (
    "s_cbranch",
    "v_cmpx",
    "s_setreg",
    "s_barrier",
    "ds_",
    "v_readfirstlane",
    "v_readlane",
    "v_swap",
    "v_permlane",
)
_MATRIX = ("v_mfma", "v_wmma", "v_smfmac", "v_swmmac")
# What lanes that are off hold counts as well.
_ACROSS = re.compile(r"v_(readlane|permlane)|v_w?mma|v_mfma|v_s(mfmac|wmmac)|ds_(bpermute|permute|swizzle)")
_UNKNOWN = re.compile(r"v_movrel|v_swaprel|s_set_gpr_idx|s_movrel|s_call|s_swappc|s_setpc|s_\w*wrexec|s_rfe|s_add_pc")
# 16-bit results leave the upper half as it is: all of gfx10 and later, some of gfx9 (LLVM, zeroesHigh16BitsOfDest).
_HALF = re.compile(
    r"v_((?!pk_|cvt_pk|dot(?!2_b?f16)|cmp|mad_[iu]32|cvt_[fui]32|cvt_f64|fma_mix_|mad_mix_|pack_)\w*_(f16|[uib]16|bf16)(_|$)|ashr_pk|sat_pk4)"
)
_HALF_ON_GFX9 = re.compile(r"v_(fma|mad|med3|min3|max3|div_fixup|fmac|mac|cvt_s|ashr_pk)")


class _Unproved(Exception):
    """A register is read that may not be filled, or something is not followed."""


@dataclass(slots=True)
class _State:
    chain: Chain = ()
    filled: dict[int, Chain] = field(default_factory=dict)
    masks: dict[int, _Mask] = field(default_factory=dict)
    place: int = 0  # of this state where paths with different chains met in it

    def copy(self) -> _State:
        return _State(self.chain, dict(self.filled), dict(self.masks))


def _within(outer: Chain, inner: Chain) -> bool:
    return inner[: len(outer)] == outer


def all_filled(text: KernelText, gfx: int, lanes: int, full: bool, scalars: int, vectors: int) -> bool:
    """Whether no read of a register may find what nothing filled. `lanes` of a wave; `full`: all of them are on at the start; `scalars`, `vectors`: how many of the first registers
    the hardware fills."""
    start = _State()
    for o in (Operand("s", "", 0, scalars), Operand("v", "", 0, vectors)):
        start.filled.update((key, ()) for key in _halves(o))
    try:
        forward(text, start, _State.copy, _Walk(text, gfx, lanes, full).step, _Meeting().join)
    except _Unproved:
        return False
    return True


def _halves(o: Operand) -> list[int]:
    """The halves of an operand's registers that must be filled: EXEC, trap temporaries and constants always are."""
    if o.kind == "s" and o.index >= TTMP0 and o.index != M0:
        return []
    halves = (0, 1) if o.kind == "s" or not o.half else ("lh".index(o.half),)
    return [2 * r + h for r in registers(o) for h in halves]


class _Walk:
    def __init__(self, text: KernelText, gfx: int, lanes: int, full: bool):
        self.text, self.gfx, self.lanes, self.full = text, gfx, lanes, full

    def step(self, state: _State, i: int) -> bool:
        inst = self.text.insts[i]
        if _UNKNOWN.match(inst.op):
            raise _Unproved
        parts = [inst] if inst.dual is None else [inst, inst.dual]
        sound = [self._read(state, part) for part in parts]
        chain, mask = self._lanes(state, inst, i)
        for part, filled in zip(parts, sound):
            self._write(state, part, filled)
        if chain != state.chain or chain[-1:] in ((i,), (-3 - i,)):
            # Lanes that this place left on before are other ones.
            state.chain, fresh = chain, {i, -3 - i}
            state.filled = {k: c for k, c in state.filled.items() if _within(c, chain) and fresh.isdisjoint(c)}
            state.masks = {r: m for r, m in state.masks.items() if _within(m[0], chain) and fresh.isdisjoint(m[0])}
        if mask is not None:
            state.masks[inst.operands[0].index] = mask
        return not inst.op.startswith("s_endpgm")

    def _read(self, state: _State, inst: Inst) -> bool:
        """Whether all that an instruction reads is filled; where not, it may only compute, and its results count as not filled."""
        op, mods = inst.op, inst.mods
        results, sources = roles(inst)
        reads = list(sources)
        across = bool(_ACROSS.match(op))
        if op.startswith(("v_permlane16", "v_permlanex16")) and state.chain and "1" not in mods.get("op_sel", ""):
            reads += results  # kept where the lane that would be read is off
        if "dpp" in inst.encoding:
            across = "fi" in mods
            if "bound_ctrl" not in mods or mods.get("row_mask") != "0xf" or mods.get("bank_mask") != "0xf":
                reads += results  # lanes that get nothing keep what they had
        if op.startswith(_READS_RESULT):
            reads += results
        if op.startswith(_READS_VCC):
            reads.append(Operand("s", "vcc", VCC, self.lanes // 32))
        sound = not (across and not self.full) and (_SCC in state.filled or not _READS_SCC.match(op))
        # Where no lane is on, v_readfirstlane reads the first one.
        any_lane = across or op.startswith("v_readfirstlane")
        for o in reads:
            lanes = () if any_lane and o.kind in ("v", "a") else state.chain
            if o.kind == "special" and o.text in _FLAGS:
                sound = sound and o.text != "src_vccz" and _SCC in state.filled
            sound = sound and all((c := state.filled.get(key)) is not None and _within(c, lanes) for key in _halves(o))
        decides = is_memory(op) or op.startswith(_DECIDES) or any(o.kind == "s" and o.index >= EXEC for o in results)
        if not sound and (decides or "saveexec" in op):
            raise _Unproved
        return sound

    def _write(self, state: _State, inst: Inst, sound: bool) -> None:
        op = inst.op
        if _SETS_SCC.match(op):
            if sound:
                state.filled[_SCC] = ()
            else:
                state.filled.pop(_SCC, None)
        whole = op.startswith(_MATRIX)  # whatever EXEC holds
        for o in roles(inst)[0]:
            if o.kind == "s":
                for r in registers(o):
                    state.masks.pop(r, None)
                    state.masks.pop(r - 1, None)
            only = None if o.half else self._half_filled(inst)
            for key in _halves(o):
                if not sound:
                    state.filled.pop(key, None)
                elif only is None or key % 2 == only:
                    if key not in state.filled:
                        state.filled[key] = () if whole or o.kind == "s" else state.chain

    def _half_filled(self, inst: Inst) -> int | None:
        """The half of its result's registers that an instruction fills alone; None where it fills all, -1 where none for sure."""
        op = inst.op
        if "d16" in op or "mixlo" in op or "mixhi" in op:
            return int("_hi" in op or "mixhi" in op)
        select = inst.mods.get("op_sel", "[0]").strip("[]").split(",")
        if "PRESERVE" in inst.mods.get("dst_unused", "") or op.startswith("v_writelane"):
            return -1
        if len(select) > 1 and select[-1] == "1" and not op.startswith("v_pk_"):
            return -1
        if _HALF.match(op) and (self.gfx > 9 or _HALF_ON_GFX9.match(op)):
            return 0
        return None

    def _lanes(self, state: _State, inst: Inst, i: int) -> tuple[Chain, _Mask | None]:
        """The chain behind an instruction, and the mask that its result is."""
        op, ops, chain = inst.op, inst.operands, state.chain
        if i in chain:
            raise _Unproved
        fewer = (*chain, i)
        if op.startswith("v_cmpx"):
            return fewer, None
        to_exec = any(o.kind == "s" and o.index <= EXEC + 1 and o.index + o.count > EXEC for o in roles(inst)[0])
        # Only masks of all lanes are followed.
        if not (op.startswith("s_") and op.endswith(f"_b{self.lanes}")) or ops[0].kind != "s":
            return (self._anew(i) if to_exec or "saveexec" in op else chain), None
        own = any(o.kind == "s" and o.index == EXEC for o in ops[1:])
        others = [o for o in ops[1:] if o.kind == "s" and o.index != EXEC]
        known = state.masks.get(others[0].index) if len(others) == 1 else None
        if known is not None and known[1] not in (_ANY, _FIRST, chain):
            known = None
        if "saveexec" in op:
            if op.startswith("s_and_saveexec"):
                return fewer, (chain, _ANY)
            if op.startswith("s_or_saveexec") and known is not None and known[1] != _FIRST:
                return known[0], (known[0], _FIRST)
            if op.startswith(("s_andn2_saveexec", "s_and_not1_saveexec")) and known is not None and known[1] == chain:
                second = (*known[0], i)
                return second, (known[0], second)
        elif to_exec:
            if op.startswith("s_and_b") and own:
                return fewer, None
            if op.startswith(("s_andn2_b", "s_and_not1_b")) and ops[1].kind == "s" and ops[1].index == EXEC:
                return fewer, None
            if op.startswith("s_or_b") and own and known is not None and known[1] != _FIRST:
                return known[0], None
            if op.startswith("s_mov_b"):
                if known is not None and known[1] == _ANY:
                    return known[0], None
                if self.full and ops[1].kind == "int" and ops[1].value == -1:
                    return (), None
            if op.startswith("s_xor_b") and own and known == (chain, _FIRST):
                state.masks[others[0].index] = chain, fewer  # the two sides together
                return fewer, None
        elif op.startswith("s_mov_b") and own:
            return chain, (chain, _ANY)
        elif op.startswith("s_xor_b") and own and known is not None and known[1] == _ANY:
            return chain, (known[0], chain)
        else:
            return chain, None
        return self._anew(i), None

    def _anew(self, i: int) -> Chain:
        """The chain behind an instruction that leaves nothing known of the lanes."""
        if not self.full:
            raise _Unproved  # lanes beyond the work-group may be on
        return (-3 - i,)


class _Meeting:
    """Numbers the places where paths with different chains meet."""

    def __init__(self) -> None:
        self.places = 1 << 32

    def join(self, into: _State, other: _State) -> bool:
        before = into.chain, len(into.filled), len(into.masks), sum(map(len, into.filled.values()))
        same = into.chain == other.chain
        common = into.chain
        if not same:
            k = 0
            while k < min(len(into.chain), len(other.chain)) and into.chain[k] == other.chain[k] != into.place:
                k += 1
            common = into.chain[:k]
            if not into.place:
                self.places += 1
                into.place = self.places
            into.chain = (*common, into.place)
        filled = {}
        for key, chain in into.filled.items():
            if key in other.filled:
                longer = max(chain, other.filled[key], key=len)
                if _within(longer, common):
                    filled[key] = longer
        into.filled = filled
        into.masks = {
            r: m
            for r, m in into.masks.items()
            if other.masks.get(r) == m and (same or (_within(m[0], common) and m[1] == _ANY))
        }
        return before != (into.chain, len(into.filled), len(into.masks), sum(map(len, into.filled.values())))
