"""tvm.script.tir (`T`): the words of a function in TVMScript. All other names are tvm.tir's."""

from __future__ import annotations

import re
from types import FunctionType
from typing import Any

from tec.errors import ExprError

from .. import tir as _tir
from ..names import absent
from .parser import Unread
from .words import *  # noqa: F403
from .words import Dtype

_DTYPE = re.compile(r"(bool|handle|(float|bfloat|int|uint)\d+)(x\d+)?")


def prim_func(func: Any = None, private: bool = False, check_well_formed: bool = True) -> Any:
    """A function of loop IR from its text. In a class of `ir_module` it is read when the class is whole."""
    if func is None:
        return prim_func
    if not isinstance(func, FunctionType):
        raise ExprError(f"prim_func of {func!r}", hint="a function defined by def")
    made, owner = Unread(func), func.__qualname__.rpartition(".")[0]
    return made if owner and not owner.endswith("<locals>") else made.read({})


_tir_name = absent("tec.compat.tvm.script.tir")


def __getattr__(name: str) -> Any:
    if _DTYPE.fullmatch(name):
        return Dtype(name)
    found = None if name.startswith("__") else vars(_tir).get(name)
    return _tir_name(name) if found is None else found
