"""How a product on matrix units is scheduled, by a tiling (see `matrix_units`): its tiles over blocks and wavefronts, its operands through shared memory.

A work-group of some wavefronts computes a tile of C. A step of k brings tiles of A and B into shared memory in 16-byte
pieces, swizzled or with rows padded by 16 bytes so that the lanes' 16-byte reads spread over the banks; each wavefront then feeds its part
of them to the matrix unit from registers (see tec.te.intrin). An elementwise epilogue works on the accumulators where
they lie. Where wavefronts share a sum, each has its own part of the tiles in shared memory; the parts of the sum meet there at the end.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ..ir import Cast, Expr, IntImm, IterVar, Mul, Reduce, TensorRead
from ..ir.dtype import dtype_info
from ..ir.matrix import MatrixInstr
from ..ir.visit import walk_exprs
from ..schedule import Schedule
from ..target import Target
from ..te import ComputeOp, Operation, Tensor, intrin, thread_axis
from . import tilings
from .group import const_shape, depends, extent
from .pointwise import neighbours_on_a_die
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


def meeting(s: Schedule, out: Operation, met: Tensor, t: Tiling, target: Target) -> Any:
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
    """One axis over the tiles: down a band's rows, then along its columns, band after band; neighbours on one die."""
    far, near = final.split(bi, factor=band)
    final.reorder(far, bj, near)
    return neighbours_on_a_die(final, final.fuse(far, bj, near), None, dies)


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
        how = (t.stages, t.ahead, t.uneven, t.direct)
        said = 4 if t.direct else 3 if t.uneven else 2
        acc.pragma(ko, "software_pipeline", how[:said] if said > 2 or t.ahead > 1 else t.stages)
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
