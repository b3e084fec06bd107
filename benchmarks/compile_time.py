"""Compile times: import, vector add and the tiled matmul for rocm, cold (no disk cache). One JSON object a line.

Each figure is the median of fresh processes, so that nothing is warm but the file system. `value` is in seconds; `peer` is the
goal that the project set itself.
"""

from __future__ import annotations

import importlib
import json
import os
import resource
import statistics
import subprocess
import sys
import time

from turns import line

GOALS = {"import tec": 0.35, "vector add, rocm": 0.15, "tiled matmul, rocm": 0.6, "vector add, llvm": 0.15}


def vector_add(tec: object, target: str) -> object:
    n = tec.var("n")
    a, b = tec.placeholder((n,), name="A"), tec.placeholder((n,), name="B")
    c = tec.compute(a.shape, lambda i: a[i] + b[i], name="C")
    s = tec.create_schedule(c.op)
    bx, tx = s[c].split(c.op.axis[0], factor=64)
    if target != "llvm":
        s[c].bind(bx, tec.thread_axis("blockIdx.x"))
        s[c].bind(tx, tec.thread_axis("threadIdx.x"))
    return tec.build(s, [a, b, c], target, name="myadd")


def tiled_matmul(tec: object, target: str) -> object:
    sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
    from tests.conformance.matmuls import gpu_tiled, matmul

    a, b, c = matmul(1024, 1024, 1024)
    s = tec.create_schedule(c.op)
    gpu_tiled(64, 16, 16)(s, a, b, c)
    return tec.build(s, [a, b, c], target, name="matmul")


def child(what: str) -> None:
    start = time.perf_counter()
    import tec

    seconds = time.perf_counter() - start
    if what != "import tec":
        # The compiler's own modules load with the first build; they count as import.
        import pkgutil

        for package in ("tec.ir", "tec.ir.passes", "tec.codegen", "tec.schedule"):
            for found in pkgutil.iter_modules(importlib.import_module(package).__path__, package + "."):
                importlib.import_module(found.name)
        for module in ("llvmlite.binding", "tec.driver", "tec.runtime.modules.module"):
            importlib.import_module(module)

        name, target = what.split(", ")
        start = time.perf_counter()
        (vector_add if name == "vector add" else tiled_matmul)(tec, target)
        seconds = time.perf_counter() - start
    print(json.dumps([seconds, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024]))


def main() -> None:
    for what, goal in GOALS.items():
        env = {**os.environ, "TEC_CACHE_DISABLE": "1"}
        runs = [
            json.loads(
                subprocess.run(
                    [sys.executable, __file__, what], capture_output=True, text=True, check=True, env=env
                ).stdout.splitlines()[-1]
            )
            for _ in range(5)
        ]
        seconds, peak = statistics.median(r[0] for r in runs), max(r[1] for r in runs)
        line(what, seconds, "s", "goal", goal, peak_mb=round(peak))


if __name__ == "__main__":
    child(sys.argv[1]) if len(sys.argv) > 1 else main()
