"""Operators whose sizes are open beside the same ones of known sizes and beside ONNX Runtime's of the same open model, on the CPU.

    python -m benchmarks.open_sizes [--seed 1] [--count 48] [--kinds matmul,short|all] [--seconds 600] [--least 5]

A case is one of `cliff_cases` or `cliff_wide`, or rows with a short last dimension. Of its inputs' dimensions the batch is open, or one more, or all that the model
leaves open: a size that weights or constants fix stays. Dimensions of one size are one symbol. Processor time of one thread, in turn; a JSON line each, then quantiles.
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Callable, Iterator
from functools import partial
from random import Random
from typing import Any

os.environ.setdefault("TEC_NUM_THREADS", "1")

import numpy as np

from benchmarks.cliff_cases import KINDS, Bounds, Case, draw, size, until
from benchmarks.cliff_wide import WIDE
from benchmarks.cliffs import TOLERANCE, distance, peer_session, processor_us, quantiles

BOUNDS = Bounds(100_000_000, 2**21)
_SHORT = (
    "Softmax",
    "LogSoftmax",
    "norm",
    "rms norm",
    "ReduceSum",
    "ReduceMax",
    "ReduceMean",
    "ReduceLogSumExp",
    "ArgMax",
    "var",
)


def _short_rows(c: Case, rng: Random, b: Bounds) -> None:
    """Sums, norms and softmaxes along a short last dimension."""
    lead, n = until(
        lambda: (tuple(size(rng, 1, 4096, 0.4) for _ in range(rng.choice((1, 2, 3)))), size(rng, 1, 64, 0.3)),
        lambda lead, n: 2**13 <= int(np.prod(lead)) * n <= b.elements,
    )
    what = rng.choice(_SHORT)
    c.spec = {"what": what.replace(" ", "+"), "shape": (*lead, n)}
    x, last = c.input("x", *lead, n), c.const(np.array([-1]))
    if what in ("norm", "var", "rms norm"):
        centred = x if what == "rms norm" else c.op("Sub", x, c.op("ReduceMean", x, last, keepdims=1))
        square = c.op("ReduceMean", c.op("Mul", centred, centred), last, keepdims=int(what != "var"))
        c.finish(square if what == "var" else c.op("Div", centred, c.op("Sqrt", c.op("Add", square, c.scalar(1e-3)))))
    elif what.endswith("oftmax"):
        c.finish(c.op(what, x, axis=-1))
    elif what == "ArgMax":
        c.finish(c.op(what, x, axis=-1, keepdims=0))
    else:
        c.finish(c.op(what, x, last, keepdims=0))


def _sort(c: Case, rng: Random, b: Bounds) -> None:
    """All of a dimension in order, as a top-k whose k is its size."""
    lead, n = until(lambda: (size(rng, 1, 4096), size(rng, 1, 65536)), lambda m, n: 2**13 <= m * n <= b.elements // 8)
    c.spec = {"rows": lead, "columns": n}
    x = c.input("x", lead, n)
    shape = c.op("Shape", x, start=1, end=2)
    c.finish(*c.ops("TopK", 2, x, shape, axis=-1))


def _gelu_norm(c: Case, rng: Random, b: Bounds) -> None:
    """What stands between the products of a network: a residual, a norm, an activation, and a transpose of heads."""
    batch, n, heads, d = until(
        lambda: (rng.choice((1, 2, 8)), size(rng, 1, 1024), rng.choice((2, 4, 8, 12)), rng.choice((16, 32, 64))),
        lambda z, n, h, d: 2**13 <= z * n * h * d <= b.elements,
    )
    c.spec = {"batch": batch, "n": n, "heads": heads, "size": d}
    y = c.op("Add", c.input("x", batch, n, heads * d), c.input("y", batch, n, heads * d))
    y = c.op("LayerNormalization", y, c.weight(heads * d), c.weight(heads * d), axis=-1)
    y = c.op("Reshape", c.op("Gelu", y), c.const(np.array([0, 0, heads, d])))
    c.finish(c.op("Transpose", y, perm=[0, 2, 1, 3]))


OWN: dict[str, Callable[[Case, Random, Bounds], None]] = {"short": _short_rows, "sort": _sort, "block": _gelu_norm}
ALL = {**KINDS, **OWN, **{k: f for k, f in WIDE.items() if k not in ("conv 3d", "quantized", "typed", "one hot")}}
# Of these kinds only so many leading dimensions, and for images also those from the third on, may be open: weights fix the others.
_FIXED: dict[str, tuple[int, ...]] = {
    "conv": (1,), "conv 1d": (1,), "conv transpose": (1,), "block": (2,), "axis norm": (1, 2, 3), "shuffle": (1, 3),
}  # fmt: skip


def dimensions(case: Case) -> list[tuple[str, int]]:
    """What may be open."""
    kind, spec = case.kind, case.spec
    shapes = {n: x.shape for n, x in case.inputs.items()}
    if kind == "resized" or (kind == "axis norm" and spec["what"] == "group"):
        return []  # their models have a constant with all sizes, the batch's too
    fixed = set(_FIXED.get(kind, ()))
    if "matmul" in kind and kind != "batched matmul" and (spec["weights"] != "input" or "bias" in spec["tail"]):
        return [("x", 0)]
    if (kind == "rows" and spec.get("what") == "LayerNormalization") or (
        kind == "top k" and spec["k"] >= spec["columns"]
    ):
        fixed = {1}
    if kind == "attention":  # a head has a known size, and a mask is a constant
        return [
            (n, d)
            for n in shapes
            for d in ((0,) if spec["causal"] else (0, 1, 2))
            if shapes[n][d] not in (1, spec["size"])
        ]
    if kind == "resize":
        fixed = {1}
    if kind == "shuffle" and spec["what"] == "Split":
        fixed = {3}
    return [(n, d) for n, s in shapes.items() for d in range(len(s)) if d not in fixed and s[d] > 1]


def opened(case: Case, rng: Random) -> str:
    """Open some of a case's dimensions; which."""
    there = dimensions(case)
    how = rng.choice(("first", "one", "all", "all"))
    if how == "first":
        first = [(n, d) for n, d in there if d == 0]
        there = first or there
    elif how == "one":
        there = [rng.choice(there)] if there else []
    sizes = {case.inputs[n].shape[d] for n, d in there}
    where = set(dimensions(case))
    for n, x in case.inputs.items():
        case.open_shapes[n] = [f"s{v}" if v in sizes and (n, d) in where else v for d, v in enumerate(x.shape)]
    return how


def times(case: Case) -> tuple[float, float, float]:
    """Microseconds of the open model, of the one of known sizes, and of ONNX Runtime's open one."""
    import tec

    model = case.model()
    names = dict.fromkeys(d for s in case.open_shapes.values() for d in s if isinstance(d, str))
    known = {n: x.shape for n, x in case.inputs.items()}
    nets = [tec.compile(model, "llvm", shapes=s, cache=False, progress=lambda *a: None) for s in ({}, known)]
    if not names:
        raise LookupError("nothing to open")
    sides = [partial(n.run, case.inputs) for n in nets]
    peer = partial(peer_session(model).run, None, case.inputs)
    for got, other, want in zip(sides[0](), sides[1](), peer()):
        if want.dtype.kind == "f" and (apart := max(distance(got, want), distance(other, want))) > TOLERANCE:
            raise ValueError(f"differs from ONNX Runtime by {apart:.1e} of the largest value")
    a, b, c = processor_us(*sides, peer)
    return a, b, c


def rows(seed: int, count: int, kinds: list[str]) -> Iterator[dict[str, Any]]:
    """Each case is drawn from "SEED NUMBER", so that it can be had alone."""
    for number in range(count):
        rng, kind = Random(f"{seed} {number}"), kinds[number % len(kinds)]
        if kind in OWN:
            case = Case(kind, "float32", _rng=np.random.default_rng(number))
            OWN[kind](case, rng, BOUNDS)
        else:
            case = draw(kind, rng, BOUNDS)
        row: dict[str, Any] = {"number": number, "case": case.name, "kind": kind, "open": opened(case, rng)}
        row["shapes"] = {n: " ".join(map(str, s)) for n, s in case.open_shapes.items()}
        try:
            mine, known, peer = times(case)
        except LookupError:
            continue
        except Exception as e:  # what fails is a result
            yield row | {"error": f"{type(e).__name__}: {str(e).splitlines()[0][:200]}"}
            continue
        yield row | {
            "us": round(mine, 1), "known": round(known, 1), "peer": round(peer, 1),
            "over_known": round(mine / known, 2), "over_peer": round(mine / peer, 2),
        }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=48)
    parser.add_argument("--kinds", default="all")
    parser.add_argument("--least", type=float, default=5.0, help="microseconds of the peer below which a case is apart")
    args = parser.parse_args()
    found = []
    for row in rows(args.seed, args.count, list(ALL) if args.kinds == "all" else args.kinds.split(",")):
        print(json.dumps(row), flush=True)
        found.append(row)
    for kind in ("all", *ALL):
        some = [r for r in found if kind in ("all", r["kind"])]
        timed = [r for r in some if "us" in r and r["peer"] >= args.least]
        if some:
            print(f"{kind:15s} cases {len(some):3d}  failed {sum('error' in r for r in some):2d}  over known sizes: {quantiles([r['over_known'] for r in timed])}")  # fmt: skip
            print(f"{'':39s}over ONNX Runtime: {quantiles([r['over_peer'] for r in timed])}")


if __name__ == "__main__":
    main()
