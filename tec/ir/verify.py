"""The verifier: what a function of loop IR must be like at each stage.

`verify(func, stage)` walks the function once and asks the stage's checks about every node. A check is a small function,
written once: it returns what is wrong, or None. Stages, in the order a function passes them:

    loops    the schedule's loops; buffers of any rank, thread loops may nest, no te nodes
    flat     every buffer one-dimensional and dense
    lowered  no vector loops, virtual threads, reductions across threads or fragments left; one loop a launch index
    kernel   a device function: launch indices in attrs["threads"], flat parameters, no thread loops, no launches
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..errors import Loc, TecError, kind_of
from . import expr as E
from . import stmt as S
from .buffer import FRAGMENT_SCOPES, Buffer
from .dtype import dtype_info, int_range, with_lanes
from .func import Func
from .intrin import INTRINS
from .visit import children, map_stmt

SCOPES = ("global", "shared", "shared.dyn", "local", *FRAGMENT_SCOPES)
LAUNCH_TAGS = tuple(f"{kind}.{a}" for kind in ("blockIdx", "threadIdx") for a in "xyz")
_KINDS = (S.ForKind.SERIAL, S.ForKind.PARALLEL, S.ForKind.VECTORIZED, S.ForKind.UNROLLED, S.ForKind.THREAD)


class VerifyError(TecError):
    """IR that breaks a rule of its stage: a mistake in the compiler, or in IR that was written by hand."""

    def __init__(self, check: str, message: str, where: Loc | None):
        self.check = check
        super().__init__(message, where=where, locate=False)


class _Context:
    """What is in scope at a node."""

    def __init__(self, func: Func, stage: str):
        self.func = func
        self.stage = stage
        self.vars: set[int] = set()
        self.data: set[int] = set()
        self.loops: list[S.For] = []
        self.allocated: set[int] = set()


Check = Callable[[Any, _Context], "str | None"]
_CHECKS: dict[str, list[tuple[type, str, Check]]] = {"loops": [], "flat": [], "lowered": [], "kernel": []}
_ALL = tuple(_CHECKS)


def _check(name: str, *types: type, stages: tuple[str, ...] = _ALL) -> Callable[[Check], Check]:
    """Enter a check for some node types (Buffer, Func too) in some stages."""

    def enter(f: Check) -> Check:
        for stage in stages:
            _CHECKS[stage].extend((t, name, f) for t in types)
        return f

    return enter


def checks_of(stage: str) -> list[str]:
    """The names of a stage's checks."""
    return sorted({name for _, name, _ in _CHECKS[stage]})


# ---- expressions


@_check("operands", E.Add, E.Sub, E.Mul, E.Div, E.Mod, E.FloorDiv, E.FloorMod, E.Min, E.Max)
def _arithmetic(e: Any, ctx: _Context) -> str | None:
    if e.a.dtype != e.b.dtype or e.dtype != e.a.dtype:
        return f"operands of {e.a.dtype} and {e.b.dtype}"
    kind = dtype_info(e.dtype).kind
    return f"arithmetic on {e.dtype}" if kind in ("bool", "handle") else None


@_check("operands", E.EQ, E.NE, E.LT, E.LE, E.GT, E.GE)
def _comparison(e: Any, ctx: _Context) -> str | None:
    return f"operands of {e.a.dtype} and {e.b.dtype}" if e.a.dtype != e.b.dtype else None


@_check("operands", E.And, E.Or)
def _logic(e: Any, ctx: _Context) -> str | None:
    if e.a.dtype != e.b.dtype or dtype_info(e.a.dtype).kind != "bool":
        return f"logic on {e.a.dtype} and {e.b.dtype}"
    return None


@_check("operands", E.Not)
def _negation(e: E.Not, ctx: _Context) -> str | None:
    return None if dtype_info(e.a.dtype).kind == "bool" else f"negation of {e.a.dtype}"


@_check("operands", E.Select)
def _choice(e: E.Select, ctx: _Context) -> str | None:
    if e.a.dtype != e.b.dtype:
        return f"a choice between {e.a.dtype} and {e.b.dtype}"
    c, lanes = dtype_info(e.cond.dtype), dtype_info(e.a.dtype).lanes
    return (
        None
        if c.kind == "bool" and c.lanes in (1, lanes)
        else f"the condition is {e.cond.dtype}, the values {e.a.dtype}"
    )


@_check("operands", E.Cast)
def _conversion(e: E.Cast, ctx: _Context) -> str | None:
    a, b = dtype_info(e.value.dtype), dtype_info(e.dtype)
    if a.lanes != b.lanes or "handle" in (a.kind, b.kind):
        return f"a cast of {e.value.dtype} to {e.dtype}"
    return None


@_check("operands", E.Let, S.LetStmt)
def _binding(e: Any, ctx: _Context) -> str | None:
    return None if e.var.dtype == e.value.dtype else f"{e.var.name} is {e.var.dtype}, its value {e.value.dtype}"


@_check("constants", E.IntImm)
def _integer(e: E.IntImm, ctx: _Context) -> str | None:
    info = dtype_info(e.dtype)
    if info.lanes > 1 or not (info.is_int or info.kind == "bool"):
        return f"an integer constant of {e.dtype}"
    low, high = int_range(e.dtype)
    return None if low <= e.value <= high else f"{e.value} does not fit {e.dtype}"


@_check("constants", E.FloatImm)
def _float(e: E.FloatImm, ctx: _Context) -> str | None:
    info = dtype_info(e.dtype)
    return None if info.is_float and info.lanes == 1 else f"a float constant of {e.dtype}"


@_check("vectors", E.Ramp)
def _ramp(e: E.Ramp, ctx: _Context) -> str | None:
    if e.base.dtype != e.stride.dtype or not dtype_info(e.base.dtype).is_int or dtype_info(e.base.dtype).lanes > 1:
        return f"a ramp from {e.base.dtype} in steps of {e.stride.dtype}"
    return None if e.lanes > 1 else f"a ramp of {e.lanes} lanes"


@_check("vectors", E.Broadcast)
def _broadcast(e: E.Broadcast, ctx: _Context) -> str | None:
    return (
        None
        if e.lanes > 1 and dtype_info(e.value.dtype).lanes == 1
        else f"{e.value.dtype} broadcast to {e.lanes} lanes"
    )


@_check("vectors", E.Shuffle)
def _shuffle(e: E.Shuffle, ctx: _Context) -> str | None:
    if len({dtype_info(v.dtype).element for v in e.vectors}) != 1:
        return "a shuffle of different element types"
    total = sum(dtype_info(v.dtype).lanes for v in e.vectors)
    return None if all(0 <= i < total for i in e.indices) else f"a shuffle picks {e.indices} of {total} lanes"


@_check("calls", E.Call)
def _call(e: E.Call, ctx: _Context) -> str | None:
    known = INTRINS.get(e.op)
    if known is None:
        return f"unknown operation {e.op!r}"
    if known.nargs >= 0 and len(e.args) != known.nargs and e.op != "access_ptr":
        return f"{e.op} takes {known.nargs} arguments, has {len(e.args)}"
    if e.op == "if_then_else":
        if e.args[0].dtype != "bool":
            return f"the condition of if_then_else is {e.args[0].dtype}"
        if e.args[1].dtype != e.args[2].dtype or e.dtype != e.args[1].dtype:
            return f"if_then_else between {e.args[1].dtype} and {e.args[2].dtype} as {e.dtype}"
    if known.lanes == "map" and e.args and e.op not in ("if_then_else",):
        lanes = {dtype_info(a.dtype).lanes for a in e.args} | {dtype_info(e.dtype).lanes}
        if len(lanes) > 1:
            return f"{e.op} of different lanes: {', '.join(a.dtype for a in e.args)} to {e.dtype}"
    for k in known.elements:
        if k < len(e.args) and not isinstance(e.args[k], E.BufferLoad):
            return f"argument {k + 1} of {e.op} is no access"
    return None


@_check("te nodes", E.TensorRead, E.Reduce)
def _te_node(e: E.Expr, ctx: _Context) -> str | None:
    return f"{type(e).__name__} belongs to tensor expressions"


@_check("scope", E.Var)
def _var_scope(e: E.Var, ctx: _Context) -> str | None:
    if id(e) in ctx.vars or id(e) in ctx.data:
        return None
    return f"the variable {e.name} is used where it has no value"


# ---- accesses


def _access(buffer: Buffer, indices: tuple[E.Expr, ...], ctx: _Context) -> str | None:
    if id(buffer.data) not in ctx.data:
        return f"the buffer {buffer.name} is used where it has no storage"
    if len(indices) != len(buffer.shape):
        return f"{buffer.name} has {len(buffer.shape)} dimensions, indexed with {len(indices)}"
    for k, i in enumerate(indices):
        info = dtype_info(i.dtype)
        if not info.is_int:
            return f"index {k} of {buffer.name} is {i.dtype}"
        if info.lanes > 1 and k < len(indices) - 1:
            return f"index {k} of {buffer.name} is a vector; only the last may be"
    return None


def _lanes(indices: tuple[E.Expr, ...]) -> int:
    return dtype_info(indices[-1].dtype).lanes if indices else 1


@_check("accesses", E.BufferLoad)
def _load(e: E.BufferLoad, ctx: _Context) -> str | None:
    bad = _access(e.buffer, e.indices, ctx)
    if bad is None and e.predicate is not None and e.predicate.dtype != with_lanes("bool", _lanes(e.indices)):
        return f"the predicate is {e.predicate.dtype} for {_lanes(e.indices)} lanes"
    return bad


@_check("accesses", S.BufferStore)
def _store(s: S.BufferStore, ctx: _Context) -> str | None:
    bad = _access(s.buffer, s.indices, ctx)
    if bad is not None:
        return bad
    lanes, own = _lanes(s.indices), dtype_info(s.buffer.dtype).lanes
    want = s.buffer.dtype if lanes == 1 else with_lanes(s.buffer.dtype, lanes * own)
    if s.value.dtype != want:
        return f"{s.buffer.name} takes {want} here, the value is {s.value.dtype}"
    if s.predicate is not None and s.predicate.dtype != with_lanes("bool", lanes):
        return f"the predicate is {s.predicate.dtype} for {lanes} lanes"
    return None


@_check("accesses", S.AllReduce, stages=("loops", "flat"))
def _allreduce(s: S.AllReduce, ctx: _Context) -> str | None:
    c = s.combiner
    if not len(s.values) == len(c.identity) == len(c.result) == len(c.lhs) == len(c.rhs) == len(s.dests):
        return "a reduction whose values, combiner and destinations differ in number"
    if s.predicate.dtype != "bool":
        return f"the predicate is {s.predicate.dtype}"
    bound = {id(f.var): f.thread for f in ctx.loops}
    for t in s.threads:
        if not bound.get(id(t), "").startswith("threadIdx"):
            return f"a reduction across {t.name}, which is no threadIdx loop around it"
    for d, v in zip(s.dests, s.values):
        if d.dtype != v.dtype:
            return f"{d.name} is {d.dtype}, the reduced value {v.dtype}"
        if id(d.data) not in ctx.data:
            return f"the buffer {d.name} is used where it has no storage"
    return None


# ---- statements


@_check("conditions", S.IfThenElse, S.While, S.Assert)
def _condition(s: Any, ctx: _Context) -> str | None:
    return None if s.cond.dtype == "bool" else f"the condition is {s.cond.dtype}"


@_check("loops", S.For)
def _loop(s: S.For, ctx: _Context) -> str | None:
    if s.kind not in _KINDS:
        return f"unknown kind of loop {s.kind!r}"
    if (s.kind == S.ForKind.THREAD) != bool(s.thread):
        return f"a {s.kind} loop with the launch index {s.thread!r}"
    if s.thread and s.thread not in LAUNCH_TAGS and not s.thread.startswith("vthread"):
        return f"unknown launch index {s.thread!r}"
    if not dtype_info(s.var.dtype).is_int or dtype_info(s.var.dtype).lanes > 1:
        return f"the loop variable {s.var.name} is {s.var.dtype}"
    if s.min.dtype != s.var.dtype or s.extent.dtype != s.var.dtype:
        return f"{s.var.name} is {s.var.dtype}, its range {s.min.dtype} and {s.extent.dtype}"
    if any(f.var is s.var for f in ctx.loops):
        return f"{s.var.name} is the variable of a loop around it, too"
    return None


@_check("storage", S.Alloc)
def _alloc(s: S.Alloc, ctx: _Context) -> str | None:
    if s.buffer.scope not in SCOPES:
        return f"{s.buffer.name} is in an unknown memory {s.buffer.scope!r}"
    if id(s.buffer) in ctx.allocated:
        return f"{s.buffer.name} is allocated inside of its own scope"
    return _buffer(s.buffer)


def _buffer(b: Buffer) -> str | None:
    info = dtype_info(b.dtype)
    if info.kind == "handle":
        return f"{b.name} holds handles"
    for d in (*b.shape, *b.strides):
        if not dtype_info(d.dtype).is_int:
            return f"a dimension of {b.name} is {d.dtype}"
    if b.strides and len(b.strides) != len(b.shape):
        return f"{b.name} has {len(b.shape)} dimensions and {len(b.strides)} strides"
    return None


@_check("flat buffers", E.BufferLoad, S.BufferStore, stages=("flat", "lowered", "kernel"))
def _flat_access(x: Any, ctx: _Context) -> str | None:
    b = x.buffer
    if len(b.shape) != 1 or b.strides or not _zero(b.elem_offset):
        return f"{b.name} is not flat: shape {b.shape}, strides {b.strides}, offset {b.elem_offset}"
    return None


def _zero(offset: Any) -> bool:
    return offset.value == 0 if isinstance(offset, E.IntImm) else not isinstance(offset, E.Expr) and offset == 0


@_check("lowered loops", S.For, stages=("lowered", "kernel"))
def _lowered_loop(s: S.For, ctx: _Context) -> str | None:
    if s.kind == S.ForKind.VECTORIZED:
        return f"the loop over {s.var.name} is still to be vectorized"
    if s.thread.startswith("vthread"):
        return f"the virtual thread {s.var.name} is still there"
    if s.thread and any(f.thread == s.thread for f in ctx.loops):
        return f"{s.thread} is bound twice"
    return None


@_check("lowered statements", S.AllReduce, stages=("lowered", "kernel"))
def _no_allreduce(s: S.Stmt, ctx: _Context) -> str | None:
    return "a reduction across threads is still there"


@_check("fragments", S.Alloc, stages=("lowered", "kernel"))
def _no_fragment(s: S.Alloc, ctx: _Context) -> str | None:
    return f"{s.buffer.name} is still a fragment" if s.buffer.scope in FRAGMENT_SCOPES else None


@_check("kernel", S.For, stages=("kernel",))
def _no_threads(s: S.For, ctx: _Context) -> str | None:
    return f"a loop over {s.thread} inside of a kernel" if s.kind in (S.ForKind.THREAD, S.ForKind.PARALLEL) else None


@_check("kernel", E.Call, stages=("kernel",))
def _no_launch(e: E.Call, ctx: _Context) -> str | None:
    return "a launch inside of a kernel" if e.op == "launch" else None


@_check("kernel", S.Alloc, stages=("kernel",))
def _no_global(s: S.Alloc, ctx: _Context) -> str | None:
    return f"{s.buffer.name} is global memory allocated inside of a kernel" if s.buffer.scope == "global" else None


@_check("parameters", Func)
def _params(f: Func, ctx: _Context) -> str | None:
    for p in f.params:
        if isinstance(p, Buffer):
            if p.scope != "global":
                return f"the parameter {p.name} is in {p.scope} memory"
            bad = _buffer(p)
            if bad is not None:
                return bad
        elif not isinstance(p, E.Var):
            return f"a parameter is {kind_of(p)}"
    return "a parameter is there twice" if len({id(p) for p in f.params}) != len(f.params) else None


@_check("kernel", Func, stages=("kernel",))
def _kernel(f: Func, ctx: _Context) -> str | None:
    if not f.attrs.get("kernel"):
        return 'attrs["kernel"] is not set'
    for tag, (var, extent) in (f.attrs.get("threads") or {}).items():
        if tag not in LAUNCH_TAGS:
            return f"unknown launch index {tag!r}"
        if var.dtype != extent.dtype:
            return f"{tag}: {var.name} is {var.dtype}, its extent {extent.dtype}"
    for p in f.params:
        if isinstance(p, Buffer) and (len(p.shape) != 1 or p.strides):
            return f"the parameter {p.name} is not flat"
    return None


# ---- the walk


class _Walk:
    def __init__(self, func: Func, stage: str):
        self.ctx = _Context(func, stage)
        self.table: dict[type, list[tuple[str, Check]]] = {}
        for t, name, check in _CHECKS[stage]:
            self.table.setdefault(t, []).append((name, check))
        self.stmt_now: S.Stmt | None = None

    def ask(self, node: Any) -> None:
        for name, check in self.table.get(type(node), ()):
            bad = check(node, self.ctx)
            if bad is not None:
                self.fail(name, bad, node)

    def fail(self, name: str, bad: str, node: Any) -> None:
        ctx = self.ctx
        shown = "" if isinstance(node, Func) else "\n  in: " + str(node).splitlines()[0]
        around = [str(f).splitlines()[0] for f in ctx.loops]
        nest = "".join(f"\n  under: {line}" for line in around)
        where = getattr(self.stmt_now, "loc", None) or ctx.func.attrs.get("loc")
        raise VerifyError(
            name, f"{ctx.func.name} is not valid at stage {ctx.stage!r} ({name}): {bad}{shown}{nest}", where
        )

    def func(self) -> None:
        f, ctx = self.ctx.func, self.ctx
        for v in (*f.implicit_vars(), *[p for p in f.params if isinstance(p, E.Var)]):
            ctx.vars.add(id(v))
        for p in f.params:
            if isinstance(p, Buffer):
                ctx.data.add(id(p.data))
        for var, extent in (f.attrs.get("threads") or {}).values():
            self.expr(extent)
            ctx.vars.add(id(var))
        self.ask(f)
        self.stmt(f.body)

    def expr(self, e: E.Expr) -> E.Expr:
        if type(e) is E.Let:
            self.expr(e.value)
            self.ctx.vars.add(id(e.var))
            self.expr(e.body)
        else:
            for c in children(e):
                self.expr(c)
        self.ask(e)
        return e

    def stmt(self, s: S.Stmt) -> S.Stmt:
        """Check a statement with what is bound where it stands."""
        ctx = self.ctx
        self.stmt_now = s
        self.ask(s)
        match s:
            case S.For():
                self.expr(s.min)
                self.expr(s.extent)
                ctx.vars.add(id(s.var))
                ctx.loops.append(s)
                self.stmt(s.body)
                ctx.loops.pop()
                ctx.vars.discard(id(s.var))
            case S.LetStmt():
                self.expr(s.value)
                ctx.vars.add(id(s.var))
                self.stmt(s.body)
                ctx.vars.discard(id(s.var))
            case S.Alloc():
                self._buffer_exprs(s.buffer)
                fresh = id(s.buffer.data) not in ctx.data
                ctx.data.add(id(s.buffer.data))
                ctx.allocated.add(id(s.buffer))
                self.stmt(s.body)
                ctx.allocated.discard(id(s.buffer))
                if fresh:
                    ctx.data.discard(id(s.buffer.data))
            case S.AllReduce():
                for e in (*s.values, s.predicate, *s.threads, *s.combiner.identity):
                    self.expr(e)
                for v in (*s.combiner.lhs, *s.combiner.rhs):
                    ctx.vars.add(id(v))
                for e in s.combiner.result:
                    self.expr(e)
            case _:
                map_stmt(s, self.stmt, self.expr)
        return s

    def _buffer_exprs(self, b: Buffer) -> None:
        for e in (*b.shape, *b.strides):
            self.expr(e)
        if isinstance(b.elem_offset, E.Expr):
            self.expr(b.elem_offset)


def verify(func: Func, stage: str = "loops") -> None:
    """Raise a VerifyError where `func` breaks a rule of `stage`; its message names the check and shows the node."""
    if stage not in _CHECKS:
        raise TecError(f"unknown stage {stage!r}", hint=f"stages: {', '.join(_CHECKS)}")
    _Walk(func, stage).func()
