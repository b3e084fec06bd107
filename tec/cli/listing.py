"""What a compiled network consists of, kernel by kernel: sources cut apart, resources, occupancy, who uses it.

In: a `Network`. Out: one `Kernel` a kernel (a GPU) or function (a CPU), in the order of the code; `steps_of` gives the
network's steps with the arithmetic and the memory traffic that each needs at least.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field
from typing import Any


@dataclass
class Kernel:
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


_LLVM_DEFINE = re.compile(r'^define [^@]*@"?([^"(]+)"?\(')


def cut_llvm(text: str) -> dict[str, str]:
    """The bodies of an LLVM module's functions, by name."""
    out: dict[str, str] = {}
    lines: list[str] = []
    name = ""
    for line in text.splitlines():
        match = _LLVM_DEFINE.match(line)
        if match:
            name, lines = match[1], []
        if name:
            lines.append(line)
            if line == "}":
                out[name] = "\n".join(lines)
                name = ""
    return out


def cut_ir(text: str) -> dict[str, str]:
    """The functions of printed loop IR, by name."""
    out: dict[str, str] = {}
    for piece in re.split(r"\n\n(?=@|def )", text):
        match = re.search(r"^def (\w+)\(", piece, re.M)
        if match:
            out[match[1]] = piece
    return out


def cut_asm(text: str) -> dict[str, str]:
    """The functions of an assembly or PTX text, by name; directives that only describe them left out."""
    if ".visible .entry" in text:
        pieces = re.split(r"\n(?=\.visible \.entry)", text)[1:]
        return {m[1]: p.rstrip("\0\n") for p in pieces if (m := re.match(r"\.visible \.entry (\w+)", p))}
    names = set(re.findall(r"^\s*\.type\s+(\S+?),@function", text, re.M))
    out: dict[str, list[str]] = {}
    current: list[str] | None = None
    for line in text.splitlines():
        match = re.match(r"^([\w.$]+):", line)
        if match and match[1] in names:
            current = out.setdefault(match[1], [])
        elif current is not None and line.lstrip().startswith((".section", ".size", ".Lfunc_end")):
            current = None
        if current is not None and line.strip() and not line.lstrip().startswith((".p2align", ".cfi")):
            current.append(line)
    return {name: "\n".join(body) for name, body in out.items()}


def kernels_of(net: Any, sources: bool = True) -> list[Kernel]:
    """The kernels of a network."""
    from ..codegen.static_report import report as static_report
    from ..target import Target

    target = Target(net.module.target)
    ops, origins = net.report.functions, net.report.origins
    functions = list(net.module.specs)
    device = net.module.imported_modules[0] if net.module.imported_modules else None
    where = device or net.module
    names = list(where.attrs.get("kernels", {})) if device is not None else functions
    ir = cut_ir(where.get_source("ir")) if sources else {}
    llvm = cut_llvm(where.get_source("llvm")) if sources else {}
    text = where.get_source("asm") if sources else ""
    asm = cut_asm(text)
    reports = {r.name: r for r in static_report(text)} if target.kind == "rocm" and sources else {}
    out = []
    for name in names:
        function = name if device is None else _owner(name, functions)
        out.append(
            Kernel(
                name, function, list(ops.get(function, [])), [o for o in origins.get(function, []) if o],
                dict(where.attrs.get("kernels", {}).get(name, {})), target.mcpu, target.wavefront_size,
                ir.get(name, ""), _with_parts(llvm, name), _with_parts(asm, name), net.report.sources.get(function, ""), reports.get(name),
            )
        )  # fmt: skip
    return out


def _with_parts(texts: dict[str, str], name: str) -> str:
    """A function's text and that of the parts it was cut into (`name.parallel3`: the body of a parallel loop)."""
    parts = [texts[name]] if name in texts else []
    return "\n\n".join([*parts, *(text for n, text in texts.items() if n.startswith(name + "."))])


def _owner(kernel: str, functions: list[str]) -> str:
    owners = [f for f in functions if kernel == f or kernel.startswith(f + "_kernel")]
    return max(owners, key=len, default=kernel)


# ---- resources


def occupancy(k: Kernel) -> tuple[int, str]:
    """Waves a SIMD that fit at once, and what limits them."""
    from ..target import CHIPS

    x, y, z = (int(n) or 1 for n in k.facts.get("threads", (1, 1, 1)))
    group_waves = max(1, -(-(x * y * z) // k.wave))
    return CHIPS[k.chip].occupancy(int(k.facts.get("vgprs", 0)), int(k.facts.get("lds_bytes", 0)), group_waves, k.wave)


def resources(k: Kernel) -> dict[str, Any]:
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


# ---- steps


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
    from ..runtime.dtypes import itemsize
    from ..runtime.plan import Call

    ops, origins = net.report.functions, net.report.origins
    work = net.report.function_flops
    seen: dict[str, int] = {}
    out = []

    def nbytes(name: str) -> int:
        v = net.plan.values[name]
        return itemsize(v.dtype) * math.prod(d for d in v.shape if isinstance(d, int))

    for k, step in enumerate(net.plan.steps):
        f = step.function if isinstance(step, Call) else "copy"
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
