"""llvmlite behind one door: target machines, parsing, optimisation, emission, and the time each takes.

llvmlite is imported at the first use. `emit_object` and `emit_assembly` change the module they run on, and a second
emission from one module can end the process: so `compile_text` parses afresh for each thing it emits. Set TEC_TIME=1 to
see the time of each step on stderr.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from ..errors import CodegenError, TargetError

TIMES: dict[str, float] = {}  # seconds by step, summed over the process


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
            print(f"tec: {step:<12} {spent * 1e3:8.2f} ms", file=sys.stderr)


@lru_cache(maxsize=1)
def binding() -> Any:
    """`llvmlite.binding`, with every target of the wheel initialised."""
    import llvmlite.binding as llvm

    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    llvm.initialize_native_asmparser()
    return llvm


@lru_cache(maxsize=1)
def llvm_version() -> str:
    """LLVM's version and llvmlite's: part of what a cached object depends on."""
    import llvmlite

    return f"{binding().llvm_version_info}/{llvmlite.__version__}"


@lru_cache(maxsize=1)
def host_cpu() -> tuple[str, str]:
    """The host's CPU name and feature string, as LLVM sees them."""
    llvm = binding()
    return str(llvm.get_host_cpu_name()), str(llvm.get_host_cpu_features().flatten())


@dataclass(frozen=True)
class Machine:
    """What code is generated for: the arguments of an LLVM target machine."""

    triple: str
    cpu: str = ""
    features: str = ""
    opt: int = 3
    code_model: str = "small"


@lru_cache(maxsize=64)
def target_machine(m: Machine) -> Any:
    """The (cached) LLVM target machine. Raises TargetError for a triple that LLVM does not know."""
    try:
        target = binding().Target.from_triple(m.triple)
        return target.create_target_machine(
            cpu=m.cpu, features=m.features, opt=m.opt, reloc="pic", codemodel=m.code_model
        )
    except RuntimeError as e:
        raise TargetError(f"LLVM has no target {m.triple!r}: {e}") from None


@lru_cache(maxsize=64)
def data_layout(m: Machine) -> str:
    """The data layout string of a target machine."""
    return str(target_machine(m).target_data)


def parse(text: str) -> Any:
    """A verified module from LLVM IR text. Raises CodegenError with LLVM's message and the line it is about."""
    try:
        module = binding().parse_assembly(text)
        module.verify()
    except RuntimeError as e:
        raise CodegenError(_explain(str(e), text), locate=False) from None
    return module


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


def optimise(
    module: Any, machine: Machine, speed: int = 3, loop_vectorize: bool = True, slp: bool = True, unroll: bool = True
) -> None:
    """Run LLVM's default pipeline of a level over a module, in place."""
    if speed <= 0:
        return
    llvm = binding()
    options = llvm.create_pipeline_tuning_options(speed_level=speed)
    options.loop_vectorization = loop_vectorize
    options.slp_vectorization = slp
    options.loop_unrolling = unroll
    builder = llvm.create_pass_builder(target_machine(machine), options)
    builder.getModulePassManager().run(module, builder)


def compile_text(text: str, machine: Machine, what: str, speed: int = 3, **options: bool) -> Any:
    """Optimise a module and emit it: `what` is "object" (bytes), "asm" (str) or "llvm" (the optimised text)."""
    with timed("parse"):
        module = parse(text)
    with timed("optimise"):
        optimise(module, machine, speed, **options)
    tm = target_machine(machine)
    with timed(f"emit {what}"):
        if what == "object":
            return bytes(tm.emit_object(module))
        return tm.emit_assembly(module) if what == "asm" else str(module)
