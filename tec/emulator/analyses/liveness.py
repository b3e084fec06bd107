"""How many vector registers hold a value that is still read, before each instruction of a kernel.

In: a kernel's text. Out: a count an instruction. A backward analysis over all paths. A write counts for all lanes (EXEC is not looked at), so a
register that is filled in two branches, lane by lane, counts from the later of them: what is shown is the least that the code needs, and the
peak may stay below what LLVM allocated.
"""

from __future__ import annotations

from ..decode.inst import Inst, KernelText
from .flow import block_ends, successors
from .roles import roles
from .skeleton import FIRST_VGPR, registers


def live_vgprs(text: KernelText) -> list[int]:
    """Registers of both files (VGPRs and AGPRs) that are live before each instruction."""
    effects = [_effects(inst) for inst in text.insts]
    n = len(effects)
    ends = block_ends(text)
    starts = list(ends)
    follow = {at: [g for g in successors(text, ends[at] - 1) if g < n] for at in starts}
    before: dict[int, list[int]] = {at: [] for at in starts}
    for at, some in follow.items():
        for goal in some:
            before[goal].append(at)
    entry = dict.fromkeys(starts, 0)
    out = [0] * n
    work = list(starts)
    while work:
        at = work.pop()
        live = 0
        for goal in follow[at]:
            live |= entry[goal]
        for i in range(ends[at] - 1, at - 1, -1):
            written, read = effects[i]
            live = live & ~written | read
            out[i] = live.bit_count()
        if live != entry[at]:
            entry[at] = live
            work += before[at]
    return out


def _effects(inst: Inst) -> tuple[int, int]:
    """(written, read) vector registers, a bit each."""
    written = read = 0
    for half in (inst, inst.dual) if inst.dual is not None else (inst,):
        results, sources = roles(half)
        for o in results:
            for r in registers(o):
                written |= 1 << r
        for o in sources:
            for r in registers(o):
                read |= 1 << r
    return written >> FIRST_VGPR, read >> FIRST_VGPR
