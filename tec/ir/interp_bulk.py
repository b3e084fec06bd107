"""The interpreter's bulk copies and warpgroup products: tiles in shared memory as `passes.pipeline.bulk_copies` lays them out.

It runs them as they stand after that pass, before warps are specialised, or after `pipeline`: a copy is done at once, whoever asks for it. A barrier
counts its phases, so that a wait for one that nobody has begun is an error.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from . import expr as E
from . import matrix
from .dtype import dtype_info
from .interp_ops import Array, fix

if TYPE_CHECKING:
    from .interp_calls import CallMachine

_ROW_BYTES, _PIECE_BYTES, _ROWS = 128, 16, 8  # of a box's row, of what the swizzle moves, after which it repeats


def _swizzled(first: int, row: Array, column: Array, size: int) -> Array:
    """Elements from a box's first element to (row, column): the swizzle takes the row from the address."""
    width, piece = _ROW_BYTES // size, _PIECE_BYTES // size
    at = first // width + row
    result: Array = row * width + ((column // piece) ^ (at % _ROWS)) * piece + column % piece
    return result


def _leaders(self: CallMachine) -> Array:
    """The first active lane of every work-group."""
    active = np.arange(self.lanes.n) if self.mask is None else np.nonzero(self.mask)[0]
    _, first = np.unique(self.lanes.group[active], return_index=True)
    result: Array = active[first]
    return result


def _row(storage: Any, lanes: Any, lane: int) -> int:
    rows = storage.rows_for(lanes)
    return 0 if rows is None else int(rows[lane])


def bulk_copy(self: CallMachine, e: E.Call) -> Array:
    """bulk_load and bulk_store: a box of up to five dimensions; what lies outside of the tensor comes as 0, or stays as it was."""
    attrs = e.attrs or {}
    rank, box, is_load = int(attrs["rank"]), tuple(attrs["box"]), e.op == "bulk_load"
    shared, tensor = (self.pointer(a) for a in (e.args[:2] if is_load else (e.args[1], e.args[0])))
    numbers = [self.full(self.eval(a)).astype(np.int64) for a in e.args[2 : 1 + 3 * rank]]
    size = dtype_info(tensor.dtype).bytes
    places = np.indices(tuple(reversed(box))).reshape(rank, -1)[::-1]  # innermost first
    row, swizzle = np.arange(places.shape[1]) // box[0], attrs.get("swizzle", True)
    offsets = [self.full(p.offset) for p in (shared, tensor)]
    for lane in _leaders(self):
        coords, sizes = (np.array([x[lane] for x in part]) for part in (numbers[:rank], numbers[rank : 2 * rank]))
        strides = np.array([1, *(x[lane] for x in numbers[2 * rank :])])
        inside = ((coords[:, None] + places >= 0) & (coords[:, None] + places < sizes[:, None])).all(axis=0)
        start = int(offsets[0][lane])
        mine = start + (_swizzled(start, row, places[0], size) if swizzle else row * box[0] + places[0])
        theirs = int(offsets[1][lane]) + strides @ places
        here, there = shared.storage, tensor.storage
        hr, tr = _row(here, self.lanes, lane), _row(there, self.lanes, lane)
        if is_load:
            here.data[hr, mine] = 0
            here.data[hr, mine[inside]] = there.data[tr, theirs[inside]]
            if here.init is not None:
                here.init[hr, mine] = True
        else:
            if here.init is not None and not here.init[hr, mine[inside]].all():
                raise self.error(f"{here.name} is copied out before all of it is written")
            there.data[tr, theirs[inside]] = here.data[hr, mine[inside]]
            if there.init is not None:
                there.init[tr, theirs[inside]] = True
    return np.zeros(1, np.int32)


def wgmma(self: CallMachine, e: E.Call) -> Array:
    """acc + a * b for every warpgroup, from its operands' boxes in shared memory."""
    attrs: dict[str, Any] = e.attrs or {}
    instr = matrix.instr_of(attrs)
    a, b = (self.pointer(x) for x in e.args[:2])
    acc = self.full(self.eval(e.args[2]))
    return _products(
        self,
        e,
        instr,
        acc,
        lambda first: (_operand(self, a, attrs, "a", instr, first), _operand(self, b, attrs, "b", instr, first)),
    )


def wgmma_registers(self: CallMachine, e: E.Call) -> Array:
    """acc + a * b for every warpgroup, a from the lanes: each warp's 16 rows as mma.sync has them."""
    attrs: dict[str, Any] = e.attrs or {}
    instr = matrix.instr_of(attrs)
    vectors, b = self.full(self.eval(e.args[0])), self.pointer(e.args[1])
    acc = self.full(self.eval(e.args[2]))
    lane, i = np.meshgrid(np.arange(instr.wave), np.arange(vectors.shape[1]), indexing="ij")
    row = lane // 32 * 16 + lane % 32 // 4 + 8 * (i // 2 % 2)
    column = lane % 4 * 2 + i % 2 + 8 * (i // 4)

    def operands(first: int) -> tuple[Array, Array]:
        a = np.zeros((1, instr.m, instr.k), vectors.dtype)
        a[0, row, column] = vectors[first : first + instr.wave]
        return a, _operand(self, b, attrs, "b", instr, first)

    return _products(self, e, instr, acc, operands)


def _products(
    self: CallMachine, e: E.Call, instr: matrix.MatrixInstr, acc: Array, operands: Callable[[int], tuple[Array, Array]]
) -> Array:
    """Each warpgroup's product; `operands(first lane)` gives [1, m, k] and [1, k, n]."""
    if self.lanes.n % instr.wave or (self.launch is not None and self.launch.threads % instr.wave):
        raise self.error(f"a warpgroup product in a work-group that is no multiple of {instr.wave} threads")
    wide = np.int64 if instr.acc_dtype == "int32" else np.float64
    out = acc.copy()
    for first in range(0, self.lanes.n, instr.wave):
        lanes = slice(first, first + instr.wave)
        if self.mask is not None and not self.mask[lanes].all():
            if self.mask[lanes].any():
                raise self.error("a warpgroup product that only some threads of a warpgroup reach")
            continue
        left, right = (x.astype(wide) for x in operands(first))
        c = matrix.scatter(instr, "acc", acc[lanes].astype(wide))
        d = c + np.matmul(left, right)
        if wide is np.int64:
            d = (d & 0xFFFFFFFF).astype(np.uint32).view(np.int32)
        out[lanes] = fix(matrix.gather(instr, "acc", d.astype(instr.acc_dtype)), e.dtype)
    return out


def _operand(
    self: CallMachine, p: Any, attrs: dict[str, Any], role: str, instr: matrix.MatrixInstr, lane: int
) -> Array:
    """[1, m, k] of a or [1, k, n] of b from the swizzled boxes that start at the pointer."""
    size = dtype_info(p.dtype).bytes
    width, box = _ROW_BYTES // size, int(attrs[f"{role}_box"])
    start = int(self.full(p.offset)[lane])
    other = instr.m if role == "a" else instr.n
    j, k = np.meshgrid(np.arange(other), np.arange(instr.k), indexing="ij")
    row, column = (j, k) if attrs[f"{role}_major"] == "k" else (k, j)
    # An operand may begin within a line: the second warpgroup's columns of a tile of one line.
    start, column = start - start % width, column + start % width
    at = start + column // width * box + _swizzled(start, row, column % width, size)
    data, r = p.storage.data, _row(p.storage, self.lanes, lane)
    if p.storage.init is not None and not p.storage.init[r, at].all():
        raise self.error(f"{p.storage.name} is multiplied before all of it is written")
    if self.races is not None:
        self.races.begin(lane, p.storage, r, at)
    values: Array = data[r, at]
    return (values if role == "a" else values.T)[None]


def _warpgroups(self: CallMachine) -> list[int]:
    """The first lane of each warpgroup that is here."""
    firsts = range(0, self.lanes.n, matrix.WARPGROUP)
    return [n for n in firsts if self.mask is None or self.mask[n : n + matrix.WARPGROUP].all()]


def wgmma_commit(self: CallMachine, e: E.Call) -> Array:
    if self.races is not None:
        for lane in _warpgroups(self):
            self.races.commit(lane)
    return np.zeros(1, np.int32)


def wgmma_wait(self: CallMachine, e: E.Call) -> Any:
    attrs = e.attrs or {}
    if self.races is not None and not attrs.get("again"):
        for lane in _warpgroups(self):
            self.races.landed(lane, int(attrs.get("n", 0)))
    return self.eval(e.args[0]) if e.args else np.zeros(1, np.int32)


def mbarrier(self: CallMachine, e: E.Call) -> Array:
    """mbarrier_init, _expect, _wait: in memory stand the phases begun, whose copies are done when the next statement runs."""
    p = self.pointer(e.args[0])
    parity = self.full(self.eval(e.args[1])).astype(np.int64)
    at = self.full(p.offset)
    for lane in _leaders(self):
        row, place = _row(p.storage, self.lanes, lane), int(at[lane])
        begun = int(p.storage.data[row, place])
        if e.op == "mbarrier_wait":
            if begun == 0 or (begun - 1) % 2 != parity[lane]:
                raise self.error(f"a wait for a phase of {p.storage.name}[{place}] that nobody has begun")
            continue
        p.storage.data[row, place] = 0 if e.op == "mbarrier_init" else begun + 1
        if p.storage.init is not None:
            p.storage.init[row, place] = True
    return np.zeros(1, np.int32)


def computed(self: CallMachine, e: E.Call) -> Any:
    return self.eval(e.args[0])


def at_once(self: CallMachine, e: E.Call) -> Array:
    """What orders products and copies that are under way: here none is."""
    return np.zeros(1, np.int32)


CALLS = {
    **dict.fromkeys(("bulk_load", "bulk_store"), bulk_copy), "wgmma": wgmma, "wgmma_registers": wgmma_registers, "wgmma_wait": wgmma_wait, "wgmma_commit": wgmma_commit, "computed": computed,
    **dict.fromkeys(("wgmma_fence", "proxy_fence", "bulk_release", "turn_take", "turn_give", "turn_meet", "mbarrier_fence", "early_wait"), at_once),
    **dict.fromkeys(("mbarrier_init", "mbarrier_expect", "mbarrier_wait"), mbarrier),
}  # fmt: skip
