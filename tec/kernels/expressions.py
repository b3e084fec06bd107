"""Expressions of a kernel: operators, comparisons, conditions that stop early, elements of arrays, names and attributes.

What is known at compile time is computed by Python itself; the rest goes through `tec.ir.build`, whose errors get the user's line.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np

from ..errors import ExprError, KernelError, kind_of
from ..ir import build as B
from ..ir import expr as E
from ..ir import stmt as S
from ..ir.dtype import dtype_info
from . import complexes, elsewhere, language
from .elements import Elements
from .frames import SECRET, may_fault
from .language import Index3
from .source import MISSING, Inner, inner_source
from .tables import MOST_BYTES, is_table, table_of
from .values import (
    Array,
    Complex,
    InnerFunction,
    Record,
    Records,
    Weak,
    describe,
    is_number,
    is_scalar,
    is_storable,
    level,
    merge,
    settle,
    type_of,
    with_elements,
)  # fmt: skip

_OPERATORS: dict[type, tuple[Callable[[Any, Any], Any], Callable[[Any, Any], E.Expr], str]] = {
    ast.Add: (operator.add, B.add, "+"), ast.Sub: (operator.sub, B.sub, "-"), ast.Mult: (operator.mul, B.mul, "*"),
    ast.Div: (operator.truediv, B.truediv, "/"), ast.FloorDiv: (operator.floordiv, B.floordiv, "//"),
    ast.Mod: (operator.mod, B.floormod, "%"), ast.Pow: (operator.pow, B.power, "**"),
    ast.LShift: (operator.lshift, B.left_shift, "<<"), ast.RShift: (operator.rshift, B.right_shift, ">>"),
    ast.BitAnd: (operator.and_, B.bitwise_and, "&"), ast.BitOr: (operator.or_, B.bitwise_or, "|"),
    ast.BitXor: (operator.xor, B.bitwise_xor, "^"),
}  # fmt: skip
_COMPARISONS: dict[type, tuple[str, Callable[[Any, Any], Any]]] = {
    ast.Lt: ("lt", operator.lt), ast.LtE: ("le", operator.le), ast.Gt: ("gt", operator.gt), ast.GtE: ("ge", operator.ge),
    ast.Eq: ("eq", operator.eq), ast.NotEq: ("ne", operator.ne),
}  # fmt: skip
_REFUSED: dict[type, tuple[str, str]] = {
    ast.List: ("a list", "use a tuple for what is known at compile time, tec.local((n,), dtype) for storage"),
    ast.Dict: ("a dict", "use arrays, or constants from outside"),
    ast.Set: ("a set", "use arrays"),
    ast.ListComp: ("a comprehension", "write a loop"),
    ast.SetComp: ("a comprehension", "write a loop"),
    ast.DictComp: ("a comprehension", "write a loop"),
    ast.GeneratorExp: ("a generator", "write a loop"),
    ast.JoinedStr: ("text", "text is for print() and the messages of assert"),
    ast.Await: ("await", "kernels have no coroutines"),
    ast.Yield: ("yield", "kernels return nothing: write to an array"),
    ast.YieldFrom: ("yield", "kernels return nothing: write to an array"),
    ast.NamedExpr: (":=", "assign in a statement of its own"),
    ast.Starred: ("a starred value", "name each element"),
}


class Expressions(Elements):
    """Handlers for expressions; calls are `Calls`', which a subclass brings."""

    output: Any  # records of print and assert
    members: tuple[str, ...] = ()  # what is asked of the name that is read: ("shared", "array") of cuda.shared.array

    def expr(self, node: ast.expr) -> Any:
        """The value of an expression; see `tec.kernels.values`."""
        outer, self.node = self.node, node
        handler = _HANDLERS.get(type(node))
        try:
            if handler is None:
                what, hint = _REFUSED.get(type(node), (type(node).__name__, ""))
                raise self.error(f"{what} is not in the language of kernels", hint=hint or None)
            return handler(self, node)
        except KernelError:
            raise
        except ExprError as e:
            raise self.error(e.message, hint=e.hint, node=node) from None
        finally:
            self.node = outer

    def number(self, v: Any, what: str) -> Any:
        """`v`, if it is a number. Raises KernelError, which calls it `what`, otherwise."""
        if is_scalar(v):
            return v
        hint = f"take an element of it: {v.name}[i]" if isinstance(v, Array) else None
        hint = f"{v!r}.x, or .y or .z" if isinstance(v, Index3) else hint
        if isinstance(v, str):
            hint = 'text is made by the host: print("x is", x), print(f"x is {x:.3f}")'
        raise self.error(f"{what} is {describe(v)}, a number is wanted", hint=hint)

    def as_type(self, v: Any, dtype: str, node: ast.AST) -> E.Expr:
        """A number as a dtype."""
        try:
            if isinstance(v, Weak):
                return B.cast(dtype, v.expr)
            return B.cast(dtype, B.convert(v, dtype))
        except ExprError as e:
            raise self.error(e.message, hint=e.hint, node=node) from None

    # ---- leaves

    def constant(self, node: ast.Constant) -> Any:
        if isinstance(node.value, complex):
            return Complex(node.value.real, node.value.imag)
        if isinstance(node.value, Inner):
            return self._defined(node.value)
        if isinstance(node.value, bytes):
            raise self.error(f"{node.value!r} is not in the language of kernels", hint="text: in print and assert")
        return node.value

    def _defined(self, inner: Inner) -> InnerFunction:
        """A definition within the function: defaults are evaluated here, the body where it is called."""
        a = inner.tree.args
        positional = [*a.posonlyargs, *a.args]
        given = dict(zip([x.arg for x in positional[len(positional) - len(a.defaults) :]], a.defaults))
        given |= {x.arg: d for x, d in zip(a.kwonlyargs, a.kw_defaults) if d is not None}
        defaults = {name: self.held(self.expr(d), name) for name, d in given.items()}
        return InnerFunction(inner_source(inner, self.frame.source), self.frame, defaults)

    def name(self, node: ast.Name) -> Any:
        frame = self.frame
        if node.id in frame.names or (*frame.key, node.id) in self.known.slots or node.id in frame.assigns():
            return self.read(node.id, node)
        if frame.outer is not None:
            self.frame = frame.outer
            try:
                return self.name(node)
            finally:
                self.frame = frame
        v = frame.source.lookup(node.id)
        if v is MISSING:
            return self.missing(node.id)
        frame.source.taken[node.id] = v
        return self.outside(v, node.id)

    def outside(self, v: Any, name: str) -> Any:
        """A Python object from outside of the kernel, as a value."""
        if self.tables is not None and is_table(v):
            if id(v) not in self.tables:
                self.tables[id(v)] = table_of(v, name.rpartition(".")[2])
            return self.tables[id(v)].value
        if isinstance(v, np.ndarray) or type(v).__name__ == "NDArray":
            raise self.error(
                f"{name} is an array from outside of the kernel",
                hint=f"make {name} a parameter and pass it; tables of constants are arrays of NumPy of at most {MOST_BYTES >> 10} KiB",
            )
        if isinstance(v, (list, dict, set)):
            raise self.error(
                f"{name} is {kind_of(v)}, which may change while the kernel stays",
                hint="use a tuple for constants, or an array that is an argument",
            )
        if isinstance(v, tuple):
            return with_elements(v, [self.outside(x, name) for x in v])
        if isinstance(v, (complex, np.complexfloating)):
            return Complex(v.real, v.imag)
        return v

    def tuple_(self, node: ast.Tuple) -> Any:
        return tuple(self.ordered(*[lambda n=n: self.expr(n) for n in node.elts]))

    def attribute(self, node: ast.Attribute) -> Any:
        """The value of `v.name` in a kernel."""
        outer, self.members = self.members, (node.attr, *self.members)
        if not isinstance(node.value, (ast.Name, ast.Attribute)):
            self.members = ()
        v = self.expr(node.value)
        self.members = outer
        if isinstance(v, Index3):
            if node.attr not in "xyz":
                raise self.error(f"{v}.{node.attr}", hint=f"{v}.x, .y and .z")
            return self.launch_number(v, node.attr)
        if isinstance(v, (Array, Records)):
            return self._array_attribute(v, node.attr)
        if isinstance(v, Record):
            return self.field_of(v, node.attr, node)
        if isinstance(v, Complex) or (is_scalar(v) and node.attr in ("real", "imag", "conjugate", "conj")):
            return complexes.attribute(self, v, node.attr)
        if is_scalar(v):
            if node.attr == "dtype":
                return settle(v).dtype
            if node.attr == "astype":
                return AsType(v)
            raise self.error(
                f"a number has no attribute {node.attr} here", hint="x.astype(dtype) and x.dtype are there"
            )
        if isinstance(v, tuple) and node.attr in getattr(v, "_fields", ()):
            return getattr(v, node.attr)
        if isinstance(v, tuple) or v is None:
            raise self.error(f"{describe(v)} has no attribute {node.attr} here")
        found = getattr(v, node.attr, MISSING)
        if found is MISSING:
            name = v.__name__ if isinstance(v, ModuleType) else describe(v)
            of_word = getattr(v, "__name__", "") if callable(v) else ""  # numba's shared.array and atomic.add
            word = f"{of_word}_{node.attr}" if of_word in language.WORDS.values() else node.attr
            hint = elsewhere.here(word)
            if hint and (isinstance(v, ModuleType) or of_word):
                hint += elsewhere.others(self.frame.source.tree, node, v if isinstance(v, ModuleType) else language)
            raise self.error(f"{name} has no {node.attr}", hint=hint or elsewhere.of_module(v, node.attr))
        return self.outside(found, f"{ast.unparse(node)}")

    # ---- operators

    def binary(self, node: ast.BinOp) -> Any:
        a, b = self.ordered(lambda: self.expr(node.left), lambda: self.expr(node.right))
        return self.operate(node.op, a, b, node)

    def operate(self, op: ast.operator, a: Any, b: Any, node: ast.AST) -> Any:
        """`a op b`."""
        if type(op) not in _OPERATORS:
            raise self.error("@ of values", hint="write the product as loops, or use tec.te", node=node)
        plain, build, text = _OPERATORS[type(op)]
        if isinstance(a, tuple) and isinstance(b, tuple) and isinstance(op, ast.Add):
            return a + b
        if isinstance(a, Complex) or isinstance(b, Complex):
            return complexes.operate(self, op, a, b, node)
        self.number(a, f"the left side of {text}")
        self.number(b, f"the right side of {text}")
        if is_number(a) and is_number(b):
            return self.compute(plain, a, b)
        (x, y), weak = level(a, b)
        try:
            if isinstance(op, ast.Pow):
                return self._power(x, y, weak)
            if weak and isinstance(op, ast.Div):
                x, y = B.cast("float64", x), B.cast("float64", y)
            out = build(x, y)
        except ExprError as e:
            hint = e.hint
            if isinstance(op, ast.Div):
                hint = "write // for a whole number, or make one side a float: np.float32(a) / b"
            raise self.error(e.message, hint=hint, node=node) from None
        return Weak(B.cast("float64", out)) if weak else out

    def compute(self, f: Callable[..., Any], *args: Any) -> Any:
        """What Python itself computes."""
        try:
            return f(*args)
        except (ArithmeticError, TypeError, ValueError) as e:
            raise self.error(f"{e}") from None

    def _power(self, x: Any, y: Any, weak: bool) -> Any:
        if isinstance(y, (int, np.integer)) and 0 <= y <= 64:
            base = settle(x)
            if not isinstance(base, (E.Var, E.IntImm)):
                base = self.let("base", base)
            out: E.Expr | None = None
            square = base
            n = int(y)
            while n:
                if n & 1:
                    out = square if out is None else B.mul(out, square)
                n >>= 1
                if n:
                    square = self.let("square", B.mul(square, square))
            result = B.const(1, base.dtype) if out is None else out
            return Weak(result) if weak else result
        a, b = B.match(x, y)
        if not dtype_info(a.dtype).is_float:
            power = f"the power {y}" if isinstance(y, (int, np.integer)) else "a power that is not a constant"
            raise ExprError(f"{a.dtype} to {power}", hint="make it a float: np.float32(x) ** y")
        return Weak(B.power(a, b)) if weak else B.power(a, b)

    def unary(self, node: ast.UnaryOp) -> Any:
        if isinstance(node.op, ast.Not):
            c = self.condition(node.operand)
            return (not c) if isinstance(c, bool) else B.logical_not(c)
        v = self.expr(node.operand)
        if isinstance(v, Complex) and isinstance(node.op, (ast.USub, ast.UAdd)):
            return complexes.negative(self, v) if isinstance(node.op, ast.USub) else v
        v = self.number(v, "the operand")
        if isinstance(node.op, ast.USub):
            return (
                self.compute(operator.neg, v)
                if is_number(v)
                else Weak(B.neg(v.expr))
                if isinstance(v, Weak)
                else B.neg(v)
            )
        if isinstance(node.op, ast.UAdd):
            return v
        if isinstance(v, Weak):
            raise self.error("~ of a float", hint="~ takes integers; not x negates a condition")
        return self.compute(operator.invert, v) if is_number(v) else B.bitwise_not(v)

    # ---- conditions

    def compare(self, node: ast.Compare) -> Any:
        if len(node.ops) == 1:
            return self._compare(
                node.ops[0], *self.ordered(*[lambda n=n: self.expr(n) for n in (node.left, node.comparators[0])])
            )
        result: Any = True
        values = self.ordered(*[lambda n=n: self.expr(n) for n in (node.left, *node.comparators)])
        for op, a, b in zip(node.ops, values, values[1:]):
            one = self._compare(op, a, b)
            if one is False:
                return False
            result = one if result is True else result if one is True else B.logical_and(result, one)
        return result

    def _compare(self, op: ast.cmpop, a: Any, b: Any) -> Any:
        """A comparison of Python's grammar: of numbers at once, of values as an expression."""
        if isinstance(op, (ast.Is, ast.IsNot)):
            if is_number(a) or isinstance(a, E.Expr):
                if b is None:
                    return isinstance(op, ast.IsNot)
                raise self.error("numbers are compared by is", hint="write ==")
            return (a is b) == isinstance(op, ast.Is)
        if isinstance(op, (ast.In, ast.NotIn)):
            if not isinstance(b, tuple):
                raise self.error(f"in {describe(b)}", hint="in takes a tuple: x in (1, 2)")
            parts = [self._compare(ast.Eq(), a, x) for x in b]
            found: Any = any(p is True for p in parts) or B.any_of(*[p for p in parts if not isinstance(p, bool)])
            if isinstance(found, E.IntImm):
                found = bool(found.value)
            if isinstance(op, ast.In):
                return found
            return (not found) if isinstance(found, bool) else B.logical_not(found)
        how, plain = _COMPARISONS[type(op)]
        if isinstance(a, Complex) or isinstance(b, Complex):
            return complexes.compare(self, op, a, b)
        if not (is_scalar(a) and is_scalar(b)):
            if isinstance(a, (Array, E.Expr, Weak)) or isinstance(b, (Array, E.Expr, Weak)):
                raise self.error(f"{describe(a)} is compared with {describe(b)}", hint="compare numbers: x[i] == y[i]")
            return bool(self.compute(plain, a, b))
        if is_number(a) and is_number(b):
            return bool(plain(a, b))
        (x, y), _ = level(a, b)
        out = B.compare(how, *self._exact(x, y))
        return bool(out.value) if isinstance(out, E.IntImm) else out

    def _exact(self, x: Any, y: Any) -> tuple[Any, Any]:
        """Operands of a comparison. A constant that the other side's type cannot hold is compared in a wider one."""
        for c, e in ((x, y), (y, x)):
            if isinstance(c, int) and not isinstance(c, bool) and isinstance(e, E.Expr) and dtype_info(e.dtype).is_int:
                try:
                    B.const(c, dtype_info(e.dtype).element)
                except ExprError:
                    wide = "int64" if dtype_info(e.dtype).bits < 64 else "float64"
                    return (B.cast(wide, B.convert(x, wide)), B.cast(wide, B.convert(y, wide)))
        return x, y

    def condition(self, node: ast.expr) -> Any:
        """An expression as a condition: a Python bool where it is known, else an expression of bool."""
        outer, self.node = self.node, node
        try:
            return self.truth(self.expr(node))
        finally:
            self.node = outer

    def truth(self, v: Any) -> Any:
        if isinstance(v, E.IntImm):
            return bool(v.value)
        if isinstance(v, E.Expr):
            if dtype_info(v.dtype).lanes > 1:
                raise self.error(f"a vector ({v.dtype}) is a condition", hint="test its lanes: v[0] > 0 and v[1] > 0")
            return v if v.dtype == "bool" else B.compare("ne", v, 0)
        if isinstance(v, Weak):
            return B.compare("ne", v.expr, 0.0)
        if isinstance(v, Complex):
            return self.truth(complexes.compare(self, ast.NotEq(), v, 0.0))
        if isinstance(v, (Array, Records, Record)):
            raise self.error(f"{describe(v)} is a condition", hint="test its elements, or its size")
        return bool(v)

    def boolean(self, node: ast.BoolOp) -> Any:
        """`and` and `or`: the right side is evaluated where the left one does not decide."""
        is_and = isinstance(node.op, ast.And)
        first = self.expr(node.values[0])
        result = self.truth(first)
        for n in node.values[1:]:
            if isinstance(result, bool):
                if result != is_and:
                    return result
                result = self.condition(n)
                continue
            result = self._short(is_and, result, n)
        return result

    def _short(self, is_and: bool, left: E.Expr, node: ast.expr) -> Any:
        key = (*self.frame.key, f"{SECRET}either", id(node))
        with self.branch() as items:
            right = self.condition(node)
            if items:
                self.store(key, B.convert(right), node)
        if isinstance(right, bool):
            if right == is_and and not items:
                return left
            if not items:
                return right
        if not items:
            if may_fault(right):
                sides = (right, B.const(False)) if is_and else (B.const(True), right)
                return B.if_then_else(left, *sides)
            return B.logical_and(left, right) if is_and else B.logical_or(left, right)
        self.store(key, left, node)
        self.branch_on(self.load(key) if is_and else B.logical_not(self.load(key)), items, [], node)
        self.effects_so_far += 1
        return self.let("either", self.load(key))

    def choice(self, node: ast.IfExp) -> Any:
        test = self.condition(node.test)
        if isinstance(test, bool):
            return self.expr(node.body if test else node.orelse)
        with self.branch() as yes:
            a = self.expr(node.body)
        with self.branch() as no:
            b = self.expr(node.orelse)
        if (yes or no) and is_storable(a) and is_storable(b):
            return self._chosen_by_statements(test, node)
        return self._selected(test, a, b)

    def _selected(self, test: E.Expr, a: Any, b: Any) -> Any:
        """`a` where the test holds, else `b`."""
        if isinstance(a, Complex) or isinstance(b, Complex):
            x, y = complexes.parts(self, a), complexes.parts(self, b)
            return Complex(*[self._selected(test, p, q) for p, q in zip(x, y)])
        if isinstance(a, tuple) and isinstance(b, tuple) and len(a) == len(b):
            return with_elements(a, [self._selected(test, p, q) for p, q in zip(a, b)])
        self.number(a, "the value of a choice")
        self.number(b, "the value of a choice")
        t, u = type_of(a), type_of(b)
        if merge(t, u) is None and "bool" in (t, u):
            raise self.error(f"a choice between {describe(a)} and {describe(b)}", hint="give both one type")
        if {t, u} <= {"int", "float"} and "float" in (t, u):
            return Weak(
                B.select(
                    test,
                    *[
                        B.cast("float64", v.expr if isinstance(v, Weak) else B.const(float(v), "float64"))
                        for v in (a, b)
                    ],
                )
            )
        (x, y), _ = level(a, b)
        ex, ey = (v for v in B.match(x, y))
        if may_fault(ex) or may_fault(ey):
            return B.if_then_else(test, ex, ey)
        return B.select(test, ex, ey)

    def _chosen_by_statements(self, test: E.Expr, node: ast.IfExp) -> Any:
        """A choice whose sides need statements: a variable that each side sets."""
        key = (*self.frame.key, f"{SECRET}chosen", id(node))
        with self.branch() as yes:
            self.store(key, self.expr(node.body), node)
        with self.branch() as no:
            self.store(key, self.expr(node.orelse), node)
        self.emit(S.IfThenElse(test, self.body(yes), self.body(no), self.where(node)))
        self.effects_so_far += 1
        return self.held(self.value_of(key), "chosen")

    def call(self, node: ast.Call) -> Any:
        return self.called(node)

    # ---- what subclasses bring

    def missing(self, name: str) -> Any:
        """What a name stands for that is neither the function's own nor from outside. Raises KernelError."""
        hint = elsewhere.unknown(name, self.members, self.frame.source.tree)
        if hint and self.members:
            chain = ast.parse(".".join((name, *self.members)), mode="eval").body
            hint += elsewhere.others(self.frame.source.tree, chain)
        raise self.error(f"the name {name} stands for nothing here", hint=hint)

    def called(self, node: ast.Call) -> Any:
        raise NotImplementedError

    def launch_number(self, index: Index3, axis: str) -> Any:
        raise NotImplementedError


class AsType:
    """`x.astype`, before it is called."""

    def __init__(self, value: Any):
        self.value = value


_HANDLERS: dict[type, Any] = {
    ast.Constant: Expressions.constant, ast.Name: Expressions.name, ast.Tuple: Expressions.tuple_, ast.Attribute: Expressions.attribute,
    ast.Subscript: Expressions.subscript, ast.Slice: Expressions.slice_, ast.BinOp: Expressions.binary, ast.UnaryOp: Expressions.unary,
    ast.Compare: Expressions.compare, ast.BoolOp: Expressions.boolean, ast.IfExp: Expressions.choice, ast.Call: Expressions.call,
}  # fmt: skip
