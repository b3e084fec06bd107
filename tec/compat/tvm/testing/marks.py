"""What a test needs of the machine, and values that tests are run with. Each mark gives its test back, skipped where the machine has not what it needs."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from typing import Any

from ..devices import Absent, cuda, device, rocm

GPU_KINDS = ("rocm", "cuda")


def _pytest() -> Any:
    import pytest

    return pytest


class _Marks(list[Any]):
    """Marks for `pytest.param(..., marks=...)`, which is also a decorator."""

    def __call__(self, f: Any) -> Any:
        for mark in self:
            f = mark(f)
        return f


def _needs(what: str, there: Callable[[], bool]) -> Callable[..., Any]:
    def mark(*args: Any) -> Any:
        made = _pytest().mark.skipif(not there(), reason=f"needs {what}")
        return made(args[0]) if args and callable(args[0]) else _Marks([made])

    return mark


def _here(make: Callable[[], Any]) -> Callable[[], bool]:
    return lambda: not isinstance(make(), Absent)


def _gpu() -> bool:
    return any(not isinstance(device(kind), Absent) for kind in GPU_KINDS)


def _never() -> bool:
    return False


uses_gpu = skip_if_32bit = skip_if_wheel_test = slow = lambda *args: (
    args[0] if args and callable(args[0]) else (lambda f: f)
)
requires_llvm = requires_x86 = _needs("LLVM", lambda: True)
requires_gpu = _needs("a GPU", _gpu)
requires_cuda = _needs("an NVIDIA GPU, or TEC_EMULATE", _here(cuda))
requires_tensorcore = _needs("an NVIDIA GPU, or TEC_EMULATE", _here(cuda))
requires_rocm = _needs("an AMD GPU, or TEC_EMULATE", _here(rocm))
requires_cudagraph = requires_cudnn = requires_cublas = _needs("CUDA's libraries", _never)
requires_vulkan, requires_metal, requires_opencl, requires_hexagon, requires_rpc, requires_corstone300 = (
    _needs(n, _never) for n in ("Vulkan", "Metal", "OpenCL", "Hexagon", "RPC", "Corstone-300")
)


def requires_llvm_minimum_version(major: int) -> Any:
    """Tests that need LLVM of a version: tec's is 22."""
    return _needs(f"LLVM {major}", lambda: major <= 22)


def requires_cuda_compute_version(major: int, minor: int = 0, exact: bool = False) -> Any:
    """Tests that need an NVIDIA GPU."""
    return requires_cuda


def requires_package(*names: str) -> Any:
    """Tests that need Python packages."""
    return _needs(", ".join(names), lambda: all(importlib.util.find_spec(n.partition(".")[0]) for n in names))


def device_enabled(target: Any) -> bool:
    """Whether programs run on `target` here."""
    kind = str(target).split()[0]
    return kind in ("llvm", "cpu", *GPU_KINDS) and not isinstance(device(kind), Absent)


def enabled_targets() -> list[tuple[str, Any]]:
    """The targets of this machine with their devices."""
    return [(kind, device(kind)) for kind in ("llvm", *GPU_KINDS) if device_enabled(kind)]


class Parameter:
    """A name in a module or class that tests take as an argument, with each of these values; those of one `group` go together."""

    def __init__(self, values: Any, ids: Any = None, group: object = None):
        self.values, self.ids, self.group = list(values), ids, group


def parameter(*values: Any, ids: Any = None, by_dict: Any = None) -> Parameter:
    """An argument of tests that takes each of some values."""
    return Parameter(by_dict.values(), list(by_dict)) if by_dict else Parameter(values, ids)


def parameters(*value_sets: Any, ids: Any = None) -> tuple[Parameter, ...]:
    """Arguments of tests that take their values together."""
    group = object()
    return tuple(Parameter([row[k] for row in value_sets], ids, group) for k in range(len(value_sets[0])))


def fixture(func: Any = None, *, cache_return_value: bool = False) -> Any:
    """pytest's fixture."""
    pytest = _pytest()
    return pytest.fixture(func) if func is not None else pytest.fixture


def _with_targets(attribute: str) -> Callable[..., Any]:
    def mark(*args: Any) -> Any:
        if len(args) == 1 and callable(args[0]):
            return args[0]

        def add(f: Any) -> Any:
            setattr(f, attribute, args)
            return f

        return add

    return mark


parametrize_targets = _with_targets("tvm_targets")
exclude_targets = _with_targets("tvm_excluded_targets")
known_failing_targets = _with_targets("tvm_failing_targets")


def main() -> None:
    """What a test file does as a script: nothing; pytest runs it."""
