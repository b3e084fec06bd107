"""Writes networks and modules as native libraries: `.so` (a shared object), `.a` (a static library), `.o` (one object), each with its header.

In: a `Network`, or a `Module` for a CPU. `export_network(net, "net.so")` and `export_module(module, "k.so")` write the library and, beside it, the header of
the same name; `header_of` gives the header's text. Weights lie in the library, or in a file beside it that is mapped (`weights="beside"`).
A shared object is linked here, or by a compiler driver such as "cc" where one is named (`linker`).
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..codegen.cpu.build import machine_of
from ..codegen.objects import elf
from ..codegen.objects.merging import join_objects, localized, write_object
from ..errors import ArgumentError, CodegenError
from ..runtime.modules.module import Module
from ..runtime.modules.package import LIBRARIES
from ..runtime.networks.network import Network
from ..runtime.outputs import write_output
from ..target import Target
from . import runtime
from .archive import archive
from .data import TABLES, Data
from .headers import identifier, kernels_header, network_header
from .kernels import KernelTables
from .linking import link_shared
from .tables import FILE_BYTES, WEIGHTS, ModelTables, code_symbol, model_symbol

_ARCHITECTURES = {elf.EM_X86_64: "x86_64", elf.EM_AARCH64: "aarch64", elf.EM_RISCV: "riscv64"}
_API = (
    "tec_net_create tec_net_destroy tec_net_error tec_net_input_count tec_net_output_count tec_net_input tec_net_output tec_net_run tec_net_result "
    "tec_net_shape tec_net_device tec_net_reset tec_net_rows tec_net_truncate tec_net_threads tec_net_bytes tec_library_model tec_model_name tec_model_target"
).split()
_LINK_TIMEOUT = 600  # seconds for a system's linker


def export_network(
    network: Network,
    path: str | os.PathLike[str],
    *,
    name: str | None = None,
    weights: str = "inside",
    linker: str | None = None,
    host: str | None = None,
) -> list[Path]:
    """Write a network's library and its header. Returns the paths of what was written: the library, the header, the file of weights where there is one.

    path: a name that ends in .so, .a or .o. name: of the network in C, the file's by default. weights: "inside" or "beside", in `NAME.weights` in the
    library's folder. linker: a compiler driver ("cc", "aarch64-linux-gnu-gcc") that links a shared object; tec does it by default. host: of
    a network for a GPU, the target of the program that runs it ("llvm -mtriple=aarch64-linux-gnu"); this machine by default. Raises
    ArgumentError for what cannot be a library, CodegenError where linking fails.
    """
    network.check_numbers()
    out = _checked(path, linker)
    if host is not None and (network.module.device_kind == "cpu" or Target(host).kind != "llvm"):
        raise ArgumentError(
            f"host={host!r} for a network that was compiled for {network.module.target}",
            hint='the target of the program that runs a network for a GPU, such as "llvm -mtriple=aarch64-linux-gnu"',
        )
    if weights not in ("inside", "beside"):
        raise ArgumentError(f"weights={weights!r}", hint='"inside" or "beside"')
    name = identifier(name or out.name.removesuffix(out.suffix))
    beside = out.with_suffix(".weights") if weights == "beside" else None
    tables = ModelTables(network, name, beside.name if beside is not None else None)
    code = [network.module.image] if network.module.image and not tables.device_type else []
    packed = tables.weights if beside is None and len(tables.weights) else b""
    exports = [*_API, model_symbol(name)]
    made_for = host or ("llvm" if tables.device_type else network.module.target)
    _write(
        out,
        tables.data,
        code,
        network.module,
        exports,
        packed,
        linker,
        FILE_BYTES,
        (),
        made_for,
        bool(tables.device_type),
    )
    written = [out, _write_header(out, network_header(network, name))]
    if beside is not None:
        write_output(beside, lambda f: _put(f, [memoryview(tables.weights)]), CodegenError)
        written.append(beside)
    return written


def export_module(
    module: Module, path: str | os.PathLike[str], *, name: str | None = None, linker: str | None = None
) -> list[Path]:
    """Write a module's functions as a library, and its header. `name` is what the functions' names in C begin with, the file's name by default.

    Raises as `export_network` does; also where LLVM is not there, which makes the functions' entries.
    """
    out = _checked(path, linker)
    _check_target(module)
    tables = KernelTables(module, identifier(name or out.name.removesuffix(out.suffix)))
    exports = [exported for exported, _ in tables.functions]
    _write(out, tables.data, [module.image], module, exports, b"", linker, None, [tables.entries()])
    return [out, _write_header(out, kernels_header(tables.name, tables.functions, module.target))]


def header_of(what: Network | Module, name: str) -> str:
    """The header of a library of that name."""
    if isinstance(what, Network):
        return network_header(what, identifier(name))
    _check_target(what)
    return kernels_header(identifier(name), KernelTables(what, identifier(name)).functions, what.target)


# ---- checks


def _checked(path: str | os.PathLike[str], linker: str | None) -> Path:
    out = Path(os.fspath(path))
    if out.suffix not in LIBRARIES:
        raise ArgumentError(f"{out.name} is no library's name", hint=f"it ends in {', '.join(LIBRARIES)}")
    if linker is not None and (out.suffix != ".so" or shutil.which(linker) is None):
        raise ArgumentError(
            f"linker={linker!r}: {'a static library is not linked' if out.suffix != '.so' else 'there is no such program'}",
            hint='a compiler driver such as "cc", for a name that ends in .so',
        )
    return out


def _check_target(module: Module) -> None:
    if module.device_kind != "cpu":
        raise ArgumentError(
            f"a library of functions holds code for CPUs, this is for {module.target}",
            hint='build for "llvm", or compile a network (tec.compile), whose library holds code for GPUs too',
        )


def _architecture(target: str, machine: int | None) -> str:
    if machine is None:
        return machine_of(Target(target or "llvm")).triple.split("-")[0].replace("arm64", "aarch64")
    arch = _ARCHITECTURES.get(machine)
    if arch is None:
        raise ArgumentError(f"no native libraries are made for ELF machine {machine}")
    return arch


# ---- putting it together


def _write(
    out: Path, data: Data, code: Sequence[bytes], module: Module, exports: Sequence[str], weights: Any, linker: str | None, size_symbol: str | None,
    entries: Sequence[bytes] = (), target: str | None = None, gpu: bool = False,
) -> None:  # fmt: skip
    machine = elf.read_object(code[0]).machine if code else None
    objects = runtime.objects(_architecture(module.target if target is None else target, machine))
    like = elf.read_object(objects["net"])
    support = [o for o in module.support if o] if code else []
    own_names = {f: code_symbol(f) for f in module.specs}  # a function may be called as something of C is
    parts = [
        objects["net"],
        objects["kernels"],
        *([objects["gpu"]] if gpu else []),
        *(write_object(join_objects([c], own_names)) for c in code),
        *entries,
        *support,
    ]
    own = data.object_of(like)
    if out.suffix == ".so" and linker is None:
        whole = join_objects([parts[0], objects["api"], own, *parts[1:]])
        pieces = link_shared(
            whole, exports, out.name, {WEIGHTS: weights} if len(weights) else {}, size_symbol, (TABLES,)
        )
        write_output(out, lambda f: _put(f, pieces), CodegenError)
        return
    if len(weights):
        parts.append(_weights_object(weights, like))
    private = [e for e in exports if e not in _API]
    # Of several libraries in a program each keeps its own runtime; the calls are those of one of them.
    body = write_object(localized(join_objects([parts[0], own, *parts[1:]]), {*private, "tec_own_model"}))
    if out.suffix == ".a":
        members = {f"{out.stem}.o": body} | ({"tec_api.o": objects["api"]} if size_symbol is not None else {})
        write_output(out, archive(members), CodegenError)
    elif out.suffix == ".o":
        with_api = [body, *([objects["api"]] if size_symbol is not None else [])]
        write_output(out, write_object(join_objects(with_api)), CodegenError)
    else:
        _link_by(str(linker), out, [body, *([objects["api"]] if size_symbol is not None else [])])


def _put(f: Any, pieces: Sequence[Any]) -> None:
    for p in pieces:
        f.write(p)


def _weights_object(weights: Any, like: elf.Object) -> bytes:
    section = elf.Section(".rodata.tec_weights", elf.PROGBITS, elf.ALLOC, 256, bytes(memoryview(weights)), len(weights))
    symbols = [elf.Symbol("", 0, 0, 0, 0, 0), elf.Symbol(WEIGHTS, 0x11, 2, 1, 0, len(weights))]
    return write_object(elf.Object(like.machine, like.flags, like.ident, [elf.Section("", 0, 0, 0), section], symbols))


def _link_by(linker: str, out: Path, objects: Sequence[bytes]) -> None:
    """A shared object by a compiler driver."""
    with tempfile.TemporaryDirectory() as folder:
        files = []
        for k, data in enumerate(objects):
            files.append(os.path.join(folder, f"{k}.o"))
            Path(files[-1]).write_bytes(data)
        made = os.path.join(folder, "out.so")
        command = [
            linker,
            "-shared",
            "-o",
            made,
            *files,
            f"-Wl,-soname,{out.name}",
            "-Wl,-z,noexecstack",
            "-lm",
            "-lpthread",
            "-ldl",
        ]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=_LINK_TIMEOUT, check=False)
        except (OSError, subprocess.TimeoutExpired) as error:
            raise CodegenError(f"{linker} did not link {out.name}: {error}", locate=False) from None
        if done.returncode:
            raise CodegenError(f"{linker} did not link {out.name}: {done.stderr.strip()[:800]}", locate=False)
        data = Path(made).read_bytes()
    write_output(out, data, CodegenError)


def _write_header(out: Path, text: str) -> Path:
    path = out.with_suffix(".h")
    write_output(path, text, CodegenError)
    return path
