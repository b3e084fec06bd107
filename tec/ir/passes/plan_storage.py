"""Let storage of disjoint lifetimes share, and move allocations out of loops.

In: flat buffers. Out: within a region (a kernel, the body of a parallel loop, the rest of the function) each shared or
global allocation whose size does not change inside the region stands at the region's top, and buffers of one scope and
type whose uses do not overlap are one buffer. Contents never survive their Alloc, so meaning does not change; where
threads share memory, insert_barriers (which runs later) orders the uses.

Lifetimes: statements are numbered in order; a buffer lives from its first use to its last, stretched over every loop that
lies between its allocation and a use. In a kernel two buffers used in one loop only share when shared memory would not
suffice otherwise: sharing them costs a barrier in each iteration. Where it still does not, buffers of different types share: each is a view of some of one
buffer's bytes, by its data pointer. Where threads meet only at barriers that stand in the kernel already (kernels that a user wrote, programs over tiles),
buffers share if one that all threads come to lies between their uses: the rings of two loops in a row.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...records import dataclass
from ...target import Target
from .. import build as B
from .. import expr as E
from .. import stmt as S
from ..buffer import Buffer
from ..dtype import dtype_info
from ..effects import is_call
from ..func import Func
from ..shared_layout import PIECE_BYTES
from ..visit import LEAVES, any_expr, free_vars, map_expr, map_stmt, map_stmts, visit, visit_children
from .rewrite_util import const_int, is_launch_loop, reshaped, same_expr

_SMALL_BYTES = 4096  # of an array on a CPU's stack, which costs nothing where it stands


def plan_storage(func: Func, target: Target) -> Func:
    """The function with its storage planned; see the module."""
    shares = not func.attrs.get("simt")  # barriers come later
    return func.with_body(_region(func.body, target, False, shares))


@dataclass(slots=True)
class _Life:
    """A buffer that may move to the region's top: its uses, and the loops between its Alloc and them."""

    alloc: S.Alloc
    depth: int  # loops of the region around the Alloc
    first: int = 1 << 60
    last: int = -1
    outer_loop: int | None = None  # the outermost loop of the region around the Alloc


class _Scan:
    """Numbers the statements of a region and notes the uses of what may move."""

    def __init__(self, bound: set[int], target: Target, in_kernel: bool):
        self.bound, self.target, self.in_kernel = bound, target, in_kernel
        self.lives: dict[int, _Life] = {}
        self.position = 0
        self.loops: list[int] = []  # positions of the loops around
        self.ends: dict[int, int] = {}
        self.reach: dict[int, list[int]] = {}  # buffer -> loops between its Alloc and its uses
        self.parallel = 0  # parallel loops around: what they allocate is each iteration's own
        self.branches = 0  # conditions around
        self.meetings: list[int] = []  # positions of barriers that all threads of the kernel come to

    def use(self, b: Buffer) -> None:
        life = self.lives.get(id(b))
        if life is not None:
            life.first = min(life.first, self.position)
            life.last = max(life.last, self.position)
            between = self.loops[life.depth :]
            if between:
                self.reach.setdefault(id(b), []).append(between[0])

    def expr(self, e: E.Expr) -> E.Expr:
        if self.lives and type(e) not in LEAVES:  # nothing is used before it is there
            any_expr(e, self._look)
        return e

    def _look(self, e: E.Expr) -> bool:
        if type(e) is E.BufferLoad:
            self.use(e.buffer)
        return False

    def stmt(self, s: S.Stmt) -> S.Stmt:
        self.position += 1
        if isinstance(s, S.Alloc):
            if not self.parallel and _movable(s, self.bound, self.target, self.in_kernel):
                outer = self.loops[0] if self.loops else None
                self.lives[id(s.buffer)] = _Life(s, len(self.loops), outer_loop=outer)
            self.stmt(s.body)
        elif isinstance(s, (S.For, S.While)):
            self._loop(s)
        elif isinstance(s, S.IfThenElse):
            self.branches += 1
            visit_children(s, self)
            self.branches -= 1
        else:
            if _is_meeting(s) and not self.loops and not self.branches:
                self.meetings.append(self.position)
            if isinstance(s, S.BufferStore):
                self.use(s.buffer)
            elif isinstance(s, S.AllReduce):
                for d in s.dests:
                    self.use(d)
            visit_children(s, self)
        return s

    def _loop(self, s: S.For | S.While) -> None:
        at = self.position
        if isinstance(s, S.For):
            self.expr(s.min)
            self.expr(s.extent)
        self.loops.append(at)
        parallel = isinstance(s, S.For) and s.kind == S.ForKind.PARALLEL
        self.parallel += parallel
        if isinstance(s, S.While):
            self.expr(s.cond)
        self.stmt(s.body)
        self.loops.pop()
        self.parallel -= parallel
        self.position += 1
        self.ends[at] = self.position


def _is_meeting(s: S.Stmt) -> bool:
    """A barrier of the whole work-group, not of a wave or of some of its warps."""
    if not isinstance(s, S.Evaluate) or not is_call(s, "barrier"):
        return False
    attrs = s.value.attrs or {}  # type: ignore[attr-defined]
    return attrs.get("scope") in ("shared", "global") and "threads" not in attrs


def _region(body: S.Stmt, target: Target, in_kernel: bool, shares: bool) -> S.Stmt:
    """Plan one region; regions inside of it come first."""

    def inner(s: S.Stmt) -> S.Stmt:
        if is_launch_loop(s) and not in_kernel:
            nest: list[S.For] = []
            x = s
            while is_launch_loop(x):
                assert isinstance(x, S.For)
                nest.append(x)
                x = x.body
            out = _region(x, target, True, shares)
            for f in reversed(nest):
                out = f.with_body(out)
            return out
        if isinstance(s, S.For) and s.kind == S.ForKind.PARALLEL:
            inside = _region(s.body, target, in_kernel, shares)
            return s.with_body(inside)
        return map_stmts(s, inner)

    body = inner(body)
    scan = _Scan(_bound_inside(body), target, in_kernel)
    scan.stmt(body)
    if not scan.lives:
        return body
    for key, life in scan.lives.items():
        for loop in scan.reach.get(key, ()):
            life.first = min(life.first, loop)
            life.last = max(life.last, scan.ends[loop])
    used = [life for life in scan.lives.values() if life.last >= 0]
    total = sum(_bytes(x.alloc.buffer) or 0 for x in used)
    crowded = in_kernel and total > target.lds_bytes
    if shares:
        swap = _share(used, not in_kernel or crowded)
    else:
        swap = _share(used, True, scan.meetings) if in_kernel else {}
    moved: dict[int, Buffer] = {id(x.alloc.buffer): swap.get(id(x.alloc.buffer), x.alloc.buffer) for x in used}
    homes = list({id(b): b for b in moved.values()}.values())
    places: dict[int, int] = {}
    if in_kernel and shares and sum(_bytes(b) or 0 for b in homes) > target.lds_bytes:
        homes, moved, places = _by_bytes(used, moved)
        if sum(_bytes(b) or 0 for b in homes) > target.lds_bytes:
            # What became one buffer must lie in one place: two tiles and, after them, the sums that lie over both are not two buffers.
            homes, moved, places = _by_bytes(used, {id(x.alloc.buffer): x.alloc.buffer for x in used})
    body = _without_allocs(body, set(scan.lives), moved, places)
    for b in reversed(homes):
        body = S.Alloc(b, body)
    return body


def _bound_inside(body: S.Stmt) -> set[int]:
    bound: set[int] = set()

    def on_stmt(s: S.Stmt) -> None:
        if isinstance(s, (S.For, S.LetStmt)):
            bound.add(id(s.var))

    visit(body, None, on_stmt)
    return bound


def _bytes(b: Buffer) -> int | None:
    n = const_int(b.shape[0]) if len(b.shape) == 1 else None
    info = dtype_info(b.dtype)
    return None if n is None else n * info.bytes * info.lanes


def _movable(s: S.Alloc, bound: set[int], target: Target, in_kernel: bool) -> bool:
    b = s.buffer
    if len(b.shape) != 1 or s.notes != S.NO_NOTES or any(id(v) in bound for v in free_vars(b.shape[0])):
        return False
    if in_kernel:
        return b.scope == "shared"
    if b.scope != "global":
        return False
    size = _bytes(b)
    return target.is_gpu or size is None or size > _SMALL_BYTES


def _share(lives: list[_Life], freely: bool, meetings: Sequence[int] | None = None) -> dict[int, Buffer]:
    """Old buffer -> the buffer that it becomes; greedy over lifetimes by their start. meetings: barriers, one of which must lie between lifetimes."""
    groups: list[list[_Life]] = []
    for life in sorted(lives, key=lambda x: x.first):
        home = None
        for g in groups:
            if _fits(g, life) and all(_apart(o, life, freely) and _meets(o, life, meetings) for o in g):
                home = g
                break
        if home is None:
            groups.append([life])
        else:
            home.append(life)
    swap: dict[int, Buffer] = {}
    for g in groups:
        if len(g) == 1:
            continue
        first = g[0].alloc.buffer
        size = max((x.alloc.buffer.shape[0] for x in g), key=lambda e: const_int(e) or 0)
        align = max(x.alloc.buffer.align_bytes for x in g)
        merged = reshaped(first, (size,))
        merged.align_bytes = align
        for x in g:
            swap[id(x.alloc.buffer)] = merged
    return swap


def _by_bytes(used: list[_Life], moved: dict[int, Buffer]) -> tuple[list[Buffer], dict[int, Buffer], dict[int, int]]:
    """Shared memory of a kernel where buffers whose lives are apart lie over each other, whatever their types: the one that has storage, what becomes of
    each, and at which of its elements that begins, by its id."""
    lives: dict[int, list[_Life]] = {}
    for life in used:
        lives.setdefault(id(moved[id(life.alloc.buffer)]), []).append(life)
    own = sorted({id(b): b for b in moved.values()}.values(), key=lambda b: -(_bytes(b) or 0))
    sizes = {id(b): -(-(_bytes(b) or 0) // PIECE_BYTES) * PIECE_BYTES for b in own}
    starts: dict[int, int] = {}
    for b in own:
        beside = [o for o in starts if not all(_apart(x, y, True) for x in lives[o] for y in lives[id(b)])]
        taken = sorted((starts[o], starts[o] + sizes[o]) for o in beside)
        at = 0
        for first, end in taken:
            if at + sizes[id(b)] <= first:
                break
            at = max(at, end)
        starts[id(b)] = at
    home = own[0]
    count = max(starts[k] + n for k, n in sizes.items()) // dtype_info(home.dtype).bytes
    whole = reshaped(home, (E.IntImm(count),))
    new = {id(b): _view(b, starts[id(b)] // dtype_info(b.dtype).bytes, whole) for b in own}
    new[id(home)] = whole
    places = {id(new[id(b)]): starts[id(b)] // dtype_info(b.dtype).bytes for b in own}
    return [whole], {k: new[id(b)] for k, b in moved.items()}, places


def _view(b: Buffer, first: int, whole: Buffer) -> Buffer:
    """`b` over the storage of `whole`, whose elements (of b's type) from `first` on are its own."""
    shape = (B.add(b.shape[0], first),)
    return Buffer(b.name, b.dtype, shape, (), 0, b.scope, b.align_bytes, whole.data, b.loc)


def _fits(group: list[_Life], life: _Life) -> bool:
    a, b = group[0].alloc.buffer, life.alloc.buffer
    if a.dtype != b.dtype or a.scope != b.scope:
        return False
    known = const_int(a.shape[0]) is not None and const_int(b.shape[0]) is not None
    return known or same_expr(a.shape[0], b.shape[0])


def _apart(a: _Life, b: _Life, freely: bool) -> bool:
    if a.first <= b.last and b.first <= a.last:
        return False
    twins = a.alloc.buffer.name == b.alloc.buffer.name  # of one loop that was split in parts
    return freely or twins or a.outer_loop is None or a.outer_loop != b.outer_loop


def _meets(a: _Life, b: _Life, meetings: Sequence[int] | None) -> bool:
    """Whether all threads have met between the use of one and of the other, which are apart."""
    if meetings is None:
        return True
    end, begin = (a.last, b.first) if a.last < b.first else (b.last, a.first)
    return any(end < m < begin for m in meetings)


def _without_allocs(s: S.Stmt, gone: set[int], moved: dict[int, Buffer], places: dict[int, int]) -> S.Stmt:
    """`places`: elements of a new buffer's storage before its first one."""

    def at(b: Buffer, indices: tuple[E.Expr, ...]) -> tuple[E.Expr, ...]:
        first = places.get(id(b), 0)
        return tuple([_moved(i, first) for i in indices]) if first else indices

    memo: dict[int, tuple[E.Expr, E.Expr]] = {}

    def fe(e: E.Expr) -> E.Expr:
        hit = memo.get(id(e))
        if hit is not None:
            return hit[1]
        out = map_expr(e, fe)
        if type(out) is E.BufferLoad and id(out.buffer) in moved:
            new = moved[id(out.buffer)]
            out = E.BufferLoad(new, at(new, out.indices), out.predicate)
        memo[id(e)] = (e, out)
        return out

    def fs(x: S.Stmt) -> S.Stmt:
        if isinstance(x, S.Alloc) and id(x.buffer) in gone:
            return fs(x.body)
        out = map_stmt(x, fs, fe)
        if isinstance(out, S.BufferStore) and id(out.buffer) in moved:
            new = moved[id(out.buffer)]
            return S.BufferStore(new, out.value, at(new, out.indices), out.predicate, out.loc)
        if isinstance(out, S.AllReduce):
            dests = tuple([moved.get(id(d), d) for d in out.dests])
            return S.AllReduce(out.combiner, out.values, out.predicate, dests, out.threads, out.loc)
        return out

    return fs(s)


def _moved(index: E.Expr, by: int) -> E.Expr:
    if isinstance(index, E.Ramp):
        return E.Ramp(_moved(index.base, by), index.stride, index.lanes)
    return (
        B.add(index, B.const(by, index.dtype))
        if not isinstance(index, E.Broadcast)
        else E.Broadcast(_moved(index.value, by), index.lanes)
    )
