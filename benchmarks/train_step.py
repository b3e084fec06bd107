"""Training steps of a small transformer split by the batch over NVIDIA GPUs, beside PyTorch's DistributedDataParallel: 20 steps of gradient descent in float32.

    python -m benchmarks.train_step --compile FOLDER [--ranks 2]                    anywhere
    NCCL_NVLS_ENABLE=0 python -m benchmarks.train_step --code FOLDER [--ranks 2]    where the GPUs are; needs PyTorch

A process a rank. Both sides begin with the same weights and take the same tokens; after the steps the weights of all ranks are held against those of one GPU
(tec's) and PyTorch's. A time is the median over rounds of the slowest rank's; sides run in turn. PyTorch: eager, and with torch.compile, products in float32
(no TF32) on both sides.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import tec
from benchmarks.ranks import of_all
from tec.graph import Graph, Value
from tec.graph.builders import Builder
from tec.graph.builders.matmul import matmul
from tec.sharding import PartitionSpec as P
from tec.target import Target

ADDRESS, TORCH_ADDRESS = "127.0.0.1:29651", "tcp://127.0.0.1:29661"
LAYERS, WIDTH, HEADS, FEED, VOCABULARY, TOKENS = 4, 256, 4, 1024, 1024, 128
TEXTS = 16  # a rank
RATE = 0.1
STEPS, ROUNDS, CALLS = 20, 7, 10
TIMEOUT_SECONDS = 40.0


def shapes() -> dict[str, tuple[int, ...]]:
    """The weights in order. Products take them as [in, out]."""
    made: dict[str, tuple[int, ...]] = {"embed": (VOCABULARY, WIDTH), "places": (TOKENS, WIDTH)}
    for k in range(LAYERS):
        for norm in ("n1", "n2"):
            made |= {f"{k}.{norm}.gain": (WIDTH,), f"{k}.{norm}.bias": (WIDTH,)}
        sides = dict.fromkeys(("q", "k", "v", "o"), (WIDTH, WIDTH)) | {"up": (WIDTH, FEED), "down": (FEED, WIDTH)}
        for name, (rows, columns) in sides.items():
            made |= {f"{k}.{name}.weight": (rows, columns), f"{k}.{name}.bias": (columns,)}
    return made | {"head": (WIDTH, VOCABULARY)}


def drawn() -> dict[str, np.ndarray[Any, Any]]:
    """First weights."""
    rng = np.random.default_rng(1)
    made = {}
    for name, shape in shapes().items():
        w = rng.standard_normal(shape, np.float32)
        made[name] = 1 + 0.02 * w if name.endswith("gain") else 0.05 * w
    return made


def texts(step: int, ranks: int) -> dict[str, np.ndarray[Any, Any]]:
    """The whole batch of a step: tokens, and those that follow them."""
    rng = np.random.default_rng(100 + step)
    whole = rng.integers(0, VOCABULARY, (TEXTS * ranks, TOKENS + 1))
    return {"tokens": np.ascontiguousarray(whole[:, :-1]), "wanted": np.ascontiguousarray(whole[:, 1:])}


# ---- tec's side


def step_of(batch: int) -> Graph:
    """A step of gradient descent: loss and new weights, which are states."""
    g = Graph("step")
    b = Builder(g)
    tokens, wanted = g.input("tokens", "int64", (batch, TOKENS)), g.input("wanted", "int64", (batch, TOKENS))
    w = {name: g.input(name, "float32", shape) for name, shape in shapes().items()}

    def norm(x: Value, name: str) -> Value:
        flat = b.ops("layer_norm", x, axis=2, epsilon=1e-5)[0]
        return b.op("add", b.op("multiply", flat, w[f"{name}.gain"]), w[f"{name}.bias"])

    def linear(x: Value, name: str) -> Value:
        return b.op("add", matmul(b, x, w[f"{name}.weight"]), w[f"{name}.bias"])

    x = b.op("add", b.op("gather", w["embed"], tokens, axis=0), w["places"])
    size = WIDTH // HEADS
    for k in range(LAYERS):
        y = norm(x, f"{k}.n1")
        sides = [b.reshape(linear(y, f"{k}.{n}"), (batch, TOKENS, HEADS, size)) for n in "qkv"]
        queries, keys, values = (b.transpose(s, (0, 2, 1, 3)) for s in sides)
        scores = b.op("matmul", queries, b.transpose(keys, (0, 1, 3, 2)))
        weights = b.op("softmax", b.op("multiply", scores, b.like(size**-0.5, scores)), axes=(3,))
        mixed = b.transpose(b.op("matmul", weights, values), (0, 2, 1, 3))
        x = b.op("add", x, linear(b.reshape(mixed, (batch, TOKENS, WIDTH)), f"{k}.o"))
        y = b.op("gelu", linear(norm(x, f"{k}.n2"), f"{k}.up"))
        x = b.op("add", x, linear(y, f"{k}.down"))
    likely = b.op("log_softmax", matmul(b, x, w["head"]), axes=(2,))
    digits = g.constant(np.arange(VOCABULARY), "digits")
    right = b.cast(b.op("equal", b.unsqueeze(wanted, 2), digits), "float32")
    chosen = b.op("reduce_sum", b.op("multiply", likely, right), axes=(2,), keepdims=False)
    g.set_outputs([b.op("neg", b.op("reduce_mean", chosen, axes=(0, 1), keepdims=False))], ["loss"])
    step = tec.grad(g, list(w), output="loss")
    b, made, inputs = Builder(step), dict(zip(step.output_names, step.outputs)), {v.name: v for v in step.inputs}
    rate = b.like(RATE, inputs["embed"])
    new = [b.op("subtract", inputs[n], b.op("multiply", made[f"grad_{n}"], rate)) for n in w]
    step.set_outputs([step.outputs[0], *new], ["loss", *(f"new_{n}" for n in w)])
    step.state = {n: f"new_{n}" for n in w}
    return step


def compile_code(folder: Path, ranks: int, target: str) -> None:
    """For one GPU, and for the ranks."""
    folder.mkdir(parents=True, exist_ok=True)
    step = step_of(TEXTS * ranks)
    start = time.perf_counter()
    net = tec.shard(step, tec.Mesh({"data": ranks}), {"tokens": P("data"), "wanted": P("data")}, target)
    plan = net.network().plan
    print(
        f"over {ranks}: {len(plan.steps)} steps, {len(plan.exchanges)} collectives, {time.perf_counter() - start:.1f} s"
    )
    if Target(target).is_gpu:
        print(f"modelled: {net.report()}", flush=True)
    net.save(folder / f"ranks{ranks}")
    tec.compile(step, target, state=step.state).save(folder / f"one{ranks}.tec")


class _Tec:
    def __init__(self, executor: Any, part: Callable[[np.ndarray[Any, Any]], np.ndarray[Any, Any]], device: Any):
        self.executor, self.part, self.device = executor, part, device
        self.first: dict[str, Any] | None = dict(drawn())
        self.loss: Any = None
        self.job: Any = None

    def feed(self, whole: dict[str, np.ndarray[Any, Any]]) -> dict[str, Any]:
        return {n: tec.nd.array(np.ascontiguousarray(self.part(x)), self.device) for n, x in whole.items()}

    def step(self, feed: dict[str, Any]) -> None:
        first, self.first = self.first or {}, None
        self.job = self.executor.launch(feed | first)

    def wait(self) -> None:
        self.loss = self.job.sync()[0]

    def weights(self) -> dict[str, np.ndarray[Any, Any]]:
        return {n: a.numpy() for n, a in self.executor.state.items()}


class _Torch:
    def __init__(self, torch: Any, rank: int, ranks: int, compiled: bool):
        from torch.nn import functional as F

        class Transformer(torch.nn.Module):  # type: ignore[misc]
            def __init__(self) -> None:
                super().__init__()
                for name, w in drawn().items():
                    # [out, in] as torch.nn.Linear has them.
                    own = w.T.copy() if name.endswith("weight") or name == "head" else w
                    self.register_parameter(name.replace(".", "_"), torch.nn.Parameter(torch.from_numpy(own)))

            def forward(self, tokens: Any, wanted: Any) -> Any:
                w = dict(self.named_parameters())

                def linear(x: Any, name: str) -> Any:
                    return F.linear(x, w[f"{name}_weight"], w[f"{name}_bias"])

                def norm(x: Any, name: str) -> Any:
                    return F.layer_norm(x, (WIDTH,), w[f"{name}_gain"], w[f"{name}_bias"])

                x = F.embedding(tokens, w["embed"]) + w["places"]
                for k in range(LAYERS):
                    y = norm(x, f"{k}_n1")
                    q, keys, v = (
                        linear(y, f"{k}_{n}").view(*tokens.shape, HEADS, WIDTH // HEADS).transpose(1, 2) for n in "qkv"
                    )
                    mixed = F.scaled_dot_product_attention(q, keys, v).transpose(1, 2).flatten(2)
                    x = x + linear(mixed, f"{k}_o")
                    x = x + linear(F.gelu(linear(norm(x, f"{k}_n2"), f"{k}_up")), f"{k}_down")
                return F.cross_entropy(F.linear(x, w["head"]).flatten(0, 1), wanted.flatten())

        self.torch, self.rank = torch, rank
        self.module = Transformer().cuda()
        self.model: Any = torch.nn.parallel.DistributedDataParallel(
            self.module, device_ids=[rank], gradient_as_bucket_view=True
        )
        self.model = torch.compile(self.model) if compiled else self.model
        self.descent = torch.optim.SGD(self.module.parameters(), RATE)
        self.loss: Any = None

    def feed(self, whole: dict[str, np.ndarray[Any, Any]]) -> dict[str, Any]:
        rows = slice(self.rank * TEXTS, (self.rank + 1) * TEXTS)
        return {n: self.torch.from_numpy(x[rows]).cuda() for n, x in whole.items()}

    def step(self, feed: dict[str, Any]) -> None:
        self.descent.zero_grad(set_to_none=True)
        self.loss = self.model(**feed)
        self.loss.backward()
        self.descent.step()

    def wait(self) -> None:
        self.torch.cuda.synchronize()

    def weights(self) -> dict[str, np.ndarray[Any, Any]]:
        found = {n: p.detach().cpu().numpy() for n, p in self.module.named_parameters()}
        return {
            n: found[n.replace(".", "_")].T if n.endswith("weight") or n == "head" else found[n.replace(".", "_")]
            for n in shapes()
        }


def _rank(rank: int, ranks: int, code: Path, results: Any) -> None:
    import torch
    import torch.distributed as dist

    torch.cuda.set_device(rank)
    device = tec.cuda(rank)
    dist.init_process_group("nccl", init_method=TORCH_ADDRESS, rank=rank, world_size=ranks)
    net = tec.sharding.load(code / f"ranks{ranks}", ranks=[rank])
    own = net.rank_executor(rank, ADDRESS, device, timeout_s=TIMEOUT_SECONDS)
    sides: dict[str, Any] = {
        "tec": _Tec(own.executor, lambda x: x[rank * TEXTS : (rank + 1) * TEXTS], device),
        "PyTorch": _Torch(torch, rank, ranks, False),
        "torch.compile": _Torch(torch, rank, ranks, True),
    }
    weights = {}
    for name, side in sides.items():
        for k in range(STEPS):
            side.step(side.feed(texts(k, ranks)))
        side.wait()
        weights[name] = side.weights()
    loss = {n: float(np.asarray(s.loss.numpy() if n == "tec" else s.loss.detach().cpu())) for n, s in sides.items()}
    times: dict[str, list[float]] = {n: [] for n in sides}
    for _ in range(ROUNDS):
        for name, side in sides.items():
            feed = side.feed(texts(0, ranks))
            for _ in range(2):
                side.step(feed)
            side.wait()
            dist.barrier()
            start = time.perf_counter()
            for _ in range(CALLS):
                side.step(feed)
            side.wait()
            times[name].append((time.perf_counter() - start) / CALLS * 1e6)
    one = None
    if rank == 0:
        alone = _Tec(tec.load(code / f"one{ranks}.tec").executor(device), lambda x: x, device)
        for k in range(STEPS):
            alone.step(alone.feed(texts(k, ranks)))
        alone.wait()
        one = alone.weights()
    results.put((rank, times, weights, loss, one))
    dist.barrier()
    dist.destroy_process_group()
    own.close()


def _apart(a: dict[str, Any], b: dict[str, Any]) -> float:
    """The largest difference of two sets of weights, of the largest change that training made."""
    first = drawn()
    moved = max(float(np.abs(b[n] - first[n]).max()) for n in b)
    return max(float(np.abs(a[n] - b[n]).max()) for n in b) / moved


def measure(code: Path, ranks: int) -> None:
    found = of_all(_rank, ranks, code, timeout_s=85)
    sides = list(found[0][1])
    slowest = {s: statistics.median(max(f[1][s][k] for f in found) for k in range(ROUNDS)) for s in sides}
    mine = [f[2]["tec"] for f in found]
    apart = {
        "ranks from each other": max(_apart(m, mine[0]) for m in mine),
        "ranks from one GPU": max(_apart(m, found[0][4]) for m in mine),
        "ranks from PyTorch": _apart(mine[0], found[0][2]["PyTorch"]),
        "PyTorch compiled from eager": _apart(found[0][2]["torch.compile"], found[0][2]["PyTorch"]),
    }
    for peer in sides[1:]:
        row = {
            "name": f"training step of a transformer ({LAYERS} layers of {WIDTH}), {TEXTS} x {TOKENS} tokens a rank, {ranks} GPUs", "value": round(slowest["tec"], 1),
            "unit": "us", "peer": f"{peer}, DistributedDataParallel", "peer_value": round(slowest[peer], 1), "ratio": round(slowest["tec"] / slowest[peer], 3),
            "weights_apart": {k: f"{v:.1e}" for k, v in apart.items()}, "loss": found[0][3],
        }  # fmt: skip
        print(json.dumps(row), flush=True)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])  # type: ignore[union-attr]
    options.add_argument("--compile", type=Path, metavar="FOLDER")
    options.add_argument("--code", type=Path, metavar="FOLDER")
    options.add_argument("--ranks", type=int, default=2)
    options.add_argument("--target", default="cuda -arch=sm_90a")
    args = options.parse_args()
    if args.compile is not None:
        compile_code(args.compile, args.ranks, args.target)
    if args.code is not None:
        measure(args.code, args.ranks)


if __name__ == "__main__":
    main()
