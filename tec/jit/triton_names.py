"""Names of the package `triton` for programs that were written for it: `from tec.tile import triton` beside `import tec.tile as tl`, or `install()`, which
lets `import triton` and `import triton.language as tl` mean these.

| what stands here | for |
| --- | --- |
| `jit`, `autotune`, `heuristics`, `Config`, `cdiv`, `next_power_of_2`, `constexpr_function`, `JITFunction`, `TritonError`, `set_allocator` | `triton` |
| `tec.tile` | `triton.language` |
| `testing`: `do_bench`, `assert_close`, `assert_almost_equal`, `Benchmark`, `perf_report` | `triton.testing` |
| `tools.tensor_descriptor.TensorDescriptor`, `tools.mxfp`: `MXFP4Tensor`, `MXScaleTensor` | `triton.tools` |
| `profiler`: `scope`, `start`, `activate`, `deactivate`, `finalize`, which gather nothing | `triton.profiler`; `tec.profile` profiles |
| `runtime.driver.active`: `get_active_torch_device`, `get_current_target`, `get_current_device`, `utils.get_device_properties` | `triton.runtime` |
| `runtime.autotuner`: `Autotuner`, `Heuristics`, `Config`, `autotune`, `heuristics` | `triton.runtime.autotuner`, for subclasses |
| `compiler.CompilationError`, `runtime.errors.InterpreterError` | errors |
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import sys
import time
from collections.abc import Callable, Sequence
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np

from .. import tile as language
from ..errors import KernelError
from ..target import as_target
from ..tile.host import cdiv, next_power_of_2
from . import mxfp
from .tile_tuning import Autotuner, Config, Heuristics, autotune, heuristics
from .tiles import TileKernel, jit

JITFunction = TileKernel
TritonError = CompilationError = KernelError
__version__ = "3.5.0"


def constexpr_function(f: Any) -> Any:
    """A Python function that kernels call on constants."""
    f.__tec_constexpr__ = True
    return f


def set_allocator(allocator: Any) -> None:
    """Memory for descriptors, which tec's need not."""


class TensorDescriptor:
    """An array that kernels take tiles of: the host's side of `tl.make_tensor_descriptor`."""

    def __init__(
        self, base: Any, shape: Sequence[int], strides: Sequence[int], block_shape: Sequence[int], padding: str = "zero"
    ):
        if len(shape) != len(strides) or len(shape) != len(block_shape):
            raise KernelError(
                f"a tensor descriptor of {len(shape)} sizes, {len(strides)} strides and a tile of {len(block_shape)} dimensions"
            )
        if strides[-1] != 1:
            raise KernelError("a tensor descriptor whose last stride is not 1")
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


# ---- testing


def do_bench(
    fn: Callable[[], Any],
    warmup: int = 25,
    rep: int = 100,
    grad_to_none: Any = None,
    quantiles: Any = None,
    return_mode: str = "mean",
) -> Any:
    """Milliseconds of a call: of `rep` milliseconds of calls, after `warmup` milliseconds of them."""
    end = time.perf_counter() + warmup / 1000
    fn()
    while time.perf_counter() < end:
        fn()
    times: list[float] = []
    end = time.perf_counter() + rep / 1000
    while not times or time.perf_counter() < end:
        for x in grad_to_none or ():
            x.grad = None
        start = time.perf_counter()
        fn()
        times.append((time.perf_counter() - start) * 1e3)
    if quantiles is not None:
        found = np.quantile(times, quantiles).tolist()
        return found[0] if len(found) == 1 else found
    if return_mode == "all":
        return times
    reduce: Callable[[list[float]], Any] = getattr(np, return_mode)
    return float(reduce(times))


def assert_close(x: Any, y: Any, atol: float | None = None, rtol: float | None = None, err_msg: str = "") -> None:
    """Whether two tensors agree."""
    a, b = (np.asarray(v.detach().float().cpu() if hasattr(v, "detach") else v) for v in (x, y))
    np.testing.assert_allclose(
        a, b, atol=1e-2 if atol is None else atol, rtol=0 if rtol is None else rtol, err_msg=err_msg
    )


def assert_almost_equal(x: Any, y: Any, decimal: int = 2, err_msg: str = "") -> None:
    """Whether two tensors agree to so many decimals."""
    assert_close(x, y, atol=1.5 * 10.0**-decimal, err_msg=err_msg)


class Benchmark:
    """What `perf_report` runs: values along x, lines."""

    def __init__(
        self,
        x_names: Any,
        x_vals: Any,
        line_arg: str,
        line_vals: Any,
        line_names: Any,
        plot_name: str,
        args: Any,
        **look: Any,
    ):
        self.x_names, self.x_vals, self.line_arg, self.line_vals = x_names, x_vals, line_arg, line_vals
        self.line_names, self.plot_name, self.args, self.look = line_names, plot_name, args, look


class Mark:
    """A function with its benchmarks; `run` prints a table of each."""

    def __init__(self, fn: Any, benchmarks: Any):
        self.fn, self.benchmarks = fn, benchmarks

    def run(
        self,
        show_plots: bool = False,
        print_data: bool = False,
        save_path: str = "",
        return_df: bool = False,
        **kwargs: Any,
    ) -> list[Any]:
        """Run all; rows of (x, one value a line)."""
        many = self.benchmarks if isinstance(self.benchmarks, (list, tuple)) else [self.benchmarks]
        rows: list[Any] = []
        for b in many:
            for x in b.x_vals:
                xs = x if isinstance(x, (list, tuple)) else [x] * len(b.x_names)
                found = [
                    self.fn(**dict(zip(b.x_names, xs)), **{b.line_arg: v}, **b.args, **kwargs) for v in b.line_vals
                ]
                rows.append((x, *[f[0] if isinstance(f, tuple) else f for f in found]))
            if print_data:
                print(b.plot_name, [*b.x_names, *b.line_names], *rows, sep="\n")
        return rows


def perf_report(benchmarks: Any) -> Callable[[Any], Mark]:
    """A decorator: benchmarks of a function."""
    return lambda fn: Mark(fn, benchmarks)


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


# ---- the device


class _Active:
    """The device that programs ask about: the current target's."""

    utils = SimpleNamespace(get_device_properties=lambda i: _properties())

    def get_active_torch_device(self) -> Any:
        torch = importlib.import_module("torch")
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")

    def get_current_target(self) -> Any:
        t = as_target(None)
        return SimpleNamespace(
            backend={"cuda": "cuda", "rocm": "hip"}.get(t.kind, "cpu"),
            arch=t.mcpu,
            warp_size=t.wavefront_size if t.is_gpu else 1,
        )

    def get_current_device(self) -> int:
        return 0

    def get_benchmarker(self) -> Any:
        return do_bench


def _properties() -> dict[str, int]:
    """What a kernel's launch is sized by. Registers and shared memory of a unit, how many units."""
    m = as_target(None).machine
    units = int(getattr(m, "units", 0) or getattr(m, "cores", 1) or 1)
    return {"multiprocessor_count": units, "max_num_regs": 65536, "max_shared_mem": 65536, "warpSize": 32}


class _Driver:
    @functools.cached_property
    def active(self) -> _Active:
        return _Active()


runtime = SimpleNamespace(
    driver=_Driver(), JITFunction=TileKernel, Autotuner=Autotuner, Heuristics=Heuristics, errors=SimpleNamespace(InterpreterError=KernelError, OutOfResources=KernelError),
    jit=SimpleNamespace(JITFunction=TileKernel, constexpr_function=constexpr_function),
    autotuner=SimpleNamespace(Autotuner=Autotuner, Heuristics=Heuristics, Config=Config, OutOfResources=KernelError, autotune=autotune, heuristics=heuristics),
)  # fmt: skip
compiler = SimpleNamespace(
    CompilationError=CompilationError,
    errors=SimpleNamespace(CompilationError=CompilationError),
    compiler=SimpleNamespace(),  # torch asks whether it has an AttrsDescriptor
)
backends = SimpleNamespace(backends={}, compiler=SimpleNamespace())


def install() -> None:
    """Let `import triton` in this process mean these names. Raises KernelError where Triton itself is loaded."""
    here = sys.modules[__name__]
    if "triton" in sys.modules and sys.modules["triton"] is not here:
        raise KernelError("triton is loaded already", hint="call install() before anything imports it")
    modules: dict[str, Any] = {
        "triton": here, "triton.language": language, "triton.language.math": language.math, "triton.testing": testing, "triton.tools": tools,
        "triton.tools.mxfp": tools.mxfp, "triton.profiler": profiler,
        "triton.language.extra": language.extra, "triton.language.extra.libdevice": language.libdevice,
        "triton.tools.tensor_descriptor": tools.tensor_descriptor, "triton.runtime": runtime, "triton.runtime.driver": runtime.driver,
        "triton.runtime.errors": runtime.errors, "triton.runtime.jit": runtime.jit, "triton.runtime.autotuner": runtime.autotuner, "triton.compiler": compiler, "triton.compiler.errors": compiler.errors,
        "triton.compiler.compiler": compiler.compiler, "triton.backends": backends, "triton.backends.compiler": backends.compiler,
    }  # fmt: skip
    for name, what in modules.items():
        sys.modules[name] = _as_module(name, what)


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
    "Autotuner", "Benchmark", "CompilationError", "Config", "Heuristics", "JITFunction", "TensorDescriptor", "TritonError", "autotune", "cdiv", "compiler",
    "constexpr_function", "heuristics", "install", "jit", "language", "next_power_of_2", "perf_report", "profiler", "runtime", "set_allocator", "testing", "tools",
]  # fmt: skip
