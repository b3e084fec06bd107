"""The blocks of a kernel's text, where control goes from each, and forward analyses over all paths."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from ..decode.inst import KernelText

S = TypeVar("S")
_ENDS = ("s_branch", "s_cbranch", "s_endpgm", "s_setpc", "s_swappc", "s_call")


def block_ends(kernel: KernelText) -> dict[int, int]:
    """Each block of straight code: its first instruction, and the place behind its last one."""
    n = len(kernel.insts)
    starts = {0, *kernel.labels.values(), *(i + 1 for i, inst in enumerate(kernel.insts) if inst.op.startswith(_ENDS))}
    blocks = sorted(s for s in starts if s < n)
    return dict(zip(blocks, [*blocks[1:], n]))


def successors(kernel: KernelText, last: int) -> list[int]:
    """Where control goes from the instruction that ends a block; the number of instructions stands for beyond the text."""
    inst = kernel.insts[last]
    if last in kernel.jumps:
        return list(kernel.jumps[last])
    goals = []
    if inst.op.startswith(("s_branch", "s_cbranch")):
        goals.append(kernel.labels.get(inst.operands[0].text, len(kernel.insts)))
    if not inst.op.startswith(("s_branch", "s_endpgm", "s_setpc")):
        goals.append(last + 1)
    return goals


def forward(
    kernel: KernelText,
    start: S,
    copy: Callable[[S], S],
    step: Callable[[S, int], bool | None],
    join: Callable[[S, S], bool],
) -> None:
    """Run `step(state, index of the instruction)` until nothing changes; a step that gives False ends its path. `join(into, other)` merges and says
    whether `into` changed."""
    insts = kernel.insts
    ends = block_ends(kernel)
    entry: dict[int, S] = {0: start}
    work = [0]
    while work:
        at = work.pop()
        state = copy(entry[at])
        alive = True
        for i in range(at, ends[at]):
            if step(state, i) is False:
                alive = False
                break
        for goal in successors(kernel, ends[at] - 1) if alive else ():
            if goal >= len(insts):
                continue
            if goal not in entry:
                entry[goal] = copy(state)
                work.append(goal)
            elif join(entry[goal], state):
                work.append(goal)
