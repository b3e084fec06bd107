"""Where does speed fall off a cliff? Random operators (`cliff_cases`) beside the best peer at hand; what counts is the distribution, its tail and what fails.

    python -m benchmarks.cliffs [llvm|cuda|gfx942|gfx1100|...] [--seed 1] [--count 48] [--kinds matmul,conv|wide] [--seconds 600] [--long]

`--kinds wide` stands for the rarer kinds of `cliff_wide`.
On llvm the peer is ONNX Runtime, both on one thread by processor time in turn, and results are compared. On cuda the peer is PyTorch, both as captured graphs
in turn, compared too; networks are compiled ahead on the host's other cores. On an AMD chip the time is the software GPU's model's,
and the peer what the chip's rates allow: the larger of the multiply-adds at the clock that the chip holds under them and of every byte that must be moved once at memory's
rate, and a launch. Cases whose peer takes under 5 us are a distribution of their own.
As rows of results (kind "cliff") each case is a row, and a summary of each target one more; `make baseline` measures those of the chip.
"""

from __future__ import annotations

import argparse
import math
import os
import statistics
import sys
import tempfile
import time
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import replace
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import onnx

from benchmarks.cliff_cases import KINDS, Bounds, Case, draw
from benchmarks.cliff_wide import DTYPES, WIDE
from benchmarks.records import ROOT, Maker, Record, four_digits
from benchmarks.turns import Run, in_turn

SEED, COUNT, QUICK_COUNT = 1, 48, 16
SECONDS = 600.0  # of this process, after which no further case is drawn
HOST_BOUNDS = Bounds(300_000_000, 2**22)
CHIP_BOUNDS = Bounds(100_000_000_000, 2**25, ("float16", "float16", "float32"))
CUDA_BOUNDS = Bounds(1_000_000_000_000, 2**26, ("float16", "float16", "float32"))
SHORT_US = 5.0  # a peer's time below which a case is no part of the distribution: launches are most of it
TOLERANCE = 2e-3  # of the largest value
HALF_TOLERANCE = 2e-2  # of float16 against PyTorch's, which rounds at other places
AHEAD = 8  # networks that are compiled while others are timed


def limit_us(case: Case, target: Any, written_bytes: int) -> float:
    """Microseconds that the chip's rates allow. The clock is the one that the chip's power leaves with all pipes of the type at work and the case's bytes moved meanwhile."""
    from tec.target import level_gbps

    m = target.machine
    moved = case.read_bytes() + written_bytes
    memory = moved / level_gbps(m, "memory") / 1e3
    busy = (1.0, 0.0) if m.matrix_macs.get(case.dtype) else (0.0, 1.0)
    least = max(memory, work := case.macs / (m.units * m.macs(case.dtype) * m.clock_mhz))
    for _ in range(3 if work else 0):  # the less time, the more bytes in it, and the lower the clock
        mhz = m.held_mhz(case.dtype, *busy, moved / least * 1e-6)
        least = max(memory, case.macs / (m.units * m.macs(case.dtype) * mhz))
    return float(least + m.launch_us)


def written_bytes(case: Case) -> int:
    """Of the results, at the sizes that the inputs have where the model's are open."""
    outs = replace(case, open_shapes={}).model().graph.output
    return sum(
        math.prod(d.dim_value or 1 for d in o.type.tensor_type.shape.dim)
        * np.dtype(onnx.helper.tensor_dtype_to_np_dtype(o.type.tensor_type.elem_type)).itemsize
        for o in outs
    )


def on_chip(make: Maker, case: Case, mcpu: str) -> Record:
    import tec
    from tec.report.measure import kernel_times

    target = tec.Target(f"rocm -mcpu={mcpu}")
    net = tec.compile(case.model(), target, cache=False, progress=lambda *a: None)
    us = sum(k.us for k in kernel_times(net, case.inputs, tec.rocm_emu(mcpu), run=False))
    limit = limit_us(case, target, written_bytes(case))
    return make.modelled(
        case.name, "time", us, "us", target=mcpu, peer="the chip's rates", peer_value=four_digits(limit), ratio=four_digits(us / limit),
        peer_settings="the clock held under power, memory's rate, one launch",
    )  # fmt: skip


def peer_session(model: onnx.ModelProto) -> Any:
    """ONNX Runtime's session of a model, on one thread."""
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = 1, 4
    # By default it rounds activations to bytes before weights of 8 bits, half a per cent off; tec does not.
    options.add_session_config_entry("session.qdq_matmulnbits_accuracy_level", "1")
    return ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])


def processor_us(*sides: Run) -> list[float]:
    """Microseconds of processor time of a run of each side: the least of five blocks in turn, of which each is some 4 ms of the first side."""
    start = time.process_time()
    sides[0]()
    block = max(1, min(500, round(0.004 / max(1e-6, time.process_time() - start))))
    blocks = in_turn(*(partial(_again, s, block) for s in sides), rounds=5, clock=time.process_time)
    return [min(t) / block * 1e6 for t in blocks]


def distance(got: Any, want: Any) -> float:
    """How far two results are apart, over the largest value."""
    return float(np.abs(np.asarray(got, "f8") - want).max(initial=0)) / max(1e-3, float(np.abs(want).max(initial=0)))


def on_host(make: Maker, case: Case) -> Record:
    import onnxruntime as ort

    import tec

    model = case.model()
    net = tec.compile(model, "llvm", cache=False, progress=lambda *a: None)
    sides = partial(net.run, case.inputs), partial(peer_session(model).run, None, case.inputs)
    for got, want in zip(sides[0](), sides[1]()):
        if (apart := distance(got, want)) > TOLERANCE and want.dtype.kind == "f":
            raise ValueError(f"differs from ONNX Runtime by {apart:.1e} of the largest value")
    mine, theirs = processor_us(*sides)
    return make.clocked(
        case.name, "processor time", mine, "us", target="llvm", band=1.3, peer="ONNX Runtime", peer_value=four_digits(theirs),
        ratio=four_digits(mine / theirs), peer_settings=f"{ort.__version__}, one thread; least of 5 blocks in turn",
    )  # fmt: skip


def compiled(kind: str, state: Any, bounds: Bounds, target: str, path: Path) -> str:
    """Save the network of a case; "", or what went wrong. For a process of its own, which draws the case again."""
    import tec

    rng = Random()
    rng.setstate(state)
    try:
        model = draw(kind, rng, bounds).model()
        tec.compile(model, target, cache=False, progress=lambda *a: None).save(path)
    except Exception as e:  # what fails is a result
        return f"{type(e).__name__}: {str(e).splitlines()[0][:200]}"
    return ""


def graph_of_calls(dev: Any, executor: Any, times: int) -> Any:
    """The captured graph of so many calls of an executor that has run."""
    engine = executor._engine
    _, bound = next(reversed(engine._bound.values()))
    with dev.capture() as graph:
        for _ in range(times):
            engine._calls(bound)
    return graph


def on_cuda(make: Maker, case: Case, torch: Any, host: str, path: Path) -> Record:
    """Time the saved network beside PyTorch. Raises ValueError where they differ."""
    import tec
    from benchmarks import cliff_torch
    from benchmarks.gpu import calls_of_graphs, in_graph, race

    dev, net = tec.cuda(0), tec.load(path)
    executor, xs = net.executor(dev), [tec.nd.array(case.inputs[i["name"]], dev) for i in net.inputs]
    for _ in range(3):
        outs = executor.run(xs)
    peer = cliff_torch.function(torch, case)
    for got, w in zip(outs, cliff_torch.reference(torch, case)):
        apart = distance(got.numpy(), w)
        if not apart <= (HALF_TOLERANCE if case.dtype == "float16" else TOLERANCE) and got.dtype.startswith("float"):
            raise ValueError(f"differs from PyTorch by {apart:.1e} of the largest value")
    times = calls_of_graphs(torch, peer)
    ms, _ = race(
        torch, {"tec": graph_of_calls(dev, executor, times).launch, "PyTorch": in_graph(torch, peer, times, False)}
    )
    return make.on_gpu(
        host, case.name, "time", ms["tec"] / times * 1e3, "us", target="sm_90a", peer="PyTorch", peer_value=four_digits(ms["PyTorch"] / times * 1e3),
        ratio=four_digits(ms["tec"] / ms["PyTorch"]), peer_settings="both as captured graphs of some calls, bursts in shuffled turns, medians; no TF32",
    )  # fmt: skip


def cuda_cases(make: Maker, seed: int, count: int, kinds: list[str], seconds: float) -> Iterator[Record]:
    """A row for each case on the GPU at hand, an error's row where it fails."""
    import torch

    from benchmarks.gpu import gpu_host

    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    host, rng, stop = gpu_host(torch), Random(seed), time.monotonic() + seconds
    with tempfile.TemporaryDirectory() as folder, ProcessPoolExecutor(AHEAD, get_context("spawn")) as pool:
        waiting: deque[tuple[str, Any, Path, Future[str]]] = deque()
        for i in range(count + AHEAD):
            if i < count:
                kind, state, path = kinds[i % len(kinds)], rng.getstate(), Path(folder) / f"{i}.tecnet"
                waiting.append(
                    (kind, state, path, pool.submit(compiled, kind, state, CUDA_BOUNDS, "cuda -arch=sm_90a", path))
                )
                draw(kind, rng, CUDA_BOUNDS, sizes_alone=True)
            if i < AHEAD:
                continue
            if time.monotonic() > stop:
                print(f"cuda: {i - AHEAD} of {count} cases in {seconds:g} s", file=sys.stderr)
                pool.shutdown(cancel_futures=True)
                return
            kind, state, path, future = waiting.popleft()
            again = Random()
            again.setstate(state)
            case = draw(kind, again, CUDA_BOUNDS)
            try:
                if why := future.result():
                    yield make.failed(case.name, "time", "us", why, target="sm_90a")
                    continue
                with torch.inference_mode():
                    yield on_cuda(make, case, torch, host, path)
            except Exception as e:  # what fails is a result
                why = f"{type(e).__name__}: {str(e).splitlines()[0][:200]}"
                yield make.failed(case.name, "time", "us", why, target="sm_90a")
            finally:
                path.unlink(missing_ok=True)


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


def long_cases(
    make: Maker, mcpu: str, seed: str, count: int, kinds: list[str], seconds: float = SECONDS
) -> Iterator[Record]:
    """A row for each of the first `count` cases of a chip whose limit is `SHORT_US` or more: those from `Random("SEED NUMBER")`, of the kinds in turn, so that
    each can be drawn alone."""
    import tec

    target, stop, found, number = tec.Target(f"rocm -mcpu={mcpu}"), time.process_time() + seconds, 0, 0
    while found < count and time.process_time() < stop:
        case = draw(kinds[number % len(kinds)], Random(f"{seed} {number}"), CHIP_BOUNDS)
        number += 1
        if limit_us(case, target, written_bytes(case)) < SHORT_US:
            continue
        found += 1
        try:
            yield on_chip(make, case, mcpu)
        except Exception as e:  # what fails is a result
            why = f"{type(e).__name__}: {str(e).splitlines()[0][:200]}"
            yield make.failed(case.name, "time", "us", why, is_modelled=True, target=mcpu)


def quantiles(ratios: list[float]) -> str:
    """Median, 90 %, 99 % and worst."""
    ordered = sorted(ratios)
    at = [
        f"{ordered[min(len(ordered) - 1, int(q * len(ordered)))]:.2f}" if ordered else "-"
        for q in (0.5, 0.9, 0.99, 1.0)
    ]
    return f"median {at[0]}  90 % {at[1]}  99 % {at[2]}  worst {at[3]}"


def _kind(row: Record) -> str:
    """What stands before a row's type."""
    words = row.what.split()
    return " ".join(words[: next(k for k, w in enumerate(words) if w in DTYPES)])


def is_short(row: Record) -> bool:
    return row.peer_value is not None and row.peer_value < SHORT_US


def summary(rows: list[Record]) -> str:
    """The distribution of ratios by kind, of all, and of the cases whose peer takes under `SHORT_US`, which are no part of the others; cases without a kernel are in none."""
    kinds = {k: [r for r in rows if _kind(r) == k] for k in (*KINDS, *WIDE)}
    lines = {**kinds, "all": rows, f"under {SHORT_US:g} us": [r for r in rows if is_short(r)]}
    out = []
    for name, some in lines.items():
        counted = some if name.startswith("under") else [r for r in some if not is_short(r)]
        failed = sum(bool(r.error) for r in counted)
        if counted:
            ratios = quantiles([r.ratio for r in counted if r.ratio])
            out.append(f"{name:15s} cases {len(counted):3d}  failed {failed:3d}  ratio: {ratios}")
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
        ratios = [r.ratio for r in rows if r.ratio is not None and not is_short(r)]
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
    parser.add_argument("--seed", default=str(SEED))
    parser.add_argument("--count", type=int, default=COUNT)
    parser.add_argument("--kinds", default=",".join(KINDS))
    parser.add_argument("--seconds", type=float, default=SECONDS)
    parser.add_argument(
        "--long", action="store_true", help=f"of an AMD chip as many cases whose limit is {SHORT_US:g} us or more"
    )
    args = parser.parse_args()
    rows = []
    make, kinds = (
        Maker("cliff", "python -m benchmarks.cliffs", ROOT),
        list(WIDE) if args.kinds == "wide" else args.kinds.split(","),
    )
    if args.target == "cuda":
        found = cuda_cases(make, int(args.seed), args.count, kinds, args.seconds)
    elif args.long:
        make = Maker("cliff", f"python -m benchmarks.cliffs {args.target} --long --seed {args.seed}", ROOT)
        found = long_cases(make, args.target, args.seed, args.count, kinds, args.seconds)
    else:
        found = cases(make, args.target, int(args.seed), args.count, kinds, args.seconds)
    for row in found:
        rows.append(row)
        print(row.to_json(), flush=True)
    print(summary(rows))


if __name__ == "__main__":
    os.environ.setdefault("TEC_NUM_THREADS", "1")
    sys.path[:0] = [str(ROOT / "frontends"), str(ROOT / "benchmarks")]
    main()
