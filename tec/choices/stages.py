"""Stages one after another: what no other template takes. Each has loops of its own; a reduction stands alone."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import ClassVar

from ..ir.dtype import dtype_info
from ..target import Target
from ..te import ComputeOp, ExternOp
from . import parallel
from .cost import Footprint, Kernel, on_cores
from .families.reductions import cpu_reduction
from .group import Group, begin, const_shape, reduce_size, size_of
from .parts.counts import computed, moved_bytes, work
from .parts.lines import chooses, is_moved, is_picked, row_axes, rows_of
from .parts.pointwise import begin_cpu, elementwise
from .parts.threads import THREADS, bind_all, bind_rows, lanes_of
from .space import Choice, Scheduled, Space

_MOST_IDLE = 1.5  # lanes of a row's wavefronts over its elements
_MOST_REPEATED = 1.25  # rows that threads make over those that there are; a row's threads over its elements, where larger work-groups have more


def _repeated(near: int, rows: int) -> bool:
    """Whether threads of `rows` rows each make many of `near` rows more than once: the last ones begin earlier (`bind_rows`)."""
    return -(-near // rows) * rows > _MOST_REPEATED * near


def match(group: Group, target: Target) -> Iterator[Space]:
    """The space of any group; on a GPU but where loops without threads define it, which a template has another form of."""
    if target.is_gpu and any(isinstance(op, ExternOp) and "form" in op.attrs for op in group.ops):
        return
    yield GpuStages(group, target) if target.is_gpu else CpuStages(group, target)


class CpuStages(Space):
    """One loop nest a stage: vectors of `vectors` registers innermost, over threads or not."""

    template: ClassVar[str] = "cpu stages"

    def __init__(self, group: Group, target: Target):
        super().__init__(group, target)
        self.parameters = {"vectors": (1, 2, 4), "parallel": (True, False)}

    @property
    def default(self) -> Choice:
        """Of stages that compute, four vectors at a time: the constants of a function are then loaded once for all of them, and what waits for one of them goes on with the others
        (with 16 registers tanh takes 0.8 of the time, softplus 0.7, Mish a half; cheap operations the same)."""
        made = computed(self.group)
        is_plain = any(op.reduce_axis for op in made) or all(map(is_moved, made))
        return self.choice(vectors=1 if is_plain else 4, parallel=True)

    def sketch(self, choice: Choice) -> Footprint:
        clocks = sum(work(op) for op in computed(self.group)) * parallel.POINTWISE
        return on_cores(clocks, moved_bytes(self.group), choice["parallel"])

    def build(self, choice: Choice) -> Scheduled:
        s = begin_cpu(self.group, self.target)
        for op in computed(self.group):
            make = cpu_reduction if op.reduce_axis else elementwise
            make(s, op, self.target, choice["vectors"], choice["parallel"])
        return Scheduled(s, self.group.outputs, choice)


class GpuStages(Space):
    """One kernel a stage: `threads` of a work-group, `vector` bytes of an elementwise result a thread; or, of one stage, an element of `rows` rows each (`bind_rows`)."""

    template: ClassVar[str] = "gpu stages"

    def __init__(self, group: Group, target: Target):
        super().__init__(group, target)
        self.parameters = {
            "threads": (256, 64, 128, 512, 1024),
            "vector": (16, 8, 4, 1),
            "rows": (0, 1, 2, 4, 8),
        }

    def why_not(self, choice: Choice) -> str | None:
        rows = choice["rows"]
        if not rows:
            return None
        made = computed(self.group)
        lines = rows_of(made[0]) if len(made) == 1 else None
        if lines is None or lines[2] < rows:
            return "there are no so many rows beside each other"
        if choice["vector"] != self.parameters["vector"][0]:
            return "a thread has one element of a row"
        if _repeated(lines[2], rows):
            return "threads repeat too many of so few rows"
        return "threads are more than a row has elements" if choice["threads"] >= 2 * lines[1] else None

    @property
    def default(self) -> Choice:
        """Vectors as wide as a load, or as a rule says where what lies side by side in all that is read and made is shorter."""
        widest, made = self.target.max_vector_bytes, computed(self.group)
        features = self._features(made[0]) if len(made) == 1 else {}
        vector = self.rule("vector", widest, **features) if features else widest
        # Neighbours that are picked one by one stay in one row: of others the rest of the index differs as well.
        while features.get("picked") and vector > 4 and features["run"] % (vector // features["bytes"]):
            vector //= 2
        if features.get("wide") and (rows := self.rule("rows", 0, **features)):
            by_rows = self._by_rows(rows, features)
            if self.why_not(by_rows) is None:
                return by_rows
        return self.choice(threads=min(THREADS, self.target.max_threads), vector=vector, rows=0)

    def drafts(self) -> Iterator[Choice]:
        """Those of work-groups that are not larger than figures say: of large ones all wavefronts wait for the last, which prices do not know."""
        most = self.figures["most_threads"] if "most_threads" in self.figures else self.target.max_threads
        return (c for c in super().drafts() if c["threads"] <= most)

    def _ragged(self, op: ComputeOp) -> float:
        """From how many elements on the last vector may be a part of one. What has rows goes by rows."""
        is_one_line = "ragged_from" in self.figures and rows_of(op) is None
        return self.figures["ragged_from"] if is_one_line else math.inf

    def _by_rows(self, rows: int, features: dict[str, int]) -> Choice:
        """Few work-groups a row, of wavefronts that it nearly fills: parts of a line that two of them write reach memory apart. And no more rows of a thread than leave work-groups
        for all units, and repeat few."""
        length, near = features["run"], features["near"]
        made = {n: -(-length // n) * n for n in sorted(self.parameters["threads"]) if n <= THREADS}
        threads = max(n for n in made if made[n] <= _MOST_REPEATED * length or made[n] == made[min(made)])
        units = self.target.machine.units
        while rows > 1 and (_repeated(near, rows) or features["lines"] * -(-length // threads) < rows * units):
            rows //= 2
        return self.choice(threads=threads, vector=self.parameters["vector"][0], rows=rows)

    def _features(self, op: ComputeOp) -> dict[str, int]:
        """What rules may ask: elements that lie side by side in the result and in all that it is made of, what vectors of a load leave of them, bytes of an element, whether they are
        picked one by one; of a stage of several rows (`rows_of`) how many they are, how many of them differ in one axis alone, whether places are asked (`chooses`), and whether
        wavefronts fill a row but for a third (`wide`)."""
        shape, size = const_shape(op.output(0)), dtype_info(op.output(0).dtype).bytes
        lanes = max(1, self.target.max_vector_bytes // size)
        last = shape[-row_axes(op) :] if shape and not op.reduce_axis and None not in shape else (0,)
        run = math.prod(n or 0 for n in last)
        lines = rows_of(op)
        wave = self.target.wavefront_size
        return {
            "run": run, "rest": run % lanes, "bytes": size, "picked": is_picked(op), "lines": lines[0] if lines else 0, "near": lines[2] if lines else 0,
            "asks": chooses(op), "wide": bool(lines) and -(-run // wave) * wave <= _MOST_IDLE * run,
        }  # fmt: skip

    def sketch(self, choice: Choice) -> Footprint:
        """A kernel each stage, in which a thread makes some neighbours, or one sum by itself. What moves is shared out by what stages make."""
        stages, moved = computed(self.group), moved_bytes(self.group)
        made = [work(op) for op in stages]
        return Footprint(tuple(self._kernel(op, choice, moved * n / max(1, sum(made))) for op, n in zip(stages, made)))

    def _kernel(self, op: ComputeOp, choice: Choice, bytes_: float) -> Kernel:
        size, length = size_of(op.output(0).shape), reduce_size(op) or 1
        lanes = 1 if op.reduce_axis else max(1, choice["vector"] // dtype_info(op.output(0).dtype).bytes)
        lanes, total = lanes_of(size, lanes, self._ragged(op)), size or 1
        groups = max(1.0, total / lanes / choice["threads"])
        if choice["rows"] and (lines := rows_of(op)) is not None:
            lanes, near = choice["rows"], lines[2]
            groups = lines[0] / near * -(-near // lanes) * -(-lines[1] // choice["threads"])
        return Kernel(
            groups, choice["threads"], memory_bytes=bytes_, asked_bytes=bytes_, issued=lanes * length, waits=length
        )  # fmt: skip

    def build(self, choice: Choice) -> Scheduled:
        s = begin(self.group)
        for op in computed(self.group):
            if choice["rows"]:
                bind_rows(s, op, choice["threads"], choice["rows"])
            else:
                vector = 0 if op.reduce_axis else choice["vector"]
                bind_all(s, op, choice["threads"], vector, ragged=self._ragged(op))
        return Scheduled(s, self.group.outputs, choice)
