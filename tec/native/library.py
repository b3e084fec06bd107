"""Writes networks and modules as native libraries: `.so` (a shared object), `.a` (a static library), `.o` (one object), each with its header.

In: a `Network` or a `Module`, or several that are the same for other targets. `export_network(net, "net.so")` and `export_module(module, "k.so")` write the
library and, beside it, the header of the same name; `header_of` gives the header's text. Weights lie in the library, or in a file beside it that is mapped (`weights="beside"`).
A shared object is linked here, or by a compiler driver such as "cc" where one is named (`linker`).
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
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
from .tables import FILE_BYTES, ModelTables, code_symbol, model_symbol

_ARCHITECTURES = {elf.EM_X86_64: "x86_64", elf.EM_AARCH64: "aarch64", elf.EM_RISCV: "riscv64"}
_API = (
    "tec_net_create tec_net_destroy tec_net_error tec_net_input_count tec_net_output_count tec_net_input tec_net_output tec_net_run tec_net_result "
    "tec_net_shape tec_net_device tec_net_target tec_net_reset tec_net_rows tec_net_truncate tec_net_threads tec_net_bytes tec_library_model tec_model_name tec_model_target"
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
    others: Sequence[Network] = (),
) -> list[Path]:
    """Write a network's library and its header. Returns the paths of what was written: the library, the header, the file of weights where there is one.

    path: a name that ends in .so, .a or .o. name: of the network in C, the file's by default. weights: "inside" or "beside", in `NAME.weights` in the
    library's folder. linker: a compiler driver ("cc", "aarch64-linux-gnu-gcc") that links a shared object; tec does it by default. host: of
    a network for a GPU, the target of the program that runs it ("llvm -mtriple=aarch64-linux-gnu"); this machine by default. others: the same network,
    compiled for other targets; a net is of the first that the machine can run. Raises ArgumentError for what cannot be a library, CodegenError where
    linking fails.
    """
    networks = [network, *others]
    for n in networks:
        n.check_numbers()
        _check_same_network(network, n)
    out = _checked(path, linker)
    made_for = _host([n.module for n in networks], host)
    if weights not in ("inside", "beside"):
        raise ArgumentError(f"weights={weights!r}", hint='"inside" or "beside"')
    name = identifier(name or out.name.removesuffix(out.suffix))
    beside = out.with_suffix(".weights") if weights == "beside" else None
    file = beside.name if beside is not None else None
    rest: list[ModelTables] = []
    for form, n in enumerate(others, 1):
        rest.append(ModelTables(n, name, file, form=form, others=rest))
    tables = ModelTables(network, name, file, others=rest)
    packed = {t.weights_symbol: t.weights for t in (tables, *rest) if len(t.weights)}
    if beside is not None and len(packed) > 1:
        raise ArgumentError(
            "weights='beside' for targets that lay their weights out differently", hint='weights="inside"'
        )
    code = [_code(t.network.module, t.form) for t in (tables, *rest) if not t.device_type]
    gpu = any(t.device_type for t in (tables, *rest))
    parts = _Parts(code, [t.data for t in (tables, *rest)], gpu=gpu, weights={} if beside is not None else packed)
    _write(out, parts, [*_API, model_symbol(name)], linker, FILE_BYTES, made_for)
    written = [out, _write_header(out, network_header(network, name, others))]
    if beside is not None:
        write_output(beside, lambda f: _put(f, [memoryview(tables.weights)]), CodegenError)
        written.append(beside)
    return written


def export_module(
    module: Module,
    path: str | os.PathLike[str],
    *,
    name: str | None = None,
    linker: str | None = None,
    host: str | None = None,
    others: Sequence[Module] = (),
) -> list[Path]:
    """Write a module's functions as a library, and its header. `name` is what the functions' names in C begin with, the file's name by default.

    host: of a module for a GPU, as `export_network` has it. others: the same functions, built for other targets; a call takes the first that the machine
    can run and whose device the tensors are on. Raises as `export_network` does; also where LLVM is not there, which makes the functions' entries.
    """
    out = _checked(path, linker)
    modules = [module, *others]
    made_for = _host(modules, host)
    tables = KernelTables(modules, identifier(name or out.name.removesuffix(out.suffix)))
    exports = [exported for exported, _ in tables.functions]
    gpu = tables.takes_stream
    if gpu:
        exports.append(f"{tables.name}_release")
    if len(set(exports)) < len(exports):
        raise ArgumentError(
            f"two functions would be {tables.name}_release", hint="name= gives the library another name"
        )
    code = [_code(m, form) for form, m in enumerate(modules) if m.device_kind == "cpu"]
    parts = _Parts(code, [tables.data], gpu=gpu, gpu_kernels=gpu, entries=tables.entries(made_for))
    tail = module.package_bytes() if out.suffix == ".so" and not others else b""
    _write(out, parts, exports, linker, None, made_for, tail)
    return [out, _write_header(out, kernels_header(tables.name, tables.functions, tables.target, gpu))]


def header_of(what: Network | Module, name: str) -> str:
    """The header of a library of that name."""
    if isinstance(what, Network):
        return network_header(what, identifier(name))
    tables = KernelTables([what], identifier(name))
    return kernels_header(tables.name, tables.functions, tables.target, tables.takes_stream)


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


def _host(modules: Sequence[Module], host: str | None) -> str:
    """The target of the program that a library is for: that of the code for CPUs, or `host`."""
    cpu = [m.target for m in modules if m.device_kind == "cpu"]
    if host is not None and (cpu or Target(host).kind != "llvm"):
        raise ArgumentError(
            f"host={host!r} for {'code' if cpu else 'a program'} that is for {cpu[0] if cpu else host}",
            hint='the target of the program that runs code for a GPU, such as "llvm -mtriple=aarch64-linux-gnu"',
        )
    return cpu[0] if cpu else host or "llvm"


def _check_same_network(one: Network, other: Network) -> None:
    """ArgumentError where two networks do not have the same inputs, outputs and states."""
    facts = [
        ([(p["name"], p["dtype"], repr(p["shape"])) for p in (*n.inputs, *n.outputs)], [repr(s) for s in n.plan.states])
        for n in (one, other)
    ]
    if facts[0] != facts[1]:
        raise ArgumentError(
            f"the network for {other.module.target} has other inputs, outputs or states than that for {one.module.target}",
            hint="a library for several targets has the same network for each",
        )


def _architecture(target: str, machine: int | None) -> str:
    if machine is None:
        return machine_of(Target(target or "llvm")).triple.split("-")[0].replace("arm64", "aarch64")
    arch = _ARCHITECTURES.get(machine)
    if arch is None:
        raise ArgumentError(f"no native libraries are made for ELF machine {machine}")
    return arch


# ---- putting it together


@dataclass(frozen=True, slots=True)
class _Parts:
    """What a library is put together from. code: of each target of a CPU its module's objects, and the names of the functions in them."""

    code: Sequence[tuple[list[bytes], Mapping[str, str]]]
    data: Sequence[Data]
    gpu: bool = False
    gpu_kernels: bool = False
    entries: bytes | None = None
    weights: Mapping[str, Any] = field(default_factory=dict)

    def objects(self, of: Mapping[str, bytes]) -> list[bytes]:
        """All but the constant data, the C runtime's calls and its first object."""
        support = dict.fromkeys(o for images, _ in self.code for o in images[1:] if o)
        return [
            of["kernels"],
            *([of["gpu"]] if self.gpu else []),
            *([of["gpu_kernels"]] if self.gpu_kernels else []),
            *(write_object(join_objects(images[:1], names)) for images, names in self.code if images[0]),
            *([self.entries] if self.entries is not None else []),
            *support,
        ]


def _code(module: Module, form: int) -> tuple[list[bytes], dict[str, str]]:
    """A module's code, and the names of its functions in a library: a function may be called as something of C is."""
    return [module.image, *module.support], {f: code_symbol(f, form) for f in module.specs}


def _write(
    out: Path,
    made: _Parts,
    exports: Sequence[str],
    linker: str | None,
    size_symbol: str | None,
    target: str,
    tail: bytes = b"",
) -> None:
    """Write the library. tail: what comes behind a shared object, where loaders do not look."""
    machines = {elf.read_object(images[0]).machine for images, _ in made.code if images[0]}
    if len(machines) > 1:
        raise ArgumentError(
            "a library is for one architecture", hint="export one for each: the code for CPUs is of several"
        )
    objects = runtime.objects(_architecture(target, next(iter(machines), None)))
    like = elf.read_object(objects["net"])
    parts = [objects["net"], *made.objects(objects)]
    own = [d.object_of(like) for d in made.data]
    if out.suffix == ".so" and linker is None:
        whole = join_objects([parts[0], objects["api"], *own, *parts[1:]])
        pieces = link_shared(whole, exports, out.name, made.weights, size_symbol, (TABLES,))
        write_output(out, lambda f: _put(f, [*pieces, tail]), CodegenError)
        return
    parts += [_weights_object(symbol, data, like) for symbol, data in made.weights.items()]
    private = [e for e in exports if e not in _API]
    # Of several libraries in a program each keeps its own runtime; the calls are those of one of them.
    body = _for_linkers(localized(join_objects([parts[0], *own, *parts[1:]]), {*private, "tec_own_model"}))
    if out.suffix == ".a":
        members = {f"{out.stem}.o": body} | (
            {"tec_api.o": _for_linkers(join_objects([objects["api"]]))} if size_symbol is not None else {}
        )
        write_output(out, archive(members), CodegenError)
    elif out.suffix == ".o":
        with_api = [body, *([objects["api"]] if size_symbol is not None else [])]
        write_output(out, _for_linkers(join_objects(with_api)), CodegenError)
    else:
        _link_by(str(linker), out, [body, *([objects["api"]] if size_symbol is not None else [])], tail)


def _for_linkers(o: elf.Object) -> bytes:
    """An object for a system's linker, which gives a program an executable stack where one of its objects does not say that it needs none."""
    o.sections.append(elf.Section(".note.GNU-stack", elf.PROGBITS, 0, 1))
    return write_object(o)


def _put(f: Any, pieces: Sequence[Any]) -> None:
    for p in pieces:
        f.write(p)


def _weights_object(symbol: str, weights: Any, like: elf.Object) -> bytes:
    section = elf.Section(".rodata.tec_weights", elf.PROGBITS, elf.ALLOC, 256, bytes(memoryview(weights)), len(weights))
    symbols = [elf.Symbol("", 0, 0, 0, 0, 0), elf.Symbol(symbol, 0x11, 2, 1, 0, len(weights))]
    return write_object(elf.Object(like.machine, like.flags, like.ident, [elf.Section("", 0, 0, 0), section], symbols))


def _link_by(linker: str, out: Path, objects: Sequence[bytes], tail: bytes) -> None:
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
    write_output(out, data + tail, CodegenError)


def _write_header(out: Path, text: str) -> Path:
    path = out.with_suffix(".h")
    write_output(path, text, CodegenError)
    return path
