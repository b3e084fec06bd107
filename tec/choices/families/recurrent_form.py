"""Recurrent layers: what the templates of every target know of one."""

from __future__ import annotations

from typing import ClassVar

from ...ops.recurrent import Recurrence
from ..group import extent
from ..parts import loops

TYPICAL = 16  # a number of steps or batch entries, where it is open
GPU_PANEL = 32  # units whose weights lie side by side: a wavefront or half of one reads whole cache lines


class RecurrentForm(loops.LoopForm):
    """What both templates know of the layer."""

    kind: ClassVar[str] = "recurrence"

    def read_form(self) -> None:
        self.r = Recurrence.of(self.form.attrs)
        steps, self.batch = (extent(n) for n in self.form.inputs[0].shape[:2])
        self.steps = TYPICAL if steps is None else steps
        self.hidden = self.r.hidden

    @property
    def macs(self) -> int:
        """Multiply-adds of a step of one entry in one direction."""
        return self.r.gates * self.hidden**2
