"""tvm.tir's node classes: `isinstance` asks for tec's node, calling one makes tec's node from TVM's arguments, and tec's nodes answer to TVM's names of
their fields.

A node here checks what TVM's checks: the dtypes of a let, the dtype of a float constant.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from weakref import WeakKeyDictionary

from tec import ir, te
from tec.errors import ExprError
from tec.ir import build as B
from tec.ir import expr as E
from tec.ir import notes
from tec.ir import stmt as S
from tec.ir.build import convert
from tec.ir.convert import literal
from tec.ir.dtype import dtype_info, normalize_dtype
from tec.ir.spelling import NAMES, accept
from tec.ir.visit import Rewriter, visit

from .op import OF_ELEMENTS, THREADS, element, make


class NodeClass(type):
    """A class of TVM's that stands for one (or several) of tec's."""

    ours: tuple[type, ...]
    make: Callable[..., Any]

    def __instancecheck__(cls, x: Any) -> bool:
        return isinstance(x, cls.ours)

    def __eq__(cls, other: object) -> bool:
        return cls is other or cls.ours == (other,)  # `type(node) in [tvm.tir.BufferLoad]`

    def __hash__(cls) -> int:
        return hash(cls.ours[0]) if len(cls.ours) == 1 else type.__hash__(cls)

    def __subclasscheck__(cls, sub: type) -> bool:
        return issubclass(sub, cls.ours)

    def __call__(cls, *args: Any, **named: Any) -> Any:
        named.pop("span", None)
        return cls.make(*args, **named)


def node(name: str, ours: type | tuple[type, ...], make: Callable[..., Any], **more: Any) -> NodeClass:
    """A class of TVM's name for tec's class, and how it is made of TVM's arguments."""
    kinds = ours if isinstance(ours, tuple) else (ours,)
    doc = f"TVM's {name}: tec's {', '.join(k.__name__ for k in kinds)}."
    return NodeClass(name, (), {"ours": kinds, "make": staticmethod(make), "__doc__": doc, **more})


# ---- variables and constants

_TYPES: WeakKeyDictionary[E.Var, Any] = WeakKeyDictionary()  # what a pointer variable points to


def _var(name: str = "tindex", dtype: Any = "int32", is_size: bool = False) -> E.Var:
    if not isinstance(name, str):
        raise ExprError(f"a variable's name is {name!r}", hint="a text")
    if hasattr(dtype, "element_type"):
        made = E.Var(name, "handle")
        _TYPES[made] = dtype
        return made
    return E.Var(name, normalize_dtype(getattr(dtype, "dtype", dtype)), is_size)


Var = node("Var", E.Var, _var)
SizeVar = node("SizeVar", E.Var, lambda name, dtype="int32": _var(name, dtype, True))


def _float_imm(dtype: str, value: float) -> E.Expr:
    if not dtype_info(normalize_dtype(dtype)).is_float:
        raise ExprError(f"FloatImm of dtype {dtype}", hint="a float dtype, or tvm.tir.IntImm")
    return literal(float(value), dtype)


def _int_imm(dtype: str, value: Any) -> E.Expr:
    return literal(int(value), {"uint1": "bool", "int1": "bool"}.get(dtype, dtype))


FloatImm = node("FloatImm", E.FloatImm, _float_imm)
IntImm = node("IntImm", E.IntImm, _int_imm)
StringImm = node("StringImm", E.StringImm, lambda value: E.StringImm(value))

# ---- arithmetic


def _binary(cls: type) -> Callable[[Any, Any], E.Expr]:
    def made(a: Any, b: Any) -> E.Expr:
        x, y = B.match(a, b)
        result: E.Expr = cls(x, y)
        return result

    return made


Add, Sub, Mul, Mod, FloorDiv, FloorMod, Min, Max = (
    node(c.__name__, c, _binary(c)) for c in (E.Add, E.Sub, E.Mul, E.Mod, E.FloorDiv, E.FloorMod, E.Min, E.Max)
)
Div = node("Div", E.Div, _binary(E.Div))
EQ, NE, LT, LE, GT, GE, And, Or = (
    node(c.__name__, c, _binary(c)) for c in (E.EQ, E.NE, E.LT, E.LE, E.GT, E.GE, E.And, E.Or)
)
Not = node("Not", E.Not, lambda a: E.Not(convert(a)))


def _select(condition: Any, true_value: Any, false_value: Any) -> E.Expr:
    x, y = B.match(true_value, false_value)
    return E.Select(B.as_bool(condition), x, y)


Select = node("Select", E.Select, _select)
Cast = node("Cast", E.Cast, lambda dtype, value: E.Cast(normalize_dtype(dtype), convert(value)))


class Lane(int):
    """The number of a lane, which TVM's programs ask for its `value`."""

    @property
    def value(self) -> int:
        """The number."""
        return int(self)


Ramp = node("Ramp", E.Ramp, lambda base, stride, lanes: E.Ramp(*B.match(base, stride), int(lanes)))
Broadcast = node("Broadcast", E.Broadcast, lambda value, lanes: E.Broadcast(convert(value), int(lanes)))
Shuffle = node(
    "Shuffle",
    E.Shuffle,
    lambda vectors, indices: E.Shuffle(tuple(map(convert, vectors)), tuple(Lane(int(i)) for i in indices)),
)


def _call(dtype: str, op: Any, args: Any) -> E.Expr:
    name = str(getattr(op, "name", op))
    plain = name.removeprefix("tir.")
    dtype = "int32" if dtype == "void" else dtype
    if plain in ("call_packed", "tvm_call_packed"):
        first = args[0] if args else None
        if isinstance(first, (str, E.StringImm)):
            name = first if isinstance(first, str) else first.value
            packed: E.Expr = te.call_packed(name, *args[1:])
            return packed
        return E.Call("tvm_call_packed", tuple(map(convert, args)), "int32")
    if plain in OF_ELEMENTS:
        args = [element(args[0]), *args[1:]]
    if plain in THREADS:
        made_here: E.Expr = THREADS[plain](*args)
        return made_here
    if plain in ("call_extern", "call_pure_extern", "call_llvm_intrin", "call_llvm_pure_intrin") and args:
        first, rest = args[0], args[1:]
        made = make(name, dtype, *rest)
        key = "symbol" if plain.endswith("extern") else "name"
        text = getattr(first, "value", first)
        return E.Call(made.op, made.args, made.dtype, {key: text})
    return make(name, dtype, *args)


def _call_args(c: E.Call) -> tuple[Any, ...]:
    return c.args


Call = node("Call", E.Call, _call)


def _let(var: E.Var, value: Any, body: Any) -> E.Expr:
    return E.Let(var, _of_type(var, value), convert(body))


def _of_type(var: E.Var, value: Any) -> E.Expr:
    made = convert(value, var.dtype)
    if made.dtype != var.dtype:
        raise ExprError(f"{var.name} is {var.dtype}, its value {made.dtype}: {made}", hint="cast the value")
    return made


Let = node("Let", E.Let, _let)


def _indices(indices: Any) -> tuple[E.Expr, ...]:
    return tuple(convert(i) for i in (indices if isinstance(indices, (list, tuple)) else [indices]))


BufferLoad = node("BufferLoad", E.BufferLoad, lambda buffer, indices: E.BufferLoad(buffer, _indices(indices)))
ProducerLoad = node("ProducerLoad", E.TensorRead, lambda producer, indices: E.TensorRead(producer, _indices(indices)))
CommReducer = node(
    "CommReducer", E.CommReducer,
    lambda lhs, rhs, result, identity_element: E.CommReducer(tuple(lhs), tuple(rhs), tuple(result), tuple(identity_element)),
)  # fmt: skip


def _reduce(
    combiner: Any, src: Any, rdom: Any, condition: Any = None, value_index: int = 0, init: Any = None
) -> E.Expr:
    cond = E.IntImm(1, "bool") if condition is None else convert(condition)
    return E.Reduce(
        combiner, tuple(map(convert, src)), tuple(rdom), cond, int(value_index), tuple(map(convert, init or ()))
    )


Reduce = node("Reduce", E.Reduce, _reduce)
_ITER_KINDS = (E.IterKind.DATA, E.IterKind.THREAD, E.IterKind.REDUCE, E.IterKind.ORDERED, E.IterKind.OPAQUE)


def _iter_var(dom: Any, var: Any, iter_type: int, thread_tag: str = "") -> E.IterVar:
    low, high = (
        (dom.min, B.add(dom.min, dom.extent)) if isinstance(dom, E.Range) else (convert(dom[0]), convert(dom[1]))
    )
    own = E.Var(var, low.dtype) if isinstance(var, str) else var
    kind = _ITER_KINDS[iter_type] if iter_type < len(_ITER_KINDS) else E.IterKind.DATA
    return E.IterVar(own, E.Range(low, B.sub(high, low)), kind, thread_tag)


IterVar = node(
    "IterVar", E.IterVar, _iter_var, DataPar=0, ThreadIndex=1, CommReduce=2, Ordered=3, Opaque=4, Unrolled="unrolled",
    Vectorized="vectorized", Parallelized="parallel", Tensorized="tensorized",
)  # fmt: skip

# ---- statements


class ForKind:
    """How a loop runs."""

    SERIAL, PARALLEL, VECTORIZED = S.ForKind.SERIAL, S.ForKind.PARALLEL, S.ForKind.VECTORIZED
    UNROLLED, THREAD_BINDING = S.ForKind.UNROLLED, S.ForKind.THREAD


_FOR_KINDS = (S.ForKind.SERIAL, S.ForKind.PARALLEL, S.ForKind.VECTORIZED, S.ForKind.UNROLLED, S.ForKind.THREAD)


def _for(
    loop_var: E.Var,
    min_val: Any,
    extent: Any,
    kind: Any,
    body: S.Stmt,
    thread_binding: Any = None,
    annotations: Any = None,
) -> S.Stmt:
    chosen = _FOR_KINDS[kind] if isinstance(kind, int) else str(kind)
    tag = getattr(thread_binding, "thread_tag", "") if thread_binding is not None else ""
    made: S.Stmt = S.For(loop_var, convert(min_val, loop_var.dtype), convert(extent, loop_var.dtype), body, chosen, tag)
    return made


For = node("For", S.For, _for)
While = node("While", S.While, lambda condition, body: S.While(B.as_bool(condition), body))
LetStmt = node("LetStmt", S.LetStmt, lambda var, value, body: S.LetStmt(var, _of_type(var, value), body))
Evaluate = node("Evaluate", S.Evaluate, lambda value: S.Evaluate(convert(value)))
IfThenElse = node(
    "IfThenElse",
    S.IfThenElse,
    lambda condition, then_case, else_case=None: S.IfThenElse(B.as_bool(condition), then_case, else_case),
)
SeqStmt = node("SeqStmt", S.Seq, lambda seq: S.Seq(tuple(seq)))


def _store(buffer: Any, value: Any, indices: Any) -> S.Stmt:
    given = convert(value, buffer.dtype)
    return S.BufferStore(
        buffer, B.cast(buffer.dtype, given) if dtype_info(given.dtype).lanes == 1 else given, _indices(indices)
    )


BufferStore = node("BufferStore", S.BufferStore, _store)
ProducerStore = node("ProducerStore", S.BufferStore, lambda producer, value, indices: _store(producer, value, indices))


def _allocate(
    buffer_var: E.Var, dtype: str, extents: Any, condition: Any, body: S.Stmt, annotations: Any = None
) -> S.Stmt:
    scope = getattr(_TYPES.get(buffer_var), "storage_scope", "") or ir.GLOBAL
    shape = tuple(map(convert, extents))
    return S.Alloc(ir.Buffer(buffer_var.name, normalize_dtype(dtype), shape, scope=scope, data=buffer_var), body)


Allocate = node("Allocate", S.Alloc, _allocate)
ProducerRealize = node("ProducerRealize", S.Alloc, lambda producer, bounds, condition, body: S.Alloc(producer, body))
BufferRealize = node("BufferRealize", S.Alloc, lambda buffer, bounds, condition, body: S.Alloc(buffer, body))
DeclBuffer = node("DeclBuffer", S.Alloc, lambda buffer, body: S.Alloc(buffer, body))


class OtherAttr(S.Attr):
    """An attribute that tec's loop IR has not: it prints, and compiling it raises TypeError that names it."""

    __slots__ = ("key", "of", "said")

    def __init__(self, of: Any, key: str, said: E.Expr, body: S.Stmt):
        super().__init__(notes.Note(), body)
        self.of, self.key, self.said = of, key, said


def _attr(node: Any, attr_key: str, value: Any, body: S.Stmt) -> S.Stmt:
    word = str(attr_key).removeprefix("pragma_").removeprefix("pragma.")
    if word in notes.NOTES:
        return S.Attr(notes.make(word, value), body)
    return OtherAttr(node, str(attr_key), convert(value), body)


AttrStmt = node("AttrStmt", S.Attr, _attr)


class Asserting(S.Seq):
    """A check, and what runs after it."""

    __slots__ = ()

    @property
    def body(self) -> S.Stmt:
        """What runs after the check."""
        return self.stmts[1]

    @property
    def condition(self) -> E.Expr:
        """What must hold."""
        check = self.stmts[0]
        assert isinstance(check, S.Assert)
        return check.cond


def _assert(condition: Any, message: Any, body: S.Stmt) -> S.Stmt:
    text = getattr(message, "value", message)
    return Asserting((S.Assert(B.as_bool(condition), str(text)), body))


AssertStmt = node("AssertStmt", (S.Assert, Asserting), _assert)


class Prefetching(S.Evaluate):
    """A hint that a region of a buffer is used soon."""

    __slots__ = ("bounds", "buffer")

    def __init__(self, buffer: Any, bounds: Any):
        first = E.BufferLoad(buffer, tuple(b.min for b in bounds) or tuple(B.const(0) for _ in buffer.shape))
        super().__init__(E.Call("prefetch", (first,), "int32"))
        self.buffer, self.bounds = buffer, list(bounds)


Prefetch = node("Prefetch", Prefetching, lambda buffer, bounds: Prefetching(buffer, bounds))
Stmt = node("Stmt", S.Stmt, lambda *a: S.NOP)


def plain(body: Any) -> Any:
    """A statement of tec's own classes alone. Raises ExprError for an attribute that tec has not."""
    if not isinstance(body, S.Stmt):
        return body

    def other(s: OtherAttr, r: Rewriter) -> S.Stmt:
        raise ExprError(f"tec's loop IR has no attribute {s.key!r}", hint=f"it has {', '.join(sorted(notes.NOTES))}")

    tables: dict[type, Callable[[Any, Rewriter], S.Stmt]] = {
        Asserting: lambda s, r: S.seq(s.stmts[0], r.stmt(s.stmts[1])),
        Prefetching: lambda s, r: S.Evaluate(s.value),
        OtherAttr: other,
    }

    def unnamed(e: Any) -> None:
        if isinstance(e, E.Call) and e.op == "tvm_call_packed":
            raise ExprError(f"{e} names no function", hint="the first argument is the name, a text")

    visit(body, unnamed, None)
    return Rewriter(stmts=tables).stmt(body)


# ---- TVM's names of fields

for _cls in (S.For, S.Alloc, S.Attr, S.IfThenElse, S.While, S.Assert, S.Seq, E.Select, E.Call, E.TensorRead):
    accept(_cls, NAMES[_cls.__name__])
accept(OtherAttr, {"node": lambda s: s.of, "attr_key": lambda s: s.key, "value": lambda s: s.said})
accept(
    S.Attr, {"node": lambda s: s.note, "value": lambda s: convert(s.note.values[0]) if s.note.values else B.const(1)}
)
accept(
    S.Alloc,
    {"condition": lambda s: E.IntImm(1, "bool"), "bounds": lambda s: [E.Range(B.const(0), n) for n in s.buffer.shape]},
)
accept(S.Assert, {"body": lambda s: S.NOP})
accept(E.Var, {"type_annotation": lambda v: _TYPES.get(v)})
accept(
    E.ExprOps,
    {"same_as": lambda e: lambda other: e is other, "equal": lambda e: lambda other: B.compare("eq", e, other)},
)
accept(S.Stmt, {"same_as": lambda s: lambda other: s is other})
accept(ir.Buffer, {"same_as": lambda b: lambda other: b is other})
