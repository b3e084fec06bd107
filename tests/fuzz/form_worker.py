"""One process of the fuzzer of forms: runs seeds, one JSON line each. LLVM may end it; its parent then starts another.

    python -m tests.fuzz.form_worker FIRST LAST [STEP]

Every seed's NumPy result is held against the interpreter (all accesses checked) and the CPU (bounds checked at run time)
under a random CPU schedule; with TEC_FUZZ_GPU=n every n-th also against a software GPU with a check, under a schedule for
GPUs.
"""

from __future__ import annotations

import json
import os
import random
import sys
import traceback
from collections.abc import Callable
from typing import Any

import numpy as np

import tec
from tec.driver import run_passes
from tec.errors import TecError
from tec.ir import IRModule, stmt
from tec.ir.interp import run
from tec.ir.passes.split_host_device import split_host_device
from tec.schedule import to_loops
from tec.target import Target

from .form_programs import Program, program
from .form_schedules import schedule

CHIPS = ("gfx942", "gfx90a", "gfx1100", "gfx1201")
CHECKS = ("bounds", "bounds", "race", "wait", "init")
TRIES = 4  # schedules for a GPU: about half of what is drawn is refused


class Mismatch(Exception):
    """A result that differs from the reference."""


def compare(p: Program, got: list[Any]) -> None:
    for k, (g, o) in enumerate(zip(got, p.outputs, strict=True)):
        if not np.array_equal(g, o.x):
            bad = np.argwhere(np.asarray(g != o.x))[:4].tolist()
            first = tuple(bad[0]) if bad else ()
            raise Mismatch(f"output {k} {g.dtype}{list(o.x.shape)} at {bad}: {g[first]}, expected {o.x[first]}")


# The interpreter runs some 40,000 statements with atomics a second, one by one; a schedule that computes a histogram anew for each element of each
# element of a reader asks for millions.
MOST = 300_000


def statements(s: Any) -> int:
    """How many statements a loop nest runs, where its extents are known (8 for those that are not)."""
    if isinstance(s, stmt.For):
        return int(getattr(s.extent, "value", 8)) * statements(s.body)
    if isinstance(s, stmt.Seq):
        return sum(map(statements, s.stmts))
    if isinstance(s, stmt.IfThenElse):
        return statements(s.then) + (statements(s.orelse) if s.orelse is not None else 0)
    body = getattr(s, "body", None)
    return statements(body) if body is not None else 1


class TooLong(Exception):
    """A schedule that takes the interpreter minutes: refused, and no fault."""


def interpreted(p: Program, s: Any, target: Target, lowered: bool) -> None:
    """The function in the interpreter, as the schedule made it or as the passes left it."""
    func = to_loops(s, p.args, name="f")
    if statements(func.body) > MOST and "atomic_" in str(func):
        raise TooLong(f"{statements(func.body)} statements")
    outs = [np.full(o.x.shape, 77, o.x.dtype) for o in p.outputs]
    arrays = [*(i.x.copy() for i in p.inputs), *outs]
    if not lowered:
        run(func, {b.name: x for b, x in zip(func.params, arrays)}, {}, check=True)
    else:
        low = run_passes(func, target)
        flat = {b.name: x.reshape(-1) for b, x in zip(low.params, arrays)}
        if target.kind == "llvm":
            run(low, flat, {}, check=True)
        else:
            host, kernels = split_host_device(low, target)
            module = IRModule({f.name: f for f in (host, *kernels)})
            run(host, flat, {}, check=True, wave=target.wavefront_size, module=module)
    compare(p, outs)


def on_device(p: Program, s: Any, target: Any, dev: Any) -> None:
    module = tec.build(s, p.args, target, name="f")
    outs = [tec.nd.array(np.full(o.x.shape, 77, o.x.dtype), dev) for o in p.outputs]
    module(*[tec.nd.array(i.x, dev) for i in p.inputs], *outs)
    compare(p, [o.numpy() for o in outs])


def check(seed: int, gpu: bool) -> dict[str, Any]:
    """{"seed", "kind", "refused": [where], "failed": [{"where", "error", "trace"}]} of a seed."""
    rng = random.Random(seed)
    chip, checks, lowered = rng.choice(CHIPS), rng.choice(CHECKS), rng.random() < 0.5
    report: dict[str, Any] = {"seed": seed, "kind": "+".join(program(seed).kinds), "refused": [], "failed": []}

    def attempt(where: str, on_gpu: bool, work: Callable[[Program, Any], None]) -> None:
        made: tuple[Program, Any] | None = None
        for again in range(TRIES if on_gpu else 1):
            try:
                p = program(seed, on_gpu)
                made = p, schedule(p, on_gpu, again)
                work(*made)
            except TooLong as e:
                report["refused"].append([where, str(e)])
                return
            except (tec.ScheduleError, tec.LoweringError) as e:
                if e.where is None:
                    report["failed"].append({"where": where, "error": f"refused without a line: {e}", "trace": ""})
                if again == TRIES - 1 or not on_gpu:
                    report["refused"].append([where, str(e)])
                continue
            except Exception as e:
                text = f"{type(e).__name__}: {e}" if isinstance(e, (TecError, Mismatch)) else traceback.format_exc()
                trace = str(made[1].trace) if made is not None else ""
                report["failed"].append({"where": where, "error": text[-3000:], "trace": trace})
            return

    attempt("interpreter", False, lambda p, s: interpreted(p, s, Target("llvm"), lowered))
    attempt("cpu", False, lambda p, s: on_device(p, s, "llvm", tec.cpu(0)))
    if gpu:
        target = Target(f"rocm -mcpu={chip}")
        attempt(f"{chip} {checks}", True, lambda p, s: on_device(p, s, target, tec.rocm_emu(chip, check=checks)))
    return report


def main() -> None:
    first, last, step = (*map(int, sys.argv[1:]), 1)[:3]
    every = int(os.environ.get("TEC_FUZZ_GPU", "10"))
    os.environ.setdefault("TEC_CHECK", "bounds")
    for seed in range(first, last, step):
        print(json.dumps({"start": seed}), flush=True)
        print(json.dumps(check(seed, bool(every) and seed % every == 1)), flush=True)


if __name__ == "__main__":
    main()
