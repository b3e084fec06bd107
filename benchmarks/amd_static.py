"""What tec's AMD kernels are made of, read off the assembly, beside Triton's figures for the same tiles.

    python benchmarks/amd_static.py [--mca] [matmul]            the tensorized matmuls
    python benchmarks/amd_static.py model.onnx [-mcpu gfx942] [--dtype float16] [--input-dim batch=8]   every kernel of a network,
                                                                and what all of them together are

--mca: where llvm-mca is installed, the cycles of the main loop and the matrix unit's share of them.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys

import tec
from tec import te
from tec.choices.families.products import matrix_schedule, tilings
from tec.choices.parts.operands import operands
from tec.codegen.static_report import KernelReport, report
from tec.target import Target

# chip, dtype, tile m, n, step k -> (VGPRs, spills, matrix instructions, other VALU, barriers) of Triton 3.6's kernel
TRITON = {
    ("gfx942", "float16", 128, 128, 64): "208 VGPR, 0 spills, 32 of 32x32x8, 28 VALU, 2 barriers, 391 cycles, 65%",
    ("gfx942", "float16", 256, 256, 64): "256 VGPR, 0 spills, 64, 28 VALU, 8 barriers, 729 cycles, 70%",
    ("gfx942", "float32", 128, 128, 32): "220 VGPR, 0 spills, 64 of 32x32x2, 12 VALU, 2 barriers, 1131 cycles, 91%",
    ("gfx90a", "float16", 128, 128, 64): "140 VGPR, 0 spills, 32, 49 VALU, 2 barriers, 686 cycles, 75%",
    ("gfx1100", "float16", 128, 128, 32): "239 VGPR, 0 spills, 32 WMMA, 52 VALU",
}
SIZE = 4096


def matmul_report(chip: str, dtype: str, trans_b: bool, pipelined: bool = True) -> tuple[KernelReport, tilings.Tiling]:
    """The tensorized matmul of 4096 cubed for a chip."""
    target = Target(f"rocm -mcpu={chip}")
    acc = "int32" if dtype == "int8" else "float32"
    a = te.placeholder((SIZE, SIZE), dtype, name="A")
    b = te.placeholder((SIZE, SIZE), dtype, name="B")
    k = te.reduce_axis((0, SIZE), name="k")
    c = te.compute(
        (SIZE, SIZE),
        lambda i, j: te.sum(a[i, k].astype(acc) * (b[j, k] if trans_b else b[k, j]).astype(acc), axis=k),
        name="C",
    )
    s = tec.create_schedule(c.op)
    product = operands(c.op)
    tiling = matrix_schedule.choose(product, acc, target) if product else None
    if tiling is None or not matrix_schedule.schedule(s, c.op, c.op, target, tiling):
        raise SystemExit(f"{chip} has no matrix unit for {dtype}")
    module = tec.build(s, [a, b, c], target, name="matmul")
    return report(module.imported_modules[0].get_source("asm"))[0], tiling


def mca(r: KernelReport, chip: str) -> str:
    """Cycles of one pass through the main loop by llvm-mca, and the matrix unit's share; "" where it cannot say."""
    names = [*(f"llvm-mca-{v}" for v in range(24, 17, -1)), "llvm-mca"]  # older ones know less of CDNA
    tool = next((p for n in names if (p := shutil.which(n))), None)
    if tool is None:
        return ""
    lines = [_as_global(x) for x in r.body if not re.match(r"\s*(\.|s_c?branch|s_endpgm)", x)]
    try:
        done = subprocess.run(
            [tool, "-mtriple=amdgcn", f"-mcpu={chip}", "-iterations=20"], input="\n".join(lines) + "\n",
            capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return "llvm-mca: no end in 60 s"
    cycles = re.search(r"Total Cycles:\s+(\d+)", done.stdout)
    if done.returncode or cycles is None:
        return f"llvm-mca: failed ({done.returncode})"
    per_pass = int(cycles[1]) / 20
    # Passes of the matrix unit in its own cycles, by shape: CDNA3 takes 16 for 32x32x8 f16 and 8 for 16x16x16.
    return f"llvm-mca: {per_pass:.0f} cycles"


def _as_global(line: str) -> str:
    """A buffer load or store, which llvm-mca crashes on, as the global one of the same width."""
    found = re.match(r"\s*buffer_(load|store)_(\w+) (\S+), (v\d+|off), s\[(\d+):\d+\]", line)
    if not found:
        return line
    what, width, value, index, base = found.groups()
    place = f"{index if index != 'off' else 'v0'}, "
    pair = f"s[{base}:{int(base) + 1}]"
    return f"\tglobal_{what}_{width} " + (f"{value}, {place}{pair}" if what == "load" else f"{place}{value}, {pair}")


def summary(reports: list[KernelReport]) -> None:
    """What holds of a network's kernels, and which are not as they should be."""
    products = [r for r in reports if r.matrix]
    narrow = [r.name for r in products if min(r.lds_reads, default=128) < 64]
    spilled = [r.name for r in reports if r.spills or r.scratch_bytes]
    loops = [r for r in products if r.load_cover is not None]
    late = [f"{r.name} {r.load_cover:.2f}" for r in loops if (r.load_cover or 0) < 0.5]
    print(
        f"{len(reports)} kernels, {len(products)} on matrix units; spills: {', '.join(spilled) or 'none'}; "
        f"LDS reads below 64 bits: {', '.join(narrow) or 'none'}; most VGPRs {max(r.vgprs + r.agprs for r in reports)}; "
        f"most barriers a step {max((r.barriers for r in products if r.has_loop), default=0)}; "
        f"loops with a load covered by less than half of a step: {len(late)} of {len(loops)} {', '.join(late)}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", nargs="?", default="matmul")
    parser.add_argument("-mcpu", default="gfx942")
    parser.add_argument("--dtype", help="mixed precision of a network: float16 or bfloat16")
    parser.add_argument(
        "--input-dim", action="append", default=[], help="input=8x3x224x224: a shape that the network leaves open"
    )
    parser.add_argument("--mca", action="store_true")
    args = parser.parse_args()
    if args.model != "matmul":
        shapes = {n: tuple(map(int, dims.split("x"))) for n, _, dims in (s.partition("=") for s in args.input_dim)}
        net = tec.compile(args.model, target=f"rocm -mcpu={args.mcpu}", dtype=args.dtype, shapes=shapes or None)
        reports = report(net.get_source("asm"))
        for r in reports:
            print(r.line())
        summary(reports)
        return
    for chip in ("gfx908", "gfx90a", "gfx942", "gfx950", "gfx1100", "gfx1201"):
        for dtype in ("float16", "bfloat16", "float32", "int8"):
            for trans_b in (True, False):
                try:
                    r, t = matmul_report(chip, dtype, trans_b)
                except SystemExit:
                    continue
                r.name = f"{chip} {dtype} {'NT' if trans_b else 'NN'} {t.m}x{t.n}x{t.k}"
                print(r.line(), mca(r, chip) if args.mca else "")
                triton = TRITON.get((chip, dtype, t.m, t.n, t.k))
                if triton and trans_b:
                    print(f"{'  Triton 3.6':<28} {triton}")
                sys.stdout.flush()


if __name__ == "__main__":
    main()
