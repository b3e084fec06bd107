"""Operations: how a tensor comes about. The nodes of the dataflow graph that a schedule works on.

`PlaceholderOp` (an input), `ComputeOp` (a lambda over axes), `ScanOp` (a recurrence over time), `ExternOp` (statements
written by hand). The classes take checked parts and do not check; `tec.te.compute` and its like are the front doors.
A schedule makes operations of its own (cache stages, factored reductions) through the same constructors.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from ..errors import Loc, caller_loc
from ..ir.buffer import Buffer
from ..ir.build import const
from ..ir.expr import Expr, IterKind, IterVar, Range, Reduce, TensorRead, Var
from ..ir.spelling import Spelled
from ..ir.stmt import Stmt
from ..ir.visit import children
from .tensor import Tensor


class Operation(Spelled):
    """Base class of the operations.

    name, tag: labels. attrs: the user's notes. loc: the user's line that made it. axis, reduce_axis: its iteration
    variables. `output(i)` always returns the same Tensor object.

    >>> A, k = te.placeholder((8, 4), name="A"), te.reduce_axis(4, name="k")
    >>> B = te.compute((8,), lambda i: te.sum(A[i, k], axis=k), name="B")
    >>> B.op.inputs, [a.name for a in B.op.root_iter_vars()]
    ((Tensor(shape=[8, 4], dtype=float32, op=A),), ['i', 'k'])
    >>> B.op.output(0) is B
    True
    """

    __slots__ = ("__weakref__", "_outputs", "attrs", "loc", "name", "tag")

    def __init__(self, name: str, tag: str = "", attrs: dict[str, Any] | None = None, loc: Loc | None = None):
        self.name = name
        self.tag = tag
        self.attrs = attrs or {}
        self.loc = loc if loc is not None else caller_loc()
        self._outputs: tuple[Tensor, ...] | None = None

    # Operations are compared by identity.
    __hash__ = object.__hash__

    def _make_outputs(self) -> Iterable[tuple[tuple[Expr, ...], str]]:
        """Shape and dtype of each output."""
        raise NotImplementedError

    @property
    def outputs(self) -> tuple[Tensor, ...]:
        """All output tensors."""
        if self._outputs is None:
            self._outputs = tuple(
                Tensor(self, i, shape, dtype) for i, (shape, dtype) in enumerate(self._make_outputs())
            )
        return self._outputs

    def output(self, index: int = 0) -> Tensor:
        """The output tensor of a number. It is always the same object."""
        return self.outputs[index]

    @property
    def num_outputs(self) -> int:
        """How many tensors it computes."""
        return 1

    @property
    def inputs(self) -> tuple[Tensor, ...]:
        """The tensors it reads, in order of first appearance."""
        return ()

    # te users know it as input_tensors.
    @property
    def input_tensors(self) -> tuple[Tensor, ...]:
        """The tensors it reads (`inputs`), under te's name."""
        return self.inputs

    @property
    def axis(self) -> tuple[IterVar, ...]:
        """Its data axes, one for each dimension of the output."""
        return ()

    @property
    def reduce_axis(self) -> tuple[IterVar, ...]:
        """The axes over which it reduces."""
        return ()

    def root_iter_vars(self) -> tuple[IterVar, ...]:
        """The loops of this operation before any scheduling, outermost first."""
        return (*self.axis, *self.reduce_axis)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name})"


class PlaceholderOp(Operation):
    """An input whose values are given at run time. attrs: `constant` where nothing ever writes them: a kernel may read them while the one ahead of it still runs.

    >>> A = te.placeholder((8,), "float16", name="A")
    >>> A.op, A.op.shape, A.op.dtype
    (PlaceholderOp(A), (8,), 'float16')
    """

    __slots__ = ("dtype", "shape")

    def __init__(self, name: str, shape: tuple[Expr, ...], dtype: str, loc: Loc | None = None):
        super().__init__(name, loc=loc)
        self.shape = shape
        self.dtype = dtype

    def _make_outputs(self) -> Iterable[tuple[tuple[Expr, ...], str]]:
        return [(self.shape, self.dtype)]


class ComputeOp(Operation):
    """`output[k][axis] = body[k]` for all values of `axis`.

    Where `body` is a reduction, every element of it is a `Reduce` over the same combiner, sources and axes, with
    `value_index` 0, 1, ...

    >>> A = te.placeholder((8,), name="A")
    >>> C = te.compute((8,), lambda i: A[i] * 2.0, name="C")
    >>> C.op.axis, C.op.body
    ((iter_var(i, [0, 0 + 8), data),), (A[i] * 2.0,))
    """

    __slots__ = ("_axis", "_inputs", "body")

    def __init__(
        self,
        name: str,
        axis: Sequence[IterVar],
        body: Sequence[Expr],
        tag: str = "",
        attrs: dict[str, Any] | None = None,
        loc: Loc | None = None,
    ):
        super().__init__(name, tag, attrs, loc)
        self._axis = tuple(axis)
        self.body = tuple(body)
        self._inputs: tuple[Tensor, ...] | None = None

    @property
    def axis(self) -> tuple[IterVar, ...]:
        return self._axis

    @property
    def reduce_axis(self) -> tuple[IterVar, ...]:
        first = self.body[0]
        return first.axis if isinstance(first, Reduce) else ()

    @property
    def num_outputs(self) -> int:
        return len(self.body)

    @property
    def shape(self) -> tuple[Expr, ...]:
        """The shape of every output: the extents of the axes."""
        return tuple(a.dom.extent for a in self._axis if a.dom is not None)

    def _make_outputs(self) -> Iterable[tuple[tuple[Expr, ...], str]]:
        shape = self.shape
        return [(shape, e.dtype) for e in self.body]

    @property
    def inputs(self) -> tuple[Tensor, ...]:
        if self._inputs is None:
            self._inputs = read_tensors(self.body)
        return self._inputs


class ScanOp(Operation):
    """A recurrence: `state[0:k] = init`, then `state[t] = update(state[t-1], ...)` for the remaining times.

    scan_axis: the time, from init's extent to the state's; spatial_axis: one for each further dimension of each state;
    init, update, state_placeholder: tensors, one a state; extra inputs come first in `scan_inputs`.

    >>> X = te.placeholder((5, 8), name="X")
    >>> init = te.compute((1, 8), lambda t, i: X[0, i], name="init")
    >>> state = te.placeholder((5, 8), name="state")
    >>> step = te.compute((5, 8), lambda t, i: state[t - 1, i] + X[t, i], name="step")
    >>> sums = te.scan(init, step, state, inputs=[X], name="sums")
    >>> sums.op.scan_axis.dom
    Range(min=1, extent=4)
    """

    __slots__ = ("init", "scan_axis", "scan_inputs", "spatial_axis", "state_placeholder", "update")

    def __init__(
        self,
        name: str,
        init: Sequence[Tensor],
        update: Sequence[Tensor],
        state_placeholder: Sequence[Tensor],
        inputs: Sequence[Tensor] = (),
        tag: str = "",
        attrs: dict[str, Any] | None = None,
        loc: Loc | None = None,
        scan_axis: IterVar | None = None,
    ):
        super().__init__(name, tag, attrs, loc)
        self.init = tuple(init)
        self.update = tuple(update)
        self.state_placeholder = tuple(state_placeholder)
        self.scan_inputs = tuple(inputs)
        start, end = self.init[0].shape[0], self.state_placeholder[0].shape[0]
        self.scan_axis = (
            scan_axis
            if scan_axis is not None
            else IterVar(Var(f"{name}.idx", start.dtype), Range(start, end - start), IterKind.ORDERED, loc=self.loc)
        )
        self.spatial_axis = tuple(
            IterVar(
                Var(f"out{k}_i{d}", extent.dtype, True),
                Range(const(0, extent.dtype), extent),
                IterKind.OPAQUE,
                loc=self.loc,
            )
            for k, state in enumerate(self.state_placeholder)
            for d, extent in enumerate(state.shape[1:], 1)
        )

    @property
    def num_outputs(self) -> int:
        return len(self.update)

    @property
    def axis(self) -> tuple[IterVar, ...]:
        return (self.scan_axis, *self.spatial_axis)

    @property
    def inputs(self) -> tuple[Tensor, ...]:
        return (*self.init, *self.update)

    def _make_outputs(self) -> Iterable[tuple[tuple[Expr, ...], str]]:
        return [(s.shape, s.dtype) for s in self.state_placeholder]


class ExternOp(Operation):
    """Hand-written statements: `body` reads `input_placeholders` and writes `output_placeholders` (Buffers).

    axis: the loops that a schedule may change (those of a hybrid script). Each has the variable of its `For`.

    >>> A = te.placeholder((8,), name="A")
    >>> C = te.extern((8,), [A], lambda ins, outs: te.call_extern("int32", "f", ins[0].data, outs[0].data), dtype="float32", name="C")
    >>> C.op.inputs, C.op.num_outputs
    ((Tensor(shape=[8], dtype=float32, op=A),), 1)
    """

    __slots__ = ("_axis", "_inputs", "body", "input_placeholders", "output_placeholders")

    def __init__(
        self,
        name: str,
        inputs: Sequence[Tensor],
        input_placeholders: Sequence[Buffer],
        output_placeholders: Sequence[Buffer],
        body: Stmt,
        tag: str = "",
        attrs: dict[str, Any] | None = None,
        loc: Loc | None = None,
        axis: Sequence[IterVar] = (),
    ):
        super().__init__(name, tag, attrs, loc)
        self._inputs = tuple(inputs)
        self._axis = tuple(axis)
        self.input_placeholders = tuple(input_placeholders)
        self.output_placeholders = tuple(output_placeholders)
        self.body = body

    @property
    def axis(self) -> tuple[IterVar, ...]:
        return self._axis

    @property
    def num_outputs(self) -> int:
        return len(self.output_placeholders)

    @property
    def inputs(self) -> tuple[Tensor, ...]:
        return tuple(dict.fromkeys(self._inputs))

    def _make_outputs(self) -> Iterable[tuple[tuple[Expr, ...], str]]:
        return [(b.shape, b.dtype) for b in self.output_placeholders]


def read_tensors(exprs: Iterable[Expr]) -> tuple[Tensor, ...]:
    """The tensors that expressions read, in order of first appearance."""
    found: dict[Tensor, None] = {}
    seen: set[int] = set()

    stack = list(exprs)[::-1]
    while stack:
        e = stack.pop()
        if id(e) in seen:
            continue
        seen.add(id(e))
        if type(e) is TensorRead:
            found.setdefault(e.tensor)
        stack.extend(reversed(children(e)))
    return tuple(found)


def topo_order(outputs: Tensor | Operation | Iterable[Tensor | Operation]) -> list[Operation]:
    """All operations that `outputs` need, each once, with producers first.

    >>> A = te.placeholder((8,), name="A")
    >>> B = te.compute((8,), lambda i: A[i] + 1.0, name="B")
    >>> C = te.compute((8,), lambda i: A[i] * B[i], name="C")
    >>> te.topo_order(C)
    [PlaceholderOp(A), ComputeOp(B), ComputeOp(C)]
    """
    roots = [outputs] if isinstance(outputs, (Tensor, Operation)) else list(outputs)
    order: list[Operation] = []
    done: set[Operation] = set()
    stack: list[tuple[Operation, bool]] = [(o.op if isinstance(o, Tensor) else o, False) for o in reversed(roots)]
    while stack:
        op, expanded = stack.pop()
        if expanded:
            order.append(op)
        elif op not in done:
            done.add(op)
            stack.append((op, True))
            stack.extend((t.op, False) for t in reversed(op.inputs) if t.op not in done)
    return order
