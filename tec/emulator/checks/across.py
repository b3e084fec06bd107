"""Accesses that reach across the barrier beside them, for the race check: they count in both of its intervals.

A barrier orders what each wave has finished before it. Not ordered are

- stores to LDS between the signal of a barrier and the wait for it (gfx12): another wave may have passed by then;
- stores to global memory that no wait covers before the barrier, where the waves of a work-group may run on two compute units (gfx10 to gfx12 in their
  work-group processor mode; gfx1250), and so have no cache in common;
- there, in that mode, loads behind a barrier with nothing that drops what the compute unit's cache holds: they may find what it held before.

Source: LLVM's AMDGPU usage guide, "Memory model": what it puts into fences of work-group scope. Only what is so on every path is taken.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ..analyses.flow import block_ends, forward, successors
from ..decode.inst import Inst, KernelText, generation
from .order import coherent, in_global, waits_for_stores
from .waits import fills_lds, stores_lds

_NONE: frozenset[int] = frozenset()
_WORK_GROUP_MODE = 1 << 29  # in a kernel descriptor's first word of registers, from gfx10 on; gfx1250 has none


@dataclass(frozen=True, slots=True)
class Across:
    """Places in a kernel's text: stores that count in the next interval too, loads that count in the one before."""

    lds_stores: frozenset[int] = _NONE
    stores: frozenset[int] = _NONE
    loads: frozenset[int] = _NONE


def find_across(kernel: KernelText, chip: str, rsrc1: int) -> Across:
    """The accesses of a kernel that no barrier orders; `rsrc1` from its descriptor."""
    gfx = generation(chip)
    if gfx < 10 or not any(i.op.startswith("s_barrier") for i in kernel.insts):
        return Across()
    lds = _always(kernel, {"s_barrier_signal"}.__contains__, {"s_barrier_wait"}.__contains__, stores_lds)
    if chip == "gfx1250":
        return Across(lds, _unwaited(kernel, chip, gfx))
    if not rsrc1 & _WORK_GROUP_MODE:
        return Across(lds)
    ends = {"s_barrier", "s_barrier_wait"}.__contains__
    drops = {"buffer_gl0_inv", "global_inv"}.__contains__
    return Across(lds, _unwaited(kernel, chip, gfx), _always(kernel, ends, drops, lambda i: _loads(i, chip)))


def _loads(inst: Inst, chip: str) -> bool:
    """Whether it may find what the compute unit's cache held before."""
    return (
        in_global(inst.op)
        and "_load" in inst.op
        and not (coherent(inst, chip) or "scope" in inst.mods or fills_lds(inst) or inst.op.startswith("s_"))
    )


def _always(
    kernel: KernelText, begins: Callable[[str], bool], ends: Callable[[str], bool], wanted: Callable[[Inst], bool]
) -> frozenset[int]:
    """The wanted instructions that on every path stand behind an opcode that `begins`, with none between that `ends`."""
    found: dict[int, bool] = {}

    def step(state: list[bool], at: int) -> None:
        inst = kernel.insts[at]
        if begins(inst.op):
            state[0] = True
        elif ends(inst.op):
            state[0] = False
        elif wanted(inst):
            found[at] = state[0] and found.get(at, True)

    def join(into: list[bool], other: list[bool]) -> bool:
        lost = into[0] and not other[0]
        into[0] = into[0] and other[0]
        return lost

    forward(kernel, [False], list, step, join)
    return frozenset(at for at, so in found.items() if so)


_BARRIER, _WAIT, _END = 1, 2, 4  # what comes first behind a place, on some path


def _unwaited(kernel: KernelText, chip: str, gfx: int) -> frozenset[int]:
    """Plain stores to global memory behind which on every path that has one a barrier comes before a wait for stores."""
    insts = kernel.insts

    def event(inst: Inst) -> int:
        if inst.op in ("s_barrier", "s_barrier_signal"):
            return _BARRIER
        return _WAIT * (waits_for_stores(inst, gfx) or "vscnt" in inst.op or "storecnt" in inst.op)

    ends = block_ends(kernel)
    first = {at: next((e for e in map(event, insts[at:end]) if e), 0) for at, end in ends.items()}
    entry = dict.fromkeys(ends, 0)
    leaving = dict.fromkeys(ends, 0)
    changed = True
    while changed:
        changed = False
        for at in reversed(list(ends)):
            goals = successors(kernel, ends[at] - 1)
            now = 0
            for goal in goals:
                now |= entry[goal] if goal < len(insts) else _END
            leaving[at] = now if goals else _END
            mine = first[at] or leaving[at]
            changed |= mine != entry[at]
            entry[at] = mine
    found = set()
    for at, end in ends.items():
        behind = leaving[at]
        for i in range(end - 1, at - 1, -1):
            inst = insts[i]
            if in_global(inst.op) and "_store" in inst.op and not coherent(inst, chip):
                if behind & _BARRIER and not behind & _WAIT:
                    found.add(i)
            behind = event(inst) or behind
    return frozenset(found)
