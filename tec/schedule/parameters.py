"""The parameters of a function: which tensor each Buffer stands for."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

from ..errors import ArgumentError
from ..ir import expr as E
from ..ir.buffer import GLOBAL, Buffer
from ..ir.effects import effects
from ..te.complexes import is_complex_op, reals
from ..te.operation import ExternOp, Operation, PlaceholderOp, ScanOp
from ..te.tensor import Tensor
from .schedule import Schedule
from .stage import Stage
from .storage import clean


class Parameters:
    """What the user gave, checked: `params` in call order, `order` the stages and outputs that buffers stand for."""

    def __init__(self, sch: Schedule, args: Sequence[Any], binds: dict[Any, Buffer] | None):
        self.sch = sch
        self.params: list[Buffer | E.Var] = []
        self.tensors: dict[tuple[int, int], Buffer] = {}  # (stage, value_index) -> buffer
        self.order: list[tuple[Stage, int, Buffer]] = []
        self._names: set[str] = set()
        given = dict(binds or {})
        by_buffer = {id(b): t for t, b in given.items()}
        self.complex: list[str] = []  # the parameters that callers give complex numbers for
        for k, a in enumerate(map(reals, args)):
            if isinstance(a, Tensor):
                self._tensor(k, a, given.pop(a, None))
            elif isinstance(a, Buffer):
                t = by_buffer.get(id(a))
                if t is None:
                    raise ArgumentError(
                        f"parameter {k}, buffer {a.name}, stands for no tensor", hint=f"binds={{tensor: {a.name}}}"
                    )
                given.pop(t, None)
                self._tensor(k, t, a)
            elif isinstance(a, E.Var):
                if any(p is a for p in self.params):
                    raise ArgumentError(
                        f"parameter {k}, variable {a.name}, is given twice", hint="name each variable once"
                    )
                self.params.append(a)
            else:
                raise ArgumentError(
                    f"parameter {k} is {a!r} ({type(a).__name__})", hint="give Tensors, Buffers (with binds=) and Vars"
                )
        if given:
            raise ArgumentError(
                f"binds names {', '.join(str(getattr(t, 'name', t)) for t in given)}, which is no parameter",
                hint="list the tensor (or its buffer) among the parameters",
            )
        self._check_complete()

    def _tensor(self, k: int, t: Any, buffer: Buffer | None) -> None:
        """Add a tensor as a parameter: in the buffer that was given for it, or in one of its own."""
        stage = self.sch.find(t)
        if stage is None and isinstance(t, Tensor) and isinstance(t.op, PlaceholderOp):
            # Nothing reads it: functions of one signature are made so.
            buffer = buffer if buffer is not None else Buffer(self._unique(t.name), t.dtype, t.shape, loc=t.op.loc)
            if is_complex_op(t.op):
                self.complex.append(buffer.name)
            self.params.append(buffer)
            return
        if not isinstance(t, Tensor) or stage is None:
            raise ArgumentError(
                f"parameter {k}, {getattr(t, 'name', t)}, is not part of the schedule",
                hint="pass the tensors that the schedule's outputs are computed from; a tensor of another compute is another tensor, also under the same name",
            )
        key = (id(stage), t.value_index)
        if key in self.tensors:
            raise ArgumentError(f"parameter {k}, tensor {t.name}, is given twice", hint="list each tensor once")
        shape = stage.layout.shape if stage.layout is not None else t.shape
        if buffer is None:
            buffer = Buffer(self._unique(t.name), t.dtype, shape, loc=stage.op.loc)
        elif buffer.dtype != t.dtype or len(buffer.shape) != len(shape):
            raise ArgumentError(
                f"buffer {buffer.name} ({buffer.dtype}, {len(buffer.shape)} dimensions) cannot hold {t.name} "
                f"({t.dtype}, {len(shape)} dimensions)",
                hint="declare it with the tensor's shape and dtype: tec.decl_buffer(T.shape, T.dtype)",
            )
        elif buffer.scope != GLOBAL:
            raise ArgumentError(
                f"buffer {buffer.name} of parameter {k} is in {buffer.scope} memory", hint="global memory"
            )
        if is_complex_op(t.op):
            self.complex.append(buffer.name)
        self.tensors[key] = buffer
        self.order.append((stage, t.value_index, buffer))
        self.params.append(buffer)

    def _unique(self, name: str) -> str:
        name = clean(name)
        base, n = name, 1
        while name in self._names:
            name = f"{base}_{n}"
            n += 1
        self._names.add(name)
        return name

    def _left_out(self, stage: Stage, t: Tensor) -> None:
        asked = any((id(stage), other.value_index) in self.tensors for other in stage.op.outputs)
        if not asked and not self.sch.readers(stage) and not writes_inputs(stage.op):
            what = f"output {t.name} is not among the parameters, and nothing reads it: it is computed in vain"
            warnings.warn(what, stacklevel=2)

    def _check_complete(self) -> None:
        states = {t.op for s in self.sch.stages if isinstance(s.op, ScanOp) for t in s.op.state_placeholder}
        written = any(stage.is_output and not isinstance(stage.op, PlaceholderOp) for stage, _, _ in self.order)
        written = written or any(writes_inputs(stage.op) for stage in self.sch.stages)
        for stage in self.sch.stages:
            if isinstance(stage.op, PlaceholderOp):
                needed = stage.op not in states and (stage.is_output or self.sch.readers(stage))
            else:
                needed = stage.is_output
            if not needed:
                continue
            for t in stage.op.outputs:
                if (id(stage), t.value_index) in self.tensors:
                    continue
                if written and stage.is_output and not isinstance(stage.op, PlaceholderOp):
                    self._left_out(stage, t)  # computed in memory of the function's own
                    continue
                kind = "input" if isinstance(stage.op, PlaceholderOp) else "output"
                raise ArgumentError(
                    f"{kind} {t.name} is not among the parameters",
                    hint=f"add it to the list: [..., {t.name}]",
                )


def writes_inputs(op: Operation) -> bool:
    """Whether hand-written statements change what they are given, which is then their result."""
    if not isinstance(op, ExternOp):
        return False
    return not effects(op.body).writes.isdisjoint(map(id, op.input_placeholders))
