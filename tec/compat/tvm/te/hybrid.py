"""tvm.te.hybrid: scripts. `build` gives the loops of a scheduled script, which run in the interpreter."""

from __future__ import annotations

from typing import Any

import numpy as np

import tec
from tec import ir
from tec.errors import ArgumentError
from tec.ir import interp
from tec.ir.build import const
from tec.ir.expr import Var
from tec.ir.passes.thread_storage import in_thread_loops
from tec.ir.visit import substitute
from tec.te import Tensor, extern
from tec.te.hybrid import Hybrid

from ..names import absent

__all__ = ["HybridModule", "build", "script"]


class _Script(Hybrid):
    """A hybrid function. Several results come as a list."""

    def __call__(self, *args: Any) -> Any:
        out = super().__call__(*args)
        return list(out) if isinstance(out, tuple) else out


def script(pyfunc: Any) -> _Script:
    """`@tvm.te.hybrid.script`."""
    return _Script(pyfunc)


class HybridModule:
    """What `build` gives: called with arrays it computes, with tensors it gives the outputs."""

    def __init__(self, sch: Any, inputs: Any, outputs: Any, name: str = "hybrid_func"):
        self.name, self.outputs = name, list(outputs)
        loops = next(iter(tec.lower(sch, [*inputs, *self.outputs], name, simple_mode=True)))
        self.func: ir.Func = loops.with_body(in_thread_loops(loops.body))

    def _tensors(self, inputs: list[Tensor]) -> Any:
        """The outputs for other inputs, by the same loops."""
        buffers = [p for p in self.func.params if isinstance(p, ir.Buffer)]
        ins, outs = buffers[: len(inputs)], buffers[len(inputs) :]
        made = extern(
            [list(b.shape) for b in outs],
            inputs,
            lambda i, o: self.func.body,
            self.name,
            [b.dtype for b in outs],
            ins,
            outs,
        )
        return list(made) if isinstance(made, tuple) else made

    def get_source(self) -> str:
        """The loops as text."""
        return str(self.func)

    def __call__(self, *args: Any) -> Any:
        given = [a for a in args if not isinstance(a, list)]
        if not any(isinstance(a, np.ndarray) for a in given):
            return self._tensors([a for a in given if isinstance(a, Tensor)])
        sizes = {v: const(int(a)) for v, a in zip(self.func.params, given) if isinstance(v, Var)}
        outs = [np.zeros([_size(substitute(d, sizes)) for d in t.shape], t.dtype) for t in self.outputs]
        interp.run(self.func, [*given, *outs])
        return outs if len(outs) > 1 else outs[0]


def _size(e: ir.Expr) -> int:
    if not isinstance(e, ir.IntImm):
        raise ArgumentError(f"the size {e} of an output is not known", hint="give its variables as arguments")
    return e.value


def build(sch: Any, inputs: Any, outputs: Any, name: str = "hybrid_func") -> HybridModule:
    """The loops of a scheduled script."""
    return HybridModule(sch, inputs, outputs, name)


__path__: list[str] = []  # what stands below is found by `install`
__getattr__ = absent(__name__)
