"""Matrix products: C[..., i, j] = sum_k A[..., i, k] * B[..., k, j], with an elementwise epilogue, on every target.

CPU: a register tile of C (rows times some vectors), the other loops over threads; B is read in place (its rows are contiguous) or comes packed in
panels. GPU: a tile of C a work-group, A and B staged through shared memory; on matrix units where the chip has them for the type (`matrix_units`), else
a register tile a thread.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import ClassVar

from ....ir.dtype import dtype_info
from ....ops.contraction import Contraction
from ....ops.typical import typical
from ....schedule import Schedule
from ....target import Target
from ....te import ComputeOp, Operation, intrin
from ... import parallel, rules
from ...cost import Footprint, on_cores
from ...group import Group, const_shape, reduce_size, size_of
from ...parts import sums
from ...parts.operands import accumulators, anchored, contraction
from ...parts.pointwise import begin_cpu
from ...parts.summed import reads_apart
from ...parts.warpgroups import ROWS
from ...space import Choice, Scheduled, Space
from .. import priced_reductions
from ..gpu_reductions import GpuReduction
from ..window_sums import WindowSums
from . import few_terms, folded, matrix_units, packing, tile_clocks
from .bulk_products import BulkProduct
from .halo import HaloConvolution
from .padded_warpgroups import PaddedWarpgroupProduct
from .register_blocks import RegisterBlocks
from .streamed_rows import StreamedRows
from .tiles import TileProduct
from .warpgroups import WarpgroupProduct

_TOGETHER = (0, 1, 2, 4, 8, 16)  # panels that rows go along together; those that do not lie so are copied
_FEW_ROWS = 2
_FEWEST_LANES = 4  # columns that are worth vectors of their own
_FEW_COLUMNS = 48  # of which a half vector more or less is a sixth of the work or more
_SHORTEST_PART = 128  # steps of a sum: the sums of a tile are stored and loaded once a part
_MOST_VECTORS = 6  # of a tile
_UNDER_WAY = 8  # multiply-adds that keep a core's units busy: two a clock, of four clocks each
# Of the price of gathered windows, that boxes should take at most: neither price is better than that.
_BOXES_WORTH = 0.95
_ALONE_WORTH = 0.75  # of a tiled product's price, that sums by themselves should take at most
_FEW_ROWS_WORTH = 0.5  # of the price of sums by themselves, that tiles of which few rows are used should take at most
_AS_QUICK = 1.1  # times the least price: prices are no better than that


def match(group: Group, target: Target) -> Iterator[Space]:
    """The spaces of a group whose only reduction is a matrix product."""
    if not target.is_gpu:
        yield from _on_cpu(group, target)
    elif (found := WindowSums.match(group, target)) is not None:
        tiles = list(_of_windows(group, target))
        if tiles and found.are_quicker(tiles[0]):
            yield found
            for space in tiles:
                space.is_second = True
        yield from tiles
    else:
        yield from _of_windows(group, target)


def _of_windows(group: Group, target: Target) -> Iterator[Space]:
    """The spaces of a product on a GPU whose operand may be windows of an image."""
    if (boxes := _from_boxes(group, target)) is not None:
        others = list(_gathered(group, target))
        boxes.is_second = bool(others) and _are_enough(others[0], boxes)
        yield from (*others[:1], boxes, *others[1:]) if boxes.is_second else (boxes, *others)
    else:
        yield from _gathered(group, target)


def _are_enough(gathered: Space, boxes: HaloConvolution) -> bool:
    """Whether boxes should not be quicker than gathered windows by more than the error of the prices."""
    most = _BOXES_WORTH * gathered.seconds
    return most <= boxes.least_seconds or most <= boxes.seconds


def _gathered(group: Group, target: Target) -> Iterator[Space]:
    """The spaces of a product on a GPU whose windows, if it has any, are gathered."""
    if _thin(group, target):
        few = few_terms.match(group, target)
        if few is not None:
            yield few
        yield from _of_few_columns(group, target)
    elif folded.is_folded(group):
        yield from _of_images(group, target)
    else:
        yield from _on_gpu(group, target)


def _of_few_columns(group: Group, target: Target) -> Iterator[Space]:
    """Less columns than a tile has, of rows that fill half of one: tiles all the same, where sums by themselves should take longer. Lanes of sums read rows that lie apart.
    On GPUs that no clock has judged, less rows and many columns too, where lanes of sums do and should take well longer."""
    found = group.form("product")
    if found is None:
        return
    c: Contraction = found[0].attrs["contraction"]
    is_tall = typical(c.m) >= ROWS // 2
    if not is_tall and (typical(c.n) < ROWS // 2 or not target.machine.priced_by_model):
        return
    alone = priced_reductions.match(group, target)
    for op in group.reductions():
        tiles: Space | None
        if target.machine.priced_by_model:
            tiles = matrix_units.match(group, target, op) or RegisterBlocks.match(group, target, op)
        else:
            tiles = PaddedWarpgroupProduct.match(group, target, op)
        if not is_tall and not any(reads_apart(op, op.axis[-1].var)):
            continue
        worth = 1.0 if is_tall else _FEW_ROWS_WORTH
        if tiles is not None and alone is not None and tiles.seconds < worth * alone.seconds:
            yield tiles


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
        pair = anchored(group, op)
        tiled = TileProduct.match(group, target, *pair) if pair is not None else None
        if tiled is not None:
            yield tiled
        if op.tag == "matmul":
            found: list[Space | None] = [RegisterTiles.match(group, target, op), StreamedRows.match(group, target, op)]
            yield from sorted((s for s in found if s is not None), key=lambda s: s.seconds)


def _from_boxes(group: Group, target: Target) -> HaloConvolution | None:
    """A convolution from boxes of its image."""
    found = (HaloConvolution.match(group, target, op) for op in group.reductions())
    return next((space for space in found if space is not None), None)


def _on_gpu(group: Group, target: Target) -> Iterator[Space]:
    rest = list(_through_shared(group, target))
    alone = _alone(group, target) if target.machine.priced_by_model else None
    if rest and alone is not None:
        # Of few outputs tiles fill no machine, and each of their steps waits for the last one's.
        rest[0].is_second = alone.seconds < _ALONE_WORTH * rest[0].seconds
    blocks = next((s for s in rest if isinstance(s, RegisterBlocks)), None)
    for op in group.reductions():
        hopper = WarpgroupProduct.match(group, target, op)
        if hopper is not None:
            yield hopper
        bulk = BulkProduct.match(group, target, op)
        if bulk is not None:  # the same sums as the blocks', whose prices compare
            bulk.is_second = blocks is not None and blocks.seconds < bulk.seconds
            yield bulk
    yield from rest


def _alone(group: Group, target: Target) -> GpuReduction | None:
    """Sums by themselves of a product of known sizes whose price says all that they do: windows would be made again for each, and packed weights unpacked."""
    found = group.form("product")
    if found is None or not found[0].attrs["contraction"].few_is_thin:
        return None
    if any(op.tag != "matmul" for op in group.reductions()):
        return None
    space = priced_reductions.match(group, target)
    return space if space is not None and space.outputs else None


def _through_shared(group: Group, target: Target) -> Iterator[Space]:
    """Whose operands threads bring to shared memory: on matrix units where there are some for the types, else on vector units."""
    for op in group.reductions():
        space = matrix_units.match(group, target, op) or RegisterBlocks.match(group, target, op)
        by_groups = PaddedWarpgroupProduct.match(group, target, op)
        if by_groups is not None:
            # Of a tile of 64 rows few are there; those of other matrix instructions have 32.
            is_empty = isinstance(by_groups.m, int) and by_groups.m <= by_groups.figures["few_rows"]
            is_empty = is_empty and not isinstance(space, RegisterBlocks)
            by_groups.is_second = space is not None and (is_empty or space.seconds < by_groups.seconds)
            yield by_groups
        if space is not None:
            yield space


def _thin(group: Group, target: Target) -> bool:
    """Whether a product has so few rows, columns or terms that it is better off as sums, an output a thread or a work-group. Not a convolution's: its
    windows would be made again for each output."""
    found = group.form("product")
    if found is None:
        return False
    c: Contraction = found[0].attrs["contraction"]
    if not c.few_is_thin:
        return False
    is_few = min(typical(c.m), typical(c.n)) < 8 or typical(c.k) <= few_terms.MOST_TERMS
    return is_few or few_terms.few_sum(group, target) is not None


class RegisterTiles(Space):
    """A CPU's product: `rows` by `columns` of C in vector registers, `unroll` steps of k at a time, over threads or not."""

    template: ClassVar[str] = "cpu product"

    gathered: bool = False  # whether the second operand's rows are windows of an image

    def __init__(self, group: Group, target: Target, op: ComputeOp, out: ComputeOp):
        super().__init__(group, target)
        self.op, self.out = op, out
        *_, self.m, self.n = const_shape(op.output(0))
        self.is_open = self.m is None or self.n is None
        block: int | None = op.attrs.get("block")
        grouped = op.attrs.get("group", 1) > 1
        self.block = block
        self.dot = intrin.vector_dot(target, op.inputs[0].dtype, filled=True) if grouped else None
        self.lanes = self.dot.lanes if self.dot is not None else _lanes(self.n, target, op.output(0).dtype, self.m)
        columns = (
            (block,)
            if block
            else tuple(self.lanes * v for v in (2, 1, 3, 4, 6) if self.n is None or self.lanes * v <= self.n)
            + (self.n,) * _goes_by_whole(self.n, self.m)
        )
        self.whole = max(_FEWEST_LANES, target.vector_bytes // dtype_info(op.output(0).dtype).bytes)
        if not block and self.n is not None and self._has_panels():
            # One panel of whole vectors, filled up with zeros: two tiles of half as many columns load each row of A twice.
            filled = -(-self.n // self.whole) * self.whole
            columns = (*columns, *[filled] * (self.n < filled <= _MOST_VECTORS * self.whole))
        self.parameters = {
            "rows": tuple(r for r in range(1, 25) if self.m is None or r <= self.m),
            "columns": columns, "unroll": tuple(u for u in (4, 1, 2, 8) if u == 1 or not reduce_size(op) or self._steps() % u == 0), "parallel": (True,) if self.is_open else (True, False),
            "panels": self._together(columns) if self._has_panels() else (0,), "parts": self._parts(),
        }  # fmt: skip

    @classmethod
    def match(cls, group: Group, target: Target, op: Operation) -> RegisterTiles | None:
        pair = anchored(group, op)
        if pair is None or len(pair[0].axis) < 2 or len(op.reduce_axis) != 1:
            return None
        n = const_shape(op.output(0))[-1]
        is_few = n is not None and n < _FEWEST_LANES and not op.attrs.get("block")
        if is_few or op.output(0).dtype not in ("float32", "float64", "int32"):
            return None
        return cls(group, target, *pair)

    @property
    def default(self) -> Choice:
        """Of the tiles that should be nearly as quick as the quickest, the one with the least work: small tiles are quick only if all cores are idle otherwise."""
        found = [(self.cost(c).seconds, c) for c in self.drafts()]
        least = min(seconds for seconds, _ in found)
        near = [(seconds * self._cores(c), c) for seconds, c in found if seconds <= _AS_QUICK * least]
        return min(near, key=lambda f: f[0])[1]

    def _cores(self, choice: Choice) -> float:
        """That have work at once."""
        (kernel,) = self.sketch(choice).kernels
        return min(self.target.machine.units, kernel.groups) if choice["parallel"] else 1

    def drafts(self) -> Iterator[Choice]:
        """Tiles of all sizes; the sum four steps at a time where that divides it."""
        work = (size_of(self.op.output(0).shape) or 0) * (reduce_size(self.op) or 1)
        threads = self.is_open or parallel.worth(work / self.target.machine.macs("float32"))
        unroll = 4 if self._steps() % 4 == 0 else 1
        # Of an open number of columns the last tile asks at each step which of its vectors there are: one is always there.
        columns = self.parameters["columns"] if self.n is not None or self.block else (self.lanes,)
        return self.legal({**self.parameters, "columns": columns, "unroll": (unroll,), "parallel": (threads,)})

    def _steps(self) -> int:
        """Of the sum: multiply-adds, or dot products; 1 where their number is open."""
        return (reduce_size(self.op) or 1) // (self.dot.group if self.dot is not None else 1)

    def _chains(self, choice: Choice) -> int:
        """Of additions that a sum goes by: the steps that are written out, where a tile's sums are fewer than multiply-adds are under way."""
        sums = choice["rows"] * -(-choice["columns"] // self._lanes_of(choice))
        is_few = sums * choice["unroll"] <= _UNDER_WAY and self.dot is None and choice["parts"] == 1
        return int(choice["unroll"]) if is_few and reduce_size(self.op) else 1

    def _is_filled(self, choice: Choice) -> bool:
        """Whether a panel has columns beyond the last."""
        return self.n is not None and not self.block and choice["columns"] > self.n

    def _lanes_of(self, choice: Choice) -> int:
        return self.whole if self._is_filled(choice) else self.lanes

    def why_not(self, choice: Choice) -> str | None:
        if self._is_filled(choice) and not choice["panels"]:
            return "rows as they lie have no columns beyond the last"
        vectors = -(-choice["columns"] // self._lanes_of(choice))
        registers = choice["rows"] * vectors + vectors + 1
        most = self.target.core.registers
        if registers > most:
            return f"{registers} vector registers of {most}"
        if choice["panels"] > max(1, -(-(self.n or 1) // choice["columns"])):
            return f"there are fewer than {choice['panels']} panels of {choice['columns']} columns"
        if choice["parts"] == 1:
            return None
        if not self.block and (self.m or 1) <= choice["rows"]:
            return "a part of a panel that one tile reads would be copied for nothing"
        if not choice["panels"] or -(-(self.n or 1) // choice["columns"]) % choice["panels"]:
            return "the parts of a sum are kept for so many whole panels at a time"
        if self._steps() // choice["parts"] % choice["unroll"]:
            return f"{choice['unroll']} steps do not divide a part of the sum"
        return None

    def sketch(self, choice: Choice) -> Footprint:
        """Multiply-adds, loads and instructions at the core's rates, more where too few sums are under way for the latency; and the lines of B, which come from memory for the
        first tile of a panel and from the second-level cache for the others where the first level does not hold it."""
        n, k = self.n or 4 * self.lanes, self._steps() if reduce_size(self.op) else 64
        size, tile = size_of(self.op.output(0).shape[:-2]) or 1, (choice["rows"], choice["columns"], choice["panels"])
        some = (self.m,) if self.m is not None else tile_clocks.SOME_ROWS
        sizes = [(size, m, n, k) for m in some]
        nbytes = dtype_info(self.op.output(0).dtype).bytes
        every = [
            packing.product_clocks(
                self.target,
                z,
                tile,
                self._lanes_of(choice),
                bool(self.block),
                self.gathered,
                nbytes,
                choice["parts"],
                self._chains(choice),
            )
            for z in sizes
        ]
        clocks = math.prod(every) ** (1 / len(every))  # one function serves few rows and many
        high, wide = -(-some[0] // (packing.PART_ROWS if choice["parts"] > 1 else tile[0])), -(-n // tile[1])
        # Of more tiles than cores the last round is not counted: it would take small tiles for being as many as cores.
        tiles = size * (-(-wide // choice["panels"]) * (high if self.block else 1) if choice["panels"] else high * wide)
        return on_cores(clocks, 0.0, choice["parallel"], tiles if tiles < self.target.machine.units else math.inf)

    def build(self, choice: Choice) -> Scheduled:
        whole = (self.group, self.op, self.out)
        group, mm, out = packing.whole(self.group, self.op, self.block or 1) if self._is_ragged else whole
        packed = packing.packed(group, mm, choice["columns"]) if choice["panels"] and not self.block else None
        if packed is not None:
            group, _, mm, out = packed
        s = begin_cpu(group, self.target, keep=[] if packed is None else [packed.panels])
        n, lanes = self.n, self._lanes_of(choice)
        if choice["parts"] > 1:
            _in_parts(s, mm, out, None if packed is None else packed.panels, choice, lanes)
            return Scheduled(s, group.outputs, choice)
        height, width = choice["rows"], choice["columns"]
        cached, final = accumulators(s, mm, out, "local"), s[out.output(0)]
        axes = list(final.op.axis)
        # A ragged last tile begins earlier and repeats what the one before computed: all are full, and their sums stay in registers.
        io, ii = final.split(axes[-2], factor=height, shift_inwards=True)
        jo, ji = final.split(axes[-1], factor=width, shift_inwards=not (self.block or packed))
        # The column panel outermost: its part of B stays in the second-level cache while the rows go by.
        final.reorder(*axes[:-2], jo, io, ii, ji)
        if choice["panels"]:
            made = None if packed is None else packed.panels
            is_enough = (size_of(self.op.output(0).shape[:-2]) or 1) >= self.target.machine.units
            outer = packing.walk(
                s, final, made, axes[:-2], (io, ii, jo, ji), choice["panels"], lanes, choice["parallel"], is_enough
            )
        elif self.is_open:
            # Loops of unknown length are not fused: it would take a division to find the place, and full tiles do not part from the
            # ragged ones at the end.
            lead = [*axes[:-2], jo] if n is not None else axes[:-2]
            panels = final.fuse(*(lead or [jo]))
            final.parallel(panels if len(axes) > 2 or n is None or n >= 4 * width else io)
            outer = io
        else:
            outer = final.fuse(*axes[:-2], jo, io)
            if choice["parallel"]:
                final.parallel(outer)
        if n is None or n >= width or self._is_ragged:
            sums.vectorize(final, ji, lanes, width, height)
        if (chains := self._chains(choice)) > 1:
            sums.in_chains(s, cached, final, outer, lanes, chains)
        else:
            sums.in_vectors(s, cached, final, outer, lanes, choice["unroll"], self.dot)
        return Scheduled(s, group.outputs, choice)

    def _has_panels(self) -> bool:
        """Whether rows may go along some panels of the second operand together: it lies in panels, or may be copied into some. Where the number of rows is open, panels
        that lie so are walked along one by one: tiles of rows are then what threads share."""
        if self.n is None or self.dot is not None:
            return self.n is not None and self.m is not None and bool(self.block)
        return self.m is not None if self.block else contraction(self.group, self.op) is not None

    def _together(self, columns: Iterable[int | None]) -> tuple[int, ...]:
        """Panels that rows may go along together: all of a few too, of which the last ones would take rows another time."""
        counts = {-(-(self.n or 1) // c) for c in columns if c}
        return tuple(dict.fromkeys((*_TOGETHER, *sorted(n for n in counts if n <= _TOGETHER[-1]))))

    def _parts(self) -> tuple[int, ...]:
        """In how many equal parts the sum may go: one where a panel stays in the second-level cache from tile to tile; else also so many that parts of a panel do, in the first and
        in the second level."""
        k, core = reduce_size(self.op), self.target.core
        row = dtype_info(self.op.output(0).dtype).bytes * (self.block or 2 * self.lanes)
        if not k or not self._has_panels() or self.dot is not None or k * row <= core.l2_bytes / 2:
            return (1,)
        sizes = {
            max((p for p in range(1, most + 1) if k % p == 0), default=1)
            for most in (core.l1_bytes // row, core.l2_bytes // 4 // row)
        }
        return (1, *sorted(k // size for size in sizes if size >= _SHORTEST_PART))

    @property
    def _is_ragged(self) -> bool:
        """Whether the last of B's panels is filled up."""
        return bool(self.block and self.n is not None and self.n % self.block)


def _in_parts(s: Schedule, mm: ComputeOp, out: ComputeOp, panels: ComputeOp | None, choice: Choice, lanes: int) -> None:
    """The sum in equal parts, one after the other for some panels and rows: a part of a panel stays in a core's caches while the rows go by, and partial sums wait in memory for those
    of the other parts."""
    height, width, together = choice["rows"], choice["columns"], choice["panels"]
    whole = s[mm]
    partial = s.rfactor(mm.output(0), whole.split(mm.reduce_axis[0], nparts=choice["parts"])[0])
    left = whole.op
    assert isinstance(left, ComputeOp)
    end = left if out is mm else out
    added, final = accumulators(s, left, end, "local"), s[end]
    *batch, i, j = final.op.axis
    m = const_shape(mm.output(0))[-2]
    assert m is not None
    some, i = final.split(i, nparts=-(-m // packing.PART_ROWS), shift_inwards=True)
    js, j = final.split(j, factor=together * width)
    jo, ji = final.split(j, factor=width)
    final.reorder(*batch, js, some, i, jo, ji)
    task = final.fuse(*batch, js, some)
    if choice["parallel"]:
        final.parallel(task)
    sums.vectorize(final, ji, lanes, width)
    sums.in_vectors(s, added, final, jo, lanes)
    cached, own = s.cache_write(partial, "local"), s[partial]
    own.compute_at(final, task)
    part, *batch, i, j = own.op.axis
    io, ii = own.split(i, factor=height, shift_inwards=True)
    jo, ji = own.split(j, factor=width)
    own.reorder(part, *batch, io, jo, ii, ji)
    sums.vectorize(own, ji, lanes, width)
    sums.in_vectors(s, cached, own, jo, lanes, choice["unroll"])
    if panels is not None:
        packing.make_at(s, panels, own, part, lanes)


def _goes_by_whole(n: int | None, m: int | None) -> bool:
    """Whether one or two rows take all of a few columns at once, in vectors of whatever divides them: they wait for the matrix, which is then one line of memory."""
    return n is not None and m is not None and m <= _FEW_ROWS and n <= _FEW_COLUMNS and n % _FEWEST_LANES == 0


def _lanes(n: int | None, target: Target, dtype: str, m: int | None) -> int:
    """Of vectors along `n` columns: a whole register's, or fewer for few columns. A core whose units are half a vector wide takes two halves in the time of a whole one: of few
    columns fewer of them stay empty."""
    lanes = max(_FEWEST_LANES, target.vector_bytes // dtype_info(dtype).bytes)
    while n is not None and lanes > max(n, _FEWEST_LANES):
        lanes //= 2
    if n is not None and lanes > _FEWEST_LANES and _goes_by_whole(n, m):
        return math.gcd(n, lanes)
    if n is not None and lanes == 16 and target.core.fma == 1 and n <= _FEW_COLUMNS and 0 < n % lanes <= lanes // 2:
        lanes //= 2
    return lanes
