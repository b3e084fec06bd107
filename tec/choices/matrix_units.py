"""Matrix products on matrix units: MFMA, WMMA, mma.sync, one template.

A work-group of some wavefronts computes a tile of C. A step of k brings tiles of A and B into shared memory in 16-byte
pieces, swizzled or with rows padded by 16 bytes so that the lanes' 16-byte reads spread over the banks; each wavefront then feeds its part
of them to the matrix unit from registers (see tec.te.intrin). An elementwise epilogue works on the accumulators where
they lie.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from .. import te
from ..ir import Cast, Expr, IntImm, IterVar, Mul, Reduce, TensorRead
from ..ir.dtype import dtype_info
from ..ir.matrix import MatrixInstr
from ..ir.visit import walk_exprs
from ..ops.contraction import Contraction
from ..ops.dims import is_symbolic
from ..schedule import Schedule
from ..target import Target, latency_ns, level_gbps
from ..te import ComputeOp, Operation, Tensor, intrin, thread_axis
from . import padding, tilings
from .group import Group, begin, const_shape, depends, extent, same_shape, substitute
from .parts import traffic_seconds
from .pointwise import bind_all
from .space import Choice, Cost, Scheduled, Space
from .tilings import PIECE, PIECE_BYTES, Shape, Tiling

COMPUTED_IN_PLACE = ("tile",)  # tags of operands whose tiles are computed in shared memory (see `padding`)


@dataclass(frozen=True)
class Product:
    """The two operands of a product, and whether A is [k, m] and B is [n, k]; a size is None where it is symbolic."""

    a: Tensor
    b: Tensor
    trans_a: bool
    trans_b: bool
    m: int | None
    n: int | None
    k: int | None


def operands(mm: ComputeOp) -> Product | None:
    """The operands of sum_k A[..., i, k] * B[..., k, j] in any order of the last two indices; None for another form."""
    body = mm.body[0]
    if not isinstance(body, Reduce) or len(mm.body) != 1 or body.combiner.name != "sum" or len(mm.reduce_axis) != 1:
        return None
    source = body.source[0]
    if not isinstance(source, Mul) or len(mm.axis) < 2:
        return None
    i, j, k = mm.axis[-2].var, mm.axis[-1].var, mm.reduce_axis[0].var
    dims = const_shape(mm.output(0))
    dom = mm.reduce_axis[0].dom
    size_k = extent(dom.extent) if dom is not None else None
    found: dict[str, tuple[Tensor, bool]] = {}
    for e in (source.a, source.b):
        read: Expr = e
        while isinstance(read, Cast):
            read = read.value
        if not isinstance(read, TensorRead) or len(read.indices) < 2:
            return None
        x, y = read.indices[-2:]
        for name, pair in (("a", (i, k)), ("b", (k, j))):
            for trans in (False, True):
                want = pair[::-1] if trans else pair
                if x is want[0] and y is want[1]:
                    found[name] = (read.tensor, trans)
    if set(found) != {"a", "b"} or found["a"][0].dtype != found["b"][0].dtype or found["a"][0] is found["b"][0]:
        return None
    (a, trans_a), (b, trans_b) = found["a"], found["b"]
    return Product(a, b, trans_a, trans_b, dims[-2], dims[-1], size_k)


SPLITS = (1, 2, 4, 8, 16, 32)  # parts of the sum: each adds a matrix of float32 to write and read
_LEAST_STEPS = 4  # of a part with large tiles, NVIDIA: filling their slots is most of it (128 x 768 x 3072, one H200: 16 parts of three steps by 128 x 128 8.5 us, 8 by 64 x 64 7.1)
_ENOUGH = 3  # work-groups a unit from which parts of the sum are not asked for
_WORTH = 0.9  # of the whole's time, that parts should take at most: a launch more is certain, the gain an estimate


class MatrixProduct(Space):
    """A product on the chip's matrix unit: the work-group's tile, its wavefronts, the instruction, how tiles lie in shared memory."""

    template: ClassVar[str] = "matrix product"

    def __init__(
        self,
        group: Group,
        target: Target,
        shape: Shape,
        op: ComputeOp,
        contraction: Contraction | None,
        result: Tensor | None,
    ):
        super().__init__(group, target)
        self.shape, self.op, self.contraction, self.result = shape, op, contraction, result
        names = dict.fromkeys(_name(i, shape) for i in tilings.instructions(shape, target))
        most = tilings.steps(shape, target)[0]
        self.parameters = {
            "rows": (128, 64, 256, 32, 16, 96, 192), "columns": (128, 64, 256, 32, 16, 96, 192, 48), "step": tuple(2 * most >> k for k in range(4)),
            "waves_m": (2, 1, 4), "waves_n": (2, 1, 4), "instruction": tuple(names), "swizzle": (True, False), "stages": (1, 2, 0, 3), "ahead": (1, 2, 3, 4), "band": (0, 8, 4, 16) if self._has_bands() else (0,),
            "splits": SPLITS if self._may_split() else (1,), "interleave": (True, False) if target.kind == "rocm" else (False,),
            "slices": (1, 2, 4, 8) if target.kind == "rocm" and self._may_split() else (1,),
        }  # fmt: skip

    def _may_split(self) -> bool:
        """Whether the sum can be made in parts: a form whose sizes are numbers, on a GPU whose latencies are known."""
        c = self.contraction
        return c is not None and not is_symbolic((*c.batch, c.m, c.n, c.k)) and self.target.kind in ("rocm", "cuda")

    def _has_bands(self) -> bool:
        """Whether tiles can go by bands: on AMD, where their number is known."""
        c = self.contraction
        return self.target.kind == "rocm" and (c is None or not is_symbolic((c.m, c.n)))

    def tiling(self, choice: Choice) -> Tiling:
        """The choice as a tiling."""
        c = choice
        m, n, k = map(int, c["instruction"].split("x"))
        return Tiling(
            c["rows"],
            c["columns"],
            c["step"],
            c["waves_m"],
            c["waves_n"],
            m,
            n,
            k,
            c["swizzle"],
            c["stages"],
            c["ahead"],
            c["band"],
            c["interleave"],
            c["slices"],
        )

    def of_tiling(self, t: Tiling, splits: int = 1) -> Choice:
        """A tiling as a choice."""
        return self.choice(
            rows=t.m, columns=t.n, step=t.k, waves_m=t.waves_m, waves_n=t.waves_n, instruction=f"{t.instr_m}x{t.instr_n}x{t.instr_k}",
            swizzle=t.swizzle, stages=t.stages, ahead=t.ahead, band=t.band, splits=splits, interleave=t.interleave, slices=t.slices,
        )  # fmt: skip

    def why_not(self, choice: Choice) -> str | None:
        t, splits = self.tiling(choice), choice["splits"]
        if splits > 1 and t.slices > 1:
            return "the sum is in parts already"
        if splits > 1 and self.shape.k % (splits * t.k):
            return f"a sum of {self.shape.k} is not {splits} parts of whole steps"
        return tilings.why_not(t, self._part(splits), self.target)

    def _part(self, splits: int) -> Shape:
        """The product that work-groups compute: parts of the sum beside each other."""
        return replace(self.shape, k=self.shape.k // splits, batch=self.shape.batch * splits, parts=splits > 1)

    def drafts(self) -> Iterator[Choice]:
        for splits in self.parameters["splits"]:
            for t in self._drafts(splits):
                yield self.of_tiling(t, splits)

    def _drafts(self, splits: int) -> Iterator[Tiling]:
        """Tilings of the sum in so many parts."""
        part = self._part(splits)
        for t in tilings.drafts(part, self.target):
            if splits == 1 or not (self.shape.k % (splits * t.k) or self._is_all_filling(t, part.k)):
                yield t

    def _is_all_filling(self, t: Tiling, k: int) -> bool:
        """Whether a part of the sum is hardly longer than filling its slots takes. (Small tiles bear parts of two steps: ResNet-50 f16, batch 1, 0.375 ms for 0.411.)"""
        return self.target.kind == "cuda" and t.m * t.n > 128 * 64 and k < _LEAST_STEPS * t.k

    @property
    def default(self) -> Choice:
        """The cheapest tiling; in parts where that should be worth the second kernel."""
        found = tilings.cheapest(self.shape, self.target)
        assert found is not None  # `match` has seen one
        splits, least = 1, _WORTH * self._seconds(found, 1).seconds
        fills = tilings.groups(found, self.shape) >= _ENOUGH * self.target.machine.units
        for n in self.parameters["splits"]:
            for t in self._drafts(n) if n > 1 and not fills else ():
                cost = self._seconds(t, n).seconds
                if cost < least:
                    found, splits, least = t, n, cost
        return self._ordered(self.of_tiling(found, splits))

    def _ordered(self, choice: Choice) -> Choice:
        """In bands where several dies have work enough that the order of tiles decides what their L2s share: up to 2.6 times less comes from beyond them, 3 % of
        4096 x 1024 x 4096 by the time model."""
        t, part = self.tiling(choice), self._part(choice["splits"])
        machine = self.target.machine
        if machine.dies > 1 and not self.shape.guarded and 2 * tilings.groups(t, part) >= machine.units:
            for band in self.parameters["band"]:
                made = {**choice, "band": band}
                if band and self.why_not(made) is None:
                    return made
        return choice

    def cost(self, choice: Choice) -> Cost:
        return self._seconds(self.tiling(choice), choice["splits"])

    def _seconds(self, t: Tiling, splits: int) -> Cost:
        m, part = self.target.machine, self._part(splits)
        seconds, limit = tilings.seconds(t, part, self.target)
        if splits > 1:
            # The parts, written and read, and the launch that adds them up, whose loads are all under way at once.
            results = part.batch * part.m * part.n
            if self.target.kind == "cuda":
                seconds += traffic_seconds(splits, results // splits, m.memory.gbps or m.memory_gbps)
            else:
                moved = 2 * results * dtype_info(part.acc).bytes
                seconds += (m.launch_us + 2e-3 * latency_ns(m, "memory")) * 1e-6 + moved / (
                    level_gbps(m, "memory") * 1e9
                )
        return Cost(seconds, limit)

    def build(self, choice: Choice) -> Scheduled:
        t, outputs, op = self.tiling(choice), self.group.outputs, self.op
        c = self.contraction
        if c is not None and self.result is not None:
            if choice["splits"] > 1:
                return self._in_parts(choice)
            if t.slices > 1:
                return self._in_slices(choice)
            turns = (self._turn(t, c, 0), self._turn(t, c, 1))
            result = padding.padded(c, (t.m, t.n, t.k), turns)
            outputs = substitute(outputs, {self.result: result})
            op = result.op.inputs[0].op  # type: ignore[assignment]
        group = Group.of(outputs)
        s = begin(group, keep=[o for o in group.ops if o.tag == "tile"])
        out = group.output_ops[0]
        assert isinstance(out, ComputeOp)
        if not schedule(s, op, out, self.target, t, self.shape.unit or None):
            raise AssertionError(f"{self} matched what it cannot schedule")
        return Scheduled(s, outputs, choice)

    def _in_parts(self, choice: Choice) -> Scheduled:
        """Parts of the sum as a batch of products, and a kernel that adds them up and goes on with what follows."""
        t, c, splits = self.tiling(choice), self.contraction, choice["splits"]
        assert c is not None and self.result is not None
        part = padding.part(c, splits)
        parts = padding.padded(part, (t.m, t.n, t.k), (self._turn(t, part, 0), self._turn(t, part, 1)))
        r = te.reduce_axis((0, splits), "part")
        whole = te.compute((*c.batch, c.m, c.n), lambda *i: te.sum(parts(r, *i), axis=r), name="sum")
        result = te.compute((*c.batch, c.m, c.n), lambda *i: whole(*i).astype(c.out_dtype), name="result")
        outputs = substitute(self.group.outputs, {self.result: result})
        group = Group.of(outputs)
        s = begin(group, keep=[parts.op, *(o for o in group.ops if o.tag == "tile")])
        out, product = group.output_ops[0], parts.op.inputs[0].op
        assert isinstance(out, ComputeOp) and isinstance(product, ComputeOp) and isinstance(parts.op, ComputeOp)
        if not schedule(s, product, parts.op, self.target, t, self.shape.unit or None):
            raise AssertionError(f"{self} matched what it cannot schedule")
        s[whole].compute_at(s[out], bind_all(s, out))
        s[whole].set_scope("local")
        s[whole].unroll(r)
        return Scheduled(s, outputs, choice)

    def _in_slices(self, choice: Choice) -> Scheduled:
        """A part of the sum a wavefront; the parts meet in shared memory, where what follows the product finds them."""
        t, c = self.tiling(choice), self.contraction
        assert c is not None and self.result is not None
        part = padding.part(c, t.slices, t.k)
        padded = padding.padded(part, (t.m, t.n, t.k), (self._turn(t, part, 0), self._turn(t, part, 1)))
        product = padded.op.inputs[0]
        assert isinstance(product.op, ComputeOp)
        met = te.compute(product.shape, lambda *i: product(*i), name="met", tag="met")
        r = te.reduce_axis((0, t.slices), "part")
        whole = te.compute((*c.batch, c.m, c.n), lambda *i: te.sum(met(r, *i), axis=r), name="sum")
        result = te.compute((*c.batch, c.m, c.n), lambda *i: whole(*i).astype(c.out_dtype), name="result")
        outputs = substitute(self.group.outputs, {self.result: result})
        group = Group.of(outputs)
        s = begin(group, keep=[met.op, *(o for o in group.ops if o.tag == "tile")])
        s[whole].compute_at(s[group.output_ops[0]], _meeting(s, group.output_ops[0], met, t, self.target))
        s[whole].set_scope("local")
        s[whole].unroll(r)
        if not schedule(s, product.op, met.op, self.target, t, self.shape.unit or None):
            raise AssertionError(f"{self} matched what it cannot schedule")
        return Scheduled(s, outputs, choice)

    def _turn(self, t: Tiling, c: Contraction, side: int) -> tuple[int, int] | None:
        """How an operand that lies along its rows or columns is turned round on its way, a block of (rows, k) a thread."""
        o, rows, tile = (c.a, c.m, t.m) if side == 0 else (c.b, c.n, t.n)
        if self.target.kind == "cuda" or not padding.can_turn(c, o, rows, tile, t.k):
            return None
        return tilings.turning(t, tile, o.run(), o.dtype, self.target)


def _name(i: MatrixInstr, shape: Shape) -> str:
    return f"{i.m}x{i.n}x{tilings.instr_k(i, shape)}"


def match(group: Group, target: Target, op: ComputeOp) -> MatrixProduct | None:
    """The space of a group around the product `op`, whose operands may be padded where its form says what they are; None where no unit takes
    it, or other work stands in the way."""
    if len(group.output_ops) != 1 or group.reductions() != [op]:
        return None
    out = group.output_ops[0]
    found = group.form("product")
    if found is None:
        p = operands(op)
        if p is None or p.m is None or p.n is None or p.k is None or not same_shape(out.output(0), op.output(0)):
            return None
        batch = math.prod(d or 1 for d in const_shape(op.output(0))[:-2])
        shape = Shape(p.m, p.n, p.k, batch, p.a.dtype, op.output(0).dtype, padded=False)
        space = MatrixProduct(group, target, shape, op, None, None)
    else:
        form, carriers = found
        c: Contraction = form.attrs["contraction"]
        if c.a.dtype != c.b.dtype:
            return None
        fixed = not is_symbolic((*c.batch, c.m, c.n, c.k))
        shape = Shape(*padding.sizes(c), c.a.dtype, c.acc, padded=True, guarded=padding.guarded(c), fixed=fixed)
        space = MatrixProduct(group, target, shape, op, c, carriers[0])
    return space if next(space.drafts(), None) is not None else None


def choose(p: Product, acc_dtype: str, target: Target, unit: str | None = None) -> Tiling | None:
    """The cheapest tiling of a product whose operands are tensors as they are; None where the chip's unit does not fit. `unit` "tf32": see
    `schedule`."""
    if p.m is None or p.n is None or p.k is None:
        return None
    return tilings.cheapest(Shape(p.m, p.n, p.k, 1, p.a.dtype, acc_dtype, padded=False, unit=unit or ""), target)


def schedule(
    s: Schedule, mm: ComputeOp, out: ComputeOp, target: Target, tiling: Tiling | None = None, unit: str | None = None
) -> bool:
    """Schedule the product `mm` and its elementwise epilogue `out` (or `mm` itself); False where the unit does not fit.

    `unit` "tf32" lets a float32 product run on 19-bit matrix units, which nothing does unasked.
    """
    p = operands(mm)
    if p is None or not follows(out, mm):
        return False
    tiling = tiling or choose(p, mm.output(0).dtype, target, unit)
    if tiling is None:
        return False
    t = tiling
    square = t.instr_m == t.instr_n
    mx = intrin.matrix(
        target,
        unit or p.a.dtype,
        t.instr_m,
        t.instr_n,
        t.instr_k,
        trans_a=p.trans_a,
        trans_b=p.trans_b,
        swap=square,
        runs=square,
    )
    if out is mm:
        acc_tensor = s.cache_write(mm.output(0), "fragment.acc")
        final = s[mm.output(0)]
    else:
        acc_tensor, final = mm.output(0), s[out.output(0)]
        s[acc_tensor].set_scope("fragment.acc")
    acc = s[acc_tensor]
    staged = []
    for tensor, role in ((p.a, "a"), (p.b, "b")):
        if tensor.op.tag in COMPUTED_IN_PLACE:
            s[tensor].set_scope("shared")
            shared = tensor
        else:
            shared = s.cache_read(tensor, "shared", [acc_tensor])
        staged.append((shared, s.cache_read(shared, f"fragment.{role}", [acc_tensor]), role))
    at = _output(final, t, mx, target.machine.dies) if t.slices == 1 else _slices(final, t, mx)
    inner = _product(acc, final, at, t, mx)
    for shared, fragment, role in staged:
        _operand(s, shared, fragment, role, acc, inner, t, mx, p)
    return True


def follows(out: Operation, mm: ComputeOp, known: set[Operation] | None = None) -> bool:
    """Whether `out` reads the product, at any distance, at its own place alone: what an epilogue on the accumulators can do."""
    known = set() if known is None else known  # what is found to follow: an epilogue may read one value many times
    if out is mm or out in known:
        return True
    if not isinstance(out, ComputeOp) or out.reduce_axis:
        return False
    reads: list[TensorRead] = []
    for body in out.body:
        reads += [e for e in walk_exprs(body) if isinstance(e, TensorRead)]
    for read in reads:
        op = read.tensor.op
        if op is mm or depends(op, mm):
            own = len(read.indices) == len(out.axis) and all(
                i is a.var or (isinstance(i, IntImm) and i.value == 0 and _single(a))
                for i, a in zip(read.indices, out.axis)
            )
            if not own or not follows(op, mm, known):
                return False
    known.add(out)
    return True


def _single(axis: IterVar) -> bool:
    """Whether an axis has one value: broadcasts then read index 0."""
    return axis.dom is not None and extent(axis.dom.extent) == 1


def _threads(t: Tiling, wave: int) -> tuple[Any, Any, Any]:
    return (
        thread_axis((0, wave), "threadIdx.x"),
        thread_axis((0, t.waves_n), "threadIdx.y"),
        thread_axis((0, t.waves_m * t.slices), "threadIdx.z"),
    )


def _output(final: Any, t: Tiling, mx: intrin.MatrixIntrins, dies: int) -> Any:
    """Tiles of the output over blocks, wavefronts and matrix tiles. Returns the wavefront's axis."""
    *lead, i, j = final.op.axis
    bi, i = final.split(i, factor=t.m)
    bj, j = final.split(j, factor=t.n)
    wi, i = final.split(i, nparts=t.waves_m)
    wj, j = final.split(j, nparts=t.waves_n)
    ti, ii = final.split(i, factor=t.instr_m)
    tj, jj = final.split(j, factor=t.instr_n)
    final.reorder(*lead, bi, bj, wi, wj, ti, tj, ii, jj)
    if lead:
        final.bind(final.fuse(*lead) if len(lead) > 1 else lead[0], thread_axis("blockIdx.z"))
    _, ty, tz = _threads(t, mx.instr.wave)
    _over_blocks(final, bi, bj, t, dies)
    for axis, thread in ((wi, tz), (wj, ty)):
        final.bind(axis, thread)
    mx.on_tile(final, ii)
    return wj


def _over_blocks(final: Any, bi: Any, bj: Any, t: Tiling, dies: int) -> Any:
    """Tiles over work-groups. Returns the innermost axis of them."""
    if t.band:
        tiles = _in_bands(final, bi, bj, t.band, dies)
        final.bind(tiles, thread_axis("blockIdx.x"))
        return tiles
    final.bind(bi, thread_axis("blockIdx.y"))
    final.bind(bj, thread_axis("blockIdx.x"))
    return bj


def _meeting(s: Schedule, out: Operation, met: Tensor, t: Tiling, target: Target) -> Any:
    """Tiles of the output over blocks, each over all of a work-group's threads, in pieces of neighbours; the parts of a tile's sums in shared memory. Returns the axis of a thread."""
    final = s[out]
    *lead, i, j = final.op.axis
    bi, i = final.split(i, factor=t.m)
    bj, j = final.split(j, factor=t.n)
    final.reorder(*lead, bi, bj, i, j)
    if lead:
        final.bind(final.fuse(*lead) if len(lead) > 1 else lead[0], thread_axis("blockIdx.z"))
    at = _over_blocks(final, bi, bj, t, target.machine.dies)
    rest, piece = final.split(final.fuse(i, j), factor=PIECE)
    left = t.m * t.n // PIECE  # of a small tile fewer than there are threads
    for thread, n in zip(_threads(t, target.wavefront_size), (target.wavefront_size, t.waves_n, t.waves_m * t.slices)):
        rest, part = final.split(rest, factor=min(n, left))
        final.bind(part, thread)
        left //= min(n, left)
    final.unroll(rest)
    final.vectorize(piece)
    s[met].set_scope("shared")
    s[met].compute_at(final, at)
    return part


def _slices(met: Any, t: Tiling, mx: intrin.MatrixIntrins) -> Any:
    """Parts of the sums over wavefronts. Returns the wavefront's axis."""
    part, *lead, i, j = met.op.axis
    met.storage_align(i, t.n, PIECE)  # the lanes that store side by side have rows of their own
    wi, i = met.split(i, nparts=t.waves_m)
    wj, j = met.split(j, nparts=t.waves_n)
    ti, ii = met.split(i, factor=t.instr_m)
    tj, jj = met.split(j, factor=t.instr_n)
    met.reorder(*lead, part, wi, wj, ti, tj, ii, jj)
    _, ty, tz = _threads(t, mx.instr.wave)
    met.bind(met.fuse(part, wi), tz)
    met.bind(wj, ty)
    mx.on_tile(met, ii)
    return wj


def _in_bands(final: Any, bi: Any, bj: Any, band: int, dies: int) -> Any:
    """One axis over the tiles: down a band's rows, then along its columns, band after band. Work-groups are dealt to the dies in turn ("workgroup i goes to
    XCD i % 8", rocm-libraries 6501), so the order is cut in as many parts, and each die gets one."""
    far, near = final.split(bi, factor=band)
    final.reorder(far, bj, near)
    tiles = final.fuse(far, bj, near)
    if dies > 1:
        die, place = final.split(tiles, nparts=dies)
        final.reorder(place, die)
        tiles = final.fuse(place, die)
    return tiles


def _product(acc: Any, final: Any, at: Any, t: Tiling, mx: intrin.MatrixIntrins) -> tuple[Any, Any]:
    """The accumulator's loops. Returns the axes of a step and of a part of it."""
    acc.compute_at(final, at)
    *lead, i, j = acc.op.axis
    (k,) = acc.op.reduce_axis
    ko, ki = acc.split(k, factor=t.k)
    ki, kk = acc.split(ki, factor=t.instr_k)
    ti, ii = acc.split(i, factor=t.instr_m)
    tj, jj = acc.split(j, factor=t.instr_n)
    acc.reorder(*lead, ko, ki, ti, tj, ii, jj, kk)
    acc.unroll(ki)
    if t.interleave:
        acc.pragma(ki, "fragments_ahead")
    if t.stages and (extent(k.dom.extent) or t.k + 1) > t.k:
        acc.pragma(ko, "software_pipeline", t.stages if t.ahead == 1 else (t.stages, t.ahead))
    acc.tensorize(ii, mx.mma)
    return ko, ki


def _operand(
    s: Schedule, shared: Any, fragment: Any, role: str, acc: Any, inner: tuple[Any, Any], t: Tiling,
    mx: intrin.MatrixIntrins, p: Product,
) -> None:  # fmt: skip
    """One operand: global memory to shared memory each step, shared memory to registers each part of a step."""
    ko, ki = inner
    instr: MatrixInstr = mx.instr
    trans = p.trans_a if role == "a" else p.trans_b
    rows, cols = instr.shape(role)[::-1] if trans else instr.shape(role)
    f = s[fragment]
    f.compute_at(acc, ki)
    *_, x, y = f.op.axis
    xo, xi = f.split(x, factor=rows)
    yo, yi = f.split(y, factor=cols)
    f.reorder(xo, yo, xi, yi)
    f.tensorize(xi, mx.load_a if role == "a" else mx.load_b)
    stage = s[shared]
    stage.compute_at(acc, ko)
    *_, x, y = stage.op.axis
    piece = PIECE_BYTES // dtype_info(p.a.dtype).bytes
    contiguous = t.k if (role == "a") != trans else (t.m if role == "a" else t.n)
    if not t.swizzle:
        stage.storage_align(x, contiguous, piece)
    turn = stage.op.attrs.get("turn") if stage.op.tag in COMPUTED_IN_PLACE else None
    threads = list(zip(_threads(t, instr.wave), (instr.wave, t.waves_n, t.waves_m * t.slices)))
    axes = list(stage.op.axis)
    if t.slices > 1 and t.waves_m * t.waves_n == 1:
        # Each wavefront brings its own part, and waits for no other.
        stage.bind(axes.pop(0), threads.pop()[0])
    if turn:
        x, own = stage.split(x, factor=turn[0])
        y, vec = stage.split(y, factor=turn[1])
        *lead, _, _ = axes
        stage.reorder(*lead, y, x, own, vec)
        rest = stage.fuse(*lead, y, x)
    else:
        rest, vec = stage.split(stage.fuse(*axes), factor=piece)
    for thread, n in threads:
        rest, part = stage.split(rest, factor=n)
        stage.bind(part, thread)
    if t.swizzle:
        stage.pragma(part, "swizzle", turn[0] if turn else 1)
    stage.unroll(rest)
    if turn:
        stage.unroll(own)
    wide = min(piece, stage.op.attrs.get("wide", 1)) if stage.op.tag in COMPUTED_IN_PLACE and not turn else piece
    if wide < piece:
        parts, vec = stage.split(vec, factor=wide)
        stage.unroll(parts)
    stage.vectorize(vec)
