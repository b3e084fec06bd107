"""A forward analysis of a kernel's text over all paths: what `waits` and `hazards` have alike."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from .asmparse import KernelText

S = TypeVar("S")


def forward(
    kernel: KernelText,
    start: S,
    copy: Callable[[S], S],
    step: Callable[[S, int], None],
    join: Callable[[S, S], bool],
) -> None:
    """Run `step(state, index of the instruction)` until nothing changes. `join(into, other)` merges and says whether `into` changed."""
    n = len(kernel.insts)
    starts = {0, *kernel.labels.values()}
    starts |= {
        i + 1 for i, inst in enumerate(kernel.insts) if inst.op.startswith(("s_branch", "s_cbranch", "s_endpgm"))
    }
    blocks = sorted(s for s in starts if s < n)
    end_of = {b: (blocks[k + 1] if k + 1 < len(blocks) else n) for k, b in enumerate(blocks)}
    entry: dict[int, S] = {0: start}
    work = [0]
    while work:
        at = work.pop()
        state = copy(entry[at])
        goals = []
        for i in range(at, end_of[at]):
            inst = kernel.insts[i]
            step(state, i)
            if inst.op.startswith(("s_branch", "s_cbranch")):
                goals.append(kernel.labels.get(inst.operands[0].text, n))
        if kernel.insts[end_of[at] - 1].op not in ("s_branch", "s_endpgm"):
            goals.append(end_of[at])
        for goal in goals:
            if goal >= n:
                continue
            if goal not in entry:
                entry[goal] = copy(state)
                work.append(goal)
            elif join(entry[goal], state):
                work.append(goal)
