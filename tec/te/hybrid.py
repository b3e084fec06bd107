"""Computations written as loops in Python, as tensors: `te.hybrid.script`.

    @tec.te.hybrid.script
    def outer(a, b):
        c = output_tensor((a.shape[0], b.shape[0]), "float32")
        for i in range(a.shape[0]):
            for j in range(b.shape[0]):
                c[i, j] = a[i] * b[j]
        return c

    C = outer(A, B)      # tensors in, tensors out: schedules and builds as any other
    i, j = C.op.axis     # its loops, which may be split, fused, reordered, annotated and bound

The function is translated as kernels are (`tec.kernels`), with words of its own: `output_tensor(shape, dtype)`,
`allocate(shape, dtype, scope="global")`, the loops `range`, `serial`, `parallel`, `vectorize`, `unroll`, `const_range`,
`bind(tag, extent)`, names of dtypes as conversions, and te's functions by name. Given NumPy arrays it runs as Python.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Callable
from types import FunctionType, SimpleNamespace
from typing import Any

import numpy as np

from ..errors import ExprError, KernelError, kind_of, listed
from ..ir import expr as E
from ..ir import stmt as S
from ..ir.blocks import Open, close
from ..ir.buffer import GLOBAL, LOCAL, SHARED, Buffer
from ..ir.dtype import dtype_info, normalize_dtype
from ..ir.effects import effects
from ..ir.stmt import ForKind
from ..ir.visit import Rewriter, deep_recursion, free_vars
from ..kernels.frames import Binding, Frame, Known, Restart
from ..kernels.output import Output
from ..kernels.source import parameters, source_of
from ..kernels.translate import LaunchShape
from ..kernels.translator import Translator
from ..kernels.values import Array, Turns, describe, settle
from ..target import Target
from . import math as functions
from .build import as_shape, decl_buffer
from .operation import ExternOp
from .tags import current_tag
from .tensor import Tensor

_LOOPS = {
    "serial": ForKind.SERIAL,
    "parallel": ForKind.PARALLEL,
    "vectorize": ForKind.VECTORIZED,
    "unroll": ForKind.UNROLLED,
}
_WORDS = (*_LOOPS, "const_range", "bind", "output_tensor", "allocate", "max_num_threads")
_ROUNDS = 200


class Word:
    """A name of the language that Python has not."""

    def __init__(self, name: str):
        self.__name__ = name


class HybridTranslator(Translator):
    """A hybrid script under translation."""

    def __init__(self, known: Known):
        super().__init__(known)
        self.outputs: list[Buffer] = []
        self.returned: tuple[Array, ...] | None = None

    def missing(self, name: str) -> Any:
        if name in _WORDS:
            return Word(name)
        if name == "ceil_div":
            return functions.ceildiv
        try:
            return np.dtype(normalize_dtype(name)).type
        except (ExprError, TypeError):
            found = getattr(functions, name, None) if name in functions.__all__ else None
            return found if found is not None else super().missing(name)

    def called(self, node: ast.Call) -> Any:
        f = self.expr(node.func)
        if not isinstance(f, Word):
            return super().called(node)
        args = [self.expr(a) for a in node.args]
        named = {str(k.arg): self.expr(k.value) for k in node.keywords}
        if f.__name__ == "max_num_threads":
            return _max_threads()
        if f.__name__ not in ("output_tensor", "allocate"):
            raise self.error(f"{f.__name__} outside of the head of a loop", hint=f"for i in {f.__name__}(n):")
        handler: Callable[..., Any] = getattr(self, "_" + f.__name__)
        try:
            return handler(*args, **named)
        except TypeError as e:
            raise self.error(f"{f.__name__}: {e}") from None

    def tuple_element(self, v: tuple[Any, ...], index: Any) -> Any:
        """`b[i, j]` of a list of lists of numbers, too."""
        at, *rest = index if isinstance(index, tuple) else (index,)
        found = super().tuple_element(v, at)
        if not rest:
            return found
        if not isinstance(found, tuple):
            raise self.error(
                f"more indices than the list has dimensions: {len(rest)} too many",
                hint="an index for each list inside of another",
            )
        return self.tuple_element(found, tuple(rest))

    def _output_tensor(self, shape: Any, dtype: Any = "float32") -> Array:
        if self.frame.caller is not None:  # what a script that is called gives is storage of the one that calls it
            return self._allocate(shape, dtype)
        buffer = decl_buffer(as_shape(shape, "output_tensor"), self._dtype(dtype, "the dtype of output_tensor"), "out")
        buffer.loc = self.where()
        self.outputs.append(buffer)
        return Array(buffer)

    def _allocate(self, shape: Any, dtype: Any = "float32", scope: Any = GLOBAL) -> Array:
        if scope not in (GLOBAL, SHARED, LOCAL):
            raise self.error(f"the scope {scope!r} of allocate", hint='"global", "shared" or "local"')
        d = self._dtype(dtype, "the dtype of allocate")
        buffer = Buffer("tmp", d, as_shape(shape, "allocate"), scope=scope, loc=self.where())
        self.emit(Open(lambda body: S.Alloc(buffer, body)))
        return Array(buffer)

    def iterated(self, node: ast.expr) -> Any:
        f = self.expr(node.func) if isinstance(node, ast.Call) else None
        if not isinstance(f, Word):
            return super().iterated(node)
        assert isinstance(node, ast.Call)
        args = [self.expr(a) for a in node.args]
        if f.__name__ == "bind":
            if len(args) != 2 or not isinstance(args[0], str):
                raise self.error("bind takes a launch index and an extent", hint='bind("threadIdx.x", n)', node=node)
            return Turns(0, self.number(args[1], "the extent"), 1, ForKind.THREAD, args[0])
        if not 1 <= len(args) <= 2 or node.keywords:
            raise self.error(
                f"{f.__name__} takes an end, or a begin and an extent's end",
                node=node,
                hint="range(end) or range(begin, end)",
            )
        for a in args:
            if not dtype_info(settle(self.number(a, f"a bound of {f.__name__}")).dtype).is_int:
                raise self.error(
                    f"a bound of {f.__name__} is no whole number", node=node, hint="write // for a whole number"
                )
        start, stop = (0, args[0]) if len(args) == 1 else args
        if f.__name__ == "const_range":
            if isinstance(start, E.Expr) or isinstance(stop, E.Expr):
                raise self.error("const_range of what is known at run time alone", hint="range()", node=node)
            return tuple(range(int(start), int(stop)))
        return Turns(start, stop, 1, _LOOPS[f.__name__])

    def outside(self, v: Any, name: str) -> Any:
        return super().outside(_frozen(v), name)  # translated anew at every call: a list cannot change in between

    def exits(self, s: ast.AST) -> set[type]:
        return set() if isinstance(s, ast.Assert) else super().exits(s)

    def assertion(self, s: ast.Assert) -> None:
        """A statement of the loop IR, which fails the call."""
        test = self.condition(s.test)
        if test is False:
            raise self.error("this assertion never holds", node=s, hint="change its condition, or leave it out")
        if test is not True:
            said = ast.unparse(s.msg) if s.msg is not None else ast.unparse(s.test)
            self.emit(S.Assert(settle(test), f"{said} (line {s.lineno})"))

    def give_back(self, s: ast.Return) -> None:
        if self.frame.caller is not None:
            super().give_back(s)
            return
        value = None if s.value is None else self.expr(s.value)
        parts = value if isinstance(value, tuple) else (value,)
        if self.block_ids[-1] != self.frame.entry or self.frame.loops:
            raise self.error("a return inside of a branch or a loop", hint="return the outputs at the end", node=s)
        for p in parts:
            if not isinstance(p, Array) or p.buffer not in self.outputs:
                raise self.error(f"{describe(p)} is returned", hint="return what output_tensor gave", node=s)
        self.returned = parts


class Hybrid:
    """A hybrid script: called with tensors it gives tensors, with NumPy arrays it runs as Python."""

    def __init__(self, function: FunctionType):
        self.function = self.__tec_kernel__ = function  # called in a script it is a part of that
        self.__name__, self.__doc__ = function.__name__, function.__doc__

    def __call__(self, *args: Any) -> Any:
        """The outputs of the script: a Tensor or a tuple of them. Raises KernelError, ExprError."""
        if any(isinstance(a, np.ndarray) for a in args):
            return self.run(*args)
        source = source_of(self.function, "the script")
        names = parameters(source)
        if len(args) != len(names):
            raise KernelError(
                f"{self.__name__}({', '.join(names)}) takes {len(names)} arguments, {len(args)} given",
                hint="pass one tensor or number for each parameter",
            )
        found = [(t, n) for a, name in zip(args, names) for t, n in _tensors(a, name)]
        tensors = [t for t, _ in found]
        buffers = {id(t): decl_buffer(t.shape, t.dtype, n) for t, n in found}
        values = [_value(a, n, buffers) for a, n in zip(args, names)]
        outputs, body = _translate(source, names, values)
        ins = list(dict.fromkeys(tensors))
        axis = _axes(body)
        op = ExternOp(self.__name__, ins, [buffers[id(t)] for t in ins], outputs, body, current_tag(), axis=axis)
        return op.outputs if len(outputs) > 1 else op.output(0)

    def run(self, *args: Any) -> Any:
        """The script as Python, on NumPy arrays; launch indices are loops."""
        f = self.function
        space = {**python_words(), **f.__globals__}
        inner = FunctionType(f.__code__, space, f.__name__, f.__defaults__, f.__closure__)
        return inner(*args)


def script(function: Any) -> Hybrid:
    """Make a hybrid script of a Python function over tensors and numbers; see the module."""
    if not isinstance(function, FunctionType):
        raise KernelError(f"@te.hybrid.script above {function!r}, no Python function", hint="put it above a def")
    return Hybrid(function)


def _frozen(v: Any) -> Any:
    return tuple(_frozen(x) for x in v) if isinstance(v, (list, tuple)) else v


def _tensors(a: Any, name: str) -> list[tuple[Tensor, str]]:
    """The tensors in an argument, which may be a list of them, each with a name."""
    if isinstance(a, Tensor):
        return [(a, name)]
    return [t for k, x in enumerate(a) for t in _tensors(x, f"{name}_{k}")] if isinstance(a, (list, tuple)) else []


def _value(a: Any, name: str, buffers: dict[int, Buffer]) -> Any:
    if isinstance(a, Tensor):
        return Array(buffers[id(a)])
    if isinstance(a, (list, tuple)):
        return tuple(_value(x, name, buffers) for x in a)
    return _constant(a, name)


def _constant(a: Any, name: str) -> Any:
    if isinstance(a, (E.Expr, bool, int, float, np.generic, tuple)) or a is None:
        return a
    as_expr = getattr(a, "asexpr", None)
    if as_expr is not None:
        return as_expr()
    raise KernelError(f"the argument {name} is {kind_of(a)}", hint="pass tensors, variables and numbers")


@deep_recursion()
def _translate(source: Any, names: list[str], values: list[Any]) -> tuple[list[Buffer], S.Stmt]:
    """The loops of a hybrid function, translated again until the types of its variables are known."""
    known = Known()
    target = Target.current() or Target("llvm")
    for _ in range(_ROUNDS):
        before = (len(known.slots), dict(known.types), len(known.flags))
        t = HybridTranslator(known)
        t.sources, t.launch, t.target, t.output = {source.function: source}, LaunchShape((1, 1, 1)), target, Output()
        t.threads, t.extents = {}, ()
        t.frame = Frame(source, ())
        t.frame.entry = t.block_ids[-1]
        t.frame.names = {n: Binding(v, t.frame.entry) for n, v in zip(names, values)}
        try:
            for n in names:
                if (n,) in known.slots:
                    t.store((n,), t.frame.names[n].value, source.tree)
            t.statements(source.body)
        except Restart:
            continue
        if before != (len(known.slots), known.types, len(known.flags)):
            continue
        if t.returned is None:
            raise t.error(
                "a hybrid script returns its outputs, and this returns nothing", hint="return c", node=source.tree
            )
        if t.output.places:
            raise t.error("print in a hybrid script", hint="it is for kernels: @tec.kernel", node=source.tree)
        body = close(t.blocks[0])
        for b in reversed(list(t.slots.values())):
            body = _placed(b, body)
        outputs = [a.buffer for a in t.returned]
        for k, b in enumerate(t.outputs):
            b.name = b.data.name = f"{source.name}_v{k}" if len(t.outputs) > 1 else source.name
        return outputs, body
    raise KernelError(
        f"{source.name} has too many variables that change",
        where=source.loc,
        locate=False,
        hint="fewer that branches and loops assign to: parts of it as scripts that it calls",
    )


def _axes(body: S.Stmt) -> list[E.IterVar]:
    """The loops that a schedule may change: those whose bounds no other loop, variable or array decides, and that the script gives no kind."""
    out: list[E.IterVar] = []
    inner: set[E.Var] = set()

    def note(s: S.Stmt, r: Rewriter) -> S.Stmt:
        assert isinstance(s, (S.For, S.LetStmt))
        inner.add(s.var)
        if isinstance(s, S.For) and s.kind == ForKind.SERIAL:
            if not _bounds(s) and not inner & {*free_vars(s.min), *free_vars(s.extent)}:
                out.append(E.IterVar(s.var, E.Range(s.min, s.extent), E.IterKind.DATA))
        return r.stmt_children(s)

    Rewriter({}, {S.For: note, S.LetStmt: note}).stmt(body)
    return out


def _bounds(s: S.For) -> set[Buffer]:
    """The buffers that a loop's bounds are read from."""
    return {a.buffer for e in (s.min, s.extent) for a in effects(e).accesses}


def _begins_with_a_store(b: Buffer, s: S.Stmt) -> bool:
    """Whether the first thing that `s` does with a variable is to set it, on every way: then it brings no value in."""
    match s:
        case S.Seq():
            return next((_begins_with_a_store(b, x) for x in s.stmts if id(b) in effects(x).touched), False)
        case S.BufferStore():
            return s.buffer is b and id(b) not in effects(s.value).touched
        case S.LetStmt():
            return id(b) not in effects(s.value).touched and _begins_with_a_store(b, s.body)
        case S.Alloc():
            return _begins_with_a_store(b, s.body)
    return False


def _placed(b: Buffer, s: S.Stmt) -> S.Stmt:
    """The storage of a variable around what uses it, inside of loops that bring no value of it along: threads' (each has its own), and those that set it first."""

    def uses(x: S.Stmt) -> bool:
        return id(b) in effects(x).touched

    match s:
        case S.Seq():
            users = [x for x in s.stmts if uses(x)]
            if len(users) == 1:
                return S.Seq(tuple(_placed(b, x) if x is users[0] else x for x in s.stmts))
        case S.For() if s.kind == ForKind.THREAD or (b not in _bounds(s) and _begins_with_a_store(b, s.body)):
            return s.with_body(_placed(b, s.body))
        case S.LetStmt() if id(b) not in effects(s.value).touched:
            return S.LetStmt(s.var, s.value, _placed(b, s.body), s.loc)
        case S.Alloc():
            return S.Alloc(s.buffer, _placed(b, s.body), s.notes)
    return S.Alloc(b, s)


def _max_threads() -> int:
    """Threads of a work-group of the current target; 1 on a CPU."""
    target = Target.current() or Target("llvm")
    return target.max_threads if target.is_gpu else 1


def python_words() -> dict[str, Any]:
    """What the words mean when a script runs as Python."""

    def loop(*bounds: int) -> range:
        return range(*bounds)

    def storage(shape: Any, dtype: Any = "float32", scope: Any = GLOBAL) -> Any:
        return np.zeros(shape, dtype)

    plain = SimpleNamespace(
        **{n: getattr(np, n) for n in ("exp", "log", "sqrt", "tanh", "floor", "ceil", "sin", "cos", "abs")}
    )
    return {
        **vars(plain), **dict.fromkeys((*_LOOPS, "const_range"), loop), "bind": lambda tag, extent: range(extent), "output_tensor": storage,
        "allocate": storage, "power": np.power, "popcount": lambda x: int(x).bit_count(), "likely": lambda x: x, "ceil_div": lambda a, b: -(-a // b), "max_num_threads": lambda *a: _max_threads(),
        "sigmoid": lambda x: 1 / (1 + math.exp(-x)), **{d: getattr(np, d) for d in ("float16", "float32", "float64", "int8", "int16", "int32", "int64", "uint8")},
    }  # fmt: skip


__dir__ = listed(__name__)
