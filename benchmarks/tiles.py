"""Kernels over tiles (`tile_kernels`) on the NVIDIA GPU at hand: the same text compiled by `tec.tile` and by Triton, of each the best of the same configurations, and PyTorch's results.

    python -m benchmarks.tiles

Both sides run as captured graphs of several launches, in turn; a row's value is the median microseconds of a launch.
"""

from __future__ import annotations

import itertools
import json
import statistics
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROUNDS, LAUNCHES = 7, 10
TEXT = Path(__file__).with_name("tile_kernels.py").read_text("utf-8")


def _kernels(import_: str, jit: str, folder: str) -> dict[str, Any]:
    """The kernels with other words behind `tl`; they read their own source, so it lies in a file."""
    text = TEXT.replace("import tec.tile as tl", import_).replace("@tl.jit", jit)
    path = Path(folder) / f"kernels_{jit.strip('@').partition('.')[0]}.py"
    path.write_text(text, "utf-8")
    names: dict[str, Any] = {"__name__": path.stem, "__file__": str(path)}
    exec(compile(text, str(path), "exec"), names)
    return names


def _graph(torch: Any, launch: Callable[[], Any]) -> Callable[[], None]:
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        launch()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(LAUNCHES):
            launch()
    return lambda: graph.replay()


def _tec_graph(device: Any, launch: Callable[[], Any]) -> Callable[[], None]:
    launch()
    device.sync()
    with device.capture() as graph:
        for _ in range(LAUNCHES):
            launch()
    return lambda: graph.launch()


def _us(torch: Any, run: Callable[[], None]) -> float:
    """Microseconds of a launch of the graph."""
    torch.cuda.synchronize()
    start, stop = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    start.record()
    run()
    stop.record()
    torch.cuda.synchronize()
    return float(start.elapsed_time(stop)) * 1e3 / LAUNCHES


def _best(torch: Any, made: dict[str, Callable[[], None]]) -> tuple[str, Callable[[], None]]:
    times = {}
    for name, run in made.items():
        _us(torch, run)
        times[name] = min(_us(torch, run) for _ in range(3))
    name = min(times, key=lambda n: times[n])
    return name, made[name]


def _compare(what: str, sides: dict[str, dict[str, Callable[[], None]]], torch: Any, errors: dict[str, float]) -> None:
    best = {side: _best(torch, made) for side, made in sides.items() if made}
    times: dict[str, list[float]] = {side: [] for side in best}
    for _ in range(ROUNDS):
        for side, (_, run) in best.items():
            times[side].append(_us(torch, run))
    us = {side: statistics.median(t) for side, t in times.items()}
    row = {
        "name": what,
        "value": round(us["tec"], 2),
        "unit": "us",
        "peer": "Triton",
        "peer_value": round(us["triton"], 2),
        "ratio": round(us["tec"] / us["triton"], 3),
    }
    print(
        json.dumps(
            row | {"configuration": best["tec"][0], "peer_configuration": best["triton"][0], "largest error": errors}
        ),
        flush=True,
    )


def _try(made: dict[str, Callable[[], None]], name: str, make: Callable[[], Callable[[], None]]) -> None:
    try:
        made[name] = make()
    except Exception as error:
        print(
            json.dumps({"name": name, "refused": f"{type(error).__name__}: {str(error).splitlines()[0][:200]}"}),
            flush=True,
        )


def main() -> None:
    import torch

    import tec

    device = tec.cuda(0)
    with tempfile.TemporaryDirectory() as folder:
        ours = _kernels("import tec.tile as tl", "@tl.jit", folder)
        theirs = _kernels("import triton\nimport triton.language as tl", "@triton.jit", folder)

        def both(
            what: str,
            name: str,
            grid: Callable[[dict[str, int]], tuple[int, ...]],
            arrays: list[Any],
            numbers: list[Any],
            configs: list[dict[str, int]],
            expected: Any,
        ) -> None:
            sides: dict[str, dict[str, Callable[[], None]]] = {"tec": {}, "triton": {}}
            mine = [tec.nd.from_dlpack(a) for a in arrays]
            out = arrays[-1]
            errors = {}
            for config in configs:
                label = " ".join(f"{k}={v}" for k, v in config.items())

                def run_tec(config: dict[str, int] = config) -> None:
                    ours[name][grid(config)](*mine, *numbers, **config)

                def run_triton(config: dict[str, int] = config) -> None:
                    theirs[name][grid(config)](*arrays, *numbers, **config)

                _try(sides["tec"], f"{what} tec {label}", lambda run=run_tec: _tec_graph(device, run))
                errors["tec"] = max(errors.get("tec", 0.0), float((out.float() - expected).abs().max()))
                _try(sides["triton"], f"{what} triton {label}", lambda run=run_triton: _graph(torch, run))
                errors["triton"] = max(errors.get("triton", 0.0), float((out.float() - expected).abs().max()))
            _compare(what, sides, torch, errors)

        for n in (1024, 4096, 8192):
            a, b = (torch.randn(n, n, device="cuda", dtype=torch.float16) for _ in range(2))
            out = torch.zeros_like(a)
            tiles = ((128, 128, 4), (128, 128, 8), (128, 64, 4), (64, 64, 4), (128, 256, 8))
            configs = [
                {"BM": bm, "BN": bn, "BK": 64, "GROUP": 8, "num_warps": w, "num_stages": s}
                for (bm, bn, w), s in itertools.product(tiles, (3, 4))
            ]
            both(
                f"matmul f16 {n}",
                "matmul",
                lambda c, n=n: ((n // c["BM"]) * (n // c["BN"]),),
                [a, b, out],
                [n, n, n],
                configs,
                (a @ b).float(),
            )
        for rows, columns in ((4096, 1024), (4096, 16384)):
            x = torch.randn(rows, columns, device="cuda")
            configs = [{"BLOCK": columns, "num_warps": w} for w in (4, 8, 16)]
            both(
                f"softmax f32 {rows} x {columns}",
                "softmax",
                lambda c, rows=rows: (rows,),
                [x, torch.zeros_like(x)],
                [columns],
                configs,
                torch.softmax(x, -1),
            )
        for n, d in ((2048, 64), (2048, 128)):
            q, k, v = (torch.randn(32, n, d, device="cuda", dtype=torch.float16) for _ in range(3))
            expected = torch.nn.functional.scaled_dot_product_attention(q, k, v).float()
            configs = [
                {"BM": bm, "BN": bn, "D": d, "num_warps": w, "num_stages": s}
                for (bm, bn, w), s in itertools.product(
                    ((64, 64, 4), (64, 128, 4), (128, 64, 4), (128, 64, 8), (128, 128, 8)), (2, 3)
                )
            ]
            both(
                f"attention f16 32 heads, {n} x {d}",
                "attention",
                lambda c, n=n: (n // c["BM"], 32),
                [q, k, v, torch.zeros_like(q)],
                [n, d**-0.5 * 1.44269504],
                configs,
                expected,
            )


if __name__ == "__main__":
    main()
