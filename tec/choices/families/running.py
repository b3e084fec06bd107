"""Running sums and products, as loops.

A running sum of n elements is n additions. On a GPU the threads of a work-group share a line ("wave"): each has a run of it, whose sums are added up by shuffles
within a wavefront and through shared memory across; of lines that lie side by side a thread has a run of one of them, so that neighbours read neighbours. Where lines are
few and long, work-groups share a line by parts, which a kernel ahead adds up (`running_shared`). Or it goes by chunks, whose sums are summed in turn, a kernel each.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar

from ...ops.forms import Form
from ...ops.registry import static_shape
from ...target import Target
from ...te import Tensor
from ...te.ir_builder import IRBuilder
from ..cost import Footprint
from ..group import Group
from ..parts import loops
from ..parts.pointwise import lanes_for
from ..space import Choice
from .running_scan import Scan
from .running_shared import ACROSS, KEPT, SharedColumns, SharedRow

CHUNK = 256  # elements that one GPU thread sums one after another
MANY_LINES = 4096  # lines that fill a GPU with a thread each
SHORT = 64  # elements of a line below which a thread has it for itself
_STRIP = 8  # vectors: four lines of a cache, in half of the registers of an AVX2 core
_MEETING = 16  # steps in which the threads of a work-group learn what is ahead of them: shuffles and a barrier
_WORTH = 0.8  # of a thread's time for a line, from which on a wavefront has it: prices are no better than that
PARTS = (2, 4, 8, 16, 32, 64)  # work-groups that share a line
LEAST_OF_A_PART = 256  # elements: a work-group of fewer waits longer than it adds


class Running(loops.LoopForm):
    """A running sum: `wave` threads a line in each of `parts` work-groups, or `chunk` elements of a line a thread, or 0 and 0 for the whole line."""

    template: ClassVar[str] = "running sum"
    neutral: ClassVar[Mapping[str, Any]] = {"parts": 1}

    def __init__(self, group: Group, target: Target, form: Form, carriers: dict[int, Tensor]):
        super().__init__(group, target, form, carriers)
        self.lines = loops.Lines(static_shape(form.inputs[0]), form.attrs["axis"])
        chunks = (CHUNK, 64, 128, 512) if target.is_gpu else ()
        self.parameters = {
            "chunk": (0, *(n for n in chunks if self.lines.n > 2 * n)),
            "wave": (0, 64, 128, 256, 512, 1024) if target.is_gpu else (0,),
            "parts": (1, *(p for p in PARTS if self.lines.n >= p * LEAST_OF_A_PART)) if target.is_gpu else (1,),
        }

    @property
    def default(self) -> Choice:
        n, count = self.lines.n, self.lines.count
        if self.target.is_gpu and n >= SHORT and count * n < loops.LIMIT // 2:
            waves = (512,) if self.lines.inner > 1 else (256, 64, 128, 512, 1024)
            some = (self.choice(chunk=0, wave=w, parts=p) for w in waves for p in self.parameters["parts"])
            return min(some, key=lambda c: self.cost(c).seconds)
        apart = self.target.is_gpu and n > 2 * CHUNK and count < MANY_LINES
        alone = self.choice(chunk=CHUNK if apart else 0, wave=0, parts=1)
        # A thread waits for each element of its line; of few short lines a wavefront each has a part of that.
        if self.target.is_gpu and self.lines.inner == 1 and not apart and count * n < loops.LIMIT // 2:
            together = self.choice(chunk=0, wave=64, parts=1)
            if self.cost(together).seconds < _WORTH * self.cost(alone).seconds:
                return together
        return alone

    def why_not(self, choice: Choice) -> str | None:
        if choice["parts"] > 1 and not choice["wave"]:
            return "work-groups share a line by parts where threads do"
        return "a line goes by chunks or by a work-group" if choice["chunk"] and choice["wave"] else None

    def sketch(self, choice: Choice) -> Footprint:
        """Elements that one thread adds one after another, in passes of one kernel each."""
        chunk, wave, n, count = choice["chunk"], choice["wave"], self.lines.n, self.lines.count
        if not wave:
            return self.chains(2 * chunk, count * -(-n // chunk), 3) if chunk else self.chains(n, count)
        # Work-groups that share a line add up their parts first, in a kernel of their own.
        beside = min(count, ACROSS) if self.lines.inner > 1 else 1
        threads = -(-count // beside) * wave * choice["parts"]
        each = n * beside / (wave * choice["parts"])
        turns = 1 if beside > 1 else math.ceil(each / KEPT)
        whole = self.chains(each + _MEETING * turns, threads)
        if choice["parts"] == 1:
            return whole
        sums = replace(whole.kernels[0], memory_bytes=whole.kernels[0].memory_bytes / 2)
        return Footprint((sums, *whole.kernels))

    def _strip(self) -> tuple[int, int] | None:
        """Lanes of a vector of neighbouring lines, and how many such vectors go down the lines together: on a CPU whose sums are of the elements' own type. A vector alone
        takes part of each line of the cache that it meets, and comes to the next row in another page."""
        x, after = self.form.inputs[0], self.lines.after
        lanes = lanes_for(x.dtype, self.target)
        if self.target.is_gpu or not after or after[-1] < lanes or x.dtype != self.form.attrs["acc"]:
            return None
        vectors = -(-after[-1] // lanes)
        spread = max(1, self.lines.count // after[-1] * vectors // self.target.machine.units)  # of each core
        return lanes, min(vectors, spread, _STRIP)

    def tensors(self, choice: Choice) -> list[Tensor]:
        x = self.form.inputs[0]

        def body(ib: IRBuilder, sources: list[Any], results: list[Any]) -> None:
            scan = Scan(self, self.lines, ib, sources[0], results[0])
            if choice["wave"]:
                (SharedColumns if self.lines.inner > 1 else SharedRow)(scan, choice["wave"], choice["parts"]).run()
            elif choice["chunk"]:
                scan.by_chunks(choice["chunk"])
            elif (strip := self._strip()) is not None:
                scan.by_strips(*strip)
            else:
                with loops.each(ib, self.target, self.lines.count, "line") as line:
                    scan.write(line, 0, self.lines.n, loops.scalar(ib, scan.wide, "acc", scan.one))

        return loops.extern(self.form.attrs["name"], [x], [(static_shape(x), x.dtype)], body)
