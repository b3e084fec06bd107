"""What a choice asks of a machine, read from what it lowered to: the flat loops, of which code is made.

    Made -> read(made) -> Footprint (`cost`)

The count is of what stands in the loops. An address is evaluated for the lanes of the first wavefront, at the first trip of each loop: that says which lines it touches.
What a compiler makes of it (registers that are shared, loads that are moved) is not known here.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import field, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

from ..driver import Lowered
from ..ir import Buffer, Func
from ..ir import expr as E
from ..ir import stmt as S
from ..ir.dtype import dtype_info, with_lanes
from ..ir.index_values import evaluated
from ..ir.intrin import INTRINS
from ..ir.matrix import WARPGROUP
from ..ir.passes.rewrite_util import const_int
from ..ir.visit import any_stmt, children, deep_recursion, free_vars, visit, walk_exprs
from ..ir.work import UNKNOWN_TRIPS, Fold, clocks, operands
from ..ops.typical import typical_of
from ..records import dataclass
from ..target import Target
from .cost import Footprint, Kernel
from .counts import Counts
from .launched import OPEN_GROUPS, Launch, launches

if TYPE_CHECKING:
    from .proof import Made

SEGMENT_BYTES = 32  # that an L1 is asked for at least: a sector of NVIDIA's lines, half of a 64-byte line of AMD's
_CALL = 4  # operations of a call
_DIVISION = 4  # of a quotient or a rest by a constant
_WAITS = ("async_wait", "mbarrier_wait")
_NO_VALUES: Mapping[E.Var, Any] = MappingProxyType({})


def read(made: Made) -> Footprint:
    """The footprint of a choice that lowers."""
    return of_lowered(made.lowered, made.space.target)


@deep_recursion()
def of_lowered(low: Lowered, target: Target, launched: float | None = None) -> Footprint:
    """The footprint of a function after all passes, of GPU kernels with the launches that its host's side makes. launched: work-groups of a launch, where
    the host's side takes their number as an argument."""
    if not target.is_gpu:
        return _on_cores(low.func, target)
    of_kernels = launches(low.host.body, _sizes(low.host)) if low.host is not None else {}
    kernels = []
    for part in low.parts:
        found = of_kernels.get(part.name, Launch(1.0, 1.0, {}))
        made = _kernel(part, target, found.groups if launched is None else launched, found.mapped)
        kernels.append(replace(made, launches=found.times))
    return Footprint(tuple(kernels), is_read=True)


# ---- kernels of a GPU


def _kernel(func: Func, target: Target, groups: float, mapped: Mapping[int, tuple[float, ...]]) -> Kernel:
    """The footprint of one kernel. mapped: extents of the tensors that bulk copies name, by the number of the parameter."""
    sizes = _sizes(func)
    count = _Threads(_thread_ids(func.attrs["threads"]) | sizes, target)
    count.writes = tuple(func.attrs.get("writes", ()))
    count.takes_turns = any_stmt(func.body, _is_turn)
    count.named = {id(func.params[k]): extents for k, extents in mapped.items()}
    total = count.stmt(func.body)
    threads = int(func.attrs["max_threads"])
    everywhere = groups * threads
    touched = held = 0.0
    for b, asked in count.touched.values():
        size = _size(b, sizes) if b.scope != "param" else _tensor_bytes(count, b)
        once = min(size, asked * everywhere) if size is not None else 0.0
        touched += once
        held += once if id(b) in count.brought else 0.0
    return Kernel(
        groups, threads, int(func.attrs["lds_bytes"]), _registers(func.body), touched, total.asked * everywhere, total.scratch * everywhere,
        total.issued, total.matrix * everywhere, total.waits, total.barriers, 1, count.dtype, count.guessed,
        sum(s.unused for s in count.scattered.values()) * groups, total.copied * everywhere, held, total.narrow * everywhere,
    )  # fmt: skip


def _tensor_bytes(count: _Threads, b: Buffer) -> float | None:
    """Of a tensor that bulk copies name."""
    return math.prod(count.named[id(b)]) * count.sizes_of[id(b)] if id(b) in count.named else None


def _thread_ids(threads: dict[str, tuple[E.Var, E.Expr]]) -> dict[E.Var, np.ndarray[Any, Any]]:
    """Each launch index of the lanes of a work-group; work-groups' own are 0."""
    extents = {tag: const_int(n) or 1 for tag, (_, n) in threads.items() if tag.startswith("threadIdx")}
    lanes = np.arange(math.prod(extents.values()))
    found: dict[E.Var, np.ndarray[Any, Any]] = {}
    for tag in ("threadIdx.x", "threadIdx.y", "threadIdx.z"):
        if tag in extents:
            found[threads[tag][0]] = lanes % extents[tag]
            lanes = lanes // extents[tag]
    for tag, (v, _) in threads.items():
        if tag not in extents:
            found[v] = np.zeros(1, "i8")
    return found


@dataclass(slots=True)
class _Scattered:
    """Accesses of a work-group that use parts of segments. places: elements, of one trip, by what tells equal ones apart; segments, elements: how many times as many all trips
    reach, as of the last access."""

    size: int
    places: dict[bytes, np.ndarray[Any, Any]] = field(default_factory=dict)
    segments: float = 1.0
    elements: float = 1.0

    @property
    def unused(self) -> float:
        """Bytes of the segments that nobody in the work-group wants."""
        places = np.unique(np.concatenate([p.ravel() for p in self.places.values()]))
        whole = len(np.unique(places * self.size // SEGMENT_BYTES)) * SEGMENT_BYTES * self.segments
        return max(0.0, whole - len(places) * self.size * self.elements)


class _Threads(Fold[Counts]):
    """Counts of the mean thread of a work-group."""

    zero = Counts()

    def __init__(self, ids: dict[E.Var, np.ndarray[Any, Any]], target: Target):
        super().__init__()
        self.env, self.target = dict(ids), target
        self.touched: dict[int, tuple[Buffer, float]] = {}  # bytes that the mean thread touches of a buffer in memory
        self.dtype = "float32"
        self.guessed = False  # whether a number of trips is not known
        self.weight = 1.0  # trips of the loops around
        self.loops: list[tuple[E.Var, float]] = []  # they, the outermost first, and their trips
        self.scattered: dict[tuple[int, tuple[int, ...]], _Scattered] = {}  # by buffer and the loops around
        # Elements that the lanes have, by buffer and the loops around.
        self.loaded: set[tuple[int, tuple[int, ...], bytes]] = set()
        self.passes = target.kind == "cuda"  # whether copies in the background pass the first cache
        self.writes: tuple[str, ...] = ()  # buffers that the kernel writes
        self.takes_turns = False  # whether warpgroups do in the kernel
        self.named: dict[int, tuple[float, ...]] = {}  # extents of tensors that bulk copies name, the fastest first
        self.sizes_of: dict[int, int] = {}  # bytes of their elements
        self.brought: set[int] = set()  # buffers of which copies in the background bring tiles

    def stmt(self, s: S.Stmt) -> Counts:
        if isinstance(s, S.Seq):
            total = Counts()
            for x in s.stmts:
                total.add(self.stmt(x))
            return total
        if isinstance(s, S.For):  # what is inside counts so many times in `touched`
            trips = self._trips(s.extent)
            around, self.weight = self.weight, self.weight * trips
            self.env[s.var] = np.zeros(1, "i8") + self._first(s.min)
            self.loops.append((s.var, trips))
            out = super().stmt(s)
            self.loops.pop()
            self.weight = around
            return out
        # Of two warpgroups in turns each has every second tile.
        if self.takes_turns and isinstance(s, S.IfThenElse) and any_stmt(s.then, _is_turn):
            sides = [self.stmt(x).times(0.5, 0.5) for x in (s.then, s.orelse) if x is not None]
            return sides[0] if len(sides) == 1 else sides[0].plus(sides[1])
        if isinstance(s, S.LetStmt):
            value = evaluated(s.value, self.env)
            if value is not None:
                self.env[s.var] = value
        return super().stmt(s)

    def _first(self, e: E.Expr) -> Any:
        value = evaluated(e, self.env)
        return 0 if value is None else value

    def _trips(self, extent: E.Expr) -> float:
        value = evaluated(extent, self.env)
        self.guessed |= value is None
        return UNKNOWN_TRIPS if value is None else max(0.0, float(np.mean(value)))

    def plus(self, a: Counts, b: Counts) -> Counts:
        return a.plus(b)

    def repeated(self, loop: S.For, extent: E.Expr, once: Counts) -> Counts:
        n = self._trips(loop.extent)
        if loop.kind == S.ForKind.UNROLLED:
            return replace(once.times(n, 1), under_way=once.under_way)
        return once.times(n, n)

    def branch(self, cond: E.Expr, then: Counts, orelse: Counts) -> Counts:
        """As many lanes as take each side, where that is known; a load under a condition is waited for there."""
        share = evaluated(cond, self.env)
        of = 1.0 if share is None else float(np.mean(share))
        a, b = (
            then.times(of, min(1.0, math.ceil(of))),
            orelse.times(1 - of if share is not None else 1.0, 1.0 if of < 1 else 0.0),
        )
        return a.plus(b)

    def let(self, s: S.LetStmt) -> Counts:
        return self._value(s.value)

    def leaf(self, s: S.Stmt) -> Counts:
        if isinstance(s, S.BufferStore):
            stored = self._value(s.value)
            stored.add(self._touch(s.buffer, s.indices, s.value.dtype, is_load=False))
            return stored
        if isinstance(s, S.While):
            self.guessed = True
            return self.stmt(s.body).times(UNKNOWN_TRIPS, UNKNOWN_TRIPS)
        if isinstance(s, S.Evaluate):
            is_wait = self.passes and isinstance(s.value, E.Call) and s.value.op in _WAITS
            return self._wait(s.value) if is_wait else self._value(s.value)
        return self.zero

    def _value(self, e: E.Expr) -> Counts:
        """Of a value: its loads are under way together but for those that say where another one reads."""
        out, deep = self._expr(e)
        out.waits, out.under_way = float(deep), deep
        return out

    def _expr(self, e: E.Expr) -> tuple[Counts, int]:
        """The counts of a value, and how many loads of memory wait for each other."""
        out, deep = Counts(), 0
        stack, seen = [e], set()
        while stack:
            x = stack.pop()
            if id(x) in seen:
                continue
            seen.add(id(x))
            if isinstance(x, E.BufferLoad):
                own = self._touch(x.buffer, x.indices, x.dtype, is_load=True)
                below = 0
                for i in filter(_reads, x.indices):
                    inside, d = self._expr(i)
                    below = max(below, d)
                    inside.issued = 0.0
                    own.add(inside)
                deep = max(deep, below + (x.buffer.scope == "global"))
                out.add(own)
                continue
            if isinstance(x, E.Call) and x.op in ("likely", "if_then_else"):
                cond, *sides = x.args
                out.issued += len(sides) // 2 * dtype_info(x.dtype).lanes  # under a predicate
                stack.extend(sides if self._stands(cond) else x.args)
                continue
            if isinstance(x, E.Call):
                out.add(self._call(x))
                stack.extend(a for k, a in enumerate(x.args) if k not in INTRINS[x.op].elements)
                continue
            inner = operands(x)
            stack.extend(inner)
            if inner and not isinstance(x, (E.Broadcast, E.Ramp, E.Shuffle)):
                info = dtype_info(x.dtype)
                # GPUs compute two 16-bit floats at once.
                out.issued += info.lanes / (2 if info.is_float and info.bits == 16 and info.lanes > 1 else 1)
        out.waits, out.under_way = 0.0, 0
        return out, deep

    def _stands(self, cond: E.Expr) -> bool:
        """Whether a condition is the same at all trips of the loops around, and reads nothing: a compiler computes it once, before them."""
        return not _reads(cond) and not self._moves(cond)

    def _moves(self, e: E.Expr) -> bool:
        """Whether a value goes by the trips of a loop around."""
        used = {id(v) for v in free_vars(e)}
        return any(id(v) in used for v, _ in self.loops)

    def _call(self, e: E.Call) -> Counts:
        """Of an intrinsic: matrix products, copies, barriers, or what it reads and writes."""
        known, attrs = INTRINS[e.op], e.attrs or {}
        if e.op in ("mma", "mma_scaled", "wgmma", "wgmma_registers"):
            wave = WARPGROUP if e.op.startswith("wgmma") else self.target.wavefront_size
            self.dtype = str(attrs.get("in_dtype", "float8"))
            macs = attrs["m"] * attrs["n"] * attrs["k"] * attrs.get("blocks", 1)
            return Counts(matrix=macs / wave)
        if e.op in ("bulk_load", "bulk_store"):
            return self._box(e)
        if known.collective == "group":
            return Counts(barriers=1)
        if known.is_kept and not known.writes:  # hints and order
            return Counts()
        if e.op == "async_copy" and self.passes:
            return self._copy(e)
        out = Counts(issued=_CALL * dtype_info(e.dtype).lanes if known.lanes == "map" else 1)
        for k in (*known.reads, *known.writes):
            load = e.args[k]
            if isinstance(load, E.BufferLoad):
                wide = (
                    E.Ramp(load.indices[-1], E.IntImm(1), 16 // dtype_info(load.buffer.dtype).bytes)
                    if known.span == "row"
                    else load.indices[-1]
                )
                out.add(self._touch(load.buffer, (*load.indices[:-1], wide), load.buffer.dtype, k in known.reads))
        return out

    def _wait(self, e: E.Expr) -> Counts:
        """For copies in the background: the part of a trip to memory that is not beside the steps of those under way."""
        assert isinstance(e, E.Call)
        if e.op == "async_wait":
            return Counts(waits=1.0 / (1 + int((e.attrs or {})["n"])))
        # Once around the ring a slot is waited for twice, by who fills it and by who empties it.
        slot = e.args[0]
        return Counts(waits=0.5 / (const_int(slot.buffer.shape[0]) or 1) if isinstance(slot, E.BufferLoad) else 0.0)

    def _copy(self, e: E.Call) -> Counts:
        """A copy in the background past the first cache; lanes whose condition is false bring nothing."""
        source, count = e.args[1], const_int(e.args[2]) or 1
        share = evaluated(e.args[3], self.env) if (e.attrs or {}).get("masked") else None
        assert isinstance(source, E.BufferLoad)
        wide = source.indices if count == 1 else (*source.indices[:-1], E.Ramp(source.indices[-1], E.IntImm(1), count))
        found = self._touch(source.buffer, wide, with_lanes(source.buffer.dtype, count), is_load=True)
        self.brought.add(id(source.buffer))
        return Counts(issued=1.0 + found.issued, copied=found.asked * (1.0 if share is None else float(np.mean(share))))

    def _box(self, e: E.Call) -> Counts:
        """A bulk copy, whose box one lane asks for."""
        shared, far = e.args[:2] if e.op == "bulk_load" else (e.args[1], e.args[0])
        assert isinstance(shared, E.BufferLoad) and isinstance(far, E.BufferLoad)
        b, box = far.buffer, (e.attrs or {})["box"]
        # Of boxes at the end only what lies in the tensor comes.
        filled = math.prod(x / (-(-x // n) * n) for x, n in zip(self.named.get(id(b), ()), box))
        size = float(math.prod(box) * dtype_info(shared.buffer.dtype).bytes) * filled
        self.sizes_of[id(b)] = dtype_info(shared.buffer.dtype).bytes
        _, before = self.touched.get(id(b), (b, 0.0))
        self.touched[id(b)] = b, before + self.weight * size
        if e.op == "bulk_load":
            self.brought.add(id(b))
        return Counts(issued=1.0, copied=size)

    def _touch(self, b: Buffer, indices: tuple[E.Expr, ...], dtype: str, is_load: bool) -> Counts:
        """An access of the mean lane."""
        if b.scope == "local":
            return Counts()
        info = dtype_info(dtype)
        own = info.bytes * info.lanes
        if b.scope in ("shared", "shared.dyn"):
            return Counts(scratch=own)
        if b.scope != "global":
            return Counts()
        at = evaluated(indices[0], self.env) if len(indices) == 1 else None
        if at is not None and is_load and b.name not in self.writes and self._is_loaded(b, at):
            return Counts()
        asked = self._asked(indices[0], at, dtype_info(b.dtype).bytes, own) if len(indices) == 1 else float(own)
        place = self._place(indices[0]) if len(indices) == 1 else 0.0
        _, before = self.touched.get(id(b), (b, 0.0))
        self.touched[id(b)] = b, before + self.weight * own
        is_narrow = asked > 1.5 * own  # a wavefront uses less than two thirds of what it asks for
        if is_narrow and at is not None:  # else it is read from memory
            self._scatter(b, indices[0], np.asarray(at))
        narrow = float(own) if is_narrow and not is_load else 0.0
        return Counts(float(is_load), asked, issued=place, waits=float(is_load), under_way=int(is_load), narrow=narrow)

    def _place(self, index: E.Expr) -> float:
        """Operations that say where an access lies, beside sums and multiples of what loops count, which go on from trip to trip: quotients and rests of those, of windows over
        pictures."""
        found = (x for x in walk_exprs(index) if isinstance(x, (E.FloorDiv, E.FloorMod)))
        return float(sum(_DIVISION for x in found if self._moves(x.a)))

    def _is_loaded(self, b: Buffer, at: Any) -> bool:
        """Whether the lanes have loaded the same elements before, in the same loops: windows of neighbouring outputs overlap, and a compiler loads them once."""
        key = id(b), tuple(id(v) for v, _ in self.loops), np.asarray(at).tobytes()
        if key in self.loaded:
            return True
        self.loaded.add(key)
        return False

    def _scatter(self, b: Buffer, index: E.Expr, at: np.ndarray[Any, Any]) -> None:
        """Note which segments the work-group's lanes reach, and which elements of them."""
        size = dtype_info(b.dtype).bytes
        segments = elements = 1.0  # times so many, by the loops around
        for var, trips in self.loops:
            now = self.env[var]
            self.env[var] = now + 1
            step = float(np.max(np.abs(np.asarray(evaluated(index, self.env)) - at)))
            self.env[var] = now
            if step:  # what the next trip reads of the same segment the first cache has
                segments *= max(1.0, trips * min(1.0, step * size / SEGMENT_BYTES))
                elements *= trips
        key = id(b), tuple(id(v) for v, _ in self.loops)
        known = self.scattered.get(key)
        if known is None:
            known = self.scattered[key] = _Scattered(size)
        known.places.setdefault(at.tobytes(), at)
        known.segments, known.elements = segments, elements

    def _asked(self, index: E.Expr, at: Any, size: int, own: int) -> float:
        """Bytes of whole segments that a wavefront's lanes ask for, over its lanes. at: the index evaluated."""
        if isinstance(index, E.Broadcast):
            index = index.value
            at = evaluated(index, self.env)
        if at is None:  # read from memory: anywhere
            return float(max(own, SEGMENT_BYTES))
        at = np.asarray(at)
        wave = at.reshape(-1, at.shape[-1] if dtype_info(index.dtype).lanes > 1 else 1)[: self.target.wavefront_size]
        first = wave * size
        # Python's own set: of so few numbers NumPy's takes several times as long.
        segments = set((first // SEGMENT_BYTES).ravel().tolist())
        if SEGMENT_BYTES % size:
            segments.update(((first + size - 1) // SEGMENT_BYTES).ravel().tolist())
        return float(len(segments)) * SEGMENT_BYTES / (len(wave) if len(wave) > 1 else self.target.wavefront_size)


def _is_turn(s: S.Stmt) -> bool:
    return isinstance(s, S.Evaluate) and isinstance(s.value, E.Call) and s.value.op == "turn_take"


def _reads(e: E.Expr) -> bool:
    return isinstance(e, E.BufferLoad) or any(_reads(c) for c in children(e))


def _sizes(func: Func) -> dict[E.Var, Any]:
    """The integer parameters of a function, each the number that a size of its name is thought to be (`ops.typical`)."""
    return {
        p: np.int64(typical_of(p.name)) for p in func.params if isinstance(p, E.Var) and p.dtype in ("int32", "int64")
    }


def _size(b: Buffer, values: Mapping[E.Var, Any] = _NO_VALUES) -> float | None:
    """Bytes of a flat buffer; None where that depends on what has no value."""
    info = dtype_info(b.dtype)
    dims = [evaluated(n, values) for n in b.shape]
    return None if None in dims else float(math.prod(n or 0 for n in dims) * info.bytes * info.lanes)


def _registers(body: S.Stmt) -> int:
    """Words of a thread's own arrays, of those that are there at the same time."""
    if isinstance(body, S.Seq):
        return max(map(_registers, body.stmts), default=0)
    own = 0
    if isinstance(body, S.Alloc) and body.buffer.scope == "local":
        own = math.ceil((_size(body.buffer) or 0.0) / 4)
    inside: list[S.Stmt] = []
    if isinstance(body, S.IfThenElse):
        inside = [body.then, *([body.orelse] if body.orelse is not None else [])]
    elif isinstance(body, (S.For, S.LetStmt, S.Alloc, S.Attr, S.While)):
        inside = [body.body]
    return own + max(map(_registers, inside), default=0)


# ---- a CPU's function


def _on_cores(func: Func, target: Target) -> Footprint:
    """Clocks of one core and bytes of memory; iterations of the largest parallel loop."""
    taken = clocks(func.body, lambda v: False, target.vector_bytes)
    buffers: dict[int, Buffer] = {}
    shared: list[int] = []
    sizes = _sizes(func)

    def on_expr(e: E.Expr) -> None:
        if isinstance(e, E.BufferLoad):
            buffers[id(e.buffer)] = e.buffer

    def on_stmt(s: S.Stmt) -> None:
        if isinstance(s, S.BufferStore):
            buffers[id(s.buffer)] = s.buffer
        elif isinstance(s, S.For) and s.kind == S.ForKind.PARALLEL:
            shared.append(int(evaluated(s.extent, sizes) or OPEN_GROUPS))

    visit(func.body, on_expr, on_stmt)
    bytes_ = sum(_size(b, sizes) or 0.0 for b in buffers.values() if b.scope == "global")
    issued = float(evaluated(taken, sizes) or 0.0)
    one = Kernel(max(shared, default=1), memory_bytes=bytes_, issued=issued)
    return Footprint((one,), bool(shared))
