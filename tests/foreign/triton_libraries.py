"""Kernels that public libraries have for Triton, with arguments and what they must give: Liger-Kernel, flash-linear-attention, unsloth, aiter, and
FlagGems where it is there.

The libraries' own Python calls them, read where it lies (`folders`), on tensors of the host; `import triton` means `tec.jit.triton_names`. A case gives what
the library computed and what it must be.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.abc
import importlib.machinery
import json
import sys
import types
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

from tec.jit import triton_names
from tec.tile import libdevice

Case = Callable[[], tuple[list[Any], list[Any]]]
CASES: dict[str, Case] = {}
MOST = 2e-2  # of the largest number: products in bfloat16 and chunks of float32 by TF32
PACKAGES = {
    "liger_kernel": "Liger-Kernel/src/liger_kernel",
    "fla": "flash-linear-attention/fla",
    "unsloth": "unsloth/unsloth",
    "aiter": "aiter/aiter",
}


class _Anything(int):
    """A number, a function, a decorator with or without arguments."""

    def __call__(self, *args: Any, **named: Any) -> Any:
        return args[0] if len(args) == 1 and callable(args[0]) else _Anything(1)


class _Nothing(types.ModuleType):
    """A module that the libraries import and the kernels do not need."""

    __path__: list[str] = []

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _Anything(1)


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def find_spec(self, name: str, path: Any, target: Any = None) -> Any:
        absent = name.startswith(("unsloth_zoo", "aiter.jit"))
        return importlib.machinery.ModuleSpec(name, self, is_package=True) if absent else None

    def create_module(self, spec: Any) -> types.ModuleType:
        return _Nothing(spec.name)

    def exec_module(self, module: types.ModuleType) -> None:
        pass


def install(folder: Path) -> None:
    """Let the libraries in a folder of checkouts be imported without what their packages do first."""
    triton_names.install()
    sys.meta_path.insert(0, _Finder())

    def package(name: str, path: Path) -> types.ModuleType:
        made = sys.modules[name] = types.ModuleType(name)
        made.__path__ = [str(path)]
        return made

    for name, path in PACKAGES.items():
        package(name, folder / path)
    package("liger_kernel.ops", folder / PACKAGES["liger_kernel"] / "ops")
    package("unsloth.kernels", folder / PACKAGES["unsloth"] / "kernels")
    for inner in ("ops", "ops/triton"):
        package("aiter." + inner.replace("/", "."), folder / PACKAGES["aiter"] / inner)
    sys.modules["fla"].__version__ = "0"
    helpers = sys.modules["unsloth.kernels.utils"] = types.ModuleType("unsloth.kernels.utils")
    helpers.__dict__.update(
        torch_gpu_device=lambda device: contextlib.nullcontext(), torch_device_stream=lambda *args: None, MAX_FUSED_SIZE=65536,
        calculate_settings=lambda n: (1 << (n - 1).bit_length(), 4), next_power_of_2=triton_names.next_power_of_2,
        triton_tanh=libdevice.tanh, triton_cast=lambda x, dtype: x.to(dtype), is_cdna=lambda: False,
    )  # fmt: skip
    sys.modules["unsloth.device_type"] = types.ModuleType("unsloth.device_type")
    sys.modules["unsloth.device_type"].__dict__.update(DEVICE_COUNT=1, DEVICE_TYPE="cuda")
    properties = types.SimpleNamespace(multi_processor_count=304, gcnArchName="gfx942")
    torch.cuda.get_device_properties = lambda *args: properties


def module(name: str) -> Any:
    return importlib.import_module(name)


def case(f: Case) -> Case:
    CASES[f.__name__] = f
    return f


def R(*shape: int) -> Any:
    return torch.randn(*shape)


def grads(f: Callable[..., Any], *inputs: Any) -> list[Any]:
    """A function's value and the gradients of its inputs, for a drawn gradient of the value."""
    xs = [x.detach().clone().requires_grad_() for x in inputs]
    y = f(*xs)
    y = y[0] if isinstance(y, tuple) else y
    torch.manual_seed(1)
    y.backward(torch.randn(y.shape))
    return [y.detach(), *[x.grad for x in xs]]


def worst(got: Sequence[Any], want: Sequence[Any]) -> float:
    """The largest difference of the results, of the largest number in each."""
    return max(float((g.float() - w.float()).abs().max() / (w.float().abs().max() + 1e-9)) for g, w in zip(got, want))


def main(words: Sequence[str]) -> None:
    """FOLDER DEVICE [CASE...]: a JSON line for each case, "right" or what it said; DEVICE is "cpu" or an AMD chip in software."""
    import tec
    import tec.tile

    install(Path(words[0]))
    for name in ("layers", "sequences"):
        importlib.import_module(f"tests.foreign.triton_library_{name}")
    if (Path(words[0]) / "FlagGems").exists():
        importlib.import_module("tests.foreign.triton_library_operators").install(Path(words[0]))
    for name in words[2:] or CASES:
        torch.manual_seed(0)
        there = contextlib.nullcontext() if words[1] == "cpu" else tec.tile.on_device(tec.rocm_emu(words[1]))
        try:
            with there:
                error = worst(*CASES[name]())
            said = "right" if error < MOST else f"wrong by {error:.2g}"
        except Exception as e:
            said = f"{type(e).__name__}: {str(e)[:200]}"
        print(json.dumps({"kernel": name, "said": said}), flush=True)


if __name__ == "__main__":
    from tests.foreign.triton_libraries import main as run  # the cases add themselves to that module's table

    run(sys.argv[1:])
