"""tvm.script.ir: modules of TVMScript."""

from __future__ import annotations

import types
from typing import Any

from tec import ir

from ..names import absent
from .parser import Unread

__all__ = ["ir_module", "module_attrs"]

# The attribute of a function that only functions of its module call: it is no entry of what is compiled.
_INTERNAL = -1


def ir_module(cls: type) -> ir.IRModule:
    """The functions of a class as a module. They may call one another (`module.name(...)`): what is called stands in its caller."""
    written = {name: f for name, f in vars(cls).items() if isinstance(f, Unread)}
    here = {cls.__name__: types.SimpleNamespace(**written)}
    made = {name: f.read(here) for name, f in written.items()}
    return ir.IRModule({n: f for n, f in made.items() if f.attrs.get("calling_conv") != _INTERNAL})


def module_attrs(attrs: dict[str, Any]) -> None:
    """Attributes of a module, which say nothing to tec."""


__getattr__ = absent(__name__)
