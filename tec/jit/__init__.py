"""Compiling when it is first needed: kernels written as Python functions, launched and looked into.

`kernel` is the decorator, `specialise` compiles for given types of arguments and keeps what it compiled, `messages` brings back what
kernels print and assert, `ndrange` chooses blocks, `reflection` shows what is compiled on the way.
"""

from .launching import Kernel, kernel
from .reflection import device_code

__all__ = ["Kernel", "device_code", "kernel"]
