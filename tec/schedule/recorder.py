"""What keeps a schedule's trace: names for its tensors, loops and launch indices, and records whose arguments are these names.

In: each primitive as it succeeds, with what it gave. Out: `trace`, which holds no object of the schedule.
"""

from __future__ import annotations

import keyword
from typing import TYPE_CHECKING, Any

from ..ir import build as B
from ..ir import expr as E
from ..ir.visit import free_vars
from ..te.operation import Operation
from ..te.tensor import Tensor
from .primitives import Code, Define, Intrin, Primitive, Ref, StageOf
from .primitives.base import argument_names
from .primitives.layout import call_mapping, index_names
from .state import StageState
from .trace import Trace
from .tracecode import expr_code

if TYPE_CHECKING:
    from .schedule import Schedule
    from .stage import Stage


class Recorder:
    """The names of one schedule, and its trace."""

    def __init__(self, sch: Schedule):
        self.sch = sch
        self.trace = Trace()
        self._names: dict[int, str] = {}
        self._taken: set[str] = {"s", "tec", "intrins"}
        self._axes: dict[int, tuple[Stage, str, int]] = {}
        self._loop_of: dict[int, E.IterVar] = {}  # the loop of a loop variable, of those that have names
        self._keep: list[Any] = []  # ids stay valid while the objects live
        for stage in sch.stages:
            self._name_outputs(stage)
            self.see(stage, stage.op)
        self.symbols: dict[str, Any] = {
            self._names[id(x)]: x for x in self._keep if isinstance(x, (Tensor, E.Var)) and id(x) in self._names
        }
        self.trace.symbols = tuple(self.symbols)
        self.trace.outputs = tuple(self._names[id(op.output(0))] for op in sch.outputs)

    def see(self, stage: Stage, op: Operation) -> None:
        """`stage` computes `op` from now on: where its axes are found."""
        for attr in ("axis", "reduce_axis"):
            for k, iv in enumerate(getattr(op, attr)):
                self._axes[id(iv)] = (stage, attr, k)
                self._keep.append(iv)

    def add(self, record: Primitive[Any], given: Any) -> None:
        """Append `record`, which was applied to live arguments and gave `given`."""
        kind = type(record)
        args = {name: self._data(getattr(record, name), record) for name in argument_names(kind)}
        if given is None:
            out: Any = None
        elif isinstance(given, (tuple, list)):
            out = tuple([self._result(x) for x in given])
        else:
            out = self._result(given)
        self.trace.records.append(kind(**args, out=out))

    # ---- names

    def _name_outputs(self, stage: Stage) -> None:
        op = stage.op
        for t in op.outputs:
            self._name(t, stage.name if op.num_outputs == 1 else f"{stage.name}_v{t.value_index}")
            for d in t.shape:
                for v in free_vars(d):
                    if id(v) not in self._names:
                        self._name(v, v.name)

    def _name(self, x: Any, wish: str) -> str:
        name = "".join(c if c.isalnum() or c == "_" else "_" for c in wish) or "x"
        if name[0].isdigit() or keyword.iskeyword(name):
            name = "_" + name
        base, n = name, 1
        while name in self._taken:
            name = f"{base}_{n}"
            n += 1
        self._taken.add(name)
        self._names[id(x)] = name
        self._keep.append(x)
        if isinstance(x, E.IterVar):
            self._loop_of[id(x.var)] = x
        return name

    def _result(self, x: Any) -> str:
        if isinstance(x, Tensor):
            return self._name(x, x.op.name)
        return self._name(x, x.name)

    # ---- arguments as data

    def _data(self, x: Any, record: Primitive[Any]) -> Any:
        if isinstance(x, StageState):
            return self._stage(x)
        known = self._names.get(id(x))
        if known is not None:
            return Ref(known)
        if x is None or isinstance(x, (bool, int, float, str)):
            return x
        if isinstance(x, (list, tuple)):
            return tuple([self._data(i, record) for i in x])
        if isinstance(x, E.IterVar):
            return self._axis(x)
        if isinstance(x, Operation):
            return self._data(x.output(0), record)
        if isinstance(x, Tensor):
            return self._tensor(x)
        if isinstance(x, (E.IntImm, E.FloatImm)):
            return bool(x.value) if x.dtype == "bool" else x.value
        if isinstance(x, E.Expr):
            return Code(expr_code(x, self._variable))
        if hasattr(x, "reduce_update"):
            return self._intrin(x)
        if callable(x):
            return self._function(x, record.stage.op.output(0).ndim)  # type: ignore[attr-defined]
        return int(x) if hasattr(x, "__index__") else Code(repr(x))

    def _stage(self, stage: Any) -> Ref | StageOf:
        if stage.is_group:
            return Ref(self._names[id(stage)])
        for op in (stage.origin_op, stage.op):
            for t in op.outputs:
                if id(t) in self._names:
                    return StageOf(self._names[id(t)])
        return StageOf(self._name(stage.op.output(0), stage.name))

    def _tensor(self, t: Tensor) -> Ref:
        """A tensor of a replaced operation is known by the stage's own."""
        stage = self.sch.find(t)
        if stage is not None and stage.origin_op is not None and stage.origin_op is not t.op:
            t = stage.origin_op.output(t.value_index)
        return Ref(self._names.get(id(t)) or self._name(t, t.name))

    def _axis(self, iv: E.IterVar) -> Ref:
        """An axis of an operation or a launch index, which a line of its own gives a name."""
        if iv.kind == E.IterKind.THREAD:
            args = [repr(iv.thread_tag)]
            if iv.dom is not None:
                low, end = (expr_code(B.convert(e), self._variable) for e in (iv.dom.min, iv.dom.min + iv.dom.extent))
                args.insert(0, f"({low}, {end})")
            code, wish = f"tec.thread_axis({', '.join(args)})", iv.thread_tag
        elif id(iv) in self._axes:
            stage, attr, k = self._axes[id(iv)]
            code, wish = f"{self._stage(stage)}.op.{attr}[{k}]", iv.name
        else:
            return Ref(self._name(iv, iv.name))
        name = self._name(iv, wish)
        self.trace.records.append(Define(Code(code), out=name))
        return Ref(name)

    def _variable(self, e: E.Expr) -> str | None:
        known = self._names.get(id(e))
        if known is None and isinstance(e, E.Var) and id(e) in self._loop_of:
            return f"{self._names[id(self._loop_of[id(e)])]}.var"
        return known

    def _intrin(self, x: Any) -> Intrin:
        name, n = x.name, 1
        while self.trace.intrins.get(name, x) is not x:
            name = f"{x.name}_{n}"
            n += 1
        self.trace.intrins[name] = x
        return Intrin(name)

    def _function(self, f: Any, ndim: int) -> Code:
        names = index_names(f, ndim)
        own = [E.Var(n, "int32", True) for n in names]
        by_id = {id(v): v.name for v in own}
        items = [expr_code(B.convert(e), lambda e: by_id.get(id(e)) or self._variable(e)) for e in call_mapping(f, own)]
        return Code(f"lambda {', '.join(names)}: [{', '.join(items)}]")
