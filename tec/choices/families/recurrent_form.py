"""Recurrent layers: what the templates of every target know of one."""

from __future__ import annotations

from typing import ClassVar

from ...ops.forms import Form
from ...ops.recurrent import Recurrence
from ...target import Target
from ...te import Tensor
from ..group import Group, extent
from ..parts import loops

TYPICAL = 16  # a number of steps or batch entries, where it is open
GPU_PANEL = 32  # units whose weights lie side by side: a wavefront or half of one reads whole cache lines


class RecurrentForm(loops.LoopForm):
    """What both templates know of the layer."""

    kind: ClassVar[str] = "recurrence"

    def __init__(self, group: Group, target: Target, form: Form, carriers: dict[int, Tensor]):
        super().__init__(group, target, form, carriers)
        self.r = Recurrence.of(form.attrs)
        steps, self.batch = (extent(n) for n in form.inputs[0].shape[:2])
        self.steps = TYPICAL if steps is None else steps
        self.hidden = self.r.hidden

    @property
    def macs(self) -> int:
        """Multiply-adds of a step of one entry in one direction."""
        return self.r.gates * self.hidden**2
