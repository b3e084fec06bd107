"""The te programs of a network's groups: what a group of operators computes, as tensors, before any choice.

FusedGroup -> Program (te tensors: arguments and outputs) -> loops of a choice
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import field
from typing import Any

import numpy as np

from .. import te
from ..choices import Scheduled
from ..errors import MissingPackageError, TecError
from ..ir import Buffer, Func, IntImm
from ..ir import build as B
from ..ir import expr as E
from ..ir import stmt as S
from ..ir.dtype import dtype_info
from ..ir.visit import map_stmts
from ..ops.dims import Dim, Size, UndecidedSize, bind_hint, product
from ..ops.guards import Guard, recording
from ..ops.registry import COMPLEX, TensorType, static_shape
from ..ops.size_exprs import from_expr
from ..ops.size_vars import variable
from ..records import dataclass
from ..schedule import to_loops
from ..target import Target
from .aliases import PIECE_ALIGN
from .graph import Value
from .joined_axes import Joined, join_axes
from .operators import compute_op
from .passes.fuse import FusedGroup
from .sizes import GroupSizes


@dataclass(frozen=True)
class Placed:
    """An output, by its number, that is new rows of a state along `axis`; `row` says in its one element where they begin. shape: of the whole state."""

    output: int
    axis: int
    row: te.Tensor
    shape: tuple[Size, ...]


@dataclass
class Program:
    """What a group computes: te tensors, before any choice."""

    name: str
    args: list[te.Tensor]
    outputs: list[te.Tensor]
    inputs: list[int]  # which of the group's inputs are arguments
    guards: list[Guard]  # what its sizes must satisfy, under the names it has for them
    sizes: GroupSizes
    rows: list[tuple[int, Any] | None] = field(default_factory=list)  # of arguments, then outputs: those of a state
    loose: list[bool] = field(default_factory=list)  # of the same: whether they begin anywhere
    placed: list[Placed] = field(default_factory=list)
    early: bool = False  # whether its kernels may begin before the ones ahead have ended
    joined: Joined | None = None  # where its tensors have fewer axes than the values that the function takes

    def loops(self, scheduled: Scheduled) -> Func:
        """The function of a choice."""
        tensors = [*self.args, *scheduled.outputs]
        binds = {
            t: _strided(t, _stored(scheduled, t), *rows, f"rows{k}")
            for k, (t, rows) in enumerate(zip(tensors, self.rows))
            if rows is not None
        }
        binds |= {
            t: _anywhere(t, _stored(scheduled, t), f"row{k}")
            for k, (t, loose) in enumerate(zip(tensors, self.loose))
            if loose
        }
        params = [*tensors, *map(variable, self.sizes.names)]
        made = to_loops(scheduled.schedule, params, name=self.name, binds=binds)
        if self.joined is not None:
            made = self.joined.told(made)
        for p in self.placed:
            made = _at_row(made, len(self.args) + p.output, p, self.args.index(p.row))
        return made.with_attrs(early_start=True) if self.early else made


def _stored(scheduled: Scheduled, t: te.Tensor) -> tuple[Size, ...]:
    """The shape that a tensor is stored in."""
    stage = scheduled.schedule.find(t)
    if stage is None or stage.layout is None:
        return static_shape(t)
    return tuple(d.value if isinstance(d, IntImm) else from_expr(d) for d in stage.layout.shape)


def _strided(t: te.Tensor, shape: tuple[Size, ...], axis: int, capacity: Size, name: str) -> Any:
    """A buffer for rows of a state, which has room for `capacity` along the axis."""
    room = (*shape[:axis], capacity, *shape[axis + 1 :])
    strides = [product(room[k + 1 :]) for k in range(len(room))]
    row = product(room[axis + 1 :]) * dtype_info(t.dtype).bits // 8
    align = math.gcd(row, PIECE_ALIGN) if isinstance(row, int) else dtype_info(t.dtype).bits // 8
    return te.decl_buffer(
        _exprs(shape),
        t.dtype,
        name,
        strides=[s.asexpr() if isinstance(s, Dim) else s for s in strides],
        data_alignment=align,
    )


def _at_row(f: Func, param: int, placed: Placed, row: int) -> Func:
    """The function whose parameter is the whole state in place of new rows: what it stores goes to rows from the one on that parameter `row` says."""
    rows, at = f.params[param], f.params[row]
    assert isinstance(rows, Buffer) and isinstance(at, Buffer)
    whole = Buffer(
        rows.name,
        rows.dtype,
        tuple(map(_expr, placed.shape)),
        rows.strides,
        0,
        rows.scope,
        rows.align_bytes,
        loc=rows.loc,
    )
    first = B.cast("int32", E.BufferLoad(at, (E.IntImm(0),)))

    def stored(s: S.Stmt) -> S.Stmt:
        if isinstance(s, S.BufferStore) and s.buffer is rows:
            index = [B.add(i, first) if k == placed.axis else i for k, i in enumerate(s.indices)]
            return S.BufferStore(whole, s.value, tuple(index), s.predicate, s.loc)
        return map_stmts(s, stored)

    params = tuple(whole if p is rows else p for p in f.params)
    return Func(f.name, params, stored(f.body), f.attrs)


def _expr(n: Size) -> Any:
    return n.asexpr() if isinstance(n, Dim) else IntImm(n)


def _anywhere(t: te.Tensor, shape: tuple[Size, ...], name: str) -> Any:
    """A buffer for a row of a value, which begins where the one before it ends."""
    bytes_ = dtype_info(t.dtype).bits // 8
    size = product(shape) * bytes_
    align = math.gcd(size, PIECE_ALIGN) if isinstance(size, int) and size else bytes_
    return te.decl_buffer(_exprs(shape), t.dtype, name, data_alignment=max(align, bytes_))


def _exprs(shape: tuple[Size, ...]) -> list[Any]:
    return [d.asexpr() if isinstance(d, Dim) else d for d in shape]


def _inline_constant(v: Value) -> bool:
    return bool(v.is_known and v.type.size == 1 and not dtype_info(v.dtype).is_float8)


def signature_of(group: FusedGroup, sizes: GroupSizes) -> Any:
    """What makes two groups the same function: operators, attributes, wiring, types, the values of scalars."""
    inputs = group.inputs
    index: dict[Value, Any] = {}
    for k, v in enumerate(inputs):
        index[v] = ("in", k)
    wiring = []
    for k, n in enumerate(group.nodes):
        wiring.append((n.op, repr(sorted(sizes.own(n.attrs).items())), tuple(index[v] for v in n.inputs)))
        for j, v in enumerate(n.outputs):
            index[v] = ("out", k, j)
    wiring.append(("live", "", tuple(index[v] for v in group.outputs)))
    places = tuple(sizes.own(group.rows.get(v)) for v in (*inputs, *group.outputs))
    loose = tuple(v in group.loose for v in (*inputs, *group.outputs))
    wiring.append(("rows", repr((places, loose)), ()))
    types = tuple((sizes.own(v.type), np.asarray(v.data).tobytes() if _inline_constant(v) else None) for v in inputs)
    # A product may ask for constant weights before the kernel ahead of it has ended.
    early = any(n.definition.kind == COMPLEX for n in group.nodes)
    return tuple(wiring), types, tuple(v.data is not None for v in inputs) if early else ()


def program_of(
    group: FusedGroup, number: int, sizes: GroupSizes, guards: list[Guard], target: Target | None = None
) -> Program:
    """The te program of a group; `guards` are what the graph holds its sizes to, `target` what it is for, where that is known. Raises TecError, which names the
    model's node."""
    inputs = group.inputs
    tensors: dict[Value, Any] = {}
    args: list[Any] = []
    used: list[int] = []
    for k, v in enumerate(inputs):
        if _inline_constant(v):
            number_value = (
                np.asarray(v.data).reshape(()).item()
                if v.dtype != "bfloat16"
                else float(np.asarray(v.data).astype(np.float32).reshape(()))
            )
            tensors[v] = te.compute(
                v.shape, (lambda value, kind: lambda *i: te.const(value, kind))(number_value, v.dtype), name="scalar"
            )
        else:
            tensors[v] = te.placeholder(sizes.own(v.shape), v.dtype, name=f"x{k}")
            if v.data is not None:
                tensors[v].op.attrs["constant"] = True
            args.append(tensors[v])
            used.append(k)
    known = sizes.own_guards(guards)
    conditions = list(known)
    with naming(group, sizes), recording(conditions):
        for n in group.nodes:
            types = [sizes.own(v.type) for v in n.outputs]
            outs = compute_op(n.definition, sizes.own(n.attrs), [tensors[v] for v in n.inputs], types)
            tensors.update(zip(n.outputs, outs))
        outputs = [_as_output(tensors[v], sizes.own(v.type)) for v in group.outputs]
    placed = [
        Placed(group.outputs.index(n.outputs[0]), n.attrs["axis"], tensors[n.inputs[2]], sizes.own(n.outputs[0].shape))
        for n in group.nodes
        if n.op == "append" and len(n.inputs) > 2
    ]
    read = _placeholders(outputs) | {p.row.op for p in placed}
    used = [k for k, t in zip(used, args) if t.op in read]  # an empty part of a concatenation is not
    args = [t for t in args if t.op in read]
    rows = [sizes.own(group.rows.get(v)) for v in (*(inputs[k] for k in used), *group.outputs)]
    loose = [v in group.loose for v in (*(inputs[k] for k in used), *group.outputs)]
    joined = join_axes(args, outputs, target) if not placed and not any(rows) else None
    if joined is not None:
        args, outputs = joined.args, joined.outputs
    return Program(
        _name(group, number), args, outputs, used, conditions[len(known) :], sizes, rows, loose, placed, joined=joined
    )


@contextmanager
def naming(group: FusedGroup, sizes: GroupSizes) -> Iterator[None]:
    """Errors say which of the model's nodes they are about, and what its open sizes are."""
    try:
        yield
    except MissingPackageError:
        raise  # of no node's making
    except TecError as error:
        own = f" ({', '.join(f'{n} is {s}' for n, s in sizes.back.items())})" if sizes.names else ""
        raise type(error)(
            f"while compiling {group} ({group.nodes[-1].origin}): {error.message}{own}",
            where=error.where,
            hint=bind_hint(sizes.products) if sizes.names else error.hint,
            locate=False,
        ) from error
    except (TypeError, ValueError, AttributeError, AssertionError) as error:
        if not sizes.names:
            raise
        # A definition or a schedule that counts on numbers.
        raise UndecidedSize(
            f"{group} ({group.nodes[-1].origin}) cannot be compiled while its sizes are symbolic: {error}",
            hint=bind_hint(sizes.products),
            locate=False,
        ) from error


def _placeholders(outputs: list[Any]) -> set[Any]:
    """The placeholders that tensors are computed from, as they are defined or in another form: a form takes its operator's inputs, also one that
    the definition has no use for."""
    found: set[Any] = set()
    seen: set[int] = set()
    stack = [t.op for t in outputs]
    while stack:
        op = stack.pop()
        if id(op) in seen:
            continue
        seen.add(id(op))
        if isinstance(op, te.PlaceholderOp):
            found.add(op)
        stack.extend(t.op for t in op.inputs)
        if (form := op.attrs.get("form")) is not None:
            stack.extend(t.op for t in form.inputs)
    return found


def _as_output(t: Any, type_: TensorType) -> Any:
    """A tensor that can be an output: a compute of its own where the operator gave one of its inputs back."""
    if isinstance(t.op, te.PlaceholderOp):
        return te.compute(type_.shape, lambda *i: t(*i), name="copy")
    return t


def _name(group: FusedGroup, number: int) -> str:
    words = [n.op for n in group.nodes]
    text = "_".join(dict.fromkeys(words))
    return f"f{number}_{text[:48]}"
