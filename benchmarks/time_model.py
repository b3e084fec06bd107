"""The software GPU's time model against published results on AMD GPUs. One JSON object a line.

    python benchmarks/time_model.py [--set judged] [--row 47] [--kind stream] [--peer Triton] [--out rows.jsonl] [--tec]

The rows are `amd_results.csv`: results that others measured, each with its source; the model is given the same work, and "ratio" is modelled over measured, one
a row. No figure of the model was fitted to any of them. "judged" rows were looked at while it was made, "kept aside" ones were gathered later, by rule (whole
tables, the same sizes of each), and changed nothing.

A model is judged by what a kernel of that quality takes, so each row is of the kernel that its source names, and of tec's default where it names none; column "kernel":

- "theirs": what Triton's or IREE's compiler makes of it (`triton_results`, `iree_results`; pip install triton, iree-base-compiler);
- "aiter NAME splits=4": aiter's code object of that name (`aiter_results`; AITER=its checkout);
- "rows=64 columns=128 ...": tec's kernel with the tile and the pipeline that the kernel's name says (`m=16`: with rows to fill it), where tec can build that
  (no loads straight into LDS, no sums in parts by one kernel: FlyDSL's);
- nothing: tec's default, also where its source's compiler or files are not here ("of" says whose kernel it was); with --tec in all rows.

"wall" (column "how"): the result includes the cost of a call from Python; products below `CALL_US` say more of that than of a kernel, and are counted apart. "profiled": it is the
sum of what torch's profiler has for the kernels of a call, which is more than they take (`profiled_us`). "warm": the benchmark repeats itself on the same operands, so the last cache keeps what fits. At the end: how many rows lie within 25 %, by kind, and of pairs of one table that differ by
20 % and more how many the model puts in order. `--out`: lines go to this file as they come, and rows that it has are not modelled again.
"""

from __future__ import annotations

import argparse
import csv
import itertools
import json
import math
import re
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import tec
from tec.choices import schedule, spaces
from tec.ops.layouts import Layout
from tec.ops.registry import TensorType, get_op
from tec.target import Machine, find_product
from tec.target.fitted import fitted

CALL_US = 60.0  # torch's call in such tables takes 20 to 27 (1024 cubed, at 40 to 80 TFLOP/s of 600): a third and more of a time below this
DTYPES = {"f64": "float64", "f32": "float32", "f16": "float16", "bf16": "bfloat16", "f8": "float8_e4m3", "int8": "int8"}


def profiled_us(product: Machine) -> float:
    """What torch's profiler has for a kernel on `product` beside its work."""
    return fitted("profiled kernel, CDNA 3" if product.chip == "gfx942" else "profiled kernel")


Types = list[tuple[tuple[int, ...], str]]
Made = tuple[Any, list[Any]]  # te outputs, placeholders


@dataclass(frozen=True)
class Row:
    """One measured result. `us`: microseconds; `peer`: what was measured; `how`: "wall", "profiled", "warm", "launch" (its cost counts); `kernel`: see above."""

    set: str
    row: str
    product: str
    kind: str
    work: str
    us: float
    peer: str
    how: str
    source: str
    kernel: str


def op(name: str, attrs: dict[str, Any], types: Types) -> Callable[[], Made]:
    """An operator's te."""

    def make() -> Made:
        kinds = [TensorType(d, s) for s, d in types]
        xs = [tec.te.placeholder(t.shape, t.dtype, name=f"x{k}") for k, t in enumerate(kinds)]
        known = get_op(name)
        return known.compute(attrs, xs, known.infer(kinds, attrs))[:1], xs

    return make


def stream(what: str, n: int, dtype: str) -> Made:
    """Kernels over arrays of n elements: write one, read one, one to another, three to a fourth."""
    if what == "read":
        return op("reduce_sum", {"axes": (0,), "keepdims": False}, [((n,), dtype)])()
    count = {"init": 0, "scale": 1, "triad": 3}[what]
    xs = [tec.te.placeholder((n,), dtype, name=f"x{k}") for k in range(count)]
    body = {
        "init": lambda i: tec.te.const(1.25, dtype),
        "scale": lambda i: xs[0][i] * tec.te.const(1.5, dtype),
        "triad": lambda i: xs[0][i] + xs[1][i] * xs[2][i],
    }[what]
    return [tec.te.compute((n,), body, name="y")], xs


def rms_norm(rows: int, columns: int, dtype: str) -> Made:
    x = tec.te.placeholder((rows, columns), dtype, name="x")
    k = tec.te.reduce_axis((0, columns), "k")
    squares = tec.te.compute(
        (rows,), lambda i: tec.te.sum(x[i, k].astype("float32") * x[i, k].astype("float32"), axis=k), name="squares"
    )
    scale = tec.te.compute((rows,), lambda i: tec.te.rsqrt(squares[i] / float(columns) + 1e-5), name="scale")
    return [
        tec.te.compute((rows, columns), lambda i, j: (x[i, j].astype("float32") * scale[i]).astype(dtype), name="y")
    ], [x]


def make(work: str) -> Made:
    """The te of a row's work: "product bf16 16x32x1280x8192" (batch, m, n, k; n x k as libraries have weights, "NN": k x n), "stream f64 triad 1024",
    "rms_norm f16 4096x8192", "attention bf16 16x16x1024x128" (batch, heads, places, size), "conv bf16 1x224x235x363 224 3x3 s1 g4"."""
    what, name, *rest = work.split()
    dtype = DTYPES[name]
    sizes = tuple(map(int, rest[0].split("x"))) if rest[0][0].isdigit() else ()
    if what == "product":
        *batch, m, n, k = sizes
        turned = rest[-1] != "NN"
        b = (n, k) if turned else (k, n)
        return op("matmul", {"transpose_b": turned}, [((*batch, m, k), dtype), ((*batch, *b), dtype)])()
    if what == "stream":
        return stream(rest[0], int(rest[1]), dtype)
    if what == "rms_norm":
        return rms_norm(sizes[0], sizes[1], dtype)
    if what == "attention":
        return op("attention", {"scale": sizes[-1] ** -0.5}, [(sizes, dtype)] * 3)()
    out, window, stride, groups = int(rest[1]), tuple(map(int, rest[2].split("x"))), int(rest[3][1:]), int(rest[4][1:])
    attrs = {
        "strides": (stride,) * 2,
        "dilations": (1, 1),
        "before": (1, 1),
        "after": (1, 1),
        "groups": groups,
        "kernel": window,
    }
    n, c, h, w = sizes
    # As networks have them.
    attrs |= {"layouts": (Layout("(NHW)C"), Layout("O(HWI)"), Layout("(NHW)C")), "space": (n, h, w)}
    return op("conv", attrs, [((n * h * w, c), dtype), ((out, math.prod(window) * c // groups), dtype)])()


def chosen(outs: list[Any], target: tec.Target, kernel: str) -> Any:
    """The schedule of tec's default, or of the choice that `kernel` names parts of: "rows=256 columns=64", "template=blocked_product"."""
    parts = dict(p.split("=") for p in kernel.split())
    if not parts:
        return schedule(outs, target)
    found = spaces(outs, target)
    name = parts.pop("template", "").replace("_", " ")
    space = next((s for s in found if s.template == name), found[0])
    values = {**{str(n): n for n in range(1, 1025)}, "0": 0, "True": True, "False": False}
    choice = {**space.default, **space.current({k: values.get(v, v) for k, v in parts.items()})}
    if why := space.why_not(choice):
        raise tec.TecError(f"no such kernel: {why}")
    return space.apply(choice)


def modelled(row: Row, kernel: str) -> tuple[float, Any, int]:
    """Microseconds of tec's kernel, the longest launch, and launches."""
    product = find_product(row.product)
    assert product is not None, row.product
    target = tec.Target(f"rocm -mcpu={product.chip}")
    work = row.work
    if found := re.match(r"m=(\d+) ", kernel):  # as many rows as the kernel's tile has: it computes and reads no less
        work, kernel = re.sub(r"(\d+)(x\d+x\d+)$", rf"{found[1]}\2", work), kernel[found.end() :]
    outs, xs = make(work)
    s = chosen(outs, target, kernel)
    f = tec.build(s.schedule, [*xs, *s.outputs], target, name="kernel")
    args = [(tuple(int(d.value) for d in t.shape), t.dtype) for t in (*xs, *outs)]
    p = tec.model(f, args, row.product, "warm" in row.how)
    us = sum(r.estimate.kernel_us for r in p.launches)
    count = len(p.launches)
    if "profiled" in row.how:
        us += profiled_us(product) * count
    else:
        us += product.launch_us * (count if "wall" in row.how else count - 1)
    return us, max(p.launches, key=lambda r: r.estimate.microseconds), len(p.launches)


def their_kernel(row: Row) -> tuple[float, str, Any]:
    """Microseconds of what the source's compiler makes, or of its code object; whose that is, and which. ModuleNotFoundError or TecError where it is not here."""
    how = row.product, "warm" in row.how, "wall" in row.how
    if row.kernel.startswith("aiter "):
        from benchmarks import aiter_results

        _, name, *rest = row.kernel.split()
        return (
            aiter_results.theirs(row.work, *how, name, *(int(x.removeprefix("splits=")) for x in rest)),
            "aiter",
            name,
        )
    if row.peer.startswith("IREE"):
        from benchmarks import iree_results

        us, made = iree_results.theirs(row.work, *how, row.peer)
        return us, "IREE", made
    from benchmarks import triton_results

    us, config = triton_results.theirs(row.work, *how, row.peer)
    return us, "Triton", config


def measure(row: Row, own: bool = False) -> dict[str, Any]:
    """The model's line for a row. `own`: of tec's default, whatever its source had."""
    start = time.perf_counter()
    line: dict[str, Any] = {
        "set": row.set, "row": row.row, "gpu": row.product, "kind": kind(row), "work": row.work, "peer": row.peer, "measured_us": round(row.us, 1),
    }  # fmt: skip
    elsewhere = row.kernel.startswith(("theirs", "aiter"))
    found: tuple[float, str, Any] | None = None
    if elsewhere and not own:
        try:
            found = their_kernel(row)
        except (ModuleNotFoundError, tec.TecError) as fault:
            line["missing"] = str(fault).splitlines()[0]
    if found is not None:
        us, whose, which = found
        if "profiled" in row.how and (product := find_product(row.product)) is not None:
            us += profiled_us(product)  # one kernel
        line |= {"of": whose, "modelled_us": round(us, 1), "ratio": round(us / row.us, 2), "which": which}
    else:
        kernel = "" if elsewhere or (own and row.kind != "order") else row.kernel
        us, longest, launches = modelled(row, kernel)
        e = longest.estimate
        line |= {
            "of": "its tile" if kernel else "tec", "modelled_us": round(us, 1), "ratio": round(us / row.us, 2), "limit": e.limit, "mhz": round(e.clock_mhz),
            "launches": launches, "groups": int(longest.grid[0] * longest.grid[1] * longest.grid[2]), "held": e.groups,
            "waits": {k: round(v, 2) for k, v in list(e.waits.items())[:3]},
        }  # fmt: skip
    return {**line, "seconds": round(time.perf_counter() - start, 1)}


def kind(row: Row) -> str:
    return "a call" if row.kind == "product" and "wall" in row.how and row.us < CALL_US else row.kind


def pairs(lines: list[dict[str, Any]]) -> dict[str, Any]:
    """Two results of one table on one GPU, 20 % apart or more: whether the model's times come in the same order."""
    counted, wrong = 0, []
    for a, b in itertools.combinations([x for x in lines if x["kind"] != "a call"], 2):
        if any(a[k] != b[k] for k in ("set", "row", "gpu")) or (a["work"] == b["work"] and a["kind"] != "order"):
            continue
        less, more = sorted((a["measured_us"], b["measured_us"]))
        if more < 1.2 * less:
            continue
        counted += 1
        if (a["measured_us"] < b["measured_us"]) != (a["modelled_us"] < b["modelled_us"]):
            wrong.append(f"row {a['row']}: {a['work']} ({a['peer']}), {b['work']} ({b['peer']})")
    return {"pairs": counted, "in_order": counted - len(wrong), "wrong": wrong}


def name_of(line: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(line[k] for k in ("set", "row", "gpu", "work", "peer"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--set", default="", help="judged or kept aside; both by default")
    parser.add_argument("--row", action="append", help="only rows of this number")
    parser.add_argument("--kind", default="", help="only rows of this kind")
    parser.add_argument("--peer", default="", help="only results of these, by the beginning of their name")
    parser.add_argument("--tec", action="store_true", help="tec's default kernel in every row")
    parser.add_argument("--out", type=Path, help="a file that lines are kept in")
    args = parser.parse_args()
    with open(Path(__file__).with_name("amd_results.csv"), newline="", encoding="utf-8") as f:
        rows = [Row(**{k: v for k, v in r.items() if k != "us"}, us=float(r["us"])) for r in csv.DictReader(f)]
    there = {}
    if args.out and args.out.exists():
        there = {name_of(x): x for x in map(json.loads, args.out.read_text().splitlines())}
    lines = []
    for row in rows:
        if (
            (args.row and row.row not in args.row)
            or args.kind not in ("", kind(row))
            or args.set not in ("", row.set)
            or not row.peer.startswith(args.peer)
        ):
            continue
        line = there.get((row.set, row.row, row.product, row.work, row.peer))
        if line is None:
            try:
                line = measure(row, args.tec)
            except tec.TecError as e:
                print(json.dumps({"row": row.row, "work": row.work, "error": str(e).splitlines()[0]}), flush=True)
                continue
            if args.out:
                with args.out.open("a") as out:
                    out.write(json.dumps(line) + "\n")
        lines.append(line)
        print(json.dumps(line), flush=True)
    for name, what in dict.fromkeys((x["set"], x["kind"]) for x in lines):
        ratios = [x["ratio"] for x in lines if (x["set"], x["kind"]) == (name, what)]
        print(json.dumps({
            "set": name, "kind": what, "rows": len(ratios), "within_25_percent": sum(0.8 <= r <= 1.25 for r in ratios),
            "within_10_percent": sum(0.9 <= r <= 1.1 for r in ratios), "median": round(statistics.median(ratios), 2),
        }))  # fmt: skip
    for name in dict.fromkeys(x["set"] for x in lines):
        print(json.dumps({"set": name, **pairs([x for x in lines if x["set"] == name])}))


if __name__ == "__main__":
    main()
