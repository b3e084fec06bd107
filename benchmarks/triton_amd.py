"""tec's and Triton's kernels for AMD chips side by side, without a GPU: both compiled, both code objects modelled. One JSON object a line.

    python benchmarks/triton_amd.py [case...] [-mcpu gfx942,gfx90a] [--table]

Of each: registers, waves a SIMD, spills, llvm-mca's cycles of the main loop (where it knows the chip), the time by the software GPU's model and what limits
it. tec's is its default choice; Triton's the best, by the same model, of the configurations that each case names (its autotuner needs the chip). Triton's
kernels are those of its tutorials, with programs in groups and, on chips of several dies, dealt out die by die. "ratio": Triton's time over tec's, so above 1
where tec is faster. Needs the triton package, for its compiler alone (tried with 3.9).
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import numpy as np
import triton

import tec
import tec.emulator.triton as emulated
from benchmarks import triton_amd_kernels as kernels
from benchmarks.amd_static import mca
from benchmarks.time_model import op
from tec.choices import schedule
from tec.codegen.static_report import KernelReport, report
from tec.emulator.profile import EmulatorProfile, emulator_profile

CHIPS = ("gfx942", "gfx90a", "gfx1100", "gfx950", "gfx1201")
NUMPY = {"bfloat16": np.dtype(np.uint16)}  # Triton is told the type by name


@dataclass(frozen=True)
class Case:
    """One computation. `tec`: operator, attributes, types. `configs`: meta-parameters and options of Triton's kernel to choose among; `launch`:
    runs one of them on arrays that have no values."""

    operator: str
    attrs: dict[str, Any]
    types: list[tuple[tuple[int, ...], str]]
    configs: Callable[[str], Iterator[dict[str, Any]]]
    launch: Callable[[dict[str, Any], int], Any]


def array(shape: tuple[int, ...], dtype: str) -> np.ndarray[Any, Any]:
    return np.zeros(shape, dtype)


def product(m: int, n: int, k: int, dtype: str) -> Case:
    """m x k times n x k transposed; results of int8 are int32, of others their own type."""
    size = np.dtype(dtype).itemsize

    def configs(chip: str) -> Iterator[dict[str, Any]]:
        step = (128 if chip.startswith("gfx9") else 64) // size
        tiles = ((256, 256, 8), (128, 128, 4), (128, 64, 4), (64, 64, 4), (32, 64, 4), (16, 64, 4))
        for bm, bn, warps in tiles:
            if bm <= max(16, m) and 64 <= triton.cdiv(m, bm) * triton.cdiv(n, bn) <= 2048:
                yield {"BM": bm, "BN": bn, "BK": step, "BAND": 8 if m > 512 else 1, "num_warps": warps, "num_stages": 2}

    def launch(config: dict[str, Any], dies: int) -> Any:
        a, b = array((m, k), dtype), array((n, k), dtype)
        out = array((m, n), "int32" if dtype == "int8" else dtype)
        grid = (triton.cdiv(m, config["BM"]) * triton.cdiv(n, config["BN"]),)
        return kernels.product[grid](a, b, out, m, n, k, 1, k, DIES=dies, **config)

    return Case("matmul", {"transpose_b": True}, [((m, k), dtype), ((n, k), dtype)], configs, launch)


def rows(operator: str, m: int, n: int, dtype: str) -> Case:
    attrs: dict[str, Any] = {"axes": (-1,)} if operator == "softmax" else {"axis": -1, "epsilon": 1e-5}

    def configs(chip: str) -> Iterator[dict[str, Any]]:
        for warps in (4, 8):
            yield {"num_warps": warps}

    def launch(config: dict[str, Any], dies: int) -> Any:
        kernel = {"softmax": kernels.softmax, "layer_norm": kernels.layer_norm}[operator]
        return kernel[(m,)](array((m, n), dtype), array((m, n), dtype), n, BLOCK=triton.next_power_of_2(n), **config)

    return Case(operator, attrs, [((m, n), dtype)], configs, launch)


def attention(heads: int, length: int, size: int, dtype: str) -> Case:
    def configs(chip: str) -> Iterator[dict[str, Any]]:
        for bm, bn, warps, stages in (
            (128, 64, 4, 1),
            (128, 64, 4, 2),
            (64, 64, 4, 2),
            (128, 32, 4, 1),
            (256, 64, 8, 2),
        ):
            yield {"BM": bm, "BN": bn, "num_warps": warps, "num_stages": stages}

    def launch(config: dict[str, Any], dies: int) -> Any:
        q, k, v, out = (array((heads, length, size), dtype) for _ in range(4))
        grid = (length // config["BM"], heads)
        return kernels.attention[grid](q, k, v, out, float(size**-0.5 * 1.4426950408889634), length, D=size, **config)

    return Case("attention", {"scale": size**-0.5}, [((1, heads, length, size), dtype)] * 3, configs, launch)


CASES: dict[str, Case] = {
    "product f16 4096": product(4096, 4096, 4096, "float16"),
    "product int8 4096": product(4096, 4096, 4096, "int8"),
    "product f32 4096": product(4096, 4096, 4096, "float32"),
    "product f16 1024": product(1024, 1024, 1024, "float16"),
    "product f16 64 x 4096 x 4096": product(64, 4096, 4096, "float16"),
    "product f16 512 x 4096 x 4096": product(512, 4096, 4096, "float16"),
    "attention f16 d 64": attention(32, 2048, 64, "float16"),
    "attention f16 d 128": attention(32, 2048, 128, "float16"),
    "softmax f16 4096 x 4096": rows("softmax", 4096, 4096, "float16"),
    "softmax f32 2048 x 4096": rows("softmax", 2048, 4096, "float32"),
    "layer norm f16 4096 x 4096": rows("layer_norm", 4096, 4096, "float16"),
}


def facts(p: EmulatorProfile, asm: str, chip: str, limits: Any) -> dict[str, Any]:
    """What is said of a side: of its longest launch, and the time of all."""
    longest = max(p.launches, key=lambda r: r.estimate.microseconds)
    found: KernelReport = next((r for r in report(asm) if r.name == longest.kernel), report(asm)[0])
    e = longest.estimate
    threads = longest.block[0] * longest.block[1] * longest.block[2]
    lanes = 64 if chip.startswith("gfx9") else 32
    waves = -(-threads // lanes)
    launches = sum(r.estimate.kernel_us for r in p.launches) + sum(r.estimate.parts["launch"] for r in p.launches[1:])
    out = {
        "us": round(launches, 1), "limit": e.limit, "vgprs": longest.vgprs, "spills": found.spills,
        "waves": round(e.groups * waves / limits.simds, 1), "groups": int(np.prod(longest.grid)), "matrix": found.matrix, "valu": found.valu,
    }  # fmt: skip
    if found.load_cover is not None:
        out["cover"] = round(found.load_cover, 2)
    if found.matrix and found.has_loop and chip in ("gfx90a", "gfx942"):
        out["mca"] = mca(found, chip).removeprefix("llvm-mca: ")
    return out


def ours(case: Case, chip: str) -> dict[str, Any]:
    target = tec.Target(f"rocm -mcpu={chip}")
    outs, xs = op(case.operator, case.attrs, case.types)()
    chosen = schedule(outs, target)
    f = tec.build(chosen.schedule, [*xs, *chosen.outputs], target, name="kernel")
    args = [(tuple(int(d.value) for d in t.shape), t.dtype) for t in (*xs, *chosen.outputs)]
    p = tec.model(f, args, warm=True)
    driver: Any = tec.rocm_emu(chip).driver
    return facts(p, f.imported_modules[0].get_source("asm"), chip, driver.chip.limits) | {"choice": chosen.choice}


def theirs(case: Case, chip: str) -> dict[str, Any]:
    driver = emulated.install(chip)
    best: dict[str, Any] = {}
    try:
        for config in case.configs(chip):
            with emulator_profile(driver.emulated, False, warm=True) as p:
                try:
                    made = case.launch(config, driver.emulated.chip.machine.dies)
                except Exception as e:  # what does not fit the chip is no candidate
                    print(json.dumps({"skipped": config, "why": str(e).splitlines()[0][:120]}), file=sys.stderr)
                    continue
            found = facts(p, made.asm["amdgcn"], chip, driver.emulated.chip.limits) | {"config": config}
            if not best or found["us"] < best["us"]:
                best = found
    finally:
        emulated.uninstall()
    return best


def side(s: dict[str, Any]) -> str:
    """One side's cell."""
    spilled = f" ({s['spills']} spills)" if s["spills"] else ""
    cycles = f", {s['mca'].split()[0]}" if "mca" in s else ""
    return f"{s['us']}, {s['vgprs']}{spilled}, {s['waves']:g}{cycles}"


def table(lines: list[dict[str, Any]]) -> None:
    """As a Markdown table."""
    print("| case | chip | tec: us, VGPR, waves, cycles | Triton: us, VGPR, waves, cycles | Triton's time / tec's |")
    print("| --- | --- | --- | --- | --- |")
    for x in lines:
        sides = [side(x[who]) for who in ("tec", "triton")]
        print(f"| {x['case']} | {x['chip']} | {sides[0]} | {sides[1]} | {x['ratio']} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", nargs="*", help=f"beginnings of {', '.join(CASES)}")
    parser.add_argument("-mcpu", default=",".join(CHIPS))
    parser.add_argument("--table", action="store_true", help="a Markdown table at the end")
    args = parser.parse_args()
    lines = []
    for name, case in CASES.items():
        if args.cases and not any(name.startswith(c) for c in args.cases):
            continue
        for chip in args.mcpu.split(","):
            line: dict[str, Any] = {"case": name, "chip": chip}
            try:
                line["tec"] = ours(case, chip)
                line["triton"] = theirs(case, chip)
                line["ratio"] = round(line["triton"]["us"] / line["tec"]["us"], 2)
                lines.append(line)
            except (tec.TecError, KeyError) as e:
                line["error"] = str(e).splitlines()[0]
            print(json.dumps(line), flush=True)
    if args.table:
        table(lines)


if __name__ == "__main__":
    main()
