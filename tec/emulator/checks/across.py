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

from ..analyses.flow import forward
from ..decode.inst import Inst, KernelText, generation
from .order import coherent, in_global
from .waits import counter_of, fills_lds, stores_lds, waits_of

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


_MOST_BEHIND = 64  # operations that a wait can leave on their way: its field has six bits


def _unwaited(kernel: KernelText, chip: str, gfx: int) -> frozenset[int]:
    """Plain stores to global memory behind which on every path that has one a barrier comes before a wait that covers them: one for n covers what has n or more behind it."""
    met: set[int] = set()
    waited: set[int] = set()

    def step(state: dict[int, tuple[str, int]], at: int) -> None:
        """state: of the stores that no barrier and no wait has come behind, the counter and the most operations of it behind the store."""
        inst = kernel.insts[at]
        for counter, n in waits_of(inst).items():
            covered = [place for place, (own, behind) in state.items() if own == counter and behind >= n]
            waited.update(covered)
            for place in covered:
                del state[place]
        if inst.op in ("s_barrier", "s_barrier_signal"):
            met.update(state)
            state.clear()
        issued = counter_of(inst, gfx)
        if issued is None:
            return
        for place, (own, behind) in state.items():
            if own == issued:
                state[place] = own, min(behind + 1, _MOST_BEHIND)
        if in_global(inst.op) and "_store" in inst.op and not coherent(inst, chip):
            state[at] = issued, 0

    def join(into: dict[int, tuple[str, int]], other: dict[int, tuple[str, int]]) -> bool:
        grown = {p: v for p, v in other.items() if p not in into or into[p][1] < v[1]}
        into |= grown
        return bool(grown)

    start: dict[int, tuple[str, int]] = {}
    forward(kernel, start, dict, step, join)
    return frozenset(met - waited)
