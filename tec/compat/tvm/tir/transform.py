"""tvm.tir.transform: passes of one's own over the loops of a schedule (`PassContext(config={"tir.add_lower_pass": [(1, f)]})`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tec import driver as _driver
from tec import ir
from tec.target import as_target

from ..names import absent
from ..target import plain
from ..transform import PassContext

__all__ = ["Apply", "PrimFuncPass", "prim_func_pass"]


class PrimFuncPass:
    """A function of loop IR to loop IR, called as `f(func, module, context)`."""

    def __init__(self, change: Callable[..., ir.Func], name: str = ""):
        self.change, self.name = change, name or getattr(change, "__name__", "pass")

    def __call__(self, mod: Any) -> Any:
        """The module, or function, with each function changed."""
        context = PassContext.current()
        if isinstance(mod, ir.IRModule):
            return ir.IRModule({name: self.change(f, mod, context) for name, f in mod.functions.items()})
        return self.change(mod, ir.IRModule({mod.name: mod}), context)


def prim_func_pass(
    pass_func: Any = None, opt_level: int = 0, name: str = "", required: Any = None, traceable: bool = False
) -> Any:
    """A pass of a function `f(func, module, context)`; also as a decorator."""
    if pass_func is None:
        return lambda f: PrimFuncPass(f, name)
    return PrimFuncPass(pass_func, name)


def Apply(change: Callable[[ir.Func], ir.Func]) -> PrimFuncPass:
    """A pass of a function `f(func)`."""
    return PrimFuncPass(lambda f, mod, context: change(f), "Apply")


# TVM's passes, and tec's pass of the same work. A module is in the form that the pass before it in `tec.driver.PIPELINE` leaves.
_OURS = {
    "FlattenBuffer": "flatten_buffers", "HoistIfThenElse": "hoist_conditions", "InjectDoubleBuffer": "pipeline", "InjectPrefetch": "inject_prefetch",
    "InjectVirtualThread": "inject_vthread", "LoopPartition": "partition_loops", "LowerThreadAllreduce": "lower_allreduce", "RemoveNoOp": "remove_noop",
    "Simplify": "simplify", "StorageFlatten": "flatten_buffers", "StorageRewrite": "plan_storage", "UnrollLoop": "unroll", "VectorizeLoop": "vectorize",
}  # fmt: skip


def _ours(name: str, ours: str) -> Callable[..., PrimFuncPass]:
    def make(*options: Any, **named: Any) -> PrimFuncPass:
        steps = [p for p in _driver.PIPELINE if p[0] == ours][:1]

        def change(f: ir.Func, mod: Any, context: Any) -> ir.Func:
            return _driver.run_passes(f, as_target(plain(f.attrs.get("target"))), steps)

        return PrimFuncPass(change, name)

    make.__name__ = make.__qualname__ = name
    make.__doc__ = f"TVM's {name}: tec's pass {ours}."
    return make


globals().update({name: _ours(name, ours) for name, ours in _OURS.items()})


def own_passes() -> list[Any]:
    """The passes that the PassContext adds to lowering, in order of their phases."""
    added = PassContext.current().config.get("tir.add_lower_pass") or ()
    return [change for _, change in sorted(added, key=lambda p: int(p[0]))]


def rewritten(func: ir.Func) -> ir.Func:
    """The loops of a schedule after those passes."""
    for change in own_passes():
        func = change(func)
    return func


__getattr__ = absent(__name__)
