"""Choices: how a group of te tensors is computed on a machine, as values.

`spaces(outputs, target)` lists what templates can do with a group; `schedule(outputs, target)` takes the choice that was recorded for it, or that the caller
gives, or the first space's default. One file a family: products, convolutions, rows, reductions, sorts, scatters, and stages one after another
(`stages`) for what is left. No operator asks for the target: where it has other forms than its te definition, it carries a note of them
(`tec.ops.forms`) and a template here makes them.

    group -> [Space, ...] -> choice (a dict) -> Scheduled (a schedule, and the tensors it is of)
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ..errors import ScheduleError
from ..target import Target, as_target
from ..te import Tensor
from . import (
    attention,
    convolutions,
    gathers,
    mx_products,
    mx_quantize,
    packed,
    packed_bytes,
    packed_gpu,
    products,
    projections,
    records,
    recurrent,
    reductions,
    relayouts,
    rows,
    scatters,
    sorts,
    stages,
    transposes,
)
from .group import Group, size_of
from .space import Choice, Cost, Scheduled, Space

# In this order: the first space that a family yields is the default.
FAMILIES = (
    attention,
    recurrent,
    sorts,
    scatters,
    relayouts,
    packed_bytes,
    packed,
    packed_gpu,
    mx_products,
    mx_quantize,
    projections,
    products,
    convolutions,
    rows,
    reductions,
    transposes,
    gathers,
    stages,
)


def spaces(outputs: Iterable[Tensor], target: Target | str | None = None) -> list[Space]:
    """What templates can do with the group that computes `outputs`, the default's first."""
    group, tgt = Group.of(outputs), as_target(target)
    # Nothing to compute has no tiles: loops of no trips will do.
    families = (stages,) if all(size_of(t.shape) == 0 for t in group.outputs) else FAMILIES
    found: list[Space] = [s for family in families for s in family.match(group, tgt)]
    return sorted(found, key=lambda s: s.is_second)


def schedule(
    outputs: Iterable[Tensor], target: Target | str | None = None, choice: Mapping[str, Any] | None = None
) -> Scheduled:
    """A schedule for the group that computes `outputs`: by `choice`, by what is recorded for it (`records.using`), or by default. Raises
    ScheduleError for a choice that is not legal."""
    found = spaces(outputs, target)
    if choice is not None:
        named = choice.get("template", found[0].template)
        space = next((s for s in found if s.template == named), None)
        if space is None:
            raise ScheduleError(
                f"no template {named!r} serves this group",
                hint="there are: " + ", ".join(s.template for s in found),
                locate=False,
            )
        return space.apply(choice)
    return records.recorded(found) or found[0].apply()


__all__ = ["Choice", "Cost", "Group", "Scheduled", "Space", "records", "schedule", "spaces"]
