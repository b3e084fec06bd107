"""The interpreter's machine: statements, loops and launches under a mask of active lanes; see `tec.ir.interp`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from . import expr as E
from . import stmt as S
from .buffer import Buffer
from .dtype import dtype_info
from .func import Func, IRModule
from .interp_calls import CallMachine
from .interp_expr import InterpError
from .interp_lanes import Independence, Lanes, Storage
from .interp_ops import Array, held
from .interp_races import Races
from .structural import structural_equal
from .visit import map_expr, visit

_MAX_LANES = 1 << 15  # lanes side by side
_MAX_PRIVATE_ELEMS = 1 << 24  # elements of storage that expanded loops allocate at once
_AXES = ("x", "y", "z")
_MAX_STEPS = 1 << 31


def _is_place(e: E.Expr, s: S.BufferStore) -> bool:
    """Whether an expression is what a store's place holds, all of its lanes."""
    return (
        isinstance(e, E.BufferLoad)
        and e.predicate is None
        and e.buffer is s.buffer
        and len(e.indices) == len(s.indices)
        and all(map(structural_equal, e.indices, s.indices))
    )


def _under(e: E.Expr, s: S.BufferStore, mask: E.Expr) -> E.Expr:
    """A value that reads the store's place in the lanes alone that are stored."""
    if isinstance(e, E.BufferLoad) and _is_place(e, s):
        return E.BufferLoad(e.buffer, e.indices, mask)
    return map_expr(e, lambda x: _under(x, s, mask))


class GroupBatch:
    """A work-group batch: extents of the launch indices, threads of a group, and each lane's index along every tag."""

    __slots__ = ("block", "lanes", "threads", "values")

    def __init__(self, block: tuple[int, int, int], threads: int, lanes: Lanes, values: dict[str, Array]):
        self.block = block
        self.threads = threads
        self.lanes = lanes
        self.values = values


class StatementMachine(CallMachine):
    """Executes statements; expressions are `CallMachine`'s."""

    def __init__(
        self,
        check: bool,
        wave: int,
        externs: Mapping[str, Callable[..., Any]],
        module: IRModule | None,
        races: bool = False,
    ):
        super().__init__(check, wave, externs)
        self.module = module
        self.find_races = races
        self.independence = Independence()
        self.tags: dict[int, str] = {}  # loop variables bound to launch indices
        self.has_threads: dict[int, bool] = {}
        self._masked: dict[int, tuple[S.BufferStore, S.BufferStore]] = {}  # by id, and what keeps the id

    # ---- statements

    def exec(self, s: S.Stmt) -> None:
        handler = _EXEC.get(type(s))
        if handler is None:
            raise InterpError(f"not a statement: {type(s).__name__}")
        handler(self, s)

    def exec_under(self, mask: Array, s: S.Stmt) -> None:
        """`s` for the lanes of `mask` alone; not at all where there are none."""
        if not mask.any():
            return
        old = self.mask
        self.mask = None if mask.all() else mask
        try:
            self.exec(s)
        finally:
            self.mask = old

    def active(self) -> Array:
        return self.mask if self.mask is not None else np.ones(self.lanes.n, bool)

    def _seq(self, s: S.Seq) -> None:
        for x in s.stmts:
            self.exec(x)

    def _store(self, s: S.BufferStore) -> None:
        self.loc = s.loc or s.buffer.loc
        if self.check and isinstance(s.value, E.Select) and s.predicate is None:
            s = self._as_masked(s, s.value)
        self.store(s.buffer, s.indices, self.eval(s.value), s.predicate)

    def _as_masked(self, s: S.BufferStore, value: E.Select) -> S.BufferStore:
        """A choice between a value and what is there as the masked store that it is: what was not written stays so, and is not read."""
        made = self._masked.get(id(s))
        if made is None:
            masked = s
            if _is_place(value.b, s):
                masked = S.BufferStore(s.buffer, _under(value.a, s, value.cond), s.indices, value.cond, s.loc)
            made = self._masked[id(s)] = (s, masked)
        return made[1]

    def _let_stmt(self, s: S.LetStmt) -> None:
        self.loc = s.loc or self.loc
        self.lanes.env[id(s.var)] = self.eval(s.value)
        self.exec(s.body)

    def _if(self, s: S.IfThenElse) -> None:
        self.loc = s.loc or self.loc
        c = self.eval(s.cond)
        if len(c) == 1:
            if c[0]:
                self.exec(s.then)
            elif s.orelse is not None:
                self.exec(s.orelse)
            return
        active = self.active()
        self.exec_under(active & c, s.then)
        if s.orelse is not None:
            self.exec_under(active & ~c, s.orelse)

    def _while(self, s: S.While) -> None:
        old, steps = self.mask, 0
        try:
            while True:
                self.loc = s.loc or self.loc
                c = self.eval(s.cond)
                mask = self.active() & c
                if not mask.any():
                    return
                self.mask = None if mask.all() else mask
                self.exec(s.body)
                steps += 1
                if steps > _MAX_STEPS:
                    raise InterpError("a while loop does not end")
        finally:
            self.mask = old

    def _attr(self, s: S.Attr) -> None:
        self.exec(s.body)

    def _assert(self, s: S.Assert) -> None:
        c = self.eval(s.cond)
        if not np.all(c | ~self.active()):
            raise InterpError(f"assertion failed: {s.message}")

    def _evaluate(self, s: S.Evaluate) -> None:
        e = s.value
        self.loc = s.loc or self.loc
        if isinstance(e, E.Call) and e.op == "launch":
            self._launch_kernel(e)
        elif not isinstance(e, E.IntImm):
            self.eval(e)

    # ---- storage

    def _alloc(self, s: S.Alloc) -> None:
        b = s.buffer
        size = self.storage_elems(b)
        own = dtype_info(b.dtype).lanes
        rows: Array | None
        if b.scope == "global" and self.launch is not None:
            count, rows = 1, None
        elif b.scope.startswith("shared"):
            count, rows = self.lanes.groups, self.lanes.group
        else:
            count, rows = self.lanes.n, np.arange(self.lanes.n)
        if count == 1:
            rows = None
        storage = Storage(b.name, b.dtype, b.scope, garbage((count, size * own), b.dtype), self.lanes, rows)
        if self.check:
            storage.init = np.zeros((count, size * own), bool)
        old = self.storages.get(id(b.data))
        self.storages[id(b.data)] = storage
        try:
            self.exec(s.body)
        finally:
            if old is not None:
                self.storages[id(b.data)] = old

    def storage_elems(self, b: Buffer) -> int:
        """Elements that a buffer spans from its data pointer."""
        shape = [self.uniform(d, f"the shape of {b.name}") for d in b.shape]
        offset = self.uniform(b.elem_offset, "an offset") if isinstance(b.elem_offset, E.Expr) else int(b.elem_offset)
        if any(d == 0 for d in shape):
            return offset
        if not b.strides:
            return offset + int(np.prod(shape, dtype=np.int64))
        strides = [self.uniform(d, f"the strides of {b.name}") for d in b.strides]
        return offset + 1 + sum((d - 1) * st for d, st in zip(shape, strides))

    # ---- loops

    def _for(self, s: S.For) -> None:
        if s.kind == S.ForKind.THREAD:
            self._thread_loop(s)
            return
        low, extent = self.eval(s.min), self.eval(s.extent)
        if self.launch is None and not self._holds_threads(s):
            private = self.independence.storage_elems(s)
            if private >= 0 and int(extent.max()) > 1:
                self._side_by_side(s, low, extent, private)
                return
        self._serial(s, low, extent)

    def _serial(self, s: S.For, low: Array, extent: Array) -> None:
        if self.mask is not None:
            low = low if len(low) == 1 else low[self.mask]
            extent = extent if len(extent) == 1 else extent[self.mask]
        uniform = low.min() == low.max() and extent.min() == extent.max()
        env, key, dtype = self.lanes.env, id(s.var), held(s.var.dtype)
        if uniform:
            first = int(low[0])
            for i in range(first, first + int(extent[0])):
                env[key] = np.array([i], dtype)
                self.exec(s.body)
            return
        low, extent = self.eval(s.min), self.eval(s.extent)
        active = self.active()
        for k in range(int(np.where(active, extent, 0).max())):
            env[key] = np.broadcast_to((low + k).astype(dtype), (self.lanes.n,)) if len(low) > 1 else (low + k).astype(dtype)  # fmt: skip
            self.exec_under(active & (k < extent), s.body)

    def _side_by_side(self, s: S.For, low: Array, extent: Array, private: int) -> None:
        """All iterations of an independent loop, a chunk of them at a time."""
        outer, mask = self.lanes, self.mask
        total = int(extent.max())
        chunk = max(1, min(total, _MAX_LANES // outer.n, _MAX_PRIVATE_ELEMS // max(1, private * outer.n)))
        if chunk == 1 and total > 1:
            self._serial(s, low, extent)
            return
        dtype = held(s.var.dtype)
        try:
            for start in range(0, total, chunk):
                count = min(chunk, total - start)
                lanes, k = outer.expand(count, private_groups=True)
                assert lanes.index is not None
                self.lanes = lanes
                base = low if len(low) == 1 else low[lanes.index]
                lanes.env[id(s.var)] = (base + start + k).astype(dtype)
                alive = None if mask is None else mask[lanes.index]
                if len(extent) > 1:
                    inside = start + k < extent[lanes.index]
                    alive = inside if alive is None else alive & inside
                if alive is not None and not alive.any():
                    continue
                self.mask = alive if alive is not None and not alive.all() else None
                self.exec(s.body)
        finally:
            self.lanes, self.mask = outer, mask

    # ---- threads

    def _holds_threads(self, s: S.Stmt) -> bool:
        hit = self.has_threads.get(id(s))
        if hit is None:
            hit = False

            def look(x: S.Stmt) -> None:
                nonlocal hit
                hit = hit or (isinstance(x, S.For) and x.kind == S.ForKind.THREAD)

            visit(s, None, look)
            self.has_threads[id(s)] = hit
        return hit

    def _thread_loop(self, s: S.For) -> None:
        if self.launch is None:
            self._launch(s, self._launch_extents(s))
            return
        low, extent = self.eval(s.min), self.eval(s.extent)
        if s.thread.startswith("vthread"):
            self._vthread(s, low, extent)
            return
        if s.thread not in self.launch.values:
            raise InterpError(f"unknown launch index {s.thread!r}")
        self.tags[id(s.var)] = s.thread
        k = self.launch.values[s.thread][self.lanes.ancestor(self.launch.lanes)]
        self.lanes.env[id(s.var)] = (low + k).astype(held(s.var.dtype))
        self.exec_under(self.active() & (k < extent), s.body)

    def _vthread(self, s: S.For, low: Array, extent: Array) -> None:
        """Virtual threads: copies of each thread, each with its own storage, group memory included."""
        outer, mask = self.lanes, self.mask
        count = int(extent.max())
        lanes, k = outer.expand(count, private_groups=True)
        assert lanes.index is not None
        try:
            self.lanes = lanes
            base = low if len(low) == 1 else low[lanes.index]
            lanes.env[id(s.var)] = (base + k).astype(held(s.var.dtype))
            limit = extent if len(extent) == 1 else extent[lanes.index]
            self.mask = None if mask is None else mask[lanes.index]
            self.exec_under(self.active() & (k < limit), s.body)
        finally:
            self.lanes, self.mask = outer, mask

    def _launch_extents(self, root: S.For) -> dict[str, int]:
        """The extent of every launch index below an outermost thread loop: the largest of its loops'."""
        extents: dict[str, int] = {}

        def look(x: S.Stmt) -> None:
            if isinstance(x, S.For) and x.kind == S.ForKind.THREAD and not x.thread.startswith("vthread"):
                n = self.uniform(x.extent, f"the extent of {x.thread}")
                extents[x.thread] = max(extents.get(x.thread, 0), n)

        visit(root, None, look)
        return extents

    def _launch(self, body: S.Stmt, extents: Mapping[str, int], bind: Mapping[str, E.Var] | None = None) -> None:
        """Run `body` for every work-group, several at a time."""
        for tag in extents:
            if tag not in {f"{kind}.{a}" for kind in ("blockIdx", "threadIdx") for a in _AXES}:
                raise InterpError(f"unknown launch index {tag!r}")
        grid = [extents.get(f"blockIdx.{a}", 1) for a in _AXES]
        block = [extents.get(f"threadIdx.{a}", 1) for a in _AXES]
        threads, groups = int(np.prod(block)), int(np.prod(grid))
        if threads <= 0 or groups <= 0:
            return
        outer, mask = self.lanes, self.mask
        if outer.n != 1:
            raise InterpError("a launch inside of loops that run side by side")
        batch = max(1, min(groups, _MAX_LANES // threads))
        try:
            for start in range(0, groups, batch):
                count = min(batch, groups - start)
                lanes = Lanes(count * threads, outer, np.zeros(count * threads, np.int64))
                lane = np.arange(lanes.n)
                lanes.group, lanes.groups = lane // threads, count
                values: dict[str, Array] = {}
                g, t = start + lane // threads, lane % threads
                for a, nb, nt in zip(_AXES, grid, block):
                    values[f"blockIdx.{a}"], g = g % nb, g // nb
                    values[f"threadIdx.{a}"], t = t % nt, t // nt
                self.launch = GroupBatch((block[0], block[1], block[2]), threads, lanes, values)
                self.lanes, self.mask = lanes, None
                if self.find_races:
                    self.races = Races(self)
                for tag, var in (bind or {}).items():
                    self.tags[id(var)] = tag
                    lanes.env[id(var)] = values[tag].astype(held(var.dtype))
                self.exec(body)
        finally:
            self.lanes, self.mask, self.launch, self.races = outer, mask, None, None

    def run_kernel(self, kernel: Func) -> None:
        """A kernel whose parameters are bound: its launch indices come from attrs["threads"]."""
        threads: dict[str, tuple[E.Var, E.Expr]] = kernel.attrs.get("threads") or {}
        extents = {tag: self.uniform(ext, f"the extent of {tag}") for tag, (_, ext) in threads.items()}
        self._launch(kernel.body, extents, {tag: v for tag, (v, _) in threads.items()})

    def _launch_kernel(self, e: E.Call) -> None:
        name = (e.attrs or {}).get("kernel")
        if self.module is None or name not in self.module.functions:
            raise InterpError(f"the kernel {name!r} is not at hand", hint="run(func, arrays, module=...)")
        kernel = self.module[name]
        if len(kernel.params) != len(e.args):
            raise InterpError(f"kernel {name} takes {len(kernel.params)} arguments, launched with {len(e.args)}")
        inner = StatementMachine(self.check, self.wave, self.externs, self.module, self.find_races)
        for p, arg in zip(kernel.params, e.args):
            if isinstance(p, Buffer):
                storage = self.storages.get(id(arg)) if isinstance(arg, E.Var) else None
                if storage is None:
                    storage = self.pointer(arg).storage
                inner.storages[id(p.data)] = storage
            else:
                inner.lanes.env[id(p)] = self.eval(arg)
        extents = {tag: self.uniform(ext, f"the extent of {tag}") for tag, ext in self._grid_of(e).items()}
        threads: dict[str, tuple[E.Var, E.Expr]] = kernel.attrs.get("threads") or {}
        for tag in threads:
            extents.setdefault(tag, 1)
        inner._launch(kernel.body, extents, {tag: v for tag, (v, _) in threads.items()})

    def _grid_of(self, e: E.Call) -> dict[str, E.Expr]:
        attrs = e.attrs or {}
        out: dict[str, E.Expr] = {}
        for kind, key in (("blockIdx", "grid"), ("threadIdx", "block")):
            for a, ext in zip(_AXES, attrs.get(key, ())):
                out[f"{kind}.{a}"] = ext if isinstance(ext, E.Expr) else E.IntImm(int(ext))
        return out

    # ---- reduction across threads

    def _allreduce(self, s: S.AllReduce) -> None:
        self.loc = s.loc
        if self.launch is None:
            raise InterpError("a reduction across threads outside of a launch")
        n = self.lanes.n
        base, (bx, by, bz) = self.launch.lanes.n, self.launch.block
        shape = (base // self.launch.threads, bz, by, bx, n // base)
        axes = [{"z": 1, "y": 2, "x": 3}[self._tag(v)[-1]] for v in s.threads]
        active = np.broadcast_to(self.eval(s.predicate), (n,)) & self.active()
        values = []
        for v, identity in zip(s.values, s.combiner.identity):
            x = np.broadcast_to(self.eval(v), (n,))
            values.append(np.where(active, x, self.eval(identity)).reshape(shape))
        order = [a for a in range(5) if a not in axes] + sorted(axes)
        kept = [shape[a] for a in order[: 5 - len(axes)]]
        columns = [np.ascontiguousarray(v.transpose(order)).reshape(int(np.prod(kept)), -1) for v in values]
        while columns[0].shape[1] > 1:
            even = columns[0].shape[1] // 2 * 2  # neighbours combine, so that ties keep their order
            merged = self._combine(s.combiner, [c[:, 0:even:2] for c in columns], [c[:, 1:even:2] for c in columns])
            columns = [np.concatenate([m, c[:, even:]], axis=1) for m, c in zip(merged, columns)]
        back = list(np.argsort(order))
        for dest, c in zip(s.dests, columns):
            full = np.broadcast_to(c.reshape(*kept, *[1] * len(axes)), [*kept, *[shape[a] for a in sorted(axes)]])
            zero = tuple(E.IntImm(0) for _ in dest.shape)
            self.store(dest, zero, np.ascontiguousarray(full.transpose(back)).reshape(n), None)

    def _tag(self, v: E.Var) -> str:
        tag = self.tags.get(id(v))
        if tag is None or not tag.startswith("threadIdx"):
            raise InterpError(f"a reduction across {v.name}, which is not bound to threadIdx")
        return tag

    def _combine(self, c: E.CommReducer, left: list[Array], right: list[Array]) -> list[Array]:
        shape = left[0].shape
        outer, mask = self.lanes, self.mask
        self.lanes, self.mask = Lanes(left[0].size), None
        try:
            for vars_, xs in ((c.lhs, left), (c.rhs, right)):
                for v, x in zip(vars_, xs):
                    self.lanes.env[id(v)] = x.reshape(-1)
            return [np.broadcast_to(self.eval(r), (left[0].size,)).reshape(shape) for r in c.result]
        finally:
            self.lanes, self.mask = outer, mask


_EXEC: dict[type, Callable[[StatementMachine, Any], None]] = {
    S.Seq: StatementMachine._seq, S.BufferStore: StatementMachine._store, S.LetStmt: StatementMachine._let_stmt, S.IfThenElse: StatementMachine._if,
    S.While: StatementMachine._while, S.Attr: StatementMachine._attr, S.Assert: StatementMachine._assert, S.Evaluate: StatementMachine._evaluate,
    S.Alloc: StatementMachine._alloc, S.For: StatementMachine._for, S.AllReduce: StatementMachine._allreduce,
}  # fmt: skip


def garbage(shape: tuple[int, ...], dtype: str) -> Array:
    """What storage holds before it is written: NaN, or a bit pattern."""
    kind = held(dtype)
    if kind.kind == "f":
        return np.full(shape, np.nan, kind)
    if kind.kind == "b":
        return np.ones(shape, kind)
    pattern = np.frombuffer(b"\x5a" * kind.itemsize, kind)[0]
    if dtype_info(dtype).bits < 8:
        pattern = kind.type(5)
    return np.full(shape, pattern, kind)
