"""Running sums and products, as loops.

A running sum of n elements is n additions. On a GPU the threads of a work-group share a line ("wave"): each has a run of it, whose sums are added up by shuffles
within a wavefront and through shared memory across; of lines that lie side by side a thread has a run of one of them, so that neighbours read neighbours. Where lines are
few and long, work-groups share a line by parts, which a kernel ahead adds up (`running_shared`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import ClassVar

from ...ir.dtype import dtype_info
from ...ops.forms import Form
from ...ops.registry import static_shape
from ...target import Target
from ...te.ir_builder import BufferVar, IRBuilder
from ..cost import Footprint, Kernel
from ..footprint import SEGMENT_BYTES
from ..parts import loops
from ..parts.counts import lanes_for, moved_bytes
from ..space import Choice
from .running_scan import AHEAD, Scan, pitch
from .running_shared import ACROSS, KEPT, SharedColumns, SharedRow

SHORT = 64  # elements of a line below which a thread has it for itself
_STRIP = 8  # vectors: four lines of a cache, in half of the registers of an AVX2 core
_OF_L2 = 8  # part of the second cache that the sums of a wide strip take: rows come and go beside them, and whole rows are as prefetchers like them
_MEETING = 16  # steps in which the threads of a work-group learn what is ahead of them: shuffles and a barrier
_WORTH = 0.8  # of a thread's time for a line, from which on a wavefront has it: prices are no better than that
PARTS = (2, 4, 8, 16, 32, 64)  # work-groups that share a line
# Elements of a line that its parts may reach beyond it: each of 64 less than a tile, of 1,024 threads with some dozens each.
_MOST_BEYOND = 1 << 22
# Lines of a tile, and threads: two wavefronts, or one, whose tile of short lines leaves room for many beside it.
_TILE = 64
_TILE_BYTES = 1 << 15  # of a tile at most: two are under way at once on every chip
_ISSUED = 8  # operations of an element that comes, is added or goes: its place by a division, and the access
_VECTOR_BYTES = 16  # the widest load of a GPU's thread
LEAST_OF_A_PART = 256  # elements: a work-group of fewer waits longer than it adds


class Running(loops.LoopForm):
    """A running sum: `wave` threads a line in each of `parts` work-groups, or 0 where a thread has a line; `tile`: of so many lines that a work-group brings through shared
    memory, or 0."""

    template: ClassVar[str] = "running sum"
    former: ClassVar[Mapping[str | tuple[str, str], str]] = {"chunk": ""}
    kind: ClassVar[str] = "running"

    @classmethod
    def serves(cls, form: Form, target: Target) -> bool:
        return loops.lines_fit(form)

    def read_form(self) -> None:
        self.stage = self.form.attrs["name"]
        self.lines = loops.Lines(static_shape(self.form.inputs[0]), self.form.attrs["axis"])
        # A work-group's last tile may reach beyond a line, and its places too are int32.
        may_share = self.target.is_gpu and self.lines.n < loops.LIMIT - _MOST_BEYOND
        self.parameters = {
            "wave": (0, 64, 128, 256, 512, 1024) if may_share else (0,),
            "parts": (
                1,
                *(p for p in PARTS if self.lines.n >= p * LEAST_OF_A_PART and self.lines.count * p < loops.LIMIT),
            )
            if may_share
            else (1,),
            "tile": (0, _TILE) if may_share and self._fits_a_tile else (0,),
        }

    @property
    def default(self) -> Choice:
        may_share = len(self.parameters["wave"]) > 1
        tiles = [self.choice(wave=0, parts=1, tile=t) for t in self.parameters["tile"] if t]
        if may_share and self.lines.n >= SHORT:
            waves = (512,) if self.lines.inner > 1 else (256, 64, 128, 512, 1024)
            some = (self.choice(wave=w, parts=p, tile=0) for w in waves for p in self.parameters["parts"])
            return min((*some, *tiles), key=lambda c: self.cost(c).seconds)
        alone = self.choice(wave=0, parts=1, tile=0)
        # By AMD's time model the first cache keeps short lines, and a thread's own line takes 3.1 us of 37,974 x 17 float32 on an MI300X, tiles 3.9; on an H200, by the
        # clock, 13.5 and 4.3.
        if not self.target.machine.priced_by_model:
            alone = min((alone, *tiles), key=lambda c: self.cost(c).seconds)
        # A thread waits for each element of its line; of few short lines a wavefront each has a part of that.
        if may_share and self.lines.inner == 1:
            together = self.choice(wave=64, parts=1, tile=0)
            if self.cost(together).seconds < _WORTH * self.cost(alone).seconds:
                return together
        return alone

    def why_not(self, choice: Choice) -> str | None:
        if choice["tile"] and choice["wave"]:
            return "a thread has a line of a tile for itself"
        return (
            "work-groups share a line by parts where threads do" if choice["parts"] > 1 and not choice["wave"] else None
        )

    def sketch(self, choice: Choice) -> Footprint:
        """Elements that one thread adds one after another."""
        wave, n, count = choice["wave"], self.lines.n, self.lines.count
        if choice["tile"]:
            return self._of_tiles(choice["tile"])
        if not wave:
            alone = self.chains(n, count, ahead=AHEAD if self._is_loaded_ahead else 1)
            if not self._fits_a_tile or self.target.machine.priced_by_model:
                return alone
            # Each lane asks for a segment of its own for each element, in and out.
            return Footprint((replace(alone.kernels[0], asked_bytes=2.0 * n * count * SEGMENT_BYTES),))
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

    @property
    def _fits_a_tile(self) -> bool:
        """Whether lines lie one after another and `_TILE` of them leave shared memory to other work-groups; those that are whole vectors a thread loads as such."""
        nbytes = dtype_info(self.form.inputs[0].dtype).bytes
        return self.lines.inner == 1 and 1 < self.lines.n <= _TILE_BYTES // (_TILE * nbytes) and not self._is_whole

    @property
    def _is_whole(self) -> bool:
        return bool(self.lines.n * dtype_info(self.form.inputs[0].dtype).bytes % _VECTOR_BYTES == 0)

    def _of_tiles(self, lines: int) -> Footprint:
        """Elements in and out by neighbours, some at a time, and a chain in shared memory between."""
        n, moved = self.lines.n, float(moved_bytes(self.group))
        nbytes = dtype_info(self.form.inputs[0].dtype).bytes
        return Footprint((Kernel(
            math.ceil(self.lines.count / lines), lines, shared_bytes=lines * pitch(n, nbytes) * nbytes, memory_bytes=moved, asked_bytes=moved,
            scratch_bytes=4.0 * self.lines.count * n * nbytes, issued=4 * _ISSUED * n, waits=math.ceil(n / AHEAD), barriers=2,
        ),))  # fmt: skip

    @property
    def _is_loaded_ahead(self) -> bool:
        """Whether loads ahead make a thread's line quicker: where threads read vectors, or neighbours of each other, and there is a wavefront of lines a unit. Else
        a line of the first cache for each lane and element keeps a few units busy: on an H200 4,001 lines of 37 float32 take 13 us by either way."""
        many = self.lines.count >= self.target.machine.units * self.target.wavefront_size
        return many and (self.lines.inner > 1 or self._is_whole)

    def _strip(self) -> tuple[int, int] | None:
        """Lanes of a vector of neighbouring lines, and how many such vectors go down the lines together; None for a line at a time. On a CPU: a vector alone takes part of each
        line of the cache that it meets, and comes to the next row in another page. Strips of up to `_STRIP` vectors have their sums in registers, wider ones in a cache."""
        x, after = self.form.inputs[0], self.lines.after
        lanes = lanes_for(self.form.attrs["acc"], self.target)
        if self.target.is_gpu or not after or after[-1] < lanes or dtype_info(x.dtype).lanes > 1 or x.dtype == "bool":
            return None
        vectors = -(-after[-1] // lanes)
        spread = max(1, self.lines.count // after[-1] * vectors // self.target.machine.units)  # of each core
        widest = self.target.core.l2_bytes // _OF_L2 // (lanes * dtype_info(self.form.attrs["acc"]).bytes)
        strips = -(-vectors // min(spread, widest))
        return lanes, -(-vectors // strips)  # as even as they come

    def body(self, choice: Choice, ib: IRBuilder, sources: list[BufferVar], results: list[BufferVar]) -> None:
        scan = Scan(self, self.lines, ib, sources[0], results[0])
        if choice["wave"]:
            (SharedColumns if self.lines.inner > 1 else SharedRow)(scan, choice["wave"], choice["parts"]).run()
        elif choice["tile"]:
            scan.by_tiles(choice["tile"])
        elif (strip := self._strip()) is not None:
            scan.by_strips(*strip, in_registers=strip[1] <= _STRIP)
        else:
            with loops.each(ib, self.target, self.lines.count, "line") as line:
                scan.write(line, 0, self.lines.n, loops.scalar(ib, scan.wide, "acc", scan.one))
