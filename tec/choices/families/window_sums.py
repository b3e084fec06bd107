"""Convolutions as sums on AMD: a work-group for each output, whose threads share its window, or a thread for each output of a short window.

A tile of a product has at least 16 by 16 sums, which few outputs do not fill, and goes along a long window a step at a time, each of which waits for its elements. Sums by themselves find each
element's place anew, which only few outputs are worth. The price is of what their threads do, and wait for.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import ClassVar

from ...ir.dtype import dtype_info
from ...locks import cached_property
from ...target import Target, latency_ns, level_gbps
from ..group import Group, extent_of, is_used, reads_of
from ..rules import figures
from ..rules.figures import Figures
from ..space import Choice, Cost, Space
from .gpu_reductions import WRITTEN_OUT
from .priced_reductions import ModelledReduction

_FIGURES = "window sums"  # whose figures are asked: what wavefronts issue, and wait for
_WAVES = (1, 2, 4, 8)  # wavefronts that share a sum
_ROWS = 4  # sums of a work-group whose wavefronts have one each


class WindowSums(ModelledReduction):
    """The choices of sums for a convolution, by what its windows take."""

    template: ClassVar[str] = ModelledReduction.template

    @classmethod
    def match(cls, group: Group, target: Target) -> WindowSums | None:
        """Of a convolution of known sizes on an AMD GPU, of windows or of groups."""
        form = group.form("product")
        found = group.ended_sum()
        if form is None or found is None or not target.machine.priced_by_model:
            return None
        c = form[0].attrs["contraction"]
        if c.convolved is None and c.fold is None:
            return None
        space = cls(group, target, *found)
        return space if space.outputs and space.length and next(space._few(), None) is not None else None

    def are_quicker(self, product: Space) -> bool:
        """Than a product's default by more than the error of the prices."""
        return self.seconds < self._known_of_windows["worth"] * product.seconds

    @cached_property
    def _known_of_windows(self) -> Figures:
        return figures.of(_FIGURES, self.target)

    @property
    def _sums(self) -> Choice:
        return min(self._few(), key=lambda c: self.cost(c).seconds)

    def _few(self) -> Iterator[Choice]:
        """Wavefronts that share a sum; a thread alone where LLVM writes the window out, so that its loads do not wait for each other."""
        wave = self.target.wavefront_size
        some = [self._choice(True, n * wave) for n in _WAVES]
        some.insert(0, {**some[0], "rows": _ROWS})
        if (self.length or 0) <= WRITTEN_OUT:
            some.append(self._choice(False, 64))
        names = self.parameters
        yield from (c for c in some if all(c.get(n, 1) in names[n] for n in names) and self.why_not(c) is None)

    def cost(self, choice: Choice) -> Cost:
        if choice["parts"] > 1 or choice["wide"] or choice["piece"]:
            return super().cost(choice)
        machine, chip, wave = self.target.machine, self.target.chip, self.target.wavefront_size
        known = self._known_of_windows
        sums, own = self.outputs or 1, self._own(choice)
        waves = sums * -(-choice["threads"] // wave) if choice["shared"] else -(-sums // wave)
        groups = -(-sums // choice["rows"]) if choice["shared"] else -(-sums // choice["threads"])
        # Units that have more work-groups than others are waited for.
        busy = math.ceil(groups / machine.units) * machine.units / groups
        operations = known["around_operations"] + known["operations"] * own
        issue = busy * waves * wave * operations / (chip.simds * chip.simd_lanes * machine.units)
        wait = latency_ns(machine, "memory") * 1e-9
        issued, waited = issue / machine.clock_hz, own * known["shared_wait" if choice["shared"] else "own_wait"] * wait
        most, limit = max(
            (issued, "issue"), (waited, "latency"), (self._line_seconds if choice["shared"] else 0.0, "L1")
        )
        return Cost(machine.launch_seconds + known["around_waits"] * wait + most, limit)

    @cached_property
    def _line_seconds(self) -> float:
        """In which the first caches give the lines that lanes along a sum ask for: one for each run of neighbours, which for a plain image is a row of the window at most."""
        machine, lines = self.target.machine, 0.0
        level = machine.level("L1")
        assert level is not None
        for e in (e for e in reads_of(self.red) if e.indices):
            run = math.prod(extent_of(a) or 1 for a in self.red.reduce_axis if is_used(a.var, e.indices[-1]))
            lines += max(1 / run, dtype_info(e.tensor.dtype).bytes / level.line_bytes)
        sums = (self.outputs or 1) * (self.length or 1)
        return sums * lines * level.line_bytes / (level_gbps(machine, "L1") * 1e9)
