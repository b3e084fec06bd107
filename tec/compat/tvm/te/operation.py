"""tvm.te.operation: how computations are declared."""

from __future__ import annotations

from typing import Any

from tec import ir
from tec.driver import lower
from tec.errors import ArgumentError
from tec.ir.build import const as const
from tec.ir.stmt import BufferStore
from tec.ir.visit import Rewriter
from tec.schedule import create_schedule
from tec.te import (
    Tensor,
    placeholder,
    reduce_axis,
    scan,
    thread_axis,
    topo_order,
)
from tec.te import compute as _compute
from tec.te import extern as _extern
from tec.te.operation import ComputeOp, ExternOp, Operation, PlaceholderOp, ScanOp

from ..names import absent
from ..runtime import convert
from ..tir.nodes import SizeVar, Var, plain

__all__ = [
    "ComputeOp", "ExternOp", "Operation", "PlaceholderOp", "ScanOp", "compute", "const", "create_prim_func", "extern",
    "extern_primfunc", "placeholder", "reduce_axis", "scan", "size_var", "thread_axis", "var",
]  # fmt: skip


def var(name: str = "tindex", dtype: Any = "int32", span: Any = None) -> ir.Var:
    """A scalar variable; `dtype` may be a pointer's type."""
    made: ir.Var = Var(name, dtype)
    return made


def size_var(name: str = "size", dtype: Any = "int32", span: Any = None) -> ir.Var:
    """A variable that is not negative."""
    made: ir.Var = SizeVar(name, dtype)
    return made


def compute(
    shape: Any, fcompute: Any, name: str = "compute", tag: str = "", attrs: Any = None, varargs_names: Any = None
) -> Any:
    """A tensor from a function of its indices; see `tec.te.compute`. Numbers among the attributes become constants."""
    made = {k: convert(v) for k, v in attrs.items()} if attrs else attrs
    return _compute(shape, fcompute, name, tag, made)


def extern(shape: Any, inputs: Any, fcompute: Any, *args: Any, **named: Any) -> Any:
    """Tensors computed by statements of one's own; see `tec.te.extern`."""
    return _extern(shape, inputs, lambda ins, outs: plain(fcompute(ins, outs)), *args, **named)


def create_prim_func(ops: Any, index_dtype_override: str | None = None) -> ir.Func:
    """Loop IR of tensors under their plain schedule; its parameters are `ops` in order."""
    tensors = [ops] if isinstance(ops, Tensor) else list(ops)
    inside = [op for op in topo_order(tensors) if not isinstance(op, PlaceholderOp)]
    read = {t for op in inside for t in op.inputs}
    outs = [t.op for t in tensors if t not in read and not isinstance(t.op, PlaceholderOp)]
    if not outs:
        raise ArgumentError("create_prim_func of inputs alone", hint="give the computed tensors, too")
    return next(iter(lower(create_schedule(outs), tensors, simple_mode=True)))


def extern_primfunc(input_tensors: Any, primfunc: ir.Func, **kwargs: Any) -> Any:
    """The tensors that a function of loop IR writes, given those that it reads: a stage like others."""
    params = [p for p in primfunc.params if isinstance(p, ir.Buffer)]
    written = _written(primfunc.body)
    ins = [p for p in params if id(p) not in written]
    outs = [p for p in params if id(p) in written]
    if len(ins) != len(input_tensors):
        raise ArgumentError(
            f"{primfunc.name} reads {len(ins)} buffers, and {len(input_tensors)} tensors are given",
            hint="one tensor for each buffer that it reads, in order",
        )
    return extern(
        [list(b.shape) for b in outs], list(input_tensors), lambda i, o: primfunc.body, name=primfunc.name,
        dtype=[b.dtype for b in outs], in_buffers=ins, out_buffers=outs,
    )  # fmt: skip


def _written(body: ir.Stmt) -> set[int]:
    found: set[int] = set()

    def store(s: BufferStore, r: Rewriter) -> ir.Stmt:
        found.add(id(s.buffer))
        return s

    Rewriter(stmts={BufferStore: store}).stmt(body)
    return found


__getattr__ = absent(__name__)
