"""Fills of shared memory through registers, for `pipeline`: a nest that loads, and a nest that stores what came."""

from __future__ import annotations

import itertools

from ....records import dataclass
from ... import build as B
from ... import expr as E
from ... import stmt as S
from ...arith import Analyzer
from ...buffer import Buffer
from ...dtype import dtype_info
from ...visit import any_expr, free_vars, holds, map_expr, substitute, visit, walk_exprs
from ..rewrite_util import clone, const_int, same_expr
from .nest import Nest, is_choice, masked

MAX_REGISTER_BYTES = 512  # of one thread, for what is on its way to shared memory


def has_conditions(s: S.Stmt) -> bool:
    """Whether accesses stand under conditions."""
    return any_expr(s, is_choice) or holds(s, S.IfThenElse)


def has_branches(s: S.Stmt) -> bool:
    """Whether they become branches on AMD: all but those of loads of a word or more from memory whose rows have known sizes, or a constant in their place, or a load from another
    buffer; these are single instructions (buffer loads). Where it errs the code is slower, not wrong."""
    calls: list[E.Call] = []
    taken: set[int] = set()
    vectors: list[int] = []
    statements: list[S.Stmt] = []

    def expr(e: E.Expr) -> None:
        if is_choice(e):
            calls.append(e)  # type: ignore[arg-type]

    def stmt(x: S.Stmt) -> None:
        if isinstance(x, S.IfThenElse):
            statements.append(x)
        elif isinstance(x, S.For) and x.kind == S.ForKind.VECTORIZED:
            vectors.append(const_int(x.extent) or 0)

    visit(s, expr, stmt)
    lanes = min(vectors, default=1)
    for e in calls:
        _, value, other = e.args
        sources = value.args[1:] if is_choice(value) else (value,)  # type: ignore[attr-defined]
        if not isinstance(other, (E.IntImm, E.FloatImm)):
            sources = (*sources, other)
        if all(_is_whole(x, lanes) for x in sources):
            taken |= {id(e), id(value)}
    return bool(statements) or any(id(e) not in taken for e in calls)


def _is_whole(e: E.Expr, lanes: int) -> bool:
    """Whether an access to memory whose rows have known sizes is of 4, 8 or 16 bytes in vectors of `lanes`."""
    if not isinstance(e, E.BufferLoad) or e.predicate is not None or e.buffer.scope != "global":
        return False
    return dtype_info(e.dtype).bytes * lanes in (4, 8, 16) and all(const_int(n) is not None for n in e.buffer.shape[1:])


def moved_on(to: Buffer, source: Buffer) -> S.Stmt:
    """All of a register buffer's elements to another of its shape."""
    loops = [E.Var(f"r{k}") for k in range(len(to.shape))]
    out: S.Stmt = S.BufferStore(to, E.BufferLoad(source, tuple(loops)), tuple(loops))
    for k, (var, n) in enumerate(zip(reversed(loops), reversed(to.shape))):
        kind = S.ForKind.UNROLLED if k or const_int(n) == 1 else S.ForKind.VECTORIZED
        out = S.For(var, B.const(0, var.dtype), n, out, kind)
    return out


def held_until(register: Buffer) -> S.Stmt:
    """A register buffer's values as they are here, whatever is done with them later."""
    loops = [E.Var(f"r{k}") for k in range(len(register.shape))]
    at = tuple(loops)
    out: S.Stmt = S.BufferStore(register, E.Call("computed", (E.BufferLoad(register, at),), register.dtype), at)
    for var, n in zip(reversed(loops), reversed(register.shape)):
        out = S.For(var, B.const(0, var.dtype), n, out, S.ForKind.UNROLLED)
    return out


def is_turned(s: S.Stmt) -> bool:
    """Whether a fill takes blocks that lie along another axis than they are written along."""
    nest = Nest.of(s)
    return nest is not None and _is_crossed(nest)


@dataclass(frozen=True, slots=True)
class Staged:
    """A fill in two: what loads into register buffers of so many bytes, and what stores from there."""

    load: S.Stmt
    store: S.Stmt
    registers: tuple[Buffer, ...]
    bytes: int


def through_registers(s: S.Stmt, room: int, step: E.Var) -> Staged | None:
    """A nest of constant loops and conditions around one store, as a nest that loads and a nest that stores. step: of the loop that fills stand in."""
    nest = Nest.of(s)
    if nest is None or any(const_int(f.extent) is None for f in nest.loops):
        return None
    loops, x = nest.loops, nest.store
    info = dtype_info(x.value.dtype)
    if info.lanes > 1:
        return None
    read = _as_read(nest, room, step)
    if read is not None:
        return read
    crossed = _is_crossed(nest)
    held = [*loops[:-2], loops[-1], loops[-2]] if crossed else loops
    shape = tuple([f.extent for f in held]) or (E.IntImm(1),)
    count = 1
    for e in shape:
        count *= const_int(e) or 1
    used = count * info.bytes
    if used > room:
        return None
    register = Buffer(f"{x.buffer.name}_next", x.value.dtype, shape, scope="local", loc=x.buffer.loc)
    at = tuple([B.sub(f.var, f.min) for f in held]) or (E.IntImm(0),)
    leaf: S.Stmt = S.BufferStore(register, x.value, at, None, x.loc)
    if crossed:
        u, v = loops[-2:]
        leaf = S.For(u.var, u.min, u.extent, leaf, S.ForKind.VECTORIZED)
        leaf = S.For(v.var, v.min, v.extent, leaf, S.ForKind.UNROLLED)
    load = nest.with_inside(leaf, nest.around[:-2] if crossed else None)
    store = nest.with_inside(S.BufferStore(x.buffer, E.BufferLoad(register, at), x.indices, x.predicate, x.loc))
    return Staged(load, clone(store, {}), (register,), used)


def _as_read(nest: Nest, room: int, step: E.Var) -> Staged | None:
    """A nest that computes all of a piece from the same elements, as codes of a word: registers hold these, and what stores computes. Computed as they come, one load would wait for
    the other. None for another nest, where what is computed is no more bytes, and for elements that stay from step to step alone."""
    x = nest.store
    value, cond, other = masked(x.value)
    if not nest.around or not isinstance(last := nest.around[-1], S.For) or isinstance(value, E.BufferLoad):
        return None
    loads = [e for e in walk_exprs(value) if isinstance(e, E.BufferLoad)]
    parts = [*loads, *([] if cond is None else [cond])]
    if last.kind != S.ForKind.VECTORIZED or x.predicate is not None or any(last.var in free_vars(e) for e in parts):
        return None
    if any(e.buffer.scope != "global" or e.predicate is not None or dtype_info(e.dtype).lanes > 1 for e in loads):
        return None
    moving: list[E.BufferLoad] = []
    for e in loads:
        if step in free_vars(e) and not any(same_expr(e, m) for m in moving):
            moving.append(e)
    outer, count = nest.loops[:-1], 1
    for f in outer:
        count *= const_int(f.extent) or 1
    used = count * sum(dtype_info(e.dtype).bytes for e in moving)
    whole = count * (const_int(last.extent) or 1) * dtype_info(x.value.dtype).bytes
    if not moving or used >= whole or used > room:
        return None
    shape = tuple(f.extent for f in outer) or (E.IntImm(1),)
    at = tuple(B.sub(f.var, f.min) for f in outer) or (E.IntImm(0),)
    held = [Buffer(f"{e.buffer.name}_next", e.dtype, shape, scope="local", loc=x.buffer.loc) for e in moving]

    def loaded(e: E.BufferLoad, to: Buffer) -> S.Stmt:
        nothing = B.const(0.0 if dtype_info(e.dtype).is_float else 0, e.dtype)
        guarded = e if cond is None else E.Call("if_then_else", (cond, e, nothing), e.dtype)
        return S.BufferStore(to, guarded, at, None, x.loc)

    def kept(e: E.Expr) -> E.Expr:
        to = next((to for m, to in zip(moving, held) if isinstance(e, E.BufferLoad) and same_expr(m, e)), None)
        return map_expr(e, kept) if to is None else E.BufferLoad(to, at)

    made = kept(value)
    if cond is not None and other is not None:
        made = E.Call("if_then_else", (cond, made, other), value.dtype)
    load = nest.with_inside(S.seq(*map(loaded, moving, held)), nest.around[:-1])
    store = nest.with_inside(S.BufferStore(x.buffer, made, x.indices, None, x.loc))
    return Staged(load, clone(store, {}), tuple(held), used)


def _is_crossed(nest: Nest) -> bool:
    """Whether the innermost two loops copy a block that lies along the outer one in global memory, and is written along the inner one: the
    loads then take what lies side by side, and the stores turn it, so that nothing waits for the loads before the work."""
    loops, x = nest.loops, nest.store
    if len(loops) < 2 or not all(isinstance(f, S.For) for f in nest.around[-2:]):
        return False
    u, v = loops[-2:]
    load, _, _ = masked(x.value)
    if u.kind != S.ForKind.UNROLLED or v.kind != S.ForKind.VECTORIZED or not isinstance(load, E.BufferLoad):
        return False
    if load.predicate is not None or x.predicate is not None or load.buffer.scope != "global" or load.buffer.strides:
        return False
    ana = Analyzer()
    for f in loops:
        ana.bind(f.var, E.Range(f.min, f.extent))

    def step(index: E.Expr, f: S.For) -> float | None:
        """By what an index grows along a loop, where that is one constant; numbers are put in, since a wider type's cast of a sum is no sum."""
        at = [substitute(index, {f.var: B.const(k, f.var.dtype)}) for k in range(const_int(f.extent) or 0)]
        steps = {B.const_value(ana.simplify(B.sub(y, x))) for x, y in itertools.pairwise(at)}
        return steps.pop() if len(steps) == 1 else None

    *outer, last = load.indices
    # A row of memory that is one dimension has its rows a stride apart.
    across = step(last, v) == 0 or (not outer and step(last, v) != 1)
    return step(last, u) == 1 and across and all(step(i, u) == 0 for i in outer)


def with_slots(b: Buffer, stages: int) -> Buffer:
    """The buffer with so many slots, one more dimension in front."""
    strides: tuple[E.Expr, ...] = ()
    if b.strides:
        strides = (B.mul(b.shape[0], b.strides[0]), *b.strides)
    return Buffer(b.name, b.dtype, (E.IntImm(stages), *b.shape), strides, 0, b.scope, b.align_bytes, loc=b.loc)
