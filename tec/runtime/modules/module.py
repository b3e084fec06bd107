"""Module: what `tec.build` gives back and `load_module` reads. Callable, inspectable, saveable.

A module of kind "llvm" holds the host side: CPU code, or the host programs of a GPU build whose device code is
`imported_modules[0]` (kind "rocm" or "cuda"). Each compiled function is a `Function`; a module call goes to the entry
function. Everything here is plain data and bytes: no compiler is needed to run it.
"""

from __future__ import annotations

import io
import os
import platform
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from ...door import of_tec
from ...errors import ArgumentError, DeviceError, TecError, other_part
from ...locks import fork_safe_lock
from ...notebook import code, escape, table
from ...target import CHIPS, Target
from ..devices import device as devices
from ..devices.device import Device
from ..devices.surface import Assembly
from ..outputs import write_output
from .cpu_code import CpuCode
from .function import Function
from .host_cpu import lacks
from .package import damaged, is_native, package_writer, read_package, suffix_of, write_package
from .timing import TimeEvaluator

Source = str | Callable[[], str]
_MOST_TEXTS = 20  # functions whose text a notebook can unfold
_KERNEL_FACTS = {
    "vgprs": "VGPRs", "agprs": "AGPRs", "sgprs": "SGPRs", "lds_bytes": "LDS, bytes", "vgpr_spills": "spills",
}  # fmt: skip
_TEXTS = {".ll": "llvm", ".s": "asm", ".asm": "asm", ".ptx": "ptx"}  # sources by the name of a file
_CODE_OBJECTS = (".hsaco", ".co")
_DEFAULT_SOURCES = ("llvm", "ptx", "asm", "ir")


class Module:
    """Compiled code with what is needed to run it.

    Parameters: `kind` "llvm", "rocm" or "cuda"; `entry_name`, the function that a call of the module runs; `signature`
    and `program` of that function, or `functions`, several by name as `{"signature": ..., "program": ...}`; `image`, the
    ELF object, code object or PTX; `texts`, the sources of each function or kernel by its name and kind, and `sources`, those of
    the whole by kind, as text or as functions that make it; `imported`, the device
    modules; `target`, as text; `asserts`, the messages of a CPU function's assertions; `support`, objects that `image`
    is linked against (the thread pool); `attrs`, JSON-able extras (kernel resources and the like).

    >>> A = tec.placeholder((4,), name="A")
    >>> B = tec.compute((4,), lambda i: A[i] * 2.0, name="B")
    >>> f = tec.build(tec.create_schedule(B.op), [A, B], "llvm", name="twice")
    >>> a, b = np.ones(4, "float32"), np.zeros(4, "float32")
    >>> f(a, b)
    >>> b
    array([2., 2., 2., 2.], dtype=float32)
    >>> f.get_source("ir").splitlines()[1]
    'def twice(A: Buffer((4,), "float32"), B: Buffer((4,), "float32")):'
    """

    def __init__(
        self,
        kind: str,
        entry_name: str = "",
        signature: Mapping[str, Any] | None = None,
        *,
        program: Sequence[Any] | None = None,
        functions: Mapping[str, Mapping[str, Any]] | None = None,
        image: bytes = b"",
        sources: Mapping[str, Source] | None = None,
        texts: Mapping[str, Mapping[str, Source]] | None = None,
        imported: Iterable[Module] = (),
        target: Any = "",
        asserts: Sequence[str] = (),
        support: Sequence[bytes] = (),
        attrs: Mapping[str, Any] | None = None,
    ):
        self.kind = kind
        self.image = bytes(image)
        self.sources: dict[str, Source] = dict(sources or {})
        self.texts: dict[str, dict[str, Source]] = {name: dict(by_kind) for name, by_kind in (texts or {}).items()}
        self.imported_modules: list[Module] = list(imported)
        self.target = str(target)
        self.support = [bytes(s) for s in support]
        self.attrs: dict[str, Any] = dict(attrs or {})
        specs = {name: dict(spec) for name, spec in (functions or {}).items()}
        if signature is not None:
            specs[entry_name] = {"signature": dict(signature), "program": program, "asserts": list(asserts)}
        self.entry_name = entry_name or next(iter(specs), "")
        self.specs = specs
        self._lock = fork_safe_lock()
        self._functions: dict[str, Function] = {}
        self._loaded: dict[Device, tuple[Any, dict[str, Any]]] = {}
        self._cpu: Any = None
        self._entry: Callable[..., None] | None = None
        if self.entry_name in specs:
            self._entry = self[self.entry_name]._call

    def __repr__(self) -> str:
        names = ", ".join(f.prototype for f in map(self.__getitem__, self.specs))
        code = f"{len(self.image)} bytes of code" if self.image else ""
        n = len(self.imported_modules)
        inner = f"imports {self.imported_modules if n < 2 else f'{n} modules'}" if n else ""
        return f"<tec.Module {self.kind} " + "; ".join(x for x in (names, self.target, code, inner) if x) + ">"

    def _repr_html_(self) -> str:
        rows = [(f.name, f.prototype) for f in map(self.__getitem__, self.specs)]
        out = [table(("function", "arguments"), rows, f"module for {self.target or self.kind}")]
        for m in [self, *self.imported_modules]:
            facts = m.attrs.get("kernels", {})
            if m is not self or m.texts:
                keys = [k for k in ("threads", *_KERNEL_FACTS) if any(k in f for f in facts.values())]
                cells = [
                    (n, *(_fact(facts.get(n, {}).get(k, "")) for k in keys)) for n in dict.fromkeys((*facts, *m.texts))
                ]
                out += [table(("kernel", *(_KERNEL_FACTS.get(k, k) for k in keys)), cells)] if keys else []
                # Loop IR is there; LLVM IR and assembly may first have to be made: `get_source` gives them.
                out += [
                    f"<details><summary>loop IR of {escape(n)}</summary>{code(_text(by_kind, 'ir'))}</details>"
                    for n, by_kind in list(m.texts.items())[:_MOST_TEXTS]
                    if "ir" in by_kind
                ]
        return f'<div style="overflow:auto">{"".join(out)}</div>'

    # ---- functions

    def __call__(self, *args: Any) -> None:
        """Run the entry function. Arrays that it writes are arguments too; nothing is returned."""
        if self._entry is None:
            raise ArgumentError(
                f"this {self.kind} module holds kernels without a host side and cannot be called",
                hint="call the module that imports it",
            )
        self._entry(*args)

    def __getitem__(self, name: str) -> Function:
        """The function of that name. Raises ArgumentError, which lists the names, where there is none."""
        function = self._functions.get(name)
        if function is None:
            spec = self.specs.get(name)
            if spec is None:
                raise ArgumentError(
                    f"no function {name!r} in the module", hint=f"functions: {', '.join(self.specs) or 'none'}"
                )
            with self._lock:
                function = self._functions.setdefault(name, Function(self, name, spec))
        return function

    get_function = __getitem__

    @property
    def function_names(self) -> list[str]:
        """The names of its functions, the entry first."""
        return list(self.specs)

    @property
    def entry_func(self) -> Function:
        """The function that a call of the module runs."""
        return self[self.entry_name]

    @property
    def signature(self) -> dict[str, Any]:
        """The entry function's signature, as plain data."""
        return self.specs[self.entry_name]["signature"]  # type: ignore[no-any-return]

    @property
    def program(self) -> list[Any] | None:
        """The entry function's host program, as plain data; None for CPU code."""
        return self.specs[self.entry_name].get("program")

    @property
    def device_kind(self) -> str:
        """Where the functions run: "cpu", "rocm" or "cuda"."""
        for m in self.imported_modules:
            if m.kind in ("rocm", "cuda"):
                return m.kind
        made_for = (self.target or "").split(" ")[0]  # a network that only renames and slices has no kernels
        if made_for in ("rocm", "cuda"):
            return made_for
        return "cpu" if self.kind == "llvm" else self.kind

    # ---- what it is made of

    def get_source(self, kind: str | None = None, name: str | None = None) -> str:
        """Source text: "ir" (loop IR), "llvm", "asm", "ptx" ("sass" for CUDA code where nvdisasm is installed).

        name: the function or kernel whose text it is; of all, one behind the other, by default. A module without that text gives that
        of the modules it imports. Raises ArgumentError, which lists what there is.
        """
        kinds = self._source_kinds()
        kind = {"ll": "llvm", "s": "asm"}.get(kind or "", kind)  # as files of them end
        if kind is None:
            kind = next((k for k in _DEFAULT_SOURCES if k in kinds), None)
            if kind is None:
                raise ArgumentError(f"this {self.kind} module keeps no source text", hint="get_binary() gives the code")
        found = self._source(kind, name)
        if found is None:
            if name is not None and name not in self._text_names():
                raise ArgumentError(
                    f"no source of {name!r} in this {self.kind} module",
                    hint=f"names: {', '.join(self._text_names()) or 'none'}",
                )
            raise ArgumentError(
                f"no source of kind {kind!r} in this module for {self.target or self.kind}",
                hint=f"kinds: {', '.join(kinds) or 'none'}; get_binary() gives the code itself",
            )
        return found

    def _source(self, kind: str, name: str | None) -> str | None:
        if name is None and kind in self.sources:
            return _text(self.sources, kind)
        if name is None and kind == "sass" and self.kind == "cuda":
            return self._sass()
        own = [_text(by_kind, kind) for n, by_kind in self.texts.items() if kind in by_kind and name in (None, n)]
        some = own or [t for m in self.imported_modules if (t := m._source(kind, name)) is not None]
        return "\n\n".join(some) if some else None

    def _source_kinds(self) -> list[str]:
        kinds = [*self.sources, *(k for by_kind in self.texts.values() for k in by_kind)]
        kinds += ["sass"] if self.kind == "cuda" else []
        for m in self.imported_modules:
            kinds += m._source_kinds()
        return list(dict.fromkeys(kinds))

    def _text_names(self) -> list[str]:
        return [*self.texts, *(n for m in self.imported_modules for n in m._text_names())]

    def get_binary(self) -> bytes:
        """The code: a code object (rocm), PTX text (cuda) or an ELF object (llvm)."""
        return self.image or next((code for m in self.imported_modules if (code := m.get_binary())), b"")

    def _sass(self) -> str:
        import shutil  # for this alone
        import subprocess
        import tempfile

        tool = shutil.which("nvdisasm") or shutil.which("nvdisasm", path="/usr/local/cuda/bin")
        if tool is None:
            raise ArgumentError(
                "no SASS: nvdisasm was not found", hint="it comes with the CUDA toolkit; put it on PATH"
            )
        driver: Any = devices.cuda(0).driver
        cubin = driver.link(0, self.image)
        with tempfile.NamedTemporaryFile(suffix=".cubin") as f:
            f.write(cubin)
            f.flush()
            done = subprocess.run([tool, f.name], capture_output=True, text=True, timeout=120, check=False)
        if done.returncode:
            raise DeviceError(f"nvdisasm failed: {done.stderr.strip()[:500]}", hint="get_source('ptx') needs no tool")
        return done.stdout

    # ---- code on a device

    def kernel(self, device: Device, name: str) -> Any:
        """The driver's handle of a kernel on a device; loads the code there at the first use."""
        driver = device.driver
        assert driver is not None
        missing: DeviceError | None = None
        some = [m for m in self.imported_modules if m.kind == device.kind] or [self]
        for m in [m for m in some if name in m.attrs.get("kernels", ())] or some:
            loaded, handles = m._load(device)
            handle = handles.get(name)
            if handle is None:
                try:
                    handle = handles[name] = driver.get_function(loaded, name)
                except DeviceError as error:
                    missing = missing or error
                    continue
            return handle
        assert missing is not None
        raise missing

    def _load(self, device: Device) -> tuple[Any, dict[str, Any]]:
        loaded = self._loaded.get(device)
        if loaded is None:
            with self._lock:
                loaded = self._loaded.get(device)
                if loaded is None:
                    self._check_chip(device)
                    asm = self._assembly() if device.is_emulated else None  # only the software GPU reads it
                    handle = device.driver.load_module(device.index, self.image, asm)  # type: ignore[union-attr]
                    loaded = self._loaded[device] = (handle, {})
        return loaded

    def _assembly(self) -> str | Assembly | None:
        """The assembly, where it is kept; a kernel's when it is asked for, as making it may cost a compilation."""
        if any("asm" in by_kind for by_kind in self.texts.values()):
            return lambda kernel: self.get_source("asm", kernel)
        return self.get_source("asm") if "asm" in self.sources else None

    def _check_chip(self, device: Device) -> None:
        if not self.target:
            return
        try:
            chip = Target(self.target).mcpu
        except TecError:
            return
        there = device.arch.split(":")[0]
        if self.kind == "rocm" and there.startswith("gfx") and chip != there and "generic" not in chip:
            raise DeviceError(
                f"the code was built for {chip}, and {device} is a {there}",
                hint=f'build with tec.Target("rocm -mcpu={there}")',
            )
        if self.kind == "cuda" and there in CHIPS and _sm(chip) > _sm(there):
            raise DeviceError(
                f"the code was built for {chip}, and {device} is an older {there}",
                hint=f'build with tec.Target("cuda -arch={there}")',
            )

    def cpu_function(self, name: str) -> Callable[[bytes, bytes], int]:
        """The machine-code function on the CPU."""
        with self._lock:
            if self._cpu is None:
                self._check_processor()
                self._cpu = CpuCode(self.image, self.support)
            code: Callable[[bytes, bytes], int] = self._cpu.function(name)
            return code

    def _check_processor(self) -> None:
        missing = lacks(map(str, self.attrs.get("cpu_features", ())))
        if missing:
            plain = "generic" if platform.machine().lower() in ("aarch64", "arm64") else "x86-64-v3"
            raise DeviceError(
                f"this code is made for {self.target}, and this machine's processor lacks {', '.join(missing)}",
                hint=f'compile it for "llvm -mcpu={plain}", or on this machine for "llvm"',
            )

    def __del__(self) -> None:
        for device, (handle, _) in getattr(self, "_loaded", {}).items():
            try:
                device.driver.unload_module(handle)
            except Exception:
                continue  # the driver may be gone at interpreter exit

    # ---- measuring and saving

    def time_evaluator(
        self,
        name: str | None = None,
        dev: Any = None,
        number: int = 10,
        repeat: int = 1,
        *,
        ctx: Any = None,
        **options: Any,
    ) -> Any:
        """`time_evaluator(name, dev, number, repeat)(*args)`: seconds a call, `repeat` times the mean of `number` calls.

        Options: `min_repeat_ms` raises `number` until a repeat takes that long; `warmup` calls go before (1). `ctx` is another name of `dev`.
        """
        dev = ctx if dev is None else dev
        return TimeEvaluator(self[name or self.entry_name], dev, number, repeat, **options)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the module, with all it needs to run, to a package file (`.tecmod`); see `load_module`. A name that promises something else
        gets that: `.so`, `.a` and `.o` a library (`export_library`), `.ll`, `.s` and `.ptx` source text, `.hsaco` and `.co` the code object.

        Raises ArgumentError for other names of libraries and objects, and for what the module does not have; PackageError where the file
        cannot be written."""
        suffix = suffix_of(path)
        if suffix in _TEXTS:
            write_output(path, self.get_source(_TEXTS[suffix]))
        elif suffix in _CODE_OBJECTS and "rocm" in (self.kind, *(m.kind for m in self.imported_modules)):
            write_output(path, self.get_binary())
        elif is_native(path):
            self.export_library(path)
        else:
            blobs: dict[str, bytes] = {}
            write_package(path, "module", {"module": self.to_data(blobs)}, blobs)

    def package_bytes(self) -> bytes:
        """The package that `save` writes."""
        blobs: dict[str, bytes] = {}
        f = io.BytesIO()
        package_writer("module", {"module": self.to_data(blobs)}, blobs)(f)
        return f.getvalue()

    def export_library(
        self,
        path: str | os.PathLike[str],
        *,
        name: str | None = None,
        linker: str | None = None,
        host: str | None = None,
        others: Sequence[Module] = (),
    ) -> None:
        """Write a native library and its C header: a shared object (`.so`), a static library (`.a`) or one object (`.o`). Any other name gets a
        package, as `save` writes it. A shared object has the package behind its own bytes, so that `load_module` reads it too.

        name: what the functions' names in C begin with, the file's name by default. linker: a compiler driver such as "cc", which links a
        shared object in tec's place. host: of code for a GPU alone, the target of the program that calls it, such as
        "llvm -mtriple=aarch64-linux-gnu"; this machine by default. others: modules of the same functions, built for other targets. A call then runs the
        first, this one foremost, that the machine can run and whose device its tensors are on. Raises ArgumentError for what cannot be a library.
        """
        if not is_native(path):
            if others:
                raise ArgumentError("a package is for one target", hint="others= is for libraries: .so, .a and .o")
            self.save(path)
            return
        # What lays a library out is the compiler's side; a program that only runs needs none of it.
        native = other_part("tec.native.library", "a native library")
        native.export_module(self, path, name=name, linker=linker, host=host, others=others)

    def to_data(self, blobs: dict[str, bytes], prefix: str = "code", unmade: bool = True) -> dict[str, Any]:
        """The module as JSON-able data; its bytes go into `blobs` under names that start with `prefix`. unmade: with the texts that nobody
        asked for yet, the assembly among them, which LLVM makes."""

        def put(name: str, data: bytes) -> str:
            blobs[f"{prefix}/{name}"] = data
            return f"{prefix}/{name}"

        return {
            "kind": self.kind,
            "entry_name": self.entry_name,
            "functions": self.specs,
            "target": self.target,
            "attrs": self.attrs,
            "image": put("image", self.image) if self.image else None,
            "support": [put(f"support{i}", s) for i, s in enumerate(self.support)],
            "sources": {k: put(f"source.{k}", self.get_source(k).encode()) for k in self.sources},
            "texts": {
                name: {
                    k: put(f"text.{name}.{k}", _text(by_kind, k).encode())
                    for k in by_kind
                    if unmade or isinstance(by_kind[k], str)
                }
                for name, by_kind in self.texts.items()
            },
            "imported": [m.to_data(blobs, f"{prefix}/{i}", unmade) for i, m in enumerate(self.imported_modules)],
        }

    @staticmethod
    def from_data(data: Any, blob: Callable[[str], bytes], late_texts: bool = False) -> Module:
        """The module of `to_data`; `blob` gives the bytes of a name. late_texts: sources of functions are read when they are asked for. PackageError where
        the data is not in form."""

        def text(name: str) -> Source:
            return (lambda: blob(name).decode()) if late_texts else blob(name).decode()

        try:
            _check_attrs(data["attrs"])
            return Module(
                str(data["kind"]),
                str(data["entry_name"]),
                functions=data["functions"],
                image=blob(data["image"]) if data["image"] else b"",
                sources={str(k): blob(v).decode() for k, v in data["sources"].items()},
                texts={str(n): {str(k): text(v) for k, v in t.items()} for n, t in data["texts"].items()},
                imported=[Module.from_data(m, blob, late_texts) for m in data["imported"]],
                target=str(data["target"]),
                support=[blob(s) for s in data["support"]],
                attrs=data["attrs"],
            )
        except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
            raise damaged(f"{type(error).__name__}: {error}") from None


def _check_attrs(attrs: Any) -> None:
    """Raises TypeError where what a run reads of a module's attributes is not in form."""
    kernels, features = attrs.get("kernels", {}), attrs.get("cpu_features", [])
    if not isinstance(kernels, dict) or not all(isinstance(k, dict) for k in kernels.values()):
        raise TypeError("the facts of kernels are no table")
    if not isinstance(features, list) or not all(isinstance(f, str) for f in features):
        raise TypeError("the processor's features are no list of names")


def _sm(chip: str) -> int:
    """The number of an NVIDIA chip's name: 90 of sm_90 and sm_90a."""
    return int(chip.removeprefix("sm_").removesuffix("a"))


def _fact(value: Any) -> str:
    return " x ".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)


def _text(sources: dict[str, Source], kind: str) -> str:
    """A source, made at its first use."""
    text = sources[kind]
    if callable(text):
        text = sources[kind] = text()
    return text


@of_tec(ArgumentError).named("tec.load_module")
def load_module(path: str | os.PathLike[str]) -> Module:
    """Read a module that `Module.save`, or `Module.export_library` as a shared object, wrote. PackageError for a damaged or foreign file.

    >>> import tempfile, pathlib
    >>> A = tec.placeholder((4,), name="A")
    >>> B = tec.compute((4,), lambda i: A[i] * 2.0, name="B")
    >>> path = pathlib.Path(tempfile.mkdtemp(), "twice.tecmod")
    >>> tec.build(tec.create_schedule(B.op), [A, B], "llvm", name="twice").save(path)
    >>> tec.load_module(path).function_names
    ['twice']
    """
    with read_package(path, "module") as package:
        return Module.from_data(package.meta.get("module"), package.blob)
