"""exp, tanh, erf and others over 2**20 f32 on one thread, against NumPy (erf: SciPy); and their errors in ulp.

    python benchmarks/math_cpu.py [--runs 31]

Each function is one te.compute, vectorized by 16 lanes; tec expands it into arithmetic (tec.ir.passes.lower_math).
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
from functools import partial
from typing import Any

os.environ.setdefault("TEC_NUM_THREADS", "1")

import numpy as np
from scipy import special
from turns import in_turn, line

import tec
from tec import te

N = 1 << 20
# name -> (reference at full precision, the competitor on float32, the goal: competitor's time over ours, or None)
CASES: dict[str, tuple[Any, Any, float | None]] = {
    "exp": (np.exp, np.exp, 1.0),
    "tanh": (np.tanh, np.tanh, 1.0),
    "erf": (special.erf, special.erf, 3.0),
    "log": (np.log, np.log, 1.0),
    "sigmoid": (special.expit, special.expit, None),
    "sin": (np.sin, np.sin, None),
    "cos": (np.cos, np.cos, 1.0),
}
DOMAIN = {"exp": (-80.0, 80.0), "log": (1e-30, 1e30), "sin": (-100.0, 100.0), "cos": (-100.0, 100.0)}


def build(name: str, target: tec.Target) -> Any:
    """The function over N values."""
    a = te.placeholder((N,), name="A")
    b = te.compute((N,), lambda i: getattr(te, name)(a[i]), name="B")
    s = tec.create_schedule(b.op)
    _, inner = s[b].split(b.op.axis[0], factor=target.vector_bytes // 4)
    s[b].vectorize(inner)
    return tec.build(s, [a, b], target, name=name)


def ulp_error(got: np.ndarray[Any, Any], exact: np.ndarray[Any, Any]) -> float:
    """The largest error in units of the last place of the float32 result."""
    unit = np.spacing(np.abs(exact).astype("float32")).astype("float64")
    return float(np.max(np.abs(got.astype("float64") - exact) / unit))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--runs", type=int, default=31)
    runs = parser.parse_args().runs
    target = tec.Target("llvm")
    rng = np.random.default_rng(0)
    missed = 0
    for name, (exact, other, goal) in CASES.items():
        low, high = DOMAIN.get(name, (-6.0, 6.0))
        x = (
            np.exp(rng.uniform(np.log(low), np.log(high), N)).astype("f4")
            if name == "log"
            else rng.uniform(low, high, N).astype("f4")
        )
        f = build(name, target)
        source, result, theirs_out = tec.nd.array(x), tec.nd.array(np.zeros_like(x)), tec.nd.array(x)
        x, out = np.from_dlpack(source), np.from_dlpack(theirs_out)  # arrays that begin alike for both
        f(source, result)
        other(x, out=out)
        taken = in_turn(partial(f, source, result), partial(other, x, out=out), rounds=runs)
        error = ulp_error(result.numpy(), exact(x.astype("float64")))
        mine, theirs = (statistics.median(t) * 1e3 for t in taken)
        peer = getattr(other, "__module__", None) or "numpy"
        ratio = line(f"{name}, 2^20 f32", mine, "ms", peer, theirs, inverse=True, goal=goal, ulp=round(error, 2))
        missed += goal is not None and ratio < goal
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
