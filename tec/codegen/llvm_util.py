"""LLVM behind one door: target machines, and jobs for the worker processes that LLVM runs in (`tec.llvmworker`).

Set TEC_TIME=1 to see the time of each step on stderr.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import astuple
from typing import Any

from ..errors import CodegenError, TargetError
from ..llvmworker import client
from ..llvmworker.client import TIMES, Pending
from ..records import dataclass
from ..target import host_stand_in
from . import cache


@contextmanager
def timed(step: str) -> Iterator[None]:
    """Add the block's time to TIMES[step]; TEC_TIME=1 prints it."""
    start = time.perf_counter()
    try:
        yield
    finally:
        spent = time.perf_counter() - start
        TIMES[step] = TIMES.get(step, 0.0) + spent
        if os.environ.get("TEC_TIME"):
            print(f"tec: {step:<16} {spent * 1e3:8.2f} ms", file=sys.stderr)


def llvm_version() -> str:
    """LLVM's version and llvmlite's: part of what a cached object depends on."""
    return str(_known("facts")["version"])


def host_cpu() -> tuple[str, str]:
    """The host's CPU name and feature string, as LLVM sees them; a name alone where the host stands for another CPU."""
    stand_in = host_stand_in()
    if stand_in:
        return stand_in, ""
    facts = _known("facts")
    return str(facts["cpu"]), str(facts["features"])


@dataclass(frozen=True)
class LLVMMachine:
    """What code is generated for: the arguments of an LLVM target machine."""

    triple: str
    cpu: str = ""
    features: str = ""
    opt: int = 3
    code_model: str = "small"


def data_layout(m: LLVMMachine) -> str:
    """The data layout string of a target machine. Raises TargetError for a triple that LLVM does not know."""
    answer = _known("layout", astuple(m))
    if "error" in answer:
        raise TargetError(
            f"LLVM has no target {m.triple!r}: {answer['error']}",
            hint='tec.Target("llvm"), "rocm -mcpu=gfx942" and "cuda -arch=sm_90" are targets; another LLVM may lack one',
        )
    return str(answer["layout"])


def _known(do: str, machine: tuple[Any, ...] | None = None) -> dict[str, Any]:
    return client.fact(do, machine)


def _explain(message: str, text: str) -> str:
    """LLVM's message, with the offending line of the module where it names one."""
    parts = message.replace("<string>:", "line ").strip()
    for token in message.split():
        bits = token.strip(":").split(":")
        if len(bits) >= 3 and bits[0] == "<string>" and bits[1].isdigit():
            lines = text.splitlines()
            k = int(bits[1]) - 1
            if 0 <= k < len(lines):
                parts += f"\n  in: {lines[k].strip()}"
            break
    return f"LLVM refused the module: {parts}"


def named(funcs: Sequence[Any]) -> str:
    """How messages call a module of these functions (or names)."""
    return ("function " if len(funcs) == 1 else "functions ") + ", ".join(repr(getattr(f, "name", f)) for f in funcs)


class Compiling:
    """A module on its way through LLVM; `result()` waits for it."""

    def __init__(self, text: str, pending: Pending):
        self.text = text
        self.pending = pending

    def result(self) -> dict[str, Any]:
        """What was wanted, by name. Raises CodegenError with LLVM's message and the line it is about."""
        answer = self.pending.result()
        if "error" in answer:
            raise CodegenError(_explain(answer["error"], self.text), locate=False)
        return answer


def begin(
    text: str,
    machine: LLVMMachine,
    want: Sequence[str],
    speed: int = 3,
    what: str = "a module",
    passes: str = "default",
) -> Compiling:
    """Hand a module to a worker: see `tec.llvmworker.jobs.run` for `want` and `passes`. `what` names it in messages."""
    job = {
        "do": "compile",
        "text": text,
        "machine": astuple(machine),
        "want": tuple(want),
        "speed": speed,
        "passes": passes,
    }
    return Compiling(text, client.submit(job, what))


def with_imports(text: str, funcs: Sequence[Any]) -> str:
    """A module's text with the LLVM modules that its functions import (`Func.attrs["import_llvm"]`) in it, from the disk cache where it is known.

    Raises CodegenError where LLVM refuses one, or two define the same function.
    """
    imports = list(dict.fromkeys(t for f in funcs for t in f.attrs.get("import_llvm", ())))
    if not imports:
        return text
    key = cache.key_of(text, *imports, "imports", llvm_version())
    found = cache.load(key)
    if found is not None:
        return found.decode()
    answer = client.submit({"do": "link", "text": text, "imports": imports}, named(funcs)).result()
    if "error" in answer:
        raise CodegenError(
            f"import_llvm: {answer['error'].strip()}", locate=False,
            hint="the module's functions are those that call_extern names, with the types that it passes",
        )  # fmt: skip
    cache.store(key, answer["llvm"].encode())
    return str(answer["llvm"])


def assembly(
    llvm: str, machine: LLVMMachine, speed: int, what: str, optimised: str = "", parsed_again: bool = False
) -> str:
    """The assembly of a module of LLVM IR, from the disk cache where it is known. optimised: what LLVM made of it at that speed, if at hand.
    parsed_again: the object came from a parse of the optimised text; so must this, for LLVM may order instructions otherwise after one."""
    key = cache.key_of(
        llvm,
        machine.triple,
        machine.cpu,
        machine.features,
        str(machine.opt),
        "asm with arrays",
        str(parsed_again),
        str(speed),
        llvm_version(),
    )
    found = cache.load(key)
    if found is not None:
        return found.decode()
    want = ("llvm", "asm") if parsed_again and not optimised else ("asm",)
    text: str = begin(optimised or llvm, machine, want, 0 if optimised else speed, what).result()["asm"]
    cache.store(key, text.encode())
    return text


def compile_text(text: str, machine: LLVMMachine, want: str, speed: int = 3, what: str = "a module") -> Any:
    """Optimise a module and emit it: `want` is "object" (bytes), "asm" (str) or "llvm" (the optimised text)."""
    return begin(text, machine, (want,), speed, what).result()[want]
