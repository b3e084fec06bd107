"""The functions of a network's groups: the one that equal groups share, made of the first choices that lower.

Program (`programs`) -> Unit (the program scheduled, as loops; a size that is open may have classes, `size_classes`)
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import field, replace
from typing import Any

from ..choices import Chain, Group, Made, Refused, chain, is_strict
from ..driver import Building, Lowered, lowered
from ..ops.guards import Guard
from ..records import dataclass
from .beside import joined
from .passes.fuse import FusedGroup
from .programs import Program, naming, program_of
from .size_classes import Classes, classes_of, merged, variants
from .sizes import GroupSizes


@dataclass
class Unit:
    """One function to be made, and the groups that run it."""

    name: str
    inputs: list[int]  # which of the group's inputs are arguments
    guards: list[Guard] = field(default_factory=list)  # what its sizes must satisfy, under the names it has for them
    # The group's signature and the choice that was taken for it; where an open size has classes, those of the classes by their last size.
    chosen: dict[str, Any] = field(default_factory=dict)
    groups: list[FusedGroup] = field(default_factory=list)
    refused: list[Refused] = field(default_factory=list)  # choices that could not be made, once `settle` was called
    chain: Chain | None = None  # what else may serve, until all code is there
    classes: Classes | None = None  # of its open size
    # Which inputs are arguments, of each group that runs in its launch.
    beside: list[list[int]] = field(default_factory=list)

    def likely(self) -> AbstractContextManager[object]:
        """Inside of the block its candidates take the open size for what they are made for."""
        return nullcontext() if self.classes is None else self.classes.likely(self.classes.middle)

    def settle(self) -> None:
        """All code is there: what serves stands, and what else might have is let go."""
        if self.chain is not None:
            with self.likely():
                self.refused, self.chain = self.chain.close(), None


def make_unit(
    group: FusedGroup,
    number: int,
    building: Building,
    sizes: GroupSizes,
    guards: list[Guard],
    beside: Sequence[FusedGroup] = (),
) -> Unit:
    """The function of a group: the first of its candidates that lowers and that code can be made of, in `building`; where a size is open, of one candidate for
    each of its classes. Where LLVM refuses it later, the next takes its place, for all sizes. beside: what the function makes as well (`beside.neighbours`)."""
    program = replace(program_of(group, number, sizes, guards, building.target), early=building.early)
    signature = Group.of(program.outputs).signature
    others = [replace(program_of(g, number, sizes, guards, building.target), early=building.early) for g in beside]

    def bound(name: str, size: int) -> Program:
        return replace(
            program_of(group, number, sizes.bound(name, size), guards, building.target), early=building.early
        )

    with naming(group, sizes):
        classes = None if others else classes_of(program, building.target, bound)
    held = [guard for p in (program, *others) for guard in p.guards]
    unit = Unit(program.name, program.inputs, held, classes=classes, beside=[p.inputs for p in others])

    def take(made: Made) -> None:
        unit.chosen = {"signature": signature, "choice": made.choice}
        if classes is None or not in_classes(made, classes):
            building.add(_whole(made, program, others, building), instead)

    def in_classes(made: Made, classes: Classes) -> bool:
        """Whether code for the classes is begun with."""
        try:
            found = variants(program, classes, building, made)
            building.add(merged(program, classes, made.lowered, found), instead)
        except Exception:  # what serves all sizes serves them too
            if is_strict():
                raise
            return False
        unit.chosen["classes"] = {str(v.end or "more"): v.made.choice for v in found}
        return True

    def instead(error: Exception) -> Lowered:
        """What serves all sizes, after the classes; then the next candidate."""
        assert unit.chain is not None and unit.chain.made is not None
        if unit.chosen.pop("classes", None) is not None:
            return unit.chain.made.lowered
        with naming(group, sizes), unit.likely():
            made = unit.chain.again(error)
        unit.chosen = {"signature": signature, "choice": made.choice}
        return _whole(made, program, others, building)

    with naming(group, sizes), unit.likely():
        unit.chain = chain(program.outputs, building.target, program.loops, building.checked)
        unit.chain.first(take)
    return unit


def _whole(made: Made, program: Program, others: Sequence[Program], building: Building) -> Lowered:
    """The function of what was chosen for a program, with what runs beside it."""
    if not others:
        return made.lowered
    with building.target:
        func = joined(program.loops(made.scheduled), others, building.target)
    return lowered(func, building.target, building.checked, fresh=True)
