"""Atomic operations of a tile program in loop IR."""

from __future__ import annotations

import math

from ..ir import build as B
from ..ir import expr as E
from ..ir import stmt as S
from ..ir.buffer import Buffer
from .grammar import Op, Value
from .layouts import Dim, Layout, bits, spare
from .memory import Memory
from .state import ZERO, Axis, Held, Point, Read

_ATOMICS = {
    "add": "atomic_add",
    "min": "atomic_min",
    "max": "atomic_max",
    "and": "atomic_and",
    "or": "atomic_or",
    "xor": "atomic_xor",
    "xchg": "atomic_exch",
}
_RUNS = ("float32", "float16", "bfloat16")  # what is added as neighbours at once


class Atomics(Memory):
    """Operations on what stands in memory, whole."""

    def do_atomic(self, op: Op) -> None:
        p, value = op.operands[0], op.operands[1]
        mask = op.operands[2] if len(op.operands) > 2 else None
        word = _ATOMICS[op.attrs["fn"]]
        self._atomic(op, p, word, [value], mask)

    def do_atomic_cas(self, op: Op) -> None:
        self._atomic(op, op.operands[0], "atomic_cas", list(op.operands[1:]), None)

    def _atomic(self, op: Op, p: Value, word: str, values: list[Value], mask: Value | None) -> None:
        used = bool(self.uses.get(id(op.results[0])))
        (self._of_tile if p.ty.shape else self._of_scalar)(op, p, word, values, mask, used)

    def _called(self, word: str, base: Buffer, at: E.Expr, args: list[E.Expr], order: str) -> E.Expr:
        given = (E.BufferLoad(base, (at,)), *[self.as_stored(a, base) for a in args])
        return E.Call(word, given, base.dtype, {"order": order})

    def _of_scalar(self, op: Op, p: Value, word: str, values: list[Value], mask: Value | None, used: bool) -> None:
        v, base = op.results[0], self.base(p)
        self.barrier()
        made = self._called(word, base, self.offset(p), [self.scalar(x) for x in values], op.attrs["order"])
        old = self.array("old", base.dtype, [1])
        name = E.Var("before", base.dtype)
        s: S.Stmt = S.LetStmt(name, made, self.store(old, [ZERO], name), op.loc)
        guarded = self.guarded(s, self.leader(), None if mask is None else self.scalar(mask), loc=op.loc)
        if guarded is not s:
            self.emit(self.store(old, [ZERO], B.cast(base.dtype, B.const(0, "int32"))))
        self.emit(guarded)
        if self.threads > 1 and used:
            # Who writes there next lets all threads meet first.
            where = self.arena(base.dtype, 1)
            self.emit(self.guarded(self.store(where, [ZERO], E.BufferLoad(old, (ZERO,))), self.leader(), loc=op.loc))
            self.barrier()
            got = self.let("old", E.BufferLoad(where, (ZERO,)))
        else:
            got = self.let("old", E.BufferLoad(old, (ZERO,)))
        self.scalars[id(v)] = self.as_value(got, op)

    def _of_tile(self, op: Op, p: Value, word: str, values: list[Value], mask: Value | None, used: bool) -> None:
        v, base, order = op.results[0], self.base(p), op.attrs["order"]
        layout = self.anchor(values[0]) or self.memory_layout(p, v)
        offset, reads = self.reader(p, layout), [self.reader(x, layout) for x in values]
        allowed = None if mask is None else self.reader(mask, layout)
        owner = self.leader(layout)
        self.barrier()
        lanes, along = self.vectors(op, layout)
        if not used and word == "atomic_add" and lanes > 1 and self.target.chip.adds_runs and base.dtype in _RUNS:
            self._fence(op)
            self._add_runs(op, layout, along, lanes, offset, reads[0], allowed)
            return
        old = self.array("old", v.ty.dtype.tec, [d.held for d in layout])

        def put(q: Point) -> S.Stmt:
            name = E.Var("before", base.dtype)
            keep = self.store(old, [a.register for a in q], self.as_value(name, op))
            made = self._called(word, base, offset(q), [r(q) for r in reads], order)
            s: S.Stmt = S.LetStmt(name, made, keep, op.loc)
            guarded = self.guarded(s, owner, None if allowed is None else allowed(q), loc=op.loc)
            if guarded is s:
                return s
            zero = B.cast(v.ty.dtype.tec, B.const(0, "int32"))
            return S.seq(self.store(old, [a.register for a in q], zero), guarded)

        many = math.prod(d.held for d in layout)
        if self.target.kind == "cuda" and many > 1 and op.attrs["order"] != "monotonic":
            # A fence for each element costs more than the operations do: one in front of all orders them as well, and one behind where the old values are read.
            self._fence(op)
            order = "monotonic"
        self.visit(layout, put, 1)
        if used and order != op.attrs["order"]:
            self._fence(op)
        self.held[id(v)] = Held(old, layout)
        if used and spare(layout, self.threads):
            self.held[id(v)] = self.moved(self.held[id(v)], layout, v.ty.dtype.tec)

    def _fence(self, op: Op) -> None:
        """Order what a thread did before an atomic operation, if its author asks for any order."""
        if op.attrs["order"] != "monotonic":
            self.emit(S.Evaluate(E.Call("fence", (), "int32", {"scope": "device", "order": "acq_rel"}), op.loc))

    def _add_runs(
        self, op: Op, layout: Layout, along: int, lanes: int, offset: Read, value: Read, allowed: Read | None
    ) -> None:
        """Additions whose old values nobody reads, `lanes` neighbours at once."""
        base, dim, owner = self.base(op.operands[0]), layout[along], self.leader(layout)
        outer = tuple(
            Dim(dim.size, dim.registers[bits(lanes) :], dim.threads) if d == along else x for d, x in enumerate(layout)
        )

        def put(q: Point) -> S.Stmt:
            a = q[along]
            run = [Axis(B.add(a.at, k), B.add(B.mul(a.register, lanes), k)) for k in range(lanes)]
            points = [tuple(x if d == along else y for d, y in enumerate(q)) for x in run]
            given = (E.BufferLoad(base, (offset(points[0]),)), *[self.as_stored(value(p), base) for p in points])
            s: S.Stmt = S.Evaluate(E.Call("atomic_add_run", given, "int32"), op.loc)
            return self.guarded(s, owner, None if allowed is None else allowed(points[0]), loc=op.loc)

        self.visit(outer, put, 1)
