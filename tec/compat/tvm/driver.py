"""tvm.lower, tvm.build and tvm.driver.build_module."""

from __future__ import annotations

import types
from typing import Any

from tec import driver as _driver
from tec import ir
from tec.choices import Scheduled
from tec.errors import ArgumentError
from tec.ir.visit import substitute_stmt, visit
from tec.schedule import Schedule
from tec.target import as_target
from tec.te import Tensor, decl_buffer
from tec.te.operation import PlaceholderOp

from .modules import Module
from .names import absent
from .physical import physical
from .target import plain
from .tir.function import HandMade, functions_of
from .tir.transform import own_passes, rewritten

__all__ = ["build", "build_module", "lower"]


# Passes that make several loops of one, or vectors of a loop that the schedule left as it is. Loops over threads are partitioned by TVM too.
_OWN_LOOPS = ("partition_loops", "cut_loops", "vectorize_loops")


def lower(inp: Any, args: Any = None, name: str = "main", binds: Any = None, simple_mode: bool = False) -> ir.IRModule:
    """Loop IR of a schedule or a function.

    Who reads the loops expects those of the schedule: which of them become vectors or are cut in parts is decided when the
    function is built.
    """
    if isinstance(inp, Scheduled):
        return _driver.lower(inp, args, name, simple_mode, binds)
    if not isinstance(inp, Schedule):
        return _driver.lower(functions_of(inp), simple_mode=simple_mode)
    args = list(args or ())
    target, args, binds = as_target(None), [*args, *_left_out(inp, args)], _binds(inp, args, binds)
    if simple_mode:
        # Tiles of matrix units stay as they are: programs print schedules before they tensorize them.
        # They are for reading, those of a schedule too that `build` refuses for a read outside of a tensor.
        loops = _driver._to_loops(inp, args, name, binds, target, reads_checked=False)
        shown = [p for p in _driver.PIPELINE[: _driver.SIMPLE_MODE_PASSES] if p[0] in ("simplify", "unify_threads")]
        return ir.IRModule({name: _driver.run_passes(loops, target, shown)})
    first = _driver.lower(inp, args, name, True, binds)
    if own_passes():
        return ir.IRModule({f.name: rewritten(f) for f in first})
    apart = _separators(inp, args)
    if apart:
        return ir.IRModule({f.name: physical(f, apart, target).with_attrs(lowered_from=(f, target)) for f in first})
    left = _OWN_LOOPS if not any(st.thread_of(iv) for st in inp.stages for iv in st.leaf) else _OWN_LOOPS[1:]
    passes = [p for p in _driver.PIPELINE[_driver.SIMPLE_MODE_PASSES :] if p[0] not in left]
    return ir.IRModule(
        {f.name: _driver.run_passes(f, target, passes).with_attrs(lowered_from=(f, target)) for f in first}
    )


def _binds(sch: Schedule, args: Any, binds: Any) -> dict[Any, ir.Buffer]:
    """Inputs with a size that no loop runs over may have one element there, which all indices then are: TVM binds them so."""
    ops = [st.op for st in sch.stages if st.op is not None]
    run = {id(a.dom.extent) for op in ops for a in (*op.axis, *op.reduce_axis) if a.dom is not None}
    found = dict(binds or {})
    for t in args or ():
        if isinstance(t, Tensor) and isinstance(t.op, PlaceholderOp) and t not in found:
            if any(isinstance(d, ir.Var) and id(d) not in run for d in t.shape):
                found[t] = decl_buffer(t.shape, t.dtype, t.op.name, buffer_type="auto_broadcast")
    return found


def _on_threads(func: ir.Func, sch: Schedule) -> ir.Func:
    """A pass of one's own may name a thread by the axis that a loop was bound to: that is the variable of the loop over the threads."""
    axes = {a.thread.var: a.thread.thread_tag for st in sch.stages for a in st.attrs.values() if a.thread is not None}
    loops: dict[str, ir.Var] = {}

    def met(s: Any) -> None:
        if isinstance(s, ir.For) and s.thread:
            loops.setdefault(s.thread, s.var)

    visit(func.body, None, met)
    return func.with_body(substitute_stmt(func.body, {v: loops[tag] for v, tag in axes.items() if tag in loops}))


def _separators(sch: Schedule, args: Any) -> dict[str, tuple[int, ...]]:
    """By name of a parameter, where the layout of its tensor has separators."""
    layouts = {t.name: st.layout for t in args if isinstance(t, Tensor) and (st := sch.find(t)) is not None}
    return {name: layout.separators for name, layout in layouts.items() if layout is not None and layout.separators}


def _left_out(sch: Schedule, args: Any) -> list[Any]:
    """The outputs that are not among the parameters, where none is: who looks at loops may leave them out."""
    outs = [t for op in sch.outputs for t in op.outputs if not isinstance(op, PlaceholderOp)]
    return [] if any(o is a for o in outs for a in args) or any(isinstance(a, ir.Buffer) for a in args) else outs


def build(*args: Any, **named: Any) -> Any:
    """A module of a schedule, of functions, or of {target: functions}; see `tvm.build`."""
    return Module.of(_build(*args, **named))


def _build(
    inputs: Any,
    args: Any = None,
    target: Any = None,
    target_host: Any = None,
    runtime: Any = None,
    name: str = "main",
    binds: Any = None,
) -> Any:
    """A module of a schedule, of functions, or of {target: functions}."""
    if isinstance(inputs, dict) and not isinstance(inputs, ir.IRModule):
        if len(inputs) != 1:
            raise ArgumentError(
                f"build of functions for {len(inputs)} targets at once", hint="build each target's functions by itself"
            )
        ((target, inputs),) = inputs.items()
    chosen = plain(target)
    host = None if target_host is None else plain(target_host)
    if isinstance(inputs, Scheduled):  # what topi.schedule gives
        return _driver.build(inputs, args, chosen, host, name)
    if isinstance(inputs, Schedule) and own_passes():
        loops = _driver._to_loops(inputs, args, name, _binds(inputs, args, binds), as_target(chosen))
        return _driver.build(functions_of(_on_threads(rewritten(loops), inputs)), None, chosen, host)
    if isinstance(inputs, Schedule):
        return _driver.build(inputs, args, chosen, host, name, _binds(inputs, args, binds))
    made = _unlowered(functions_of(inputs), chosen)
    if isinstance(made, HandMade):
        return made.built(chosen)
    found = list(made) if isinstance(made, ir.IRModule) else made
    if isinstance(found, list) and any(isinstance(f, HandMade) and f.returns for f in found):
        if len(found) == 1:
            return found[0].built(chosen)
        raise ArgumentError("a function that returns a value is built by itself", hint="tvm.build(f) of each")
    return _driver.build(made, None, chosen, host)


def _unlowered(given: Any, target: Any) -> Any:
    """Functions that were lowered for another target as they were before: TVM's lowering asks no target."""
    if isinstance(given, ir.IRModule):
        return ir.IRModule({n: _unlowered(f, target) for n, f in given.functions.items()})
    if isinstance(given, list):
        return [_unlowered(f, target) for f in given]
    if isinstance(given, ir.Func) and "lowered_from" in given.attrs:
        origin, have = given.attrs["lowered_from"]
        return given if str(have) == str(as_target(target)) else origin
    return given


def _schedule_to_module(sch: Any, args: Any = None, name: str = "main", binds: Any = None) -> ir.IRModule:
    return _driver.lower(sch, list(args or []), name, True, binds)


build_module = types.SimpleNamespace(build=build, lower=lower, schedule_to_module=_schedule_to_module)

__path__: list[str] = []  # what stands below is found by `install`
__getattr__ = absent(__name__)
