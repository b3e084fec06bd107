"""Text of expressions, statements and functions: Python syntax. The tests read it back exactly.

    @attrs(noalias=True)
    def add(A: Buffer((n, 64), "float32"), C: Buffer((n, 64), "float32"), *, n: size("int32")):
        for bx in thread("blockIdx.x", n):
            for i in range(64):
                acc = alloc((1,), "float32", scope="local")
                acc[0] = A[bx, i] * 2.0
                C[bx, i] = acc[0]

Parameters after `*` are the implicit ones (bound from shapes). A line `x = alloc(...)` or `x: int32 = e` holds for the
rest of its block; where the scope ends earlier it is written `with alloc(...) as x:`. A constant is written bare where
its dtype is that of the other operand (or of the buffer stored to), and otherwise where it is int32 or float32;
`int64(1)` is a constant, `int64(x)` a Cast. Names are made unique and turned into identifiers (`i.outer` -> `i_outer`).
"""

from __future__ import annotations

import keyword
import math
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import fields
from typing import Any

import numpy as np

from . import expr as E
from . import stmt as S
from .buffer import GLOBAL, Buffer
from .dtype import dtype_info
from .func import Func
from .intrin import result_dtype
from .schema import EXPRS, FIELDS
from .visit import CHILDREN, LEAVES, deep_recursion, read_twice, walk_exprs

# Operators: text, precedence (Python's).
_INFIX: dict[type, tuple[str, int]] = {
    E.Or: ("or", 1), E.And: ("and", 2), E.EQ: ("==", 4), E.NE: ("!=", 4), E.LT: ("<", 4), E.LE: ("<=", 4),
    E.GT: (">", 4), E.GE: (">=", 4), E.Add: ("+", 9), E.Sub: ("-", 9), E.Mul: ("*", 10), E.FloorDiv: ("//", 10),
    E.FloorMod: ("%", 10),
}  # fmt: skip
_NAMED: dict[type, str] = {E.Min: "min", E.Max: "max", E.Mod: "truncmod"}
_ATOM = 20
LOOP_WORDS = {
    S.ForKind.SERIAL: "range",
    S.ForKind.PARALLEL: "parallel",
    S.ForKind.VECTORIZED: "vectorized",
    S.ForKind.UNROLLED: "unrolled",
}
# Attrs of a Func that the text leaves out: places in the user's program, and what is written as statements.
_HIDDEN_ATTRS = ("loc", "threads", "lowered_from", "unproved")


def float_text(value: float, dtype: str) -> str:
    """The shortest decimal that rounds to `value` in `dtype`; "inf", "-inf" or "nan" otherwise."""
    if math.isnan(value):
        return "nan"
    if math.isinf(value):
        return "inf" if value > 0 else "-inf"
    if dtype == "float16":
        text = str(np.float16(value))
    elif dtype in ("float32", "bfloat16"):
        text = str(np.float32(value))
    else:
        text = repr(value)
    return text if any(c in text for c in ".e") else text + ".0"


def is_literal(e: E.Expr) -> bool:
    """Whether `e` is written as a number."""
    return type(e) is E.FloatImm or (type(e) is E.IntImm and e.dtype != "bool")


class _Names:
    """Unique identifiers for variables and buffers, by identity."""

    def __init__(self) -> None:
        self.by_id: dict[int, str] = {}
        self.used: set[str] = set()
        self.keep: list[object] = []
        self.data_of: dict[int, Buffer] = {}  # data pointer -> the buffer whose `.data` it is

    def of(self, thing: Any) -> str:
        name = self.by_id.get(id(thing))
        if name is None:
            base = re.sub(r"\W+", "_", thing.name) or "v"
            if not base.isidentifier() or keyword.iskeyword(base):
                base = "v" + base if not base[0].isalpha() else base + "_"
            name, n = base, 0
            while name in self.used:
                n += 1
                name = f"{base}_{n}"
            self.used.add(name)
            self.by_id[id(thing)] = name
            self.keep.append(thing)
        return name

    def known(self, thing: object) -> bool:
        return id(thing) in self.by_id


class Printer:
    """Writes text; one object for one function, so that names stay unique in it."""

    def __init__(self) -> None:
        self.names = _Names()
        self.lines: list[str] = []
        self.places: dict[int, int] = {}  # the number of each statement's first line, by its `id`
        self.whole_function = False
        # Texts of the nodes that several others of an expression read, by `id` and the dtype expected there: a gradient's definition has thousands of
        # nodes and millions of paths to them.
        self._shared: dict[int, dict[str | None, tuple[str, int]]] | None = None

    # ---- expressions

    def expr(self, e: E.Expr, expect: str | None = None, level: int = 0) -> str:
        """`e`, in parentheses where its operator binds less tightly than `level`."""
        if type(e) in LEAVES:
            text, prec = self._expr(e, expect)
        elif self._shared is None:  # the outermost
            self._shared = {i: {} for i in read_twice(e)}
            try:
                text, prec = self._expr(e, expect)
            finally:
                self._shared = None
        elif id(e) in self._shared:
            texts = self._shared[id(e)]
            if expect not in texts:
                texts[expect] = self._expr(e, expect)
            text, prec = texts[expect]
        else:
            text, prec = self._expr(e, expect)
        return f"({text})" if prec < level else text

    def _literal(self, e: E.IntImm | E.FloatImm, expect: str | None) -> str:
        if isinstance(e, E.IntImm):
            if e.dtype == "bool":
                return str(bool(e.value))
            text, default = str(e.value), "int32"
        else:
            text, default = float_text(e.value, e.dtype), "float32"
            if text.endswith(("inf", "nan")):
                return f'{e.dtype}("{text}")'
        return text if e.dtype == (expect or default) else f"{e.dtype}({text})"

    def _pair(self, a: E.Expr, b: E.Expr) -> tuple[str | None, str | None]:
        """The dtype to expect of a bare constant on either side."""
        la, lb = is_literal(a), is_literal(b)
        return (b.dtype if la and not lb else None), (a.dtype if lb and not la else None)

    def _expr(self, e: E.Expr, expect: str | None = None) -> tuple[str, int]:
        t = type(e)
        if t is E.Var:
            owner = self.names.data_of.get(id(e))
            return (f"{self.names.of(owner)}.data" if owner is not None else self.names.of(e)), _ATOM
        if t is E.IntImm or t is E.FloatImm:
            return self._literal(e, expect), _ATOM  # type: ignore[arg-type]
        if t in _INFIX or (t is E.Div and dtype_info(e.dtype).is_float):
            op, prec = _INFIX.get(t, ("/", 10))
            xa, xb = self._pair(e.a, e.b)  # type: ignore[attr-defined]
            left = prec + 1 if prec == 4 else prec  # comparisons would chain
            return f"{self.expr(e.a, xa, left)} {op} {self.expr(e.b, xb, prec + 1)}", prec  # type: ignore[attr-defined]
        if t is E.Not:
            return f"not {self.expr(e.a, None, 3)}", 3  # type: ignore[attr-defined]
        if t in _NAMED or t is E.Div:
            xa, xb = self._pair(e.a, e.b)  # type: ignore[attr-defined]
            return f"{_NAMED.get(t, 'truncdiv')}({self.expr(e.a, xa)}, {self.expr(e.b, xb)})", _ATOM  # type: ignore[attr-defined]
        return self._other(e)

    def _other(self, e: E.Expr) -> tuple[str, int]:
        handler = _EXPRS.get(type(e))
        return (handler(self, e) if handler is not None else self._by_fields(e)), _ATOM

    def _by_fields(self, e: E.Expr) -> str:
        """A node without a syntax of its own: its name, and its fields in order."""
        if not isinstance(e, E.Expr):
            raise TypeError(f"not an expression: {type(e).__name__}")
        parts = [
            (self.exprs if f.how == "many" else self.expr)(getattr(e, f.name))
            if f.holds == "expr"
            else repr(getattr(e, f.name))
            for f in FIELDS[type(e)]
        ]
        return f"{type(e).__name__.lower()}({', '.join(parts)})"

    def _select(self, e: E.Select) -> str:
        xa, xb = self._pair(e.a, e.b)
        return f"select({self.expr(e.cond)}, {self.expr(e.a, xa)}, {self.expr(e.b, xb)})"

    def _cast(self, e: E.Cast) -> str:
        if isinstance(e.value, (E.IntImm, E.FloatImm)):
            return f'cast("{e.dtype}", {self.expr(e.value)})'
        return f"{e.dtype}({self.expr(e.value)})"

    def _let(self, e: E.Let) -> str:
        value = self.expr(e.value)
        var = self.names.of(e.var)
        note = f', dtype="{e.var.dtype}"' if e.var.dtype != e.value.dtype else ""
        return f"let({var} := {value}, {self.expr(e.body)}{note})"

    def _load(self, e: E.BufferLoad) -> str:
        text = self.access(e.buffer, e.indices)
        return text if e.predicate is None else f"load({text}, {self.expr(e.predicate)})"

    def _tensor_read(self, e: E.TensorRead) -> str:
        return f"{_tensor_name(e.tensor)}[{', '.join(self.expr(i) for i in e.indices) or '()'}]"

    def _call(self, e: E.Call) -> str:
        if e.op == "if_then_else" and len(e.args) == 3:
            xa, xb = self._pair(e.args[1], e.args[2])
            parts = [self.expr(e.args[0]), self.expr(e.args[1], xa), self.expr(e.args[2], xb)]
        else:
            parts = [self.expr(a) for a in e.args]
        if e.dtype != result_dtype(e.op, e.args):
            parts.append(f'dtype="{e.dtype}"')
        parts += [f"{k}={self.value(v)}" for k, v in (e.attrs or {}).items()]
        return f"{e.op}({', '.join(parts)})"

    def _reduce(self, e: E.Reduce) -> str:
        axes = ", ".join(self.names.of(a.var) for a in e.axis)
        parts = [self.expr(x) for x in e.source] + [f"axis=[{axes}]"]
        if not (isinstance(e.condition, E.IntImm) and e.condition.value):
            parts.append(f"where={self.expr(e.condition)}")
        if e.init:
            parts.append(f"init={self.exprs(e.init)}")
        tail = f".v{e.value_index}" if len(e.source) > 1 else ""
        return f"{e.combiner.name}({', '.join(parts)}){tail}"

    def exprs(self, items: Iterable[E.Expr], expect: str | None = None) -> str:
        """A tuple of expressions."""
        texts = [self.expr(x, expect) for x in items]
        return f"({texts[0]},)" if len(texts) == 1 else f"({', '.join(texts)})"

    def access(self, buffer: Buffer, indices: Sequence[E.Expr]) -> str:
        return f"{self.names.of(buffer)}[{', '.join(self.expr(i) for i in indices) or '()'}]"

    def value(self, v: Any) -> str:
        """A compile-time fact: Python literals, and expressions and buffers inside `expr(...)`, `buffer(...)`."""
        if isinstance(v, E.Expr):
            return f"expr({self.expr(v)})"
        if isinstance(v, E.IterVar):
            return f"expr({self.expr(v.var)})"
        if isinstance(v, Buffer):
            return f"buffer({self.names.of(v)})"
        if isinstance(v, tuple) and type(v) is tuple:
            return f"({', '.join(self.value(x) for x in v)}{',' if len(v) == 1 else ''})"
        if isinstance(v, list):
            return f"[{', '.join(self.value(x) for x in v)}]"
        if isinstance(v, (set, frozenset)):
            return "{" + ", ".join(sorted(self.value(x) for x in v)) + "}" if v else "set()"
        if isinstance(v, dict):
            return "{" + ", ".join(f"{self.value(k)}: {self.value(x)}" for k, x in v.items()) + "}"
        if v is None or isinstance(v, (bool, int, float, str, bytes)):
            return repr(v)
        return f"opaque({str(v)!r})"

    # ---- buffers

    def buffer_args(self, b: Buffer) -> str:
        """What `alloc(...)`, `view(...)` and `Buffer(...)` say of a buffer."""
        parts = [self.exprs(b.shape), f'"{b.dtype}"']
        if b.strides:
            parts.append(f"strides={self.exprs(b.strides)}")
        offset = b.elem_offset
        if isinstance(offset, E.Expr):
            parts.append(f"elem_offset={self.expr(offset)}")
        elif offset:
            parts.append(f"elem_offset={offset}")
        if b.scope != GLOBAL:
            parts.append(f'scope="{b.scope}"')
        if b.align_bytes != 64:
            parts.append(f"align={b.align_bytes}")
        if b.offset_factor:
            parts.append(f"offset_factor={b.offset_factor}")
        owner = self.names.data_of.setdefault(id(b.data), b)
        self.names.keep.append(b)
        if owner is not b:
            parts.append(f"data={self.names.of(owner)}.data")
        return ", ".join(parts)

    def _declare_views(self, s: S.Stmt, pad: str) -> None:
        """Lines for buffers that a statement uses and nothing declares (views of others' storage)."""
        found: list[Buffer] = []
        exprs: list[E.Expr] = []
        for f in FIELDS[type(s)]:
            if f.holds in ("expr", "buffer") and f.name not in s.binds:
                x = getattr(s, f.name)
                items = x if f.how == "many" else (x,) if x is not None else ()
                (found if f.holds == "buffer" else exprs).extend(items)
        for e in exprs:
            if type(e) not in LEAVES and not self._declared(e):
                found += [x.buffer for x in walk_exprs(e) if type(x) is E.BufferLoad]
        for b in found:
            if not self.names.known(b):
                args = self.buffer_args(b)
                self.lines.append(f"{pad}{self.names.of(b)} = view({args})")

    def _declared(self, e: E.Expr) -> bool:
        """Whether all buffers that are read below an expression have names: nearly always, and their order does not count then."""
        left, seen = [e], {id(e)}
        for x in left:  # grows
            t = type(x)
            if t is E.BufferLoad and id(x.buffer) not in self.names.by_id:  # type: ignore[attr-defined]
                return False
            for c in CHILDREN[t](x):
                if type(c) not in LEAVES and id(c) not in seen:
                    seen.add(id(c))
                    left.append(c)
        return True

    # ---- statements

    def stmt(self, s: S.Stmt, depth: int = 0, last: bool = True) -> None:
        """Append the lines of `s`; `last` says that nothing follows it in its block."""
        handler = _STMTS.get(type(s))
        if handler is None:
            raise TypeError(f"not a statement: {type(s).__name__}")
        if self.whole_function:
            self._declare_views(s, "    " * depth)
        self.places[id(s)] = len(self.lines) + 1
        handler(self, s, depth, last)

    def line(self, depth: int, text: str) -> None:
        self.lines.append("    " * depth + text)

    def block(self, depth: int, head: str, body: S.Stmt) -> None:
        self.line(depth, head + ":")
        self.stmt(body, depth + 1)

    def _holding(self, depth: int, last: bool, plain: str, scoped: str, body: S.Stmt) -> None:
        """What holds for the rest of its block is a line; what ends earlier a `with`."""
        if last:
            self.line(depth, plain)
            self.stmt(body, depth)
        else:
            self.block(depth, scoped, body)

    def _seq(self, s: S.Seq, depth: int, last: bool) -> None:
        for i, x in enumerate(s.stmts):
            self.stmt(x, depth, last and i == len(s.stmts) - 1)
        if not s.stmts:
            self.line(depth, "pass")

    def _store(self, s: S.BufferStore, depth: int, last: bool) -> None:
        target, value = self.access(s.buffer, s.indices), self.expr(s.value, s.buffer.dtype)
        given = None if s.predicate is None else self.expr(s.predicate)
        self.line(depth, f"{target} = {value}" if given is None else f"store({target}, {value}, {given})")

    def _for(self, s: S.For, depth: int, last: bool) -> None:
        self.block(depth, f"for {self.loop_head(s)}", s.body)

    def _while(self, s: S.While, depth: int, last: bool) -> None:
        self.block(depth, f"while {self.expr(s.cond)}", s.body)

    def _if(self, s: S.IfThenElse, depth: int, last: bool) -> None:
        self.block(depth, f"if {self.expr(s.cond)}", s.then)
        if s.orelse is not None:
            self.block(depth, "else", s.orelse)

    def _let_stmt(self, s: S.LetStmt, depth: int, last: bool) -> None:
        value, name, dtype = self.expr(s.value, s.var.dtype), self.names.of(s.var), s.var.dtype
        self._holding(depth, last, f"{name}: {dtype} = {value}", f'with let({value}, "{dtype}") as {name}', s.body)

    def _alloc(self, s: S.Alloc, depth: int, last: bool) -> None:
        head = f"alloc({self.buffer_args(s.buffer)}{self._notes(s.notes)})"
        name = self.names.of(s.buffer)
        self._holding(depth, last, f"{name} = {head}", f"with {head} as {name}", s.body)

    def _attr(self, s: S.Attr, depth: int, last: bool) -> None:
        self.block(depth, f"with {s.note.word}({', '.join(map(self.value, s.note.values))})", s.body)

    def _assert(self, s: S.Assert, depth: int, last: bool) -> None:
        self.line(depth, f"assert {self.expr(s.cond)}, {s.message!r}")

    def _evaluate(self, s: S.Evaluate, depth: int, last: bool) -> None:
        nothing = isinstance(s.value, E.IntImm) and s.value.value == 0 and s.value.dtype == "int32"
        self.line(depth, "pass" if nothing else self.expr(s.value))

    def loop_head(self, s: S.For) -> str:
        """`i in range(16)`: a loop without its colon and body."""
        parts = [f'"{s.thread}"'] if s.kind == S.ForKind.THREAD else []
        zero = isinstance(s.min, E.IntImm) and s.min.value == 0 and s.min.dtype == s.extent.dtype
        if zero or parts:
            parts.append(self.expr(s.extent))
            if not zero:
                parts.append(f"min={self.expr(s.min)}")
        else:
            parts += [self.expr(s.min), f"extent={self.expr(s.extent)}"]
        if s.var.dtype != s.extent.dtype:
            parts.append(f'dtype="{s.var.dtype}"')
        word = "thread" if s.kind == S.ForKind.THREAD else LOOP_WORDS.get(s.kind, s.kind)
        if s.unroll:
            parts.append(f"unroll={s.unroll}")
        if s.pipelined:
            parts.append("pipelined=True")
        return f"{self.names.of(s.var)} in {word}({', '.join(parts)})"

    def _notes(self, notes: S.StorageNotes) -> str:
        said = ((f.name, getattr(notes, f.name)) for f in fields(notes))
        return "".join(f", {name}={value!r}" for name, value in said if value)

    def _allreduce(self, s: S.AllReduce, depth: int, last: bool) -> None:
        c = s.combiner
        args = ", ".join(self.names.of(v) for v in (*c.lhs, *c.rhs))
        combiner = f"combiner(lambda {args}: {self.exprs(c.result)}, {self.exprs(c.identity)}, {c.name!r})"
        dests = ", ".join(self.names.of(d) for d in s.dests)
        threads = ", ".join(self.names.of(t) for t in s.threads)
        given = f"{self.exprs(s.values)}, {self.expr(s.predicate)}"
        self.line(depth, f"allreduce({combiner}, {given}, dests=[{dests}], threads=[{threads}])")

    # ---- functions

    def func(self, f: Func) -> None:
        """Append the lines of a function."""
        self.whole_function = True
        shown = [f"{k}={self.value(v)}" for k, v in f.attrs.items() if k not in _HIDDEN_ATTRS]
        implicit = f.implicit_vars()
        params: list[str] = []
        for v in (*implicit, *[p for p in f.params if isinstance(p, E.Var)]):
            self.names.of(v)
        for p in f.params:
            if isinstance(p, Buffer):
                name = self.names.of(p)
                params.append(f"{name}: Buffer({self.buffer_args(p)})")
            else:
                params.append(f"{self.names.of(p)}: {_var_type(p)}")
        if implicit:
            params += ["*", *[f"{self.names.of(v)}: {_var_type(v)}" for v in implicit]]
        if shown:
            self.lines.append(f"@attrs({', '.join(shown)})")
        name = re.sub(r"\W+", "_", f.name)
        if name != f.name:
            self.lines.append(f"@name({f.name!r})")
        self.lines.append(f"def {name}({', '.join(params)}):")
        for tag, (var, extent) in (f.attrs.get("threads") or {}).items():
            note = "" if var.dtype == "int32" else f', dtype="{var.dtype}"'
            self.lines.append(f'    {self.names.of(var)} = launch_index("{tag}", {self.expr(extent)}{note})')
        self.stmt(f.body, 1)


# Nodes with a syntax of their own; expressions without one are written by their fields.
_EXPRS: dict[type, Callable[[Printer, Any], str]] = {
    E.Select: Printer._select, E.Cast: Printer._cast, E.Let: Printer._let, E.BufferLoad: Printer._load, E.Call: Printer._call,
    E.TensorRead: Printer._tensor_read, E.Reduce: Printer._reduce, E.StringImm: lambda _, e: repr(e.value),
}  # fmt: skip
_LEAVES = (E.Var, E.IntImm, E.FloatImm, E.Not, E.Div)
# By their names in text.
BY_FIELDS = {c.__name__.lower(): c for c in EXPRS if c not in (*_EXPRS, *_INFIX, *_NAMED, *_LEAVES)}
_STMTS: dict[type, Callable[[Printer, Any, int, bool], None]] = {
    S.Seq: Printer._seq, S.BufferStore: Printer._store, S.For: Printer._for, S.While: Printer._while, S.IfThenElse: Printer._if,
    S.LetStmt: Printer._let_stmt, S.Alloc: Printer._alloc, S.Attr: Printer._attr, S.Assert: Printer._assert,
    S.Evaluate: Printer._evaluate, S.AllReduce: Printer._allreduce,
}  # fmt: skip


def _var_type(v: E.Var) -> str:
    return f'size("{v.dtype}")' if v.is_size else v.dtype


def _tensor_name(tensor: Any) -> str:
    return str(getattr(tensor, "name", None) or getattr(getattr(tensor, "op", None), "name", "tensor"))


@deep_recursion()
def expr_to_text(e: E.Expr) -> str:
    """One line of text."""
    return Printer().expr(e)


@deep_recursion()
def stmt_to_text(s: S.Stmt) -> str:
    """The lines of a statement."""
    p = Printer()
    p.stmt(s)
    return "\n".join(p.lines)


def func_to_text(f: Func) -> str:
    """The lines of a function."""
    return func_with_lines(f)[0]


@deep_recursion()
def func_with_lines(f: Func) -> tuple[str, dict[int, int]]:
    """The lines of a function, and the number of each statement's first line by the statement's `id`."""
    p = Printer()
    p.func(f)
    return "\n".join(p.lines), p.places
