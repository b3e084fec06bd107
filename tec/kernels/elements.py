"""Elements of arrays, tuples, vectors and structs: what an index and the name of a field stand for."""

from __future__ import annotations

import ast
from typing import Any

import numpy as np

from ..ir import build as B
from ..ir import expr as E
from ..ir.dtype import dtype_info
from .frames import State
from .values import Array, Complex, Record, Records, describe, settle


class Elements(State):
    """Handlers for subscripts, and for attributes of arrays and structs."""

    expr: Any  # `Expressions`'
    number: Any

    def _array_attribute(self, a: Array | Records, name: str) -> Any:
        if isinstance(a, Records) and name in a.fields:
            return a.fields[name]
        if name == "shape":
            return tuple(_plain(d) for d in a.shape)
        if name == "ndim":
            return len(a.shape)
        if name == "dtype" and isinstance(a, Array):
            return a.dtype
        if name == "size":
            total: Any = 1
            for d in a.shape:
                total = B.mul(total, d)
            return _plain(B.convert(total))
        if isinstance(a, Records):
            raise self.error(f"{describe(a)} has no field {name}", hint=f"it has {', '.join(a.fields)}")
        raise self.error(f"an array has no {name} in a kernel", hint="there are shape, ndim, size, dtype and elements")

    # ---- elements

    def subscript(self, node: ast.Subscript) -> Any:
        v, index = self.ordered(lambda: self.expr(node.value), lambda: self.expr(node.slice))
        if isinstance(v, tuple):
            return self.tuple_element(v, index)
        if isinstance(v, Record):
            return self.field_of(v, index, node)
        if isinstance(v, Records):
            return self.field(v, index, node) if isinstance(index, str) else self.record(v, index, node)
        if isinstance(v, E.Expr) and dtype_info(v.dtype).lanes > 1:
            n = dtype_info(v.dtype).lanes
            if not isinstance(index, (int, np.integer)) or not -n <= index < n:
                raise self.error(
                    f"lane {describe(index)} of a vector of {n}", hint=f"a lane is a constant from 0 to {n - 1}"
                )
            return E.Shuffle((v,), (int(index) % n,))
        return self.element(v, index, node)

    def tuple_element(self, v: tuple[Any, ...], index: Any) -> Any:
        """`v[index]`."""
        if not isinstance(index, (int, np.integer)):
            raise self.error("a tuple is indexed by what is known at run time", hint="use an array")
        if not -len(v) <= index < len(v):
            raise self.error(f"element {index} of a tuple of {len(v)}")
        return v[int(index)]

    def slice_(self, node: ast.Slice) -> Any:
        raise self.error(
            "a slice is not in the language of kernels",
            hint="a kernel takes single elements: write a loop, or tec.vload(array, index, lanes)",
        )

    def element(self, array: Any, index: Any, node: ast.AST) -> Any:
        """The access `array[index]`; a row of a matrix is an array again."""
        if not isinstance(array, Array):
            host = isinstance(array, np.ndarray)
            hint = "pass it as an argument; memory of the thread is tec.local(shape, dtype)" if host else None
            what = "an array of NumPy" if host else describe(array)
            raise self.error(f"{what} is indexed", hint=hint or "arrays and tuples have elements", node=node)
        given = index if isinstance(index, tuple) else (index,)
        if 0 < len(given) < len(array.shape):
            first = self.held(self.indices(array, given, node, partial=True), "row")
            return Array(array.buffer, first, array.is_complex)
        indices = self.indices(array, given, node)
        if array.is_complex:
            return Complex(*[E.BufferLoad(array.buffer, (*indices, E.IntImm(k))) for k in range(2)])
        return E.BufferLoad(array.buffer, indices)

    # ---- structs

    def field(self, records: Records, name: Any, node: ast.AST) -> Any:
        """The array of a field."""
        if not isinstance(name, str) or name not in records.fields:
            raise self.error(
                f"{describe(records)} has no field {name if isinstance(name, str) else describe(name)}",
                hint=f"it has {', '.join(records.fields)}",
                node=node,
            )
        return records.fields[name]

    def record(self, records: Records, index: Any, node: ast.AST) -> Record:
        """`records[index]`, a struct."""
        leaf: Any = records
        while isinstance(leaf, Records):
            leaf = next(iter(leaf.fields.values()))
        given = index if isinstance(index, tuple) else (index,)
        if len(given) != records.ndim:
            raise self.error(
                f"{records.name} has {records.ndim} dimensions, and {len(given)} indices are given", node=node
            )
        return Record(records, self.indices(leaf, given, node, partial=True))

    def field_of(self, record: Record, name: Any, node: ast.AST) -> Any:
        """The field of a struct: a number, a row of numbers, a struct."""
        found = self.field(record.of, name, node)
        return (
            Record(found, record.indices) if isinstance(found, Records) else self.element(found, record.indices, node)
        )

    def indices(self, array: Array, index: Any, node: ast.AST, partial: bool = False) -> tuple[E.Expr, ...]:
        """The indices of an element, checked, with those that the array has already. `partial`: there may be fewer than dimensions."""
        b, shape = array.buffer, array.shape
        given = index if isinstance(index, tuple) else (index,)
        if len(given) != len(shape) and not partial:
            raise self.error(
                f"{b.name} has {len(shape)} dimension{'s'[: len(shape) != 1]}, and {len(given)} "
                f"ind{'ices' if len(given) != 1 else 'ex'} {'are' if len(given) != 1 else 'is'} given",
                hint=f"a kernel stores single elements: {b.name}[i, 0], {b.name}[i, 1] = x, y"
                if len(given) < len(shape)
                else None,
                node=node,
            )
        out = list(array.prefix)
        for k, (i, n) in enumerate(zip(given, shape)):
            i = self.number(i, f"index {k} of {b.name}")
            e = settle(i)
            if not dtype_info(e.dtype).is_int:
                raise self.error(
                    f"index {k} of {b.name} is {e.dtype}", hint="an index is a whole number: int(x)", node=node
                )
            if isinstance(e, E.IntImm) and e.value < 0:
                e = B.add(n, e)
                if isinstance(e, E.IntImm) and e.value < 0:
                    raise self.error(f"index {i} of {b.name}, whose dimension {k} is {n}", node=node)
            elif isinstance(e, E.IntImm) and isinstance(n, E.IntImm) and e.value >= n.value:
                raise self.error(f"index {i} of {b.name}, whose dimension {k} is {n}", node=node)
            if dtype_info(e.dtype).kind == "uint" or dtype_info(e.dtype).bits < 32:
                e = B.cast("int64" if dtype_info(e.dtype).bits >= 32 else "int32", e)
            out.append(e)
        return tuple(out)


def _plain(e: E.Expr) -> Any:
    """A dimension: a Python int where it is constant."""
    return e.value if isinstance(e, E.IntImm) else e
