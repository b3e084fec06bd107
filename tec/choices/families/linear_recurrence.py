"""Linear recurrences (`tec.ops.linear_recurrence`): tasks of some features of a head, over threads on a CPU, one a thread on a GPU."""

from __future__ import annotations

from typing import ClassVar

from ...ops.linear_recurrence import Scan
from ...te.ir_builder import BufferVar, IRBuilder
from ..cost import Footprint, on_cores
from ..group import extent
from ..parts import loops
from ..parts.counts import lanes_for
from ..space import Choice

_TOKENS = 16  # where their number is open


class LinearRecurrence(loops.LoopForm):
    """`lanes` features of a head a task: their part of the state is `lanes` times as many numbers as a key has."""

    template: ClassVar[str] = "linear recurrence"
    kind: ClassVar[str] = "linear_recurrence"
    stage = "scan"

    def read_form(self) -> None:
        self.heads, self.size, self.width = (int(extent(n) or 1) for n in self.form.inputs[4].shape)
        lanes = 1 if self.target.is_gpu else lanes_for("float32", self.target)
        # Two vectors are additions enough in flight; one, where that leaves threads without a task.
        wanted = [n * lanes for n in (2, 1)] if not self.target.is_gpu else [1]
        self.parameters = {"lanes": tuple(n for n in (*wanted, 4, 2, 1) if self.width % n == 0 and n <= max(wanted))}

    def sketch(self, choice: Choice) -> Footprint:
        tokens = extent(self.form.inputs[0].shape[0]) or _TOKENS
        work = float(tokens * self.heads * self.size * self.width)
        return on_cores(6 * work / choice["lanes"] / 2, 0.0, True, self.heads * self.width // choice["lanes"])

    def body(self, choice: Choice, ib: IRBuilder, sources: list[BufferVar], results: list[BufferVar]) -> None:
        scan = Scan(self.form.attrs, ib, sources, results, choice["lanes"])
        with loops.each(ib, self.target, scan.tasks, "task") as task:
            scan.run(task)
