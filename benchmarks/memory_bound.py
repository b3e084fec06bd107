"""Kernels that move data: lines of memory that they touch on the software GPU against the bytes that must move.

    python benchmarks/memory_bound.py [-mcpu gfx942] [--rows 256] [--columns 1024] [case...]

"times" is touched lines of 128 bytes, as the software GPU counts them an instruction, over the bytes of the operands and results. Results are checked
against NumPy (float64).
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

import numpy as np

import tec
from tec.choices import schedule, spaces
from tec.emulator.profile import emulator_profile
from tec.ops.registry import TensorType, get_op

Array = np.ndarray[Any, Any]


def _softmax(x: Array) -> Array:
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def _layer(x: Array) -> Array:
    return (x - x.mean(axis=-1, keepdims=True)) / np.sqrt(x.var(axis=-1, keepdims=True) + 1e-5)


# name -> (operator, attributes, shapes of the inputs from (rows, columns), NumPy)
CASES: dict[str, tuple[str, dict[str, Any], Callable[[int, int], list[tuple[int, ...]]], Callable[..., Array]]] = {
    "transpose": ("transpose", {"perm": (1, 0)}, lambda m, n: [(m, n)], lambda x: x.T),
    "nchw to nhwc": ("transpose", {"perm": (0, 2, 3, 1)}, lambda m, n: [(2, m // 2, n // 16, 16)], lambda x: x.transpose(0, 2, 3, 1)),
    "heads": ("transpose", {"perm": (0, 2, 1, 3)}, lambda m, n: [(1, m, n // 64, 64)], lambda x: x.transpose(0, 2, 1, 3)),
    "column sums": ("reduce_sum", {"axes": (0,), "keepdims": False}, lambda m, n: [(m, n)], lambda x: x.sum(axis=0)),
    "row sums": ("reduce_sum", {"axes": (1,), "keepdims": False}, lambda m, n: [(m, n)], lambda x: x.sum(axis=1)),
    "sum": ("reduce_sum", {"axes": (0, 1), "keepdims": False}, lambda m, n: [(m, n)], lambda x: x.sum()),
    "softmax": ("softmax", {"axes": (-1,)}, lambda m, n: [(m, n)], _softmax),
    "layer norm": ("layer_norm", {"axis": -1, "epsilon": 1e-5}, lambda m, n: [(m, n)], _layer),
    "gemv": ("matmul", {"transpose_b": True}, lambda m, n: [(1, n), (4 * m, n)], lambda a, b: a @ b.T),
    "gemv, b [k, n]": ("matmul", {}, lambda m, n: [(1, m), (m, 8 * n)], lambda a, b: a @ b),
}  # fmt: skip


def measure(name: str, mcpu: str, dtype: str, rows: int, columns: int) -> str:
    """One line of the table."""
    op, attrs, shapes, numpy_f = CASES[name]
    types = [TensorType(dtype, s) for s in shapes(rows, columns)]
    xs = [tec.te.placeholder(t.shape, dtype, name=f"x{k}") for k, t in enumerate(types)]
    known = get_op(op)
    outs = known.compute(attrs, xs, known.infer(types, attrs))[:1]
    target = tec.Target(f"rocm -mcpu={mcpu}")
    template = spaces(outs, target)[0].template
    chosen = schedule(outs, target)
    f = tec.build(chosen.schedule, [*xs, *chosen.outputs], target, name="kernel")
    rng = np.random.default_rng(1)
    values = [rng.standard_normal(t.shape).astype(dtype) for t in types]
    dev = tec.rocm_emu(mcpu)
    results = [np.zeros([int(d.value) for d in t.shape], t.dtype) for t in chosen.outputs]
    on = [tec.nd.array(v, dev) for v in (*values, *results)]
    with emulator_profile(dev.driver) as p:
        f(*on)
    got, want = on[-1].numpy().astype(np.float64), numpy_f(*[v.astype(np.float64) for v in values])
    scale = np.abs(want).max()
    wrong = np.abs(got.reshape(want.shape) - want).max() / scale
    must = sum(v.nbytes for v in (*values, *results))
    touched = sum(r.counts.global_line_bytes for r in p.launches)
    instructions = sum(r.counts.instructions.get("VMEM", 0) for r in p.launches)
    us = sum(r.estimate.microseconds for r in p.launches)
    return (
        f"{mcpu} {dtype:8} {name:16} {template:18} kernels {len(p.launches)}  MB {must / 1e6:7.2f}  touched {touched / 1e6:8.2f}  "
        f"times {touched / must:5.2f}  waves {sum(np.prod(r.grid) * np.prod(r.block) for r in p.launches) // target.wavefront_size:6}  "
        f"VMEM {instructions:7}  model {us:8.1f} us  error {wrong:.1e}{'  WRONG' if wrong > 2e-3 else ''}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", nargs="*", default=list(CASES))
    parser.add_argument("-mcpu", default="gfx942,gfx1100")
    parser.add_argument("--dtype", default="float32,float16")
    parser.add_argument("--rows", type=int, default=256)
    parser.add_argument("--columns", type=int, default=1024)
    args = parser.parse_args()
    for mcpu in args.mcpu.split(","):
        for dtype in args.dtype.split(","):
            for name in args.cases:
                print(measure(name, mcpu, dtype, args.rows, args.columns), flush=True)


if __name__ == "__main__":
    main()
