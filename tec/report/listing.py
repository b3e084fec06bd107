"""What a compiled network consists of, kernel by kernel: sources cut apart, resources, occupancy, who uses it.

In: a `Network`. Out: one `KernelListing` a kernel (a GPU) or function (a CPU), in the order of the code; `steps_of` gives the
network's steps with the arithmetic and the memory traffic that each needs at least.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

from ..codegen.static_report import report as static_report
from ..ops.registry import BROADCAST, ELEMENTWISE, INJECTIVE, OPS
from ..runtime.arrays.dtypes import itemsize
from ..target import CHIPS, Target


@dataclass
class KernelListing:
    """One kernel. `function` is the network's function that launches it, `source` its operators as a graph's text; texts are empty
    where there are none."""

    name: str
    function: str
    ops: list[str] = field(default_factory=list)
    origins: list[str] = field(default_factory=list)
    facts: dict[str, Any] = field(default_factory=dict)
    chip: str = ""
    wave: int = 0
    ir: str = ""
    llvm: str = ""
    asm: str = ""
    source: str = ""
    report: Any = None


def kernels_of(net: Any, sources: bool = True) -> list[KernelListing]:
    """The kernels of a network, or the functions where it runs on a CPU."""
    target = Target(net.module.target)
    ops, origins, written = net.report.functions, net.report.origins, net.report.sources
    module = next(iter(net.module.imported_modules), net.module)
    out = []
    for name in module.texts:
        facts = dict(module.attrs.get("kernels", {}).get(name, {}))
        function = facts.pop("function", name)
        ir, llvm, asm = (module.get_source(k, name) if sources else "" for k in ("ir", "llvm", "asm"))
        report = next(iter(static_report(asm)), None) if target.kind == "rocm" and sources else None
        out.append(
            KernelListing(
                name, function, list(ops.get(function, [])), [o for o in origins.get(function, []) if o], facts, target.mcpu,
                target.wavefront_size, ir, llvm, asm.rstrip("\0"), written.get(function, ""), report,
            )
        )  # fmt: skip
    return out


# ---- resources


def occupancy(k: KernelListing) -> tuple[int, str]:
    """Waves a SIMD that fit at once, and what limits them."""
    x, y, z = (int(n) or 1 for n in k.facts.get("threads", (1, 1, 1)))
    group_waves = max(1, -(-(x * y * z) // k.wave))
    return CHIPS[k.chip].occupancy(int(k.facts.get("vgprs", 0)), int(k.facts.get("lds_bytes", 0)), group_waves, k.wave)


def resources(k: KernelListing) -> dict[str, Any]:
    """The resources of a kernel as plain data: what the code object says, and what its main loop is made of."""
    out: dict[str, Any] = {"kernel": k.name, "function": k.function, "ops": k.ops, "origins": k.origins}
    out |= {key: v for key, v in k.facts.items() if key != "args"}
    if k.chip.startswith("gfx") and k.facts:
        waves, limit = occupancy(k)
        out |= {"occupancy_waves": waves, "occupancy_limit": limit}
    if k.report is not None:
        r = k.report
        out["main_loop"] = {
            "is_loop": r.has_loop, "matrix": r.matrix, "matrix_kind": r.matrix_kind, "valu": r.valu, "salu": r.salu,
            "barriers": r.barriers, "global_load_bits": r.global_loads, "lds_read_bits": r.lds_reads, "lds_write_bits": r.lds_writes,
        }  # fmt: skip
    if not k.facts:
        out["instructions"] = sum(
            1 for line in k.asm.splitlines() if line[:1] in " \t" and not line.lstrip().startswith(".")
        )
    return out


# ---- choices that could not be made


def refusals_of(net: Any, function: str | None = None) -> list[str]:
    """A line for each choice that could not be made, of one function or of all: what was refused, where and why, and what serves."""
    lines = []
    for name, refused in net.report.refused.items():
        if function not in (None, name):
            continue
        serves = net.report.choices.get(name, {}).get("choice", {})
        for r in refused:
            why = next(iter(r["reason"].splitlines()), "") or r["error"]
            words = ", ".join(f"{k} {v}" for k, v in (r.get("choice") or {}).items() if k != "template")
            chosen = f" ({words})" if words else ""
            longer = f", {r['slower']:.2g} times as long by estimate" if r.get("slower") else ""
            lines.append(
                f"{name}: {r['rank']} {r['template']}{chosen} refused at {r['stage']}: {why}; served by {serves.get('template', '?')}{longer}"
            )
    return lines


# ---- steps


_MOVING = (ELEMENTWISE, BROADCAST, INJECTIVE, "")  # kinds of operators that are fused into others


def main_operator(ops: list[str]) -> str:
    """The operator that a function of fused ones is named by: the first that is neither computed element by element nor moves data, else the first; "" for none."""
    kinds = [(op, found.kind if (found := OPS.get(op)) else "") for op in ops]
    return next((op for op, kind in kinds if kind not in _MOVING), next(iter(ops), ""))


@dataclass
class Step:
    """One step of the network: its function, the values it reads and writes, and the least it must move and do."""

    number: int
    function: str
    ops: list[str]
    origin: str
    reads: list[str]
    writes: list[str]
    bytes: int
    flops: int


def steps_of(net: Any) -> list[Step]:
    """The steps in order. `bytes` counts each argument once; `flops` is 0 where the package does not say."""
    ops, origins = net.report.functions, net.report.origins
    work = net.report.function_flops
    seen: dict[str, int] = {}
    out = []

    def nbytes(name: str) -> int:
        v = net.plan.values[name]
        return itemsize(v.dtype) * math.prod(d for d in v.shape if isinstance(d, int))

    for k, step in enumerate(net.plan.flat):
        f = step.label
        nth = seen[f] = seen.get(f, -1) + 1
        reads, writes = step.effects(net.signature)
        names = step.values
        places = origins.get(f, [])
        out.append(
            Step(
                k, f, list(ops.get(f, [])), places[nth] if nth < len(places) else "", reads, writes,
                sum(map(nbytes, dict.fromkeys(names))), int(work.get(f, 0)),
            )
        )  # fmt: skip
    return out
