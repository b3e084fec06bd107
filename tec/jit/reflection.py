"""Looking into what is compiled: `kernel.loop_ir(...)`, `.llvm`, `.llvm_raw`, `.asm`, `.resources` for given arguments, and
`with tec.device_code("asm", "llvm"):` around anything that compiles.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TextIO

from .. import driver
from ..errors import DeviceError, KernelError
from ..kernels.source import parameters
from ..kernels.translate import Argument, LaunchShape
from ..runtime import cuda, cuda_exists
from ..target import Target, as_target
from .packs import device_of

FORMS = ("loop_ir", "ir", "llvm_raw", "llvm", "asm", "resources")


class Reflection:
    """What a kernel shows of itself. Arguments are arrays and numbers as in a launch, or their types: "float32[:, :]", "int32"."""

    def _for(self, args: Sequence[Any], block: Any, grid_ndim: int, shared_bytes: int, target: Any) -> Any:
        from .launching import extents
        from .specialise import argument_type, launched_type, taken_arguments, target_of

        k: Any = self
        names, said = parameters(k.source), len(args)
        if k.has_defaults:
            args = k.bound(args, {})
        if len(args) != len(names):
            raise KernelError(
                f"{k.__name__}({', '.join(names)}) takes {len(names)} arguments, {len(args)} given",
                hint='arguments or their types: k.asm("float32[:]", "int32")',
            )
        given = [a if isinstance(a, (str, type, Argument)) else taken_arguments(a) for a in args]
        types = [(argument_type if j < said else launched_type)(a, n) for j, (a, n) in enumerate(zip(given, names))]
        shape, n = extents(k.__name__, "the block", block)
        tgt = target_of(device_of(k.__name__, given)) if target is None else as_target(target)
        return k.compiled(types, LaunchShape(shape, max(grid_ndim, n), 0, shared_bytes), tgt)

    def loop_ir(
        self, *args: Any, block: Any = 256, grid_ndim: int = 1, shared_bytes: int = 0, target: Any = None
    ) -> Any:
        """The loop IR as it was translated, before any pass: a `Func`, which prints as text."""
        return self._for(args, block, grid_ndim, shared_bytes, target).func

    def llvm_raw(
        self, *args: Any, block: Any = 256, grid_ndim: int = 1, shared_bytes: int = 0, target: Any = None
    ) -> str:
        """LLVM IR as tec writes it, before LLVM's passes."""
        return code_of(self._for(args, block, grid_ndim, shared_bytes, target).module, "llvm_raw")

    def llvm(self, *args: Any, block: Any = 256, grid_ndim: int = 1, shared_bytes: int = 0, target: Any = None) -> str:
        """LLVM IR after LLVM's passes."""
        return code_of(self._for(args, block, grid_ndim, shared_bytes, target).module, "llvm")

    def asm(self, *args: Any, block: Any = 256, grid_ndim: int = 1, shared_bytes: int = 0, target: Any = None) -> str:
        """Assembly; PTX for NVIDIA."""
        return code_of(self._for(args, block, grid_ndim, shared_bytes, target).module, "asm")

    def resources(
        self, *args: Any, block: Any = 256, grid_ndim: int = 1, shared_bytes: int = 0, target: Any = None
    ) -> dict[str, Any]:
        """What a kernel takes: registers, bytes of shared and scratch memory, spills, and for AMD `occupancy`, wavefronts a vector unit
        holds at once, with `limited_by`."""
        compiled = self._for(args, block, grid_ndim, shared_bytes, target)
        found = resources_of(compiled.module)
        return next(iter(found.values()), {})


def code_of(module: Any, form: str) -> str:
    """A module's code in one of FORMS, of all its kernels or functions."""
    if form not in FORMS:
        raise KernelError(f"{form!r} is no form of code", hint=f"forms: {', '.join(FORMS)}")
    if form == "resources":
        return "\n".join(
            f"{k}: " + ", ".join(f"{a} {b}" for a, b in v.items()) for k, v in resources_of(module).items()
        )
    if form == "llvm":
        return "\n\n".join(_optimised(m, name) for m, name in _parts(module))
    kind = {"loop_ir": "ir", "llvm_raw": "llvm"}.get(form, form)
    return "\n\n".join(str(m.get_source(kind, name)) for m, name in _parts(module))


def _parts(module: Any) -> list[tuple[Any, str]]:
    """The functions and kernels of a module that are code: the module that holds each, and its name."""
    return [(m, name) for m in (module, *module.imported_modules) for name in m.texts]


def _optimised(module: Any, name: str) -> str:
    """LLVM's text after its passes, made from the text before them."""
    from ..codegen import llvm_util

    target, text = Target(module.target), module.get_source("llvm", name)
    if target.kind == "rocm":
        from ..codegen.amdgpu import machine_of
    elif target.kind == "cuda":
        from ..codegen.nvptx import machine_of
    else:
        from ..codegen.cpu import machine_of
    speed = 3 if target.is_gpu else 2
    return str(llvm_util.compile_text(text, machine_of(target), "llvm", speed, name))


def resources_of(module: Any) -> dict[str, dict[str, Any]]:
    """For each kernel of a module its registers and memory. Of PTX the driver makes the code: its registers are known where an NVIDIA GPU is there to ask."""
    out: dict[str, dict[str, Any]] = {}
    for part in (module, *module.imported_modules):
        target = Target(part.target)
        for name, k in (part.attrs.get("kernels") or {}).items():
            mine = out[name] = {key: value for key, value in k.items() if key not in ("args", "function")}
            if target.kind == "rocm":
                x, y, z = k["threads"]
                wave = int(k.get("wavefront_size") or target.wavefront_size)
                waves, limit = target.chip.occupancy(k["vgprs"], k["lds_bytes"], -(-(x * y * z) // wave), wave)
                mine["occupancy"], mine["limited_by"] = waves, limit
            elif target.kind == "cuda":
                mine.update(_as_loaded(part, name))
    if not out:
        out[module.entry_name] = {"code_bytes": len(module.get_binary())}
    return out


def _as_loaded(module: Any, name: str) -> dict[str, int]:
    """What CUDA's driver made of a kernel: `registers` of a thread and `local_bytes`, its memory beside them; empty where no device takes the code."""
    if not cuda_exists():
        return {}
    device = cuda(0)
    driver: Any = device.driver
    try:
        found = driver.function_resources(module.kernel(device, name))
    except DeviceError:  # code for a newer chip
        return {}
    return {key: found[key] for key in ("registers", "local_bytes")}


@contextmanager
def device_code(*forms: str, file: TextIO | None = None) -> Iterator[list[Any]]:
    """Show what is compiled in the block, be it by a kernel, a te function or a network: `with tec.device_code("asm", "llvm"):`.

    forms: "loop_ir" (lowered), "llvm_raw" (as tec writes it), "llvm" (after LLVM's passes), "asm" (the default; PTX for NVIDIA),
    "resources" (registers, memory, occupancy). file: where to, standard output by default. Gives the list of the modules met. What was
    compiled before and is kept is not compiled again, and not shown.

    >>> import io
    >>> @tec.kernel
    ... def twice(a):
    ...     a[tec.thread_idx.x] *= 2.0
    >>> text = io.StringIO()
    >>> with tec.device_code("loop_ir", file=text):
    ...     twice[1, 4](np.ones(4, "float32"))
    >>> text.getvalue().splitlines()[0]
    '; ---- twice for llvm: loop_ir'
    """
    wanted = forms or ("asm",)
    for f in wanted:
        if f not in FORMS:
            raise KernelError(f"{f!r} is no form of code", hint=f"forms: {', '.join(FORMS)}")
    met: list[Any] = []

    def show(module: Any) -> None:
        met.append(module)
        out = file or sys.stdout
        for form in wanted:
            title = f"{module.entry_name or module.kind} for {module.target}: {form}"
            out.write(f"; ---- {title}\n{code_of(module, form).rstrip()}\n\n")

    with driver.watched(show):
        yield met
