"""Builds loop IR by hand and runs it on this machine, without the runtime's modules."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import numpy as np

from tec.codegen.cpu import HostCode, build_cpu
from tec.ir import Buffer, BufferLoad, BufferStore, Expr, For, Func, IntImm, Ramp, Stmt, Var
from tec.runtime.modules import hostpool
from tec.runtime.objects.objfile import LoadedObject, load_object
from tec.target import Target

NUMPY = {"bool": np.bool_, "bfloat16": np.uint16}


def numpy_dtype(dtype: str) -> Any:
    return NUMPY.get(dtype, dtype)


def buffer(name: str, dtype: str, n: int | Var) -> Buffer:
    return Buffer(name, dtype, (IntImm(n) if isinstance(n, int) else n,))


class Built:
    """A compiled function, called with NumPy arrays and scalars."""

    def __init__(self, code: HostCode, name: str):
        self.code = code
        self.object: LoadedObject = load_object(code.object, hostpool.symbols())
        self.entry = self.object.function(name)

    def __call__(self, *arrays: np.ndarray[Any, Any], scalars: tuple[int, ...] = ()) -> int:
        pointers = (ctypes.c_void_p * max(1, len(arrays)))(*[a.ctypes.data for a in arrays])
        words = (ctypes.c_int64 * max(1, len(scalars)))(*scalars)
        return int(self.entry(ctypes.addressof(pointers), ctypes.addressof(words)))


def compile_func(f: Func, target: str = "llvm") -> Built:
    return Built(build_cpu([f], Target(target)), f.name)


def elementwise(
    fn: Callable[..., Expr], in_dtypes: list[str], out_dtype: str, n: int, lanes: int = 1, target: str = "llvm"
) -> Built:
    """`out[i] = fn(a[i], b[i], ...)` over n elements, `lanes` at a time."""
    inputs = [buffer(f"in{k}", d, n) for k, d in enumerate(in_dtypes)]
    out = buffer("out", out_dtype, n)
    i = Var("i")
    index: Expr = i if lanes == 1 else Ramp(i * lanes, IntImm(1), lanes)
    body: Stmt = BufferStore(out, fn(*[BufferLoad(b, (index,)) for b in inputs]), (index,))
    f = Func("main", (*inputs, out), For(i, IntImm(0), IntImm(n // lanes), body))
    return compile_func(f, target)
