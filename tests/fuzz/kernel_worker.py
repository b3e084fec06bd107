"""One process of the kernel fuzzer: runs seeds, one JSON line each. LLVM may end it; its parent then starts another.

    python -m tests.fuzz.kernel_worker FIRST LAST [STEP]

A seed's program runs on the interpreter, the CPU and one emulated chip, each with a random schedule of its own; every
result is held against te.evaluate.
"""

from __future__ import annotations

import json
import random
import sys
import traceback
from collections.abc import Callable
from typing import Any

import numpy as np

import tec
from tec.driver import run_passes
from tec.errors import TecError
from tec.ir import IRModule
from tec.ir.interp import run
from tec.ir.passes.split_host_device import split_host_device
from tec.schedule import to_loops
from tec.target import Target

from .kernel_programs import TOLERANCE, Program, program, reference
from .kernel_schedules import schedule

CHIPS = ("gfx942", "gfx90a", "gfx1100")
CHECKS = ("bounds", "bounds", "race", "race", "wait", "init")
SCALAR_STEPS = 400  # the interpreter takes a CPU's loops one step at a time; a GPU's lanes go together


class Mismatch(Exception):
    """A result that differs from the reference."""


def compare(p: Program, got: list[np.ndarray], want: list[np.ndarray]) -> None:
    for k, (g, w) in enumerate(zip(got, want, strict=True)):
        name = str(w.dtype)
        if name not in TOLERANCE:
            same = np.array_equal(g, w)
        else:
            a, b = g.astype(np.float64), w.astype(np.float64)
            loose = TOLERANCE[name] if not p.exact else 0.0
            same = bool(np.all(np.abs(a - b) <= loose * (1 + np.abs(b)))) and not np.isnan(a).any()
        if not same:
            bad = np.argwhere(np.asarray(g != w))[:4].tolist()
            first = tuple(bad[0]) if bad else ()
            raise Mismatch(f"output {k} ({name}{list(w.shape)}) at {bad}: {g[first]}, expected {w[first]}")


def on_interpreter(p: Program, s: Any, target: Target, want: list[np.ndarray]) -> None:
    """The lowered function, in the interpreter, all accesses checked."""
    lowered = run_passes(to_loops(s, p.args, name="f"), target)
    outs = [np.full(w.shape, 77, w.dtype) for w in want]
    arrays = [p.data[t.op.name].copy() for t in p.inputs] + outs
    flat = {b.name: x.reshape(-1) for b, x in zip(lowered.params[len(p.scalars) :], arrays)}
    if target.kind == "llvm":
        run(lowered, flat, p.sizes, check=True)
    else:
        host, kernels = split_host_device(lowered, target)
        module = IRModule({f.name: f for f in (host, *kernels)})
        run(host, flat, p.sizes, check=True, wave=target.wavefront_size, module=module)
    compare(p, outs, want)


def on_device(p: Program, s: Any, target: Any, dev: Any, want: list[np.ndarray]) -> None:
    module = tec.build(s, p.args, target, name="f")
    ins = [tec.nd.array(p.data[t.op.name], dev) for t in p.inputs]
    outs = [tec.nd.array(np.full(w.shape, 77, w.dtype), dev) for w in want]
    module(*p.scalars.values(), *ins, *outs)
    compare(p, [o.numpy() for o in outs], want)


def check(seed: int) -> dict[str, Any]:
    """{"seed", "kind", "refused": [where], "failed": [{"where", "error", "trace"}]} of a seed."""
    rng = random.Random(seed)
    chip, checks = CHIPS[seed % 3], rng.choice(CHECKS)
    p = program(seed)
    want = reference(p)
    report: dict[str, Any] = {"seed": seed, "kind": p.kind, "refused": [], "failed": []}
    made: dict[bool, Any] = {}

    def attempt(where: str, gpu: bool, work: Callable[[Any], None]) -> None:
        trace = ""
        try:
            if gpu not in made:
                made[gpu] = schedule(seed, p.outputs, gpu)
            trace = str(made[gpu].trace)
            work(made[gpu])
        except (tec.ScheduleError, tec.LoweringError) as e:
            report["refused"].append([where, str(e)])
        except Exception as e:
            text = f"{type(e).__name__}: {e}" if isinstance(e, (TecError, Mismatch)) else traceback.format_exc()
            report["failed"].append({"where": where, "error": text[-3000:], "trace": trace})

    target = Target(f"rocm -mcpu={chip}")
    if p.work < SCALAR_STEPS:
        attempt("cpu interpreter", False, lambda s: on_interpreter(p, s, Target("llvm"), want))
    attempt("cpu", False, lambda s: on_device(p, s, "llvm", tec.cpu(0), want))
    attempt(f"{chip} interpreter", True, lambda s: on_interpreter(p, s, target, want))
    attempt(f"{chip} {checks}", True, lambda s: on_device(p, s, target, tec.rocm_emu(chip, check=checks), want))
    return report


def main() -> None:
    first, last, step = (*map(int, sys.argv[1:]), 1)[:3]
    for seed in range(first, last, step):
        print(json.dumps({"start": seed}), flush=True)
        print(json.dumps(check(seed)), flush=True)


if __name__ == "__main__":
    main()
