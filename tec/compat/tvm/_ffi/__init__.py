"""tvm._ffi: what programs take from it: the registry of functions, the error."""

from tec.runtime.modules.callbacks import get_global_func, register_func

from . import base

__all__ = ["base", "get_global_func", "register_func"]
