"""Turn `AllReduce` into lane shuffles within a wavefront and shared memory across wavefronts.

In: flat kernels with AllReduce statements (a tuple of values, any combiner, any subset of the threadIdx axes). Out: none
left; every thread of a group ends with the result. Threads are numbered x + X*(y + Y*z), as the hardware packs them into
wavefronts. A group is the threads that differ in the reduced axes only:

- groups of 2**k threads within a wavefront, consecutive or 2**j apart: a butterfly of `shuffle_xor`, no shared memory;
- groups of whole wavefronts: a butterfly in each, one value a wavefront through shared memory, a second butterfly over
  those;
- groups of 2**k threads 2**j apart over several wavefronts: a butterfly over those in each, their values through shared memory, where
  each thread takes up all of its group's, one after another;
- all others: each thread's value to shared memory, a tree there, a barrier a level.

Threads where the predicate is false bring the combiner's identity.
"""

from __future__ import annotations

from ...errors import LoweringError
from ...target import Target
from .. import build as B
from .. import expr as E
from .. import stmt as S
from ..buffer import Buffer
from ..dtype import dtype_info
from ..func import Func
from ..visit import free_vars, holds, map_stmts, substitute
from .insert_barriers import barrier
from .rewrite_util import THREAD_TAGS, const_int, is_launch_loop, launch_nest, sunk


def lower_allreduce(func: Func, target: Target) -> Func:
    """No AllReduce left; see the module."""

    def host(s: S.Stmt) -> S.Stmt:
        if is_launch_loop(s):
            return _kernel(s, target)
        if isinstance(s, S.AllReduce):
            return _single(s)
        return map_stmts(s, host)

    return func.with_body(host(func.body))


def _kernel(root: S.Stmt, target: Target) -> S.Stmt:
    nest, body = launch_nest(root)
    lowerer = _Lowerer({f.thread: f for f in nest}, target)
    new = lowerer.stmt(body, 0)
    if new is body:
        return root
    for buffer in reversed(lowerer.allocs):
        new = S.Alloc(buffer, new)
    for f in reversed(nest):
        new = f.with_body(new)
    return new


def _single(s: S.AllReduce) -> S.Stmt:
    """A reduction over one thread: its own value."""
    values = _masked(s)
    temps = [E.Var(f"own_{k}", v.dtype) for k, v in enumerate(values)]
    out = S.seq(*[S.BufferStore(d, t, (E.IntImm(0),), None, s.loc) for d, t in zip(s.dests, temps)])
    for t, v in reversed(list(zip(temps, values))):
        out = S.LetStmt(t, v, out)
    return out


def _masked(s: S.AllReduce) -> list[E.Expr]:
    if isinstance(s.predicate, E.IntImm) and s.predicate.value:
        return list(s.values)
    return [B.if_then_else(s.predicate, v, i) for v, i in zip(s.values, s.combiner.identity)]


class _Lowerer:
    def __init__(self, loops: dict[str, S.For], target: Target):
        self.loops = loops
        self.target = target
        self.allocs: list[Buffer] = []
        self.extent = {t: (const_int(loops[t].extent) or 0) if t in loops else 1 for t in THREAD_TAGS}

    def stmt(self, s: S.Stmt, depth: int) -> S.Stmt:
        """`depth`: how many loops are around, inside of the kernel."""
        if isinstance(s, S.AllReduce):
            return self.reduce(s, depth)
        if isinstance(s, S.IfThenElse) and self.is_divergent(s.cond) and holds(s, S.AllReduce):
            moved = sunk(s)
            if moved is not None:
                return self.stmt(moved, depth)
            raise LoweringError(
                "a reduction across threads stands under a condition that differs between threads",
                hint="reduce outside of the condition, with the identity for threads where it is false",
            )
        inner = depth + 1 if isinstance(s, (S.For, S.While)) else depth
        return map_stmts(s, lambda x: self.stmt(x, inner))

    def is_divergent(self, cond: E.Expr) -> bool:

        mine = {id(f.var) for t, f in self.loops.items() if t in THREAD_TAGS}
        return any(id(v) in mine for v in free_vars(cond))

    def reduce(self, s: S.AllReduce, depth: int) -> S.Stmt:
        """A reduction over threads, by the way that fits how many there are."""
        own = {id(f.var): t for t, f in self.loops.items()}
        tags: list[str] = []
        for v in s.threads:
            tag = own.get(id(v))
            if tag not in THREAD_TAGS:
                raise LoweringError(
                    f"a reduction across threads runs over {tag or v.name}",
                    where=s.loc,
                    hint="only axes bound to threadIdx.x, .y or .z can be reduced in one kernel; reduce over blocks in a second stage (rfactor)",
                    locate=False,
                )
            if self.extent[tag] > 1:
                tags.append(tag)
        size = 1
        for t in set(tags):
            size *= self.extent[t]
        if size <= 1:
            return _single(s)
        lane, stride = self.lane_index(tags)
        wave = self.target.wavefront_size
        power = size & (size - 1) == 0
        if not stride or not all(_shuffles(v.dtype) for v in s.values):
            return self.tree(s, lane, size, depth)
        if power and stride & (stride - 1) == 0 and stride * size <= wave:
            return self.butterfly_only(s, lane, size, stride)
        if stride == 1 and size % wave == 0:
            return self.two_levels(s, lane, size, wave, depth)
        if power and 1 < stride < wave and wave % stride == 0:
            return self.apart(s, lane, size, stride, depth)
        return self.tree(s, lane, size, depth)

    def lane_index(self, tags: list[str]) -> tuple[E.Expr, int]:
        """A thread's number within its group; and how far a group's threads are from each other in the packing, all as far; 0 where they are not."""
        lane: E.Expr = E.IntImm(0)
        step, before, apart = 1, 1, 0
        for t in THREAD_TAGS:
            if self.extent[t] == 1:
                continue
            if t not in tags:
                before *= self.extent[t]
                continue
            lane = B.add(lane, B.mul(self.loops[t].var, step))
            if step == 1:
                apart = before
            elif before != apart:  # other threads lie between two of the reduced axes
                apart = -1
            step *= self.extent[t]
        return lane, max(0, apart)

    def group_index(self, tags: set[str]) -> tuple[E.Expr, int]:
        """The number of a thread's group, and how many groups the work-group has."""
        group: E.Expr = E.IntImm(0)
        count = 1
        for t in THREAD_TAGS:
            if t not in tags and self.extent[t] > 1:
                group = B.add(group, B.mul(self.loops[t].var, count))
                count *= self.extent[t]
        return group, count

    # ---- the three ways

    def butterfly(
        self, s: S.AllReduce, temps: list[E.Var], width: int, lane: E.Expr, apart: int = 1
    ) -> tuple[list[tuple[E.Var, E.Expr]], list[E.Var]]:
        """Lets that combine `temps` over groups of `width` lanes (`lane` numbers them), `apart` from each other, and the variables with the results."""
        lets: list[tuple[E.Var, E.Expr]] = []
        delta = 1
        while delta < width:  # upward, so that what is combined is always a run of neighbours: ties go to the first
            other = [E.Var(f"{t.name}_o", t.dtype) for t in temps]
            for o, t in zip(other, temps):
                lets.append((o, E.Call("shuffle_xor", (t, E.IntImm(delta * apart), E.IntImm(width * apart)), t.dtype)))
            left, right = temps, other
            if len(temps) > 1:
                # A tuple combiner (argmax) may prefer its left side: both lanes of a pair take the lower lane's there.
                upper = E.Var("upper", "bool")
                lets.append((upper, B.compare("ne", B.bitwise_and(lane, delta), 0)))
                left = [E.Var(f"{t.name}_l", t.dtype) for t in temps]
                right = [E.Var(f"{t.name}_r", t.dtype) for t in temps]
                lets.extend((v, E.Select(upper, o, t)) for v, o, t in zip(left, other, temps))
                lets.extend((v, E.Select(upper, t, o)) for v, o, t in zip(right, other, temps))
            joined = self.combine(s, left, right)
            new = [E.Var(t.name, t.dtype) for t in temps]
            lets.extend(zip(new, joined))
            temps = new
            delta *= 2
        return lets, temps

    def combine(self, s: S.AllReduce, left: list[E.Var], right: list[E.Var]) -> list[E.Expr]:
        values: dict[E.Var, E.Expr] = {**dict(zip(s.combiner.lhs, left)), **dict(zip(s.combiner.rhs, right))}
        return [substitute(r, values) for r in s.combiner.result]

    def start(self, s: S.AllReduce) -> tuple[list[tuple[E.Var, E.Expr]], list[E.Var]]:
        values = _masked(s)
        temps = [E.Var(f"red_{k}", v.dtype) for k, v in enumerate(values)]
        return list(zip(temps, values)), temps

    def butterfly_only(self, s: S.AllReduce, lane: E.Expr, size: int, apart: int) -> S.Stmt:
        lets, temps = self.start(s)
        more, temps = self.butterfly(s, temps, size, lane, apart)
        return _lets(lets + more, self.results(s, temps))

    def results(self, s: S.AllReduce, temps: list[E.Var]) -> S.Stmt:
        return S.seq(*[S.BufferStore(d, t, (E.IntImm(0),), None, s.loc) for d, t in zip(s.dests, temps)])

    def staging(self, s: S.AllReduce, elements: int) -> list[Buffer]:
        out = []
        for v in s.values:
            b = Buffer(f"red_buf{len(self.allocs)}", v.dtype, (E.IntImm(elements),), scope="shared")
            self.allocs.append(b)
            out.append(b)
        return out

    def two_levels(self, s: S.AllReduce, lane: E.Expr, size: int, wave: int, depth: int) -> S.Stmt:
        """Within wavefronts by exchange of registers, then over their results in shared memory."""
        waves = size // wave
        tags = {t for t in THREAD_TAGS if any(self.loops[t].var is v for v in s.threads if t in self.loops)}
        group, groups = self.group_index(tags)
        lets, temps = self.start(s)
        more, temps = self.butterfly(s, temps, wave, lane)
        lets += more
        if waves == 1:
            return _lets(lets, self.results(s, temps))
        buffers = self.staging(s, groups * waves)
        slot = B.add(B.mul(group, waves), B.floordiv(lane, wave))
        store = S.seq(*[S.BufferStore(b, t, (slot,)) for b, t in zip(buffers, temps)])
        first = S.IfThenElse(B.compare("eq", B.floormod(lane, wave), 0), store)
        width = 1
        while width < waves:
            width *= 2
        loads: list[tuple[E.Var, E.Expr]] = []
        partial: list[E.Var] = []
        pick = B.floormod(lane, width)
        for b, t, identity in zip(buffers, temps, s.combiner.identity):
            var = E.Var(t.name, t.dtype)
            load: E.Expr = E.BufferLoad(b, (B.add(B.mul(group, waves), pick),))
            if width != waves:
                load = B.if_then_else(B.compare("lt", pick, waves), load, identity)
            loads.append((var, load))
            partial.append(var)
        second, done = self.butterfly(s, partial, width, pick)
        after = _lets(loads + second, self.results(s, done))
        # In a loop the slots are written again: not before every thread has read them.
        before = barrier() if depth else None
        return _lets(lets, S.seq(before, first, barrier(), after))

    def apart(self, s: S.AllReduce, lane: E.Expr, size: int, stride: int, depth: int) -> S.Stmt:
        """Threads `stride` apart: of `own` in each wavefront one value, all of which every thread of the group takes up."""
        own = self.target.wavefront_size // stride
        waves = size // own
        tags = {t for t in THREAD_TAGS if any(self.loops[t].var is v for v in s.threads if t in self.loops)}
        group, groups = self.group_index(tags)
        lets, temps = self.start(s)
        more, temps = self.butterfly(s, temps, own, lane, stride)
        buffers = self.staging(s, groups * waves)
        # Neighbours of a wavefront have neighbouring slots, so that their banks differ.
        slot = B.add(group, B.mul(B.floordiv(lane, own), groups))
        store = S.seq(*[S.BufferStore(b, t, (slot,)) for b, t in zip(buffers, temps)])
        first = S.IfThenElse(B.compare("eq", B.floormod(lane, own), 0), store)
        loads: list[tuple[E.Var, E.Expr]] = []
        parts: list[list[E.Var]] = []
        for w in range(waves):
            parts.append([E.Var(f"{t.name}_{w}", t.dtype) for t in temps])
            at = (B.add(group, w * groups),)
            loads.extend((v, E.BufferLoad(b, at)) for v, b in zip(parts[-1], buffers))
        while len(parts) > 1:  # in pairs of neighbours: ties go to the first
            left, right = parts[0::2], parts[1::2]
            parts = [[E.Var(v.name, v.dtype) for v in p] for p in left]
            for made, x, y in zip(parts, left, right):
                loads.extend(zip(made, self.combine(s, x, y)))
        before = barrier() if depth else None
        return _lets(lets + more, S.seq(before, first, barrier(), _lets(loads, self.results(s, parts[0]))))

    def tree(self, s: S.AllReduce, lane: E.Expr, size: int, depth: int) -> S.Stmt:
        """By a tree in shared memory, with a barrier a step."""
        tags = {t for t in THREAD_TAGS if any(self.loops[t].var is v for v in s.threads if t in self.loops)}
        group, groups = self.group_index(tags)
        buffers = self.staging(s, groups * size)
        base = B.mul(group, size)
        lets, temps = self.start(s)
        own = B.add(base, lane)
        out: list[S.Stmt | None] = [barrier() if depth else None]
        out.append(_lets(lets, S.seq(*[S.BufferStore(b, t, (own,)) for b, t in zip(buffers, temps)])))
        out.append(barrier())
        steps = [1 << k for k in range((size - 1).bit_length())]
        ordered = len(buffers) > 1  # a tuple combiner may prefer its left side: neighbours first
        for step in steps if ordered else reversed(steps):
            left = [E.Var(f"left_{k}", b.dtype) for k, b in enumerate(buffers)]
            right = [E.Var(f"right_{k}", b.dtype) for k, b in enumerate(buffers)]
            joined = self.combine(s, left, right)
            fresh = [E.Var(f"sum_{k}", b.dtype) for k, b in enumerate(buffers)]
            reads = [(v, E.BufferLoad(b, (own,))) for v, b in zip(left, buffers)]
            reads += [(v, E.BufferLoad(b, (B.add(own, step),))) for v, b in zip(right, buffers)]
            store = S.seq(*[S.BufferStore(b, v, (own,)) for b, v in zip(buffers, fresh)])
            work = _lets([*reads, *zip(fresh, joined)], store)
            if ordered:
                first = B.compare("eq", B.floormod(lane, 2 * step), 0)
                cond = B.logical_and(first, B.compare("lt", B.add(lane, step), size))
            else:
                cond = B.compare("lt", lane, min(step, size - step))
            out += [S.IfThenElse(cond, work), barrier()]
        final = [E.BufferLoad(b, (base,)) for b in buffers]
        out.append(S.seq(*[S.BufferStore(d, v, (E.IntImm(0),), None, s.loc) for d, v in zip(s.dests, final)]))
        return S.seq(*out)


def _shuffles(dtype: str) -> bool:
    info = dtype_info(dtype)
    return info.lanes == 1 and info.kind != "handle"


def _lets(lets: list[tuple[E.Var, E.Expr]], body: S.Stmt) -> S.Stmt:
    for var, value in reversed(lets):
        body = S.LetStmt(var, value, body)
    return body
