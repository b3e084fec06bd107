"""Networks that nobody named (`unseen_networks`) on one NVIDIA GPU, in float32 and float16: values, and tec's time over a CUDA graph of PyTorch's.

    python -m benchmarks.unseen_gpu --pack DIR [--seed 1] [--count 12] [--batch 1] [--jobs 8]      exports, compiles and (where there is a GPU) runs each once, in processes of their own
    python -m benchmarks.unseen_gpu --time DIR [--seconds 60] [--inductor]             times what is there, or is still being packed, until the seconds are spent

Values are held against float32 on the CPU: TOLERANCE of the largest of an output (HALF_TOLERANCE in float16), or three times PyTorch's own error on the GPU.
Both sides are captured graphs and take turns (`gpu.race`); PyTorch's pictures lie channels last in float16, without torch.compile, or with `--inductor` also
with it (a third side, whose ratio stands beside). One JSON object a line; a network that fails is a line with its error. `--batch`: so many pictures, for networks that take pictures alone; give it to both. Needs what `benchmarks.unseen` needs.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.records import ROOT, Maker
from benchmarks.unseen import TOLERANCE, Case, words, worst

TYPES = ("float32", "float16")
HALF_TOLERANCE = 2e-2  # of the largest value: some hundred roundings of 2^-11 in a row
TARGET = "cuda -arch=sm_90a"
_ALL = "all"  # the file that says that nothing more is packed
LIMIT_S = 200  # of one network's packing


def say(**fields: Any) -> None:
    print(json.dumps(fields), flush=True)


def stem(name: str) -> str:
    return name.replace("/", "+")


def case_of(name: str, seed: int, folder: Path, batch: int) -> Case:
    """The network with so many pictures. Raises NotDrawable for one that takes other things, where more than one is asked for."""
    from benchmarks.unseen_networks import NotDrawable

    case = Case(name, seed, folder)
    if batch > 1:
        if [a.dim() for a in case.args] != [4]:
            raise NotDrawable("it takes no pictures")
        case.args = tuple(case.torch.randn(batch, *a.shape[1:]) for a in case.args)
        case.want = [t.numpy() for t in case.module(*case.args)]
    return case


def on_gpu(case: Case, dtype: str) -> tuple[Any, list[Any]]:
    """PyTorch's module and arguments on the GPU."""
    torch = case.torch
    module, args = case.module.cuda(), [a.cuda() for a in case.args]
    if dtype == "float16":
        module, args = module.half(), [a.half() if a.is_floating_point() else a for a in args]
        if any(a.dim() == 4 for a in args):
            module = module.to(memory_format=torch.channels_last)
            args = [a.to(memory_format=torch.channels_last) if a.dim() == 4 else a for a in args]
    return module, args


def pack(name: str, seed: int, folder: Path, batch: int) -> None:
    """A network's packages, and whether their numbers are right."""
    import tec

    with tempfile.TemporaryDirectory() as work:
        case = case_of(name, seed, Path(work), batch)
        path = case.exported()
        for dtype in TYPES:
            try:
                start = time.process_time()
                net = tec.compile(str(path), TARGET, dtype="float16" if dtype == "float16" else None)
                seconds = time.process_time() - start
                made = folder / f"{stem(name)}.{dtype}.tec"
                # Under its own name once it is whole: packages are timed while others are packed.
                net.save(str(made.with_suffix(".part")))
                made.with_suffix(".part").rename(made)
                if not tec.runtime.cuda_exists():
                    say(name=name, type=dtype, compile_s=round(seconds, 1))
                    continue
                start = time.perf_counter()
                got = [a.numpy() for a in net.executor(tec.cuda(0)).run(feeds(case, net))]
                row = {"compile_s": round(seconds, 1), "load_s": round(time.perf_counter() - start, 1)}
                say(name=name, type=dtype, error=worst(got, case.want), **row)
            except Exception as e:
                say(name=name, type=dtype, failed=words(e))


def feeds(case: Case, net: Any) -> list[Any]:
    import tec

    given = {f"in{k}": t.numpy() for k, t in enumerate(case.args)}
    return [tec.nd.array(given[i["name"]], tec.cuda(0)) for i in net.inputs]


def pack_all(names: Any, count: int, seed: int, folder: Path, jobs: int, batch: int) -> None:
    """Packs networks side by side until `count` of them could be drawn; each in a process, since one that dies is a line."""

    def one(name: str) -> list[dict[str, Any]]:
        command = [
            sys.executable,
            "-m",
            "benchmarks.unseen_gpu",
            "--pack",
            str(folder),
            "--one",
            name,
            "--batch",
            str(batch),
        ]
        env = {**os.environ, "OMP_NUM_THREADS": "1", "TEC_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore"}
        try:
            done = subprocess.run(
                [*command, "--seed", str(seed)], cwd=ROOT, env=env, capture_output=True, text=True, timeout=LIMIT_S
            )
        except subprocess.TimeoutExpired:
            return [{"name": name, "failed": f"not packed after {LIMIT_S} s"}]
        rows = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
        if done.returncode:
            last = done.stderr.strip().splitlines()[-1:] or [""]
            undrawable = "NotDrawable" in last[0] or "No module" in last[0]
            rows.append({"name": name, "no_network" if undrawable else "failed": f"{done.returncode}: {last[0][:300]}"})
        return rows

    drawn = [next(names) for _ in range(2 * count)]
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        for rows in pool.map(one, drawn):
            for row in rows:
                say(**row)
    (folder / _ALL).touch()


def measure(case: Case, dtype: str, package: Path, inductor: bool) -> dict[str, Any]:
    """Values and times of a packed network beside PyTorch's, whose module goes to the GPU, and to float16 for good."""
    import torch

    import tec
    from benchmarks import gpu, gpu_networks

    net = tec.load(str(package))
    executor, xs = net.executor(tec.cuda(0)), feeds(case, net)
    for _ in range(3):
        outs = executor.run(xs)
    error = worst([a.numpy() for a in outs], case.want)
    module, args = on_gpu(case, dtype)
    peer_error = worst([t.float().cpu().numpy() if t.is_floating_point() else t.cpu().numpy() for t in module(*args)], case.want)  # fmt: skip
    # Random weights can make more of each rounding than of the picture: then PyTorch's two devices differ as much.
    allowed = max(TOLERANCE if dtype == "float32" else HALF_TOLERANCE, 3 * peer_error)
    engine = executor._engine
    ((binding, bound),) = engine._bound.values()
    sides = {"tec": bound.graph.launch, "torch": torch_graph(torch, module, args).replay}
    if inductor:
        torch._dynamo.reset()
        sides["inductor"] = torch_graph(torch, torch.compile(module), args).replay
    sustained, _ = gpu.race(torch, sides)
    row = {
        "us": round(sustained["tec"] * 1e3, 1), "torch_us": round(sustained["torch"] * 1e3, 1), "error": error, "torch_error": peer_error,
        "ratio": round(sustained["tec"] / sustained["torch"], 3), "kernels": len(engine.plan.flat), **({} if error <= allowed else {"wrong": True}),
    }  # fmt: skip
    if inductor:
        row |= {"to_inductor": round(sustained["tec"] / sustained["inductor"], 3)}
    if max(row["ratio"], row.get("to_inductor", 0.0)) > 1.0:
        slow = gpu_networks.slowest(engine.calls(binding))[:6]
        row["slowest"] = [
            (f, n, round(us, 1), net.report.functions.get(f), str(net.report.choices.get(f))) for f, n, us in slow
        ]
    return row


def torch_graph(torch: Any, module: Any, args: list[Any]) -> Any:
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        for _ in range(3):
            module(*args)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        module(*args)
    return graph


def packed(folder: Path, end: float) -> Iterator[tuple[str, dict[str, Path]]]:
    """Networks and their packages by type, in the order in which they were packed; waits for more until the end. A package goes once it was given: who starts
    again after a network that broke the GPU's context goes on behind it."""
    while time.monotonic() < end:
        done = (folder / _ALL).exists()
        made = sorted(folder.glob("*.tec"), key=lambda p: p.stat().st_mtime)
        # A network's last type is packed last.
        name = next((p.name.removesuffix(".tec").rsplit(".", 1)[0] for p in made if done or p.name.endswith(f".{TYPES[-1]}.tec")), "")  # fmt: skip
        if name:
            packages = {t: p for t in TYPES if (p := folder / f"{name}.{t}.tec").exists()}
            taken = {t: p.rename(p.with_suffix(".taken")) for t, p in packages.items()}
            yield name.replace("+", "/"), taken
            for p in taken.values():
                p.unlink()
        elif done:
            return
        else:
            time.sleep(0.2)


def time_all(folder: Path, seed: int, limit: float, batch: int, inductor: bool) -> None:
    import torch

    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    torch.backends.cudnn.benchmark = True
    ratios: dict[str, list[float]] = {t: [] for t in TYPES}
    for name, packages in packed(folder, time.monotonic() + limit):
        with tempfile.TemporaryDirectory() as work:
            case = case_of(name, seed, Path(work), batch)
        for dtype, package in packages.items():
            try:
                row = measure(case, dtype, package, inductor)
                ratios[dtype].append(row["ratio"])
            except Exception as e:
                row = {"failed": words(e)}
            say(name=name, type=dtype, **row)
            if "started again" in row.get("failed", ""):  # this process has lost the GPU
                return
    make = Maker("network", f"python -m benchmarks.unseen_gpu --seed {seed} --batch {batch}")
    for dtype, found in ratios.items():
        for label, share in (("median", 0.5), ("90 %", 0.9), ("worst", 1.0)) if len(found) > 1 else ():
            value = sorted(found)[min(len(found) - 1, int(share * len(found)))]
            row = make.on_gpu(
                torch.cuda.get_device_name(), f"{len(found)} drawn networks {dtype}, batch {batch}", f"time over PyTorch's, {label}", value, "of the peer's",
                target="sm_90a", peer="PyTorch", peer_settings="a captured CUDA graph of eager PyTorch, cudnn.benchmark; float16 channels last",
            )  # fmt: skip
            print(row.to_json(), flush=True)
    say(medians={t: statistics.median(r) for t, r in ratios.items() if r})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pack", type=Path)
    parser.add_argument("--time", type=Path)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=12)
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--inductor", action="store_true")
    parser.add_argument("--one", default="")
    given = parser.parse_args()
    if given.pack:
        given.pack.mkdir(parents=True, exist_ok=True)
    if given.one:
        pack(given.one, given.seed, given.pack, given.batch)
    elif given.pack:
        from benchmarks.unseen_networks import draw

        pack_all(draw(given.seed), given.count, given.seed, given.pack, given.jobs, given.batch)
    elif given.time:
        time_all(given.time, given.seed, given.seconds, given.batch, given.inductor)
    else:
        parser.error("--pack DIR or --time DIR")


if __name__ == "__main__":
    main()
