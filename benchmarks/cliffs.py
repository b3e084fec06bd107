"""Where does speed fall off a cliff? Random operators (`cliff_cases`) beside the best peer at hand; what counts is the distribution, its tail and what fails.

    python -m benchmarks.cliffs [llvm|gfx942|gfx1100|...] [--seed 1] [--count 48] [--kinds matmul,conv] [--seconds 600]

On llvm the peer is ONNX Runtime, both on one thread by processor time in turn, and results are compared. On an AMD chip the time is the software GPU's model's,
and the peer what the chip's rates allow: the larger of the multiply-adds at the peak and of every operand and result once at memory's rate, and a launch.
As rows of results (kind "cliff") each case is a row, and a summary of each target one more; `make baseline` measures those of the chip.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import time
from collections.abc import Iterator
from functools import partial
from random import Random
from typing import Any

import numpy as np

from benchmarks.cliff_cases import KINDS, Bounds, Case, draw
from benchmarks.records import ROOT, Maker, Record, four_digits
from benchmarks.turns import in_turn

SEED, COUNT, QUICK_COUNT = 1, 48, 16
SECONDS = 600.0  # of this process, after which no further case is drawn
HOST_BOUNDS = Bounds(300_000_000, 2**22)
CHIP_BOUNDS = Bounds(100_000_000_000, 2**25, ("float16", "float16", "float32"))
TOLERANCE = 2e-3  # of the largest value


def limit_us(case: Case, target: Any, written_bytes: int) -> float:
    """Microseconds that the chip's rates allow."""
    from tec.target import level_gbps

    m = target.machine
    work = case.macs / (m.units * m.macs(case.dtype) * m.clock_mhz)
    return float(max(work, (case.read_bytes() + written_bytes) / level_gbps(m, "memory") / 1e3) + m.launch_us)


def on_chip(make: Maker, case: Case, mcpu: str) -> Record:
    import tec
    from tec.report.measure import kernel_times

    target = tec.Target(f"rocm -mcpu={mcpu}")
    net = tec.compile(case.model(), target, cache=False, progress=lambda *a: None)
    us = sum(k.us for k in kernel_times(net, case.inputs, tec.rocm_emu(mcpu), run=False))
    outs = case.model().graph.output
    count = sum(int(np.prod([d.dim_value or 1 for d in o.type.tensor_type.shape.dim])) for o in outs)
    limit = limit_us(case, target, count * np.dtype(case.dtype).itemsize)
    return make.modelled(
        case.name, "time", us, "us", target=mcpu, peer="the chip's rates", peer_value=four_digits(limit), ratio=four_digits(us / limit),
        peer_settings="peak clock, memory's rate, one launch",
    )  # fmt: skip


def on_host(make: Maker, case: Case) -> Record:
    import onnxruntime as ort

    import tec

    model = case.model()
    net = tec.compile(model, "llvm", cache=False, progress=lambda *a: None)
    options = ort.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = 1, 4
    session = ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    sides = partial(net.run, case.inputs), partial(session.run, None, case.inputs)
    for got, want in zip(sides[0](), sides[1]()):
        apart = float(np.abs(np.asarray(got, "f8") - want).max()) / max(1e-3, float(np.abs(want).max()))
        if apart > TOLERANCE and want.dtype.kind == "f":
            raise ValueError(f"differs from ONNX Runtime by {apart:.1e} of the largest value")
    start = time.process_time()
    sides[0]()
    block = max(1, min(500, round(0.004 / max(1e-6, time.process_time() - start))))
    mine, theirs = (
        min(t) / block * 1e6
        for t in in_turn(*(partial(_again, s, block) for s in sides), rounds=5, clock=time.process_time)
    )
    return make.clocked(
        case.name, "processor time", mine, "us", target="llvm", band=1.3, peer="ONNX Runtime", peer_value=four_digits(theirs),
        ratio=four_digits(mine / theirs), peer_settings=f"{ort.__version__}, one thread; least of 5 blocks in turn",
    )  # fmt: skip


def _again(run: Any, times: int) -> None:
    for _ in range(times):
        run()


def cases(
    make: Maker, target: str, seed: int, count: int, kinds: list[str], seconds: float = SECONDS
) -> Iterator[Record]:
    """A row for each case, an error's row where it fails."""
    rng, stop = Random(seed), time.process_time() + seconds
    for i in range(count):
        if time.process_time() > stop:
            print(f"{target}: {i} of {count} cases in {seconds:g} s", file=sys.stderr)
            return
        case = draw(kinds[i % len(kinds)], rng, HOST_BOUNDS if target == "llvm" else CHIP_BOUNDS)
        is_modelled = target != "llvm"
        try:
            yield on_chip(make, case, target) if is_modelled else on_host(make, case)
        except Exception as e:  # what fails is a result
            why = f"{type(e).__name__}: {str(e).splitlines()[0][:200]}"
            measure = "time" if is_modelled else "processor time"
            yield make.failed(case.name, measure, "us", why, is_modelled=is_modelled, target=target)


def summary(rows: list[Record]) -> str:
    """The distribution of ratios by kind."""
    out = []
    for kind in [*KINDS, ""]:
        some = [r for r in rows if any(r.what.startswith(f"{kind} {d} ") for d in ("float16", "float32")) or not kind]
        ratios = sorted(r.ratio for r in some if r.ratio is not None)
        if some:
            at = (
                [f"{ratios[min(len(ratios) - 1, int(q * len(ratios)))]:.2f}" for q in (0.5, 0.9, 1.0)]
                if ratios
                else ["-"] * 3
            )
            failed = sum(bool(r.error) for r in some)
            out.append(
                f"{kind or 'all':15s} cases {len(some):3d}  failed {failed:3d}  ratio: median {at[0]}  90 % {at[1]}  worst {at[2]}"
            )
    return "\n".join(out)


def measure(make: Maker, quick: bool, only: list[str]) -> Iterator[Record]:
    """Cases of gfx942, and of the host's CPU where "llvm" is asked for; then the distribution's figures."""
    for target in ("gfx942", "llvm"):
        if (target == "llvm" and "llvm" not in only) or (only and target not in only):
            continue
        rows = []
        for row in cases(make, target, SEED, QUICK_COUNT if quick else COUNT, list(KINDS)):
            rows.append(row)
            yield row
        ratios = [r.ratio for r in rows if r.ratio is not None]
        if len(rows) == COUNT and ratios:
            name = f"{COUNT} random operators, seed {SEED}"
            for what, value in (("median ratio", statistics.median(ratios)), ("worst ratio", max(ratios))):
                if target == "llvm":
                    yield make.clocked(name, what, value, "of ONNX Runtime's time", target=target, band=1.3)
                else:
                    yield make.modelled(name, what, value, "of the limit", target=target)
            yield make.counted(name, "failed", sum(bool(r.error) for r in rows), "cases", target=target, band=1.0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("target", nargs="?", default="gfx942")
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--count", type=int, default=COUNT)
    parser.add_argument("--kinds", default=",".join(KINDS))
    parser.add_argument("--seconds", type=float, default=SECONDS)
    args = parser.parse_args()
    rows = []
    for row in cases(
        Maker("cliff", "python -m benchmarks.cliffs", ROOT),
        args.target,
        args.seed,
        args.count,
        args.kinds.split(","),
        args.seconds,
    ):
        rows.append(row)
        print(row.to_json(), flush=True)
    print(summary(rows))


if __name__ == "__main__":
    os.environ.setdefault("TEC_NUM_THREADS", "1")
    sys.path[:0] = [str(ROOT / "frontends")]
    main()
