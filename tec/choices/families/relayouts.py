"""Copies of a CPU between plain images and blocks of channels: squares of a block's channels by as many pixels, turned round in registers.

Element by element such a copy gathers: a vector's lanes come from as many lines. Here each line that is touched is read, or written, whole. Rows of
pixels lie one behind the other in both layouts, so that a square takes pixels of neighbouring rows; the last square of an image begins where it ends with the
image, and some pixels are copied twice. (Zen 4, one core, 128 channels of 36 by 36 in float32: into blocks 118 us element by element, 20 so; out of them 195 and 20.)
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import Any, ClassVar, Self

from ... import te
from ...ir import Expr
from ...ir.buffer import Buffer
from ...ir.dtype import dtype_info
from ...ir.passes.turn_squares import turned
from ...ops.forms import Form
from ...target import Target
from ...te import ComputeOp, PlaceholderOp, Tensor
from ...te.ir_builder import BufferVar, IRBuilder
from ...te.like import Index
from .. import parallel
from ..cost import Footprint, on_cores
from ..group import Group, same_shape, size_of
from ..parts import loops
from ..parts.counts import moved_bytes
from ..parts.digits import split_index
from ..parts.epilogues import Epilogue
from ..parts.operands import follows
from ..space import Choice


def _before(group: Group, form: Form) -> Epilogue | None:
    """What is copied as a function of the one tensor that the group reads; None where it is another."""
    (x,) = form.inputs
    if len(group.ops) == 1:
        return Epilogue(x, x, [])
    read = {t for op in group.ops for t in op.inputs if isinstance(t.op, PlaceholderOp)}
    base = next(iter(read))
    if len(read) > 1 or not form.attrs["into"] or not same_shape(base, x) or not follows(x.op, base.op):
        return None
    computed = [op for op in group.ops if op is not group.outputs[0].op]
    return (
        Epilogue(x, base, []) if len(group.outputs) == 1 and all(isinstance(op, ComputeOp) for op in computed) else None
    )


def _pixels(form: Form) -> tuple[Any, ...]:
    shape = [getattr(d, "value", d) for d in form.inputs[0].shape]
    return tuple(shape[2:] if form.attrs["into"] else shape[2:-1])


class Relayout(loops.LoopForm):
    """A copy into blocks of channels or out of them, with nothing else in its group but, before a copy into blocks, what is elementwise (a type and a zero point): squares of
    a block, over threads or not."""

    template: ClassVar[str] = "cpu relayout"
    kind: ClassVar[str] = "relayout"
    stage = "transform_layout"

    @classmethod
    def match(cls, group: Group, target: Target) -> Self | None:
        found = group.form(cls.kind)
        before = _before(group, found[0]) if found is not None and cls.serves(found[0], target) else None
        return cls(group, target, *found, before) if found is not None and before is not None else None

    @classmethod
    def serves(cls, form: Form, target: Target) -> bool:
        """Blocks of a register, or of half a one; of narrower elements from 8 bytes on. Of open sizes the code asks whether there are pixels for a square."""
        block, pixels, size = form.attrs["block"], size_of(_pixels(form)), dtype_info(form.inputs[0].dtype).bytes
        fits = size <= 4 and (16 if size == 4 else 8) <= size * block <= target.vector_bytes
        many = isinstance(form.attrs["channels"], int) and (pixels is None or pixels >= block)
        return not target.is_gpu and fits and many

    def __init__(self, group: Group, target: Target, form: Form, carriers: dict[int, Tensor], before: Epilogue):
        super().__init__(group, target, form, carriers)
        self.parameters = {"parallel": (True, False)}
        self.before = before

    def _elements(self) -> int:
        known = size_of(self.form.inputs[0].shape)
        return parallel.open_elements() if known is None else known

    @property
    def default(self) -> Choice:
        return self.choice(parallel=parallel.worth(self._elements() * parallel.POINTWISE))

    def sketch(self, choice: Choice) -> Footprint:
        """A shuffle of a vector for each doubling of a square, one a clock."""
        block = self.form.attrs["block"]
        return on_cores(self._elements() / block * math.log2(block), moved_bytes(self.group), choice["parallel"])

    def tensors(self, choice: Choice) -> list[Tensor]:
        outs = [(t.shape, t.dtype) for t in self.form.outputs]
        return loops.extern(self.stage, [self.before.result], outs, partial(self.body, choice))

    def body(self, choice: Choice, ib: IRBuilder, sources: list[BufferVar], results: list[BufferVar]) -> None:
        kind = "parallel" if choice["parallel"] else "serial"
        squares = _Squares(ib, sources[0].buffer, results[0].buffer, self.form, kind, self.before)
        if size_of(squares.sizes) is not None:
            squares.all()
            return
        with ib.if_scope(squares.pixels >= squares.block):
            squares.all()
        with ib.else_scope():
            squares.elements()


class _Squares:
    """The statements of a copy from `source` to `to`, of what `before` makes of each element."""

    def __init__(self, ib: IRBuilder, source: Buffer, to: Buffer, form: Form, kind: str, before: Epilogue):
        self.ib, self.source, self.to, self.kind, self.before = ib, source, to, kind, before
        self.block, self.into, self.channels = form.attrs["block"], form.attrs["into"], form.attrs["channels"]
        self.images, self.sizes = form.inputs[0].shape[0], _pixels(form)
        self.pixels = math.prod(self.sizes[1:], start=self.sizes[0])
        self.dtype = form.inputs[0].dtype

    def all(self) -> None:
        """Whole blocks, and the channels that fill no block."""
        block, whole = self.block, self.channels // self.block
        for first, blocks, rows in ((0, whole, block), (whole, 1, self.channels % block)):
            if blocks and rows:
                with self.ib.for_range(0, self.images * blocks, "t", kind=self.kind) as t:
                    with self.ib.for_range(0, (self.pixels + block - 1) // block, "k") as k:
                        self._square(t // blocks, first + t % blocks, k, rows)

    def _square(self, n: Index, co: Expr, k: Index, rows: int) -> None:
        """Square `k` of block `co`, of whose channels there are `rows`."""
        block, vector = self.block, f"{self.dtype}x{self.block}"
        first = self.ib.let("first", te.min(k * block, self.pixels - block))
        plain = [(n, co * block + r, *split_index(first, self.sizes)) for r in range(rows)]
        blocked = [(n, co, *split_index(first + r, self.sizes), 0) for r in range(block)]
        source, to = (plain, blocked) if self.into else (blocked, plain)
        if self.before.output is self.before.result:
            lines: list[Any] = [self.ib.let("line", self.source.vload(at, vector)) for at in source]
        else:
            lines = self._computed(source)
        lines += [te.const(0, vector)] * (block - len(lines))
        for at, line in zip(to, turned(lines, self.ib.let)):
            self.ib.emit(self.to.vstore(at, line))

    def _computed(self, source: Sequence[tuple[Any, ...]]) -> list[Expr]:
        """Lines of elements from these places on, as they are to be copied."""
        ib, block, read = self.ib, self.block, self.before.result.dtype
        raw = ib.allocate(read, (len(source) * block,), "raw", scope="local")
        made = ib.allocate(self.dtype, (len(source) * block,), "made", scope="local")
        for r, at in enumerate(source):
            loops.put_vector(ib, raw, r * block, self.source.vload(at, f"{read}x{block}"))
            with ib.for_range(0, block, "lane", kind="vectorize") as lane:
                made[r * block + lane] = self.before.at(at, raw[r * block + lane], [])
        return [loops.vector(made, r * block, block) for r in range(len(source))]

    def elements(self) -> None:
        """One by one, for the few pixels of small images."""
        filled = -(-self.channels // self.block) * self.block if self.into else self.channels
        with self.ib.for_range(0, self.images, "n") as n, self.ib.for_range(0, filled, "c") as c:
            with self.ib.for_range(0, self.pixels, "p") as p:
                at = split_index(p, self.sizes)
                plain, blocked = (n, c, *at), (n, c // self.block, *at, c % self.block)
                source, to = (plain, blocked) if self.into else (blocked, plain)
                value = self.before.at(source, self.source.vload(source), [])
                if filled > self.channels:
                    value = te.if_then_else(c < self.channels, value, te.const(0, self.dtype))
                self.ib.emit(self.to.vstore(to, value))
