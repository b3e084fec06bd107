"""Compiling when it is first needed: kernels written as Python functions, launched and looked into.

`kernel` is the decorator, `specialise` compiles for given types of arguments and keeps what it compiled, `messages` brings back what
kernels print and assert, `ndrange` chooses blocks, `occupancy` says how many fit, `autotuning` measures, `packs` takes arguments apart that are several to
compiled code, `reflection` shows what is compiled on the way.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, overload

from ..errors import meant_by_a_call
from .launching import Kernel
from .launching import kernel as _kernel
from .occupancy import Occupancy, launch_configuration, occupancy
from .reflection import device_code

# Under the decorator's name, where one looks for them: tec.kernel.occupancy(k, x, y). Checkers of types know no attributes of a
# function, and are shown an object that is called as it is.
if TYPE_CHECKING:

    class _Decorator:
        @overload
        def __call__(self, function: Callable[..., Any], *, autotune: None = None) -> Kernel: ...
        @overload
        def __call__(self, function: None = None, *, autotune: Any = None) -> Callable[[Callable[..., Any]], Any]: ...
        @overload
        def __call__(self, function: Callable[..., Any], *, autotune: Any) -> Any: ...
        def __call__(self, function: Any = None, *, autotune: Any = None) -> Any: ...

        occupancy = staticmethod(occupancy)
        launch_configuration = staticmethod(launch_configuration)

    kernel = _Decorator()
else:
    kernel = _kernel
    for _function in (occupancy, launch_configuration):
        for _holder in (kernel, Kernel):  # k.occupancy(x, y) is the same
            setattr(_holder, _function.__name__, _function)

meant_by_a_call(
    __name__,
    "@tec.kernel is a kernel by hand; tec.array.jit(f) compiles a function of arrays whole",
)

__all__ = ["Kernel", "Occupancy", "device_code", "kernel", "launch_configuration", "occupancy"]


def __dir__() -> list[str]:
    """The public names, which completion then offers."""
    return sorted(__all__)
