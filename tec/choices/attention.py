"""Attention's templates: which of them a group with an attention in it may take, the default's first.

`attention_cpu` and `attention_registers` (tile registers) are a CPU's; `attention_gpu`, `attention_matrix`, `attention_warpgroup` and `attention_turns` a GPU's.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ..ops.forms import Form
from ..target import Target
from . import attention_registers, loops
from .attention_cpu import CpuAttention
from .attention_gpu import GpuAttention
from .attention_loops import Kernel
from .attention_matrix import MatrixAttention
from .attention_turns import TurnAttention
from .attention_warpgroup import WarpgroupAttention
from .group import Group, extent


def match(group: Group, target: Target) -> Iterator[loops.LoopForm]:
    """The spaces of a group with an attention in it."""
    found = group.form("attention")
    if found is None:
        return
    form = found[0]
    sizes = [extent(d) for t in form.inputs[:3] for d in t.shape]
    if any(n == 0 for n in sizes):
        return
    if not target.is_gpu:
        kinds: list[type[CpuAttention]] = [CpuAttention]
        if attention_registers.fits(form, target):
            kinds.insert(0 if attention_registers.is_worth(form, target) else 1, attention_registers.TileAttention)
        yield from (kind(group, target, *found) for kind in kinds)
        return
    if all(isinstance(n, int) for n in _head_sizes(form)):
        units = [u(group, target, *found) for u in (WarpgroupAttention, TurnAttention, MatrixAttention)]
        # Few queries and many keys are divided over more work-groups by one of them alone.
        yield from sorted((u for u in units if u.fits_at_all), key=lambda u: u.cost(u.default).seconds)
        space = GpuAttention(group, target, *found)
        if space.fits_at_all:
            yield space


def _head_sizes(form: Form) -> tuple[Any, Any, Any]:
    g = Kernel.sizes_of(form)
    return g.heads, g.size, g.value_size
