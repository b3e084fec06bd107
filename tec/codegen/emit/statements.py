"""Statements: loops as phis, branches, allocations, asserts.

A serial loop is written bottom-tested behind a guard (none where the extent is a positive constant), which is the shape
that LLVM's loop passes want. Local storage becomes allocas of the entry block, which LLVM turns into registers where the
indices are constant after unrolling.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar

from ...ir import expr as E
from ...ir import stmt as S
from ...ir.buffer import Buffer
from ...ir.dtype import dtype_info
from .calls import in_order
from .line_info import LINE_MARK, first_loc
from .part import Part

if TYPE_CHECKING:
    from .emitter import Emitter

StmtHandler = Callable[[Any], None]
FULL_UNROLL_LIMIT = 64  # iterations of a loop marked "unrolled" that are written out for certain


class Statements(Part):
    """Handlers for every statement."""

    stack_limit_bytes: ClassVar[int] = 1 << 16

    def __init__(self, em: Emitter):
        super().__init__(em)
        self.bind = em.values.bind
        self.handlers: dict[type, StmtHandler] = {
            S.BufferStore: self.buffer_store, S.Seq: self.sequence, S.Evaluate: self.evaluate, S.LetStmt: self.let_stmt, S.Attr: self.attr,
            S.IfThenElse: self.if_then, S.For: self.for_loop, S.While: self.while_loop, S.Assert: self.assertion, S.Alloc: self.alloc,
        }  # fmt: skip

    def stmt(self, s: S.Stmt) -> None:
        """Write a statement."""
        handler = self.handlers.get(type(s))
        if handler is None:
            raise self.error(f"{type(s).__name__} cannot reach code generation")
        if not self.em.places:
            handler(s)
            return
        # Each instruction says in a comment of which line of loop IR it is.
        outer = self.em.tail
        if (line := self.em.places.get(id(s))) is not None:
            self.em.tail = f"{LINE_MARK}{line}"
        handler(s)
        self.em.tail = outer

    def buffer_store(self, s: S.BufferStore) -> None:
        self.memo_clear()
        self.em.at(s.loc)
        self.em.memory.store(s)

    def sequence(self, s: S.Seq) -> None:
        for child in s.stmts:
            self.stmt(child)

    def evaluate(self, s: S.Evaluate) -> None:
        self.memo_clear()
        self.em.at(s.loc)
        if not isinstance(s.value, (E.IntImm, E.FloatImm)):
            self.expr(s.value)

    def let_stmt(self, s: S.LetStmt) -> None:
        self.memo_clear()
        self.em.at(s.loc or first_loc(s.body))
        is_index = dtype_info(s.var.dtype).is_int and self.em.values.is_pure(s.value)
        self.bind(s.var, self.index(s.value) if is_index else self.expr(s.value), s.value)
        self.stmt(s.body)
        self.em.vars.pop(id(s.var), None)

    def attr(self, s: S.Attr) -> None:
        self.stmt(s.body)

    # ---- control flow

    def if_then(self, s: S.IfThenElse) -> None:
        self.memo_clear()
        if isinstance(s.cond, E.IntImm):
            chosen = s.then if s.cond.value else s.orelse
            if chosen is not None:
                self.stmt(chosen)
            return
        self.em.at(s.loc)
        weights = ""
        if isinstance(s.cond, E.Call) and s.cond.op == "likely":
            weights = self.expected(True)
        cond = self.expr(in_order(s.cond))
        then, join = self.label("then"), self.label("endif")
        orelse = self.label("else") if s.orelse is not None else join
        self.branch_if(cond, then, orelse, weights)
        self.place(then)
        self.stmt(s.then)
        self.branch(join)
        if s.orelse is not None:
            self.place(orelse)
            self.stmt(s.orelse)
            self.branch(join)
        self.place(join)
        self.memo_clear()

    def for_loop(self, s: S.For) -> None:
        if s.kind == S.ForKind.THREAD:
            raise self.error(
                f"loop {s.var.name!r} is bound to {s.thread}, which this target does not launch",
                hint="bind loops on GPU targets only",
            )
        if s.kind == S.ForKind.PARALLEL:
            self.parallel(s)
        else:
            self.serial(s)

    def parallel(self, s: S.For) -> None:
        """A loop over a thread pool; one thread runs it where there is none."""
        self.serial(s)

    def serial(self, s: S.For) -> None:
        self.memo_clear()
        extent = s.extent.value if isinstance(s.extent, E.IntImm) else None
        if extent is not None and extent <= 0:
            return
        low = self.index(s.min)
        if extent == 1:
            self.bind(s.var, low, s.min)
            self.stmt(s.body)
            self.em.vars.pop(id(s.var), None)
            return
        t = self.reg(s.var.dtype)
        if isinstance(s.min, E.IntImm) and extent is not None:
            end = self.int_const(s.min.value + extent, s.var.dtype)
        else:
            end = self.index(s.extent)
            if not (isinstance(s.min, E.IntImm) and s.min.value == 0):
                end = self.op(f"add nsw {t} {low}, {end}")
        self.counted_loop(
            s.var,
            low,
            end,
            s.body,
            extent is None,
            self.loop_metadata(s),
            self.em.values.is_nonneg(s.min),
            self.em.values.multiple_of(s.min) if extent == 1 else 1,
        )

    def counted_loop(
        self, var: E.Var, low: str, end: str, body: S.Stmt, guard: bool, metadata: str, nonneg: bool, multiple: int = 1
    ) -> None:
        """`for var in [low, end)`; with `guard` the range may be empty."""
        t = self.reg(var.dtype)
        header, latch, done = self.label("loop"), self.label("latch"), self.label("done")
        before = self.em.block
        if guard:
            entry = self.label("enter")
            self.branch_if(self.op(f"icmp slt {t} {low}, {end}"), entry, done)
            self.place(entry)
            before = entry
        self.branch(header)
        self.place(header)
        self.em.counter += 1
        i = f"%{clean_name(var.name)}.{self.em.counter}"
        nuw = "nuw nsw" if nonneg else "nsw"
        step = f"%next{self.em.counter}"
        self.em.out.append(f"  {i} = phi {t} [ {low}, %{before} ], [ {step}, %{latch} ]{self.em.tail}")
        self.bind(var, i)
        if nonneg:
            self.em.values.nonneg_vars.add(id(var))
        self.em.values.multiples[id(var)] = multiple
        self.stmt(body)
        self.em.vars.pop(id(var), None)
        self.branch(latch)
        self.place(latch)
        self.em.out.append(f"  {step} = add {nuw} {t} {i}, 1{self.em.tail}")
        self.branch_if(self.op(f"icmp slt {t} {step}, {end}"), header, done, metadata)
        self.place(done)
        self.memo_clear()

    def loop_metadata(self, s: S.For) -> str:
        """What a loop's kind and `unroll` ask of LLVM's loop passes."""
        hints: list[str] = []
        if s.kind == S.ForKind.UNROLLED:
            small = isinstance(s.extent, E.IntImm) and s.extent.value <= FULL_UNROLL_LIMIT
            hints.append('!{!"llvm.loop.unroll.full"}' if small else '!{!"llvm.loop.unroll.enable"}')
        elif s.unroll:
            n = s.unroll
            hints.append('!{!"llvm.loop.unroll.disable"}' if n == 1 else f'!{{!"llvm.loop.unroll.count", i32 {n}}}')
        if not hints:
            return ""
        return f", !llvm.loop {self.meta_distinct(', '.join(self.meta(h) for h in hints))}"

    def while_loop(self, s: S.While) -> None:
        header, body, done = self.label("while"), self.label("body"), self.label("done")
        self.branch(header)
        self.place(header)
        self.memo_clear()
        self.em.at(s.loc)
        cond = self.expr(s.cond)
        self.branch_if(cond, body, done)
        self.place(body)
        self.stmt(s.body)
        self.branch(header)
        self.place(done)
        self.memo_clear()

    def assertion(self, s: S.Assert) -> None:
        self.memo_clear()
        if isinstance(s.cond, E.IntImm) and s.cond.value:
            return
        cond = self.expr(s.cond)
        failed, ok = self.label("failed"), self.label("ok")
        self.branch_if(cond, ok, failed, self.expected(True))
        self.place(failed)
        self.assert_failed(s)
        self.place(ok)

    def assert_failed(self, s: S.Assert) -> None:
        """End the block of a failed assertion."""
        raise self.error("an assertion inside a kernel has nowhere to report to")

    # ---- storage

    def alloc(self, s: S.Alloc) -> None:
        scope = s.buffer.scope
        if scope == "local" or scope.startswith("fragment"):
            self.alloc_local(s)
        elif scope.startswith("shared"):
            self.alloc_shared(s)
        elif scope == "global":
            self.alloc_global(s)
        else:
            raise self.error(
                f"buffer {s.buffer.name!r} has unknown scope {scope!r}",
                hint='scopes: "global", "shared", "shared.dyn", "local", "fragment.*"',
            )

    def elements(self, buffer: Buffer) -> int | None:
        """How many elements a buffer has, where that is constant."""
        total = 1
        for d in buffer.shape:
            if not isinstance(d, E.IntImm):
                return None
            total *= d.value
        return total

    def alloc_local(self, s: S.Alloc) -> None:
        """An alloca of the entry block."""
        count = self.elements(s.buffer)
        if count is None:
            raise self.error(
                f"local buffer {s.buffer.name!r} has no constant size",
                hint="local storage is registers; attach it where its extents are constant",
            )
        t = self.type_of(s.buffer.dtype)
        size = t.info.bytes * t.info.lanes * max(count, 1)
        align = min(64, max(t.info.bytes, 1 << (size - 1).bit_length() if size < 64 else 64))
        self.em.counter += 1
        name = f"%{clean_name(s.buffer.name)}.{self.em.counter}"
        space = f", addrspace({self.em.alloca_space})" if self.em.alloca_space else ""
        self.em.allocas.append(f"  {name} = alloca [{max(count, 1)} x {t.element}], align {align}{space}")
        self.em.memory.bind_buffer(s.buffer, name, self.em.alloca_space, align)
        self.stmt(s.body)

    def alloc_shared(self, s: S.Alloc) -> None:
        raise self.error(f"buffer {s.buffer.name!r} has scope {s.buffer.scope!r}, which only GPU targets have")

    def alloc_global(self, s: S.Alloc) -> None:
        raise self.error(
            f"buffer {s.buffer.name!r} of scope 'global' is allocated inside a kernel",
            hint="compute it at the root, or give it scope 'shared' or 'local'",
        )


def clean_name(name: str) -> str:
    """A user's name as part of an LLVM one."""
    return "".join(c if c.isalnum() and c.isascii() else "_" for c in name) or "x"
