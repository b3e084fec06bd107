"""The network's working memory over its steps: which value lies where, and from which step to which.

In: a network with sizes that are numbers. Out: plain data.
"""

from __future__ import annotations

from typing import Any

from ..runtime.plans.memory_plan import lifetimes


def memory_of(net: Any) -> dict[str, Any] | None:
    """{"bytes", "bound", "blocks": [[name, type, offset, bytes, first step, last step]]} of the arena; None where nothing lies in it, or where steps are
    repeated, since a loop's steps have no one place on a line. `bound`: the most bytes that live at one step.
    """
    plan = net.plan
    if plan.holders or not plan.arena_bytes:
        return None
    blocks: list[list[Any]] = []
    for x in lifetimes(plan, {}):
        v = plan.values[x.name]
        if isinstance(v.offset, int):
            words = f"{v.dtype} {'x'.join(map(str, v.shape))}"
            blocks.append([x.name, words, v.offset, x.nbytes, x.first, x.last])
    change: dict[int, int] = {}
    for *_, nbytes, first, last in blocks:
        change[first] = change.get(first, 0) + nbytes
        change[last + 1] = change.get(last + 1, 0) - nbytes
    most = now = 0
    for step in sorted(change):
        now += change[step]
        most = max(most, now)
    return {"bytes": int(plan.arena_bytes), "bound": most, "blocks": blocks}
