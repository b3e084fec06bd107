"""Warpgroup products of a pipelined loop whose tiles threads bring: begun together, and in the loop waited for a step later.

In, stage "loops", after unify_threads: `Attr(SoftwarePipeline(in_flight))` around a loop that fills shared buffers by threads and multiplies them (wgmma). Out, for a step:

    fill the tiles
    wgmma_fence, the products, wgmma_commit         they read shared memory while the threads go on
    wgmma_wait of all but these                     so that the step before has let its tiles go

and behind the loop the sums pass through a wait for all products, so that nothing reads them before. `pipeline` starts the copies of later steps behind a step's wait. A loop of one
step is none any more: its products are waited for in place.

Source: PTX ISA, "wgmma.wait_group"; CUTLASS's multistage main loop on Hopper fed by cp.async has the same order.
"""

from __future__ import annotations

import itertools
from dataclasses import replace

from ....target import Target
from ... import build as B
from ... import expr as E
from ... import stmt as S
from ...buffer import Buffer
from ...effects import is_call
from ...func import Func
from ...notes import SoftwarePipeline
from ...visit import any_stmt, map_stmt, map_stmts, visit
from ..rewrite_util import const_int
from .bulk import effect, of_group
from .leaves import BARRIER


def commit_products(func: Func, target: Target) -> Func:
    """Fences, groups and waits around such products; the function itself where there are none."""
    return func.with_body(_Commit().stmt(func.body)) if any_stmt(func.body, is_piped) else func


def is_piped(s: S.Stmt) -> bool:
    """Whether a statement is a loop whose warpgroup products a schedule lets end in the next step."""
    if not isinstance(s, S.Attr) or not isinstance(s.note, SoftwarePipeline) or not s.note.in_flight:
        return False
    return any_stmt(s.body, _is_product) and not any_stmt(s.body, lambda x: is_call(x, "wgmma_fence"))


def settle(work: S.Stmt, again: bool = False) -> list[S.Stmt]:
    """Wait for all products; the accumulators pass through, so that nothing reads them before. again: a statement before has waited."""
    found: dict[int, Buffer] = {}

    def on_stmt(s: S.Stmt) -> None:
        if isinstance(s, S.BufferStore) and isinstance(s.value, E.Call) and s.value.op == "wgmma":
            found[id(s.buffer)] = s.buffer

    visit(work, None, on_stmt)
    out: list[S.Stmt] = []
    for b in found.values():
        *tiles, elems = [const_int(d) or 0 for d in b.shape]
        for at in itertools.product(*map(range, tiles)):
            index = (*map(B.const, at), E.Ramp(B.const(0), B.const(1), elems))
            whole = E.BufferLoad(b, index)
            attrs = {"n": 0, **({"again": True} if again else {})}
            out.append(S.BufferStore(b, E.Call("wgmma_wait", (whole,), whole.dtype, attrs), index))
    return out


def _never_unrolled(loop: S.For) -> S.For:
    """A loop that leaves products in flight. Where ptxas (12.9, 13.0, 13.3) writes all of its steps out, it takes the sums for complete at the last step's wait of all but one group: what
    reads them behind the loop moves ahead of the wait for the last group. It then waits after each product (C7514), or computes wrong values."""
    return replace(loop, unroll=1)


def _is_product(s: S.Stmt) -> bool:
    return isinstance(s, S.BufferStore) and isinstance(s.value, E.Call) and s.value.op == "wgmma"


class _Commit:
    def __init__(self) -> None:
        self.groups: list[S.For] = []  # the loops over warpgroups around

    def stmt(self, s: S.Stmt) -> S.Stmt:
        if isinstance(s, S.For) and s.thread == "threadIdx.y":
            self.groups.append(s)
            out = map_stmts(s, self.stmt)
            self.groups.pop()
            return out
        if not is_piped(s):
            return map_stmts(s, self.stmt)
        assert isinstance(s, S.Attr)
        if isinstance(s.body, S.For):
            loop = _never_unrolled(s.body.with_body(self.begun(s.body.body, [effect("wgmma_wait", n=1)])))
            return S.seq(S.Attr(s.note, loop), *settle(s.body.body, again=True))
        return self.begun(s.body, settle(s.body), [effect("proxy_fence"), BARRIER])

    def begun(self, s: S.Stmt, after: list[S.Stmt], before: list[S.Stmt] | None = None) -> S.Stmt:
        """The products of a step as one group; what stands before and after them."""
        if isinstance(s, S.Alloc):
            return S.Alloc(s.buffer, self.begun(s.body, after, before), s.notes)
        if isinstance(s, S.Attr):
            return S.Attr(s.note, self.begun(s.body, after, before))
        if isinstance(s, S.Seq):
            at = [k for k, x in enumerate(s.stmts) if any_stmt(x, _is_product)]
            first, last = at[0], at[-1] + 1
            if last - first == 1:
                return S.seq(*s.stmts[:first], self.begun(s.stmts[first], after, before), *s.stmts[last:])
            return S.seq(*s.stmts[:first], self.begun_all(s.stmts[first:last], after, before), *s.stmts[last:])
        return self.begun_all([s], after, before)

    def begun_all(
        self, products: list[S.Stmt] | tuple[S.Stmt, ...], after: list[S.Stmt], before: list[S.Stmt] | None
    ) -> S.Stmt:
        made = [self.uniform(x) for x in products]
        return S.seq(*(before or ()), effect("wgmma_fence"), *made, effect("wgmma_commit"), *after)

    def uniform(self, s: S.Stmt) -> S.Stmt:
        """Products whose operands are named by the warpgroup's number, known to be the same in all lanes."""
        groups = {f.var: E.Call("readfirstlane", (f.var,), f.var.dtype) for f in self.groups}

        def fs(x: S.Stmt) -> S.Stmt:
            return map_stmt(x, fs, lambda e: of_group(e, groups))

        return fs(s)
