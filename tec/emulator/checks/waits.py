"""`check="wait"`: is there a path on which an instruction touches a register whose load no wait has covered, or a barrier
comes while a store to LDS is on its way?

Hardware returns loads late; the program must wait (s_waitcnt, or gfx12's s_wait_*) before it uses the result. The emulator
completes loads at once, so it proves the waits instead, over all paths, before the kernel runs: a forward analysis whose state
is, for each register with an outstanding load, how many operations of the same counter were issued after it (the
fewest over the paths). A wait for n covers those with n or more behind them. Source: LLVM's AMDGPU usage guide, "Memory
model", and the ISA manuals' "Data dependency resolution". Scalar loads return out of order: only a wait for 0 covers them.

Which bytes of LDS a load straight into it fills is not known here, and kernels read one stage while the next is on its way. So what
is reported of such loads here is a read of LDS by a wave that never waited for any; `fills` looks at the others as the kernel runs.
"""

from __future__ import annotations

import re

from ..analyses.flow import forward
from ..analyses.roles import fills, returns
from ..decode.inst import Inst, KernelText, Operand
from ..errors import EmulationError

Reg = tuple[str, int, str]  # file, number, half: "l" or "h"
# counter -> register -> (operations behind it, the line that loads it)
State = dict[str, dict[Reg, tuple[int, Inst]]]

_LDS_STORE: Reg = ("lds", 0, "")  # in a state: the store to LDS that was issued last
# Of loads straight into LDS: those that are under way, and that no wait has come behind one so far.
_LDS_FILL: Reg = ("lds", 1, "")
_NEVER_WAITED, _TOKEN = "no wait for LDS", ("", 0, "")
_COUNTERS_OF_12 = ("loadcnt", "storecnt", "samplecnt", "dscnt", "kmcnt", "asynccnt")
_COUNT = re.compile(r"(vmcnt|lgkmcnt|vscnt|expcnt)\((\d+)\)")


def counter_of(inst: Inst, gfx: int) -> str | None:
    """The counter that a memory operation adds to."""
    op = inst.op
    if op.startswith(("s_load", "s_buffer", "s_atomic", "s_store")):
        return "kmcnt" if gfx >= 12 else "lgkmcnt"
    if op.startswith("ds_"):
        return "dscnt" if gfx >= 12 else "lgkmcnt"
    if op.startswith(("image_sample", "image_gather", "image_get_lod")):
        return "samplecnt" if gfx >= 12 else "vmcnt"
    if "_async_" in op:
        return "asynccnt"
    if op.startswith(("global_", "flat_", "scratch_", "buffer_", "tbuffer_", "image_", "cluster_")):
        if "_load" in op or "_get_resinfo" in op:
            return "loadcnt" if gfx >= 12 else "vmcnt"
        if "_store" in op or "_atomic" in op:
            gives = "_atomic" in op and returns(inst)
            if gfx >= 12:
                return "loadcnt" if gives else "storecnt"
            return "vmcnt" if gfx == 9 or gives else "vscnt"
    return None


def _halves(op: Operand, half: str = "") -> list[Reg]:
    return [(op.kind, op.index + k, h) for k in range(op.count) for h in half or op.half or "lh"]


def _registers(inst: Inst) -> list[Reg]:
    out = []
    for op in inst.operands:
        if op.is_reg:
            out += _halves(op)
    if inst.dual is not None:
        out += _registers(inst.dual)
    return out


def _loaded(inst: Inst) -> list[Reg]:
    """The registers, or halves of registers, that a load fills."""
    op = inst.op
    if not fills(inst):
        return []
    dst = inst.operands[0]
    if not dst.is_reg:
        return []
    half = ("h" if "d16_hi" in op else "l") if "d16" in op and not dst.half else ""
    return _halves(dst, half)


def stores_lds(inst: Inst) -> bool:
    """Whether an LDS instruction changes LDS (reads, swizzles and permutes do not)."""
    return inst.op.startswith("ds_") and not re.match(r"ds_(read|load|swizzle|b?permute|nop|consume)", inst.op)


def fills_lds(inst: Inst) -> bool:
    """Whether a load goes straight into LDS."""
    return "_load_lds_" in inst.op or "_load_async_to_lds_" in inst.op or "lds" in inst.mods


def empties_lds(inst: Inst) -> bool:
    """Whether a store takes its data straight out of LDS."""
    return "_async_from_lds_" in inst.op


def _reads_lds(inst: Inst) -> bool:
    return inst.op.startswith(("ds_read", "ds_load"))


def _family(inst: Inst) -> str:
    """Loads of one family return in the order of their issue; those of no family (scalar, flat) in any."""
    if inst.op.startswith("ds_"):
        return "lds"
    if inst.op.startswith(("image_sample", "image_gather", "image_get_lod")):
        return "samples"
    return "vector" if inst.op.startswith(("global_", "buffer_", "tbuffer_", "scratch_", "image_", "cluster_")) else ""


def _used(inst: Inst) -> tuple[list[Reg], list[Reg]]:
    """What must have arrived, and what need only have been issued by the same family: the destination of a load."""
    if not _loaded(inst) or not _family(inst):
        return _registers(inst), []
    first, *rest = inst.operands
    # A buffer atomic returns to the register that brings its data.
    if inst.op.startswith(("buffer_atomic", "image_atomic")):
        return _registers(inst), []
    return [r for op in rest if op.is_reg for r in _halves(op)], _halves(first)


def waits_of(inst: Inst) -> dict[str, int]:
    """counter -> how many may stay outstanding."""
    op, text = inst.op, inst.text
    if op == "s_waitcnt":
        found = {m[1]: int(m[2]) for m in _COUNT.finditer(text)}
        if not found:
            value = int(text.split()[1], 0)
            return {"vmcnt": 0, "lgkmcnt": 0} if value == 0 else {}
        return found
    if named := re.match(r"s_waitcnt_(vmcnt|lgkmcnt|vscnt|expcnt)$", op):
        return {named[1]: int(text.replace(",", " ").split()[-1], 0)}
    if op == "s_wait_idle":
        return dict.fromkeys(_COUNTERS_OF_12, 0)
    if op.startswith("s_wait_"):
        number = text.split()[-1]
        if not re.match(r"(0x)?[0-9a-f]+$", number):
            return {}
        n = int(number, 0)
        names = re.findall("|".join(_COUNTERS_OF_12), op)
        if "loadcnt_dscnt" in op or "storecnt_dscnt" in op:
            return {names[0]: n >> 8, "dscnt": n & 63}
        return dict.fromkeys(names, n)
    return {}


def store_counter(gfx: int) -> str:
    """The counter of stores to memory."""
    return {9: "vmcnt", 12: "storecnt"}.get(gfx, "vscnt")


def waits_for_stores(inst: Inst, gfx: int) -> bool:
    """Whether all stores from registers that the wave has issued have ended behind it."""
    return waits_of(inst).get(store_counter(gfx)) == 0


def _step(state: State, inst: Inst, gfx: int, kernel: str) -> None:
    """One instruction; raises where it touches a register that is still on its way."""
    for counter, n in waits_of(inst).items():
        pending = state.get(counter)
        if pending and _LDS_FILL in pending:
            del pending[_LDS_FILL]
            state.pop(_NEVER_WAITED, None)
        if pending:
            unordered = any(i.op.startswith("s_") for _, i in pending.values())
            if n == 0:
                pending.clear()
            elif not unordered:
                for reg in [r for r, (age, _) in pending.items() if age >= n]:
                    del pending[reg]
    used, filled = _used(inst)
    family = _family(inst)
    for counter, pending in state.items():
        touched = [r for r in used if r in pending]
        touched += [r for r in filled if r in pending and _family(pending[r][1]) != family]
        if touched:
            reg = touched[0]
            load = pending[reg][1]
            raise EmulationError(
                f"missing wait: {reg[0]}{reg[1]} is used while its load may still be on its way "
                f"(line {load.line}: {load.text.strip()})",
                kernel=kernel,
                line=inst.line,
                instruction=inst.text,
                hint=f"an s_wait on {counter} is missing between the two",
            )
    if _reads_lds(inst):
        _filled(state, inst, kernel)
    if inst.op in ("s_barrier", "s_barrier_signal") or empties_lds(inst):
        who = "it takes" if empties_lds(inst) else "other waves may read"
        for pending in state.values():
            if _LDS_STORE in pending:
                store = pending[_LDS_STORE][1]
                raise EmulationError(
                    f"missing wait: an LDS store may still be on its way at a {'store out of LDS' if empties_lds(inst) else 'barrier'} "
                    f"(line {store.line}: {store.text.strip()})",
                    kernel=kernel,
                    line=inst.line,
                    instruction=inst.text,
                    hint=f"{who} what was there before; wait for the store (lgkmcnt(0), dscnt 0) first",
                )
    issued = counter_of(inst, gfx)
    if issued is not None:
        pending = state.setdefault(issued, {})
        for reg, (age, load) in list(pending.items()):
            pending[reg] = (age + 1, load)
        for reg in _loaded(inst):
            pending[reg] = (0, inst)
        if stores_lds(inst):
            pending[_LDS_STORE] = (0, inst)
        if fills_lds(inst) and _NEVER_WAITED in state:
            pending[_LDS_FILL] = (0, inst)


def _filled(state: State, inst: Inst, kernel: str) -> None:
    """A read of LDS, which loads may fill; raises where no wait has come behind one so far."""
    for counter, pending in state.items():
        if _LDS_FILL in pending:
            load = pending[_LDS_FILL][1]
            raise EmulationError(
                f"missing wait: LDS is read while what a load brings there may still be on its way (line {load.line}: {load.text.strip()})",
                kernel=kernel,
                line=inst.line,
                instruction=inst.text,
                hint=f"no s_wait on {counter} stands between the two, nor behind an earlier such load",
            )


def _join(into: State, other: State) -> bool:
    """Merge, keeping the youngest; whether anything changed."""
    changed = False
    for counter, pending in other.items():
        mine = into.setdefault(counter, {})
        for reg, (age, load) in pending.items():
            if reg not in mine or mine[reg][0] > age:
                mine[reg] = (age, load)
                changed = True
    return changed


def check_waits(kernel: KernelText, gfx: int) -> None:
    """Raise `EmulationError` at the first use of a register that no wait covers on some path."""

    def copy(state: State) -> State:
        return {c: dict(p) for c, p in state.items()}

    def step(state: State, index: int) -> None:
        _step(state, kernel.insts[index], gfx, kernel.name)

    start: State = {_NEVER_WAITED: {_TOKEN: (0, kernel.insts[0])}}
    forward(kernel, start, copy, step, _join)
