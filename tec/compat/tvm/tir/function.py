"""tvm.tir.PrimFunc: a function of loop IR, also one that gives a value (`Evaluate(ret(x))`)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tec
from tec import ir
from tec.errors import ArgumentError
from tec.ir import build as B
from tec.ir import stmt as S
from tec.ir.expr import Call, Var
from tec.ir.spelling import accept
from tec.ir.visit import visit
from tec.te.ir_builder import BufferVar

from .nodes import plain


class _FuncClass(type):
    def __instancecheck__(cls, x: Any) -> bool:
        return isinstance(x, ir.Func)


class HandMade(ir.Func):
    """A function put together by hand: parameters (variables, buffers, pointers of an ir_builder), and a body."""

    __slots__ = ("returns",)

    def __init__(
        self,
        params: Sequence[Any],
        body: Any,
        ret_type: Any = None,
        buffer_map: Any = None,
        attrs: Any = None,
        span: Any = None,
    ):
        given = dict(attrs or {})
        found = [_param(p, buffer_map or {}) for p in params]
        self.returns = _returned(body)
        super().__init__(str(given.get("global_symbol", "main")), tuple(found), body, given)

    def with_attr(self, attr: Any, value: Any = None) -> HandMade:
        """The same function with more attributes; `global_symbol` is its name."""
        more = attr if isinstance(attr, dict) else {attr: value}
        more = {k: B.const(v) if isinstance(v, (bool, int, float)) else v for k, v in more.items()}
        return HandMade(self.params, self.body, attrs={**self.attrs, **more})

    def built(self, target: Any = None) -> Any:
        """What runs it: a module, or a function that gives its value."""
        if self.returns is None:
            return tec.build(self.plain(), None, target)
        out = ir.Buffer("returned", self.returns, (B.const(1),))
        body = _stored(plain(self.body), out, None)
        return Returning(tec.build(ir.Func(self.name, (*self.params, out), body), None, target), self.returns)

    def plain(self) -> ir.Func:
        """As tec's own class, without TVM's attributes."""
        return ir.Func(self.name, self.params, plain(self.body))


class PrimFunc(metaclass=_FuncClass):
    """TVM's PrimFunc: tec's Func."""

    def __new__(cls, *args: Any, **named: Any) -> Any:
        return HandMade(*args, **named)


class Returning:
    """A compiled function that gives a value."""

    def __init__(self, module: Any, dtype: str):
        self.module, self.dtype = module, dtype

    def __call__(self, *args: Any) -> Any:
        out = tec.nd.zeros((1,), self.dtype)
        self.module(*args, out)
        return out.numpy()[0].item()

    def __getitem__(self, name: str) -> Returning:
        return self

    def __getattr__(self, name: str) -> Any:
        return getattr(self.module, name)


def _param(p: Any, buffer_map: dict[Any, Any]) -> Any:
    for key, buffer in buffer_map.items():
        if key is p:
            return buffer
    if isinstance(p, BufferVar):
        return p.buffer
    if isinstance(p, (ir.Buffer, Var)):
        return p
    raise ArgumentError(f"{p!r} as a parameter", hint="variables, buffers, or pointers of an ir_builder")


def _is_ret(s: Any) -> bool:
    return isinstance(s, S.Evaluate) and isinstance(s.value, Call) and s.value.op == "ret"


def _returned(body: Any) -> str | None:
    found: list[str] = []
    visit(body, None, lambda s: found.append(s.value.dtype) if isinstance(s, S.Evaluate) and _is_ret(s) else None)
    return found[0] if found else None


def _ends(s: S.Stmt) -> bool:
    """Whether a statement always returns."""
    if isinstance(s, S.Seq):
        return any(_ends(x) for x in s.stmts)
    if isinstance(s, S.IfThenElse):
        return _ends(s.then) and s.orelse is not None and _ends(s.orelse)
    return _is_ret(s)


def _stored(s: S.Stmt, out: ir.Buffer, rest: S.Stmt | None) -> S.Stmt:
    """`s` and then `rest`, each `ret` a store to `out` behind which nothing runs."""
    match s:
        case S.Evaluate(value=Call(op="ret", args=(value,))):
            return S.BufferStore(out, B.cast(out.dtype, value), (B.const(0),))
        case S.Seq():
            made = rest
            for x in reversed(s.stmts):
                made = _stored(x, out, made)
            return made if made is not None else S.NOP
        case S.IfThenElse() if _returned(s) is not None:
            then = _stored(s.then, out, rest)
            orelse = _stored(s.orelse, out, rest) if s.orelse is not None else rest
            return S.IfThenElse(s.cond, then, orelse)
        case S.LetStmt() if _returned(s) is not None:
            return S.LetStmt(s.var, s.value, _stored(s.body, out, rest))
        case _ if _returned(s) is not None:
            raise ArgumentError(f"ret inside of {type(s).__name__}", hint="return behind the loop, from a buffer")
    return S.seq(s, rest)


def functions_of(given: Any) -> Any:
    """A function, a list or a module with TVM's functions as tec's; one that returns a value stays."""
    if isinstance(given, HandMade):
        return given if given.returns is not None else given.plain()
    if isinstance(given, ir.IRModule):
        made = {name: functions_of(_renamed(f, name)) for name, f in given.functions.items()}
        return ir.IRModule(made)
    if isinstance(given, (list, tuple)):
        return [functions_of(f) for f in given]
    return given


def _renamed(f: ir.Func, name: str) -> ir.Func:
    if f.name == name or not isinstance(f, HandMade):
        return f
    return f.with_attr("global_symbol", name)


accept(
    ir.Func,
    {
        "buffer_map": lambda f: {p: p for p in f.params if isinstance(p, ir.Buffer)},
        "with_attr": lambda f: lambda key, value=None: f.with_attrs(**(key if isinstance(key, dict) else {key: value})),
    },
)
