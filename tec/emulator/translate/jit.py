"""LLVM IR text to host code, with a disk cache of the compiled objects.

The support library and every kernel are objects, linked by LLVM's JITLink. An object is kept on disk under the hash of its
IR, the host's name and features, and LLVM's version (`disk_cache`).
"""

from __future__ import annotations

import ctypes
import hashlib
import re
from typing import Any

from ...disk_cache import Store
from ...errors import CodegenError, MissingPackageError
from ...llvmworker import client
from ...locks import fork_safe_lock
from ...target import host_stand_in
from ..analyses.lane_patterns import STRIP
from ..support.library import group_ir, group_names, groups
from ..support.template import ir

_lock = fork_safe_lock()
_CALLS = re.compile(r"@(tec_\w+)\(")
_NAMES = re.compile(r"@([\w.]+)")
_INNER = re.compile(r"(?ms)^define internal [^@]*@([\w.]+)\(.*?^\}\n")
_OUTSIDE = re.compile(r"(?m)^(?:declare [^@]*)?@([\w.]+)(?:\(| = internal constant ).*$")


# Other magic bytes where the same text, host and LLVM come to another object.
_STORE = Store("emulator", b"tecemu1\n", ".o")


_HALF_NAMES = ("__extendhfsf2", "__truncsfhf2")


class Jit:
    """A compiler for one kind of host. `host`: "" for the machine's own CPU, else LLVM's name of one that it can stand for, with
    features switched on or off after commas ("x86-64-v3", "sapphirerapids,-avx512fp16")."""

    def __init__(self, host: str = "") -> None:
        try:
            import llvmlite
            import llvmlite.binding as llvm
        except ModuleNotFoundError as error:
            if error.name is None or error.name.partition(".")[0] != "llvmlite":
                raise
            raise MissingPackageError(
                "the AMD GPU in software", "llvmlite", "pip install llvmlite; it translates a kernel through LLVM"
            ) from error

        llvm.initialize_native_target()
        llvm.initialize_native_asmprinter()
        self.llvm = llvm
        self.host, _, self.features = host.partition(",")
        self.host = self.host or host_stand_in()
        if self.host:  # without what this host lacks: such code would end the process
            lacking = (f"-{name}" for name, there in llvm.get_host_cpu_features().items() if not there)
            self.features = ",".join(filter(None, (self.features, *lacking)))
        else:
            self.host, self.features = llvm.get_host_cpu_name(), llvm.get_host_cpu_features().flatten()
        # Lanes of 32 bits in the widest vector: what is no wider costs LLVM's quick instruction selection a third or less.
        self.quick_strip = 16 if "+avx512f" in self.features.split(",") else 8
        self.salt = f"{llvmlite.__version__}|{llvm.llvm_version_info}|{self.host}|{self.features}|2"
        self.lljit = llvm.create_lljit_compiler(self._machine(2), use_jit_link=True)
        self.resources: list[Any] = []
        self.support: dict[str, int] = {}
        self.group_of: dict[str, str] = {}
        self.halves: dict[str, int] = {}
        self.helpers: dict[str, int] = {}  # addresses of helpers of matrix instructions, by their text
        self._count = 0

    def _machine(self, level: int) -> Any:
        target = self.llvm.Target.from_default_triple()
        return target.create_target_machine(
            cpu=self.host, features=self.features, opt=level, jit=True, reloc="pic", codemodel="jitdefault"
        )

    def strip(self, level: int) -> int:
        """Lanes that a loop over strips takes at once, in code of a level."""
        return STRIP if level else self.quick_strip

    def compile(self, ir: str, level: int, passes: str, what: str) -> bytes:
        """The object of an IR module, from the disk where it is there. `passes`: "plain" or "registers"; `what` names it."""
        key = hashlib.sha256(f"{self.salt}|{level}|{passes}|".encode() + ir.encode()).hexdigest()
        found = _STORE.load(key)
        if found is not None:
            return found
        job = {
            "do": "compile",
            "text": ir,
            "machine": (self.llvm.get_default_triple(), self.host, self.features, level, "jitdefault"),
            "want": ("object",),
            "speed": level,
            "passes": passes,
        }
        answer = client.submit(job, what).result()
        if "error" in answer:
            raise CodegenError(f"LLVM refused host code of the software GPU: {answer['error']}", locate=False)
        body: bytes = answer["object"]
        _STORE.store(key, body)
        return body

    def link(self, body: bytes, export: list[str], imports: dict[str, int]) -> tuple[dict[str, int], Any]:
        """Load an object; returns the addresses of `export` and what keeps it loaded."""
        with _lock:
            if any(name.encode() in body for name in _HALF_NAMES) and export != list(_HALF_NAMES):
                imports = imports | self._halves()
            self._count += 1
            builder = self.llvm.JITLibraryBuilder().add_object_img(body).add_current_process()
            for name, address in imports.items():
                builder.import_symbol(name, address)
            for name in export:
                builder.export_symbol(name)
            tracker = builder.link(self.lljit, f"emulator{self._count}")
            return {name: tracker[name] for name in export}, tracker

    def _halves(self) -> dict[str, int]:
        if not self.halves:
            body = self.compile(ir("halves.conversions"), 1, "plain", "the software GPU's conversions of f16")
            self.halves, tracker = self.link(body, list(_HALF_NAMES), {})
            self.resources.append(tracker)
        return self.halves

    def support_for(self, ir: str) -> dict[str, int]:
        """The addresses of the support functions that an IR text calls; their parts are compiled when first asked for."""
        with _lock:
            if not self.group_of:
                self.group_of = {name: group for group in groups() for name in group_names(group)}
            names = set(_CALLS.findall(ir)) & self.group_of.keys()
            return {name: self._support(name) for name in names}

    def helpers_of(self, ir: str, level: int, what: str) -> tuple[str, dict[str, int]]:
        """A module without its internal functions, and their addresses: those of a matrix instruction are alike in all kernels, and half of a small kernel's code."""
        whole, inner = apart(ir)
        with _lock:
            return whole, {name: self._helper(name, inner, level, what) for name in inner}

    def _helper(self, name: str, inner: dict[str, str], level: int, what: str) -> int:
        text = inner[name]
        found = self.helpers.get(text)
        if found is None:
            others = {n: self._helper(n, inner, level, what) for n in set(_NAMES.findall(text)) & inner.keys() - {name}}
            body = self.compile(text, level, "registers", what)
            addresses, tracker = self.link(body, [name], self.support_for(text) | others)
            self.resources.append(tracker)
            found = self.helpers[text] = addresses[name]
        return found

    def _support(self, name: str) -> int:
        with _lock:
            found = self.support.get(name)
            if found is None:
                group = self.group_of[name]
                core = (
                    {}
                    if group == "core"
                    else {n: self._support(n) for n in ("tec_fault", "tec_check_32", "tec_check_64")}
                )
                body = self.compile(_unique_declares(group_ir(group)), 1, "plain", f"the software GPU's {group}")
                addresses, tracker = self.link(body, group_names(group), core)
                self.support.update(addresses)
                self.resources.append(tracker)
                found = self.support[name]
            return found

    def runner(self) -> int:
        """The address of `tec_run`."""
        return self.support_for("@tec_run(")["tec_run"]


def apart(ir: str) -> tuple[str, dict[str, str]]:
    """A module whose internal functions are only declared, and a module of each of these by its name."""
    inner = {m[1]: m[0] for m in _INNER.finditer(ir)}
    whole = _INNER.sub("", ir)
    heads = {
        name: text.partition("{")[0].replace("define internal", "declare").replace(" noinline", "")
        for name, text in inner.items()
    }
    outside = {m[1]: m[0] for m in _OUTSIDE.finditer(ir)} | heads
    marks = [line for line in whole.split("\n") if line.startswith("!")]

    def named(text: str) -> list[str]:
        return sorted(set(_NAMES.findall(text)) & outside.keys())

    out = {}
    for name, text in inner.items():
        needed = [outside[n] for n in named(text) if n != name]
        out[name] = "\n".join([text.replace("define internal", "define", 1), *needed, *marks])
    return "\n".join([whole, *(heads[n] for n in named(whole) if n in heads)]), out


def _unique_declares(ir: str) -> str:
    seen: set[str] = set()
    lines = []
    for line in ir.split("\n"):
        if line.startswith("declare"):
            if line in seen:
                continue
            seen.add(line)
        lines.append(line)
    return "\n".join(lines)


_jits: dict[str, Jit] = {}


def get_jit(host: str = "") -> Jit:
    """The process's compiler for `host` (see `Jit`), made at first use."""
    with _lock:
        found = _jits.get(host)
        if found is None:
            found = _jits[host] = Jit(host)
        return found


WaveRunner = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)
