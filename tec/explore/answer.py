"""What becomes of a subject for a target: loops, LLVM IR and assembly with their lines linked, resources, footprint, modelled time, pictures.

In: a `Subject` and a target. Out: plain data, which the page draws.
"""

from __future__ import annotations

import math
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, cast

from .. import notebook, time_model
from ..choices import footprint
from ..choices.cost import Footprint, price
from ..codegen.linked import begin_links
from ..driver import Building, Lowered, checks_bounds, lowered
from ..emulator import emulator_profile
from ..errors import ArgumentError, TecError
from ..ir import Func, IntImm
from ..ir.printer import func_with_lines
from ..ir.visit import visit
from ..jit.launching import extents
from ..jit.reflection import resources_of
from ..jit.specialise import argument_type, described
from ..kernels.source import parameters
from ..kernels.translate import LaunchShape
from ..report.words import duration, size
from ..runtime import nd, rocm_emu
from ..runtime.arrays.dtypes import itemsize
from ..schedule import to_loops
from ..target import Target, as_target
from . import pictures
from .subject import Subject

if TYPE_CHECKING:
    from ..emulator.driver import EmuDriver

_LIVE = {"threads": "threads per group", "vgprs": "VGPRs", "agprs": "AGPRs", "sgprs": "SGPRs", "lds_bytes": "LDS, bytes", "scratch_bytes": "scratch, bytes",
         "vgpr_spills": "VGPR spills", "occupancy": "waves per SIMD", "limited_by": "waves limited by", "code_bytes": "bytes of code"}  # fmt: skip
_SHORT = {"float": "fp", "bfloat": "bf", "int": "i", "uint": "u", "bool": "i1"}


@dataclass
class _Made:
    """A subject for a target: its loops before the passes, what they became, and the code."""

    loops: Func
    low: Lowered
    module: Any
    groups: int | None = None  # work-groups of a launch, where the host's side takes them as arguments
    nbytes: int = 0  # of the arrays that a kernel is given


def answer(subject: Subject, target: str, file: str) -> dict[str, Any]:
    """What the page shows; `file` is the program's, whose lines are linked. Raises TecError where it does not compile."""
    tgt = as_target(target)
    with tgt:
        made = _made(subject, tgt)
        asked = _footprint(made, tgt)
    facts = resources_of(made.module)
    module = next(iter(made.module.imported_modules), made.module)
    out: dict[str, Any] = {
        "target": tgt.text, "kind": subject.kind, "name": made.loops.name, "loops": str(made.loops), "machine": tgt.machine.name if tgt.is_gpu else "",
        "parts": [_part(p, module, facts.get(p.name, {}), tgt, file) for p in made.low.parts],
    }  # fmt: skip
    out["nest"] = notebook.nest_svg(
        str(subject.what) if subject.kind == "schedule" else pictures.nest_of(made.low.parts[0])
    )
    out["threads"] = pictures.who_does_what(made.loops) if subject.kind == "schedule" else ""
    out["footprint"], out["estimate"] = _words(asked, tgt)
    out["model"] = _modelled(subject, made, tgt)
    return out


# ---- code


def _made(subject: Subject, target: Target) -> _Made:
    if subject.kind == "schedule":
        loops = to_loops(subject.what, list(subject.args), name="main", binds=None, on_cpu=not target.is_gpu)
        low = lowered(loops, target, checks_bounds(None))
        building = Building(target, checks_bounds(None))
        building.add(low)
        return _Made(loops, low, building.finish())
    grid, n = extents(subject.what.__name__, "the grid", 1 if subject.grid is None else subject.grid)
    if subject.kind == "kernel":
        names = parameters(subject.what.source)
        if len(names) != len(subject.args):
            raise ArgumentError(
                f"{subject.what.__name__}({', '.join(names)}) takes {len(names)} arguments, show got {len(subject.args)}", where=subject.where
            )  # fmt: skip
        types = [_type(a, name) for a, name in zip(subject.args, names)]
        block, m = extents(subject.what.__name__, "the block", subject.block)
        c = subject.what.compiled(types, LaunchShape(block, max(n, m), 0, 0), target)
        func = c.func
    else:
        c = subject.what.compiled_for(target, *map(_pointer, subject.args), grid_ndim=n, **subject.named)
        func = c.lowered.func
    nbytes = sum(math.prod(a[0]) * itemsize(a[1]) for a in subject.args if _is_array(a))
    return _Made(func, lowered(func, target), c.module, math.prod(grid), nbytes)


def _is_array(a: Any) -> bool:
    return isinstance(a, tuple) and len(a) == 2 and isinstance(a[0], tuple) and isinstance(a[1], str)


def _type(a: Any, name: str) -> Any:
    """A kernel's type of an argument."""
    return described(f"{a[1]}[{', '.join(':' * len(a[0]))}]", name) if _is_array(a) else argument_type(a, name)


def _pointer(a: Any) -> Any:
    """A tile kernel's: "*fp32:16" of an array, whose memory begins at a multiple of 16 bytes; a number stands for itself."""
    if not _is_array(a):
        return a
    word = a[1].rstrip("0123456789")
    return f"*{_SHORT.get(word, word)}{a[1][len(word) :]}:16"


def _part(part: Func, module: Any, facts: dict[str, Any], target: Target, file: str) -> dict[str, Any]:
    """A function or kernel: its texts and links between their lines."""
    ir, places = func_with_lines(part)
    llvm, asm = (str(module.get_source(kind, part.name)) for kind in ("llvm", "asm"))
    linked = begin_links(part.name, llvm, target)(asm.rstrip("\0"))
    of_ir = [0] * (ir.count("\n") + 1)

    def on_stmt(s: Any) -> None:
        loc = getattr(s, "loc", None)
        if loc is not None and loc.file == file and id(s) in places:
            of_ir[places[id(s)] - 1] = loc.line

    visit(part.body, stmt=on_stmt)
    shown = [
        [label, " x ".join(map(str, v)) if isinstance(v, (list, tuple)) else "wave slots" if v == "waves" else str(v)]
        for k, label in _LIVE.items()
        if (v := facts.get(k)) is not None
    ]
    return {"name": part.name, "ir": ir, "llvm": linked.llvm, "asm": linked.asm, "of_ir": of_ir, "of_llvm": linked.of_llvm, "of_asm": linked.of_asm, "facts": shown}  # fmt: skip


# ---- what it asks of a machine


def _footprint(made: _Made, target: Target) -> Footprint | None:
    """What the flat loops ask; None where counts depend on what is not known."""
    with suppress(TecError, ArithmeticError, NotImplementedError):
        if made.groups is None:
            return footprint.of_lowered(made.low, target)
        if target.is_gpu:  # its arrays' sizes are arguments: what they hold is touched
            found = footprint.of_lowered(made.low, target, made.groups)
            return Footprint(tuple(replace(k, memory_bytes=made.nbytes) for k in found.kernels))
    return None


def _words(asked: Footprint | None, target: Target) -> tuple[list[list[str]], dict[str, Any] | None]:
    """The footprint in words, and its price: {"us", "text", "limit", "guessed"}."""
    if asked is None:
        return [], None
    rows = []
    for k in asked.kernels:
        if target.is_gpu:
            units = target.machine.units
            rows.append(
                [
                    "work-groups",
                    f"{k.groups:,.0f} of {k.threads} threads, on {units} units"
                    + (f" ({k.groups / units:.0%})" if k.groups < units else ""),
                ]
            )
            rows.append(["shared memory", size(k.shared_bytes)])
        rows += [["memory touched", size(k.memory_bytes)], ["asked of the first cache", size(k.asked_bytes)]]
        rows.append(["a thread's operations" if target.is_gpu else "clocks of a core", f"{k.issued:,.0f}"])
        if k.matrix:
            rows.append(["matrix multiply-adds", f"{k.matrix:,.0f}"])
        if k.barriers:
            rows.append(["barriers a thread", f"{k.barriers:,.0f}"])
    cost = price(asked, target)
    guessed = any(k.guessed for k in asked.kernels)
    return rows, {"us": cost.seconds * 1e6, "text": duration(cost.seconds), "limit": cost.limit, "guessed": guessed}


def _modelled(subject: Subject, made: _Made, target: Target) -> dict[str, Any] | None:
    """By the software GPU's time model, which models launches without running them; AMD chips alone. A refusal is told as {"why"}."""
    if target.kind != "rocm":
        return None
    product = target.machine.name
    try:
        if subject.kind == "schedule":
            given = [(tuple(_number(n) for n in t.shape), t.dtype) for t in subject.args]
            launches = time_model.model(made.module, given, product).launches
        elif subject.grid is None:
            return {"why": "show(...) says no grid"}
        else:
            launches = _launched(subject, target, product)
    except (TecError, ValueError) as error:
        return {"why": error.message if isinstance(error, TecError) else str(error)}
    us = sum(r.estimate.microseconds for r in launches)
    rows = [
        [r.kernel, " x ".join(map(str, r.grid)), duration(r.estimate.microseconds / 1e6), r.estimate.limit]
        for r in launches
    ]
    busy = (
        [
            [name, round(t / us, 3)]
            for name, t in sorted(launches[0].estimate.parts.items(), key=lambda x: -x[1])
            if us and t / us >= 0.01
        ]
        if launches
        else []
    )
    return {"us": us, "text": duration(us / 1e6), "launches": rows, "busy": busy, "waits": [[n, round(x, 3)] for n, x in (launches[0].estimate.waits.items() if launches else ())]}  # fmt: skip


def _number(n: Any) -> int:
    if isinstance(n, int):
        return n
    if isinstance(n, IntImm):
        return int(n.value)
    raise ArgumentError(f"the size {n} is open", locate=False)


def _launched(subject: Subject, target: Target, product: str) -> list[Any]:
    dev = rocm_emu(target.mcpu)
    given = [nd.empty(a[0], a[1], dev) if _is_array(a) else a for a in subject.args]
    with emulator_profile(cast("EmuDriver", dev.driver), False, product) as p:
        if subject.kind == "kernel":
            subject.what[subject.grid, subject.block](*given)
        else:
            grid = subject.grid if isinstance(subject.grid, tuple) else (subject.grid,)
            subject.what[grid](*given, **subject.named)
    launches: list[Any] = p.launches
    return launches
