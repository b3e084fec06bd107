"""Functions and modules of loop IR."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import field
from typing import Any

from ..notebook import code
from ..records import dataclass
from .buffer import Buffer
from .expr import Expr, Var
from .spelling import Spelled
from .stmt import Stmt
from .visit import free_vars


@dataclass(slots=True, eq=False, repr=False)
class Func(Spelled):
    """A function of loop IR.

    params, in call order: Buffers (scope global) and scalar Vars. Variables in the buffers' shapes and strides that are
    not params themselves are bound from the arguments' shapes ("implicit" parameters, see `implicit_vars`).

    attrs used by the compiler: "kernel" (True for a device kernel), "threads" ({tag: (Var, extent Expr)} of a kernel),
    "fast_math" (set of LLVM flags), "noalias" (bool), "writes" (names of params written), "import_llvm" (texts of LLVM modules that it calls functions of), "shapes" ({number: extents} of params that
    callers know by more dimensions), "loc", "lowered_from" (of a function of stage "lowered": what it was before the passes, and the Target).
    """

    name: str
    params: tuple[Buffer | Var, ...]
    body: Stmt
    attrs: dict[str, Any] = field(default_factory=dict)

    def with_body(self, body: Stmt, **attrs: Any) -> Func:
        """The same function with another body (itself, where nothing changed) and more attrs."""
        if body is self.body and not attrs:
            return self
        return Func(self.name, self.params, body, {**self.attrs, **attrs})

    def with_attrs(self, **attrs: Any) -> Func:
        """The same function with more attrs."""
        return Func(self.name, self.params, self.body, {**self.attrs, **attrs})

    def implicit_vars(self) -> tuple[Var, ...]:
        """Variables of the parameters' shapes, strides and offsets that are not parameters, in order of appearance."""
        layouts = [(*p.shape, *p.strides, p.elem_offset) for p in self.params if isinstance(p, Buffer)]
        own = {id(p) for p in self.params}
        found = {id(v): v for layout in layouts for e in layout if isinstance(e, Expr) for v in free_vars(e)}
        return tuple(v for k, v in found.items() if k not in own)

    def __str__(self) -> str:
        from .printer import func_to_text

        return func_to_text(self)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return code(str(self))


@dataclass(slots=True, eq=False, repr=False)
class IRModule(Spelled):
    """Functions by name, in order. Prints as text that `tec.ir.parse` reads back."""

    functions: dict[str, Func]
    attrs: dict[str, Any] = field(default_factory=dict)

    def __getitem__(self, name: str) -> Func:
        return self.functions[name]

    def __iter__(self) -> Iterator[Func]:
        return iter(self.functions.values())

    def __len__(self) -> int:
        return len(self.functions)

    def __str__(self) -> str:
        return "\n\n".join(str(f) for f in self)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return code(str(self))
