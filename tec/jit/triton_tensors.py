"""What Triton's own tests and programs ask of `triton.runtime.jit` and `triton.knobs`: tensors read as another type, names of types, and settings."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Iterator
from types import ModuleType
from typing import Any

from ..errors import KernelError, kind_of
from ..runtime.arrays.ndarray import NDArray
from ..tile.grammar import OF_NAME, dtype
from .tile_arguments import array_of

# what Triton's signatures call a type that NumPy, torch or C call otherwise
SHORT = {d.name: d.name for d in OF_NAME.values()} | {n: d.name for n, d in OF_NAME.items()}
for _kind in ("i", "u"):
    SHORT |= {f"{_kind}{n}": f"{_kind}{n}" for n in (1, 8, 16, 32, 64)}
    SHORT |= {f"{'u' if _kind == 'u' else ''}int{n}": f"{_kind}{n}" for n in (1, 8, 16, 32, 64)}
SHORT |= {"bool": "i1", "half": "fp16", "float": "fp32", "double": "fp64", "int": "i32", "void": "void"}
SHORT |= {
    "float8_e4m3fn": "fp8e4nv",
    "float8_e5m2": "fp8e5",
    "float8_e4m3fnuz": "fp8e4b8",
    "float8_e5m2fnuz": "fp8e5b16",
}


class TensorWrapper:
    """A tensor whose elements a kernel takes as another type of the same size: `base`, `dtype` (one of `tl`'s)."""

    def __init__(self, base: Any, dtype: dtype):
        self.base, self.dtype, self.shape = base, dtype, base.shape
        self.device = getattr(base, "device", None)

    def __tec_array__(self) -> NDArray:
        """The same memory under the other type; kernels take their pointers by this."""
        a = array_of(self.base, "base")
        if a is None:
            raise KernelError(f"{kind_of(self.base)} read as {self.dtype}", hint="pass an array")
        return NDArray(a.storage, a.address, a.shape, self.dtype.tec, a.strides, a.writable)

    def __str__(self) -> str:
        return f"TensorWrapper[{self.dtype}]({self.base})"

    def __getattr__(self, name: str) -> Any:
        if name in ("data", "data_ptr", "stride", "element_size", "numel", "is_contiguous"):
            return getattr(self.base, name)
        raise AttributeError(f"a tensor that is read as another type has no {name}")

    def cpu(self) -> TensorWrapper:
        """The same on the host."""
        return TensorWrapper(self.base.cpu(), self.dtype)

    def to(self, device: Any) -> TensorWrapper:
        """The same on a device."""
        return TensorWrapper(self.base.to(device), self.dtype)

    def clone(self) -> TensorWrapper:
        """A copy."""
        return TensorWrapper(self.base.clone(), self.dtype)

    def copy_(self, other: TensorWrapper) -> None:
        """Take the elements of another."""
        self.base.copy_(other.base)

    def new_empty(self, sizes: Any) -> TensorWrapper:
        """An array of other sizes, of the same type."""
        return TensorWrapper(self.base.new_empty(sizes), self.dtype)


def reinterpret(tensor: Any, dtype: Any) -> Any:
    """A tensor whose elements have another type in kernels. Raises KernelError for what is no tensor."""
    base = tensor.base if isinstance(tensor, TensorWrapper) else tensor
    if not hasattr(base, "shape"):
        raise KernelError(f"reinterpret of {kind_of(base)}", hint="pass an array")
    same = isinstance(tensor, TensorWrapper) and str(base.dtype).rpartition(".")[2] == getattr(dtype, "tec", dtype)
    return base if same or dtype == base.dtype else TensorWrapper(base, dtype)


class base_knobs:
    """Settings by name. Those that tec has no use for keep their value and change nothing."""

    knob_descriptors: dict[str, Any] = {}

    def __init__(self, **values: Any):
        self._first = values
        self.__dict__.update(values)

    def copy(self) -> base_knobs:
        """The same settings, apart."""
        return copy.copy(self)

    def reset(self) -> base_knobs:
        """As they were at first."""
        self.__dict__.update(self._first)
        return self

    @contextlib.contextmanager
    def scope(self) -> Iterator[None]:
        """Changes inside the block end with it."""
        before = dict(self.__dict__)
        try:
            yield
        finally:
            self.__dict__.clear()
            self.__dict__.update(before)


def made_knobs() -> ModuleType:
    """The module `triton.knobs`."""
    made = ModuleType("triton.knobs")
    found: dict[str, Any] = {
        "build": base_knobs(),
        "cache": base_knobs(dir="", dump_dir="", override_dir=""),
        "compilation": base_knobs(override=False, always_compile=False, disable_line_info=False, use_ir_loc=None, listener=None),
        "autotuning": base_knobs(cache=False, print=False),
        "language": base_knobs(default_fp_fusion=True, fp32_default=None),
        "runtime": base_knobs(
            interpret=False, debug=False, override_arch=None, sanitize_overflow=True, launch_enter_hook=None,
            launch_exit_hook=None, jit_cache_hook=None, jit_post_compile_hook=None, add_stages_inspection_hook=None,
        ),
        "nvidia": base_knobs(ptxas=base_knobs(version="12.8", path="")),
        "amd": base_knobs(use_buffer_ops=True),
        "proton": base_knobs(),
        "base_knobs": base_knobs, "propagate_env": True,
    }  # fmt: skip
    made.__dict__.update(found)
    return made


knobs = made_knobs()
