"""What multiplies, for templates that bring an end of their own (`parts.ends`): the main loops that a target has for a product, one for each of some tiles."""

from __future__ import annotations

from collections.abc import Iterator

from ....ops.contraction import Contraction
from ....target import Target
from ....te import Tensor
from ...group import Group
from ...parts.ends import Mainloop
from . import matrix_units, padded_warpgroups, register_blocks


def of(c: Contraction, target: Target, group: Group, result: Tensor) -> Iterator[Mainloop]:
    """On a GPU's matrix units where there are some for the types, by warpgroups first, else on its vector units; none on a CPU. group, result: where the product stands."""
    if not target.is_gpu:
        return
    some = [*padded_warpgroups.loops(c, target, group, result), *matrix_units.loops(c, target)]
    yield from some or register_blocks.loops(c, target, group, result)
