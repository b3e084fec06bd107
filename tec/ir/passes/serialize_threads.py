"""Run a kernel's threads as loops, where the target launches none: what a CPU makes of a kernel written for threads.

In: flat buffers, a launch nest of constant block (attrs "simt"). Out: no launch loops.

    parallel for block:                        # blocks are independent
        for t in block: a                      # threads go from one meeting to the next (a barrier, a shuffle),
        for t in block: b                      # one after the other, all of them, before any goes on

Between two meetings stands a region, a loop over the threads. What a thread keeps over a meeting (a let, local storage) becomes an
array with an element a thread. A branch or a loop that has a meeting inside is taken by all threads together: where the condition may
differ between them, a mask says who takes part (an array of bools, asked in each region); a loop goes on while any thread does. So
any kernel runs, also one whose barrier some threads do not reach. This is how POCL and ISPC run such programs (Jääskeläinen et al.,
"pocl: A Performance-Portable OpenCL Implementation", 2015).

Lanes of a wavefront are `CPU_WAVE` threads with consecutive numbers: shuffles and ballots go through arrays.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from ...errors import LoweringError
from ...target import Target
from .. import build as B
from .. import expr as E
from .. import stmt as S
from ..buffer import LOCAL, Buffer
from ..dtype import dtype_info
from ..func import Func
from ..visit import free_vars, map_expr, map_stmt, map_stmts
from .rewrite_util import BLOCK_TAGS, THREAD_TAGS, clone, const_int, is_launch_loop, is_named
from .thread_guards import Ends, inlined, is_store, trimmed
from .thread_regions import Item, Private, Regions
from .thread_strides import in_steps, is_strided, own_atomics
from .thread_strips import wide_rows

# Private storage of a block's threads that strided loops read and write at each step: half of a first-level cache of 32 KiB.
KEPT_BYTES = 16 << 10
CPU_WAVE = 32  # lanes of what passes for a wavefront


def serialize_threads(func: Func, target: Target) -> Func:
    """The kernel with its threads as loops; see the module. Raises LoweringError for a meeting that it cannot express."""
    if target.is_gpu or not func.attrs.get("simt"):
        return func

    def host(s: S.Stmt) -> S.Stmt:
        return _Kernel(wide_rows(s)).run() if is_launch_loop(s) else map_stmts(s, host)

    return func.with_body(host(func.body))


class _Kernel(Regions):
    def __init__(self, root: S.Stmt):
        self.blocks: dict[str, S.For] = {}
        self.threads: dict[str, S.For] = {}
        body = root
        while is_launch_loop(body):
            assert isinstance(body, S.For)
            (self.blocks if body.thread in BLOCK_TAGS else self.threads)[body.thread] = body
            body = body.body
        self.shape = [const_int(self.threads[t].extent) if t in self.threads else 1 for t in THREAD_TAGS]
        if any(n is None for n in self.shape):
            raise LoweringError(
                "a block whose size is not a constant cannot run as loops on a CPU",
                hint="a block of a constant size for CPUs: split by a number",
            )
        self.count = math.prod(n or 1 for n in self.shape)
        linear: E.Expr = E.IntImm(0)
        for tag, n in reversed(list(zip(THREAD_TAGS, self.shape))):
            if tag in self.threads:
                linear = B.add(B.mul(linear, n), self.threads[tag].var)
        self.linear = linear
        super().__init__(body, {id(f.var) for f in self.threads.values()})
        self.allocs: list[Buffer] = list(self.shared)

    # ---- the whole

    def run(self) -> S.Stmt:
        for p in self.privates.values():
            levels = {self.level_of[r] for r in p.regions}
            if len(p.regions) > 1 or levels - {p.level}:
                size = p.buffer.shape[0]
                p.wide = Buffer(
                    p.buffer.name, p.buffer.dtype, (B.mul(size, self.count),), scope=LOCAL, loc=p.buffer.loc
                )
                self.allocs.append(p.wide)
        self.spills: dict[int, Buffer] = {}
        for key, item in self.lets.items():
            if self.let_regions.get(key, set()) - {self.home[key]} and not self.again(item):
                assert item.var is not None
                self.spills[key] = self.array(item.var.name, item.var.dtype)
        body = own_atomics(self.sequence(self.top, None, {}))
        for b in reversed(self.allocs):
            body = S.Alloc(b, body)
        return self.grid(body)

    def grid(self, body: S.Stmt) -> S.Stmt:
        """The blocks, in parallel."""
        loops = [self.blocks[t] for t in BLOCK_TAGS if t in self.blocks]
        if not loops:
            return body
        total: E.Expr = E.IntImm(1)
        for f in loops:
            total = B.mul(total, B.cast("int32", f.extent))
        if len(loops) == 1:
            return S.For(loops[0].var, E.IntImm(0), total, body, S.ForKind.PARALLEL)
        block = E.Var("block", "int32", True)
        rest: E.Expr = block
        values = []
        for f in loops:
            values.append((f.var, B.floormod(rest, f.extent)))
            rest = B.floordiv(rest, f.extent)
        for var, value in reversed(values):
            body = S.LetStmt(var, value, body)
        return S.For(block, E.IntImm(0), total, body, S.ForKind.PARALLEL)

    def array(self, name: str, dtype: str, count: int = 0) -> Buffer:
        b = Buffer(name, dtype, (E.IntImm(count or self.count),), scope=LOCAL)
        self.allocs.append(b)
        return b

    # ---- code

    def sequence(self, items: list[Item], mask: Buffer | None, scope: dict[int, Item]) -> S.Stmt:
        """All threads through a sequence. `scope`: the lets around it."""
        out: list[S.Stmt] = []
        group: list[Item] = []
        scope = dict(scope)

        def flush() -> None:
            if group:
                out.append(self.loop(list(group), mask, scope))
                scope.update((id(x.var), x) for x in group if x.var is not None)
                group.clear()

        for x in items:
            s = x.stmt
            assert s is not None
            if x.var is not None and not self.meeting(x.value):  # type: ignore[arg-type]
                group.append(x)
            elif x.var is None and not self.meeting(s):
                group.append(x)
            elif x.var is not None:
                moved = self.moved(x, group, flush, out, mask)
                group.append(moved)
            else:
                flush()
                out.append(self.together(s, mask, scope))
        flush()
        return S.seq(*out)

    def loop(self, items: list[Item], mask: Buffer | None, scope: dict[int, Item]) -> S.Stmt:
        """A region: the items for each thread, one after the other."""
        body: list[S.Stmt] = []
        for x in reversed(items):
            if x.var is None:
                assert x.stmt is not None
                body = [x.stmt, *body]
                continue
            assert x.value is not None
            spill = self.spills.get(id(x.var))
            keep = [S.BufferStore(spill, x.var, (self.linear,))] if spill is not None else []
            body = [S.LetStmt(x.var, x.value, S.seq(*keep, *body), x.loc)]
        inner = S.seq(*body)
        inner = self.opened(inner, scope)
        owned = [p for p in self.privates.values() if p.wide is None and is_named(inner, p.buffer)]
        # A strided loop's steps alternate between the threads, so that each thread's own storage lives through all of them.
        if owned and self.kept_bytes(owned) <= KEPT_BYTES and self.strides(inner):
            for p in owned:
                size = B.mul(p.buffer.shape[0], self.count)
                p.wide = Buffer(p.buffer.name, p.buffer.dtype, (size,), scope=LOCAL, loc=p.buffer.loc)
                self.allocs.append(p.wide)
            owned = []
        for p in owned:
            inner = S.Alloc(p.buffer, inner)
        inner = self.widened(inner)
        if mask is not None:
            inner = S.IfThenElse(E.BufferLoad(mask, (self.linear,)), inner)
        return self.each(inner)

    def kept_bytes(self, privates: list[Private]) -> int:
        """The bytes of private storage for all threads; too many where the size is not known."""
        sizes = [const_int(p.buffer.shape[0]) for p in privates]
        each = [n * dtype_info(p.buffer.dtype).bytes if n is not None else KEPT_BYTES for n, p in zip(sizes, privates)]
        return sum(each) * self.count

    def strides(self, s: S.Stmt) -> bool:
        """Whether a region of a block of one dimension has a strided loop."""
        if len(self.threads) != 1:
            return False
        (f,) = self.threads.values()
        body = trimmed(inlined(s), [f.var])[0]
        return any(is_strided(x, f.var) for x in (body.stmts if isinstance(body, S.Seq) else [body]))

    def opened(self, s: S.Stmt, scope: dict[int, Item]) -> S.Stmt:
        """`s` with the lets from before that it uses: evaluated again, or read from where they were kept."""
        wanted = {id(v) for v in free_vars(s)}
        for x in reversed(list(scope.values())):
            assert x.var is not None and x.value is not None
            if id(x.var) not in wanted:
                continue
            spill = self.spills.get(id(x.var))
            value: E.Expr = x.value if spill is None else E.BufferLoad(spill, (self.linear,))
            s = S.LetStmt(x.var, value, s, x.loc)
            wanted.update(id(v) for v in free_vars(value))
        return s

    def each(self, s: S.Stmt) -> S.Stmt:
        """A loop over the threads of the block, with variables of its own."""
        loops = [self.threads[tag] for tag in THREAD_TAGS if tag in self.threads]
        s, starts, ends = trimmed(inlined(s), [f.var for f in loops])

        def nest(body: S.Stmt) -> S.Stmt:
            part = self.nest(body, loops, starts, ends)
            full = [
                c
                for f in loops
                for c in (
                    *(B.compare("le", start, 0) for start in starts.get(id(f.var), ())),
                    *(B.compare("ge", end, f.extent) for end in ends.get(id(f.var), ())),
                )
            ]
            if not full or not is_store(body):
                return part
            # Most blocks are whole ones, whose loops have constant lengths.
            return S.IfThenElse(B.all_of(*full), self.nest(body, loops, {}, {}), part)

        return in_steps(s, loops[0].var, self.count, nest) if len(loops) == 1 else nest(s)

    def nest(self, s: S.Stmt, loops: list[S.For], starts: Ends, ends: Ends) -> S.Stmt:
        """Loops over the threads, from their first steps to their ends."""
        fresh: dict[E.Var, E.Expr] = {}
        for f in loops:
            fresh[f.var] = E.Var(f.var.name, f.var.dtype, True)
        s = clone(s, fresh)
        for f in loops:
            extent = f.extent
            for end in ends.get(id(f.var), ()):
                extent = B.minimum(extent, end)
            first: E.Expr = E.IntImm(0)
            for start in starts.get(id(f.var), ()):
                first = B.maximum(first, start)
            var = fresh[f.var]
            assert isinstance(var, E.Var)
            s = S.For(var, first, B.sub(extent, first), s)
        return s

    def widened(self, s: S.Stmt) -> S.Stmt:
        """Accesses of private storage that outlives its region, as elements of the thread's."""
        memo: dict[int, tuple[E.Expr, E.Expr]] = {}

        def at(index: E.Expr) -> E.Expr:
            return B.add(B.mul(B.cast("int32", index), self.count), self.linear)

        def fe(e: E.Expr) -> E.Expr:
            hit = memo.get(id(e))
            if hit is not None:
                return hit[1]
            out = map_expr(e, fe)
            if type(out) is E.BufferLoad:
                p = self.privates.get(id(out.buffer))
                if p is not None and p.wide is not None:
                    _check_scalar(out.indices[0], p.buffer)
                    out = E.BufferLoad(p.wide, (at(out.indices[0]),), out.predicate)
            elif type(out) is E.Call and out.op == "wave_lane":
                out = B.floormod(self.linear, CPU_WAVE)
            memo[id(e)] = (e, out)
            return out

        def fs(x: S.Stmt) -> S.Stmt:
            out = map_stmt(x, fs, fe)
            if isinstance(out, S.BufferStore):
                p = self.privates.get(id(out.buffer))
                if p is not None and p.wide is not None:
                    _check_scalar(out.indices[0], p.buffer)
                    return S.BufferStore(p.wide, out.value, (at(out.indices[0]),), out.predicate, out.loc)
            return out

        return fs(s)

    def block_level(self, e: E.Expr, scope: dict[int, Item]) -> E.Expr:
        """A value that is the same for all threads, as the first of them has it."""
        held = S.Evaluate(e)
        s = clone(self.widened(self.opened(held, scope)), {f.var: E.IntImm(0) for f in self.threads.values()})
        lets: list[tuple[E.Var, E.Expr]] = []
        while isinstance(s, S.LetStmt):
            lets.append((s.var, s.value))
            s = s.body
        assert isinstance(s, S.Evaluate)
        out = s.value
        for var, value in reversed(lets):
            out = E.Let(var, value, out)
        return out

    # ---- where threads meet

    def together(self, s: S.Stmt, mask: Buffer | None, scope: dict[int, Item]) -> S.Stmt:
        """A statement with a meeting inside, by all threads of the mask at once."""
        match s:
            case S.Evaluate(value=E.Call(op="barrier")):
                return S.NOP
            case S.IfThenElse():
                return self.branch(s, mask, scope)
            case S.While():
                return self.while_loop(s, mask, scope)
            case S.For():
                return self.counted(s, mask, scope)
            case S.Evaluate(value=E.Call() as call) if call.op in _MOVES or call.op == "ballot":
                return S.NOP  # nobody takes what it gives
        raise LoweringError(
            f"threads meet inside of {type(s).__name__}, which a CPU cannot run as loops",
            where=getattr(s, "loc", None),
            locate=False,
            hint="a barrier or exchange that is a statement of its own, outside of expressions and of loops that differ between threads",
        )

    def branch(self, s: S.IfThenElse, mask: Buffer | None, scope: dict[int, Item]) -> S.Stmt:
        then, orelse = self.kept_items(s.then), self.kept_items(s.orelse) if s.orelse is not None else []
        if mask is None and not self.is_varying(s.cond):
            return S.IfThenElse(
                self.block_level(s.cond, scope),
                self.sequence(then, None, scope),
                self.sequence(orelse, None, scope) if orelse else None,
                s.loc,
            )
        yes = self.array("yes", "bool")
        no = self.array("no", "bool") if orelse else None
        cond: list[S.Stmt] = [S.BufferStore(yes, s.cond, (self.linear,), None, s.loc)]
        rest: list[S.Stmt] = [S.BufferStore(yes, B.const(False), (self.linear,))]
        if no is not None:
            cond.append(S.BufferStore(no, B.logical_not(E.BufferLoad(yes, (self.linear,))), (self.linear,)))
            rest.append(S.BufferStore(no, B.const(False), (self.linear,)))
        out = [self.masked(S.seq(*cond), S.seq(*rest), mask, scope), self.sequence(then, yes, scope)]
        if no is not None:
            out.append(self.sequence(orelse, no, scope))
        return S.seq(*out)

    def masked(self, s: S.Stmt, rest: S.Stmt, mask: Buffer | None, scope: dict[int, Item]) -> S.Stmt:
        """`s` for each thread of the mask, `rest` for the others."""
        inner = self.widened(self.opened(s, scope))
        if mask is not None:
            inner = S.IfThenElse(E.BufferLoad(mask, (self.linear,)), inner, rest)
        return self.each(inner)

    def while_loop(self, s: S.While, mask: Buffer | None, scope: dict[int, Item]) -> S.Stmt:
        items = self.kept_items(s.body)
        if mask is None and not self.is_varying(s.cond):
            return S.While(self.block_level(s.cond, scope), self.sequence(items, None, scope), s.loc)
        going, some = self.array("going", "bool"), self.array("some", "bool", 1)
        zero = (E.IntImm(0),)
        at = (self.linear,)
        ask = S.seq(
            S.BufferStore(going, s.cond, at, None, s.loc),
            S.IfThenElse(E.BufferLoad(going, at), S.BufferStore(some, B.const(True), zero)),
        )
        off = S.BufferStore(going, B.const(False), at)
        first = S.seq(S.BufferStore(some, B.const(False), zero), self.masked(ask, off, mask, scope))
        again = S.seq(S.BufferStore(some, B.const(False), zero), self.masked(ask, off, going, scope))
        return S.seq(first, S.While(E.BufferLoad(some, zero), S.seq(self.sequence(items, going, scope), again), s.loc))

    def counted(self, s: S.For, mask: Buffer | None, scope: dict[int, Item]) -> S.Stmt:
        items = self.kept_items(s.body)
        if not self.is_varying(s.min) and not self.is_varying(s.extent) and mask is None:
            low, extent = self.block_level(s.min, scope), self.block_level(s.extent, scope)
            return S.For(s.var, low, extent, self.sequence(items, None, scope), unroll=s.unroll)
        lows, turns = self.array("low", s.var.dtype), self.array("turns", s.var.dtype)
        most, going = self.array("most", s.var.dtype, 1), self.array("going", "bool")
        at, zero = (self.linear,), (E.IntImm(0),)
        ask = S.seq(
            S.BufferStore(lows, s.min, at),
            S.BufferStore(turns, s.extent, at),
            S.BufferStore(most, B.maximum(E.BufferLoad(most, zero), E.BufferLoad(turns, at)), zero),
        )
        off = S.BufferStore(turns, B.const(0, s.var.dtype), at)
        k = E.Var("turn", s.var.dtype, True)
        inside = S.BufferStore(going, B.compare("lt", k, E.BufferLoad(turns, at)), at)
        var = Item(S.NOP, s.var, B.add(E.BufferLoad(lows, at), k))
        self.varying.add(id(s.var))
        body = S.seq(self.each(inside), self.sequence(items, going, {**scope, id(s.var): var}))
        return S.seq(
            S.BufferStore(most, B.const(0, s.var.dtype), zero),
            self.masked(ask, off, mask, scope),
            S.For(k, B.const(0, s.var.dtype), E.BufferLoad(most, zero), body),
        )

    def moved(
        self, x: Item, group: list[Item], flush: Callable[[], None], out: list[S.Stmt], mask: Buffer | None
    ) -> Item:
        """A let of what other lanes have: what each has is put down before the meeting and taken up behind it."""
        call = x.value
        if not isinstance(call, E.Call) or any(self.meeting(a) for a in call.args):
            raise LoweringError(
                f"lanes exchange values inside of an expression: {x.value}",
                where=x.loc,
                locate=False,
                hint="assign the exchanged value to a name first, in a line of its own",
            )
        at = (self.linear,)
        if call.op in _MOVES:
            put, where = self.array("put", call.args[0].dtype), self.array("from", "int32")
            group.append(Item(S.BufferStore(put, call.args[0], at, None, x.loc)))
            group.append(Item(S.BufferStore(where, self.source(call), at, None, x.loc)))
            flush()
            return Item(x.stmt, x.var, E.BufferLoad(put, (E.BufferLoad(where, at),)), x.loc)
        if call.op == "ballot":
            votes = self.array("votes", "uint64", -(-self.count // CPU_WAVE))
            cell = (B.floordiv(self.linear, CPU_WAVE),)
            bit = B.left_shift(B.const(1, "uint64"), B.cast("uint64", B.floormod(self.linear, CPU_WAVE)))
            flush()
            out.append(self.each(S.BufferStore(votes, B.const(0, "uint64"), cell)))
            vote = S.BufferStore(votes, B.bitwise_or(E.BufferLoad(votes, cell), bit), cell)
            group.append(Item(S.IfThenElse(call.args[0], vote, None, x.loc)))
            flush()
            return Item(x.stmt, x.var, E.BufferLoad(votes, cell), x.loc)
        raise LoweringError(
            f"{call.op} is an operation of a GPU's wavefront, and this runs on a CPU",
            where=x.loc,
            locate=False,
            hint='build for a GPU: target="rocm -mcpu=gfx942" or "cuda"; the software GPU runs it without one',
        )

    def source(self, call: E.Call) -> E.Expr:
        """The thread whose value a shuffle gives; one that is not there stands for the thread itself."""
        n, width = B.cast("int32", call.args[1]), const_int(call.args[2]) or CPU_WAVE
        within = B.floormod(self.linear, width)
        first = B.sub(self.linear, within)
        match call.op:
            case "shuffle_idx":
                lane = B.bitwise_and(n, width - 1)
            case "shuffle_up":
                lane = B.sub(within, n)
            case "shuffle_down":
                lane = B.add(within, n)
            case _:
                lane = B.bitwise_xor(within, n)
        there = B.all_of(
            B.compare("ge", lane, 0), B.compare("lt", lane, width), B.compare("lt", B.add(first, lane), self.count)
        )
        return B.select(there, B.add(first, lane), self.linear)


_MOVES = ("shuffle_idx", "shuffle_up", "shuffle_down", "shuffle_xor")


def _check_scalar(index: E.Expr, b: Buffer) -> None:
    if "x" in index.dtype:
        raise LoweringError(
            f"{b.name} is read or written as vectors, and lives over a barrier: a CPU cannot run that as loops",
            where=b.loc,
            hint="take its elements one by one",
            locate=False,
        )
