"""What of a kernel decides where it goes and what memory it touches: the rest need not be done to trace it.

A forward analysis over all paths: which registers hold values that came out of memory, or were computed from such ones. An instruction whose
result is one of those is left out of a trace (matrix products, the arithmetic on data, the loads themselves), as long as no address, branch,
lane mask or scalar register that one of these needs depends on it; else `data_only` gives None, and a trace runs the kernel whole. Loads of
kernel arguments (scalar loads by the register pair that the launch sets) are no data.

A lane that EXEC leaves out keeps its old value through a write; the analysis takes the write for all lanes'.
"""

from __future__ import annotations

import re

from ..decode.inst import Inst, KernelText, Operand
from ..translate.wave import EXEC, VCC
from .flow import forward
from .roles import is_memory, returns, roles

_SCC, FIRST_VGPR, _A = 255, 256, 2048  # numbers of registers here: SGPRs first, then SCC, VGPRs, AGPRs
_READS_SCC = re.compile(r"s_(addc|subb|cselect|cmov|cbranch_scc)")


def registers(op: Operand) -> range:
    """The numbers of an operand's registers; none of a constant's."""
    if op.kind not in ("s", "v", "a"):
        return range(0)
    base = {"s": 0, "v": FIRST_VGPR, "a": _A}[op.kind] + op.index
    return range(base, base + max(1, op.count))


def _stores(op: str) -> bool:
    return "_store" in op or "ds_write" in op


class _State(set[int]):
    """The registers that hold data; `kernarg`: those that hold the address of the kernel's arguments; `indexed`: under the index mode of registers."""

    def __init__(self, held: set[int] | None = None, kernarg: frozenset[int] = frozenset()):
        super().__init__(held or ())
        self.kernarg = kernarg
        self.indexed = False  # never at a branch: `Wave.check_index_mode`


def data_only(kernel: KernelText, kernarg: int, waits: frozenset[int] = frozenset()) -> frozenset[int] | None:
    """The places of the instructions that a trace may leave out, or None. `kernarg`: the first SGPR of the arguments' address. `waits`: places in loops that only wait for
    other work-groups; a trace goes through them once, whatever their branches say."""
    skip, kept = set[int](), set[int]()

    def step(state: _State, at: int) -> None:
        inst = kernel.insts[at]
        for half in (inst, inst.dual) if inst.dual is not None else (inst,):
            found = _step(state, half)
            if found is None and at not in waits:
                raise _Needed
            (skip if found and at not in waits else kept).add(at)

    def join(into: _State, other: _State) -> bool:
        if other <= into and into.kernarg <= other.kernarg:
            return False
        into |= other
        into.kernarg &= other.kernarg
        return True

    start = _State(None, frozenset((kernarg, kernarg + 1)) if kernarg >= 0 else frozenset())
    try:
        forward(kernel, start, lambda s: _State(s, s.kernarg), step, join)
    except _Needed:
        return None
    return frozenset(skip - kept)


class _Needed(Exception):
    """Data decides what a trace is to see."""


def _step(state: _State, inst: Inst) -> bool | None:
    """One instruction: whether it may be left out; None where data decides what a trace is to see."""
    op = inst.op
    if is_memory(op):
        return _memory(state, inst)
    results, sources = roles(inst)
    read = {r for o in sources for r in registers(o)}
    if _READS_SCC.match(op):
        read.add(_SCC)
    if op.startswith("s_cbranch_vcc") or "div_fmas" in op or (op.startswith("v_cndmask") and len(inst.operands) == 3):
        read |= {VCC, VCC + 1}
    if op.startswith("s_cbranch_exec"):
        read |= {EXEC, EXEC + 1}
    if op.startswith("s_set_gpr_idx"):
        state.indexed = not op.endswith("off")
    by_index = op.startswith("v_movrel") or (state.indexed and op.startswith("v_"))
    data = bool(read & state) or (by_index and any(FIRST_VGPR <= r < _A for r in state))
    if op.startswith("v_cmpx") or "saveexec" in op or "wrexec" in op:
        if data:
            return None
    if op.startswith(("s_cbranch", "s_setpc", "s_swappc", "v_movrel", "s_set_gpr_idx")) and data:
        return None
    written = {r for o in results for r in registers(o)}
    if data and by_index:
        written |= set(range(FIRST_VGPR, FIRST_VGPR + 256))
    if data and written & {EXEC, EXEC + 1, 124}:  # 124: M0
        return None
    if (
        op == "s_and_b32"
        and [o.text for o in sources[1:]] in (["0xffff"], ["65535"])
        and written == set(registers(sources[0]))
    ):
        pass  # an address has 48 bits: its high half is what it was
    elif op == "s_mov_b64" and sources and set(registers(sources[0])) <= state.kernarg and registers(sources[0]):
        state.kernarg |= frozenset(written)
    else:
        state.kernarg -= frozenset(written)
    if op.startswith(("s_cmp_", "s_bitcmp")) or (
        results and op.startswith("s_") and not op.startswith(("s_mov", "s_cselect", "s_cmov", "s_mul_i32"))
    ):
        written.add(_SCC)
    if data:
        state |= written
    else:
        state -= written
    return data and op.startswith(("v_", "ds_"))


def _memory(state: _State, inst: Inst) -> bool | None:
    """An access: its address must be no data. What a load brings is, but for kernel arguments."""
    op, ops = inst.op, inst.operands
    if op.startswith(("s_load", "s_buffer_load")):
        base = set(registers(ops[1])) if len(ops) > 1 else set()
        if any(set(registers(o)) & state for o in ops[1:]):
            return None
        written = set(registers(ops[0]))
        arguments = base <= state.kernarg and bool(base)
        state.kernarg -= frozenset(written)
        if arguments:
            state -= written
        else:
            state |= written
        return False
    if op.startswith(("s_atomic", "s_buffer_atomic", "s_store", "s_buffer_store")):
        if ("_atomic" in op and returns(inst)) or any(set(registers(o)) & state for o in ops[1:]):
            return None  # what it gives may decide anything: who came last
        return False
    to_lds = "_load_lds" in op or "lds" in inst.mods
    if op.startswith("ds_"):
        store = not ("read" in op or "load" in op or "rtn" in op)
        addresses = ops[:1] if store else ops[1:2]
    elif op.startswith(("buffer_", "tbuffer_", "image_")):
        store = _stores(op) or "atomic" in op
        addresses = ops[1:]
    else:
        store = _stores(op)
        gives = "atomic" in op and returns(inst)
        if "atomic" in op:
            addresses = [ops[1], *ops[3:]] if gives else [ops[0], *ops[2:]]
            store = not gives
        else:
            addresses = [ops[0], *ops[2:]] if store else ops[0:] if to_lds else ops[1:]
    if any(set(registers(o)) & state for o in addresses):
        return None
    if not store and ops and not to_lds:
        state |= set(registers(ops[0]))
    return True
