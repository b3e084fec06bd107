"""How a product on matrix units is scheduled, by a tiling (see `matrix_units`): its tiles over blocks and wavefronts, its operands through shared memory.

A work-group of some wavefronts computes a tile of C. A step of k brings tiles of A and B into shared memory in 16-byte
pieces, swizzled or with rows padded by 16 bytes so that the lanes' 16-byte reads spread over the banks; each wavefront then feeds its part
of them to the matrix unit from registers (see tec.te.intrin). An elementwise epilogue works on the accumulators where
they lie. Where wavefronts share a sum, each has its own part of the tiles in shared memory; the parts of the sum meet there at the end.
"""

from __future__ import annotations

from typing import Any, ClassVar

from ....ir import IterVar
from ....ir.dtype import dtype_info
from ....ir.matrix import MatrixInstr
from ....ops.contraction import Contraction
from ....records import dataclass
from ....schedule import Schedule, Stage
from ....target import Target
from ....te import ComputeOp, Tensor, intrin, thread_axis
from ...group import extent_of
from ...parts import ends
from ...parts.boxes import WINDOWS
from ...parts.ends import MET, PIECE
from ...parts.grid import Tiles
from ...parts.operands import IN_PLACE, Product, accumulators, follows, operands
from ...parts.padding import Turns, can_turn
from ...parts.staging import bring
from . import tilings
from .tilings import PIECE_BYTES, Shape, Tiling


@dataclass(frozen=True)
class MatrixUnits(ends.Mainloop):
    """The main loop of products on matrix units. unit: "tf32", are_apart: see `schedule`; turned: whether operands may be turned round on their way."""

    tiling: Tiling
    target: Target
    unit: str = ""
    turned: bool = False
    are_apart: bool = False
    on_matrix_units: ClassVar[bool] = True

    @property
    def tile(self) -> tuple[int, int, int]:
        return self.tiling.m, self.tiling.n, self.tiling.k

    @property
    def threads(self) -> list[tuple[IterVar, int]]:
        return _threads(self.tiling, self.target.wavefront_size)

    def turns(self, c: Contraction) -> Turns:
        """Of an operand that lies along its rows or columns, a block of (rows, k) a thread."""
        t = self.tiling
        if not self.turned or self.target.chip.background_copies:
            return None, None
        a, b = (
            tilings.turning(t, tile, o.run(), o.dtype, self.target) if can_turn(c, o, rows, tile, t.k) else None
            for o, rows, tile in ((c.a, c.m, t.m), (c.b, c.n, t.n))
        )
        return a, b

    def schedule(self, s: Schedule, product: ComputeOp, out: ComputeOp) -> None:
        made = schedule(s, product, out, self.target, self.tiling, self.unit or None, self.are_apart)
        assert made, f"{self} matched what it cannot schedule"


def choose(p: Product, acc_dtype: str, target: Target, unit: str | None = None) -> Tiling | None:
    """The cheapest tiling of a product whose operands are tensors as they are; None where the chip's unit does not fit. `unit` "tf32": see
    `schedule`."""
    if p.m is None or p.n is None or p.k is None:
        return None
    return tilings.cheapest(Shape(p.m, p.n, p.k, 1, p.a.dtype, acc_dtype, padded=False, unit=unit or ""), target)


def schedule(
    s: Schedule, mm: ComputeOp, out: ComputeOp, target: Target, tiling: Tiling | None = None, unit: str | None = None,
    are_apart: bool = False,
) -> bool:  # fmt: skip
    """Schedule the product `mm` and its elementwise epilogue `out` (or `mm` itself); False where the unit does not fit. An `out` of tag `MET` is a tile in shared
    memory, whose reader has the work-groups.

    `unit` "tf32" lets a float32 product run on 19-bit matrix units, which nothing does unasked. are_apart: neighbours of a row of the result lie apart in memory: no store of a lane
    could bring some at once, and the lanes that store together should have neighbours.
    """
    p = operands(mm)
    if p is None or not follows(out, mm):
        return False
    tiling = tiling or choose(p, mm.output(0).dtype, target, unit)
    if tiling is None:
        return False
    t = tiling
    in_runs = t.instr_m == t.instr_n and not are_apart
    mx = intrin.matrix(
        target,
        unit or p.a.dtype,
        t.instr_m,
        t.instr_n,
        t.instr_k,
        trans_a=p.trans_a,
        trans_b=p.trans_b,
        swap=in_runs,
        runs=in_runs,
    )
    acc_tensor = accumulators(s, mm, out, "fragment.acc")
    acc, final = s[acc_tensor], s[out.output(0)]
    staged = []
    for tensor, role in ((p.a, "a"), (p.b, "b")):
        if tensor.op.tag == WINDOWS:
            (box,) = tensor.op.inputs
            s[tensor].set_scope(f"fragment.{role}")
            staged.append((box, tensor, role))
            continue
        if tensor.op.tag in IN_PLACE:
            s[tensor].set_scope("shared")
            shared = tensor
        else:
            shared = s.cache_read(tensor, "shared", [acc_tensor])
        staged.append((shared, s.cache_read(shared, f"fragment.{role}", [acc_tensor]), role))
    at = _slices(final, t, mx) if out.tag == MET else _output(final, t, mx, target.machine.dies)
    boxes = [tensor for tensor in (p.a, p.b) if tensor.op.tag == WINDOWS]
    *inner, near = _product(acc, final, at, t, mx, boxes[0].op.attrs["terms"] if boxes else 0)
    for shared, fragment, role in staged:
        of_box = fragment.op.tag == WINDOWS
        _operand(s, shared, fragment, role, acc, (inner[0] if of_box else inner[-1], near), t, mx, p)
    return True


def _threads(t: Tiling, wave: int) -> list[tuple[IterVar, int]]:
    """A work-group's threads: lanes, wavefronts along the columns, wavefronts along the rows and the parts of the sum."""
    counts = (wave, t.waves_n, t.waves_m * t.slice_k)
    return [(thread_axis((0, n), f"threadIdx.{dim}"), n) for dim, n in zip("xyz", counts)]


def _wavefronts(stage: Stage, i: IterVar, j: IterVar, t: Tiling) -> tuple[Any, Any, list[Any]]:
    """A tile's rows and columns over wavefronts and matrix tiles: the wavefronts' axes, and (tiles, elements of one) in order."""
    parts = []
    for axis, tile, waves, instr in ((i, t.m, t.waves_m, t.instr_m), (j, t.n, t.waves_n, t.instr_n)):
        if t.slice_k > 1:
            wave, axis = stage.split(axis, nparts=waves)
            parts.append((wave, *stage.split(axis, factor=instr)))
        else:  # whole instructions, also where the product has less than a tile
            axis, inner = stage.split(axis, factor=instr)
            parts.append((*stage.split(axis, factor=tile // waves // instr), inner))
    (wi, ti, ii), (wj, tj, jj) = parts
    return wi, wj, [ti, tj, ii, jj]


def _output(final: Stage, t: Tiling, mx: intrin.MatrixIntrins, dies: int) -> Any:
    """Tiles of the output over blocks, wavefronts and matrix tiles. Returns the wavefront's axis."""
    tiles = Tiles(final, t.m, t.n)
    wi, wj, inner = _wavefronts(final, tiles.i, tiles.j, t)
    tiles.nest(wi, wj, *inner)
    tiles.bind(t.group_m, dies)
    _, (ty, _), (tz, _) = _threads(t, mx.instr.wave)
    for axis, thread in ((wi, tz), (wj, ty)):
        final.bind(axis, thread)
    mx.on_tile(final, inner[2])
    return wj


def _slices(met: Stage, t: Tiling, mx: intrin.MatrixIntrins) -> Any:
    """Parts of the sums over wavefronts. Returns the wavefront's axis."""
    part, *lead, i, j = met.op.axis
    met.storage_align(i, t.n, PIECE)  # the lanes that store side by side have rows of their own
    wi, wj, inner = _wavefronts(met, i, j, t)
    met.reorder(*lead, part, wi, wj, *inner)
    _, (ty, _), (tz, _) = _threads(t, mx.instr.wave)
    met.bind(met.fuse(part, wi), tz)
    met.bind(wj, ty)
    mx.on_tile(met, inner[2])
    return wj


def _product(acc: Stage, final: Stage, at: IterVar, t: Tiling, mx: intrin.MatrixIntrins, terms: int = 0) -> list[Any]:
    """The accumulator's loops. Returns the axes of a step and of a part of it; before them, where so many `terms` are of one box, that of a box."""
    acc.compute_at(final, at)
    *lead, i, j = acc.op.axis
    (k,) = acc.op.reduce_axis
    far, ko = acc.split(k, factor=terms) if terms > t.k else (None, k)
    ko, ki = acc.split(ko, factor=t.k)
    ki, kk = acc.split(ki, factor=t.instr_k)
    ti, ii = acc.split(i, factor=t.instr_m)
    tj, jj = acc.split(j, factor=t.instr_n)
    acc.reorder(*lead, *([] if far is None else [far]), ko, ki, ti, tj, ii, jj, kk)
    acc.unroll(ki)
    if t.interleave:
        acc.pragma(ki, "fragments_ahead")
    if t.stages and (extent_of(k) or t.k + 1) > t.k:
        how = (t.stages, t.prefetch_distance, t.ping_pong, t.direct_to_lds)
        said = 4 if t.direct_to_lds else 3 if t.ping_pong else 2
        acc.pragma(ko, "software_pipeline", how[:said] if said > 2 or t.prefetch_distance > 1 else t.stages)
    acc.tensorize(ii, mx.mma)
    return [*([] if far is None else [far]), ko, ki]


def _operand(
    s: Schedule, shared: Tensor, fragment: Tensor, role: str, acc: Stage, inner: tuple[Any, Any], t: Tiling,
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
    stage = s[shared]
    x = stage.op.axis[-2]
    piece = PIECE_BYTES // dtype_info(p.a.dtype).bytes
    is_box = fragment.op.tag == WINDOWS
    if is_box:  # of whose places lanes read whole pieces, which begin in other banks
        f.reorder(xo, yo, *((yi, xi) if trans else (xi, yi)))
        mx.on_tile(f, yi if trans else xi, role)
        stage.storage_align(x, 2 * piece, piece)
    else:
        f.reorder(xo, yo, xi, yi)
        f.tensorize(xi, mx.load_a if role == "a" else mx.load_b)
    if not t.swizzle and not is_box:
        stage.storage_align(x, t.k if (role == "a") != trans else (t.m if role == "a" else t.n), piece)
    of_tile: dict[str, Any] = stage.op.attrs if stage.op.tag in IN_PLACE else {"wide": piece}
    # Where a wavefront has its own part of the sum, it brings that, and waits for no other.
    apart = t.slice_k > 1 and t.waves_m * t.waves_n == 1
    bring(
        stage, acc, ko, _threads(t, instr.wave), piece, of_tile.get("wide", 1), of_tile.get("turn", (0, 0)), apart, t.swizzle and not is_box
    )  # fmt: skip
