"""`make demo`: a trained network, a real picture, one ROCm module, run on the AMD GPU in software and on the CPU.

SqueezeNet 1.1 with its ImageNet weights is compiled for gfx942; the module's instructions are then executed by the software GPU,
the same network runs on the CPU, and both answers are held against each other. Arguments: the chip (default gfx942).
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import tec
from tools import zoo

CATS = {
    281: "tabby cat", 282: "tiger cat", 283: "Persian cat", 284: "Siamese cat", 285: "Egyptian cat", 286: "cougar",
    287: "lynx", 288: "leopard", 289: "snow leopard", 290: "jaguar", 291: "lion", 292: "tiger", 293: "cheetah",
}  # fmt: skip


def top(scores: np.ndarray, n: int = 5) -> list[tuple[int, float]]:
    """The n best classes with their scores."""
    return [(int(k), float(scores[k])) for k in scores.argsort()[::-1][:n]]


def excerpt(text: str, after: str, lines: int) -> str:
    """Some lines of a listing, from the first one that holds `after`."""
    all_lines = text.splitlines()
    start = next((k for k, line in enumerate(all_lines) if after in line), 0)
    return "\n".join(all_lines[start : start + lines])


def main() -> int:
    chip = sys.argv[1] if len(sys.argv) > 1 else "gfx942"
    out = Console()
    out.rule(f"SqueezeNet to one ROCm module for {chip}")
    model = zoo.get("squeezenet")
    x = zoo.squeezenet_input(zoo.imagenet_crop(zoo.image("chelsea")))

    start = time.perf_counter()
    net = tec.compile(str(model), target=f"rocm -mcpu={chip}")
    compile_s = time.perf_counter() - start
    llvm, asm = net.get_source("llvm"), net.get_source("asm")
    out.print(
        f"{len(net.get_binary()):,} bytes of code object, {llvm.count('define ')} kernels, {len(asm.splitlines()):,} lines of assembly"
    )
    out.print("\n[bold]LLVM IR, the first kernel's start[/bold]")
    out.print(excerpt(llvm, "define ", 16), markup=False, highlight=False)
    out.print("\n[bold]Assembly, the first kernel's start[/bold]")
    out.print(excerpt(asm, "; %bb.0", 16), markup=False, highlight=False)

    start = time.perf_counter()
    (gpu,) = net.run({"input": x}, device=tec.rocm_emu(chip))
    gpu_s = time.perf_counter() - start

    cpu_net = tec.compile(str(model), target="llvm")
    cpu_net.run({"input": x})
    start = time.perf_counter()
    (cpu,) = cpu_net.run({"input": x})
    cpu_s = time.perf_counter() - start

    table = Table("rank", "class", f"software {chip}", "CPU", title="scikit-image's picture 'chelsea'")
    for rank, ((k, p), (kc, pc)) in enumerate(zip(top(gpu[0]), top(cpu[0]), strict=True), 1):
        table.add_row(str(rank), f"{k} {CATS.get(k, '')}", f"{p:.4f}", f"{pc:.4f}" if k == kc else f"{kc}: {pc:.4f}")
    out.print(table)
    times = Table("what", "time")
    for what, seconds in (
        ("compile, ONNX to code object", compile_s),
        (f"one picture on the software {chip}", gpu_s),
        ("one picture on the CPU", cpu_s),
    ):
        times.add_row(what, f"{seconds:.3f} s" if seconds > 0.1 else f"{seconds * 1e3:.2f} ms")
    out.print(times)
    error = float(np.abs(gpu - cpu).max())
    best = top(gpu[0])[0][0]
    ok = error < 1e-4 and best == 285
    out.print(
        f"largest difference between the two: {error:.2e}; answer: {best} {CATS.get(best, '')} -> {'[green]right[/green]' if ok else '[red]wrong[/red]'}"
    )
    return 0 if ok else 1


if __name__ == "__main__":
    sys.exit(main())
