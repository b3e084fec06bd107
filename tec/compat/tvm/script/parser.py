"""Reads a function of TVMScript: its statements go to an `ir_builder`, its expressions are evaluated as Python over loop IR.

What a call of another function of the module stands for is its body. Blocks say which loop is which axis: their axes are
names of values, and `init` is a condition on the reduction axes.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from types import CodeType, FunctionType, SimpleNamespace
from typing import Any

from tec import ir
from tec.errors import ExprError, Loc
from tec.ir import build as B
from tec.ir import stmt as S
from tec.ir.blocks import close
from tec.kernels.source import MISSING, source_of
from tec.te.ir_builder import BufferVar, IRBuilder

from ..tir import op
from ..tir.buffer import decl_buffer
from ..tir.function import HandMade
from ..tir.nodes import _for, _select, _var
from . import words as T

_FIT = "assignments, for, while, if, with, assert, return, and calls"


@dataclass
class Unread:
    """A function of TVMScript before its text is read."""

    function: FunctionType

    def read(self, here: dict[str, Any]) -> HandMade:
        """The function; here: names of the module that it is in."""
        builder = IRBuilder()
        reader = Reader(self.function, here, builder)
        return reader.whole()


class _Python(ast.NodeTransformer):
    """Python's `and`, `or`, `not`, `a < b < c`, `a if c else b` and indexing as calls, which loop IR can answer."""

    def _call(self, name: str, at: ast.AST, *args: ast.expr) -> ast.expr:
        return ast.copy_location(ast.Call(ast.Name(f"__{name}", ast.Load()), list(args), []), at)

    def visit_BoolOp(self, node: ast.BoolOp) -> ast.expr:
        self.generic_visit(node)
        return self._call("all" if isinstance(node.op, ast.And) else "any", node, *node.values)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.expr:
        self.generic_visit(node)
        return self._call("not", node, node.operand) if isinstance(node.op, ast.Not) else node

    def visit_Compare(self, node: ast.Compare) -> ast.expr:
        self.generic_visit(node)
        if len(node.ops) == 1:
            return node
        sides = [node.left, *node.comparators]
        pairs = [ast.copy_location(ast.Compare(a, [o], [b]), node) for a, o, b in zip(sides, node.ops, sides[1:])]
        return self._call("all", node, *pairs)

    def visit_IfExp(self, node: ast.IfExp) -> ast.expr:
        self.generic_visit(node)
        return self._call("if", node, node.test, node.body, node.orelse)

    def visit_Slice(self, node: ast.Slice) -> ast.expr:
        self.generic_visit(node)
        none = ast.copy_location(ast.Constant(None), node.lower or node.upper or node.step or node)
        return ast.copy_location(
            ast.Call(ast.Name("slice", ast.Load()), [node.lower or none, node.upper or none, node.step or none], []),
            none,
        )

    def visit_Subscript(self, node: ast.Subscript) -> ast.expr:
        self.generic_visit(node)
        return self._call("at", node, node.value, node.slice)


def _all(*conditions: Any) -> Any:
    return op.all(*map(B.as_bool, map(B.convert, conditions)))


def _any(*conditions: Any) -> Any:
    return op.any(*map(B.as_bool, map(B.convert, conditions)))


def _not(x: Any) -> Any:
    return B.logical_not(B.as_bool(x)) if isinstance(x, ir.Expr) else not x


class Reader:
    """Reads one function; arguments: what its parameters are where it is called by another one."""

    def __init__(
        self, function: FunctionType, here: dict[str, Any], builder: IRBuilder, arguments: Sequence[Any] | None = None
    ):
        self.source = source_of(function)
        self.here, self.builder, self.arguments = here, builder, arguments
        self.names: dict[str, Any] = {}
        self.params: list[Any] = []
        self.attrs: dict[str, Any] = {"global_symbol": function.__name__}
        self.blocks: list[T.Block] = []

    # ---- the function

    def whole(self) -> HandMade:
        """The function on its own."""
        self._read()
        body = self.builder.get()
        return HandMade([p.buffer if isinstance(p, _Place) else p for p in self.params], body, attrs=self.attrs)

    def _read(self) -> None:
        tree = self.source.tree
        assert isinstance(tree, ast.FunctionDef)
        said = self.source.function.__annotations__
        for k, arg in enumerate(tree.args.args):
            kind = said.get(arg.arg, MISSING)
            if isinstance(kind, str) and not isinstance(kind, T.Dtype) and arg.annotation is not None:
                kind = self._value(arg.annotation)
            self.names[arg.arg] = self._param(arg, kind, None if self.arguments is None else self.arguments[k])
        for statement in tree.body:
            self._statement(statement)

    def _param(self, arg: ast.arg, kind: Any, given: Any) -> Any:
        if given is not None and not isinstance(kind, T.Declared):
            return given
        if isinstance(kind, T.Declared):
            kind.data = given
            return self._buffer(kind, arg.arg) if given is None else self._view(kind, given)
        if kind == "handle":
            kind = T.Pointer()
        if isinstance(kind, T.Pointer):
            place = _Place(kind.dtype)
            self.params.append(place)
            return place
        if not isinstance(kind, str):
            raise self._error(arg, f"parameter {arg.arg} has no type", "T.Buffer(shape, dtype), T.int32, T.handle")
        made = _var(arg.arg, kind)
        self.params.append(made)
        return made

    def _error(self, node: ast.AST, message: str, hint: str) -> ExprError:
        return ExprError(message, where=Loc(self.source.file, getattr(node, "lineno", 0)), hint=hint)

    # ---- buffers

    def _buffer(self, said: T.Declared, name: str) -> Any:
        if not said.parameter:
            return self.builder.allocate(said.dtype, said.shape, name, said.scope)
        if said.data is not None and not (isinstance(said.data, _Place) and said.data.buffer is None):
            return self._view(said, said.data)
        named = {k: v for k, v in said.options.items() if v is not None}
        made = BufferVar(self.builder, decl_buffer(said.shape, said.dtype, name, scope=said.scope, **named))
        if isinstance(said.data, _Place):
            said.data.buffer = made
        else:
            self.params.append(made)
        return made

    def _view(self, said: T.Declared, data: Any) -> Any:
        """The memory of another buffer in another shape."""
        whole = data.buffer if isinstance(data, _Place) else data
        if isinstance(whole, ir.Buffer):
            whole = BufferVar(self.builder, whole)
        if not isinstance(whole, BufferVar):
            raise ExprError(f"a buffer over {data!r}", hint="data=A.data of a buffer A, or a parameter T.handle")
        if whole.dtype != said.dtype:
            raise ExprError(f"a view of {whole.dtype} as {said.dtype}", hint="T.reinterpret converts the elements")
        return _View(self.builder, whole.buffer, said.shape)

    # ---- expressions

    def _value(self, node: ast.expr) -> Any:
        tree = ast.fix_missing_locations(ast.Expression(_Python().visit(node)))
        code = compile(tree, self.source.file, "eval")  # errors then name the line of the script
        return eval(code, self._space(code))

    def _space(self, code: CodeType) -> dict[str, Any]:
        space: dict[str, Any] = {
            "__all": _all, "__any": _any, "__not": _not, "__at": _at, "__if": lambda c, a, b: _select(c, a, b),
        }  # fmt: skip
        for name in code.co_names:
            found = self.names.get(name, self.here.get(name, MISSING))
            found = T.serial if found is MISSING and name == "range" else found
            found = self.source.lookup(name) if found is MISSING else found
            if found is not MISSING:
                space[name] = found
        return space

    # ---- statements

    def _statement(self, node: ast.stmt) -> None:
        read = getattr(self, f"_read_{type(node).__name__}", None)
        if read is None:
            raise self._error(node, f"TVMScript has no {type(node).__name__} here", _FIT)
        read(node)

    def _inside(self, body: Sequence[ast.stmt]) -> S.Stmt:
        """Statements as a block of their own: what they allocate and name ends with them."""
        kept = dict(self.names)
        with self.builder._block() as block:
            for statement in body:
                self._statement(statement)
        self.names = kept
        return close(block)

    def _read_Pass(self, node: ast.Pass) -> None:
        pass

    def _read_Expr(self, node: ast.Expr) -> None:
        if isinstance(node.value, ast.Constant):
            return
        call = node.value
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute):
            callee = self._value(call.func)
            if isinstance(callee, Unread):
                args = [self._value(a) for a in call.args]
                body = Reader(callee.function, self.here, self.builder, args)
                body._read()
                return
            if callee is T.assume:
                return
        made = self._value(node.value)
        if isinstance(made, dict):
            self.attrs.update(made)
        elif made is not None:
            self.builder.emit(made)

    def _read_Assign(self, node: ast.Assign) -> None:
        if len(node.targets) != 1:
            raise self._error(node, "an assignment to several targets", "one assignment for each")
        (target,) = node.targets
        value = self._value(node.value)
        if isinstance(target, ast.Subscript):
            self._value(target.value)[_index(self._value(target.slice))] = value
            return
        if isinstance(value, T.Axis):
            names = target.elts if isinstance(target, ast.Tuple) else [target]
            self._axes([n.id for n in names if isinstance(n, ast.Name)], value)
            return
        if not isinstance(target, ast.Name):
            raise self._error(node, f"an assignment to {ast.unparse(target)}", "a name, or an element of a buffer")
        self.names[target.id] = self._named(target.id, value)

    def _named(self, name: str, value: Any) -> Any:
        if isinstance(value, T.Unnamed):
            return _var(name, value.dtype)
        if isinstance(value, T.Declared):
            return self._buffer(value, name)
        if isinstance(value, (ir.Expr, int, float)) and not isinstance(value, ir.Var):
            return self.builder.let(name, value)
        return value

    def _axes(self, names: Sequence[str], axes: T.Axis) -> None:
        for name, value, kind, begin in zip(names, axes.values, axes.kinds, axes.begins):
            self.names[name] = value
            if kind == "R" and self.blocks:
                self.blocks[-1].reduces.append(B.compare("eq", value, begin))

    def _read_AnnAssign(self, node: ast.AnnAssign) -> None:
        if not isinstance(node.target, ast.Name) or node.value is None:
            raise self._error(node, f"a declaration {ast.unparse(node)}", "x: T.int32 = value")
        kind = str(self._value(node.annotation))
        self.names[node.target.id] = self.builder.let(node.target.id, B.cast(kind, B.convert(self._value(node.value))))

    def _read_AugAssign(self, node: ast.AugAssign) -> None:
        if not isinstance(node.target, ast.Subscript):
            raise self._error(node, f"{ast.unparse(node)}: a name keeps its value", "an element of a buffer: x[0] += v")
        load = ast.copy_location(ast.Subscript(node.target.value, node.target.slice, ast.Load()), node)
        whole = ast.copy_location(ast.BinOp(load, node.op, node.value), node)
        self._read_Assign(ast.copy_location(ast.Assign([node.target], whole), node))

    def _read_For(self, node: ast.For) -> None:
        loops = self._value(node.iter)
        if not isinstance(loops, T.Loops):
            raise self._error(
                node, f"a loop over {ast.unparse(node.iter)}", "range, T.grid, T.serial, T.parallel, T.thread_binding"
            )
        targets = node.target.elts if isinstance(node.target, ast.Tuple) else [node.target]
        names = [t.id for t in targets if isinstance(t, ast.Name)]
        if len(names) != len(loops.bounds):
            raise self._error(node, f"{len(names)} names for {len(loops.bounds)} loops", "a name for each extent")
        made = []
        for name, (begin, end) in zip(names, loops.bounds):
            low, high = B.match(B.convert(begin), B.convert(end))
            self.names[name] = _var(name, high.dtype)
            made.append((self.names[name], low, B.sub(high, low)))
        body = self._inside(node.body)
        thread = SimpleNamespace(thread_tag=loops.thread)
        for loop_var, low, extent in reversed(made):
            body = _for(loop_var, low, extent, loops.kind, body, thread)
        self.builder.emit(body)

    def _read_While(self, node: ast.While) -> None:
        self.builder.emit(S.While(B.as_bool(self._value(node.test)), self._inside(node.body)))

    def _read_If(self, node: ast.If) -> None:
        condition = self._value(node.test)
        if isinstance(condition, bool):
            for statement in node.body if condition else node.orelse:
                self._statement(statement)
            return
        orelse = self._inside(node.orelse) if node.orelse else None
        self.builder.emit(S.IfThenElse(B.as_bool(condition), self._inside(node.body), orelse))

    def _read_Assert(self, node: ast.Assert) -> None:
        said = "" if node.msg is None else str(self._value(node.msg))
        self.builder.assert_(B.as_bool(self._value(node.test)), said)

    def _read_Return(self, node: ast.Return) -> None:
        if node.value is not None:
            self.builder.emit(S.Evaluate(op.ret(self._value(node.value))))

    def _read_With(self, node: ast.With) -> None:
        with ExitStack() as ends:
            for item in node.items:
                what = self._value(item.context_expr)
                if isinstance(what, T.Block):
                    self.blocks.append(what)
                    ends.callback(self.blocks.pop)
                elif isinstance(what, T.Init) and self.blocks:
                    first = self.blocks[-1].reduces
                    body = self._inside(node.body)
                    self.builder.emit(S.IfThenElse(_all(*first), body) if first else body)
                    return
                elif isinstance(what, T.Declared) and isinstance(item.optional_vars, ast.Name):
                    self.names[item.optional_vars.id] = self._buffer(what, item.optional_vars.id)
                else:
                    raise self._error(node, f"with {ast.unparse(item.context_expr)}", "T.block, T.init, T.decl_buffer")
            self.builder.emit(self._inside(node.body))


@dataclass
class _Place(T.Pointer):
    """A parameter that is a pointer, and the buffer that is over it."""

    buffer: Any = None


class _View(BufferVar):
    """The memory of a buffer in another shape."""

    def __init__(self, builder: IRBuilder, buffer: ir.Buffer, shape: Sequence[Any]):
        super().__init__(builder, buffer)
        self._own = tuple(map(B.convert, shape))

    @property
    def shape(self) -> tuple[ir.Expr, ...]:
        """Its own extents."""
        return self._own

    def _indices(self, index: Any) -> tuple[ir.Expr, ...]:
        given = [B.convert(i) for i in (index if isinstance(index, (tuple, list)) else (index,))]
        if len(given) != len(self._own):
            raise ExprError(
                f"a view of {len(self._own)} dimensions, indexed with {len(given)}",
                hint="an index for each dimension of the view",
            )
        flat: ir.Expr = B.const(0)
        for i, n in zip(given, self._own):
            flat = B.add(B.mul(flat, n), i)
        return super()._indices(flat)


def _index(index: Any) -> Any:
    return index if isinstance(index, tuple) else (index,)


def _at(base: Any, index: Any) -> Any:
    return base[_index(index)] if isinstance(base, BufferVar) else base[index]
