"""Loop IR: expressions, statements, functions; what every other part of the compiler speaks."""

from .buffer import FRAGMENT_SCOPES, GLOBAL, LOCAL, SHARED, SHARED_DYN, Buffer
from .dtype import DTypeInfo, dtype_info, normalize_dtype, with_lanes
from .expr import (
    EQ, GE, GT, LE, LT, NE, Add, And, Broadcast, BufferLoad, Call, Cast, CommReducer, Div, Expr, FloatImm, FloorDiv,
    FloorMod, IntImm, IterKind, IterVar, Let, Max, Min, Mod, Mul, Not, Or, Ramp, Range, Reduce, Select, Shuffle,
    StringImm, Sub, TensorRead, Var,
)  # fmt: skip
from .func import Func, IRModule
from .stmt import (
    NOP, AllReduce, Alloc, Assert, Attr, BufferStore, Evaluate, For, ForKind, IfThenElse, LetStmt, Seq, Stmt, While, seq,
)  # fmt: skip

__all__ = [n for n in dir() if not n.startswith("_")]
