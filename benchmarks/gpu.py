"""Kernels and networks on one NVIDIA GPU: tec against PyTorch (cuBLAS, cuDNN) and Triton, side by side. One JSON object a line.

    python benchmarks/gpu.py [--quick] [names...]                       compiles and runs
    python benchmarks/gpu.py --pack DIR [--choices FILE] [names...]     compiles only, into packages: needs no GPU
    python benchmarks/gpu.py --run DIR [names...]                       runs packages: needs no LLVM

`names` are beginnings of rows' names. FILE: {beginning of a row's name: [choice, ...]}, JSON; each is packed beside the default. `value` is the default's
figure, `best` that of the best choice where there are several. All results are checked, against float64 on the device.

Both sides run as captured graphs of some launches, so that neither's Python call is timed. A turn is a burst of some 20 ms; sides take turns in shuffled
order with rests between, since a GPU at its power limit would favour whoever follows a slow kernel. `ratio` is tec's time over the best peer's by medians
of bursts, `single` that of graphs alone after a rest. `--records FILE` appends what is measured as rows of results (kind "h200").
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import gpu_networks
import gpu_rows

import tec
from benchmarks.records import Maker, four_digits

TURNS = 5
REST_S = 0.04
BURST_MS = 20.0
GRAPH_US, GRAPH_CALLS = 100.0, 20  # a graph holds calls for so long, and at most so many


def say(**fields: Any) -> None:
    print(json.dumps(fields), flush=True)


class Kept:
    """Rows of results, and where they go."""

    file: Path | None = None
    host = ""


def keep(name: str, measure: str, value: float, unit: str, **more: Any) -> None:
    if Kept.file is not None:
        row = Maker("h200", "python benchmarks/gpu.py").on_gpu(
            Kept.host, name, measure, value, unit, target="sm_90a", **more
        )
        with Kept.file.open("a", encoding="utf-8") as f:
            f.write(row.to_json() + "\n")


def failed(name: str, error: Exception, **more: Any) -> None:
    say(name=name, error=f"{type(error).__name__}: {str(error)[:600]}", **more)


# ---- packages


def variants(row: gpu_rows.Row, choices: dict[str, list[Any]]) -> Iterator[tuple[Any, dict[str, Any]]]:
    """(module, choice) of the default and of what is asked for beside it."""
    asked = [None, *(c for start, some in choices.items() if row.name.startswith(start) for c in some)]
    for choice in asked:
        try:
            yield row.build(choice)
        except Exception as error:
            failed(row.name, error, choice=choice)


def pack(to: Path, rows: list[gpu_rows.Row], choices: dict[str, list[Any]]) -> None:
    to.mkdir(parents=True, exist_ok=True)
    made = []
    for k, row in enumerate(rows):
        for v, (module, choice) in enumerate(variants(row, choices)):
            file = f"{k:03}-{v:03}.tecmod"
            module.save(to / file)
            made.append({"row": row.name, "file": file, "choice": choice, "default": v == 0})
    (to / "rows.json").write_text(json.dumps(made, indent=1))


def packed(at: Path, row: gpu_rows.Row) -> Iterator[tuple[Any, dict[str, Any]]]:
    for one in json.loads((at / "rows.json").read_text()):
        if one["row"] == row.name:
            try:
                yield tec.load_module(at / one["file"]), one["choice"]
            except tec.TecError as error:
                failed(row.name, error, choice=one["choice"])


def network_file(at: Path, name: str) -> Path:
    return at / f"{name.replace(' ', '-')}.tecnet"


# ---- runs


def tensor(torch: Any, shape: tuple[int, ...], dtype: str, is_result: bool = False) -> Any:
    """Random numbers as the row's type; a result begins as what no kernel writes."""
    if dtype in ("int8", "int32"):
        if is_result:
            return torch.full(shape, 77, dtype=getattr(torch, dtype), device="cuda")
        return torch.randint(-8, 9, shape, device="cuda", dtype=getattr(torch, dtype))
    kind = (
        torch.float8_e4m3fn
        if dtype == "float8_e4m3"
        else torch.float8_e5m2
        if dtype == "float8_e5m2"
        else getattr(torch, dtype)
    )
    if is_result:
        return torch.full(shape, float("nan"), dtype=torch.float32, device="cuda").to(kind)
    return torch.randn(shape, device="cuda").to(kind)


def array(t: Any, dtype: str) -> Any:
    """The tensor's memory as an array of tec's."""
    if not dtype.startswith("float8"):
        return tec.nd.from_dlpack(t)
    import torch

    a = tec.nd.from_dlpack(t.view(torch.uint8))
    return tec.nd.NDArray(a.storage, a.address, a.shape, dtype, a.strides)


def error_of(torch: Any, got: Any, want: Any) -> float:
    """The largest difference, as a part of the largest value; a block of rows at a time, infinite where something is no number."""
    worst, scale = 0.0, 1e-30
    for g, w in zip(got.reshape(want.shape).split(1024), want.split(1024)):
        g, w = g.double(), w.double()
        if not bool(torch.isfinite(g).all()):
            return float("inf")
        worst, scale = max(worst, float((g - w).abs().max())), max(scale, float(w.abs().max()))
    return worst / scale


def burst_ms(torch: Any, f: Callable[[], Any], number: int) -> float:
    start, stop = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    start.record()
    for _ in range(number):
        f()
    stop.record()
    stop.synchronize()
    return float(start.elapsed_time(stop)) / number


def in_graph(torch: Any, f: Callable[[], Any], times: int, is_ours: bool) -> Callable[[], Any]:
    """A graph of `times` calls, as what replays it."""
    if is_ours:
        with tec.cuda(0).capture() as ours:
            for _ in range(times):
                f()
        return ours.launch
    side, theirs = torch.cuda.Stream(), torch.cuda.CUDAGraph()
    with torch.cuda.stream(side):
        f()
    torch.cuda.synchronize()
    with torch.cuda.graph(theirs):
        for _ in range(times):
            f()
    return theirs.replay


def calls_of_graphs(torch: Any, f: Callable[[], Any]) -> int:
    """How many calls of `f` a captured graph has: one launch of a short kernel takes longer on the host than on the GPU."""
    return max(1, min(GRAPH_CALLS, int(GRAPH_US / max(burst_ms(torch, f, 3) * 1e3, 1.0))))


def captured(
    torch: Any, sides: dict[str, Callable[[], Any]], mine: Sequence[str]
) -> tuple[dict[str, Callable[[], Any]], int]:
    """The sides as graphs of equally many calls, and how many. Raises what a side says that cannot be captured."""
    times = min(calls_of_graphs(torch, f) for f in sides.values())
    return {s: in_graph(torch, f, times, s in mine) for s, f in sides.items()}, times


def race(torch: Any, sides: dict[str, Callable[[], Any]]) -> tuple[dict[str, float], dict[str, float]]:
    """(sustained, single) milliseconds of each side: medians over turns in shuffled order."""
    bursts: dict[str, list[float]] = {s: [] for s in sides}
    alone: dict[str, list[float]] = {s: [] for s in sides}
    counts = {}
    for s, f in sides.items():
        burst_ms(torch, f, 2)
        counts[s] = max(2, min(1000, int(BURST_MS / max(burst_ms(torch, f, 3), 1e-3))))
    order = list(sides)
    for _ in range(TURNS):
        random.shuffle(order)
        for s in order:
            time.sleep(REST_S)
            alone[s].append(burst_ms(torch, sides[s], 1))
            bursts[s].append(burst_ms(torch, sides[s], counts[s]))
    return tuple({s: statistics.median(ms) for s, ms in found.items()} for found in (bursts, alone))  # type: ignore[return-value]


def run_row(torch: Any, row: gpu_rows.Row, modules: Iterator[tuple[Any, dict[str, Any]]]) -> None:
    """Check and time a row; a choice that fails or is wrong is said and left out."""
    torch.manual_seed(0)
    xs = [tensor(torch, shape, dtype) for shape, dtype in row.inputs]
    ins = [array(x, dtype) for x, (_, dtype) in zip(xs, row.inputs)]
    want = row.want(torch, xs)
    sides: dict[str, Callable[[], Any]] = {}
    chosen: dict[str, dict[str, Any]] = {}
    worst = 0.0
    out = tensor(torch, *row.output, is_result=True)
    for k, (module, choice) in enumerate(modules):
        out.copy_(tensor(torch, *row.output, is_result=True))
        result = array(out, row.output[1])
        try:
            torch.cuda.synchronize()
            module(*ins, result)
            tec.cuda(0).sync()
            error = error_of(torch, out, want)
        except tec.TecError as problem:
            failed(row.name, problem, choice=choice)
            if "started again" in str(problem):
                raise
            continue
        if not error <= row.tolerance:
            say(
                name=row.name,
                error=f"wrong by {error:.2e} of the largest value, {row.tolerance} is allowed",
                choice=choice,
            )
            continue
        worst = max(worst, error)
        sides[f"tec {k}"] = lambda f=module, r=result: f(*ins, r)  # type: ignore[misc]
        chosen[f"tec {k}"] = choice
    mine = list(sides)
    other = torch.empty_like(out)
    for name, peer in row.peers.items():
        try:
            f = peer(torch, xs, other)
            f()
            torch.cuda.synchronize()
            sides[name] = f
        except Exception as problem:
            failed(row.name, problem, peer=name)
    if not mine:
        return
    del want
    graphs, times = captured(torch, sides, mine)
    sustained, single = ({s: ms / times for s, ms in found.items()} for found in race(torch, graphs))
    figure = {s: row.amount / ms * 1e3 for s, ms in sustained.items()}
    peers = {s: round(figure[s], 1) for s in sides if s not in chosen}
    best = min((s for s in sides if s not in chosen), key=lambda s: sustained[s], default=None)
    ranked = sorted(mine, key=lambda s: sustained[s])
    more: dict[str, Any] = {}
    if len(mine) > 1:
        more = {
            "choices": [
                {
                    "value": round(figure[s], 1),
                    "ms": round(sustained[s], 4),
                    "single_ms": round(single[s], 4),
                    **chosen[s],
                }
                for s in ranked
            ]
        }
    if best is not None:
        more |= {
            "ratio": round(sustained[mine[0]] / sustained[best], 3),
            "single": round(single[mine[0]] / single[best], 3),
            "best_ratio": round(sustained[ranked[0]] / sustained[best], 3),
        }
        keep(
            row.name, "rate", figure[mine[0]], row.unit, better="more", peer=best, peer_value=four_digits(figure[best]),
            ratio=four_digits(sustained[mine[0]] / sustained[best]), peer_settings="graphs of both sides, bursts in shuffled turns with rests, medians",
        )  # fmt: skip
    say(name=row.name, value=round(figure[mine[0]], 1), unit=row.unit, ms=round(sustained[mine[0]], 4), peers=peers, error=float(f"{worst:.1e}"), choice=chosen[mine[0]], **more)  # fmt: skip


def launches(torch: Any, module: Any) -> None:
    """A call of a built function, a thousand queued ones, and of torch.add; the host's time. And a kernel of a captured graph."""
    dev = tec.cuda(0)
    a, b, c = (tec.nd.empty((1024,), "float32", dev) for _ in range(3))
    s, t, u = (torch.rand(1024, device="cuda") for _ in range(3))
    sides: dict[str, Callable[[], Any]] = {"tec": lambda: module(a, b, c), "torch.add": lambda: torch.add(s, t, out=u)}
    found: dict[str, list[float]] = {x: [] for x in sides}
    for _ in range(9):
        for name, f in sides.items():
            f()
            torch.cuda.synchronize()
            start = time.perf_counter()
            for _ in range(500):
                f()
            found[name].append((time.perf_counter() - start) / 500 * 1e6)
            torch.cuda.synchronize()
    us = {x: statistics.median(v) for x, v in found.items()}
    say(name="launch", value=round(us["tec"], 2), unit="us", peers={"torch.add": round(us["torch.add"], 2)}, ratio=round(us["tec"] / us["torch.add"], 3))  # fmt: skip
    keep(
        "call of a built function", "host time", us["tec"], "us", band=None, peer="torch.add",
        peer_value=four_digits(us["torch.add"]), ratio=four_digits(us["tec"] / us["torch.add"]),
    )  # fmt: skip
    with dev.capture() as graph:
        for _ in range(100):
            module(a, b, c)
    times = []
    for _ in range(20):
        dev.sync()
        start = time.perf_counter()
        graph.launch()
        dev.sync()
        times.append((time.perf_counter() - start) / 100 * 1e6)
    say(name="graph of 100 kernels, a kernel", value=round(statistics.median(times), 3), unit="us")


def gpu_host(torch: Any) -> str:
    """The GPU, its driver and its peer's version, as rows name them."""
    import subprocess

    words = ["nvidia-smi", "--query-gpu=driver_version,power.limit", "--format=csv,noheader,nounits", "--id=0"]
    said = subprocess.run(words, capture_output=True, text=True, check=False).stdout.strip().split(", ")
    driver, watts = said if len(said) == 2 else ("unknown", "?")
    return (
        f"one {torch.cuda.get_device_name()}, driver {driver}, {watts.partition('.')[0]} W, PyTorch {torch.__version__}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--pack", type=Path)
    parser.add_argument("--run", type=Path)
    parser.add_argument("--choices", type=Path)
    parser.add_argument("--records", type=Path)
    args = parser.parse_args()

    def wanted(name: str) -> bool:
        return not args.names or any(name.startswith(n) for n in args.names)

    rows = [r for r in gpu_rows.rows(args.quick) if wanted(r.name)]
    choices = json.loads(args.choices.read_text()) if args.choices else {}
    networks = [n for n in gpu_networks.NAMES if wanted(n) and not args.quick]
    if args.pack:
        pack(args.pack, rows, choices)
        for name in networks:
            gpu_networks.compiled(name).save(network_file(args.pack, name))
        return
    if args.run:
        there = {one["row"] for one in json.loads((args.run / "rows.json").read_text())}
        rows = [r for r in rows if r.name in there]
        networks = [n for n in networks if network_file(args.run, n).exists()]
    import torch

    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = False
    say(device=torch.cuda.get_device_name(), torch=torch.__version__, date=time.strftime("%Y-%m-%d %H:%M"))
    Kept.file, Kept.host = args.records, gpu_host(torch)
    for row in rows:
        modules = packed(args.run, row) if args.run else variants(row, choices)
        try:
            if row.name == gpu_rows.LAUNCH:
                for module, _ in modules:
                    launches(torch, module)
            else:
                run_row(torch, row, modules)
        except Exception as error:
            failed(row.name, error)
        torch.cuda.empty_cache()
    for name in networks:
        try:
            net = tec.load(network_file(args.run, name)) if args.run else gpu_networks.compiled(name)
            gpu_networks.run(torch, name, net, race, say, keep)
        except Exception as error:
            failed(name, error)


if __name__ == "__main__":
    main()
