"""How a GPU's kernels are launched: grids, work-groups and how much of the chip they fill.

In: a network with sizes that are numbers. Out: one `Launches` a kernel, found by running the host's programs without a device.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

from ..runtime.devices.surface import Dim3
from ..runtime.modules.program import LAUNCH
from ..runtime.plans.layout import sizes_of
from ..runtime.plans.plan import Call
from ..target import Target


@dataclass
class Launches:
    """The launches of one kernel in one run: how often each grid comes, and the bytes of shared memory that a launch asks for beside the kernel's own."""

    grids: Counter[Dim3] = field(default_factory=Counter)
    shared_bytes: int = 0

    @property
    def groups(self) -> int:
        """Work-groups of the launch that is there most often, the smallest of equal ones."""
        best = max(self.grids.items(), key=lambda x: (x[1], -_count(x[0])))
        return _count(best[0])


def _count(grid: Dim3) -> int:
    return grid[0] * grid[1] * grid[2]


def launches_of(net: Any) -> dict[str, Launches]:
    """{kernel: its launches}; nothing of a CPU's network. A step inside of a loop counts once."""
    found: dict[str, Launches] = {}
    if not Target(net.module.target).is_gpu:
        return found
    for step in net.plan.flat:
        if not isinstance(step, Call):
            continue
        function = net.module[step.function]
        if function.program is None:
            continue
        env = sizes_of(step, function.checker.params, net.plan)
        for entry in function.program.walk(env, lambda kernel: SimpleNamespace()):
            if entry[0] == LAUNCH:
                info = entry[-1]
                mine = found.setdefault(info.kernel, Launches())
                mine.grids[info.grid] += 1
                mine.shared_bytes = max(mine.shared_bytes, info.shared_bytes)
    return found


def units_of(net: Any) -> dict[str, Any] | None:
    """{"name", "units", "word"} of the GPU that the network is for; None for a CPU. A unit is a compute unit or a multiprocessor."""
    target = Target(net.module.target)
    if not target.is_gpu:
        return None
    word = "compute units" if target.kind == "rocm" else "multiprocessors"
    return {"name": target.machine.name, "units": target.machine.units, "word": word}


def words_of(mine: Launches, units: int, resident: int | None) -> list[tuple[str, str]]:
    """What the page says of a kernel's launches. resident: work-groups that a unit holds at once, where that is known."""
    grids = [f"{' x '.join(map(str, g))}" + (f" ({n} times)" if n > 1 else "") for g, n in mine.grids.most_common(4)]
    more = f" and {len(mine.grids) - 4} others" if len(mine.grids) > 4 else ""
    groups = mine.groups
    filled = f"{groups:,} on {units} units"
    if groups < units:
        filled += f": {units - groups} units have none"
    elif resident:
        filled += f", {resident} at once on each: {groups / (units * resident):.1f} rounds"
    return [("grid", ", ".join(grids) + more), ("work-groups", filled)]
