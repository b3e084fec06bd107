"""Products with packed weights (`tec.ops.packed`) on a CPU: the codes become numbers in registers or in a panel, never in memory as a whole.

Few rows: a task reads a panel of codes once. A load of bytes makes two vectors by a mask and a shift; sums of x times codes are kept for a block, and
its scale and zero point are applied to the sum: scale * (sum(x * code) - zero * sum(x)). All in float32. Some rows: the numbers of a panel, in registers,
meet all of them. More rows: a chunk of a panel is made float32
once, in the first-level cache, and all rows go by it in register tiles.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from .... import te
from ....ops.forms import Form
from ....ops.packed import PackedContraction, Weights, number_of, scale_of
from ....target import Target
from ....te import Tensor
from ....te.ir_builder import BufferVar, IRBuilder
from ....te.like import Index
from ... import parallel
from ...cost import Footprint, on_cores
from ...layouts import packed as packed_panel
from ...parts import loops
from ...parts.counts import lanes_for
from ...space import Choice

FEW = 2  # rows up to which codes are made numbers again for each
_CHUNK = 256  # rows of a panel that are numbers at once: 32 KiB for 32 columns
_STEP = 4  # codes of a column that are multiplied in a row without a loop, in `_CHAINS` sums
_REST = 4  # rows of a tile of what whole tiles leave: two vectors of columns each are eight sums, which a row by itself would wait for as long
_CHAINS = 2  # two vectors of columns in two sums each: four additions, as many as their latency has clocks


class CpuPacked(loops.LoopForm):
    """Panels of columns over threads; `rows` by a panel in registers where there are more than a few rows. Of parameters the first value is the default's."""

    template: ClassVar[str] = "cpu packed product"
    kind: ClassVar[str] = "product"
    at_once: ClassVar[int] = 1  # multiply-adds of a lane in the time of one of float32
    # Instructions for as many codes as a vector has lanes, where they are unpacked for each row.
    few_steps: ClassVar[int] = 4
    block_steps: ClassVar[int] = 0  # more of them a block

    @classmethod
    def serves(cls, form: Form, target: Target) -> bool:
        c = form.attrs["contraction"]
        if target.is_gpu or not isinstance(c, PackedContraction) or c.weights is None:
            return False
        return c.weights.panel == packed_panel(target) and cls.takes(c, c.weights, target)

    @staticmethod
    def takes(c: PackedContraction, w: Weights, target: Target) -> bool:
        """Whether the loops multiply such rows with such weights."""
        return c.tensors_read[0].dtype != "int8"

    def read_form(self) -> None:
        self.contraction: PackedContraction = self.form.attrs["contraction"]
        self.lanes = lanes_for("float32", self.target)
        sizes = (8, 12, 6, 4, 2) if self.target.core.registers >= 32 else (4, 2)
        task = self.figures.count("task_rows")  # the work of making a panel is divided by them
        self.parameters = {"rows": sizes, "task": (task, task // 2, task // 4), "chunk": (_CHUNK, 128, 512)}

    @property
    def default(self) -> Choice:
        c, (most, *_), (chunk, *_) = self.contraction, self.parameters["task"], self.parameters["chunk"]
        task = most
        if isinstance(c.m, int) and c.weights is not None:  # fewer rows where threads would have nothing to do
            while task > most // 4 and -(-c.m // task) * c.weights.panels < 2 * self.target.machine.units:
                task //= 2
        return self.choice(rows=self.parameters["rows"][0], task=task, chunk=chunk)

    def sketch(self, choice: Choice) -> Footprint:
        """Multiply-adds at the vector rate, of few rows with the instructions that unpack codes beside each; and what a tile, a task and a chunk leave over."""
        c, (rows, *_), (chunk, *_) = self.contraction, self.parameters["rows"], self.parameters["chunk"]
        assert c.weights is not None
        m = c.m if isinstance(c.m, int) else 1
        odd = choice["task"] % choice["rows"] / choice["rows"]
        spare = abs(choice["rows"] - rows) / 64 + abs(choice["chunk"] - chunk) / 4096 + odd / 2 + 4 / choice["task"]
        each = (self.few_steps if m <= FEW else 1) * (1 + self.block_steps / c.weights.block + spare) / self.at_once
        return on_cores(m * c.n * c.k * each / self.target.machine.macs("float32", matrix=False))

    def panels(self, *args: Any) -> Panels:
        """The product's loops (`Panels`)."""
        made = NumbersProduct(self.contraction, *args)
        most = self.figures.count("rows_of_numbers" if made.w.are_numbers else "rows_of_codes")
        made.some = (4, 4), (most, 8)
        return made

    def tensors(self, choice: Choice) -> list[Tensor]:
        c, out = self.contraction, self.form.outputs[0]

        def body(ib: IRBuilder, sources: list[BufferVar], results: list[BufferVar]) -> None:
            self.panels(ib, sources, results[0], self.lanes, choice).run()

        made = loops.extern("packed", list(c.tensors_read), [(out.shape, c.acc)], body)
        if c.acc == out.dtype:
            return made
        return [te.compute(out.shape, lambda *i: made[0](*i).astype(out.dtype), name="packed_cast")]


class Panels:
    """The loops of one product with panels of packed columns; how codes are multiplied is a subclass's.

    Few rows: a panel's codes are read once for each, and sums of a block are scaled when it ends. More: a chunk of a panel is unpacked once, and a task's rows go by it.
    """

    sums_dtype = "float32"  # of the sums of x over blocks
    sums_scope = "global"
    few_clocks = 4.0  # a multiply-add of few rows, of a vector's lanes
    # Rows up to which codes become numbers in registers, and for how many of them at once.
    some: Sequence[tuple[int, int]] = ()

    def __init__(
        self, c: PackedContraction, ib: IRBuilder, sources: list[BufferVar], out: BufferVar, lanes: int, choice: Choice
    ):
        assert c.weights is not None
        self.w, self.ib, self.acc, self.out, self.lanes = c.weights, ib, c.acc, out, lanes
        self.x, self.codes = sources[:2]
        self.scale = sources[2] if len(sources) > 2 else None
        self.zero = sources[3] if len(sources) > 3 else None
        self.m = c.m if isinstance(c.m, int) else out.shape[0]
        self.rows, self.task, self.chunk = choice["rows"], choice["task"], choice["chunk"]
        self.vectors = self.w.panel // lanes

    def run(self) -> None:
        """By how many rows there are: few, some, or many."""
        ways = [(FEW, self._few)]
        for most, rows in self.some:
            if rows <= self.rows:
                ways.append((most, functools.partial(self._some, rows)))
        if isinstance(self.m, int):
            next((way for most, way in ways if self.m <= most), self._many)()
            return
        with contextlib.ExitStack() as ends:
            for most, way in ways:
                with self.ib.if_scope(self.m <= most):
                    way()
                ends.enter_context(self.ib.else_scope())
            self._many()

    # ---- vectors of columns

    def _lanes(self) -> Any:
        return self.ib.for_range(0, self.lanes, "lane", kind="vectorize")

    def _put(self, buffer: BufferVar, count: int, value: Callable[[Any], Any]) -> None:
        """`count` vectors of a buffer, an element each `value(place)`."""
        for v in range(count):
            with self._lanes() as lane:
                buffer[v * self.lanes + lane] = value(v * self.lanes + lane)

    def _zeroed(self, dtype: str, vectors: int, name: str) -> Any:
        made = self.ib.allocate(dtype, (vectors * self.lanes,), name, scope="local")
        self._put(made, vectors, lambda at: te.const(0, dtype))
        return made

    def _kind(self, clocks: float) -> str:
        return "parallel" if not isinstance(self.m, int) or parallel.worth(clocks) else "serial"

    def _store(self, row: Index, panel: Index, value: Callable[[Any], Any]) -> None:
        """A row of a panel of the result; `value(column)` reads a buffer."""
        w, ib = self.w, self.ib

        def whole() -> None:
            for v in range(self.vectors):
                with self._lanes() as lane:
                    at = v * self.lanes + lane
                    self.out[row, panel * w.panel + at] = value(at)

        rest = w.n % w.panel
        if not rest:
            whole()
            return
        with ib.if_scope(panel < w.n // w.panel):
            whole()
        with ib.else_scope(), ib.for_range(0, rest, "column") as column:
            self.out[row, panel * w.panel + column] = value(column)

    # ---- few rows

    def _few(self) -> None:
        ib, w = self.ib, self.w
        rows = FEW if not isinstance(self.m, int) else self.m
        x_sums = self._x_sums(rows)
        kind = self._kind(rows * w.panels * w.k * self.few_clocks)
        with ib.for_range(0, w.panels, "panel", kind=kind) as panel, ib.for_range(0, self.m, "i") as i:
            total = self._zeroed(self.acc, self.vectors, "total")
            with ib.for_range(0, w.blocks, "b") as b:
                self._block(total, panel, i, b, x_sums)
            self._store(i, panel, lambda column: total[column])

    def _x_sums(self, rows: Any) -> Any:
        """The sums of x over blocks, of every row."""
        ib, w = self.ib, self.w
        sums = ib.allocate(self.sums_dtype, (rows * w.blocks,), "x_sums", scope=self.sums_scope)
        with ib.for_range(0, self.m, "i") as i, ib.for_range(0, w.blocks, "b") as b:
            sums[i * w.blocks + b] = self._x_sum(i, b)
        return sums

    def _x_sum(self, row: Index, b: Index) -> Any:
        """The sum of a block of x, for what zero points take away."""
        raise NotImplementedError

    def _block(self, total: BufferVar, panel: Index, i: Index, b: Index, x_sums: Index) -> None:
        """Adds the product of a row's block and a panel's to `total`."""
        raise NotImplementedError

    # ---- some rows

    def _some(self, rows: int) -> None:
        """`rows` rows at once: a panel's codes become numbers in registers, and the rows go by them. Rows behind the last are the last one again, and nobody
        reads their sums."""
        ib, w = self.ib, self.w
        self._prepare()
        kind = self._kind(rows * w.panels * w.k * self.many_clocks)
        with (
            ib.for_range(0, w.panels, "panel", kind=kind) as panel,
            ib.for_range(0, te.indexdiv(self.m + (rows - 1), rows), "tile") as tile,
        ):
            first = ib.let("first", tile * rows)
            sums = self._zeroed(self.acc, rows * self.vectors, "sums")
            places = [ib.let("row", te.min(first + r, self.m - 1)) for r in range(rows)]
            self._tile(sums, 0, rows, lambda own: self._direct(own, panel, places))
            with ib.for_range(0, te.min(rows, self.m - first), "i") as i:
                self._store(first + i, panel, lambda column: sums[i * w.panel + column])

    def _direct(self, own: BufferVar, panel: Index, places: Sequence[Any]) -> None:
        """Adds the products of rows of x and a whole panel to `own`."""
        raise NotImplementedError

    # ---- many rows

    unit = 1  # codes of a column that a chunk has a whole number of
    many_clocks = 1.0  # a multiply-add, of a vector's lanes
    tile_dtype = "float32"  # of unpacked codes
    beyond = 0  # rows behind a task's own that its tiles may reach

    def _many(self) -> None:
        ib, w, m, size = self.ib, self.w, self.m, self.task
        tiles = -(-m // size) if isinstance(m, int) else te.indexdiv(m + (size - 1), size)
        self._prepare()
        clocks = float(m if isinstance(m, int) else 0) * w.panels * w.k * self.many_clocks
        with ib.for_range(0, tiles * w.panels, "task", kind=self._kind(clocks)) as task:
            panel, first = ib.let("panel", te.indexdiv(task, tiles)), ib.let("first", te.indexmod(task, tiles) * size)
            count = ib.let("count", te.min(size, m - first))
            sums = ib.allocate(self.acc, ((size + self.beyond) * w.panel,), "sums", scope="local")
            with ib.for_range(0, (count + self.beyond) * self.vectors, "v") as v, self._lanes() as lane:
                sums[v * self.lanes + lane] = te.const(0, self.acc)
            whole = w.k // self.unit
            chunk = max(1, min(self.chunk // self.unit, whole))
            tile = ib.allocate(self.tile_dtype, (chunk * self.unit * w.panel,), "weights", scope="local")
            with ib.for_range(0, whole // chunk, "c") as c:
                self._chunk(tile, sums, panel, first, count, c * chunk, chunk)
            if whole % chunk:
                self._chunk(tile, sums, panel, first, count, whole - whole % chunk, whole % chunk)
            with ib.for_range(0, count, "i") as i:
                self._store(first + i, panel, lambda column: sums[i * w.panel + column])

    def _prepare(self) -> None:
        """What all tasks read."""

    def _chunk(
        self, tile: Any, sums: BufferVar, panel: Index, first: Index, count: Index, start: Index, depth: int
    ) -> None:
        """Adds the products of a task's rows and a chunk (`start`, `depth` in units), unpacked into `tile`, to `sums`."""
        raise NotImplementedError

    def _tile(self, sums: BufferVar, i0: Index, rows: int, multiply: Callable[[Any], None]) -> None:
        """`rows` rows of a task's sums from i0 on in registers, brought up to date by `multiply(sums)`."""
        count, first = rows * self.vectors, i0 * self.w.panel
        own = self.ib.allocate(self.acc, (rows * self.w.panel,), "own", scope="local")
        for r in range(count):
            with self._lanes() as lane:
                own[r * self.lanes + lane] = sums[first + r * self.lanes + lane]
        multiply(own)
        for r in range(count):
            with self._lanes() as lane:
                sums[first + r * self.lanes + lane] = own[r * self.lanes + lane]


class NumbersProduct(Panels):
    """Codes become numbers of the accumulator's type."""

    beyond = _REST - 1

    def __init__(self, c: PackedContraction, *args: Any):
        super().__init__(c, *args)
        self.sums_dtype = self.tile_dtype = self.acc
        self.sums_scope = "local"

    def _code(self, panel: Index, k: Index, v: int, lane: Index) -> Any:
        """The code of column lane of vector v of a panel, as a number."""
        w, half = self.w, self.w.panel // self.w.per
        first = v * self.lanes
        if w.are_numbers:
            return self.codes[panel, k, first + lane].astype(self.acc)
        if w.are_split:
            (low, at_low), (high, at_high) = w.places(k, first)
            pair = te.indexdiv(k, 2 * w.group)
            low, high = (self.codes[panel, pair, byte + lane].astype("int32") for byte in (low, high))
            return (((low >> at_low) & 15) | ((high >> at_high & 3) << 4)).astype(self.acc)
        value = self.codes[panel, k, first % half + lane].astype("int32")
        if w.per > 1:
            shift = first // half * w.bits
            value = value >> shift if shift == 8 - w.bits else (value >> shift) & ((1 << w.bits) - 1)
        return number_of(value, w.format).astype(self.acc)

    def _scale(self, panel: Index, b: Index, at: Index) -> Any:
        assert self.scale is not None
        return scale_of(self.scale[panel, b, at], self.w.format).astype(self.acc)

    def _zero(self, panel: Index, b: Index, at: Index) -> Any:
        if self.zero is None:
            return te.const(self.w.zero, self.acc)
        return self.zero[panel, b, at].astype(self.acc)

    def _x_sums(self, rows: Any) -> Any:
        return None if self.w.are_numbers else super()._x_sums(rows)

    def _x_sum(self, row: Index, b: Index) -> Any:
        ib, w = self.ib, self.w
        lanes = min(self.lanes, w.block & -w.block)
        part = ib.allocate(self.acc, (lanes,), "part", scope="local")
        with ib.for_range(0, lanes, "lane", kind="vectorize") as lane:
            part[lane] = te.const(0, self.acc)
        with ib.for_range(0, w.block // lanes, "c") as c, ib.for_range(0, lanes, "lane", kind="vectorize") as lane:
            part[lane] = part[lane] + self.x[row, b * w.block + c * lanes + lane].astype(self.acc)
        return sum((part[j] for j in range(1, lanes)), part[0])

    def _block(self, total: BufferVar, panel: Index, i: Any, b: Any, x_sums: Any) -> None:
        ib, w, lanes, vectors = self.ib, self.w, self.lanes, self.vectors
        sums = self._zeroed(self.acc, _CHAINS * vectors, "sums")
        with ib.for_range(0, w.block // _STEP, "step") as step:
            for j in range(_STEP):
                k = b * w.block + step * _STEP + j
                x = ib.let("x", self.x[i, k].astype(self.acc))
                for v in range(vectors):
                    at = ((j % _CHAINS) * vectors + v) * lanes
                    with self._lanes() as lane:
                        sums[at + lane] = sums[at + lane] + x * self._code(panel, k, v, lane)
        taken = None if w.are_numbers else ib.let("taken", x_sums[i * w.blocks + b])

        def scaled(at: Index) -> Any:
            value = sum((sums[j * w.panel + at] for j in range(1, _CHAINS)), sums[at])
            if taken is None:
                return total[at] + value
            return total[at] + (value - self._zero(panel, b, at) * taken) * self._scale(panel, b, at)

        self._put(total, vectors, scaled)

    def _number(self, panel: Index, k: Index, b: Index, v: int, lane: Index) -> Any:
        """The number of column lane of vector v of a panel; b: the block of k."""
        place, code = v * self.lanes + lane, self._code(panel, k, v, lane)
        return code if self.w.are_numbers else (code - self._zero(panel, b, place)) * self._scale(panel, b, place)

    def _direct(self, own: BufferVar, panel: Index, places: Sequence[Any]) -> None:
        ib, w, lanes = self.ib, self.w, self.lanes
        with ib.for_range(0, w.blocks, "b") as b, ib.for_range(0, w.block, "j") as j:
            k = ib.let("k", b * w.block + j)
            numbers = ib.allocate(self.acc, (w.panel,), "numbers", scope="local")
            for v in range(self.vectors):
                with self._lanes() as lane:
                    numbers[v * lanes + lane] = self._number(panel, k, b, v, lane)
            for r, row in enumerate(places):
                self._add(own, r, self.x[row, k].astype(self.acc), lambda at: numbers[at])

    def _chunk(
        self, tile: BufferVar, sums: BufferVar, panel: Index, first: Index, count: Index, start: Index, depth: int
    ) -> None:
        """A chunk of the depth: its numbers are decoded once into `tile`, then multiplied by all rows."""
        ib, w, lanes = self.ib, self.w, self.lanes
        with ib.for_range(0, depth, "k") as k:
            b = ib.let("b", te.indexdiv(start + k, w.block))
            for v in range(self.vectors):
                with self._lanes() as lane:
                    tile[k * w.panel + v * lanes + lane] = self._number(panel, start + k, b, v, lane)

        def by(i0: Index, rows: int, last: Any = None) -> None:
            self._tile(sums, i0, rows, lambda own: self._multiply(tile, own, first + i0, rows, start, depth, last))

        with ib.for_range(0, te.indexdiv(count, self.rows), "tile") as t:
            by(t * self.rows, self.rows)
        at, size = ib.let("at", te.indexdiv(count, self.rows) * self.rows), min(self.rows, _REST)
        with ib.for_range(0, te.indexdiv(count - at + (size - 1), size), "rest") as t:
            by(at + t * size, size, self.m - 1)

    def _multiply(
        self, tile: BufferVar, own: BufferVar, row: Index, rows: int, start: Index, depth: int, last: Any = None
    ) -> None:
        """last: of the product's rows, which stands for those behind it; nobody reads their sums."""
        ib, w = self.ib, self.w
        places = [row + r if last is None else ib.let("row", te.min(row + r, last)) for r in range(rows)]
        with ib.for_range(0, depth, "k") as k:
            for r, place in enumerate(places):
                self._add(own, r, self.x[place, start + k].astype(self.acc), lambda at: tile[k * w.panel + at])

    def _add(self, own: BufferVar, r: int, x: Any, number: Callable[[Any], Any]) -> None:
        """x times the numbers of a panel's columns join row r's sums."""
        x, first = self.ib.let("x", x), r * self.w.panel
        for v in range(self.vectors):
            with self._lanes() as lane:
                at = v * self.lanes + lane
                own[first + at] = own[first + at] + x * number(at)
