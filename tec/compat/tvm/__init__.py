"""TVM v0.14's te surface over tec: `import tec.compat.tvm as tvm`.

    import tec.compat.tvm as tvm
    from tec.compat.tvm import te

    tvm.install()      # or: what says `import tvm` and `from tvm import te` finds this package

`python -m tec.compat.tvm program.py` runs a program of TVM's unchanged. What stands here is names: te, tir, topi, nd, runtime, target, lower and build are
tec's own, with TVM's spelling of arguments and fields. docs/tvm.md says what is different and what is left out.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from tec.runtime.modules.callbacks import get_global_func, register_func, remove_global_func

from . import arith, container, devices, driver, error, ir, nd, runtime, target, te, tir, transform
from .devices import cpu, cuda, device, gpu, rocm
from .driver import build, lower
from .error import TVMError
from .install import install
from .ir import IRModule
from .names import absent
from .nd import NDArray
from .runtime import DataType

__version__ = "0.14.0"

# Read when they are first asked for: their imports are long, and most programs use none of them.
_LATER = ("autotvm", "contrib", "relay", "script", "testing", "topi", "_ffi")
_absent = absent(__name__)


def context(dev_type: Any, dev_id: int = 0) -> Any:
    """`device`, as it was called before TVM 0.8."""
    return device(dev_type, dev_id)


def __getattr__(name: str) -> Any:
    if name in _LATER:
        return import_module(f".{name}", __name__)
    if name in ("ndarray",):
        return nd
    return _absent(name)
