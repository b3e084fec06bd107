"""Hand-written computations: `extern` (statements in place of a lambda) and `decl_tensor_intrin` (what tensorize puts in)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ..errors import ExprError
from ..ir.buffer import Buffer
from ..ir.expr import Expr, Var
from ..ir.stmt import Evaluate, Stmt
from ..records import dataclass
from . import wmma
from .build import as_dtype, as_shape, called, check_name, decl_buffer
from .intrin_call import IntrinCall, call
from .operation import ComputeOp, ExternOp, Operation, PlaceholderOp
from .tags import current_tag
from .tensor import Tensor


def extern(
    shape: Any,
    inputs: Tensor | Sequence[Tensor],
    fcompute: Callable[[list[Buffer], list[Buffer]], Any],
    name: str = "extern",
    dtype: Any = None,
    in_buffers: Sequence[Buffer] | None = None,
    out_buffers: Sequence[Buffer] | None = None,
    tag: str = "",
    attrs: dict[str, Any] | None = None,
) -> Any:
    """One or more tensors that hand-written statements compute.

    shape: a shape, or a list of shapes for several outputs. inputs: the tensors that are read. fcompute: a function
    of (ins, outs), one Buffer per input and output; it returns a statement from `tec.te.ir_builder`, or an expression
    such as `tec.call_extern(...)`. dtype: one type, or one per output; by default the common type of the inputs.
    in_buffers, out_buffers: layouts, from `decl_buffer`. Returns a Tensor, or a list of them. Raises ExprError.

    >>> A = tec.placeholder((64,), name="A")
    >>> def gen(ins, outs):
    ...     ib = tec.te.ir_builder.create()
    ...     a, b = ib.buffer_ptr(ins[0]), ib.buffer_ptr(outs[0])
    ...     with ib.for_range(0, 64, "i") as i:
    ...         b[i] = a[i] + 1.0
    ...     return ib.get()
    >>> B = tec.extern((64,), [A], gen, dtype="float32")
    """
    check_name(name, "extern")
    what = called("extern", name)
    sources: list[Tensor] = [inputs] if isinstance(inputs, Tensor) else list(inputs)
    for t in sources:
        if not isinstance(t, Tensor):
            raise ExprError(
                f"input {t!r} of {what} is no tensor",
                hint="pass tensors; other values can be used in the function directly",
            )
    many = isinstance(shape, (list, tuple)) and len(shape) > 0 and isinstance(shape[0], (list, tuple))
    shapes = [as_shape(s, what) for s in (shape if many else [shape])]
    ins = _placeholders(in_buffers, [(t.shape, t.dtype, t.op.name) for t in sources], f"in_buffers of {what}")
    dtypes = _output_dtypes(dtype, sources, len(shapes), what, out_buffers)
    names = [name if len(shapes) == 1 else f"{name}_v{k}" for k in range(len(shapes))]
    outs = _placeholders(out_buffers, list(zip(shapes, dtypes, names)), f"out_buffers of {what}")
    if not callable(fcompute):
        raise ExprError(
            f"{what} takes a function (ins, outs), not {fcompute!r}",
            hint="lambda ins, outs: a call or a statement over these buffers",
        )
    body = as_stmt(fcompute(list(ins), list(outs)), what)
    op = ExternOp(name, sources, ins, outs, body, tag or current_tag(), attrs)
    return op.outputs if len(outs) > 1 else op.outputs[0]


def _output_dtypes(
    dtype: Any, inputs: list[Tensor], count: int, what: str, out_buffers: Sequence[Buffer] | None
) -> list[str]:
    if dtype is None and out_buffers is not None:
        return [b.dtype for b in out_buffers]
    if dtype is None:
        kinds = {t.dtype for t in inputs}
        if len(kinds) != 1:
            raise ExprError(
                f"{what} needs dtype=: its inputs are {', '.join(sorted(kinds)) or 'none'}",
                hint='dtype="float32", or a list with one for each output',
            )
        return [kinds.pop()] * count
    if isinstance(dtype, (list, tuple)):
        if len(dtype) != count:
            raise ExprError(f"{what} has {count} shapes and {len(dtype)} dtypes", hint="one dtype for each output")
        return [as_dtype(d, what) for d in dtype]
    return [as_dtype(dtype, what)] * count


def _placeholders(given: Sequence[Buffer] | None, wanted: list[tuple[Any, str, str]], what: str) -> list[Buffer]:
    if given is None:
        return [decl_buffer(shape, dtype, name) for shape, dtype, name in wanted]
    if len(given) != len(wanted) or not all(isinstance(b, Buffer) for b in given):
        raise ExprError(
            f"{what}: {len(wanted)} Buffers are needed, given {given!r}",
            hint="one buffer for each tensor, of tec.decl_buffer",
        )
    for b, (shape, dtype, _) in zip(given, wanted):
        if b.dtype != dtype or len(b.shape) != len(shape):
            raise ExprError(
                f"{what}: buffer {b.name} is {b.dtype} of {b.ndim} dimensions, the tensor {dtype} of {len(shape)}",
                hint="give the buffer the tensor's dtype and number of dimensions",
            )
    return list(given)


def as_stmt(value: Any, what: str) -> Stmt:
    """A statement from what a user's function returned."""
    if isinstance(value, Stmt):
        return value
    if isinstance(value, Expr):
        return Evaluate(value)
    if value is None:
        raise ExprError(f"the function of {what} returns None", hint="return ib.get()")
    raise ExprError(
        f"the function of {what} returns {value!r}, which is no statement", hint="return ib.get() or a call"
    )


# ---- tensor intrinsics


@dataclass(slots=True, eq=False, repr=False)
class TensorIntrin:
    """What `tensorize` substitutes for loops, made by `decl_tensor_intrin`.

    op: the compute that it stands for. inputs: its tensors. buffers: one for each input, then one for each output.
    body: the statement for the whole. reduce_init, reduce_update: for a reduction that continues over outer loops.
    ragged: the region may reach over the edge of its tensor, because the storage there is whole and elements beyond
    the edge are not used (register tiles).

    >>> x = te.placeholder((16,), name="x")
    >>> y = te.compute((16,), lambda i: x[i] + 1.0, name="y")
    >>> call = lambda ins, outs: te.call_extern("int32", "add1", ins[0].access_ptr("r"), outs[0].access_ptr("w"))
    >>> te.decl_tensor_intrin(y.op, call, "add1").buffers
    (x, y)
    """

    name: str
    op: Operation
    inputs: tuple[Tensor, ...]
    buffers: tuple[Buffer, ...]
    body: Stmt | None
    reduce_init: Stmt | None
    reduce_update: Stmt | None
    scalar_params: tuple[Var, ...] = ()
    ragged: bool = False

    def __call__(self, *args: Any, reduce_axis: Any = None) -> IntrinCall:
        """The result of the intrinsic for regions of tensors, as the value of a `compute` whose function takes fewer
        indices than it has dimensions.

        args: a region for each input, `A[i, 0:16]`, and a value for each scalar parameter. reduce_axis: axes of loops around it that are also reduced over. Raises
        ExprError.

        >>> x, y = (te.placeholder((16,), name=v) for v in "xy")
        >>> z = te.compute((16,), lambda i: x[i] + y[i], name="z")
        >>> add16 = lambda ins, outs: te.call_extern("int32", "add16", *(b.access_ptr("rw") for b in (*ins, *outs)))
        >>> vadd = te.decl_tensor_intrin(z.op, add16, "vadd", default_buffer_params={"offset_factor": 1})
        >>> A, B = (te.placeholder((64, 16), name=v) for v in "AB")
        >>> C = te.compute((64, 16), lambda i: vadd(A[i, 0:16], B[i, 0:16]))
        """
        return call(self, args, reduce_axis)

    def __repr__(self) -> str:
        return f"TensorIntrin({self.name})"


def decl_tensor_intrin(
    op: Operation,
    fcompute: Callable[..., Any],
    name: str = "tensor_intrin",
    binds: Mapping[Tensor, Buffer] | None = None,
    scalar_params: Any = None,
    default_buffer_params: Mapping[str, Any] | None = None,
) -> TensorIntrin:
    """Declares a tensor intrinsic: the computation `op` and the statements that perform it.

    fcompute: a function of (ins, outs), one Buffer per tensor. It returns a statement, or three: (body, reduce_init,
    reduce_update), of which body or init may be None. name: shown in loops. binds: from a tensor to the layout of its
    buffer (`decl_buffer`, with symbolic strides for regions of larger tensors). Other buffers are row-major, with an
    offset of their own. scalar_params: variables of the compute that stand for one value of a region; `fcompute` gets
    them as a third argument. default_buffer_params: what `decl_buffer` takes, for buffers that `binds` does not name.
    Returns a TensorIntrin. Raises ExprError.

    >>> x = te.placeholder((16,), name="x")
    >>> y = te.compute((16,), lambda i: x[i] + 1.0, name="y")
    >>> call = lambda ins, outs: te.call_extern("int32", "add1", ins[0].access_ptr("r"), outs[0].access_ptr("w"))
    >>> add1 = te.decl_tensor_intrin(y.op, call, "add1")
    >>> A = te.placeholder((64,), name="A")
    >>> B = te.compute((64,), lambda i: A[i] + 1.0, name="B")
    >>> s = te.create_schedule(B.op)
    >>> outer, inner = s[B].split(B.op.axis[0], factor=16)
    >>> s[B].tensorize(inner, add1)
    >>> print(tec.lower(s, [A, B], simple_mode=True))
    @attrs(writes=('B',))
    def main(A: Buffer((64,), "float32"), B: Buffer((64,), "float32")):
        for i_outer in range(4):
            call_extern(access_ptr(A[i_outer * 16], 0, rw='r'), access_ptr(B[i_outer * 16], 0, rw='w'), symbol='add1')
    """
    check_name(name, "tensor intrinsic")
    what = f"tensor intrinsic {name}"
    if isinstance(op, Tensor):
        op = op.op
    if not isinstance(op, ComputeOp):
        raise ExprError(f"{what} needs the compute that it stands for, not {op!r}", hint="pass C.op")
    for t in op.inputs:
        if not isinstance(t.op, PlaceholderOp):
            raise ExprError(
                f"{what}: input {t.name} is itself computed",
                hint="the compute of an intrinsic reads placeholders alone",
            )
    buffers = _intrinsic_buffers(op, binds, default_buffer_params, what)
    n = len(op.inputs)
    scalars = _scalars(scalar_params, what)
    ins, outs = buffers[:n], buffers[n:]
    result = fcompute(ins, outs, list(scalars)) if scalars else fcompute(ins, outs)
    body, first, update = (None if p is None else as_stmt(p, what) for p in _three_parts(result, what))
    if any(map(wmma.calls_of, (body, first, update))):
        ins, outs = [wmma.region(b) for b in ins], [wmma.region(b) for b in outs]
        body, first, update = wmma.statements((body, first, update), op, ins, outs, what)
        return TensorIntrin(name, op, op.inputs, (*ins, *outs), body, first, update, scalars, ragged=True)
    if (first is not None or update is not None) and not op.reduce_axis:
        raise ExprError(
            f"{what} has reduce statements, but {op.name} is no reduction",
            hint="return the one statement, or sum in the intrinsic's compute",
        )
    return TensorIntrin(name, op, op.inputs, tuple(buffers), body, first, update, scalars)


def _scalars(params: Any, what: str) -> tuple[Var, ...]:
    """The variables of a compute that a call of its intrinsic gives values for."""
    scalars = tuple(params or ())
    for v in scalars:
        if not isinstance(v, Var):
            raise ExprError(f"{what}: scalar parameter {v!r} is no variable", hint="tec.var('alpha', 'float32')")
    return scalars


def _intrinsic_buffers(
    op: ComputeOp, binds: Mapping[Tensor, Buffer] | None, defaults: Mapping[str, Any] | None, what: str
) -> list[Buffer]:
    """Those of the inputs and outputs, as `binds` names them or made by `decl_buffer`."""
    binds = dict(binds or {})
    params = {"offset_factor": 1, **(defaults or {})}
    tensors = [*op.inputs, *op.outputs]
    for t in binds:
        if t not in tensors:
            raise ExprError(
                f"{what}: binds names {t!r}, which is neither an input nor an output",
                hint="the tensors of the compute: its placeholders and its own output",
            )
    buffers = []
    for t in tensors:
        bound = binds.get(t)
        if bound is None:
            bound = decl_buffer(t.shape, t.dtype, t.op.name, **params)
        elif bound.ndim != t.ndim or bound.dtype != t.dtype:
            raise ExprError(
                f"{what}: buffer {bound.name} is {bound.dtype} of {bound.ndim} dimensions, tensor {t.name} is {t.dtype} of {t.ndim}",
                hint="give the buffer the tensor's dtype and number of dimensions",
            )
        buffers.append(bound)
    return buffers


def _three_parts(result: Any, what: str) -> list[Any]:
    """(body, reduce_init, reduce_update) of what an intrinsic's function returned."""
    parts = list(result) if isinstance(result, (tuple, list)) else [result]
    if not 1 <= len(parts) <= 3:
        raise ExprError(
            f"the function of {what} returns {len(parts)} statements",
            hint="body, or (body, reduce_init, reduce_update)",
        )
    if len(parts) == 2:  # (init, update), as te allows
        parts = [None, *parts]
    parts += [None] * (3 - len(parts))
    if all(p is None for p in parts):
        raise ExprError(f"the function of {what} returns None", hint="return ib.get()")
    if parts[1] is not None and parts[2] is None:
        raise ExprError(
            f"{what} has a reduce_init without a reduce_update", hint="return (body, reduce_init, reduce_update)"
        )
    return parts
