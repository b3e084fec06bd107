"""A Llama of 4 layers (2048, 8192) in float16 split over NVIDIA GPUs by tensor parallel, beside the same split in PyTorch as a CUDA graph: a decode step behind
1,024 tokens, and a prefill of 8 x 1,024.

    python -m benchmarks.shard --compile FOLDER [--ranks 2] [--ptxas PATH]        anywhere: code without weights, some megabytes
    NCCL_NVLS_ENABLE=0 python -m benchmarks.shard --code FOLDER [--ranks 2]       where the GPUs are; needs PyTorch

A process a rank; weights are drawn on the GPU. Logits are held against those of one GPU (tec's and PyTorch's). Both sides keep their part of the logits. tec and
PyTorch run in turn; a time is the median of the slowest rank's. `--ptxas`: with it the code is machine code already, and no driver compiles it.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import numpy as np

import tec
from benchmarks import shard_model as model
from benchmarks.ranks import of_all
from tec.graph.compiler import compile_graphs
from tec.graph.deferred import Deferred
from tec.runtime.modules.module import Module
from tec.runtime.modules.package import read_package, write_package
from tec.runtime.networks.network import Network
from tec.runtime.networks.report import Report
from tec.runtime.plans.plan import Plan
from tec.sharding.network import rank_graphs
from tec.sharding.rules import Rules, names_of
from tec.sharding.step_time import step_time
from tec.target import Target

ADDRESS, TORCH_ADDRESS = "127.0.0.1:29631", "tcp://127.0.0.1:29641"
KINDS = ("decode", "prefill")
ROUNDS = 7
CALLS = {"decode": 40, "prefill": 4}  # in a block: some 10 to 50 ms
MOST_APART = 0.02  # logits of float16 weights, of the largest one: rounding leaves 0.001 over two GPUs
TIMEOUT_SECONDS = 40.0
_KIND = "sharded code"


# ---- code


def compile_code(folder: Path, ranks: int, ptxas: str | None, arch: str) -> None:
    """Both kinds for one GPU and for the ranks, a package each."""
    folder.mkdir(parents=True, exist_ok=True)
    target = Target(f"cuda -arch={arch}")
    for kind in KINDS:
        for n in sorted({1, ranks}):
            start = time.perf_counter()
            networks, told = _networks(kind, n, target)
            begin = time.perf_counter()
            cubin = _assembled(networks[0].module, ptxas, arch) if ptxas else 0
            nbytes = _write(folder / f"{kind}{n}.tec", networks, told)
            print(
                f"{kind} over {n}: {len(networks[0].plan.steps)} steps, {len(networks[0].plan.exchanges)} collectives, compiled in {begin - start:.1f} s"
                + (f", {cubin} bytes of machine code in {time.perf_counter() - begin:.1f} s" if ptxas else "")
                + f", {nbytes / 1e6:.1f} MB; modelled: {told['modelled']}",
                flush=True,
            )


def _networks(kind: str, n: int, target: Target) -> tuple[list[Network], dict[str, Any]]:
    graph, _ = model.graph_of(kind, n, target)
    state = dict(graph.state)
    mesh = tec.Mesh({"t": n})
    names = names_of(graph)
    rules = {p: r for p, r in model.RULES.items() if any(fnmatchcase(name, p) for name in names)}
    graphs, notes, _ = rank_graphs(graph, mesh, Rules(rules, mesh))
    if notes:
        assert not notes["t"].replicated, notes["t"].replicated
    networks = compile_graphs(graphs, target, state=state)
    sizes = {"past": model.PAST} if kind == "decode" else {}
    modelled = step_time(networks[0], None, sizes)
    return networks, {
        "modelled": str(modelled),
        "modelled_us": modelled.total_us,
        "collectives_us": modelled.collectives_us,
    }


def _assembled(module: Module, ptxas: str, arch: str) -> int:
    """Machine code in place of PTX; its bytes."""
    device = module.imported_modules[0]
    with tempfile.TemporaryDirectory() as place:
        source, made = Path(place, "code.ptx"), Path(place, "code.cubin")
        source.write_bytes(device.image.rstrip(b"\0"))
        subprocess.run([ptxas, f"-arch={arch}", "-O3", str(source), "-o", str(made)], check=True)
        device.image = made.read_bytes()
    return len(device.image)


def _write(path: Path, networks: list[Network], told: dict[str, Any]) -> int:
    blobs: dict[str, bytes] = {}
    module = networks[0].module.to_data(blobs, unmade=False)
    small = {
        f"{r}.{n}": v for r, net in enumerate(networks) for n, v in net.params.items() if not isinstance(v, Deferred)
    }
    # Weights come by their names (`local_weights`).
    assert not any(n.endswith("weight") for n in small), "a weight became a constant"
    meta = {"module": module, "plans": [n.plan.to_json() for n in networks], "told": told}
    write_package(path, _KIND, meta, blobs, small, durable=False)
    return path.stat().st_size


def read_network(path: Path, rank: int, weights: dict[str, Any]) -> tuple[Network, dict[str, Any]]:
    """A rank's network with its weights, and what was told of it."""
    with read_package(path, _KIND) as package:
        meta = package.meta
        plan, module = Plan.from_json(meta["plans"][rank]), Module.from_data(meta["module"], package.blob)
        own = {n.partition(".")[2]: package.array(n) for n in package.array_names if n.startswith(f"{rank}.")}
    deferred = {n: v for n, v in plan.values.items() if v.place == "param" and n not in own}
    params = own | {n: Deferred.of(v.dtype, [d for d in v.shape if isinstance(d, int)]) for n, v in deferred.items()}
    net = Network(module, plan, params, Report())
    net.provide({n: np.ascontiguousarray(weights[n]).reshape(params[n].shape) for n in deferred})
    return net, meta["told"]


# ---- a rank


def _drawn(torch: Any) -> dict[str, Any]:
    """All weights, whole, on this rank's GPU: the same numbers on every GPU of a kind."""
    made = {}
    for k, (name, shape) in enumerate(model.shapes()):
        generator = torch.Generator("cuda").manual_seed(k)
        w = torch.randn(shape, generator=generator, device="cuda", dtype=torch.float32)
        made[name] = 1 + 0.1 * w if len(shape) == 1 else (w * shape[1] ** -0.5).half()
    return made


class _Side:
    """One library's two networks on this rank: `run[kind]()` runs one and waits for it; `logits[kind]` are the last ones, [rows, columns]."""

    def __init__(self) -> None:
        self.run: dict[str, Callable[[], Any]] = {}
        self.logits: dict[str, Any] = {}


class _Tec(_Side):
    def __init__(
        self, code: Path, rank: int, ranks: int, inputs: dict[str, Any], weights: dict[str, Any], comm: Any, device: Any
    ):
        super().__init__()
        self.told: dict[str, Any] = {}
        for kind in KINDS:
            net, self.told[kind] = read_network(code / f"{kind}{ranks}.tec", rank, weights)
            executor = net.executor(
                device,
                capacity=model.PAST + 64 if kind == "decode" else None,
                communicators={"t": comm} if comm else None,
            )
            self.run[kind] = self._runner(kind, executor, inputs, device)

    def _runner(self, kind: str, executor: Any, inputs: dict[str, Any], device: Any) -> Callable[[], Any]:
        x = tec.nd.array(inputs[kind], device)
        if kind == "decode":
            executor.run({"embeddings": x, **inputs["past"]})  # what the text is before

        def run() -> None:
            if kind == "decode":
                executor.truncate(model.PAST)
            self.logits[kind] = executor.run({"embeddings": x})[0]

        return run


class _Torch(_Side):
    def __init__(self, torch: Any, ranks: int, inputs: dict[str, Any], weights: dict[str, Any], reduce: Any):
        super().__init__()
        llama = model.TorchLlama(weights, ranks, reduce)
        xs = {k: torch.from_numpy(inputs[k]).cuda() for k in KINDS}
        caches = []
        for k in range(model.LAYERS):
            pair = []
            for what in ("key", "value"):
                past = torch.from_numpy(inputs["past"][f"past.{k}.{what}"]).cuda()
                pair.append(torch.cat([past, torch.zeros_like(past[:, :, :1])], 2))
            caches.append(pair)
        calls = {
            "decode": lambda: llama.run(xs["decode"], 1, model.PAST, caches),
            "prefill": lambda: llama.run(xs["prefill"], model.TEXTS),
        }
        for kind, call in calls.items():
            self.run[kind] = self._captured(torch, kind, call)

    def _captured(self, torch: Any, kind: str, call: Callable[[], Any]) -> Callable[[], Any]:
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream), torch.no_grad():
            for _ in range(3):
                call()
        torch.cuda.current_stream().wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph), torch.no_grad():
            self.logits[kind] = call()

        def run() -> None:
            graph.replay()
            torch.cuda.synchronize()

        return run


def _inputs(rank: int, ranks: int) -> dict[str, Any]:
    rng = np.random.default_rng(7)
    made: dict[str, Any] = {
        "decode": rng.standard_normal((1, model.HIDDEN)).astype("float16"),
        "prefill": rng.standard_normal((model.TEXTS * model.TOKENS, model.HIDDEN), np.float32).astype("float16"),
    }
    size, past = model.KV_HEADS // ranks, {}
    for k in range(model.LAYERS):
        for what in ("key", "value"):
            whole = rng.standard_normal((1, model.KV_HEADS, model.PAST, model.SIZE), np.float32).astype("float16")
            past[f"past.{k}.{what}"] = np.ascontiguousarray(whole[:, rank * size : (rank + 1) * size])
    return made | {"past": past}


def _rank(rank: int, ranks: int, code: Path, results: Any) -> None:
    import torch
    import torch.distributed as dist

    begin = time.perf_counter()
    stages: dict[str, float] = {}

    def done(what: str) -> None:
        stages[what] = round(time.perf_counter() - begin, 2)
        print(f"rank {rank}: {what} after {stages[what]} s", file=sys.stderr, flush=True)

    torch.cuda.set_device(rank)
    device = tec.cuda(rank)
    dist.init_process_group("nccl", init_method=TORCH_ADDRESS, rank=rank, world_size=ranks)
    dist.all_reduce(torch.zeros(1, device="cuda"))
    comm = tec.collectives.connect(rank, ranks, ADDRESS, device=device, timeout_s=TIMEOUT_SECONDS)
    done("connected")
    whole, cat = _drawn(torch), torch.cat
    inputs = _inputs(rank, ranks)
    own = model.local_weights(whole, rank, ranks, cat)
    ours = _Tec(code, rank, ranks, inputs, {n: w.cpu().numpy() for n, w in own.items()}, comm, device)
    theirs = _Torch(torch, ranks, inputs, {n: w.contiguous() for n, w in own.items()}, dist.all_reduce)
    sides = {"tec": ours, "torch": theirs}
    done("loaded")
    for kind in KINDS:
        for side in sides.values():
            for _ in range(3):
                side.run[kind]()
    done("warm")
    times: dict[str, dict[str, list[float]]] = {k: {s: [] for s in sides} for k in KINDS}
    for _ in range(ROUNDS):
        for kind in KINDS:
            for name, side in sides.items():
                comm.barrier()
                start = time.perf_counter()
                for _ in range(CALLS[kind]):
                    side.run[kind]()
                times[kind][name].append((time.perf_counter() - start) / CALLS[kind] * 1e6)
    done("timed")
    parts = {k: {"tec": ours.logits[k].numpy(), "torch": theirs.logits[k].cpu().numpy()} for k in KINDS}
    singles = _one_gpu(torch, code, whole, cat, device) if rank == 0 else None
    done("one GPU")
    results.put((rank, times, parts, singles, ours.told, stages))
    comm.barrier()
    dist.destroy_process_group()
    comm.close()


def _one_gpu(torch: Any, code: Path, whole: dict[str, Any], cat: Any, device: Any) -> dict[str, Any]:
    """Logits and times of one GPU, of both sides."""
    inputs, weights = _inputs(0, 1), model.local_weights(whole, 0, 1, cat)
    ours = _Tec(code, 0, 1, inputs, {n: w.cpu().numpy() for n, w in weights.items()}, None, device)
    theirs = _Torch(torch, 1, inputs, weights, lambda y: y)
    found: dict[str, Any] = {}
    for kind in KINDS:
        found[kind] = {}
        for name, side in (("tec", ours), ("torch", theirs)):
            took = []
            for _ in range(3 + ROUNDS):
                start = time.perf_counter()
                for _ in range(CALLS[kind] // 4):
                    side.run[kind]()
                took.append((time.perf_counter() - start) / (CALLS[kind] // 4) * 1e6)
            logits = side.logits[kind]
            found[kind][name] = statistics.median(took[3:]), logits.numpy() if name == "tec" else logits.cpu().numpy()
    return found


# ---- all


def measure(code: Path, ranks: int) -> None:
    found = of_all(_rank, ranks, code, timeout_s=75)
    singles, told = found[0][3], found[0][4]
    wrong: list[str] = []
    for kind in KINDS:
        slowest = {
            side: statistics.median(max(f[1][kind][side][k] for f in found) for k in range(ROUNDS))
            for side in ("tec", "torch")
        }
        whole = {side: np.concatenate([f[2][kind][side] for f in found], 1) for side in ("tec", "torch")}
        one, peer = singles[kind]["tec"], singles[kind]["torch"]
        scale = float(np.abs(peer[1]).max())
        apart = {
            "tec's from its own on one GPU": float(np.abs(whole["tec"] - one[1]).max()) / scale,
            "tec's from torch's on one GPU": float(np.abs(whole["tec"] - peer[1]).max()) / scale,
            "torch's from torch's on one GPU": float(np.abs(whole["torch"] - peer[1]).max()) / scale,
        }
        row = {
            "name": f"Llama of 4 layers, {kind}, {ranks} GPUs", "value": round(slowest["tec"], 1), "unit": "us", "peer": "torch, tensor parallel in a CUDA graph",
            "peer_value": round(slowest["torch"], 1), "ratio": round(slowest["tec"] / slowest["torch"], 3), "one_gpu_us": round(one[0], 1),
            "peer_one_gpu_us": round(peer[0], 1), "modelled_us": round(told[kind]["modelled_us"], 1), "modelled_collectives_us": round(told[kind]["collectives_us"], 1),
            "logits_apart": {k: f"{v:.1e}" for k, v in apart.items()}, "largest_logit": round(scale, 2),
        }  # fmt: skip
        print(json.dumps(row), flush=True)
        wrong += [f"{kind}: {k} by {v:.1e}" for k, v in apart.items() if not v < MOST_APART]
    print(json.dumps({"name": "seconds of a rank until", **found[0][5]}))
    if wrong:
        raise SystemExit(f"logits lie apart, of the largest one: {'; '.join(wrong)}")


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])  # type: ignore[union-attr]
    options.add_argument("--compile", type=Path, metavar="FOLDER")
    options.add_argument("--code", type=Path, metavar="FOLDER")
    options.add_argument("--ranks", type=int, default=2)
    options.add_argument("--ptxas", help="the program, of the CUDA toolkit or the wheel nvidia-cuda-nvcc")
    options.add_argument("--arch", default="sm_90a")
    args = options.parse_args()
    if args.compile is not None:
        compile_code(args.compile, args.ranks, args.ptxas, args.arch)
    if args.code is not None:
        measure(args.code, args.ranks)


if __name__ == "__main__":
    main()
