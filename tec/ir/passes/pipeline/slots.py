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
from ...visit import any_expr, holds, substitute, visit
from ..rewrite_util import clone, const_int
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
    """A fill in two: what loads into a register buffer of so many bytes, and what stores from there."""

    load: S.Stmt
    store: S.Stmt
    register: Buffer
    bytes: int


def through_registers(s: S.Stmt, room: int) -> Staged | None:
    """A nest of constant loops and conditions around one store, as a nest that loads and a nest that stores."""
    nest = Nest.of(s)
    if nest is None or any(const_int(f.extent) is None for f in nest.loops):
        return None
    loops, x = nest.loops, nest.store
    info = dtype_info(x.value.dtype)
    if info.lanes > 1:
        return None
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
    return Staged(load, clone(store, {}), register, used)


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
