"""Make every buffer one-dimensional: strides, offsets and storage_align become index arithmetic.

In: multi-dimensional loads and stores. Out: each buffer has one dimension and each access one index. Parameters of the
function that the user never named (sizes taken from shapes) become explicit scalar parameters at the end, in the order
of `Func.implicit_vars`, so the calling convention does not depend on what is left of the shapes.

Index types: int32 where the buffer has fewer than 2**31 elements for certain, or where one index alone addresses it;
int64 for other global buffers; always int32 for shared and local memory.
"""

from __future__ import annotations

from dataclasses import replace

from ...errors import LoweringError
from ...target import Target
from .. import build as B
from .. import expr as E
from .. import stmt as S
from ..arith import Analyzer
from ..buffer import Buffer
from ..dtype import dtype_info
from ..func import Func
from ..storage_align import row_major_strides
from ..visit import any_expr, map_expr, map_stmt
from .rewrite_util import same_expr, widen

_INT32_MAX = 2**31 - 1


class _Flat:
    """A flattened buffer: the new buffer, its strides, and the type its index arithmetic is done in."""

    __slots__ = ("buffer", "dtype", "strides")

    def __init__(self, buffer: Buffer, strides: tuple[E.Expr, ...], dtype: str | None):
        self.buffer = buffer
        self.strides = strides
        self.dtype = dtype


def flatten_buffers(func: Func, target: Target) -> Func:
    """Every buffer with one dimension; see the module."""
    analyzer = Analyzer()
    flats: dict[int, _Flat] = {}
    params: list[Buffer | E.Var] = []
    for p in func.params:
        if isinstance(p, Buffer):
            flat = _flatten(p, S.NO_NOTES, analyzer)
            flats[id(p)] = flat
            params.append(flat.buffer)
        else:
            params.append(p)
    params.extend(func.implicit_vars())
    body = _Flattener(flats, analyzer).stmt(func.body)
    return Func(func.name, tuple(params), body, func.attrs)


def _flatten(buffer: Buffer, notes: S.StorageNotes, analyzer: Analyzer) -> _Flat:
    """The buffer of one dimension that stands for another one, and how its indices become a place: by its strides, as its notes ask for."""
    shape = buffer.shape
    strides: list[E.Expr] = list(buffer.strides)
    one = E.IntImm(1)
    if not strides:
        found, total = row_major_strides(shape, notes.storage_align)
        strides = list(found)
    else:
        total = one
        for extent, st in zip(shape, strides):
            total = B.add(total, B.mul(B.sub(extent, 1), st))
    on_chip = buffer.scope != "global"
    dtype: str | None = "int32"
    if len(shape) == 1 and isinstance(strides[0], E.IntImm) and strides[0].value == 1:
        dtype = None  # the index as it stands
        flat_shape: tuple[E.Expr, ...] = shape
    else:
        if not buffer.strides:  # without wrapping
            wide, wide_total = row_major_strides([widen(e) for e in shape], notes.storage_align)
        count = _wide_product(shape, strides if buffer.strides else list(wide), analyzer)
        if on_chip:
            if count is None:
                raise LoweringError(
                    f"the size of {buffer.name} ({buffer.scope} memory) is not a constant: {total}",
                    where=buffer.loc,
                    hint="shared and local buffers need constant sizes: split with constant factors before compute_at",
                    locate=False,
                )
        elif count is None or count > _INT32_MAX:
            dtype = "int64"
            if buffer.strides:
                total = _total64(shape, strides)
            else:
                strides, total = list(wide), wide_total
        flat_shape = (total,)
    if not shape:
        flat_shape, dtype = (one,), "int32"
    flat = buffer
    if (
        flat_shape is not shape
        or buffer.strides
        or not (isinstance(buffer.elem_offset, int) and buffer.elem_offset == 0)
    ):
        flat = Buffer(
            buffer.name, buffer.dtype, flat_shape, (), 0, buffer.scope, buffer.align_bytes, buffer.data, buffer.loc
        )
    return _Flat(flat, tuple(strides), dtype)


def _wide_product(shape: tuple[E.Expr, ...], strides: list[E.Expr], analyzer: Analyzer) -> int | None:
    """An upper bound of the elements spanned, or None."""
    span = 1
    for extent, stride in zip(shape, strides):
        hi_extent, hi_stride = _upper(extent, analyzer), _upper(stride, analyzer)
        if hi_extent is None or hi_stride is None:
            return None
        span += max(hi_extent - 1, 0) * hi_stride
    return span


def _upper(e: E.Expr, analyzer: Analyzer) -> int | None:
    if isinstance(e, E.IntImm):
        return e.value
    hi = analyzer.const_int_bound(e)[1]
    if hi is None or hi >= _INT32_MAX:
        return None
    return int(hi)


def _total64(shape: tuple[E.Expr, ...], strides: list[E.Expr]) -> E.Expr:
    total: E.Expr = E.IntImm(1, "int64")
    for extent, stride in zip(shape, strides):
        total = B.add(total, B.mul(B.sub(B.cast("int64", extent), 1), widen(stride)))
    return total


class _Flattener:
    def __init__(self, flats: dict[int, _Flat], analyzer: Analyzer):
        self.flats = flats
        self.analyzer = analyzer
        self.memo: dict[int, tuple[E.Expr, E.Expr]] = {}

    def expr(self, e: E.Expr) -> E.Expr:
        t = type(e)
        if t is E.Var or t is E.IntImm or t is E.FloatImm:
            return e
        hit = self.memo.get(id(e))
        if hit is not None:
            return hit[1]
        out = map_expr(e, self.expr)
        if type(out) is E.BufferLoad:
            flat = self.flat_of(out.buffer)
            out = E.BufferLoad(flat.buffer, (self.index(flat, out.indices),), out.predicate)
        self.memo[id(e)] = (e, out)
        return out

    def flat_of(self, buffer: Buffer) -> _Flat:
        flat = self.flats.get(id(buffer))
        if flat is None:
            raise LoweringError(
                f"buffer {buffer.name} is neither a parameter nor allocated",
                where=buffer.loc,
                hint="add it to the parameters of the function, or allocate it around its uses",
            )
        return flat

    def index(self, flat: _Flat, indices: tuple[E.Expr, ...]) -> E.Expr:
        if not indices:
            return E.IntImm(0)
        if len(indices) == 1 and flat.dtype is None:
            return indices[0]
        dtype = flat.dtype or "int32"
        total: E.Expr = E.IntImm(0, dtype)
        vector: E.Expr | None = None
        places = zip(indices, flat.strides) if dtype == "int32" else self._joined(indices, flat.strides)
        for i, stride in places:
            if dtype_info(i.dtype).lanes > 1:
                vector = _vector_term(i, stride, dtype)
                continue
            if dtype == "int64":
                total = B.add(total, B.mul(i, stride))
            else:
                total = B.add(total, B.mul(B.cast(dtype, i), B.cast(dtype, stride)))
        if vector is None:
            return total
        if isinstance(vector, E.Ramp):
            return E.Ramp(B.add(total, vector.base), vector.stride, vector.lanes)
        return E.Add(E.Broadcast(total, dtype_info(vector.dtype).lanes), vector)

    def _joined(self, indices: tuple[E.Expr, ...], strides: tuple[E.Expr, ...]) -> list[tuple[E.Expr, E.Expr]]:
        """Indices and their strides, where quotient and remainder of one number that is counted in int64 are that number."""
        found = [
            (_whole(i) if dtype_info(i.dtype).lanes == 1 else i, widen(stride)) for i, stride in zip(indices, strides)
        ]
        k = 0
        while k + 1 < len(found):
            (high, far), (low, near) = found[k : k + 2]
            is_pair = (
                isinstance(high, E.FloorDiv)
                and isinstance(low, E.FloorMod)
                and same_expr(high.a, low.a)
                and same_expr(high.b, low.b)
            )
            if is_pair and self.analyzer.can_prove_equal(far, B.mul(widen(high.b), near)):  # type: ignore[attr-defined]
                found[k : k + 2] = [(high.a, near)]  # type: ignore[attr-defined]
                k = max(0, k - 1)
            else:
                k += 1
        return found

    def stmt(self, s: S.Stmt) -> S.Stmt:
        if isinstance(s, S.BufferStore):
            flat = self.flat_of(s.buffer)
            index = self.index(flat, tuple([self.expr(i) for i in s.indices]))
            pred = self.expr(s.predicate) if s.predicate is not None else None
            return S.BufferStore(flat.buffer, self.expr(s.value), (index,), pred, s.loc)
        if isinstance(s, S.Alloc):
            if s.buffer.scope.startswith("fragment") and len(s.buffer.shape) == 1:
                self.flats[id(s.buffer)] = _Flat(s.buffer, (E.IntImm(1),), None)
            else:
                self.flats[id(s.buffer)] = _flatten(s.buffer, s.notes, self.analyzer)
            body = self.stmt(s.body)
            return S.Alloc(self.flats[id(s.buffer)].buffer, body, replace(s.notes, storage_align=()))
        if isinstance(s, S.For):
            lo, extent = self.expr(s.min), self.expr(s.extent)
            with self.analyzer.scope():
                self.analyzer.bind(s.var, E.Range(lo, extent))
                body = self.stmt(s.body)
            return s.with_range(lo, extent, body)
        if isinstance(s, S.AllReduce):
            out = map_stmt(s, self.stmt, self.expr)
            assert isinstance(out, S.AllReduce)
            dests = tuple([self.flat_of(d).buffer for d in s.dests])
            return S.AllReduce(s.combiner, out.values, out.predicate, dests, s.threads, s.loc)
        return map_stmt(s, self.stmt, self.expr)


def _whole(i: E.Expr) -> E.Expr:
    """An index in int64. A part of the number of a step that is counted in int64 is an index in int32, and fits: what was narrowed is taken as it was, so that parts of one
    number are it again. What is made of data need not fit, and keeps the bits that it was narrowed to."""
    if isinstance(i, E.Cast) and i.dtype == "int32" and i.value.dtype == "int64":
        part = i.value
        if isinstance(part, (E.FloorDiv, E.FloorMod)) and not any_expr(part, lambda e: isinstance(e, E.BufferLoad)):
            return part
    return B.cast("int64", i)


def _vector_term(i: E.Expr, stride: E.Expr, dtype: str) -> E.Expr:
    lanes = dtype_info(i.dtype).lanes
    if isinstance(i, E.Ramp):
        step = B.cast(dtype, stride)
        return E.Ramp(B.mul(B.cast(dtype, i.base), step), B.mul(B.cast(dtype, i.stride), step), lanes)
    wide = B.cast(f"{dtype}x{lanes}", i)
    if isinstance(stride, E.IntImm) and stride.value == 1:
        return wide
    return E.Mul(wide, E.Broadcast(B.cast(dtype, stride), lanes))
