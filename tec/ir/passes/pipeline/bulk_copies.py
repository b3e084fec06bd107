"""Copies of whole tiles between global and shared memory by one thread: the chip's bulk tensor copies (TMA).

In, stage "loops": `Attr(BulkCopy())` around a nest of two loops over a tile's rows and columns with one plain copy
inside, into shared memory (a fill) or out of it (a result). Out: `Evaluate(bulk_load(...))` or `Evaluate(bulk_store(...))` for
each box of the tile, and the shared buffers laid out as the copy engine and the warpgroup product (wgmma) agree on:

    (row, column) -> [column // W, row, ((column % W // P) xor (row % 8)) * P + column % P]

with W the elements in 128 bytes and P those in 16. So a tile is a row of boxes of 128 bytes a row (the last may have more columns than the tile), and eight rows of a box touch
every bank once ("128-byte swizzle": PTX ISA, "Tensor swizzling modes"). With `BulkCopy(swizzle=False)` a tile is one box that lies as it came:
(row, column) -> [0, row, column], for tiles whose rows alone threads read side by side. A box may reach over the tensor's edge: what lies beyond
comes as zero and is not written, so guards that only keep the tile inside of the tensor are dropped.

    bulk_load(first element of the box in shared memory, first element in global memory, coordinates..., sizes..., strides...)
    bulk_store(first element in global memory, first element in shared memory, coordinates..., sizes..., strides...)

coordinates, sizes and strides run from the innermost dimension outwards (the innermost has no stride); attrs: rank, box (columns,
rows), swizzle where it is False. `specialize_warps` gives loads the barrier that they report to.
"""

from __future__ import annotations

import math
from typing import Any

from ....errors import LoweringError
from ....records import dataclass
from ....target import Target
from ... import build as B
from ... import expr as E
from ... import stmt as S
from ...arith import Analyzer
from ...buffer import Buffer
from ...dtype import dtype_info
from ...effects import is_call
from ...func import Func
from ...notes import BulkCopy
from ...storage_align import row_major_strides
from ...visit import any_stmt, free_vars, map_expr, map_stmt, substitute, visit
from ..rewrite_util import SHARED_SCOPES, const_int, same_expr
from .commit_products import is_piped

ROW_BYTES = 128  # of a box: the widest swizzle
_PIECE_BYTES = 16
_SWIZZLED_ROWS = 8
_MAX_BOX_ROWS = 256  # cuTensorMapEncodeTiled: boxDim is at most 256 (of a box that is not swizzled, along its rows too)
MOST_RANK = 5  # of a tensor that is copied so


@dataclass(slots=True)
class _Layout:
    """A shared buffer as boxes: what it becomes, and elements in a box's row and in a piece that the swizzle moves (0: there is none)."""

    boxes: Buffer
    width: int
    piece: int


def bulk_copies(func: Func, target: Target) -> Func:
    """Lower the copies that the pragma names; the function itself where there is none. Raises LoweringError."""
    found: list[S.Attr] = []

    def collect(s: S.Stmt) -> None:
        if isinstance(s, S.Attr) and isinstance(s.note, BulkCopy):
            found.append(s)

    visit(func.body, None, collect)
    if not found and not any_stmt(func.body, is_piped):
        return func
    if not target.chip.warpgroup:
        raise LoweringError(
            f"{target} has no bulk copies (function {func.name!r})", hint='"cuda -arch=sm_90a" has them'
        )
    return func.with_body(_Lowering(func, {id(s): _Nest.of(s, func) for s in found}).stmt(func.body))


@dataclass(slots=True)
class _Nest:
    """A copy taken apart. `conds` stand around the store inside of it."""

    rows: E.Var
    columns: E.Var
    extents: tuple[int, int]
    store: S.BufferStore
    load: E.BufferLoad
    conds: list[E.Expr]
    swizzle: bool

    @staticmethod
    def of(s: S.Attr, func: Func) -> _Nest:
        loops: list[S.For] = []
        conds: list[E.Expr] = []
        x: S.Stmt = s.body
        while not isinstance(x, S.BufferStore):
            if isinstance(x, S.For) and x.kind == S.ForKind.SERIAL and const_int(x.min) == 0:
                loops.append(x)
                x = x.body
            elif isinstance(x, S.IfThenElse) and x.orelse is None:
                conds.append(x.cond)
                x = x.then
            else:
                raise _unfit(func, x, f"{type(x).__name__} stands inside")
        sizes = [const_int(f.extent) for f in loops]
        while len(loops) > 2 and sizes[0] == 1:  # a batch's axis, one element of it
            x = substitute_store(x, {loops[0].var: B.const(0, loops[0].var.dtype)})
            loops, sizes = loops[1:], sizes[1:]
        if len(loops) != 2 or None in sizes:
            raise _unfit(func, x, f"it has {len(loops)} loops of extents {[str(f.extent) for f in loops]}")
        load = x.value
        if not isinstance(load, E.BufferLoad) or load.buffer.dtype != x.buffer.dtype:
            raise _unfit(func, x, f"it stores {x.value}")
        if (x.buffer.scope in SHARED_SCOPES) == (load.buffer.scope in SHARED_SCOPES):
            raise _unfit(func, x, f"it copies from {load.buffer.scope} to {x.buffer.scope} memory")
        assert isinstance(s.note, BulkCopy)
        extents = sizes[0] or 0, sizes[1] or 0
        return _Nest(loops[0].var, loops[1].var, extents, x, load, _conjuncts(conds), s.note.swizzle)

    @property
    def shared(self) -> Buffer:
        return self.store.buffer if self.store.buffer.scope in SHARED_SCOPES else self.load.buffer


def substitute_store(s: S.BufferStore, values: dict[E.Var, E.Expr]) -> S.BufferStore:
    """A store with variables replaced in its value and indices."""
    at = tuple([substitute(i, values) for i in s.indices])
    return S.BufferStore(s.buffer, substitute(s.value, values), at, s.predicate, s.loc)


def _conjuncts(conds: list[E.Expr]) -> list[E.Expr]:
    out: list[E.Expr] = []
    for c in conds:
        if isinstance(c, E.And):
            out += _conjuncts([c.a, c.b])
        elif isinstance(c, E.Call) and c.op == "likely":
            out += _conjuncts([c.args[0]])
        else:
            out.append(c)
    return out


def _unfit(func: Func, s: S.Stmt, why: str) -> LoweringError:
    return LoweringError(
        f"a bulk copy is a nest of two loops, rows and columns, around one plain copy between global and shared memory: {why} (function {func.name!r})",
        where=getattr(s, "loc", None),
        hint="put the pragma on the first axis of a cache_read (or of the copy of a cache_write) whose loops are as they came",
        locate=False,
    )


class _Lowering:
    def __init__(self, func: Func, nests: dict[int, _Nest]):
        self.func = func
        self.nests = nests  # by the Attr that asks for the copy
        self.layouts: dict[int, _Layout] = {}
        self.whole: dict[int, int] = {}  # of an operand of a warpgroup product: rows that the unit reads at once
        self.piped: set[int] = set()  # buffers that products of a pipeline read
        self.ana = Analyzer()
        visit(func.body, self.collect_rows, self.collect_piped)
        for n in nests.values():
            if id(n.shared) not in self.layouts:
                self.layouts[id(n.shared)] = self.layout(n.shared, n.swizzle)
            elif n.swizzle != bool(self.layouts[id(n.shared)].piece):
                raise _unfit(func, n.store, f"{n.shared.name} is swizzled by one copy and as it comes by another")
        visit(func.body, self.collect_operand, None)

    def collect_rows(self, e: E.Expr) -> None:
        if type(e) is E.Call and e.op in ("wgmma", "wgmma_registers"):
            attrs: dict[str, Any] = e.attrs or {}
            for role, extent, x in zip("ab", ("m", "n"), e.args[:2]):
                if isinstance(x, E.BufferLoad) and attrs.get(f"{role}_major") == "k":
                    rows = math.lcm(attrs[extent], _SWIZZLED_ROWS)
                    self.whole[id(x.buffer)] = math.lcm(rows, self.whole.get(id(x.buffer), 1))

    def collect_piped(self, s: S.Stmt) -> None:
        if is_piped(s):
            visit(s, lambda e: self.piped.update(_operands(e)), None)

    def collect_operand(self, e: E.Expr) -> None:
        """An operand of a warpgroup product that threads fill lies as one that a copy fills; they fence it themselves (`proxy_fence`), or `pipeline` does."""
        if type(e) is E.Call and e.op == "wgmma":
            for x in e.args[:2]:
                if not isinstance(x, E.BufferLoad) or id(x.buffer) in self.layouts:
                    continue
                if id(x.buffer) in self.piped or _is_fenced(self.func, x.buffer):
                    self.layouts[id(x.buffer)] = self.layout(x.buffer)

    def layout(self, b: Buffer, swizzle: bool = True) -> _Layout:
        info = dtype_info(b.dtype)
        size = max(1, info.bytes * info.lanes)
        width = ROW_BYTES // size
        dims = [const_int(d) for d in b.shape]
        lead, (rows, columns) = dims[:-2], dims[-2:] if len(dims) > 1 else (None, None)
        if not swizzle:
            return self.plain_layout(b, rows, columns, size)
        if rows is None or columns is None or any(d != 1 for d in lead):
            raise LoweringError(
                f"shared buffer {b.name} of {list(map(str, b.shape))} {b.dtype} is filled by a bulk copy, whose tile is rows and columns of constant extents (function {self.func.name!r})",
                where=b.loc,
                hint="split the loops of its reader by constants",
                locate=False,
            )
        # The swizzle takes its row from the address: a box starts at a multiple of eight rows. The unit reads all of its rows, of which the tensor may have less.
        rows = -(-rows // self.whole.get(id(b), _SWIZZLED_ROWS)) * self.whole.get(id(b), _SWIZZLED_ROWS)
        shape = (B.const(-(-columns // width)), B.const(rows), B.const(width))
        align = _SWIZZLED_ROWS * ROW_BYTES
        boxes = Buffer(b.name, b.dtype, shape, (), 0, b.scope, align, loc=b.loc)
        return _Layout(boxes, width, _PIECE_BYTES // size)

    def plain_layout(self, b: Buffer, rows: int | None, columns: int | None, size: int) -> _Layout:
        if rows is None or columns is None or columns > _MAX_BOX_ROWS or columns * size % _PIECE_BYTES:
            raise LoweringError(
                f"shared buffer {b.name} of {list(map(str, b.shape))} {b.dtype} is filled by a bulk copy without swizzle, whose rows are at most {_MAX_BOX_ROWS} elements and a multiple of {_PIECE_BYTES} bytes (function {self.func.name!r})",
                where=b.loc,
                locate=False,
                hint="split the rows, pad them, or let threads copy them",
            )
        shape = (B.const(1), B.const(rows), B.const(columns))
        return _Layout(Buffer(b.name, b.dtype, shape, (), 0, b.scope, ROW_BYTES, loc=b.loc), columns, 0)

    # ---- accesses of laid-out buffers

    def place(self, b: Buffer, indices: tuple[E.Expr, ...]) -> tuple[E.Expr, ...]:
        lay = self.layouts[id(b)]
        row, column = indices[-2:]
        if not lay.piece:
            return B.const(0, row.dtype), row, column
        # Simplified one by one: neighbours that one access takes are then seen to be some.
        simplify = self.ana.simplify
        within = simplify(B.floordiv(B.floormod(column, lay.width), lay.piece))
        turn = B.cast(column.dtype, simplify(B.floormod(row, _SWIZZLED_ROWS)))
        piece = B.mul(B.bitwise_xor(within, turn), lay.piece)
        return simplify(B.floordiv(column, lay.width)), row, B.add(piece, simplify(B.floormod(column, lay.piece)))

    def start(self, load: E.BufferLoad) -> E.BufferLoad:
        """The first element of a warpgroup operand: its box and row; inside of a box the unit swizzles by itself."""
        lay = self.layouts.get(id(load.buffer))
        if lay is None or not lay.piece:
            raise LoweringError(
                f"{load.buffer.name} is an operand of a warpgroup product and no bulk copy fills it as that takes it (function {self.func.name!r})",
                where=load.buffer.loc,
                hint='s[stage].pragma(axis, "bulk_copy")',
                locate=False,
            )
        row, column = load.indices[-2:]
        return E.BufferLoad(
            lay.boxes, (B.floordiv(column, lay.width), row, B.floormod(column, lay.width)), load.predicate
        )

    def expr(self, e: E.Expr) -> E.Expr:
        if type(e) is E.Call and e.op == "wgmma":
            a, b, acc = e.args
            assert isinstance(a, E.BufferLoad) and isinstance(b, E.BufferLoad)
            boxes = {
                f"{role}_box": _elements(self.layouts[id(x.buffer)].boxes) if id(x.buffer) in self.layouts else 0
                for role, x in (("a", a), ("b", b))
            }
            return E.Call(e.op, (self.start(a), self.start(b), self.expr(acc)), e.dtype, {**(e.attrs or {}), **boxes})
        if type(e) is E.Call and e.op == "wgmma_registers":
            a, b, acc = e.args
            assert isinstance(b, E.BufferLoad)
            start = self.start(b)
            attrs = {**(e.attrs or {}), "b_box": _elements(start.buffer)}
            return E.Call(e.op, (self.expr(a), start, self.expr(acc)), e.dtype, attrs)
        out = map_expr(e, self.expr)
        if type(out) is E.BufferLoad and id(out.buffer) in self.layouts:
            return E.BufferLoad(self.layouts[id(out.buffer)].boxes, self.place(out.buffer, out.indices), out.predicate)
        return out

    def stmt(self, s: S.Stmt) -> S.Stmt:
        if isinstance(s, S.Attr) and isinstance(s.note, BulkCopy):
            return self.copies(self.nests[id(s)])
        if isinstance(s, S.Alloc) and id(s.buffer) in self.layouts:
            return S.Alloc(self.layouts[id(s.buffer)].boxes, self.stmt(s.body), s.notes)
        if isinstance(s, S.For):
            with self.ana.scope():
                self.ana.bind(s.var, E.Range(s.min, s.extent))
                return map_stmt(s, self.stmt, self.expr)
        out = map_stmt(s, self.stmt, self.expr)
        if isinstance(out, S.BufferStore) and id(out.buffer) in self.layouts:
            at = self.place(out.buffer, out.indices)
            return S.BufferStore(self.layouts[id(out.buffer)].boxes, out.value, at, out.predicate, out.loc)
        return out

    # ---- the copies themselves

    def copies(self, n: _Nest) -> S.Stmt:
        """The bulk copies that do what a nest does, one for each box. Raises LoweringError where its tile fits no boxes."""
        is_load = n.store.buffer is n.shared
        theirs = n.load if is_load else n.store
        mine = n.store if is_load else n.load
        rows, columns = n.extents
        lay, tensor = self.layouts[id(n.shared)], theirs.buffer
        if is_load and columns < lay.width:
            raise _unfit(
                self.func, n.store, f"rows of {columns} elements are narrower than a box, {lay.width} elements"
            )
        if is_load:  # what fills the last box up comes too: beyond the tensor as zeros
            rows = const_int(lay.boxes.shape[1]) or rows
        zero = {v: B.const(0, v.dtype) for v in (n.rows, n.columns)}
        first = [substitute(i, zero) for i in theirs.indices]
        row_dim = self.check(n, theirs.indices, mine.indices)
        if not is_load and columns % lay.width:
            self.check_end(n, first[-1], lay)
        if len(first) > MOST_RANK:
            raise _unfit(
                self.func, n.store, f"{tensor.name} has {len(first)} dimensions, at most {MOST_RANK} are possible"
            )
        out: list[S.Stmt] = []
        for box in range(-(-columns // lay.width)):
            for at in range(0, rows, _MAX_BOX_ROWS):
                coords = [B.cast("int32", c) for c in first]
                coords[-1] = B.add(coords[-1], box * lay.width)
                coords[row_dim] = B.add(coords[row_dim], at)
                height = min(_MAX_BOX_ROWS, rows - at)
                outside = E.BufferLoad(tensor, tuple([B.cast(i.dtype, c) for i, c in zip(first, coords)]))
                inside = E.BufferLoad(lay.boxes, (B.const(box), B.const(at), B.const(0)))
                sizes, strides = list(tensor.shape), list(tensor.strides or row_major_strides(tensor.shape, ())[0])
                facts = [*reversed(coords), *reversed(sizes), *reversed(strides[:-1])]
                args = (inside, outside, *facts) if is_load else (outside, inside, *facts)
                heights = [1] * len(first)
                heights[-1], heights[row_dim] = lay.width, height
                attrs: dict[str, Any] = {"rank": len(first), "box": tuple(reversed(heights))}
                if not lay.piece:
                    attrs["swizzle"] = False
                out.append(S.Evaluate(E.Call("bulk_load" if is_load else "bulk_store", args, "int32", attrs)))
        body = S.seq(*out)
        conds = self.guards(n, theirs)
        return S.IfThenElse(B.all_of(*conds), body) if conds else body

    def check_end(self, n: _Nest, first: E.Expr, lay: _Layout) -> None:
        """Refuse a result whose last box is not full, but at the end of the tensor's rows: beyond its columns it would write another tile's."""
        tensor, columns = n.store.buffer, n.extents[1]
        if not self.ana.can_prove(B.compare("ge", B.add(first, columns), tensor.shape[-1])):
            raise _unfit(
                self.func,
                n.store,
                f"{columns} columns of {tensor.name} are no multiple of {lay.width} and do not end its rows",
            )

    def guards(self, n: _Nest, theirs: E.BufferLoad | S.BufferStore) -> list[E.Expr]:
        """The conditions that are left to test for the whole box. One that names a row or a column has to be what the edge of
        the tensor says anyway, perhaps given that it holds for the first element."""
        own = (n.rows, n.columns)
        first = {v: B.const(0, v.dtype) for v in own}
        out: list[E.Expr] = []
        for c in n.conds:
            inner = [v for v in own if any(x is v for x in free_vars(c))]
            edge = isinstance(c, E.LT) and any(
                same_expr(c.a, i) and same_expr(c.b, B.cast(c.b.dtype, d))
                for i, d in zip(theirs.indices, theirs.buffer.shape)
            )
            if edge:
                continue
            at_first = substitute(c, first)
            if self.says_inside(at_first, [substitute(i, first) for i in theirs.indices], theirs.buffer):
                continue
            if inner:
                with self.ana.scope():
                    for v, extent in zip(own, n.extents):
                        self.ana.bind(v, E.Range(B.const(0, v.dtype), B.const(extent, v.dtype)))
                    for i, d in zip(theirs.indices, theirs.buffer.shape):
                        self.ana.add_constraint(B.compare("lt", i, d))
                    self.ana.add_constraint(at_first)
                    if not self.ana.can_prove(c):
                        raise _unfit(
                            self.func, n.store, f"it stands under {c}, which is not the edge of {theirs.buffer.name}"
                        )
            out.append(at_first)
        return out

    def says_inside(self, c: E.Expr, first: list[E.Expr], tensor: Buffer) -> bool:
        """Whether a box of which `c` does not hold lies beyond the tensor with all of its elements: the copy engine brings zeros, and writes nothing."""
        with self.ana.scope():
            self.ana.add_constraint(B.logical_not(c))
            return any(self.ana.can_prove(B.compare("ge", i, d)) for i, d in zip(first, tensor.shape))

    def check(self, n: _Nest, theirs: tuple[E.Expr, ...], mine: tuple[E.Expr, ...]) -> int:
        """The dimension of the tensor along which the rows run; its last runs along the columns."""
        rows = [d for d, i in enumerate(theirs) if any(v is n.rows for v in free_vars(i))]
        columns = [d for d, i in enumerate(theirs) if any(v is n.columns for v in free_vars(i))]
        plain = len(rows) == 1 and columns == [len(theirs) - 1] and rows[0] != columns[0]
        one = {v: B.const(1, v.dtype) for v in (n.rows, n.columns)}
        zero = {v: B.const(0, v.dtype) for v in (n.rows, n.columns)}
        ana = Analyzer()
        for at in (theirs, mine):
            for i in at:
                moved = any(v is n.rows or v is n.columns for v in free_vars(i))
                step = B.const_value(ana.simplify(B.sub(substitute(i, one), substitute(i, zero))))
                plain = plain and step == int(moved)
        if not plain or not (mine[-2] is n.rows and mine[-1] is n.columns):
            raise _unfit(self.func, n.store, f"it does not go along rows and columns: {n.store}")
        tensor = n.load.buffer if n.store.buffer is n.shared else n.store.buffer
        if tensor.strides and const_int(tensor.strides[-1]) != 1:
            raise _unfit(self.func, n.store, f"the last dimension of {tensor.name} has stride {tensor.strides[-1]}")
        return rows[0]


def _operands(e: E.Expr) -> list[int]:
    """The buffers that a warpgroup product reads, by id; none of another expression."""
    is_product = type(e) is E.Call and e.op == "wgmma"
    return [id(x.buffer) for x in e.args[:2] if isinstance(x, E.BufferLoad)] if is_product else []  # type: ignore[attr-defined]


def _is_fenced(func: Func, b: Buffer) -> bool:
    """Whether threads store to a shared buffer, and say that the unit is to see it (`proxy_fence`)."""
    written = fenced = False

    def on_stmt(s: S.Stmt) -> None:
        nonlocal written, fenced
        written = written or (isinstance(s, S.BufferStore) and s.buffer is b)
        fenced = fenced or is_call(s, "proxy_fence")

    visit(func.body, None, on_stmt)
    return written and fenced and b.scope in SHARED_SCOPES


def _elements(b: Buffer) -> int:
    """Elements from one box of a buffer to the next."""
    return (const_int(b.shape[1]) or 0) * (const_int(b.shape[2]) or 0)
