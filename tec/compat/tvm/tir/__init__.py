"""tvm.tir: expressions, statements and their walks, over tec's loop IR."""

from tec import ir as _ir
from tec import te as _te

from ..names import absent
from . import expr, ir_builder, nodes, op, stmt, stmt_functor
from .buffer import Buffer, decl_buffer
from .function import PrimFunc
from .nodes import (
    EQ,
    GE,
    GT,
    LE,
    LT,
    NE,
    Add,
    Allocate,
    And,
    AssertStmt,
    AttrStmt,
    Broadcast,
    BufferLoad,
    BufferRealize,
    BufferStore,
    Call,
    Cast,
    CommReducer,
    DeclBuffer,
    Div,
    Evaluate,
    FloatImm,
    FloorDiv,
    FloorMod,
    For,
    ForKind,
    IfThenElse,
    IntImm,
    IterVar,
    Let,
    LetStmt,
    Max,
    Min,
    Mod,
    Mul,
    Not,
    Or,
    Prefetch,
    ProducerLoad,
    ProducerRealize,
    ProducerStore,
    Ramp,
    Reduce,
    Select,
    SeqStmt,
    Shuffle,
    SizeVar,
    Stmt,
    StringImm,
    Sub,
    Var,
    While,
)  # fmt: skip

PrimExpr = _ir.Expr
globals().update({name: getattr(op, name) for name in (*op.CALLS, *op.OWN) if name != "Cast"})
globals().update({name: getattr(_te, name) for name in op.SHARED if name not in ("decl_buffer",)})

__getattr__ = absent(__name__)
