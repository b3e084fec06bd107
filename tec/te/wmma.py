"""Tensor intrinsics over TVM's wmma calls: `tvm_load_matrix_sync`, `tvm_fill_fragment`, `tvm_mma_sync` and `tvm_store_matrix_sync`.

The calls name a shape and no chip: 16x16x16 is one instruction on CDNA and RDNA and two of NVIDIA's mma.sync. What a call does to its region is what the
intrinsic's compute says, so the statement becomes loops over the region under a note "wmma TYPE SUMS MxNxK", and `ir.passes.split_wmma` makes them
those of the target's instruction. "*" stands for a type that the call does not tell.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from ..errors import ExprError
from ..ir import build
from ..ir.buffer import WMMA_SCOPES, Buffer
from ..ir.expr import Call, Expr, IntImm, StringImm, TensorRead, Var
from ..ir.notes import Fragment
from ..ir.stmt import Attr, BufferStore, For, Stmt, seq
from ..ir.visit import visit, walk_exprs
from .operation import ComputeOp

LOAD, FILL, MMA, STORE = "tvm_load_matrix_sync", "tvm_fill_fragment", "tvm_mma_sync", "tvm_store_matrix_sync"
CALLS = (LOAD, FILL, MMA, STORE)


def calls_of(s: Stmt | None) -> list[Call]:
    """The wmma calls in a statement, in order."""
    found: list[Call] = []

    def on_expr(e: Expr) -> None:
        if isinstance(e, Call) and str(e.op) in CALLS:
            found.append(e)

    if s is not None:
        visit(s, on_expr)
    return found


def statements(
    parts: Sequence[Stmt | None], op: ComputeOp, ins: Sequence[Buffer], outs: Sequence[Buffer], what: str
) -> tuple[Stmt | None, Stmt | None, Stmt | None]:
    """Body, init and update of an intrinsic whose statements are wmma calls. A body that is the update alone gets the init in front."""
    calls = [calls_of(p) for p in parts]
    for found in calls:
        kinds = [str(c.op) for c in found]
        if len(set(kinds)) < len(kinds):
            raise ExprError(
                f"{what} calls {kinds[0]} {len(kinds)} times", hint="one tile an intrinsic: loops around it take more"
            )
    made = [seq(*[statement(c, op, ins, outs, what) for c in found]) if found else p for found, p in zip(calls, parts)]
    body, first, update = made
    kinds = [str(c.op) for c in calls[0]]
    if body is not None and first is not None and MMA in kinds and FILL not in kinds:
        body = seq(first, body)
    return body, first, update


def region(b: Buffer) -> Buffer:
    """A buffer of an intrinsic as a region of any larger one: a call's stride is that of the storage which the schedule makes."""
    if b.strides or b.ndim != 2:
        return b
    stride = Var(f"{b.name}_stride", "int32", True)
    return replace(b, strides=(stride, build.const(1)), offset_factor=1, elem_offset=_offset(b), data=b.data)


def _offset(b: Buffer) -> Any:
    return b.elem_offset if isinstance(b.elem_offset, Var) else Var(f"{b.name}_elem_offset", "int32", True)


def statement(call: Call, op: ComputeOp, ins: Sequence[Buffer], outs: Sequence[Buffer], what: str) -> Stmt:
    """The loops that a wmma call stands for, over the regions of an intrinsic. Raises ExprError for a call that does not fit them."""
    name = str(call.op)
    if name == MMA:
        return _product(op, ins, outs[0], what)
    m, n, k = (_number(a, f"{what}: {name}") for a in call.args[1:4])
    if name == FILL:
        value = call.args[5] if len(call.args) > 5 else build.const(0)
        return _tile("acc", (m, n), f"* {outs[0].dtype} {m}x{n}x{k}", lambda r, c: outs[0].vstore((r, c), value))
    into = outs[0] if name == LOAD else ins[0]
    role = into.scope.removeprefix("fragment.")
    if role not in ("a", "b", "acc"):
        raise ExprError(
            f"{what}: {name} of {into.name}, which is in {into.scope} memory", hint=f"scope={' or '.join(WMMA_SCOPES)}"
        )
    types = f"* {into.dtype}" if role == "acc" else f"{into.dtype} *"
    layout = call.args[7] if len(call.args) > 7 else None
    swapped = isinstance(layout, StringImm) and layout.value == "col_major"
    shape = {"a": (m, k), "b": (k, n), "acc": (m, n)}[role]

    def copy(r: Var, c: Var) -> Any:
        at = (c, r) if swapped else (r, c)
        return outs[0].vstore(at, build.cast(outs[0].dtype, ins[0].vload(at)))

    wanted = shape[::-1] if swapped else shape
    if tuple(_number(e, what) for e in outs[0].shape) != wanted:
        raise ExprError(
            f"{what}: {name} of {m}, {n}, {k} moves {wanted[0]} x {wanted[1]} elements, the compute {' x '.join(map(str, outs[0].shape))}",
            hint="a fragment of the compute's shape",
        )
    return _tile(role, shape, f"{types} {m}x{n}x{k}", copy)


def _product(op: ComputeOp, ins: Sequence[Buffer], out: Buffer, what: str) -> Stmt:
    if len(op.axis) != 2 or len(op.reduce_axis) != 1 or len(ins) != 2:
        raise ExprError(
            f"{what}: {MMA} stands for a product of two matrices, which its compute is not",
            hint="te.compute((m, n), lambda i, j: te.sum(A[i, k] * B[k, j], axis=k))",
        )
    (i, j), (k,) = [a.var for a in op.axis], [a.var for a in op.reduce_axis]
    m, n, depth = (_number(a.dom and a.dom.extent, what) for a in (*op.axis, *op.reduce_axis))
    reads = [e for s in op.body for e in walk_exprs(s) if isinstance(e, TensorRead)]
    order = {id(e.tensor): e.indices for e in reads}
    first, second = (order[id(t)] for t in op.inputs)

    def at(indices: Sequence[Expr], places: dict[int, Var]) -> tuple[Var, ...]:
        try:
            return tuple(places[id(e)] for e in indices)
        except KeyError:
            raise ExprError(
                f"{what}: {MMA} reads its operands at the axes themselves",
                hint="A[i, k] and B[k, j], without arithmetic in the indices",
            ) from None

    def step(r: Var, c: Var, s: Var) -> Stmt:
        places = {id(i): r, id(j): c, id(k): s}
        x, y = ins[0].vload(at(first, places)), ins[1].vload(at(second, places))
        value = out.vload((r, c)) + build.mul(build.cast(out.dtype, x), build.cast(out.dtype, y))
        return BufferStore(out, value, (r, c))

    return _tile("mma", (m, n, depth), f"{ins[0].dtype} {out.dtype} {m}x{n}x{depth}", step)


def _tile(role: str, extents: tuple[int, ...], types: str, body: Callable[..., Any]) -> Stmt:
    variables = [Var(x) for x in "ijk"[: len(extents)]]
    made: Stmt = body(*variables)
    for v, extent in zip(reversed(variables), reversed(extents)):
        made = For(v, build.const(0), build.const(extent), made)
    return Attr(Fragment(role, f"wmma {types}"), made)


def _number(e: Any, what: str) -> int:
    if isinstance(e, IntImm):
        return e.value
    raise ExprError(f"{what}: {e} is no constant", hint="the shape of a tile is constant: 16, 16, 16")
