"""What an epilogue reads from memory (a residual, a bias), loaded into registers before the sums that it works on.

In: a kernel with a marked statement in no loop (on AMD's matrix units: the sums) and, behind it, nests of loops around one store that read global memory at places which only the loops' variables choose.
Out: the same loads in nests of their own ahead of the marked one, into registers. So they are under way while that waits for its first tiles, and its
end waits for none of them (4096 x 768 x 768 with a bias and a residual on one H200: 11.9 us for 13.1): a short product's time is one load's latency after another.
A load has the loops alone that choose its place, and the conditions on these: a bias is held once for all rows of a thread. On AMD these choose the value, not whether it is
loaded into the register, which would be a branch a lane; one load can then bring the lanes that there are (`passes.ragged_pieces`).
Nothing is moved where the values would not fit beside the sums, nor inside of a loop over tiles: there the first products of each tile would wait for the loads
(three tiles of 12 steps with a bias: 28.6 us for 24.1; between the last products' start and their end 27.5 for 26.1), nor what the kernel itself writes.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import field

from ....records import dataclass
from ....target import Target
from ... import build as B
from ... import expr as E
from ... import stmt as S
from ...access_bounds import Access, is_inside
from ...arith import Analyzer
from ...buffer import Buffer
from ...dtype import dtype_info
from ...effects import effects
from ...func import Func
from ...visit import any_expr, any_stmt, free_vars, map_expr, map_stmts
from ..rewrite_util import clone, const_int
from .nest import Nest

# Of 32 bits a thread: what a product of few steps has beside its sums without losing work-groups of its unit.
_WORDS = 16


def hold_epilogue(func: Func, target: Target) -> Func:
    """Operands of epilogues in registers before the sums; see the module."""
    if target.kind != "rocm" or not any_stmt(func.body, _is_sum):
        return func

    known = Analyzer()

    def fs(s: S.Stmt) -> S.Stmt:
        if isinstance(s, S.Seq):
            at = [k for k, x in enumerate(s.stmts) if any_stmt(x, _is_sum)]
            if at and at[-1] + 1 < len(s.stmts):
                return hold_behind(s, at[-1], _WORDS, chosen=True, known=known)
        if isinstance(s, S.For):
            if s.kind != S.ForKind.THREAD:
                return s
            known.bind(s.var, E.Range(s.min, s.extent))
        return map_stmts(s, fs)

    return func.with_body(fs(func.body))


def _is_sum(s: S.Stmt) -> bool:
    return isinstance(s, S.BufferStore) and isinstance(s.value, E.Call) and s.value.op == "mma"


def hold_operands(body: S.Stmt, is_marked: Callable[[S.Stmt], bool], words: int) -> S.Stmt:
    """A kernel's body with what follows the marked statement reading registers, at most `words` of 32 bits a thread; else as it was."""
    if isinstance(body, S.Seq):
        at = next((k for k, x in enumerate(body.stmts) if any_stmt(x, is_marked)), None)
        if at is not None and is_marked(body.stmts[at]):
            return hold_behind(body, at, words, within=False)
    if isinstance(body, S.For) and body.kind == S.ForKind.SERIAL:
        return body
    return map_stmts(body, lambda x: hold_operands(x, is_marked, words))


def hold_behind(
    seq: S.Seq, at: int, words: int, within: bool = True, chosen: bool = False, known: Analyzer | None = None
) -> S.Stmt:
    """The same of a list of statements, for those behind the one at `at`; `within`: for those that stand in a buffer's scope as well; `chosen`: conditions choose values, 0 where they
    do not hold; `known`: has the loops around it bound."""
    held = _Held(words, effects(seq).writes, within, chosen, known)
    out = [*seq.stmts[: at + 1], *(held.behind(s) for s in seq.stmts[at + 1 :])]
    if not held.ahead:
        return seq
    body: S.Stmt = S.seq(*held.ahead, *out[: at + 1], *held.arrived, *out[at + 1 :])
    for b in held.buffers:
        body = S.Alloc(b, body)
    return body


@dataclass(slots=True)
class _Held:
    """What is loaded ahead, of at most `words`; `written`: buffers of the kernel whose values change."""

    words: int
    written: set[int]
    within: bool
    chosen: bool
    known: Analyzer | None
    ahead: list[S.Stmt] = field(default_factory=list)
    buffers: list[Buffer] = field(default_factory=list)
    arrived: list[S.Stmt] = field(default_factory=list)  # what waits for the loads, behind the marked statement

    def behind(self, s: S.Stmt) -> S.Stmt:
        """A statement behind the marked one, with the loads of its nests taken out."""
        if isinstance(s, S.Alloc) and self.within:
            return S.Alloc(s.buffer, self.behind(s.body), s.notes)
        if isinstance(s, S.Seq) and self.within:
            return S.seq(*(self.behind(x) for x in s.stmts))
        nest = _nest(s)
        if nest is None:
            return s
        loads = [(x, _around(nest, x, self.known)) for x in _loads(nest) if id(x.buffer) not in self.written]
        size = sum(_count(around) * dtype_info(x.buffer.dtype).bytes for x, around in loads) // 4
        if not loads or size > self.words:
            return s
        self.words -= size
        for load, around in loads:
            loops = [x for x in around if isinstance(x, S.For)]
            index = tuple([f.var for f in loops]) or (B.const(0),)
            extents = tuple([B.const(const_int(f.extent) or 1) for f in loops]) or (B.const(1),)
            held = Buffer(f"{load.buffer.name}_held", load.buffer.dtype, extents, (), 0, "local")
            self.buffers.append(held)
            self.ahead.append(clone(self._loaded(nest, load, around, held, index), {}))
            if self.chosen and dtype_info(held.dtype).bytes > 1:
                # Each branch of what follows would wait for the loads again, and for the stores of the branches before it.
                value = E.Call("computed", (E.BufferLoad(held, index),), held.dtype)
                self.arrived.append(clone(nest.with_inside(S.BufferStore(held, value, index), loops), {}))
            nest.store = _replaced(nest.store, load, E.BufferLoad(held, index))
        return nest.with_inside(nest.store)

    def _loaded(
        self,
        nest: Nest,
        load: E.BufferLoad,
        around: list[S.For | S.IfThenElse],
        held: Buffer,
        index: tuple[E.Expr, ...],
    ) -> S.Stmt:
        """The load into its register, under its loops and conditions."""
        conditions = [x.cond for x in around if isinstance(x, S.IfThenElse)]
        if not self.chosen or not conditions:
            return nest.with_inside(S.BufferStore(held, load, index), around)
        every = functools.reduce(E.And, conditions)
        value = E.Call("if_then_else", (every, load, B.const(0, load.dtype)), load.dtype)
        return nest.with_inside(S.BufferStore(held, value, index), [x for x in around if isinstance(x, S.For)])


def _around(nest: Nest, load: E.BufferLoad, known: Analyzer | None) -> list[S.For | S.IfThenElse]:
    """Of a nest's loops and conditions those on which it depends where the load reads: the loops that choose its place, conditions that have a variable with it in common, and the loops
    of these. The others hold for some of the places where it is read, and say nothing of which. Where the loops that choose the place, and conditions on no others, keep it inside of its
    buffer, they are enough: a bias of rows asks for no columns."""
    asked = {v for i in load.indices for v in free_vars(i)}
    if known is not None and _is_inside(own := _own(nest, asked), load, known):
        return own
    needed: set[int] = set()
    while True:
        more = [
            x for x in nest.around
            if id(x) not in needed and (x.var in asked if isinstance(x, S.For) else not asked.isdisjoint(free_vars(x.cond)))
        ]  # fmt: skip
        if not more:
            return [x for x in nest.around if id(x) in needed]
        needed |= {id(x) for x in more}
        asked |= {v for x in more if isinstance(x, S.IfThenElse) for v in free_vars(x.cond)}


def _own(nest: Nest, asked: set[E.Var]) -> list[S.For | S.IfThenElse]:
    """The loops over variables that are asked for, and conditions that have some of these and no other loop's."""
    others = {f.var for f in nest.loops} - asked
    return [
        x for x in nest.around
        if (x.var in asked if isinstance(x, S.For) else not asked.isdisjoint(seen := free_vars(x.cond)) and others.isdisjoint(seen))
    ]  # fmt: skip


def _is_inside(around: list[S.For | S.IfThenElse], load: E.BufferLoad, known: Analyzer) -> bool:
    """Whether a load is inside of its buffer for certain under some of its nest."""
    with known.scope():
        for x in around:
            if isinstance(x, S.For):
                known.bind(x.var, E.Range(x.min, x.extent))
        guards = [x.cond for x in around if isinstance(x, S.IfThenElse)]
        return is_inside(Access(load.buffer.name, load.buffer.shape, load.indices, guards), known)


def _count(around: list[S.For | S.IfThenElse]) -> int:
    """Turns of the loops."""
    return math.prod(const_int(x.extent) or 0 for x in around if isinstance(x, S.For))


def _nest(s: S.Stmt) -> Nest | None:
    """A nest whose loops begin at 0 and have some constant number of steps."""
    nest = Nest.of(s)
    return nest if nest and all(const_int(f.extent) and const_int(f.min) == 0 for f in nest.loops) else None


def _loads(nest: Nest) -> list[E.BufferLoad]:
    """Loads of global memory at places that no other load chooses, each once."""
    found: list[E.BufferLoad] = []

    def fe(e: E.Expr) -> E.Expr:
        if type(e) is E.BufferLoad and e.buffer.scope == "global" and e.predicate is None and not _reads(e.indices):
            found.append(e)
            return e
        if isinstance(e, E.Call) and e.op in ("if_then_else", "address_of", "access_ptr"):
            return e  # not read in any case
        return map_expr(e, fe)

    fe(nest.store.value)
    if any(_reads([x.cond]) for x in nest.around if isinstance(x, S.IfThenElse)) or nest.store.predicate is not None:
        return []
    return found


def _reads(exprs: tuple[E.Expr, ...] | list[E.Expr]) -> bool:
    """Whether expressions load."""
    return any(any_expr(e, lambda x: type(x) is E.BufferLoad) for e in exprs)


def _replaced(s: S.BufferStore, load: E.BufferLoad, by: E.Expr) -> S.BufferStore:
    def fe(e: E.Expr) -> E.Expr:
        return by if e is load else map_expr(e, fe)

    return S.BufferStore(s.buffer, fe(s.value), s.indices, s.predicate, s.loc)
