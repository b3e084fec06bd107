"""Elements of arrays, tuples, vectors and structs: what an index and the name of a field stand for."""

from __future__ import annotations

import ast
import os
from typing import Any

import numpy as np

from ..errors import KernelError
from ..ir import build as B
from ..ir import expr as E
from ..ir import stmt as S
from ..ir.dtype import dtype_info
from ..ir.printer import expr_to_text
from ..ir.visit import free_vars
from .frames import State
from .tables import Table
from .values import Array, Complex, Record, Records, Span, describe, settle


class Elements(State):
    """Handlers for subscripts, and for attributes of arrays and structs."""

    expr: Any  # `Expressions`'
    number: Any
    compute: Any
    required: dict[Any, S.Stmt]  # what the sizes of arguments must be, for the whole launch
    tables: dict[int, Table] | None = None  # arrays from outside by their identity; None where there may be none

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
        if isinstance(index, slice) and all(
            b is None or isinstance(b, (int, np.integer)) for b in (index.start, index.stop, index.step)
        ):
            return self.compute(v.__getitem__, index)
        if not isinstance(index, (int, np.integer)):
            raise self.error("a tuple is indexed by what is known at run time", hint="use an array")
        if not -len(v) <= index < len(v):
            raise self.error(
                f"element {index} of a tuple of {len(v)}",
                hint="elements of a tuple are numbered from 0, or from -1 back",
            )
        return v[int(index)]

    def slice_(self, node: ast.Slice) -> slice:
        parts = (node.lower, node.upper, node.step)
        return slice(*self.ordered(*[lambda n=n: None if n is None else self.expr(n) for n in parts]))

    def table_behind(self, array: Array) -> Table | None:
        """The table that an array is, or is a part of."""
        return next((t for t in (self.tables or {}).values() if t.buffer is array.buffer), None)

    def element_of_table(self, array: Array, indices: tuple[E.Expr, ...]) -> Any:
        """The element of a table at an index that is known; None of other arrays and indices, and outside of the table."""
        table = self.table_behind(array)
        if table is None:
            return None
        at = tuple(i for i in map(B.const_value, indices) if isinstance(i, int))
        if len(at) < len(indices) or not all(0 <= i < n for i, n in zip(at, table.elements.shape)):
            return None
        found = table.elements[at]
        return Complex(found.real, found.imag) if array.is_complex else found

    def no_elements(self, v: Any, hint: str, node: ast.AST) -> KernelError:
        """The error for an index of what has no elements in a kernel."""
        if isinstance(v, np.ndarray):
            hint = "pass it as an argument; memory of the thread is tec.local(shape, dtype)"
            return self.error("an array of NumPy is indexed", hint=hint, node=node)
        return self.error(f"{describe(v)} is indexed", hint=hint, node=node)

    def element(self, array: Any, index: Any, node: ast.AST) -> Any:
        """The access `array[index]`; a part of an array (a row of a matrix, a slice) is an array again."""
        if not isinstance(array, Array):
            raise self.no_elements(array, "arrays and tuples have elements", node)
        given = self.spread(array, index)
        if 0 < len(given) < len(array.shape) or any(isinstance(i, slice) for i in given):
            return self.view(array, given, node)
        indices = array.at(self.indices(array, given, node))
        constant = self.element_of_table(array, indices)
        if constant is not None:
            return constant
        if array.is_complex:
            return Complex(*[E.BufferLoad(array.buffer, (*indices, E.IntImm(k))) for k in range(2)])
        return E.BufferLoad(array.buffer, indices)

    # ---- parts of arrays

    def spread(self, array: Array, index: Any) -> tuple[Any, ...]:
        """An index as a tuple, with a whole dimension for each that `...` stands for."""
        given = index if isinstance(index, tuple) else (index,)
        at = [k for k, i in enumerate(given) if i is Ellipsis]
        if len(at) > 1:
            raise self.error("an index with more than one `...`", hint="write one `...`")
        if not at:
            return given
        whole = (slice(None),) * max(0, len(array.shape) - len(given) + 1)
        return (*given[: at[0]], *whole, *given[at[0] + 1 :])

    def view(self, array: Array, given: tuple[Any, ...], node: ast.AST) -> Array:
        """`array[given]`, which has fewer indices than dimensions, or slices among them: the same memory under other indices."""
        if len(given) > len(array.shape):
            self.indices(array, given, node)  # refuses them
        taken = [(self._span if isinstance(i, slice) else self._index)(array, k, i, node) for k, i in enumerate(given)]
        return Array(array.buffer, tuple(self._held_place(array, p) for p in array.at(taken)), array.is_complex)

    def _held_place(self, array: Array, place: Any) -> Any:
        if isinstance(place, Span):
            extent = place.extent if _of_sizes(array, place.extent) else self.held(place.extent, "extent")
            return Span(self.held(place.start, "start"), extent, place.step)
        return self.held(place, "row")

    def _span(self, array: Array, k: int, given: slice, node: ast.AST) -> Span:
        """The places that a slice takes of dimension `k`. A bound that is known at compile time counts from the end where it is negative, as in Python;
        an end that is known at run time alone is cut off at the end of the dimension."""
        n, step = array.shape[k], 1 if given.step is None else given.step
        if not isinstance(step, (int, np.integer)) or isinstance(step, bool) or step == 0:
            raise self.error(
                f"a slice of {array.name} in steps of {describe(step)}",
                hint="a step is a constant, and not 0",
                node=node,
            )
        step = int(step)

        def bound(v: Any) -> E.Expr:
            e = self.index_of(v, f"a bound of a slice of {array.name}", node)
            return B.maximum(B.add(n, e), 0 if step > 0 else -1) if isinstance(e, E.IntImm) and e.value < 0 else e

        if step > 0:
            if given.start is None and given.stop is None and step == 1:
                return Span(B.const(0, n.dtype), n, 1)
            start = B.const(0, n.dtype) if given.start is None else bound(given.start)
            stop = n if given.stop is None else B.minimum(bound(given.stop), n)
            extent = B.sub(stop, start)
        else:
            start = B.sub(n, 1) if given.start is None else B.minimum(bound(given.start), B.sub(n, 1))
            extent = B.sub(start, -1 if given.stop is None else bound(given.stop))
        size = abs(step)
        if size > 1:
            extent = B.floordiv(B.add(extent, size - 1), B.const(size, extent.dtype))
        return Span(start, B.maximum(extent, 0), step)

    def elements_of(self, array: Array, n: int, node: ast.AST) -> tuple[Any, ...]:
        """The `n` elements (or rows) of an array that is taken apart."""
        self.agree(array, n, node)
        return tuple(self.element(array, k, node) for k in range(n))

    def agree(self, array: Array, n: int, node: ast.AST) -> None:
        """That the first dimension has `n` elements: an error now where it is known not to, and one of the launch where the size comes with an argument."""
        have = array.shape[0]
        if isinstance(have, E.IntImm):
            if have.value != n:
                raise self.error(
                    f"{n} values for {have.value} elements of {array.name}",
                    node=node,
                    hint="as many values as elements",
                )
        elif _of_sizes(array, have):
            text = f"{array.name} must have {n} elements along this dimension, one for each of the values that it gives or takes"
            self._require(have, B.const(n, have.dtype), text, node)

    def agree_with(self, array: Array, other: Array, node: ast.AST) -> None:
        """As `agree`, of each dimension of two arrays."""
        for n, m in zip(array.shape, other.shape):
            if isinstance(n, E.IntImm) and isinstance(m, E.IntImm):
                if n.value != m.value:
                    raise self.error(
                        f"{m.value} elements are stored to {n.value} of {array.name}",
                        node=node,
                        hint="as many elements on both sides",
                    )
            elif _of_sizes(array, n) and _of_sizes(other, m):
                self._require(n, m, f"{other.name} must have as many elements as {array.name} takes of it", node)

    def _require(self, have: E.Expr, want: E.Expr, text: str, node: ast.AST) -> None:
        """An error of the launch where two extents that are known then differ."""
        loc = self.where(node)
        line = f" ({os.path.basename(loc[0])}:{loc[1]})" if loc else ""
        key = (line, expr_to_text(have), expr_to_text(want))
        self.required.setdefault(key, S.Assert(B.compare("eq", have, want), text + line))

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
                f"{records.name} has {records.ndim} dimensions, and {len(given)} indices are given",
                node=node,
                hint="give an index for each dimension",
            )
        return Record(records, tuple(self._index(leaf, k, i, node) for k, i in enumerate(given)))

    def field_of(self, record: Record, name: Any, node: ast.AST) -> Any:
        """The field of a struct: a number, a row of numbers, a struct."""
        found = self.field(record.of, name, node)
        return (
            Record(found, record.indices) if isinstance(found, Records) else self.element(found, record.indices, node)
        )

    def indices(self, array: Array, index: Any, node: ast.AST) -> tuple[E.Expr, ...]:
        """The indices of an element, checked."""
        b, shape = array.buffer, array.shape
        given = index if isinstance(index, tuple) else (index,)
        if len(given) != len(shape):
            raise self.error(
                f"{b.name} has {len(shape)} dimension{'s'[: len(shape) != 1]}, and {len(given)} "
                f"ind{'ices' if len(given) != 1 else 'ex'} {'are' if len(given) != 1 else 'is'} given",
                hint=f"{b.name}[i, 0], {b.name}[i, 1] = x, y stores elements; {b.name}[i, :] = x stores all of a row"
                if len(given) < len(shape)
                else f"an index for each dimension: {b.name}[{', '.join('ijkl'[: len(shape)])}]",
                node=node,
            )
        return tuple(self._index(array, k, i, node) for k, i in enumerate(given))

    def _index(self, array: Array, k: int, i: Any, node: ast.AST) -> E.Expr:
        """An index of dimension `k`; a constant one counts from the end where it is negative."""
        n = array.shape[k]
        e = self.index_of(i, f"index {k} of {array.name}", node)
        if not isinstance(e, E.IntImm):
            return e
        at = B.add(n, e) if e.value < 0 else e
        if isinstance(at, E.IntImm) and (at.value < 0 or (isinstance(n, E.IntImm) and at.value >= n.value)):
            raise self.error(
                f"index {i} of {array.name}, whose dimension {k} is {n}",
                node=node,
                hint="indices run from 0 to the extent less 1",
            )
        return at

    def index_of(self, v: Any, what: str, node: ast.AST) -> E.Expr:
        """A number that counts elements: a signed integer of 32 or 64 bits."""
        e = settle(self.number(v, what))
        info = dtype_info(e.dtype)
        if not info.is_int:
            raise self.error(f"{what} is {e.dtype}", hint="an index is a whole number: int(x)", node=node)
        if info.kind == "uint" or info.bits < 32:
            e = B.cast("int64" if info.bits >= 32 else "int32", e)
        return e


def _plain(e: E.Expr) -> Any:
    """A dimension: a Python int where it is constant."""
    return e.value if isinstance(e, E.IntImm) else e


def _of_sizes(array: Array, e: E.Expr) -> bool:
    """Whether an extent is made of the sizes of the array alone, which are known when a kernel is launched."""
    sizes = {id(v) for d in array.buffer.shape for v in free_vars(d)}
    return all(id(v) in sizes for v in free_vars(e))
