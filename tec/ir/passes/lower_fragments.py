"""Give register tiles their lanes: fragment buffers become per-lane registers, tile loops become what each lane does.

In, stage "loops": buffers of scope fragment.a/b/acc with the shapes of matrices, touched only inside of
`Attr(Fragment(role, instruction), For row: For col: store)` (fill, load, store, element-wise work on a tile) and
`Attr(Fragment("mma", instruction), For i: For j: For k: acc += a * b)` ("wgmma" where a and b lie in shared memory). These loops say what is computed; the instruction
(text of `tec.ir.matrix`) says which lane holds what. Out: local buffers [tiles..., elements of a lane], each tile
operation under a loop over threadIdx.x of the wavefront's size, products as Calls of "mma". The loops around that choose
tiles are marked to be unrolled, since registers have no addresses.
"""

from __future__ import annotations

from dataclasses import replace

from ...errors import LoweringError
from ...records import dataclass
from ...target import Target
from .. import build as B
from .. import expr as E
from .. import matrix
from .. import stmt as S
from ..buffer import FRAGMENT_SCOPES, Buffer
from ..dtype import dtype_info
from ..func import Func
from ..matrix import MatrixInstr
from ..notes import Fragment
from ..visit import any_stmt, free_vars, map_expr, map_stmt, map_stmts, substituter, visit
from .rewrite_util import SHARED_SCOPES, const_int

_MAX_UNROLL = 64
_ACCESS_BITS = 128  # the widest access of a thread


@dataclass(slots=True)
class _Fragment:
    """How a fragment buffer is held: its tile's rows and columns run along these dimensions."""

    role: str
    instr: MatrixInstr
    row_dim: int
    col_dim: int
    local: Buffer


def lower_fragments(func: Func, target: Target) -> Func:
    """Lower every fragment of the function; the function itself where there is none. Raises LoweringError."""
    if not _uses_fragments(func.body):
        return func
    return func.with_body(_Lowering(func, target).run())


def _uses_fragments(body: S.Stmt) -> bool:
    return any_stmt(body, lambda s: isinstance(s, S.Alloc) and s.buffer.scope in FRAGMENT_SCOPES)


class _Lowering:
    def __init__(self, func: Func, target: Target):
        self.func = func
        self.target = target
        self.fragments: dict[int, _Fragment] = {}
        self.tile_vars: set[int] = set()  # loop variables that choose tiles
        self.aligned: dict[int, tuple[tuple[int, int, int], ...]] = {}  # storage_align of shared buffers

    def run(self) -> S.Stmt:
        visit(self.func.body, None, self._collect)
        return self._mark_unrolled(self._rewrite(self.func.body))

    def error(self, message: str, hint: str | None = None) -> LoweringError:
        return LoweringError(f"{message} (function {self.func.name!r})", hint=hint)

    # ---- analysis

    def _instr(self, s: S.Attr) -> MatrixInstr:
        instr = matrix.instr_from_text(_note(s).instruction)
        if instr.blocks != 1:
            raise self.error(f"{instr.name}: only instructions of one block work on fragments")
        if matrix.native_k(instr, self.target) is None:
            known = ", ".join(i.name for i in matrix.instructions(self.target)) or "none"
            raise self.error(f"{self.target} has no matrix instruction {instr.name}", hint=f"it has: {known}")
        return instr

    def _collect(self, s: S.Stmt) -> None:
        if isinstance(s, S.Alloc):
            self.aligned[id(s.buffer)] = s.notes.storage_align
        if not isinstance(s, S.Attr) or not isinstance(s.note, Fragment):
            return
        role = s.note.role
        instr = self._instr(s)
        if role == "wgmma":
            i, j, _, _ = self._nest(s.body, (instr.m, instr.n, instr.k), _note(s).role)
            acc = self._shared_operands(s)[0]
            self._note(acc.buffer, "acc", instr, acc.indices, i, j)
        elif role == "mma":
            i, j, k, _ = self._nest(s.body, (instr.m, instr.n, instr.k), _note(s).role)
            acc, a, b, _ = self._operands(s)
            for part, load, row, col in (("acc", acc, i, j), ("a", a, i, k), ("b", b, k, j)):
                self._note(load.buffer, part, instr, load.indices, row, col)
        else:
            row, col, inner = self._nest(s.body, instr.shape(role), role)
            for buffer, indices in _accesses(inner):
                if buffer.scope in FRAGMENT_SCOPES:
                    self._note(buffer, role, instr, indices, row, col)

    def _nest(self, body: S.Stmt, extents: tuple[int, ...], what: str) -> tuple:  # type: ignore[type-arg]
        """The loop variables of a perfect nest of the given extents, and the statement inside."""
        variables: list[E.Var] = []
        for extent in extents:
            if not isinstance(body, S.For) or const_int(body.extent) != extent or const_int(body.min) != 0:
                raise self.error(f"{what} stands around {type(body).__name__}, want loops of {extents} from 0")
            variables.append(body.var)
            body = body.body
        return (*variables, body)

    def _operands(self, s: S.Attr) -> tuple[E.BufferLoad, E.BufferLoad, E.BufferLoad, S.BufferStore]:
        """The accumulator (as a load), a, b and the store of an mma's innermost statement."""
        body = s.body
        while isinstance(body, S.For):
            body = body.body
        if isinstance(body, S.BufferStore):
            found = {b.scope: i for b, i in _accesses(S.Evaluate(body.value)) if b.scope in FRAGMENT_SCOPES}
            loads = {e.buffer.scope: e for e in _loads(body.value)}
            if body.buffer.scope == "fragment.acc" and set(found) == set(FRAGMENT_SCOPES):
                return loads["fragment.acc"], loads["fragment.a"], loads["fragment.b"], body
        raise self.error(
            "fragment.mma wants `acc = acc + a * b` on fragment.acc, fragment.a and fragment.b",
            hint="use te.intrin's mma",
        )

    def _shared_operands(self, s: S.Attr) -> tuple[E.BufferLoad, E.BufferLoad, E.BufferLoad, S.BufferStore]:
        """The same of a warpgroup's product, whose a and b lie in shared memory; which is which, the loops that index them say."""
        body, variables = s.body, []
        while isinstance(body, S.For):
            variables.append(body.var)
            body = body.body
        if isinstance(body, S.BufferStore) and body.buffer.scope == "fragment.acc" and len(variables) == 3:
            loads = _loads(body.value)
            acc = [e for e in loads if e.buffer.scope == "fragment.acc"]
            shared = [e for e in loads if e.buffer.scope in SHARED_SCOPES]
            if len(acc) == 1 and len(shared) == 2:
                i = variables[0]
                first_has_rows = any(v is i for x in shared[0].indices for v in free_vars(x))
                a, b = shared if first_has_rows else shared[::-1]
                return acc[0], a, b, body
        raise self.error(
            "fragment.wgmma wants `acc = acc + a * b` on fragment.acc and two operands in shared memory",
            hint="use te.intrin.warpgroup's mma",
        )

    def _note(
        self, buffer: Buffer, role: str, instr: MatrixInstr, indices: tuple[E.Expr, ...], row: E.Var, col: E.Var
    ) -> None:
        """Remember which operand of which instruction a fragment is. Raises where two uses differ."""
        row_dim, col_dim = self._dim_of(row, buffer, indices), self._dim_of(col, buffer, indices)
        known = self.fragments.get(id(buffer))
        if known is not None:
            if (known.role, known.row_dim, known.col_dim) != (role, row_dim, col_dim) or known.instr != instr:
                raise self.error(
                    f"fragment {buffer.name} is used as operand {role} of {instr.name} and as operand {known.role} of {known.instr.name}",
                    hint="one fragment belongs to one operand of one instruction",
                )
            return
        want = "fragment." + role
        if buffer.scope != want:
            raise self.error(
                f"fragment {buffer.name} has scope {buffer.scope}, used as operand {role}", hint=f'set_scope("{want}")'
            )
        rows, cols = instr.shape(role)
        shape: list[E.Expr] = []
        for d, extent in enumerate(buffer.shape):
            size, tile = const_int(extent), {row_dim: rows, col_dim: cols}.get(d, 1)
            if size is None or size % tile:
                raise self.error(
                    f"fragment {buffer.name} has shape {list(buffer.shape)}, tiles of {rows}x{cols} do not fill it"
                )
            shape.append(B.const(size // tile))
        shape.append(B.const(instr.elems(role)))
        local = Buffer(buffer.name, buffer.dtype, tuple(shape), scope="local", align_bytes=64, loc=buffer.loc)
        self.fragments[id(buffer)] = _Fragment(role, instr, row_dim, col_dim, local)

    def _dim_of(self, var: E.Var, buffer: Buffer, indices: tuple[E.Expr, ...]) -> int:
        dims = [d for d, e in enumerate(indices) if any(v is var for v in free_vars(e))]
        if len(dims) != 1:
            raise self.error(f"loop {var.name} indexes {len(dims)} dimensions of fragment {buffer.name}, want one")
        return dims[0]

    # ---- rewriting

    def _rewrite(self, s: S.Stmt) -> S.Stmt:
        if isinstance(s, S.Alloc) and s.buffer.scope in FRAGMENT_SCOPES:
            fragment = self.fragments.get(id(s.buffer))
            if fragment is None:
                raise self.error(
                    f"fragment {s.buffer.name} is never used by a tile operation",
                    hint="tensorize its loops with te.intrin",
                )
            return S.Alloc(fragment.local, self._rewrite(s.body))
        if isinstance(s, S.Attr) and isinstance(s.note, Fragment):
            instr = self._instr(s)
            lane = E.Var("lane")
            if s.note.role == "wgmma":
                body = self._warpgroup_product(s, instr)
            else:
                body = self._product(s, instr) if s.note.role == "mma" else self._tile(s, instr, lane)
            return S.For(lane, B.const(0), B.const(instr.wave), body, S.ForKind.THREAD, "threadIdx.x")
        if isinstance(s, S.BufferStore) and s.buffer.scope in FRAGMENT_SCOPES:
            raise self._stray(s.buffer)
        return map_stmt(s, self._rewrite, self._no_stray)

    def _no_stray(self, e: E.Expr) -> E.Expr:
        for load in _loads(e):
            if load.buffer.scope in FRAGMENT_SCOPES:
                raise self._stray(load.buffer)
        return e

    def _stray(self, buffer: Buffer) -> LoweringError:
        return self.error(
            f"fragment {buffer.name} is touched outside of a tile operation",
            hint="tensorize every stage that writes or reads it with te.intrin (fill, load, mma, store)",
        )

    def _product(self, s: S.Attr, instr: MatrixInstr) -> S.Stmt:
        i, j, k, _ = self._nest(s.body, (instr.m, instr.n, instr.k), _note(s).role)
        acc, a, b, store = self._operands(s)
        zero = substituter({v: B.const(0, v.dtype) for v in (i, j, k)})
        parts = []
        for load in (a, b, acc):
            local = self.fragments[id(load.buffer)].local
            parts.append(E.BufferLoad(local, self._whole(load.buffer, tuple(map(zero, load.indices)))))
        target = self._whole(acc.buffer, tuple(map(zero, store.indices)))
        return S.BufferStore(self.fragments[id(acc.buffer)].local, instr.call(*parts), target, None, store.loc)

    def _warpgroup_product(self, s: S.Attr, instr: MatrixInstr) -> S.Stmt:
        """acc = wgmma(first element of a, first element of b, acc); attrs say along which axis each operand lies in memory."""
        i, j, k, _ = self._nest(s.body, (instr.m, instr.n, instr.k), _note(s).role)
        acc, a, b, store = self._shared_operands(s)
        zero = substituter({v: B.const(0, v.dtype) for v in (i, j, k)})
        attrs = instr.attrs()
        args: list[E.Expr] = []
        for role, load, other in (("a", a, i), ("b", b, j)):
            along = (_coefficient(load.indices[-1], k), _coefficient(load.indices[-1], other))
            if along not in ((1, 0), (0, 1)):
                raise self.error(
                    f"operand {role} of {instr.name} has no axis of neighbours in shared memory",
                    hint="cache_read it as it lies",
                )
            attrs[f"{role}_major"] = "k" if along == (1, 0) else "mn"
            args.append(E.BufferLoad(load.buffer, tuple(map(zero, load.indices))))
        local = self.fragments[id(acc.buffer)].local
        whole = E.BufferLoad(local, self._whole(acc.buffer, tuple(map(zero, acc.indices))))
        value = E.Call("wgmma", (*args, whole), whole.dtype, attrs)
        return S.BufferStore(local, value, self._whole(acc.buffer, tuple(map(zero, store.indices))), None, store.loc)

    def _whole(self, buffer: Buffer, origin: tuple[E.Expr, ...]) -> tuple[E.Expr, ...]:
        """The index of one tile's whole vector."""
        elems = self.fragments[id(buffer)].instr.elems(self.fragments[id(buffer)].role)
        last: E.Expr = B.const(0)
        if elems > 1:
            last = E.Ramp(last, B.const(1), elems)
        return (*self._tile_index(buffer, origin), last)

    def _tile_index(self, buffer: Buffer, origin: tuple[E.Expr, ...]) -> tuple[E.Expr, ...]:
        f = self.fragments[id(buffer)]
        rows, cols = f.instr.shape(f.role)
        out = []
        for d, e in enumerate(origin):
            tile = {f.row_dim: rows, f.col_dim: cols}.get(d, 1)
            index = _divide(e, tile)
            if index is None:
                raise self.error(
                    f"a tile of fragment {buffer.name} starts at {e} in dimension {d}, no multiple of {tile}",
                    hint="split the loops around the tile by the instruction's shape",
                )
            self.tile_vars.update(id(v) for v in free_vars(index))
            out.append(index)
        return tuple(out)

    def _tile(self, s: S.Attr, instr: MatrixInstr, lane: E.Var) -> S.Stmt:
        """Element-wise work on one tile: each lane runs over the elements that it holds."""
        role = _note(s).role
        row, col, inner = self._nest(s.body, instr.shape(role), role)
        if instr.unit == "mma.sync" and role != "acc":
            loaded = self._ldmatrix(instr, role, row, col, inner, lane)
            if loaded is not None:
                return loaded
        axis, length = matrix.run_of(instr, role)
        # A run may be longer than an access (32 elements of eight bits, gfx950): its pieces need not follow each other where a tile is swizzled.
        held = instr.acc_dtype if role == "acc" else instr.storage_dtype
        length = min(length, max(1, _ACCESS_BITS // dtype_info(held).bits))
        zero = substituter({row: B.const(0, row.dtype), col: B.const(0, col.dtype)})
        moving = (row, col)[axis]
        contiguous = any(
            buffer.scope not in FRAGMENT_SCOPES and indices and _coefficient(indices[-1], moving) == 1
            for buffer, indices in _accesses(inner)
        )
        outer, step = E.Var("tile_q"), E.Var("tile_r")
        first: E.Expr = B.mul(outer, length)
        _, r, c = instr.coords(role, lane, first)
        at = [r, c]
        at[axis] = B.add(at[axis], step)
        sub = substituter({row: B.cast(row.dtype, at[0]), col: B.cast(col.dtype, at[1])})
        element = B.add(first, step)

        def expr(e: E.Expr) -> E.Expr:
            if isinstance(e, E.BufferLoad) and e.buffer.scope in FRAGMENT_SCOPES:
                tile = self._tile_index(e.buffer, tuple(map(zero, e.indices)))
                return E.BufferLoad(self.fragments[id(e.buffer)].local, (*tile, element))
            if isinstance(e, E.Var):
                return sub(e)
            return map_expr(e, expr)

        def stmt(x: S.Stmt) -> S.Stmt:
            if isinstance(x, S.BufferStore) and x.buffer.scope in FRAGMENT_SCOPES:
                tile = self._tile_index(x.buffer, tuple(map(zero, x.indices)))
                return S.BufferStore(self.fragments[id(x.buffer)].local, expr(x.value), (*tile, element), None, x.loc)
            return map_stmt(x, stmt, expr)

        body = stmt(inner)
        whole = all(b.scope in FRAGMENT_SCOPES for b, _ in _accesses(inner))
        kind = S.ForKind.VECTORIZED if (contiguous or whole) and length > 1 else S.ForKind.UNROLLED
        body = S.For(step, B.const(0), B.const(length), body, kind)
        return S.For(outer, B.const(0), B.const(instr.elems(role) // length), body, S.ForKind.UNROLLED)

    def _ldmatrix(
        self, instr: MatrixInstr, role: str, row: E.Var, col: E.Var, inner: S.Stmt, lane: E.Var
    ) -> S.Stmt | None:
        """The load of an mma.sync operand from shared memory by ldmatrix: each lane names a row of 16 bytes of one of the
        8-row matrices that the operand is made of (PTX ISA, "ldmatrix"). None for a load of another form."""
        if (
            not isinstance(inner, S.BufferStore)
            or inner.buffer.scope not in FRAGMENT_SCOPES
            or inner.predicate is not None
        ):
            return None
        load, bits = inner.value, dtype_info(inner.buffer.dtype).bits
        if not isinstance(load, E.BufferLoad) or load.predicate is not None or load.buffer.scope not in SHARED_SCOPES:
            return None
        k, other = (col, row) if role == "a" else (row, col)
        last, piece = load.indices[-1], 128 // bits
        along = (_coefficient(last, k), _coefficient(last, other))
        if bits not in (8, 16) or along not in ((1, 0), (0, 1)) or (along == (0, 1) and bits != 16):
            return None
        trans = along == (0, 1)
        zero = substituter({row: B.const(0, row.dtype), col: B.const(0, col.dtype)})
        if _divide(zero(last), piece) is None or not self._rows_aligned(load.buffer, piece):
            return None
        num = instr.elems(role) * bits // 32
        r, j = B.floormod(lane, 8), B.floormod(B.floordiv(lane, 8), num)
        # A's matrices go down its rows first, then along k; B's go along k.
        part_k, part_other = (B.floordiv(j, 2), B.floormod(j, 2)) if role == "a" else (j, B.const(0))
        at_k = B.add(B.mul(part_k, 8), r) if trans else B.mul(part_k, piece)
        at_other = B.mul(part_other, 8) if trans else B.add(B.mul(part_other, 8), r)
        sub = substituter({k: B.cast(k.dtype, at_k), other: B.cast(other.dtype, at_other)})
        source = E.BufferLoad(load.buffer, tuple(map(sub, load.indices)))
        value = E.Call("ldmatrix", (source,), instr.dtype(role), {"num": num, "trans": trans})
        where = self._whole(inner.buffer, tuple(map(zero, inner.indices)))
        return S.BufferStore(self.fragments[id(inner.buffer)].local, value, where, None, inner.loc)

    def _rows_aligned(self, buffer: Buffer, piece: int) -> bool:
        """Whether every row of a shared buffer starts at a multiple of `piece` elements."""
        last = const_int(buffer.shape[-1])
        if last is None or last % piece or buffer.strides:
            return False
        axes = self.aligned.get(id(buffer), ())
        return all(factor % piece == 0 and offset % piece == 0 for _, factor, offset in axes)

    def _mark_unrolled(self, s: S.Stmt) -> S.Stmt:
        """Unroll the loops that choose among tiles: a register is named by a constant."""
        s = map_stmts(s, self._mark_unrolled)
        if isinstance(s, S.For) and s.kind == S.ForKind.SERIAL and id(s.var) in self.tile_vars:
            extent = const_int(s.extent)
            if extent is None or extent > _MAX_UNROLL:
                raise self.error(
                    f"loop {s.var.name} chooses among register tiles and has extent {s.extent}",
                    hint="keep fragments small: split the loop",
                )
            return replace(s, kind=S.ForKind.UNROLLED)
        return s


def _note(s: S.Attr) -> Fragment:
    assert isinstance(s.note, Fragment)
    return s.note


def _loads(e: E.Expr) -> list[E.BufferLoad]:
    found: list[E.BufferLoad] = []

    def on_expr(x: E.Expr) -> None:
        if type(x) is E.BufferLoad:
            found.append(x)

    visit(e, on_expr)
    return found


def _accesses(s: S.Stmt) -> list[tuple[Buffer, tuple[E.Expr, ...]]]:
    """(buffer, indices) of every load and store below `s`."""
    found: list[tuple[Buffer, tuple[E.Expr, ...]]] = []

    def on_expr(x: E.Expr) -> None:
        if type(x) is E.BufferLoad:
            found.append((x.buffer, x.indices))

    def on_stmt(x: S.Stmt) -> None:
        if isinstance(x, S.BufferStore):
            found.append((x.buffer, x.indices))

    visit(s, on_expr, on_stmt)
    return found


def _terms(e: E.Expr, scale: int = 1) -> list[tuple[E.Expr, int]] | None:
    """An index as a sum of (atom, coefficient); a constant has atom IntImm(1)."""
    if isinstance(e, E.IntImm):
        return [(E.IntImm(1), e.value * scale)]
    if isinstance(e, (E.Add, E.Sub)):
        a, b = _terms(e.a, scale), _terms(e.b, scale if isinstance(e, E.Add) else -scale)
        return None if a is None or b is None else a + b
    if isinstance(e, E.Mul):
        for x, y in ((e.a, e.b), (e.b, e.a)):
            k = const_int(y)
            if k is not None:
                return _terms(x, scale * k)
    if isinstance(e, E.Cast) and e.dtype in ("int32", "int64"):
        return _terms(e.value, scale)
    return [(e, scale)]


def _divide(e: E.Expr, tile: int) -> E.Expr | None:
    """`e / tile` where tile divides every term of e, else None."""
    if tile == 1:
        return e
    out: E.Expr = B.const(0)
    merged: dict[int, tuple[E.Expr, int]] = {}
    for atom, k in _terms(e) or ():
        key = 0 if isinstance(atom, E.IntImm) else id(atom)
        merged[key] = (atom, k + merged.get(key, (atom, 0))[1])
    for atom, k in merged.values():
        if k % tile:
            return None
        part: E.Expr = B.const(k // tile) if isinstance(atom, E.IntImm) else B.mul(atom, k // tile)
        out = B.add(out, part)
    return out


def _coefficient(e: E.Expr, var: E.Var) -> int | None:
    """The factor of `var` in an affine index, else None."""
    total = 0
    for atom, k in _terms(e) or ():
        if atom is var:
            total += k
        elif any(v is var for v in free_vars(atom)):
            return None
    return total
