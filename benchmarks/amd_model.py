"""The time model and tec's kernels against thousands of published times (`model_rows`). One JSON object a line; a summary by chip, type and kind at the end.

    AITER=aiter python -m benchmarks.amd_model [--part right | order | good] [--side fit] [--seed 7] [--count 40] [--chip gfx942] [--out rows.jsonl]

- part "right", whether the model is right: the same code object measured by its makers and modelled (aiter's assembly, where a source names it; `aiter_results`).
- part "order", whether the model ranks kernels right: the object that aiter's tuner chose for a problem beside the others that it had (the tables name the winner alone, so that each other
  one is a pair whose order is known).
- part "good", whether tec's kernel is good: tec's default under the model over the library's best published time.

All are drawn, the same from one seed: of each chip, type and kind as many in turn as come to `--count` a part (0: all). "ratio" is modelled over measured. A row is a fit row or a judged row by a
hash of its shape. `--out`: lines go to this file as they come, and rows that it has are not modelled again. Rows of tuners that time a launch are left out below 30 us.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import signal
import statistics
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import tec
from benchmarks.amd_reasons import NAMES, WIDTHS, dtype_of, peak_tflops
from benchmarks.model_rows import Row, rows
from benchmarks.time_model import op, profiled_us
from tec.choices import schedule
from tec.ops.layouts import Layout
from tec.target import find_product, level_gbps
from tec.target.fitted import fitted
from tec.target.machines import product_key

LAUNCH_US = 30.0  # rows of tuners below this hold too much of a launch (`amd_rows/README.md`)
COPIES = 101  # of its operands that aiter's tuner goes through, one a launch (`aiter/test_common.py`): what they are together is what the last cache would have to hold
LIMIT_S = 300  # processor time of a row
Line = dict[str, Any]


def usable(row: Row) -> bool:
    return row.us >= LAUNCH_US or not row.launched


def right_rows() -> list[Row]:
    """Rows whose code object is known."""
    return [r for r in rows() if r.kernel]


def good_rows() -> list[Row]:
    """The best published time of each problem that tec's operators can be asked for."""
    best: dict[tuple[Any, ...], Row] = {}
    for r in rows():
        if not usable(r) or r.dtype not in NAMES or r.op in ("moe", "attention_bwd"):
            continue
        key = (r.op, r.product, r.dtype, r.sizes, r.turned, r.causal)
        if key not in best or r.us < best[key].us:
            best[key] = r
    return list(best.values())


def drawn(found: Iterable[Row], count: int, seed: int) -> list[Row]:
    """`count` rows, each chip, type and kind in turn; all where count is 0."""
    groups: dict[tuple[str, ...], list[Row]] = defaultdict(list)
    for r in found:
        groups[r.product, r.dtype, r.kind].append(r)
    draw = random.Random(seed)
    for g in groups.values():
        draw.shuffle(g)
    order = [groups[k] for k in sorted(groups)]
    turns = [g[i] for i in range(max(map(len, order), default=0)) for g in order if i < len(g)]
    return turns[: count or len(turns)]


def operand_bytes(row: Row) -> float:
    """What a product's operands and result take."""
    m, n, k = row.sizes[:3]
    return (m * k + k * n) * WIDTHS[row.dtype] + m * n * WIDTHS[row.out]


def in_last_cache(row: Row) -> bool:
    """Whether the operands were in the last cache when the row was timed: the same ones each time, or copies that it holds all of, since they were written before."""
    product = find_product(row.product)
    last = product.level("MALL") if product is not None else None
    return row.warm or (row.op == "product" and last is not None and COPIES * operand_bytes(row) <= last.size_bytes)


def zeros_us(row: Row) -> float:
    """The zeros that aiter writes first, which its times include: of a result that is a sum in parts (`asm_gemm_a8w8.cu`, `asm_a8w8_blockscale_bpreshuffle.cu`: hipMemsetAsync; its bfloat16
    kernels write them themselves), and of a mixture's (`gemm_moe_tune.py`: torch.zeros). A launch of their own, and memory's rate."""
    product = find_product(row.product)
    assert product is not None, row.product
    if row.op == "moe":
        nbytes = 2 * row.sizes[0] * row.sizes[1]
    elif row.op == "product" and row.splits > 1 and not row.kernel.startswith("bf16gemm"):
        nbytes = 2 * row.sizes[0] * row.sizes[1]
    else:
        return 0.0
    return fitted("zeros written first") + nbytes / level_gbps(product, "memory") * 1e-3


def sizes_of(row: Row) -> tuple[int, ...]:
    """A product's sizes as `aiter_results` has them."""
    sizes = row.sizes if row.op != "product" else row.sizes[:3]
    return (*sizes, 4 if row.out == "f32" else 2) if row.kernel.startswith("bf16gemm") else sizes


def chosen_rows() -> list[Row]:
    """Products for which aiter's tuner chose an object."""
    return [r for r in right_rows() if r.op == "product" and not r.warm]


def rivals(row: Row) -> list[str]:
    """The other objects of a product's family that take its sizes: B in the same order, whole tiles of columns, and parts of k where the winner has them."""
    from benchmarks import aiter_results

    product = find_product(row.product)
    assert product is not None, row.product
    found = []
    for name in aiter_results.tables(product.chip):
        if name.split("_")[0] != row.kernel.split("_")[0] or name == row.kernel:
            continue
        if any((word in name) != (word in row.kernel) for word in ("shuffle", "noBpre", "fp32bf16")):
            continue
        if row.sizes[1] % aiter_results.tile(name)[1] or (row.splits > 1 and not _splits(product.chip, name)):
            continue
        found.append(name)
    return sorted(found)


def _splits(chip: str, name: str) -> bool:
    from benchmarks import aiter_results

    return aiter_results.row_of(chip, name).get("splitK") == "1"


def order(row: Row) -> Line:
    """The winner's time, and those of up to five of its rivals, drawn by the problem. "in_order": rivals that the model has slower than the winner, or at most 5 % faster, which is
    within what a tuner's times say; "regret": the winner's time over the least."""
    from benchmarks import aiter_results

    others = rivals(row)
    if not others:
        raise tec.TecError("no other object takes this problem")
    some = random.Random(row.shape).sample(others, min(5, len(others)))
    us = {
        name: aiter_results.estimate(row.product, name, sizes_of(row), row.splits, in_last_cache(row)).kernel_us
        for name in (row.kernel, *some)
    }
    winner = us.pop(row.kernel)
    good = sum(winner <= 1.05 * x for x in us.values())
    return {
        "us": winner,
        "others": {n: round(x, 2) for n, x in us.items()},
        "pairs": len(us),
        "in_order": good,
        "regret": round(winner / min(winner, *us.values()), 3),
    }


def right(row: Row) -> Line:
    """The model's word on the code object that was timed."""
    from benchmarks import aiter_results

    sizes = sizes_of(row)
    product = find_product(row.product)
    if row.op == "moe" and product is not None:
        sizes = (*sizes, product.units)
    if row.op == "attention_bwd":
        return gradient(row)
    e = aiter_results.estimate(row.product, row.kernel, sizes, row.splits, in_last_cache(row))
    called = fitted("call of aiter's attention") if row.op == "attention" else 0.0
    return {
        "us": e.kernel_us + called + (0.0 if row.warm or product is None else profiled_us(product) + zeros_us(row)),
        "limit": e.limit,
        "mhz": round(e.clock_mhz),
        "of": row.kernel,
    }


def gradient(row: Row) -> Line:
    """The three kernels of attention's gradient, the zeros that `mha_bwd.cu` asks for first, which are written at memory's rate, and the call from Python."""
    from benchmarks import aiter_results

    product = find_product(row.product)
    assert product is not None, row.product
    size = row.sizes[-1]
    names = (f"bwd_hd{size}_odo_bf16", row.kernel, f"bwd_hd{size}_dq_convert_bf16")
    found = [aiter_results.estimate(row.product, n, row.sizes, 1, row.warm) for n in names]
    batch, heads, _, length, _ = row.sizes
    zeros = 4 * batch * heads * length * size / level_gbps(product, "memory") * 1e-3
    us = sum(e.kernel_us for e in found) + zeros + 3 * product.launch_us + fitted("call of aiter's attention gradient")
    return {"us": us, "limit": found[1].limit, "mhz": round(found[1].clock_mhz), "of": row.kernel}


def made(row: Row) -> tuple[list[Any], list[Any]]:
    """te outputs and placeholders of a row's problem, in tec's own layouts."""
    dtype = dtype_of(row)
    if row.op == "product":
        m, n, k, batch = row.sizes
        ta, tb = row.turned[0] == "T", row.turned[1] == "T"
        a, b = ((k, m) if ta else (m, k)), ((n, k) if tb else (k, n))
        lead = (batch,) if batch > 1 else ()
        attrs = {"transpose_a": ta, "transpose_b": tb}
        return op("matmul", attrs, [((*lead, *a), dtype), ((*lead, *b), dtype)])()
    if row.op == "attention":
        batch, heads, of_keys, length, size = row.sizes
        shapes = [(batch, h, length, size) for h in (heads, of_keys, of_keys)]
        return op("attention", {"scale": size**-0.5, "causal": row.causal}, [(s, dtype) for s in shapes])()
    n, c, h, w, out, r, s, stride, pad = row.sizes
    attrs = {
        "strides": (stride,) * 2, "dilations": (1, 1), "before": (pad,) * 2, "after": (pad,) * 2, "groups": 1, "kernel": (r, s),
        "layouts": (Layout("(NHW)C"), Layout("O(HWI)"), Layout("(NHW)C")), "space": (n, h, w),
    }  # fmt: skip
    return op("conv", attrs, [((n * h * w, c), dtype), ((out, r * s * c), dtype)])()


def good(row: Row) -> Line:
    """tec's default for the problem under the model: all its launches, and what lies between them."""
    product = find_product(row.product)
    assert product is not None, row.product
    # By its product's name: units, dies and clocks decide the choice as well as the chip's instructions.
    target = tec.Target(f"rocm -mcpu={product_key(product.name)}")
    outs, xs = made(row)
    s = schedule(outs, target)
    f = tec.build(s.schedule, [*xs, *s.outputs], target, name="kernel")
    args = [(tuple(int(d.value) for d in t.shape), t.dtype) for t in (*xs, *outs)]
    p = tec.model(f, args, row.product, row.warm)
    longest = max(p.launches, key=lambda x: x.estimate.microseconds).estimate
    us = sum(x.estimate.kernel_us for x in p.launches)
    us += product.launch_us * (len(p.launches) - 1) if row.warm else profiled_us(product) * len(p.launches)
    done = 2e-6 * math.prod(row.sizes) / us if row.op == "product" else 0.0
    peak = done / peak_tflops(row)
    return {
        "us": us,
        "limit": longest.limit,
        "mhz": round(longest.clock_mhz),
        "launches": len(p.launches),
        "peak": round(peak, 3),
    }


PARTS: dict[str, tuple[Callable[[], list[Row]], Callable[[Row], Line]]] = {
    "right": (right_rows, right),
    "order": (chosen_rows, order),
    "good": (good_rows, good),
}


def name_of(part: str, row: Row) -> Line:
    return {
        "part": part, "product": row.product, "dtype": row.dtype, "kind": row.kind, "shape": row.shape, "turned": row.turned, "impl": row.impl, "kernel": row.kernel,
        "splits": row.splits, "judged": row.judged, "measured_us": row.us,
    }  # fmt: skip


def _late(number: int, frame: Any) -> None:
    raise tec.TecError(f"not modelled within {LIMIT_S} s of processor time")


def measure(part: str, row: Row) -> Line:
    """One row, modelled; "error" where that failed."""
    start = time.process_time()
    line = name_of(part, row)
    signal.signal(signal.SIGVTALRM, _late)
    signal.setitimer(signal.ITIMER_VIRTUAL, LIMIT_S)
    try:
        found = PARTS[part][1](row)
    except tec.TecError as e:
        return {**line, "error": str(e).splitlines()[0]}
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
    us = found.pop("us")
    return {
        **line,
        **found,
        "modelled_us": round(us, 2),
        "ratio": round(us / row.us, 3),
        "seconds": round(time.process_time() - start, 1),
    }


def alone(part: str, row: Row) -> Line:
    """`measure` in a process of its own, which a failure of the code generator, or a kernel that takes too long, ends alone."""
    words = [sys.executable, "-m", "benchmarks.amd_model", "--one", part, str(rows().index(row))]
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=8 * LIMIT_S, check=False)
    except subprocess.TimeoutExpired:
        return {**name_of(part, row), "error": f"not modelled within {8 * LIMIT_S} s"}
    if done.returncode:
        return {**name_of(part, row), "error": (done.stderr.strip().splitlines() or ["it ended"])[-1][:200]}
    found: Line = json.loads(done.stdout.splitlines()[-1])
    return found


def summary(lines: list[Line]) -> Line:
    """Of ratios: the median, the median absolute error, and how many lie within 15 and 25 %."""
    found = sorted(x["ratio"] for x in lines)
    errors = [abs(r - 1) for r in found]
    n = len(found)
    return {
        "rows": n, "median": round(statistics.median(found), 3), "p10": found[n // 10], "p90": found[-1 - n // 10],
        "median_error": round(statistics.median(errors), 3), "within_15": round(sum(e <= 0.15 for e in errors) / n, 3),
        "within_25": round(sum(e <= 0.25 for e in errors) / n, 3),
    }  # fmt: skip


def pairs(lines: list[Line]) -> Line:
    """Kernels of one problem that were timed 5 % apart or more: how many the model has in order."""
    found: dict[tuple[Any, ...], list[Line]] = defaultdict(list)
    for x in lines:
        found[x["product"], x["dtype"], x["shape"]].append(x)
    count = good = 0
    for same in found.values():
        for i, a in enumerate(same):
            for b in same[:i]:
                if abs(math.log(a["measured_us"] / b["measured_us"])) > 0.05:
                    count += 1
                    good += (a["measured_us"] < b["measured_us"]) == (a["modelled_us"] < b["modelled_us"])
    return {"pairs": count, "in_order": good}


def report(lines: list[Line]) -> None:
    """A summary of each part, side, product, type and kind."""
    groups: dict[tuple[Any, ...], list[Line]] = defaultdict(list)
    ranked = [x for x in lines if "in_order" in x]
    for side in (False, True):
        rows_ = [x for x in ranked if x["judged"] == side]
        if rows_:
            count, good = sum(x["pairs"] for x in rows_), sum(x["in_order"] for x in rows_)
            first = sum(x["regret"] <= 1.1 for x in rows_)
            print(json.dumps({"part": "order", "side": "judged" if side else "fit", "rows": len(rows_), "pairs": count, "in_order": good, "within_1.1": first}))  # fmt: skip
    for x in lines:
        if "ratio" in x and "in_order" not in x:
            side = "judged" if x["judged"] else "fit"
            groups[x["part"], side, x["product"], x["dtype"], x["kind"]].append(x)
            groups[x["part"], side, "", "", x["kind"]].append(x)
            groups[x["part"], side, "", "", ""].append(x)
    for key in sorted(groups):
        print(json.dumps(dict(zip(("part", "side", "product", "dtype", "kind"), key)) | summary(groups[key])))
    for side in (False, True):
        print(
            json.dumps(
                {
                    "side": side,
                    **pairs([x for x in lines if x["part"] == "right" and x["judged"] == side and "ratio" in x]),
                }
            )
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--part", default="", help="right, order or good; all by default")
    parser.add_argument("--side", default="", help="fit or judged; both by default")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--count", type=int, default=60, help="rows of each part")
    parser.add_argument("--product", default="")
    parser.add_argument("--kind", default="")
    parser.add_argument("--op", default="", help="product, attention, attention_bwd, convolution or moe")
    parser.add_argument("--dtype", default="")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--one", nargs=2, metavar=("PART", "NUMBER"), help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.one:
        print(json.dumps(measure(args.one[0], rows()[int(args.one[1])])))
        return
    there: dict[str, Line] = {}
    if args.out and args.out.exists():
        for x in map(json.loads, args.out.read_text().splitlines()):
            there[json.dumps({k: x.get(k) for k in name_of("", rows()[0])})] = x
    lines = []
    for part, (find, _) in PARTS.items():
        if args.part not in ("", part):
            continue
        chosen = [
            r
            for r in find()
            if args.product in ("", r.product) and args.kind in ("", r.kind) and args.op in ("", r.op) and args.dtype in ("", r.dtype)
            and args.side in ("", "judged" if r.judged else "fit")
        ]  # fmt: skip
        for row in drawn(chosen, args.count, args.seed):
            line = there.get(json.dumps(name_of(part, row)))
            if line is None:
                line = (measure if part in ("right", "order") and row.op != "moe" else alone)(part, row)
                if args.out:
                    with args.out.open("a") as f:
                        f.write(json.dumps(line) + "\n")
                print(json.dumps(line), flush=True)
            lines.append(line)
    report(lines)


if __name__ == "__main__":
    main()
