"""Runs a chapter (.md) or a tutorial (.py) that imports tvm: `python -m tests.foreign.tvm_programs PATH`."""

from __future__ import annotations

import importlib
import os
import re
import runpy
import sys
import types
from pathlib import Path
from typing import Any

import numpy as np

import tec.compat.tvm as tvm
from tec.runtime.modules.host_cpu import lacks

STUBBED = (
    "matplotlib",
    "matplotlib.pyplot",
    "IPython",
    "IPython.display",
    "mxnet",
    "tvm.contrib.tedd",
    "tec.compat.tvm.contrib.tedd",
)


class Stub(types.ModuleType):
    """A package for pictures: every name is there and does nothing."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return Stub(f"{self.__name__}.{name}")

    def __call__(self, *args: Any, **options: Any) -> Any:
        return Stub("result")

    def __setitem__(self, key: Any, value: Any) -> None:
        pass


class Array(np.ndarray):
    """An array of MXNet's, as far as the chapters use it."""

    def asnumpy(self) -> Any:
        return np.asarray(self)

    def wait_to_read(self) -> None:
        pass

    def copyto(self, other: Any) -> Any:
        other[...] = self
        return other

    def expand_dims(self, axis: int) -> Any:
        return np.expand_dims(self, axis)

    def as_in_context(self, context: Any) -> Array:
        return self


def array(x: Any, ctx: Any = None, dtype: Any = None) -> Array:
    return np.array(x, dtype or getattr(x, "dtype", "float32")).view(Array)


def windows(x: Any, kernel: Any, stride: Any) -> Any:
    at = np.lib.stride_tricks.sliding_window_view(x, tuple(kernel), (2, 3))
    return at[:, :, :: stride[0], :: stride[1]]


def padded(x: Any, pad: Any, value: float = 0.0) -> Any:
    return np.pad(x, ((0, 0), (0, 0), (pad[0],) * 2, (pad[1],) * 2), constant_values=value)


def convolution(
    data: Any, weight: Any, bias: Any = None, kernel: Any = None, stride: Any = (1, 1), pad: Any = (0, 0), num_filter: int = 0, out: Any = None,
    num_group: int = 1, no_bias: bool = False, **options: Any,
) -> Any:  # fmt: skip
    parts = zip(np.split(np.asarray(padded(data, pad)), num_group, 1), np.split(np.asarray(weight), num_group, 0))
    made = np.concatenate([np.einsum("nchwyx,ocyx->nohw", windows(x, w.shape[2:], stride), w) for x, w in parts], 1)
    made = made if bias is None else made + np.asarray(bias)[None, :, None, None]
    out[...] = made
    return out


def pooling(data: Any, kernel: Any, stride: Any, pad: Any, pool_type: str, out: Any, **options: Any) -> Any:
    low = -np.inf if pool_type == "max" else 0.0
    at = windows(padded(np.asarray(data), pad, low), kernel, stride)
    out[...] = at.max((-2, -1)) if pool_type == "max" else at.mean((-2, -1))
    return out


def batch_norm(
    data: Any, gamma: Any, beta: Any, mean: Any, var: Any, eps: float = 1e-3, use_global_stats: bool = False, fix_gamma: bool = True, out: Any = None,
    **options: Any,
) -> Any:  # fmt: skip
    shape = (1, -1, 1, 1)
    x, m, v, g, b = (np.asarray(a) for a in (data, mean, var, gamma, beta))
    g = np.ones_like(g) if fix_gamma else g
    flat = (a.reshape(shape) for a in (m, v, g, b))
    m, v, g, b = flat
    out[...] = (x - m) / np.sqrt(v + eps) * g + b
    return out


def stand_ins() -> None:
    """Put stubs of pictures, and NumPy in place of MXNet, among the modules."""
    for name in STUBBED:
        sys.modules[name] = Stub(name)
        parent, _, own = name.rpartition(".")
        if parent and parent != "tvm.contrib":
            setattr(importlib.import_module(parent), own, sys.modules[name])
    mx: Any = sys.modules["mxnet"]
    mx.nd = types.SimpleNamespace(
        array=array, empty=lambda s, *a, **k: array(np.empty(s, "float32")), zeros=lambda s, *a, **k: array(np.zeros(s, "float32")),
        Convolution=convolution, Pooling=pooling, BatchNorm=batch_norm, dot=lambda a, b, out=None: np.dot(a, b, out=out), broadcast_add=np.add,
        elemwise_add=lambda a, b, out: np.add(a, b, out=out), waitall=lambda: None,
    )  # fmt: skip
    mx.cpu = mx.gpu = lambda *a: None


def for_this_host(code: str) -> str:
    """The book's schedules are for one processor of its authors: where this one lacks what that has, code is made for what this one is. The software GPU
    times small sizes."""
    code = code.replace(" -mcpu=skylake-avx512", "") if lacks(["avx512f"]) else code
    if os.environ.get("TEC_EMULATE"):  # products up to 16,384 wide, as a GPU's chapter times them, are 10^13 operations
        code = code.replace("2**np.arange(8, 15, 1)", "2**np.arange(8, 10, 1)")
    return code


def chapter(path: Path) -> None:
    """The code blocks of a page, in one namespace."""
    sys.path.insert(0, str(path.parents[1]))
    space: dict[str, Any] = {"__name__": "__main__"}
    for k, block in enumerate(re.findall(r"```\{\.python \.input[^}]*\}\n(.*?)```", path.read_text(), re.DOTALL)):
        lines = [line for line in block.split("\n") if not line.startswith(("%", "!"))]
        exec(compile(for_this_host("\n".join(lines)), f"{path.name}[{k}]", "exec"), space)


def main() -> None:
    path = Path(sys.argv[1]).resolve()
    tvm.install()
    stand_ins()
    np.set_printoptions(
        legacy="1.25"
    )  # chapters put sizes of NumPy's into text that they run: "32" and not "np.int64(32)"
    if path.suffix == ".md":
        chapter(path)
    else:
        sys.argv = [str(path)]
        runpy.run_path(str(path), run_name="__main__")


if __name__ == "__main__":
    main()
