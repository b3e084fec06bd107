"""Expressions: the whole grammar.

    expr := Var | IntImm | FloatImm | StringImm
          | Add | Sub | Mul | Div | Mod | FloorDiv | FloorMod | Min | Max          (a, b of one dtype)
          | EQ | NE | LT | LE | GT | GE | And | Or | Not                           (bool)
          | Select | Cast | Let | Call | BufferLoad | Ramp | Broadcast | Shuffle
          | TensorRead | Reduce                                                    (te level only; gone after schedule)

Nodes are immutable by convention: a rewrite makes new nodes and returns the same object where nothing changed.
`==` builds an EQ node; `is` and `structural_equal` compare nodes. `bool(expr)` raises, but for constants and for `==` and `!=` of
variables and axes, which then tell whether both are the same one: so `iv in stage.leaf_iter_vars` works. Building through the operators
and the helper functions of `tec.ir.build` folds constants and promotes types; the classes themselves do neither.
Division: `Div`/`Mod` on integers truncate (C); `FloorDiv`/`FloorMod` floor (Python's `//`, `%`). `Div` on floats divides.
"""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING, Any, ClassVar

from ..errors import Loc
from ..records import dataclass
from .dtype import dtype_info, with_lanes
from .expr_ops import ExprOps as ExprOps

if TYPE_CHECKING:
    from .buffer import Buffer


class Expr(ExprOps):
    """Base of all expressions. `dtype` is a string (see `tec.ir.dtype`)."""

    __slots__ = ("__weakref__",)
    binds: ClassVar[tuple[str, ...]] = ()  # the fields that name a variable anew, for `body`
    dtype: str

    def __str__(self) -> str:
        from .printer import expr_to_text

        return expr_to_text(self)

    def __repr__(self) -> str:
        return str(self)


def node(cls: type) -> type:
    """A plain slots dataclass whose equality stays `ExprOps`'s and whose repr is the printer's."""
    return dataclass(slots=True, eq=False, repr=False)(cls)


# ---- leaves


@dataclass(slots=True, eq=False, repr=False)
class Var(Expr):
    """A scalar variable, known by identity. `is_size` says that it is not negative (`tec.size_var`, loop extents).

    >>> n = tec.ir.Var("n", "int64", is_size=True)
    >>> n + 1, n.dtype
    (n + 1, 'int64')
    """

    name: str
    dtype: str = "int32"
    is_size: bool = False


@dataclass(slots=True, eq=False, repr=False)
class IntImm(Expr):
    """An integer or bool constant; bool is 0 or 1 with dtype "bool"."""

    value: int
    dtype: str = "int32"

    def __hash__(self) -> int:
        return hash(self.value)

    def __bool__(self) -> bool:
        return bool(self.value)

    def __int__(self) -> int:
        return int(self.value)

    def __float__(self) -> float:
        return float(self.value)

    def __index__(self) -> int:
        return int(self.value)


@dataclass(slots=True, eq=False, repr=False)
class FloatImm(Expr):
    """A floating constant, held as a Python float (already rounded to `dtype` by `tec.ir.build.const`)."""

    value: float
    dtype: str = "float32"

    def __float__(self) -> float:
        return float(self.value)


@dataclass(slots=True, eq=False, repr=False)
class StringImm(Expr):
    value: str
    dtype: str = "handle"


# ---- arithmetic: a and b have one dtype, which is the result's


class BinaryExpr(Expr):
    __slots__ = ("a", "b", "dtype")
    __match_args__ = ("a", "b")
    a: Expr
    b: Expr

    def __init__(self, a: Expr, b: Expr):
        self.a = a
        self.b = b
        self.dtype = a.dtype


class Add(BinaryExpr):
    __slots__ = ()


class Sub(BinaryExpr):
    __slots__ = ()


class Mul(BinaryExpr):
    __slots__ = ()


class Div(BinaryExpr):
    __slots__ = ()


class Mod(BinaryExpr):
    __slots__ = ()


class FloorDiv(BinaryExpr):
    __slots__ = ()


class FloorMod(BinaryExpr):
    __slots__ = ()


class Min(BinaryExpr):
    """minimum; on floats NaN loses (IEEE minNum), as `llvm.minnum`."""

    __slots__ = ()


class Max(BinaryExpr):
    __slots__ = ()


class CmpExpr(Expr):
    __slots__ = ("a", "b", "dtype")
    __match_args__ = ("a", "b")
    a: Expr
    b: Expr

    def __init__(self, a: Expr, b: Expr):
        self.a = a
        self.b = b
        lanes = dtype_info(a.dtype).lanes
        self.dtype = "bool" if lanes == 1 else f"boolx{lanes}"


def _same_variable(e: CmpExpr) -> bool | None:
    """Whether both sides are one and the same variable; None where a side is none. A cast to the wider type is looked through."""
    if e.a is e.b:
        return True
    a, b = (x.value if isinstance(x, Cast) and isinstance(x.value, Var) else x for x in (e.a, e.b))
    return a is b if isinstance(a, Var) and isinstance(b, Var) else None


class EQ(CmpExpr):
    """Equal. As a Python bool: whether two variables are the same one (lists and dicts ask that)."""

    __slots__ = ()

    def __bool__(self) -> bool:
        same = _same_variable(self)
        return super().__bool__() if same is None else same


class NE(CmpExpr):
    """Unequal; on floats true where either side is NaN. The other comparisons are then false."""

    __slots__ = ()

    def __bool__(self) -> bool:
        same = _same_variable(self)
        return super().__bool__() if same is None else not same


class LT(CmpExpr):
    __slots__ = ()


class LE(CmpExpr):
    __slots__ = ()


class GT(CmpExpr):
    __slots__ = ()


class GE(CmpExpr):
    __slots__ = ()


TURNED: dict[type[Expr], type[CmpExpr]] = {LT: GT, LE: GE, GT: LT, GE: LE}  # a < b is b > a


class And(BinaryExpr):
    """Logical and of bools; both sides may be evaluated, the right one is guarded only under IfThenElse / if_then_else."""

    __slots__ = ()


class Or(BinaryExpr):
    __slots__ = ()


class Not(Expr):
    __slots__ = ("a", "dtype")
    __match_args__ = ("a",)

    def __init__(self, a: Expr):
        self.a = a
        self.dtype = a.dtype


# ---- the rest


@dataclass(slots=True, eq=False, repr=False)
class Select(Expr):
    """`cond ? a : b`, both sides evaluated. For a guarded access use Call("if_then_else", (cond, a, b))."""

    cond: Expr
    a: Expr
    b: Expr
    dtype: str = field(init=False)

    def __post_init__(self) -> None:
        self.dtype = self.a.dtype


@dataclass(slots=True, eq=False, repr=False)
class Cast(Expr):
    """Conversion. float->int truncates toward zero (saturating, NaN to 0); int->int wraps; ->bool is `!= 0`."""

    dtype: str
    value: Expr


@dataclass(slots=True, eq=False, repr=False)
class Let(Expr):
    binds: ClassVar[tuple[str, ...]] = ("var",)
    var: Var
    value: Expr
    body: Expr
    dtype: str = field(init=False)

    def __post_init__(self) -> None:
        self.dtype = self.body.dtype


@dataclass(slots=True, eq=False, repr=False)
class Call(Expr):
    """An operation of the table in `tec.ir.intrin`: math functions, bit operations, shuffles, barriers, matrix units.

    `attrs` are compile-time facts (a matrix shape, a symbol's name); None where there are none.
    """

    op: str
    args: tuple[Expr, ...]
    dtype: str
    attrs: dict[str, Any] | None = None


@dataclass(slots=True, eq=False, repr=False)
class BufferLoad(Expr):
    """`buffer[indices]`. The last index may be a vector (Ramp): the result then has its lanes.

    `predicate` (bool of the same lanes) switches lanes off; switched-off lanes read 0.
    """

    buffer: Buffer
    indices: tuple[Expr, ...]
    predicate: Expr | None = None
    dtype: str = field(init=False)

    def __post_init__(self) -> None:
        lanes = dtype_info(self.indices[-1].dtype).lanes if self.indices else 1
        own = dtype_info(self.buffer.dtype).lanes
        self.dtype = self.buffer.dtype if lanes == 1 else with_lanes(self.buffer.dtype, lanes * own)


@dataclass(slots=True, eq=False, repr=False)
class Ramp(Expr):
    """The vector base, base + stride, ... of `lanes` lanes; base and stride are scalars."""

    base: Expr
    stride: Expr
    lanes: int
    dtype: str = field(init=False)

    def __post_init__(self) -> None:
        self.dtype = with_lanes(self.base.dtype, self.lanes)


@dataclass(slots=True, eq=False, repr=False)
class Broadcast(Expr):
    value: Expr
    lanes: int
    dtype: str = field(init=False)

    def __post_init__(self) -> None:
        self.dtype = with_lanes(self.value.dtype, self.lanes)


@dataclass(slots=True, eq=False, repr=False)
class Shuffle(Expr):
    """Lanes picked from the concatenation of `vectors` (scalars count as one lane) by constant `indices`."""

    vectors: tuple[Expr, ...]
    indices: tuple[int, ...]
    dtype: str = field(init=False)

    def __post_init__(self) -> None:
        self.dtype = with_lanes(self.vectors[0].dtype, len(self.indices))


# ---- te level


@dataclass(slots=True, eq=False)
class Range:
    """`min <= x < min + extent`."""

    min: Expr
    extent: Expr


class IterKind:
    """What an iteration variable may do. Strings, so that they print."""

    DATA = "data"  # a spatial axis: order free
    REDUCE = "reduce"
    THREAD = "thread"  # a launch index, from thread_axis
    ORDERED = "ordered"  # scan's time axis
    OPAQUE = "opaque"  # order and extent fixed by an extern op


@dataclass(slots=True, eq=False, repr=False)
class IterVar(ExprOps):
    """An axis: a variable, its domain and its kind. Used as a value it stands for its variable."""

    var: Var
    dom: Range | None
    kind: str = IterKind.DATA
    thread_tag: str = ""
    loc: Loc | None = None

    @property
    def name(self) -> str:
        return self.var.name

    @property
    def dtype(self) -> str:
        return self.var.dtype

    def asexpr(self) -> Expr:
        return self.var

    def __repr__(self) -> str:
        dom = f"[{self.dom.min}, {self.dom.min} + {self.dom.extent})" if self.dom else ""
        return f"iter_var({self.var.name}{', ' + dom if dom else ''}{', ' + self.thread_tag if self.thread_tag else ''}, {self.kind})"


@dataclass(slots=True, eq=False)
class CommReducer:
    """A commutative, associative combiner over tuples: `result[i]` in terms of `lhs` and `rhs`, with `identity`."""

    lhs: tuple[Var, ...]
    rhs: tuple[Var, ...]
    result: tuple[Expr, ...]
    identity: tuple[Expr, ...]
    name: str = "reduce"


@dataclass(slots=True, eq=False, repr=False)
class Reduce(Expr):
    """A reduction of the tuple `source` over `axis` where `condition` holds; this node is its `value_index`-th value.

    `init`, where not empty, replaces the combiner's identity as the start value.
    """

    combiner: CommReducer
    source: tuple[Expr, ...]
    axis: tuple[IterVar, ...]
    condition: Expr
    value_index: int = 0
    init: tuple[Expr, ...] = ()
    dtype: str = field(init=False)

    def __post_init__(self) -> None:
        self.dtype = self.source[self.value_index].dtype


@dataclass(slots=True, eq=False, repr=False)
class TensorRead(Expr):
    """`tensor[indices]`; `tensor` is a `tec.te.Tensor` (its `op`, `value_index`, `shape`, `dtype`)."""

    tensor: Any
    indices: tuple[Expr, ...]
    dtype: str = field(init=False)

    def __post_init__(self) -> None:
        self.dtype = self.tensor.dtype
