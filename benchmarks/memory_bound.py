"""Kernels that move data: what they touch and take on the software GPU against the bytes that must move.

    python benchmarks/memory_bound.py [-mcpu gfx942] [--rows 2048] [--columns 4096] [--run] [case...]

"lines" is touched lines of 128 bytes, as the software GPU counts them an instruction, over the bytes of the operands and results; "memory" the bytes that
the time model has come from and go to main memory or the last cache, over the same; "time" the modelled time, launches but the first left in, over the bytes at
the bandwidth that the chip reaches. Work-groups are sampled; with --run all are run, and the results checked against NumPy (float64).
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

import tec
from tec.choices import schedule, spaces
from tec.emulator.profile import emulator_profile
from tec.ops.registry import TensorType, get_op

Array = np.ndarray[Any, Any]
CHIPS = "gfx90a,gfx942,gfx950,gfx1030,gfx1100,gfx1151,gfx1201"
KEPT = 64  # of the largest of a line


def _softmax(x: Array) -> Array:
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def _layer(x: Array) -> Array:
    return (x - x.mean(axis=-1, keepdims=True)) / np.sqrt(x.var(axis=-1, keepdims=True) + 1e-5)


def _rms(x: Array, scale: Array) -> Array:
    return x / np.sqrt((x * x).mean(axis=-1, keepdims=True) + 1e-5) * scale


def _largest(x: Array) -> Array:
    return -np.sort(-x, axis=-1, kind="stable")[:, :KEPT]


def _largest_places(x: Array) -> Array:
    return np.argsort(-x, axis=-1, kind="stable")[:, :KEPT]


@dataclass(frozen=True)
class Case:
    """An operator on [m, n]. `index`: the second input is int64, below what it says; `reads`: elements of the first that must come, where not all do."""

    op: str
    attrs: dict[str, Any]
    shapes: Callable[[int, int], list[tuple[int, ...]]]
    numpy: tuple[Callable[..., Array], ...]
    index: Callable[[int, int], int] | None = None
    reads: Callable[[int, int], int] | None = None
    tolerance: float = field(default=2e-3)


def _case(op: str, attrs: dict[str, Any], shapes: Any, *numpy: Any, **more: Any) -> Case:
    return Case(op, attrs, shapes, numpy, **more)


# The pairs of the same rank are NumPy's take and take_along_axis; a table of rows stands for an embedding.
CASES: dict[str, Case] = {
    "copy": _case("relu", {}, lambda m, n: [(m, n)], lambda x: np.maximum(x, 0)),
    "transpose": _case("transpose", {"perm": (1, 0)}, lambda m, n: [(m, n)], lambda x: x.T),
    "16 wide": _case("transpose", {"perm": (0, 2, 3, 1)}, lambda m, n: [(2, m // 2, n // 16, 16)], lambda x: x.transpose(0, 2, 3, 1)),
    "from 16 wide": _case("transpose", {"perm": (0, 3, 1, 2)}, lambda m, n: [(2, m // 2, n // 16, 16)], lambda x: x.transpose(0, 3, 1, 2)),
    "nchw to nhwc": _case("transpose", {"perm": (0, 2, 3, 1)}, lambda m, n: [(m // 64, 64, n // 64, 64)], lambda x: x.transpose(0, 2, 3, 1)),
    "heads": _case("transpose", {"perm": (0, 2, 1, 3)}, lambda m, n: [(1, m, n // 64, 64)], lambda x: x.transpose(0, 2, 1, 3)),
    "column sums": _case("reduce_sum", {"axes": (0,), "keepdims": False}, lambda m, n: [(m, n)], lambda x: x.sum(axis=0)),
    "row sums": _case("reduce_sum", {"axes": (1,), "keepdims": False}, lambda m, n: [(m, n)], lambda x: x.sum(axis=1)),
    "sum": _case("reduce_sum", {"axes": (0, 1), "keepdims": False}, lambda m, n: [(m, n)], lambda x: x.sum()),
    "argmax": _case("argmax", {"axis": -1, "keepdims": False}, lambda m, n: [(m, n)], lambda x: x.argmax(-1)),
    "argmax, columns": _case("argmax", {"axis": 0, "keepdims": False}, lambda m, n: [(m, n)], lambda x: x.argmax(0)),
    "softmax": _case("softmax", {"axes": (-1,)}, lambda m, n: [(m, n)], _softmax),
    "layer norm": _case("layer_norm", {"axis": -1, "epsilon": 1e-5}, lambda m, n: [(m, n)], _layer),
    "rms norm": _case("rms_norm", {"axis": -1, "epsilon": 1e-5}, lambda m, n: [(m, n), (n,)], _rms),
    "gemv": _case("matmul", {"transpose_b": True}, lambda m, n: [(1, n), (m, n)], lambda a, b: a @ b.T),
    "gemv 14336": _case("matmul", {"transpose_b": True}, lambda m, n: [(1, n), (7 * m, n)], lambda a, b: a @ b.T),
    "gemv, b [k, n]": _case("matmul", {}, lambda m, n: [(1, m), (m, n)], lambda a, b: a @ b),
    "gemv, strided": _case(
        "matmul", {"transpose_b": True}, lambda m, n: [(m, 2 * n), (1, n)], lambda b, a: a @ b[:, : a.shape[1]].T, reads=lambda m, n: m * n),
    "gather rows": _case("gather", {"axis": 0}, lambda m, n: [(4 * m, n), (m,)], lambda x, i: x[i], index=lambda m, n: 4 * m, reads=lambda m, n: m * n),
    "gather columns": _case("gather", {"axis": 1}, lambda m, n: [(m, n), (n,)], lambda x, i: x[:, i], index=lambda m, n: n),
    "take along rows": _case("gather_elements", {"axis": 1}, lambda m, n: [(m, n), (m, n)], lambda x, i: np.take_along_axis(x, i, 1), index=lambda m, n: n),
    "take along columns": _case("gather_elements", {"axis": 0}, lambda m, n: [(m, n), (m, n)], lambda x, i: np.take_along_axis(x, i, 0), index=lambda m, n: m),
    "top-k": _case("topk", {"axis": -1, "k": KEPT, "largest": True}, lambda m, n: [(m, n)], _largest, _largest_places),
    "cumsum": _case("cumsum", {"axis": -1}, lambda m, n: [(m, n)], lambda x: x.cumsum(-1)),
    "cumsum, columns": _case("cumsum", {"axis": 0}, lambda m, n: [(m, n)], lambda x: x.cumsum(0)),
}  # fmt: skip


def _operands(case: Case, dtype: str, m: int, n: int) -> list[Array]:
    rng = np.random.default_rng(1)
    values: list[Array] = [rng.standard_normal(s, np.float32).astype(dtype) for s in case.shapes(m, n)]
    if case.index is not None:
        values[1] = rng.integers(0, case.index(m, n), values[1].shape).astype(np.int64)
    return values


def _computed(case: Case, xs: list[tec.te.Tensor], types: list[TensorType]) -> list[tec.te.Tensor]:
    if case.op == "rms_norm":  # no operator, but what networks make of several
        return [tec.topi.nn.rms_norm(*xs, **case.attrs)]
    known = get_op(case.op)
    if case is CASES["gemv, strided"]:  # rows that lie twice as far from each other as they are long
        (n,) = xs[1].shape[1:]
        part = tec.te.compute((xs[0].shape[0], n), lambda i, k: xs[0][i, k], name="part", tag="injective")
        xs, types = [xs[1], part], [types[1], TensorType(types[0].dtype, (types[0].shape[0], types[1].shape[1]))]
    return known.compute(case.attrs, list(xs), known.infer(types, case.attrs))[: len(case.numpy)]


def measure(name: str, mcpu: str, dtype: str, rows: int, columns: int, run: bool) -> str:
    """One line of the table."""
    case = CASES[name]
    values = _operands(case, dtype, rows, columns)
    types = [TensorType(str(v.dtype), v.shape) for v in values]
    xs = [tec.te.placeholder(t.shape, t.dtype, name=f"x{k}") for k, t in enumerate(types)]
    outs = _computed(case, xs, types)
    target = tec.Target(f"rocm -mcpu={mcpu}")
    template = spaces(outs, target)[0].template
    chosen = schedule(outs, target)
    f = tec.build(chosen.schedule, [*xs, *chosen.outputs], target, name="kernel")
    dev = tec.rocm_emu(mcpu)
    results = [np.zeros([int(d.value) for d in t.shape], t.dtype) for t in chosen.outputs]
    on = [tec.nd.array(v, dev) for v in (*values, *results)]
    wrong = ""
    if run:
        f(*on)
        wrong = _compared(case, values, [r.numpy() for r in on[len(values) :]])
    with emulator_profile(dev.driver, run=False) as p:
        f(*on)
    must = sum(v.nbytes for v in (*values, *results))
    if case.reads is not None:
        must += (case.reads(rows, columns) - values[0].size) * values[0].itemsize
    touched = sum(r.counts.global_line_bytes for r in p.launches)
    machine = target.machine
    moved = sum(r.estimate.traffic.get("MALL", r.estimate.traffic.get("memory", 0.0)) for r in p.launches)
    us = sum(r.estimate.microseconds for r in p.launches) - machine.launch_us
    limit = must / ((machine.memory.gbps or machine.memory_gbps) * 1e3)
    return (
        f"{mcpu:8} {dtype:8} {name:18} {template:18} kernels {len(p.launches):2}  MB {must / 1e6:7.2f}  lines {touched / must:6.2f}  "
        f"memory {moved / must:5.2f}  us {us:8.1f} of {limit:6.1f}  time {us / limit:6.2f}{wrong}"
    )


def _compared(case: Case, values: list[Array], got: list[Array]) -> str:
    worst = 0.0
    wide = [v.astype(np.float64) if v.dtype.kind == "f" else v for v in values]
    for g, numpy_f in zip(got, case.numpy):
        want = numpy_f(*wide)
        scale = max(1e-30, float(np.abs(want).max()))
        worst = max(worst, float(np.abs(g.astype(np.float64).reshape(want.shape) - want).max()) / scale)
    return f"  error {worst:.1e}{'  WRONG' if worst > case.tolerance else ''}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", nargs="*", default=list(CASES))
    parser.add_argument("-mcpu", default=CHIPS)
    parser.add_argument("--dtype", default="float32,float16")
    parser.add_argument("--rows", type=int, default=2048)
    parser.add_argument("--columns", type=int, default=4096)
    parser.add_argument("--run", action="store_true", help="run all work-groups and check the results")
    args = parser.parse_args()
    for mcpu in args.mcpu.split(","):
        for dtype in args.dtype.split(","):
            for name in args.cases:
                print(measure(name, mcpu, dtype, args.rows, args.columns, args.run), flush=True)


if __name__ == "__main__":
    main()
