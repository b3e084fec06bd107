"""KernelBench's problems (ScalingIntelligence/KernelBench, run where they lie) through torch.compile(backend="tec"), beside inductor and eager PyTorch.

    python -m benchmarks.kernelbench FOLDER [--device cpu|cuda] [--levels 1,2] [--seed 1] [--count 60] [--part 0/1] [--megabytes 64] [--seconds 0] [--jobs 1] [--warm]

FOLDER has level1 and level2. Problems are drawn by the seed, each in a process of its own. `batch_size` (or the first size of a problem without one) is halved
until the inputs take at most so many megabytes. The model runs without gradients, float32 without TF32, and with the backend's option "strict": a call
that would be left to torch is a failure. Times are those of whole calls: on a GPU by events around some calls in a row, on the CPU processor time on
one thread; sides take turns. inductor runs with freezing. With `--jobs` so many problems are compiled at once; when all of them are, they are timed one after
another. `--warm` compiles only, so that a later run finds its caches filled. One JSON object a line, and rows of the distribution at the end.
"""

from __future__ import annotations

import argparse
import contextlib
import copy
import json
import math
import os
import random
import re
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.records import ROOT, Maker
from benchmarks.turns import in_turn

LIMIT_S = 240  # of one problem
TOLERANCE = 1e-3  # of the largest value: float32, and sums in another order
AS_EAGER = 8.0  # times the distance of eager's results from float64's, where those of another order are far apart: a mean of what was normalised is nought and noise
_SIZE = r"\d+(?: *\* *\d+)*"  # "2048", "256 * 8"
READY = "compiled"  # what a process says
TURN_S = 1.0  # of turns of all sides
SETTINGS = "torch.compile, default mode, freezing; no gradients; float32 without TF32"


def problems(folder: Path, levels: list[int], seed: int) -> list[Path]:
    found = [p for level in levels for p in sorted((folder / f"level{level}").glob("*.py"))]
    random.Random(seed).shuffle(found)
    return found


def size_names(source: str) -> list[str]:
    """The names of sizes at a problem's top, those of batches first."""
    names = re.findall(rf"^([A-Za-z_]\w*) *= *{_SIZE} *(?:#.*)?$", source, re.M)
    return sorted(names, key=lambda n: (n not in ("batch_size", "batch", "B"), names.index(n)))


def load(path: Path, megabytes: float) -> tuple[Any, list[Any]]:
    """The model and its inputs, with a batch that fits. Raises ValueError for a problem that no batch makes small."""
    import torch

    source = path.read_text("utf-8")
    while True:
        space: dict[str, Any] = {"__name__": "problem"}
        torch.manual_seed(0)
        with torch.device("meta"):
            exec(compile(source, str(path), "exec"), space)  # the benchmark's own file, as its users run it
            given = space["get_inputs"]()
        if sum(x.numel() * x.element_size() for x in given if isinstance(x, torch.Tensor)) <= megabytes * 2**20:
            break
        for name in size_names(source):
            match = re.search(rf"^{name} *= *({_SIZE})", source, re.M)
            now = math.prod(map(int, match[1].split("*"))) if match else 1
            if match and now > 1:
                source = source.replace(match[0], f"{name} = {now // 2}", 1)
                break
        else:
            raise ValueError("no size to halve")
    space = {"__name__": "problem"}
    exec(compile(source, str(path), "exec"), space)
    torch.manual_seed(0)
    model = space["Model"](*space["get_init_inputs"]()).eval()
    return model, space["get_inputs"]()


def one(path: Path, device: str, megabytes: float, is_warm: bool) -> dict[str, Any]:
    import torch
    import torch._inductor.config as inductor

    from tec import TecError

    torch.set_grad_enabled(False)
    torch.set_num_threads(1)
    model, args = load(path, megabytes)
    if device == "cuda":
        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
        model, args = model.cuda(), [a.cuda() if isinstance(a, torch.Tensor) else a for a in args]
    inductor.freezing = True
    want = model(*args)
    row: dict[str, Any] = {}
    start = time.process_time()
    try:
        mine = torch.compile(model, backend="tec", options={"strict": True})
        got = mine(*args)
    except TecError as e:
        return {"failed": str(e)[:400]}
    row["compile_s"] = round(time.process_time() - start, 1)
    row["error"] = error_of(torch, got, want)
    if not row["error"] <= TOLERANCE and not is_as_good(torch, model, args, got, want):
        return {**row, "failed": "wrong"}
    torch._dynamo.reset()  # inductor's own compilation, not a guard that fails
    start = time.process_time()
    sides: dict[str, Callable[[], Any]] = {"tec": lambda: mine(*args), "eager": lambda: model(*args)}
    mine(*args)
    try:
        theirs = torch.compile(model, backend="inductor")
        theirs(*args)
        sides["inductor"] = lambda: theirs(*args)
    except Exception as e:
        row["inductor"] = f"{type(e).__name__}: {str(e)[:200]}"
    row["inductor_compile_s"] = round(time.process_time() - start, 1)
    if is_warm:
        return row
    if device == "cuda":
        torch.cuda.empty_cache()  # others share the device meanwhile
    print(READY, flush=True)
    sys.stdin.readline()  # whoever started this says when the host and the device are this process's alone
    ms = turns(torch, sides, device)
    row |= {f"{s}_ms": round(v, 4) for s, v in ms.items()}
    return {**row, "ratio": round(ms["tec"] / ms.get("inductor", ms["eager"]), 3)}


def is_as_good(torch: Any, model: Any, args: list[Any], got: Any, want: Any) -> bool:
    """Whether results are about as near to those of float64 as eager's are."""
    exact = copy.deepcopy(model).double()(
        *[a.double() if isinstance(a, torch.Tensor) and a.is_floating_point() else a for a in args]
    )
    return distance(torch, got, exact) <= AS_EAGER * distance(torch, want, exact)


def distance(torch: Any, a: Any, b: Any) -> float:
    pairs = list(zip(a, b)) if isinstance(b, (tuple, list)) else [(a, b)]
    return max(float((x.double() - y.double()).abs().max()) if x.numel() else 0.0 for x, y in pairs)


def error_of(torch: Any, got: Any, want: Any) -> float:
    pairs = list(zip(got, want)) if isinstance(want, (tuple, list)) else [(got, want)]
    worst = 0.0
    for a, b in pairs:
        if a.shape != b.shape or a.dtype != b.dtype:
            return float("inf")
        a, b = a.double(), b.double()
        same = torch.isfinite(a) == torch.isfinite(b)
        if not bool(same.all()):
            return float("inf")
        a, b = torch.nan_to_num(a, 0, 0, 0), torch.nan_to_num(b, 0, 0, 0)
        worst = max(worst, float((a - b).abs().max() / b.abs().max().clamp_min(1e-6)) if a.numel() else 0.0)
    return float(f"{worst:.2e}")


def turns(torch: Any, sides: dict[str, Callable[[], Any]], device: str) -> dict[str, float]:
    """Median milliseconds of a call of each side."""
    if device == "cpu":
        start = time.process_time()
        for f in sides.values():
            f()
        rounds = max(5, min(100, int(TURN_S / max(time.process_time() - start, 1e-4))))
        found = in_turn(*sides.values(), rounds=rounds, clock=time.process_time)
        return {s: statistics.median(times) * 1e3 for s, times in zip(sides, found)}

    from benchmarks.gpu import burst_ms

    def burst(f: Callable[[], Any], calls: int) -> float:
        torch.cuda.synchronize()
        return burst_ms(torch, f, calls)

    calls = {s: max(2, min(100, int(20 / max(burst(f, 2), 1e-3)))) for s, f in sides.items()}
    found: dict[str, list[float]] = {s: [] for s in sides}
    for _ in range(7):
        for s in random.sample(list(sides), len(sides)):
            found[s].append(burst(sides[s], calls[s]))
    return {s: statistics.median(v) for s, v in found.items()}


class Problem:
    """A problem in a process of its own, which says when it has compiled, and waits to be told to time."""

    def __init__(self, path: Path, given: argparse.Namespace):
        self.name = f"{path.parent.name}/{path.stem}"
        more = ["--device", given.device, "--megabytes", str(given.megabytes), *(["--warm"] if given.warm else [])]
        command = [sys.executable, "-m", "benchmarks.kernelbench", str(path), "--one", *more]
        env = {**os.environ, "OMP_NUM_THREADS": "1", "TEC_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore"}
        self._errors = tempfile.TemporaryFile("w+")
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(
            command, cwd=ROOT, env=env, stdin=pipe, stdout=pipe, stderr=self._errors, text=True
        )
        self._late = threading.Timer(LIMIT_S, self._process.kill)
        self._late.start()
        self._row: dict[str, Any] | None = None

    def _read(self) -> None:
        """Lines until it has compiled, or to the end."""
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith("{"):
                self._row = json.loads(line)
            elif line.strip() == READY:
                return

    def compiled(self) -> Problem:
        self._read()
        return self

    def row(self) -> dict[str, Any]:
        """Its result: one that waits is told to time."""
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):  # it has ended
            self._process.stdin.write("\n")
            self._process.stdin.close()
        self._read()
        code, is_late = self._process.wait(), not self._late.is_alive()
        self._late.cancel()
        if self._row is not None:
            return {"name": self.name, **self._row}
        if is_late:
            return {"name": self.name, "failed": f"not done after {LIMIT_S} s"}
        self._errors.seek(0)
        lines = self._errors.read().strip().splitlines()
        return {"name": self.name, "failed": f"ended with {code}: {(lines or [''])[-1][:300]}"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--levels", default="1,2")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=60)
    parser.add_argument("--part", default="0/1", help="K/N: every Nth of the drawn problems from the Kth on")
    parser.add_argument("--megabytes", type=float, default=64)
    parser.add_argument("--seconds", type=float, default=0, help="stop drawing after so many; 0: never")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--warm", action="store_true")
    parser.add_argument("--one", action="store_true")
    given = parser.parse_args()
    if given.one:
        print(json.dumps(one(given.folder, given.device, given.megabytes, given.warm)), flush=True)
        return
    drawn = problems(given.folder, [int(n) for n in given.levels.split(",")], given.seed)[: given.count]
    k, n = map(int, given.part.split("/"))
    end = time.monotonic() + given.seconds if given.seconds else float("inf")
    rows: list[dict[str, Any]] = []

    mine = drawn[k::n]
    for first in range(0, len(mine), given.jobs):
        if time.monotonic() > end:
            break
        started = [Problem(path, given) for path in mine[first : first + given.jobs]]
        for problem in [p.compiled() for p in started]:
            rows.append(problem.row())
            print(json.dumps(rows[-1]), flush=True)
    tell(rows, given)


def tell(rows: list[dict[str, Any]], given: argparse.Namespace) -> None:
    """The distribution as rows of results."""
    ratios = sorted(r["ratio"] for r in rows if "ratio" in r)
    make = Maker("torch", f"python -m benchmarks.kernelbench --device {given.device} --seed {given.seed} --count {given.count} --megabytes {given.megabytes:g}")  # fmt: skip
    what = f"{len(rows)} problems of KernelBench's levels {given.levels}"
    more = {"target": "cuda" if given.device == "cuda" else "llvm", "peer": "inductor", "peer_settings": SETTINGS}
    print(make.counted(what, f"{given.device}: failed, wrong or left to torch", sum("failed" in r for r in rows), "problems").to_json())  # fmt: skip
    for label, share in (("median", 0.5), ("90 %", 0.9), ("worst", 1.0)) if ratios else ():
        value = ratios[min(len(ratios) - 1, int(share * len(ratios)))]
        measure = f"time over inductor's, {label} of {len(ratios)}"
        if given.device == "cuda":
            import torch

            row = make.on_gpu(torch.cuda.get_device_name(), what, measure, value, "of the peer's", **more)
        else:
            row = make.clocked(what, measure, value, "of the peer's", **more)
        print(row.to_json(), flush=True)


if __name__ == "__main__":
    main()
