"""Matrix products: C[..., i, j] = sum_k A[..., i, k] * B[..., k, j], with an elementwise epilogue, on every target.

CPU: a register tile of C (rows times some vectors), the other loops over threads; B is read in place (its rows are contiguous) or comes packed in
panels. GPU: a tile of C a work-group, A and B staged through shared memory; on matrix units where the chip has them for the type (`matrix_units`), else
a register tile a thread.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from ....ops.contraction import Contraction
from ....ops.typical import typical
from ....target import Target
from ....te import ComputeOp, Operation, intrin
from ... import parallel, rules
from ...group import Group, const_shape, largest_divisor, reduce_size, same_shape, size_of
from ...parts.pointwise import begin_cpu
from ...space import Choice, Cost, Scheduled, Space
from . import folded, matrix_units
from .bulk_products import BulkProduct
from .register_blocks import RegisterBlocks, SharedTiles
from .tiles import TileProduct
from .warpgroups import WarpgroupProduct

_OPEN_ROWS = 8  # of a register tile where the number of rows is symbolic


def match(group: Group, target: Target) -> Iterator[Space]:
    """The spaces of a group whose only reduction is a matrix product."""
    if not target.is_gpu:
        yield from _on_cpu(group, target)
    elif not _thin(group):
        yield from _of_images(group, target) if folded.is_folded(group) else _on_gpu(group, target)


def _of_images(group: Group, target: Target) -> Iterator[Space]:
    """A plain image's convolution as a product; behind the sums where a rule says that these are quicker."""
    found = group.form("product")
    channels = found[0].attrs["contraction"].channels if found is not None else None
    told = rules.preferred("plain convolution", target, {"channels": channels})
    behind = any(t["sums"] for t in told)
    for space in folded.match(group, target, _through_shared):
        space.is_second = space.is_second or behind
        yield space


def _on_cpu(group: Group, target: Target) -> Iterator[Space]:
    for op in group.reductions():
        pair = _anchor_and_output(group, op)
        tiled = TileProduct.match(group, target, *pair) if pair is not None else None
        if tiled is not None:
            yield tiled
        space = RegisterTiles.match(group, target, op) if op.tag == "matmul" else None
        if space is not None:
            yield space


def _on_gpu(group: Group, target: Target) -> Iterator[Space]:
    for op in group.reductions():
        hopper = WarpgroupProduct.match(group, target, op)
        if hopper is not None:
            yield hopper
        bulk = BulkProduct.match(group, target, op)
        if bulk is not None:
            yield bulk
    yield from _through_shared(group, target)


def _through_shared(group: Group, target: Target) -> Iterator[Space]:
    """Whose operands threads bring to shared memory: on matrix units where there are some for the types, else on vector units."""
    for op in group.reductions():
        space: Space | None = matrix_units.match(group, target, op)
        blocks = RegisterBlocks.match(group, target, op) if space is None else None
        if blocks is not None:
            yield blocks
        space = space or SharedTiles.match(group, target, op)
        if space is not None:
            yield space


def _thin(group: Group) -> bool:
    """Whether a product has so few rows, columns or terms that it is better off as sums, an output a thread or a work-group. Not a convolution's: its
    windows would be made again for each output."""
    found = group.form("product")
    if found is None:
        return False
    c: Contraction = found[0].attrs["contraction"]
    return bool(c.few_is_thin and (min(typical(c.m), typical(c.n)) < 8 or typical(c.k) < 4))


class RegisterTiles(Space):
    """A CPU's product: `rows` by `columns` of C in vector registers, `unroll` steps of k at a time, over threads or not."""

    template: ClassVar[str] = "cpu product"

    def __init__(self, group: Group, target: Target, op: ComputeOp, out: ComputeOp):
        super().__init__(group, target)
        self.op, self.out = op, out
        *_, self.m, self.n = const_shape(op.output(0))
        self.lanes = max(4, target.vector_bytes // 4)
        self.is_open = self.m is None or self.n is None
        block, grouped = op.attrs.get("block"), op.attrs.get("group", 1) > 1
        self.dot = intrin.vector_dot(target, op.inputs[0].dtype, filled=True) if grouped else None
        columns = (
            (block,)
            if block
            else tuple(self.lanes * v for v in (2, 1, 3, 4) if self.n is None or self.lanes * v <= self.n)
        )
        height = self._rows(columns[0])
        self.parameters = {
            "rows": (height, *[r for r in range(1, 25) if r != height and (self.m is None or r <= self.m)]),
            "columns": columns, "unroll": (4, 1, 2, 8), "parallel": (True,) if self.is_open else (True, False),
        }  # fmt: skip

    @classmethod
    def match(cls, group: Group, target: Target, op: Operation) -> RegisterTiles | None:
        pair = _anchor_and_output(group, op)
        if pair is None or len(pair[0].axis) < 2 or len(op.reduce_axis) != 1:
            return None
        n = const_shape(op.output(0))[-1]
        if (n is not None and n < max(4, target.vector_bytes // 4)) or op.output(0).dtype not in (
            "float32",
            "float64",
            "int32",
        ):
            return None
        return cls(group, target, *pair)

    def _rows(self, columns: int) -> int:
        """As many rows as the registers hold beside a row of B, all tiles full where some number of rows allows it."""
        vectors = -(-columns // self.lanes)
        fitting = max(1, (self.target.core.registers - vectors - 1) // vectors)
        if self.m is None:
            return min(_OPEN_ROWS, fitting)
        height = largest_divisor(self.m, min(12 if vectors == 2 else 16, fitting))
        return height if height >= 4 else min(self.m, 8, fitting)

    @property
    def default(self) -> Choice:
        n, lanes = self.n, self.lanes
        width = self.op.attrs.get("block") or (2 * lanes if n is not None and n % (2 * lanes) == 0 else lanes)
        work = (size_of(self.op.output(0).shape[-2:]) or 0) * (reduce_size(self.op) or 1)
        return self.choice(
            rows=self._rows(width), columns=width, unroll=4 if self._steps() % 4 == 0 else 1,
            parallel=self.is_open or parallel.worth(work / self.target.machine.macs("float32")),
        )  # fmt: skip

    def _steps(self) -> int:
        """Of the sum: multiply-adds, or dot products; 1 where their number is open."""
        return (reduce_size(self.op) or 1) // (self.dot.group if self.dot is not None else 1)

    def why_not(self, choice: Choice) -> str | None:
        vectors = -(-choice["columns"] // self.lanes)
        registers = choice["rows"] * vectors + vectors + 1
        most = self.target.core.registers
        if registers > most:
            return f"{registers} vector registers of {most}"
        if reduce_size(self.op) and self._steps() % choice["unroll"]:
            return f"{choice['unroll']} steps do not divide the sum"
        return None

    def cost(self, choice: Choice) -> Cost:
        """Multiply-adds at the core's rate, more where too few sums are under way for the latency or more than there are registers; or the
        memory that the tiles read."""
        machine, core = self.target.machine, self.target.core
        m, n, k = self.m or _OPEN_ROWS, self.n or 4 * self.lanes, reduce_size(self.op) or 64
        rows, columns = choice["rows"], choice["columns"]
        vectors = -(-columns // self.lanes)
        size, chains = size_of(self.op.output(0).shape[:-2]) or 1, rows * vectors
        tiles = size * -(-m // rows) * -(-n // columns)
        # A vector FMA has a latency of four clocks; an operand of A comes as a broadcast, one of B as a load, two loads a clock.
        per_k = max(chains / core.fma, (rows + vectors) / 2, 4.0)
        spilled = max(0, chains + vectors + 1 - core.registers)
        clocks = tiles * k * (per_k + spilled)
        threads = machine.units if choice["parallel"] else 1
        issue = clocks / (core.clock_mhz * 1e6) / min(threads, tiles)
        bytes_ = 4.0 * size * (m * k * -(-n // columns) + n * k)
        near = machine.level("L2") or machine.memory
        memory = bytes_ / ((near.gbps or machine.memory_gbps) * 1e9) * machine.units / threads
        start = parallel.START_SECONDS if choice["parallel"] else 0.0
        return Cost(start + max(issue, memory), "issue" if issue >= memory else "memory")

    def build(self, choice: Choice) -> Scheduled:
        s = begin_cpu(self.group, self.target)
        mm, out, n, lanes = self.op, self.out, self.n, self.lanes
        height, width = choice["rows"], choice["columns"]
        stage = s[out]
        cached = s.cache_write(out.output(0), "local") if out is mm else mm.output(0)
        final = s[out.output(0)] if out is mm else stage
        axes = list(final.op.axis)
        io, ii = final.split(axes[-2], factor=height)
        jo, ji = final.split(axes[-1], factor=width)
        # The column panel outermost: its part of B stays in the second-level cache while the rows go by.
        final.reorder(*axes[:-2], jo, io, ii, ji)
        if n is None or n % width == 0:
            final.vectorize(ji)
        acc = s[cached]
        if self.is_open:
            # Loops of unknown length are not fused: it would take a division to find the place, and full tiles do not part from the
            # ragged ones at the end.
            lead = [*axes[:-2], jo] if n is not None else axes[:-2]
            panels = final.fuse(*lead) if len(lead) > 1 else lead[0] if lead else jo
            final.parallel(panels if len(axes) > 2 or n is None or n >= 4 * width else io)
            outer = io
        else:
            outer = final.fuse(*axes[:-2], jo, io)
            if choice["parallel"]:
                final.parallel(outer)
        acc.compute_at(final, outer)
        acc.set_scope("local")
        *lead, ci, cj = acc.op.axis
        (k,) = acc.op.reduce_axis
        group = []
        if self.dot is not None:
            k, one = acc.split(k, factor=self.dot.group)
            group.append(one)
        ko, ki = acc.split(k, factor=choice["unroll"])
        cjo, cji = acc.split(cj, factor=lanes)
        acc.reorder(*lead, ko, ki, ci, cjo, cji, *group)
        if self.dot is not None:
            acc.tensorize(cji, self.dot.intrin)
        else:
            acc.vectorize(cji)
        acc.unroll(cjo)
        acc.unroll(ci)
        acc.unroll(ki)
        return Scheduled(s, self.group.outputs, choice)


def _anchor_and_output(group: Group, op: Operation) -> tuple[ComputeOp, ComputeOp] | None:
    """The product and the one output it ends in, where the output has the product's shape."""
    if not isinstance(op, ComputeOp) or len(group.output_ops) != 1 or len(group.reductions()) != 1:
        return None
    out = group.output_ops[0]
    if not isinstance(out, ComputeOp) or not same_shape(out.output(0), op.output(0)):
        return None
    return op, out
