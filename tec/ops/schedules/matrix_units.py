"""Matrix products on matrix units: MFMA, WMMA, mma.sync, one template.

A work-group of four wavefronts computes a tile of C. A step of k brings tiles of A and B into shared memory in 16-byte
pieces, swizzled or with rows padded by 16 bytes so that the lanes' 16-byte reads spread over the banks; each wavefront then feeds its part
of them to the matrix unit from registers (see tec.te.intrin). An elementwise epilogue works on the accumulators where
they lie.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ...ir import Cast, Expr, IntImm, IterVar, Mul, Reduce, TensorRead
from ...ir.dtype import dtype_info
from ...ir.matrix import MatrixInstr
from ...ir.visit import walk_exprs
from ...schedule import Schedule
from ...target import Target
from ...te import ComputeOp, Operation, Tensor, intrin, thread_axis
from .analysis import Group, const_shape, extent, same_shape

_PIECE_BYTES = 16
COMPUTED_IN_PLACE = ("tile",)  # tags of operands whose tiles are computed in shared memory (tec/ops/conv_gemm.py)


@dataclass(frozen=True)
class Tiling:
    """Rows and columns of C of a work-group, its wavefronts along them, k of a step, and the instruction's shape."""

    m: int
    n: int
    k: int
    waves_m: int
    waves_n: int
    instr_m: int
    instr_n: int
    instr_k: int
    swizzle: bool = False  # the tiles in shared memory, in place of padding them
    stages: int = 1  # of software pipelining: 0 none, 1 the next step in registers, 2 and more in shared memory

    @property
    def waves(self) -> int:
        return self.waves_m * self.waves_n


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
    """A tiling for the product on this chip; None where its matrix unit does not fit. `unit` "tf32": see `schedule`."""
    in_dtype = p.a.dtype
    known = [i for i in intrin.shapes(target, unit or in_dtype) if i.acc_dtype == acc_dtype]
    if not known or p.m is None or p.n is None or p.k is None or p.m < 16 or p.n < 16:
        return None
    piece = _PIECE_BYTES // dtype_info(in_dtype).bytes
    for tile_m, tile_n, wm, wn in ((128, 128, 2, 2), (64, 64, 2, 2), (32, 32, 2, 2), (16, 16, 1, 1)):
        if (tile_m > 32 and p.m < 3 * tile_m // 4) or (tile_n > 32 and p.n < 3 * tile_n // 4):
            continue
        if tile_m > 64 and p.m * p.n < 64 * tile_m * tile_n:
            continue  # too few work-groups to fill a GPU
        for i in sorted(known, key=lambda x: -x.m * x.n):
            if tile_m // wm % i.m or tile_n // wn % i.n or (i.m * i.n == 1024 and tile_m < 64):
                continue
            instr_k = i.k * max(1, piece // i.a_elems) if i.unit == "mfma" else i.k
            for step in _steps(in_dtype, target):
                threads = wm * wn * i.wave
                pieces = (tile_m * step // piece, tile_n * step // piece)
                if step % instr_k == 0 and p.k % step == 0 and all(x % threads == 0 for x in pieces):
                    # Swizzled tiles are no larger than their data. Copies in the background fill a second slot by themselves.
                    swizzle, stages = not target.chip.family.startswith("rdna"), 2 if target.kind == "cuda" else 1
                    return Tiling(tile_m, tile_n, step, wm, wn, i.m, i.n, instr_k, swizzle, stages)
    return None


# Rows and columns of C of a work-group, and its wavefronts along them.
_TILES = (
    (128, 128, 2, 2), (128, 64, 2, 2), (64, 128, 2, 2), (64, 64, 2, 2), (64, 32, 2, 2), (32, 64, 2, 2), (32, 32, 2, 2), (16, 16, 1, 1),
)  # fmt: skip
_UNITS = 128  # compute units of a GPU, about: products of fewer work-groups leave some idle
_LDS_BYTES = 128  # a clock of a compute unit
_MEMORY_BYTES = 4096  # a clock of the GPU, caches included
_STEP_CLOCKS = 60  # the least for a step: barriers and addresses
_MACS = {
    "float32": 128,
    "float64": 128,
}  # multiply-adds a clock of a compute unit's matrix unit; 1024 for narrower types


def padded(
    m: int, n: int, k: int, batch: int, in_dtype: str, acc_dtype: str, target: Target, guarded: bool = False
) -> Tiling | None:
    """A tiling for a product whose operands may be padded with zeros to whole tiles; None where no unit fits or the padding
    would outweigh it. Of those that fit, the one with the least estimated time. `guarded`: operands come under conditions."""
    known = [i for i in intrin.shapes(target, in_dtype) if i.acc_dtype == acc_dtype]
    if not known or m < 16 or n < 16 or k < 8:
        return None
    best: tuple[float, Tiling] | None = None
    for tile in _TILES:
        if m < tile[0] or n < tile[1]:  # a split never makes loops longer than what there is
            continue
        if (
            tile[:2] == (128, 128)
            and target.chip.family.startswith("rdna")
            and (guarded or m % 128 or n % 128 or k % 32)
        ):
            continue  # with guards it would need more registers than there are
        t = _padded_step(tile, k, known, in_dtype, target)
        if t is not None:
            clocks = _clocks(t, m, n, k, batch, dtype_info(in_dtype).bytes, in_dtype)
            best = min(best or (clocks, t), (clocks, t), key=lambda c: c[0])
    return best[1] if best else None


def _padded_step(
    tile: tuple[int, int, int, int], k: int, known: list[MatrixInstr], in_dtype: str, target: Target
) -> Tiling | None:
    """The tile with the largest instruction and the longest step that fit it."""
    tile_m, tile_n, wm, wn = tile
    piece = _PIECE_BYTES // dtype_info(in_dtype).bytes
    for i in sorted(known, key=lambda x: -x.m * x.n):
        if tile_m // wm % i.m or tile_n // wn % i.n or (i.m * i.n == 1024 and min(tile_m, tile_n) < 64):
            continue
        instr_k = i.k * max(1, piece // i.a_elems) if i.unit == "mfma" else i.k
        for step in _steps(in_dtype, target):
            threads = wm * wn * i.wave
            pieces = (tile_m * step // piece, tile_n * step // piece)
            waste = -k % step
            if step % instr_k == 0 and all(x % threads == 0 for x in pieces) and (waste * 4 <= k or step == instr_k):
                # Swizzled tiles are no larger than their data. Copies in the background fill a second slot by themselves.
                swizzle, stages = not target.chip.family.startswith("rdna"), 2 if target.kind == "cuda" else 1
                return Tiling(tile_m, tile_n, step, wm, wn, i.m, i.n, instr_k, swizzle, stages)
    return None


def turning(t: Tiling, rows: int, run: int, dtype: str, target: Target) -> tuple[int, int] | None:
    """The block (along the rows, along k) of a tile that a thread loads along the rows and stores along k, so that shared memory
    holds what the lanes read side by side; None where there is none that all threads have as many of. `run`: elements
    along the rows that lie side by side."""
    size = dtype_info(dtype).bytes
    if size > 4 or rows * t.k % (t.waves * target.wavefront_size):
        return None
    own = rows * t.k // (t.waves * target.wavefront_size)
    along = 8 // size  # 8 bytes of shared memory at once
    for block in (16 // size, 8 // size, 4 // size):
        if run % block == 0 and rows % block == 0 and t.k % along == 0 and own % (block * along) == 0:
            return block, along
    return None


def _clocks(t: Tiling, m: int, n: int, k: int, batch: int, size: int, in_dtype: str) -> float:
    """Clocks of the product: the largest of matrix work and traffic of shared memory, on full or idle compute units, and traffic of
    global memory, which they share."""
    groups = batch * -(-m // t.m) * -(-n // t.n)
    macs = t.m * t.n * t.k / _MACS.get(in_dtype, 1024)
    reads = t.waves * (t.m // t.waves_m + t.n // t.waves_n)
    lds = (reads + t.m + t.n) * t.k * size / _LDS_BYTES
    steps = -(-k // t.k)
    memory = groups * steps * (t.m + t.n) * t.k * size / _MEMORY_BYTES
    return max(max(1.0, groups / _UNITS) * steps * max(macs, lds, _STEP_CLOCKS), memory)


def _steps(in_dtype: str, target: Target) -> tuple[int, ...]:
    """Sizes of a step of k, best first: 128 bytes a row, 64 on RDNA, where registers are fewer."""
    most = (64 if target.chip.family.startswith("rdna") else 128) // dtype_info(in_dtype).bytes
    return (most, most // 2, most // 4)


def schedule_group(s: Schedule, group: Group, op: Operation, target: Target) -> bool:
    """Schedule a group around the product `op` where it is all there is besides elementwise work; False else."""
    if not isinstance(op, ComputeOp) or len(group.output_ops) != 1 or group.reductions() != [op]:
        return False
    out = group.output_ops[0]
    tiling = op.attrs.get("tiling")
    if op.tag == "tiled_product" and tiling is None:
        return False
    if not isinstance(out, ComputeOp) or (tiling is None and not same_shape(out.output(0), op.output(0))):
        return False
    return schedule(s, op, out, target, tiling)


def schedule(
    s: Schedule, mm: ComputeOp, out: ComputeOp, target: Target, tiling: Tiling | None = None, unit: str | None = None
) -> bool:
    """Schedule the product `mm` and its elementwise epilogue `out` (or `mm` itself); False where the unit does not fit.

    `unit` "tf32" lets a float32 product run on 19-bit matrix units, which nothing does unasked.
    """
    p = operands(mm)
    if p is None or not _follows(out, mm):
        return False
    tiling = tiling or choose(p, mm.output(0).dtype, target, unit)
    if tiling is None:
        return False
    t = tiling
    square = t.instr_m == t.instr_n
    mx = intrin.matrix(
        target, unit or p.a.dtype, t.instr_m, t.instr_n, t.instr_k, trans_a=p.trans_a, trans_b=p.trans_b, swap=square
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
    at = _output(final, t, mx)
    inner = _product(acc, final, at, t, mx)
    for shared, fragment, role in staged:
        _operand(s, shared, fragment, role, acc, inner, t, mx, p)
    return True


def _follows(out: ComputeOp, mm: ComputeOp) -> bool:
    """Whether `out` reads the product, at any distance, at its own place alone: what an epilogue on the accumulators can do."""
    if out is mm:
        return True
    if not isinstance(out, ComputeOp) or out.reduce_axis:
        return False
    reads: list[TensorRead] = []
    for body in out.body:
        reads += [e for e in walk_exprs(body) if isinstance(e, TensorRead)]
    for read in reads:
        op = read.tensor.op
        if op is mm or _depends(op, mm):
            own = len(read.indices) == len(out.axis) and all(
                i is a.var or (isinstance(i, IntImm) and i.value == 0 and _single(a))
                for i, a in zip(read.indices, out.axis)
            )
            if not own or not _follows(op, mm):
                return False
    return True


def _single(axis: IterVar) -> bool:
    """Whether an axis has one value: broadcasts then read index 0."""
    return axis.dom is not None and extent(axis.dom.extent) == 1


def _depends(op: Operation, mm: ComputeOp) -> bool:
    return any(t.op is mm or _depends(t.op, mm) for t in op.inputs)


def _threads(t: Tiling, wave: int) -> tuple[Any, Any, Any]:
    return (
        thread_axis((0, wave), "threadIdx.x"),
        thread_axis((0, t.waves_n), "threadIdx.y"),
        thread_axis((0, t.waves_m), "threadIdx.z"),
    )


def _output(final: Any, t: Tiling, mx: intrin.MatrixIntrins) -> Any:
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
    for axis, thread in ((bi, thread_axis("blockIdx.y")), (bj, thread_axis("blockIdx.x")), (wi, tz), (wj, ty)):
        final.bind(axis, thread)
    mx.on_tile(final, ii)
    return wj


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
    if t.stages and (extent(k.dom.extent) or t.k + 1) > t.k:
        acc.pragma(ko, "software_pipeline", t.stages)
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
    piece = _PIECE_BYTES // dtype_info(p.a.dtype).bytes
    contiguous = t.k if (role == "a") != trans else (t.m if role == "a" else t.n)
    if not t.swizzle:
        stage.storage_align(x, contiguous, piece)
    turn = stage.op.attrs.get("turn") if stage.op.tag in COMPUTED_IN_PLACE else None
    if turn:
        x, own = stage.split(x, factor=turn[0])
        y, vec = stage.split(y, factor=turn[1])
        *lead, _, _ = stage.op.axis
        stage.reorder(*lead, y, x, own, vec)
        rest = stage.fuse(*lead, y, x)
    else:
        rest, vec = stage.split(stage.fuse(*stage.op.axis), factor=piece)
    tx, ty, tz = _threads(t, instr.wave)
    for thread, n in ((tx, instr.wave), (ty, t.waves_n), (tz, t.waves_m)):
        rest, part = stage.split(rest, factor=n)
        stage.bind(part, thread)
    if t.swizzle:
        stage.pragma(part, "swizzle")
    stage.unroll(rest)
    if turn:
        stage.unroll(own)
    wide = min(piece, stage.op.attrs.get("wide", 1)) if stage.op.tag in COMPUTED_IN_PLACE and not turn else piece
    if wide < piece:
        parts, vec = stage.split(vec, factor=wide)
        stage.unroll(parts)
    stage.vectorize(vec)
