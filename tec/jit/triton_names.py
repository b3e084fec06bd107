"""Names of the package `triton` for programs that were written for it: `from tec.tile import triton` beside `import tec.tile as tl`, or `install()`, which
lets `import triton` and `import triton.language as tl` mean these.

| what stands here | for |
| --- | --- |
| `jit`, `autotune`, `heuristics`, `Config`, `cdiv`, `next_power_of_2`, `constexpr_function`, `JITFunction`, `KernelInterface`, `TritonError`, `set_allocator` | `triton` |
| `tec.tile` | `triton.language` |
| `testing`: `do_bench`, `assert_close`, `assert_almost_equal`, `Benchmark`, `perf_report` | `triton.testing` |
| `tools.tensor_descriptor.TensorDescriptor`, `tools.mxfp`: `MXFP4Tensor`, `MXScaleTensor` | `triton.tools` |
| `profiler`: `scope`, `start`, `activate`, `deactivate`, `finalize`, which gather nothing | `triton.profiler`; `tec.profile` profiles |
| `runtime.driver.active`: `get_active_torch_device`, `get_current_target`, `get_current_device`, `utils.get_device_properties` | `triton.runtime` |
| `runtime.autotuner`: `Autotuner`, `Heuristics`, `Config`, `autotune`, `heuristics` | `triton.runtime.autotuner`, for subclasses |
| `runtime.jit`: `TensorWrapper`, `reinterpret`, `type_canonicalisation_dict`; `reinterpret` | tensors read as another type |
| `knobs` | settings, of which tec takes none |
| `_C.libtriton.nvidia.cublas.CublasLt` | the vendor's products, by torch |
| `experimental.gluon` | imports; its kernels are refused |
| `compiler.CompilationError`, `runtime.errors.InterpreterError` | errors |
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np

from .. import tile as language
from ..errors import KernelError
from ..tile.host import cdiv, next_power_of_2
from . import gluon, mxfp
from .tile_code import Compiled
from .tile_text import KernelInterface
from .tile_tuning import Autotuner, Config, Heuristics, autotune, heuristics
from .tiles import TileKernel, jit
from .triton_device import CublasLt, Driver
from .triton_tensors import SHORT, TensorWrapper, knobs, reinterpret
from .triton_testing import (
    Benchmark,
    assert_almost_equal,
    assert_close,
    do_bench,
    perf_report,
)

JITFunction = TileKernel
constexpr_function = language.builtin
TritonError = CompilationError = KernelError
__version__ = "3.5.0"


def set_allocator(allocator: Any) -> None:
    """Memory for descriptors, which tec's need not."""


class TensorDescriptor:
    """An array that kernels take tiles of: the host's side of `tl.make_tensor_descriptor`."""

    def __init__(
        self, base: Any, shape: Sequence[int], strides: Sequence[int], block_shape: Sequence[int], padding: str = "zero"
    ):
        if len(shape) != len(strides) or len(shape) != len(block_shape):
            raise KernelError(
                f"a tensor descriptor of {len(shape)} sizes, {len(strides)} strides and a tile of {len(block_shape)} dimensions",
                hint="shape, strides and block_shape have one number a dimension",
            )
        if strides[-1] != 1:
            raise KernelError(
                "a tensor descriptor whose last stride is not 1", hint="pass an array whose rows are contiguous"
            )
        self.base, self.shape, self.strides, self.block_shape, self.padding = (
            base,
            list(shape),
            list(strides),
            list(block_shape),
            padding,
        )

    @staticmethod
    def from_tensor(tensor: Any, block_shape: Sequence[int], padding: str = "zero") -> TensorDescriptor:
        """Of a whole tensor."""
        strides = (
            tensor.stride()
            if callable(getattr(tensor, "stride", None))
            else [s // tensor.itemsize for s in tensor.strides]
            if isinstance(tensor, np.ndarray)
            else tensor.strides
        )
        return TensorDescriptor(tensor, tensor.shape, strides, block_shape, padding)


testing = SimpleNamespace(
    do_bench=do_bench, assert_close=assert_close, assert_almost_equal=assert_almost_equal, Benchmark=Benchmark, perf_report=perf_report,
    do_bench_cudagraph=do_bench,
)  # fmt: skip
tools = SimpleNamespace(
    tensor_descriptor=SimpleNamespace(TensorDescriptor=TensorDescriptor),
    mxfp=SimpleNamespace(MXFP4Tensor=mxfp.MXFP4Tensor, MXScaleTensor=mxfp.MXScaleTensor),
)


def _gathers_nothing(*args: Any, **named: Any) -> None:
    """A profile that is not taken: programs that ask Triton's profiler for one run without."""


profiler = SimpleNamespace(
    scope=lambda *args, **named: contextlib.nullcontext(),
    **dict.fromkeys(("start", "activate", "deactivate", "finalize"), _gathers_nothing),
)


def _key() -> str:
    """What compiled code depends on besides its source."""
    return f"tec {__version__}"


runtime = SimpleNamespace(
    driver=Driver(), JITFunction=TileKernel, KernelInterface=KernelInterface, OutOfResources=KernelError, Autotuner=Autotuner, Heuristics=Heuristics, errors=SimpleNamespace(InterpreterError=KernelError, OutOfResources=KernelError, PTXASError=KernelError),
    cache=SimpleNamespace(triton_key=_key),
    jit=SimpleNamespace(
        JITFunction=TileKernel, KernelInterface=KernelInterface, constexpr_function=constexpr_function, TensorWrapper=TensorWrapper, reinterpret=reinterpret, type_canonicalisation_dict=SHORT,
    ),
    autotuner=SimpleNamespace(Autotuner=Autotuner, Heuristics=Heuristics, Config=Config, OutOfResources=KernelError, autotune=autotune, heuristics=heuristics),
)  # fmt: skip


@dataclass(frozen=True)
class GPUTarget:
    """What Triton compiles for: "cuda" or "hip", the chip, threads of a wave."""

    backend: str
    arch: Any
    warp_size: int


compiler = SimpleNamespace(
    CompilationError=CompilationError, CompiledKernel=Compiled, errors=SimpleNamespace(CompilationError=CompilationError, CompileTimeAssertionFailure=CompilationError),
    compiler=SimpleNamespace(CompiledKernel=Compiled, triton_key=_key),  # torch asks whether it has an AttrsDescriptor
)  # fmt: skip


_C = SimpleNamespace(libtriton=SimpleNamespace(nvidia=SimpleNamespace(cublas=SimpleNamespace(CublasLt=CublasLt))))
backends = SimpleNamespace(backends={}, compiler=SimpleNamespace(GPUTarget=GPUTarget))


def install() -> None:
    """Let `import triton` in this process mean these names. Raises KernelError where Triton itself is loaded."""
    here = sys.modules[__name__]
    if "triton" in sys.modules and sys.modules["triton"] is not here:
        raise KernelError("triton is loaded already", hint="call install() before anything imports it")
    modules: dict[str, Any] = {
        "triton": here, "triton.language": language, "triton.language.math": language.math, "triton.testing": testing, "triton.tools": tools,
        "triton.tools.mxfp": tools.mxfp, "triton.profiler": profiler,
        "triton.language.extra": language.extra, "triton.language.extra.libdevice": language.libdevice,
        "triton.language.extra.cuda": language.extra.cuda, "triton.language.extra.cuda.libdevice": language.libdevice,
        "triton.language.extra.hip": language.extra.hip, "triton.language.extra.hip.libdevice": language.libdevice,
        "triton.language.core": language, "triton.language.standard": language, "triton.language.semantic": language,
        "triton.tools.tensor_descriptor": tools.tensor_descriptor, "triton.runtime": runtime, "triton.knobs": knobs, "triton.runtime.driver": runtime.driver,
        "triton.runtime.errors": runtime.errors, "triton.runtime.cache": runtime.cache, "triton.runtime.jit": runtime.jit, "triton.runtime.autotuner": runtime.autotuner, "triton.compiler": compiler, "triton.compiler.errors": compiler.errors,
        "triton.compiler.compiler": compiler.compiler, "triton._C": _C, "triton._C.libtriton": _C.libtriton, "triton.backends": backends, "triton.backends.compiler": backends.compiler,
    }  # fmt: skip
    for name, what in modules.items():
        sys.modules[name] = _as_module(name, what)
    here.__dict__["__path__"] = []  # a package, below which `gluon` finds more
    here.__dict__["experimental"] = gluon.install()


def _as_module(name: str, what: Any) -> ModuleType:
    if isinstance(what, ModuleType):
        return what
    made = ModuleType(name)
    if isinstance(what, SimpleNamespace):
        made.__dict__.update(vars(what))
    else:
        made.__dict__["active"] = what.active
    return made


__all__ = [
    "Autotuner", "Benchmark", "CompilationError", "Config", "Heuristics", "JITFunction", "KernelInterface", "TensorDescriptor", "TritonError", "autotune", "cdiv", "compiler",
    "constexpr_function", "heuristics", "install", "jit", "knobs", "language", "next_power_of_2", "perf_report", "profiler", "reinterpret", "runtime", "set_allocator", "testing", "tools",
]  # fmt: skip
