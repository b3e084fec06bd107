"""Attention's templates: which of them a group with an attention in it may take, the default's first.

`cpu` and `registers` (tile registers) are a CPU's; `gpu`, `matrix`, `warpgroup` and `ping_pong` a GPU's.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ....ops.attention import is_packed
from ....ops.forms import Form
from ....target import Target
from ...group import Group, extent
from ...parts import loops
from . import registers
from .cpu import CpuAttention
from .few_rows import FewRowsAttention
from .few_rows_matrix import FewRowsMatrixAttention
from .gpu import GpuAttention
from .kernel import Kernel, places_of
from .matrix import MatrixAttention
from .ping_pong import PingPongAttention
from .warpgroup import WarpgroupAttention


def match(group: Group, target: Target) -> Iterator[loops.LoopForm]:
    """The spaces of a group with an attention in it."""
    found = group.form("attention")
    if found is None:
        return
    form = found[0]
    sizes = [extent(d) for t in form.inputs[:3] for d in t.shape]
    if any(n == 0 for n in sizes):
        return
    if places_of(form) is not None:  # keys in blocks
        if not target.is_gpu:
            yield CpuAttention(group, target, *found)
        elif all(isinstance(n, int) for n in _head_sizes(form)):
            kinds = (FewRowsMatrixAttention, FewRowsAttention, MatrixAttention, GpuAttention)
            yield from (s for s in (kind(group, target, *found) for kind in kinds) if s.fits_at_all)
        return
    if not target.is_gpu:
        on_cpu: list[type[CpuAttention]] = [CpuAttention]
        if registers.fits(form, target) and not is_packed(form.inputs):
            on_cpu.insert(0 if registers.is_worth(form, target) else 1, registers.TileAttention)
        yield from (kind(group, target, *found) for kind in on_cpu)
        return
    if all(isinstance(n, int) for n in _head_sizes(form)):
        direct = FewRowsMatrixAttention(group, target, *found)
        if direct.fits_at_all:
            yield direct
        few = FewRowsAttention(group, target, *found)
        if few.fits_at_all:
            few.is_second = few.is_busy
            yield few
        # Copies of Hopper's engine bring numbers, and no codes with their scales.
        matrix = (*(() if is_packed(form.inputs) else (WarpgroupAttention, PingPongAttention)), MatrixAttention)
        units = [u(group, target, *found) for u in matrix]
        for u in units:
            u.is_alone = not few.fits_at_all or few.is_busy
        # Few queries and many keys are divided over more work-groups by one of them alone.
        yield from sorted((u for u in units if u.fits_at_all), key=lambda u: u.seconds)
        space = GpuAttention(group, target, *found)
        if space.fits_at_all:
            yield space


def _head_sizes(form: Form) -> tuple[Any, Any, Any]:
    g = Kernel.sizes_of(form)
    return g.heads, g.size, g.value_size
