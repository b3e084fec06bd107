"""Compiling when it is first needed: kernels written as Python functions, launched and looked into.

`kernel` is the decorator, `specialise` compiles for given types of arguments and keeps what it compiled, `messages` brings back what
kernels print and assert, `ndrange` chooses blocks, `occupancy` says how many fit, `autotuning` measures, `packs` takes arguments apart that are several to
compiled code, `reflection` shows what is compiled on the way.
"""

from .launching import Kernel, kernel
from .occupancy import Occupancy, launch_configuration, occupancy
from .reflection import device_code

# Under the decorator's name, where one looks for them: tec.kernel.occupancy(k, x, y).
for _function in (occupancy, launch_configuration):
    setattr(kernel, _function.__name__, _function)

__all__ = ["Kernel", "Occupancy", "device_code", "kernel", "launch_configuration", "occupancy"]
