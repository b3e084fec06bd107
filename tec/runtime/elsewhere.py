"""What programs for numba, CuPy, PyTorch, AMDGPU.jl, CUDA.jl and TVM call things outside of kernels, in tec's words; for the hints of errors.

`tec.kernels.elsewhere` has the words of kernels.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from typing import Any

import numpy as np

from ..errors import ArgumentError
from ..likeness import by_name, meant

_ARRAYS = {
    "tec.nd.array(x, dev)": "to_device ROCArray CuArray ROCVector ROCMatrix CuVector CuMatrix roc tensor as_cuda_array from_numpy copy_to_device from_torch",
    "tec.nd.empty(shape, dtype, dev)": "device_array",
    "tec.nd.empty_like(x)": "device_array_like",
    "x.numpy()": "copy_to_host asnumpy",
    "arrays of NumPy are the host's memory, and tec.nd.array(x, dev) copies them": "pinned_array mapped_array managed_array pinned mapped",
}
_DEVICES = {
    'tec.rocm(0), tec.cuda(0), tec.rocm_emu("gfx942") or tec.cpu()': "select_device set_device get_current_device current_context current_device gpus list_devices "
    "devices AMDGPU CUDA gpu gpus rocm_device context HIP hip default_device",
    "dev.sync()": "synchronize device_synchronize deviceSynchronize",
    "dev.stream()": "Stream stream default_stream HIPStream CuStream external_stream",
    "dev.event()": "Event event HIPEvent CuEvent",
    "start.elapsed_time(stop), of two events": "event_elapsed_time get_elapsed_time elapsed",
    "dev.memory() and dev.empty_cache()": "MemoryPool get_default_memory_pool mem_get_info mem_info reclaim memory_allocated empty_cache",
    "tec.runtime.cuda_exists() and tec.runtime.rocm_exists()": "is_available available functional has_rocm has_rocm_gpu has_cuda device_count detect",
    "with dev.capture() as graph: ..., graph.launch()": "CUDAGraph graph_capture capture begin_capture",
}
_KERNELS = {
    "@tec.kernel": "jit njit cuda_jit RawKernel RawModule",
    "k[grid, block](...)": "@roc @cuda launch_kernel",
    "tec.kernel.launch_configuration(k, *args) and tec.kernel.occupancy(k, ...)": "launch_configuration occupancy max_active_blocks",
    "an expression of tec.array becomes one kernel; @tec.kernel is a kernel by hand": "ElementwiseKernel ReductionKernel fuse vectorize guvectorize reduce stencil",
}
_OTHERS = {
    'types are NumPy\'s or text: np.float32, "bfloat16"': "bool_ int8 int16 int32 int64 uint8 uint16 uint32 uint64 float16 float32 float64 bfloat16 complex64 complex128 "
    "half double float32x4",
    "f.save(path), net.save(path)": "save export export_library",
    "tec.ir.save_json(func), tec.ir.load_json(text)": "save_json load_json",
    "tec.lower(s, args) gives functions of loop IR, tec.build(s, args) a module": "IRModule PrimFunc",
    "tec.errors.TecError": "TVMError TVMException CudaAPIError HIPError",
    "Python numbers, tuples and text are taken as they are": "convert",
    "TEC_DUMP=passname prints the IR around a pass (tec.ir.passes)": "transform instrument",
    "tec.grad(f) makes gradients; nothing else keeps track of them": "no_grad autograd backward",
}
_HERE = {
    "module": {**_ARRAYS, **_DEVICES, **_KERNELS, **_OTHERS},
    "array": {
        "x.numpy()": "copy_to_host get cpu tolist host to_host data ctypes",
        "x.copyfrom(array)": "copy_from_host copy_to_device set fill copy_from",
        "x.copyto(device)": "copy cuda clone to_device",
        "x.device.sync()": "synchronize",
        "x.reshape(-1)": "ravel flatten",
    },
    "device": {
        **_DEVICES,
        "with dev:": "use activate",
        "dev.wavefront_size": "warp_size warpsize WARP_SIZE wavefrontsize warpSize",
        "dev.compute_units": "multi_processor_count MULTIPROCESSOR_COUNT multiprocessor_count",
        "dev.lds_bytes": "max_shared_memory_per_block MAX_SHARED_MEMORY_PER_BLOCK shared_memory_per_block sharedMemPerBlock",
        "dev.max_threads": "max_threads_per_block MAX_THREADS_PER_BLOCK maxThreadsPerBlock",
        "dev.arch": "compute_capability cc gcn_arch",
        "nothing: memory goes when its arrays do, and dev.empty_cache() gives back what is kept": "reset close",
        "dev.total_memory_bytes and dev.memory()": "mem_info get_memory_info",
    },
    "kernel": {
        "k.launch(n)(...)": "forall parallel_for",
        "k[grid, block](...)": "configure run",
        "k.asm(*args)": "inspect_asm inspect_sass ptx sass code",
        "k.llvm(*args)": "inspect_llvm",
        "k.loop_ir(*args)": "inspect_types inspect_cfg",
        "k.resources(*args)": "max_threads regs_per_thread shared_mem_per_block local_mem_per_thread num_regs attributes get_regs_per_thread",
        "k.occupancy(*args)": "max_active_blocks",
        "nothing: code is compiled for the types of each launch's arguments": "specialize compile signatures warmup",
    },
}  # fmt: skip
_BY_NAME = {of: by_name(table) for of, table in _HERE.items()}


def hint(of: str, name: str, names: Iterable[str], prefix: str = "") -> str:
    """What follows an error that something has no `name`: tec's word for it, or one of `names` that is like it; "" where nothing is near. of: "module", "array",
    "device" or "kernel"."""
    found = _BY_NAME[of].get(name)
    if found is not None:
        return f": {found}"
    question = meant(name, names, prefix)
    return f"; {question}" if question else ""


_ANSWERED: dict[tuple[str, str], Callable[[Any], Any]] = {}


def accept(of: str, names: Mapping[str, Callable[[Any], Any]]) -> None:
    """From here on a thing of this kind answers to `names`, each by a function of it. of: as for `hint`."""
    _ANSWERED.update({(of, name): read for name, read in names.items()})


def missing(of: str, what: str, rest: Callable[[str], str] = lambda name: "") -> Callable[[Any, str], Any]:
    """A `__getattr__`: the error that `what` has no such attribute, with its hint. rest: that of names that no table has."""

    @lru_cache(256)  # programs ask again and again whether an array has this or that (hasattr)
    def says(kind: type, name: str) -> str:
        return "" if name.startswith("_") else hint(of, name, dir(kind)) or rest(name)

    def getattr_(self: Any, name: str) -> Any:
        if (read := _ANSWERED.get((of, name))) is not None:
            return read(self)
        raise AttributeError(f"{what} has no attribute {name!r}{says(type(self), name)}")  # type: ignore[arg-type]  # classes are hashable

    return getattr_


def _of_arrays(name: str) -> str:
    """NumPy's methods, which arrays that compute have."""
    return f": tec.array.asarray(x).{name}, whose arrays compute" if hasattr(np.ndarray, name) else ""


def _refused(sign: str) -> Any:
    def method(self: Any, *others: Any) -> Any:
        if others and not isinstance(others[0], (int, float, complex, np.number, Memory)):
            return NotImplemented  # NumPy's arrays take it as one of theirs
        raise ArgumentError(
            f"{sign} of an NDArray, which is memory",
            hint="tec.array.asarray(x) computes: + - * / and NumPy's functions",
        )

    return method


class Memory:
    """What arrays of the runtime answer where a program takes them for arrays that compute."""

    __slots__ = ()
    __getattr__ = missing("array", "an NDArray", _of_arrays)
    __add__ = __radd__ = _refused("+")
    __sub__ = __rsub__ = _refused("-")
    __mul__ = __rmul__ = _refused("*")
    __truediv__ = __rtruediv__ = _refused("/")
    __floordiv__ = __rfloordiv__ = _refused("//")
    __mod__ = __rmod__ = _refused("%")
    __pow__ = __rpow__ = _refused("**")
    __matmul__ = __rmatmul__ = _refused("@")
    __neg__ = __abs__ = _refused("arithmetic")
    __lt__ = __le__ = __gt__ = __ge__ = _refused("comparison")
