"""The trace of a schedule: the primitives applied, as the Python that makes the same schedule again.

In: each primitive as it succeeds, with its arguments and results. Out: `print(s.trace)`, lines of Python; and
`replay(text, outputs)`, which applies such text to a computation without running it as Python: only names, constants,
arithmetic and the primitives' own names are understood, so a trace from elsewhere cannot do anything else.
"""

from __future__ import annotations

import ast
import keyword
from typing import TYPE_CHECKING, Any

from ..errors import ScheduleError
from ..ir import build as B
from ..ir import expr as E
from ..te.operation import Operation
from ..te.tensor import Tensor

if TYPE_CHECKING:
    from .schedule import Schedule
    from .stage import Stage

STAGE_METHODS = frozenset(
    "split tile fuse reorder bind vectorize unroll parallel tensorize pragma prefetch compute_at compute_inline "
    "compute_root set_scope env_threads set_store_predicate storage_align double_buffer rolling_buffer "
    "transform_layout".split()
)
SCHEDULE_METHODS = frozenset("cache_read cache_write rfactor create_group".split())
_BINARY: dict[type, str] = {
    E.Add: "+", E.Sub: "-", E.Mul: "*", E.FloorDiv: "//", E.FloorMod: "%", E.EQ: "==", E.NE: "!=", E.LT: "<",
    E.LE: "<=", E.GT: ">", E.GE: ">=",
}  # fmt: skip


class Trace:
    """Steps of one schedule; prints as Python. `intrins`: the tensor intrinsics it names."""

    def __init__(self, sch: Schedule):
        self.sch = sch
        self.lines: list[str] = []
        self.intrins: dict[str, Any] = {}
        self._names: dict[int, str] = {}
        self._taken: set[str] = {"s", "tec", "intrins"}
        self._axes: dict[int, tuple[Stage, str, int]] = {}
        self._keep: list[Any] = []  # ids stay valid while the objects live
        for stage in sch.stages:
            self._name_outputs(stage)
            self.see(stage, stage.op)
        outs = ", ".join(self._text(op.output(0)) for op in sch.outputs)
        self.head = f"s = tec.create_schedule([{outs}])"

    def __str__(self) -> str:
        return "\n".join([self.head, *self.lines])

    __repr__ = __str__

    def __len__(self) -> int:
        return len(self.lines)

    @property
    def symbols(self) -> dict[str, Any]:
        """The names that a trace begins with: tensors and the variables in their shapes."""
        return {self._names[id(x)]: x for x in self._keep if isinstance(x, (Tensor, E.Var)) and id(x) in self._names}

    # ---- recording

    def see(self, stage: Stage, op: Operation) -> None:
        """`stage` computes `op` from now on: where its axes are found."""
        for attr in ("axis", "reduce_axis"):
            for k, iv in enumerate(getattr(op, attr)):
                self._axes[id(iv)] = (stage, attr, k)
                self._keep.append(iv)

    def _name_outputs(self, stage: Stage) -> None:
        from ..ir.visit import free_vars

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
        return name

    def add(self, stage: Stage | None, method: str, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any) -> None:
        parts = [self._text(a) for a in args]
        parts += [f"{k}={self._text(v)}" for k, v in kwargs.items() if v is not None and v is not False]
        target = "s" if stage is None else self._text(stage)
        call = f"{target}.{method}({', '.join(parts)})"
        if out is None:
            self.lines.append(call)
            return
        items = list(out) if isinstance(out, (tuple, list)) else [out]
        names = [self._result(x) for x in items]
        left = ", ".join(names) + ("," if isinstance(out, (tuple, list)) and len(items) == 1 else "")
        self.lines.append(f"{left} = {call}" if items else call)

    def _result(self, x: Any) -> str:
        if isinstance(x, E.IterVar):
            return self._name(x, x.name)
        return self._name(x, x.op.name if isinstance(x, Tensor) else x.name)

    # ---- text of arguments

    def _text(self, x: Any) -> str:
        from .stage import Stage

        known = self._names.get(id(x))
        if isinstance(x, Stage):
            return known if known is not None and x.is_group else f"s[{self._stage_name(x)}]"
        if known is not None:
            return known
        if x is None or isinstance(x, (bool, int, float, str)):
            return repr(x)
        if isinstance(x, (list, tuple)):
            return "[" + ", ".join(self._text(i) for i in x) + "]"
        if isinstance(x, E.IterVar):
            return self._axis(x)
        if isinstance(x, Operation):
            return self._text(x.output(0))
        if isinstance(x, Tensor):
            return self._tensor(x)
        if isinstance(x, E.Expr):
            return self._expr(x)
        if hasattr(x, "reduce_update"):
            return self._intrin(x)
        if callable(x):
            return self._lambda(x)
        return repr(x)

    def _stage_name(self, stage: Stage) -> str:
        for op in (stage.origin_op, stage.op):
            if op is not None:
                for t in op.outputs:
                    if id(t) in self._names:
                        return self._names[id(t)]
        return self._name(stage.op.output(0), stage.name)

    def _tensor(self, t: Tensor) -> str:
        """A tensor of a replaced operation is known by the stage's own."""
        stage = self.sch.find(t)
        if stage is not None and stage.origin_op is not None and stage.origin_op is not t.op:
            return self._text(stage.origin_op.output(t.value_index))
        return self._name(t, t.name)

    def _axis(self, iv: E.IterVar) -> str:
        if iv.kind == E.IterKind.THREAD:
            args = [repr(iv.thread_tag)]
            if iv.dom is not None:
                args.insert(0, f"({self._expr(iv.dom.min)}, {self._expr(B.add(iv.dom.min, iv.dom.extent))})")
            name = self._name(iv, iv.thread_tag)
            self.lines.append(f"{name} = tec.thread_axis({', '.join(args)})")
            return name
        place = self._axes.get(id(iv))
        if place is None:
            return self._name(iv, iv.name)
        stage, attr, k = place
        where = f"{self._text(stage)}.op.{attr}[{k}]"
        name = self._name(iv, iv.name)
        self.lines.append(f"{name} = {where}")
        return name

    def _intrin(self, x: Any) -> str:
        name, n = x.name, 1
        while self.intrins.get(name, x) is not x:
            name = f"{x.name}_{n}"
            n += 1
        self.intrins[name] = x
        return f"intrins[{name!r}]"

    def _lambda(self, f: Any) -> str:
        import inspect

        names = [p.name for p in inspect.signature(f).parameters.values()]
        own = [E.Var(n, "int32", True) for n in names]
        out = f(*own)
        saved = dict(self._names)
        self._names.update({id(v): v.name for v in own})
        items = list(out) if isinstance(out, (list, tuple)) else [out]
        body = ", ".join(self._text(B.convert(e)) for e in items)
        self._names = saved
        return f"lambda {', '.join(names)}: [{body}]"

    def _expr(self, e: E.Expr) -> str:
        known = self._names.get(id(e))
        if known is not None:
            return known
        if isinstance(e, E.IntImm):
            return repr(bool(e.value)) if e.dtype == "bool" else str(e.value)
        if isinstance(e, E.FloatImm):
            return repr(e.value)
        if isinstance(e, E.Var):
            for x in self._keep:
                if isinstance(x, E.IterVar) and x.var is e and id(x) in self._names:
                    return f"{self._names[id(x)]}.var"
            return e.name
        op = _BINARY.get(type(e))
        if op is not None:
            return f"({self._expr(e.a)} {op} {self._expr(e.b)})"  # type: ignore[attr-defined]
        if isinstance(e, (E.And, E.Or)):
            return f"tec.{'all' if isinstance(e, E.And) else 'any'}({self._expr(e.a)}, {self._expr(e.b)})"
        return str(e)


# ---- replay


def replay(trace: Any, outputs: Any, intrins: dict[str, Any] | None = None) -> Schedule:
    """Make the schedule that a trace (or its text) describes, for the computation of `outputs`.

    outputs: as for create_schedule; operations are matched by their names. intrins: the tensor intrinsics by name.
    Returns a Schedule. Raises ScheduleError on text that is no trace, and where a primitive does not apply.
    """
    from .schedule import create_schedule

    sch = create_schedule(outputs)
    known = {**(trace.intrins if isinstance(trace, Trace) else {}), **(intrins or {})}
    env: dict[str, Any] = {**sch.trace.symbols, "intrins": known}
    try:
        tree = ast.parse(str(trace))
    except SyntaxError as e:
        raise ScheduleError(f"the trace is no Python: {e.msg} in line {e.lineno}") from None
    player = _Player(sch, env)
    for node in tree.body:
        player.statement(node)
    return sch


class _Player:
    """Evaluates the small part of Python that traces are made of."""

    def __init__(self, sch: Schedule, env: dict[str, Any]):
        self.sch = sch
        self.env = env

    def error(self, node: ast.AST, what: str) -> ScheduleError:
        return ScheduleError(f"line {getattr(node, 'lineno', '?')} of the trace: {what}: {ast.unparse(node)}")

    def statement(self, node: ast.stmt) -> None:
        if isinstance(node, ast.Expr):
            self.value(node.value)
            return
        if not isinstance(node, ast.Assign) or len(node.targets) != 1:
            raise self.error(node, "not a step of a trace")
        target, value = node.targets[0], self.value(node.value)
        if isinstance(target, ast.Name):
            self.env[target.id] = value
        elif isinstance(target, ast.Tuple) and all(isinstance(t, ast.Name) for t in target.elts):
            items = list(value) if isinstance(value, (tuple, list)) else None
            if items is None or len(items) != len(target.elts):
                raise self.error(node, f"{len(target.elts)} names for what it gives")
            self.env.update({t.id: v for t, v in zip(target.elts, items)})  # type: ignore[attr-defined]
        else:
            raise self.error(node, "not a step of a trace")

    def value(self, node: ast.expr) -> Any:
        match node:
            case ast.Constant():
                return node.value
            case ast.Name():
                if node.id == "s":
                    return self.sch
                if node.id not in self.env:
                    raise self.error(node, "unknown name")
                return self.env[node.id]
            case ast.List() | ast.Tuple():
                return [self.value(e) for e in node.elts]
            case ast.UnaryOp(op=ast.USub()):
                return -self.value(node.operand)
            case ast.BinOp() | ast.Compare():
                return self._operator(node)
            case ast.Subscript():
                return self._subscript(node)
            case ast.Attribute():
                if node.attr not in ("op", "axis", "reduce_axis", "var"):
                    raise self.error(node, "no attribute of a trace")
                return getattr(self.value(node.value), node.attr)
            case ast.Lambda():
                return self._function(node)
            case ast.Call():
                return self._call(node)
        raise self.error(node, "not part of a trace")

    def _operator(self, node: ast.BinOp | ast.Compare) -> Any:
        import operator as o

        table: dict[type, Any] = {
            ast.Add: o.add, ast.Sub: o.sub, ast.Mult: o.mul, ast.FloorDiv: o.floordiv, ast.Mod: o.mod, ast.Eq: o.eq,
            ast.NotEq: o.ne, ast.Lt: o.lt, ast.LtE: o.le, ast.Gt: o.gt, ast.GtE: o.ge,
        }  # fmt: skip
        if isinstance(node, ast.BinOp):
            kind: type = type(node.op)
            a, b = node.left, node.right
        else:
            kind, a, b = type(node.ops[0]), node.left, node.comparators[0]
        if kind not in table:
            raise self.error(node, "unknown operator")
        return table[kind](self.value(a), self.value(b))

    def _subscript(self, node: ast.Subscript) -> Any:
        base, key = self.value(node.value), self.value(node.slice)
        if base is self.sch:
            return self.sch[key]
        if isinstance(base, (tuple, list, dict)):
            try:
                return base[key]
            except (IndexError, KeyError, TypeError):
                raise self.error(node, "there is none") from None
        raise self.error(node, "cannot be indexed")

    def _function(self, node: ast.Lambda) -> Any:
        names = [a.arg for a in node.args.args]

        def call(*values: Any) -> Any:
            inner = _Player(self.sch, {**self.env, **dict(zip(names, values))})
            return inner.value(node.body)

        call.__signature__ = _signature(names)  # type: ignore[attr-defined]
        return call

    def _call(self, node: ast.Call) -> Any:
        if not isinstance(node.func, ast.Attribute):
            raise self.error(node, "not a primitive")
        args = [self.value(a) for a in node.args]
        kwargs = {k.arg: self.value(k.value) for k in node.keywords if k.arg is not None}
        name, base = node.func.attr, node.func.value
        if isinstance(base, ast.Name) and base.id == "tec":
            return self._language(node, name, args)
        target = self.value(base)
        allowed = SCHEDULE_METHODS if target is self.sch else STAGE_METHODS
        from .stage import Stage

        if name not in allowed or not (target is self.sch or isinstance(target, Stage)):
            raise self.error(node, "not a primitive")
        try:
            return getattr(target, name)(*args, **kwargs)
        except TypeError as e:
            raise self.error(node, str(e)) from None

    def _language(self, node: ast.Call, name: str, args: list[Any]) -> Any:
        from ..te.build import thread_axis

        if name == "create_schedule":
            return self.sch
        if name == "thread_axis":
            dom = tuple(args[0]) if len(args) == 2 else None
            return thread_axis(dom, args[-1])
        if name in ("all", "any"):
            return (B.all_of if name == "all" else B.any_of)(*args)
        raise self.error(node, "not part of a trace")


def _signature(names: list[str]) -> Any:
    import inspect

    return inspect.Signature([inspect.Parameter(n, inspect.Parameter.POSITIONAL_OR_KEYWORD) for n in names])
