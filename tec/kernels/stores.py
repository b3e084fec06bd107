"""What a kernel stores to arrays: numbers to elements, structs to records, and numbers, tuples or arrays to parts of arrays."""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import Any

from ..ir import build as B
from ..ir import expr as E
from ..ir import stmt as S
from ..ir.dtype import dtype_info
from .exits import Exits
from .values import Array, Complex, Record, Records, describe, settle

# Elements of a part that are stored without a loop, so that memory of the thread can stay in registers.
_WRITTEN_OUT = 16


class Stores(Exits):
    """Handlers for what is assigned to subscripts and fields."""

    def place(self, target: ast.Subscript | ast.Attribute) -> tuple[Any, Any]:
        """What is written to: an array (or one of structs), and an index of it that is held; None for all of a part of it."""
        if isinstance(target, ast.Attribute):
            v = self.expr(target.value)
            if isinstance(v, Record):
                return self.field(v.of, target.attr, target), self.held(v.indices, "i")
            raise self.error(
                f"an attribute (.{target.attr}) is assigned to", hint="kernels write to arrays", node=target
            )
        v, index = self.ordered(lambda: self.expr(target.value), lambda: self.expr(target.slice))
        if isinstance(v, Record) and isinstance(index, str):
            return self.field(v.of, index, target), self.held(v.indices, "i")
        if isinstance(v, Records):
            return v, self.record(v, index, target).indices
        if not isinstance(v, Array):
            raise self.no_elements(v, "arrays have elements that are written to", target)
        self.refuse_tables(v, target)
        given = self.spread(v, index)
        if any(isinstance(i, slice) for i in given):
            return self.view(v, given, target), None
        return v, self.indices(v, given, target)

    def refuse_tables(self, v: Array, node: ast.AST | None) -> None:
        """Raise KernelError where a kernel writes to an array from outside."""
        if self.table_behind(v) is not None:
            raise self.error(
                f"{v.name} is an array from outside of the kernel, and is written to",
                hint=f"make {v.name} a parameter and pass it: arrays from outside are constants",
                node=node,
            )

    def _put_record(self, records: Records, index: tuple[E.Expr, ...], value: Any, s: ast.stmt) -> None:
        """A whole struct: from another of the same fields, or from a tuple."""
        names = list(records.fields)
        if isinstance(value, Record) and list(value.of.fields) == names:
            parts = [self.held(self.field_of(value, n, s), n) for n in names]
        elif isinstance(value, tuple) and len(value) == len(names):
            parts = list(value)
        else:
            raise self.error(
                f"{describe(value)} is stored to {records.name}, an array of structs",
                hint=f"a tuple of its fields, ({', '.join(names)}), or an element of an array of the same fields",
                node=s,
            )
        for n, part in zip(names, parts):
            self._put_field(records.fields[n], index, part, s)

    def _put_field(self, field: Any, index: tuple[E.Expr, ...], part: Any, s: ast.stmt) -> None:
        """A field of a struct; one of several numbers is stored number by number."""
        if isinstance(field, Records) or len(field.shape) == len(index):
            self.put_element(field, index, part, s)
            return
        n = field.shape[len(index)]
        assert isinstance(n, E.IntImm)
        for k in range(n.value):
            x = self.element(part, k, s) if isinstance(part, Array) else self.tuple_element(part, k)
            self._put_field(field, (*index, E.IntImm(k)), x, s)

    def put_element(self, array: Any, index: Any, value: Any, s: ast.stmt) -> None:
        """Store a number to an array. A float is not stored to an array of integers."""
        if isinstance(array, Records):
            self._put_record(array, index, value, s)
            return
        assert isinstance(array, Array)
        if index is None:
            self.put_view(array, value, s)
            return
        b = array.buffer
        indices = array.at(self.indices(array, index, s))
        if array.is_complex:
            value = value if isinstance(value, Complex) else Complex(self.number(value, "what is stored"), 0.0)
            parts = [self.as_type(p, b.dtype, s) for p in self.held((value.real, value.imag), "part")]
            for k, part in enumerate(parts):
                self.perform(S.BufferStore(b, part, (*indices, E.IntImm(k)), None, self.where(s)))
            return
        if isinstance(value, Complex):
            raise self.error(
                f"a complex number is stored to {b.name}, an array of {b.dtype}",
                hint="store z.real, z.imag or abs(z)",
                node=s,
            )
        have, want = dtype_info(settle(self.number(value, "what is stored")).dtype), dtype_info(b.dtype)
        if have.is_float and not want.is_float:
            raise self.error(
                f"a float is stored to {b.name}, an array of {b.dtype}",
                hint="round and convert it: int(tec.floor(x)), or make the array one of floats",
                node=s,
            )
        if have.lanes != want.lanes:
            raise self.error(
                f"{have.name} is stored to {b.name}, an array of {b.dtype}", hint="tec.vstore(array, index, v)", node=s
            )
        e = self.as_type(value, b.dtype, s)
        self.perform(S.BufferStore(b, e, indices, None, self.where(s)))

    # ---- parts of arrays

    def put_view(self, view: Array, value: Any, s: ast.stmt, op: ast.operator | None = None) -> None:
        """`view[...] = value`: one number for all elements, a tuple with a value for each of the first dimension, or an array of the same shape.
        op: of an augmented assignment."""
        if isinstance(value, tuple):
            self.agree(view, len(value), s)
            for k, part in enumerate(self.held(value, "part")):
                if len(view.shape) == 1:
                    self._put_one(view, (E.IntImm(k),), part, s, op)
                else:
                    self.put_view(self.view(view, (k,), s), part, s, op)
            return
        if isinstance(value, Array):
            if value.buffer is view.buffer:
                raise self.error(
                    f"a part of {view.name} is stored to a part of the same array",
                    hint="write a loop: its order says what is read before it is written",
                    node=s,
                )
            if len(value.shape) != len(view.shape):
                raise self.error(
                    f"an array of {len(value.shape)} dimensions is stored to a part of {view.name} of {len(view.shape)}",
                    hint="index one of them until both have as many dimensions",
                    node=s,
                )
            self.agree_with(view, value, s)
            self._each(view.shape, lambda i: self._put_one(view, i, self.element(value, i, s), s, op), s)
            return
        one = self.held(value if isinstance(value, Complex) else self.number(value, "what is stored"), "value")
        self._each(view.shape, lambda i: self._put_one(view, i, one, s, op), s)

    def _put_one(self, view: Array, index: tuple[E.Expr, ...], x: Any, s: ast.stmt, op: ast.operator | None) -> None:
        self.put_element(view, index, x if op is None else self.operate(op, self.element(view, index, s), x, s), s)

    def _each(
        self,
        shape: tuple[E.Expr, ...],
        do: Callable[[tuple[E.Expr, ...]], None],
        s: ast.stmt,
        index: tuple[E.Expr, ...] = (),
    ) -> None:
        """`do` for each index of a shape."""
        if len(index) == len(shape):
            do(index)
            return
        n = shape[len(index)]
        if isinstance(n, E.IntImm) and n.value <= _WRITTEN_OUT:
            for k in range(n.value):
                self._each(shape, do, s, (*index, E.IntImm(k)))
            return
        var = E.Var("k", n.dtype, True)
        with self.block() as items:
            self._each(shape, do, s, (*index, var))
        self.emit(S.For(var, B.const(0, n.dtype), n, self.body(items), "serial", ""))
