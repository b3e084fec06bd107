"""Copies of a CPU between plain images and blocks of channels: squares of a block's channels by as many pixels, turned round in registers.

Element by element such a copy gathers: a vector's lanes come from as many lines. Here each line that is touched is read, or written, whole. Rows of
pixels lie one behind the other in both layouts, so that a square takes pixels of neighbouring rows; the last square of an image begins where it ends with the
image, and some pixels are copied twice. (Zen 4, one core, 128 channels of 36 by 36 in float32: into blocks 118 us, now 60; out of them 195 and 57.)
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any, ClassVar

from .. import te
from ..ir import Shuffle
from ..ir.dtype import dtype_info
from ..ops.forms import Form
from ..ops.registry import static_shape
from ..target import Target
from ..te import Tensor
from . import loops, parallel
from .group import Group
from .pointwise import moved_bytes
from .space import Choice, Cost


def match(group: Group, target: Target) -> Iterator[loops.LoopForm]:
    """The space of a copy into blocks of channels or out of them, with nothing else in its group."""
    found = group.form("relayout")
    if found is None or target.is_gpu or len(group.ops) != 1 or not loops.fits(found[0]):
        return
    block, pixels = found[0].attrs["block"], math.prod(_pixels(found[0]))
    # Blocks of a register, or of half a one.
    if dtype_info(found[0].inputs[0].dtype).bytes == 4 and 16 <= 4 * block <= target.vector_bytes and pixels >= block:
        yield Relayout(group, target, *found)


def _pixels(form: Form) -> tuple[int, ...]:
    shape = static_shape(form.inputs[0])
    return shape[2:] if form.attrs["into"] else shape[2:-1]


class Relayout(loops.LoopForm):
    """Squares of a block, over threads or not."""

    template: ClassVar[str] = "cpu relayout"

    def __init__(self, group: Group, target: Target, form: Form, carriers: dict[int, Tensor]):
        super().__init__(group, target, form, carriers)
        self.parameters = {"parallel": (True, False)}

    @property
    def default(self) -> Choice:
        elements = math.prod(static_shape(self.form.inputs[0]))
        return self.choice(parallel=parallel.worth(elements * parallel.POINTWISE))

    def cost(self, choice: Choice) -> Cost:
        """Two shuffles of a vector for each doubling of a square, one a clock; or memory."""
        machine, block = self.target.machine, self.form.attrs["block"]
        elements = math.prod(static_shape(self.form.inputs[0]))
        threads = machine.units if choice["parallel"] else 1
        issue = elements / block * math.log2(block) / (machine.clock_mhz * 1e6) / threads
        memory = moved_bytes(self.group) / ((machine.memory.gbps or machine.memory_gbps) * 1e9)
        start = parallel.START_SECONDS if choice["parallel"] else 0.0
        return Cost(start + max(issue, memory), "issue" if issue >= memory else "memory")

    def tensors(self, choice: Choice) -> list[Tensor]:
        (x,), (y,) = self.form.inputs, self.form.outputs
        block, into, channels = self.form.attrs["block"], self.form.attrs["into"], self.form.attrs["channels"]
        sizes = _pixels(self.form)
        pixels, images = math.prod(sizes), static_shape(x)[0]
        squares, whole = -(-pixels // block), channels // block
        kind = f"{x.dtype}x{block}"

        def body(ins: Any, outs: Any) -> Any:
            ib = te.ir_builder.create()

            def square(n: Any, co: Any, k: Any, rows: int) -> None:
                """Square `k` of block `co`, of whose channels there are `rows`."""
                first = te.min(k * block, pixels - block) if pixels % block else k * block
                plain = lambda r: (n, co * block + r, *loops.split_index(first, sizes))  # noqa: E731
                blocked = lambda r: (n, co, *loops.split_index(first + r, sizes), 0)  # noqa: E731
                source, to = (plain, blocked) if into else (blocked, plain)
                zero = te.const(0, kind)
                lines = [
                    ib.let("line", ins[0].vload(source(r), kind)) if r < rows or not into else zero
                    for r in range(block)
                ]
                for r, line in enumerate(turned(lines, ib.let)):
                    if into or r < rows:
                        ib.emit(outs[0].vstore(to(r), line))

            def over(count: int, each: Callable[[Any], None]) -> None:
                with ib.for_range(0, count, "t", kind="parallel" if choice["parallel"] else "serial") as t:
                    each(t)

            if whole:
                shape = (images, whole, squares)

                def full(t: Any) -> None:
                    n, co, k = loops.split_index(t, shape)
                    square(n, co, k, block)

                over(math.prod(shape), full)
            if channels % block:

                def partial(t: Any) -> None:
                    n, k = loops.split_index(t, (images, squares))
                    square(n, whole, k, channels % block)

                over(images * squares, partial)
            return ib.get()

        return [te.extern(y.shape, [x], body, name="transform_layout", dtype=x.dtype)]


def turned(lines: list[Any], let: Callable[[str, Any], Any]) -> list[Any]:
    """The columns of a square matrix of vectors, a power of two of them: halves change places at every distance."""
    n, distance = len(lines), 1
    while distance < n:
        low = tuple(k if not k & distance else n + k - distance for k in range(n))
        high = tuple(k + distance if not k & distance else n + k for k in range(n))
        made = list(lines)
        for r in range(n):
            if not r & distance:
                pair = (lines[r], lines[r + distance])
                made[r], made[r + distance] = let("low", Shuffle(pair, low)), let("high", Shuffle(pair, high))
        lines, distance = made, 2 * distance
    return lines
