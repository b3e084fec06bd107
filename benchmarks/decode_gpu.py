"""A decode step of a Llama of 4 layers (2048, 8192, heads 32/8, vocabulary 32,000) in float16 on one NVIDIA GPU: the step as a captured graph, each of its kernels
alone, and the host's part, beside PyTorch's step in a CUDA graph.

    python -m benchmarks.decode_gpu --list [--target T]                        anywhere: the launches of a step with their grids and bytes
    python -m benchmarks.decode_gpu [--batch 1] [--past 128,1024] [--weights F16] [--kernels] [--chain] [--torch]
    python -m benchmarks.decode_gpu --loop [--past 128,1024] [--weights F16] [--cache-type int8]      a text of `tec.lm`, token after token: all of it, and the host's part

Random weights; of one of ggml's formats (`--weights Q4_0`) they stay packed, and PyTorch's step has their numbers in float16. Every number is a median. Kernels are timed in a captured graph of all launches of that name, of which each layer's weights are read in turn, so
that the second-level cache holds none of them.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

import tec
from benchmarks import shard_model as model
from tec.graph.compiler import compile_graphs
from tec.lm.asked import target_of
from tec.lm.checkpoint import Checkpoint, PackedTensor
from tec.lm.filling import fill
from tec.lm.formats import Format
from tec.lm.recipes import Recipe, placed
from tec.lm.sampling import Sampling
from tec.runtime.devices.stream import Event, GraphCapture
from tec.target import Target

AGAIN, ROUNDS, STEPS = 16, 7, 40
_TEXT = 400  # tokens of a text
_SEED = 7


def compiled(batch: int, target: Target, tensors: Mapping[str, PackedTensor] | None = None) -> tuple[Any, list[Recipe]]:
    """The network, and the recipes of its constants where they are made of `tensors`."""
    graph, recipes = model.graph_of("decode", 1, target, texts=batch, tensors=tensors)
    return compile_graphs([graph], target, state=dict(graph.state))[0], recipes


def launches_of(net: Any, past: int, capacity: int) -> list[dict[str, Any]]:
    """The launches of a step: kernel, grid, block, bytes of the arrays that it is given and that are read or written whole."""
    table, layout = net._launches(), net._layout
    binding = layout.bind({"past": past, "past.capacity": capacity})
    geometry = table.geometry.copy()
    geometry.reshape(-1)[table.moving[0]] = binding.numbers[table.moving[1]]
    found = []
    steps = {s.function: s for s in net.plan.flat if hasattr(s, "function")}
    for k, (row, shape) in enumerate(zip(table.rows, geometry.tolist())):
        args = [a for a in steps[row.function].args if isinstance(a, str)]
        nbytes = sum(layout.nbytes(binding, layout.names[a]) for a in dict.fromkeys(args) if a in layout.names)
        found.append(
            {
                "number": k,
                "kernel": row.kernel,
                "grid": shape[:3],
                "block": shape[3:6],
                "early": row.early,
                "bytes": nbytes,
            }
        )
    return found


def distinct(found: Sequence[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    """By kernel, those that have a grid."""
    by: dict[str, list[dict[str, Any]]] = {}
    for row in found:
        if min(row["grid"]) > 0:
            by.setdefault(row["kernel"], []).append(row)
    return by


def weights() -> dict[str, np.ndarray[Any, Any]]:
    """Whole weights: numbers of one block, as many times as they fit."""
    rng = np.random.default_rng(_SEED)
    block = rng.standard_normal((1 << 20) + 7, np.float32)
    made: dict[str, np.ndarray[Any, Any]] = {}
    for name, shape in model.shapes():
        w = np.resize(block, shape)
        made[name] = 1 + 0.1 * w if len(shape) == 1 else (w * shape[1] ** -0.5).astype(np.float16)
    return made


def packed_tensors(format: str) -> dict[str, PackedTensor]:
    """The model's matrices in a format of ggml, of random bytes with scales that make numbers of about 1 / sqrt(depth); its vectors in float32."""
    rng, f = np.random.default_rng(_SEED), Format[format]
    made = {}
    for name, shape in (*model.shapes(), ("model.embed_tokens.weight", (model.VOCABULARY, model.HIDDEN))):
        if len(shape) == 1:
            data = (1 + 0.1 * rng.standard_normal(shape)).astype("<f4").view(np.uint8)
            made[name] = PackedTensor(name, shape, Format.F32, data)
            continue
        if f is Format.F16:
            block = rng.standard_normal(1 << 16, np.float32) * shape[1] ** -0.5
            data = np.resize(block.astype("<f2"), shape).reshape(-1).view(np.uint8)
            made[name] = PackedTensor(name, shape, f, data)
            continue
        blocks = rng.integers(0, 256, (1 << 12, f.nbytes), np.uint8)
        _SCALES[format](blocks, shape[1])
        whole = np.resize(blocks, (shape[0] * shape[1] // f.block, f.nbytes))
        made[name] = PackedTensor(name, shape, f, whole.reshape(-1))
    return made


def _halves(at: Sequence[int], spread: float) -> Callable[[Any, int], None]:
    """Float16 scales at these bytes of a block, of codes with this spread."""

    def put(blocks: Any, depth: int) -> None:
        rng = np.random.default_rng(_SEED)
        for k in at:
            scales = (depth**-0.5 / spread * (0.5 + rng.random(len(blocks)))).astype("<f2")
            blocks[:, k : k + 2] = scales[:, None].view(np.uint8)

    return put


def _with_minima(blocks: Any, depth: int) -> None:
    """Minima that stand for the middle of the codes, so that numbers are as often above 0 as below."""
    _halves([0], 150.0)(blocks, depth)
    blocks[:, 2:4] = (blocks[:, :2].copy().view("<f2") * 7.5).astype("<f2").view(np.uint8)
    blocks[:, 8:12] = blocks[:, 4:8]  # of all eight of them as many as scales
    blocks[:, 12:16] = (blocks[:, 12:16] & 15) * 17


def _powers(blocks: Any, depth: int) -> None:
    blocks[:, 0] = 127 + round(np.log2(depth**-0.5 / 3))


_SCALES = {"Q4_0": _halves([0], 4.6), "Q8_0": _halves([0], 74.0), "Q4_K": _with_minima, "MXFP4": _powers}


def inputs(batch: int, past: int) -> dict[str, Any]:
    rng = np.random.default_rng(_SEED)
    made: dict[str, Any] = {"embeddings": rng.standard_normal((batch, model.HIDDEN)).astype("float16")}
    for k in range(model.LAYERS):
        for what in ("key", "value"):
            made[f"past.{k}.{what}"] = rng.standard_normal(
                (batch, model.KV_HEADS, past, model.SIZE), np.float32
            ).astype("float16")
    return made


def _times(run: Callable[[], Any], calls: int) -> float:
    """Microseconds a call."""
    for _ in range(3):
        run()
    took = []
    for _ in range(ROUNDS):
        start = time.perf_counter()
        for _ in range(calls):
            run()
        took.append((time.perf_counter() - start) / calls * 1e6)
    return statistics.median(took)


def measure_kernels(executor: Any, found: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Each kernel alone. After a run of the step, whose arguments stay in the table."""
    engine = executor._engine
    device, table = engine.device, engine._table
    rows = []
    for kernel, launches in distinct(found).items():
        graph = GraphCapture(device)
        with graph:
            for _ in range(AGAIN):
                for row in launches:
                    table.run(row["number"], 1)
        count, took = AGAIN * len(launches), []
        for _ in range(ROUNDS):
            start, stop = Event(device), Event(device)
            with engine.stream:
                start.record()
                graph.launch(engine.stream)
                stop.record()
            took.append(start.elapsed_ms(stop) * 1e3 / count)
        us = statistics.median(took)
        first = launches[0]
        rows.append(
            {"kernel": kernel, "launches": len(launches), "us": round(us, 2), "all_us": round(us * len(launches), 1), "GB/s": round(first["bytes"] / us / 1e3),
             "grid": first["grid"], "block": first["block"], "bytes": first["bytes"], "early": first["early"]}
        )  # fmt: skip
    return rows


def measure_chain(executor: Any, found: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """What each launch adds to those before it: the difference of two captured graphs."""
    engine = executor._engine
    table, before, rows = engine._table, 0.0, []
    for n, row in enumerate(found):
        if min(row["grid"]) <= 0:
            continue
        graph = GraphCapture(engine.device)
        with graph:
            for k in range(n + 1):
                if min(found[k]["grid"]) > 0:
                    table.run(k, 1)
        us = _device_us(executor, lambda graph=graph: graph.launch(engine.stream), 10)
        rows.append({"launch": n, "kernel": row["kernel"], "adds_us": round(us - before, 2), "until_us": round(us, 1)})
        before = us
    return rows


class TorchStep:
    """PyTorch's step, captured."""

    def __init__(self, given: dict[str, Any], whole: dict[str, Any], batch: int, past: int):
        import torch

        whole = {n: torch.from_numpy(w).cuda() for n, w in whole.items()}
        llama = model.TorchLlama(model.local_weights(whole, 0, 1, torch.cat), 1, lambda y: y)
        x = torch.from_numpy(given["embeddings"]).cuda()
        caches = []
        for k in range(model.LAYERS):
            pair = [torch.from_numpy(given[f"past.{k}.{what}"]).cuda() for what in ("key", "value")]
            caches.append([torch.cat([p, torch.zeros_like(p[:, :, :1])], 2) for p in pair])
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream), torch.no_grad():
            for _ in range(3):
                llama.run(x, batch, past, caches)
        torch.cuda.synchronize()
        self.graph, self.torch = torch.cuda.CUDAGraph(), torch
        with torch.cuda.graph(self.graph), torch.no_grad():
            self.logits = llama.run(x, batch, past, caches)

    def run(self) -> None:
        self.graph.replay()
        self.torch.cuda.synchronize()


def provided(net: Any, recipes: Sequence[Recipe], tensors: Mapping[str, PackedTensor] | None) -> dict[str, Any]:
    """Gives the network its weights; the whole matrices as numbers."""
    if tensors is None:
        whole = weights()
        own = model.local_weights(whole, 0, 1, np.concatenate)
        net.provide({n: np.ascontiguousarray(own[n]).reshape(p.shape) for n, p in net.params.items() if n in own})
        return whole
    specs = {n: (str(p.dtype), p.shape) for r in recipes for n, p in ((n, net.params[n]) for n in r.params.values())}
    made = placed(specs)
    fill(recipes, tensors, made, 8)
    net.provide(made)
    return {n: t.dequantize().astype(np.float16 if len(t.shape) > 1 else np.float32) for n, t in tensors.items()}


def measure(
    batch: int, pasts: Sequence[int], kernels: bool, peer: bool, chain: bool = False, format: str = "F16"
) -> None:
    device = tec.cuda(0)
    tensors = None if format == "F16" else packed_tensors(format)
    start = time.perf_counter()
    net, recipes = compiled(batch, target_of("cuda", device), tensors)
    compile_s = time.perf_counter() - start
    whole = provided(net, recipes, tensors)
    for past in pasts:
        given = inputs(batch, past)
        executor = net.executor(device, capacity=past + 512)
        x = tec.nd.array(given["embeddings"], device)
        executor.run(given)

        def again(executor: Any = executor, x: Any = x, past: int = past) -> Any:
            executor.truncate(past)
            return executor.run({"embeddings": x})

        logits = again()[0].numpy()
        found = launches_of(net, past, past + 512)
        row: dict[str, Any] = {
            "name": f"decode step, {format}, batch {batch}, past {past}", "launches": sum(min(r["grid"]) > 0 for r in found), "run_us": round(_times(again, STEPS), 1),
            "graph_us": round(_graph_us(executor), 1), "queued_us": round(_queued_us(executor), 1), "host_us": round(_host_us(executor, x, past), 1),
            "growing_us": round(_growing_us(executor, x, past), 1), "compile_s": round(compile_s, 1),
        }  # fmt: skip
        if peer:
            torch_step = TorchStep(given, whole, batch, past)
            row["torch_us"] = round(_times(torch_step.run, STEPS), 1)
            wanted = torch_step.logits.cpu().numpy()
            row["apart"] = float(np.abs(logits - wanted).max() / np.abs(wanted).max())
        print(json.dumps(row), flush=True)
        if chain:
            again()
            for k in measure_chain(executor, found):
                print(json.dumps(k), flush=True)
        if kernels:
            again()
            for k in measure_kernels(executor, found):
                print(json.dumps(k), flush=True)


def _bound(executor: Any) -> Any:
    return next(reversed(executor._engine._bound.values()))[1]


def _device_us(executor: Any, queue: Callable[[], None], calls: int = 20) -> float:
    """The device's time of what `queue` queues, many times over."""
    engine, took = executor._engine, []
    for _ in range(ROUNDS):
        start, stop = Event(engine.device), Event(engine.device)
        with engine.stream:
            start.record()
            for _ in range(calls):
                queue()
            stop.record()
        took.append(start.elapsed_ms(stop) * 1e3 / calls)
    return statistics.median(took)


def _graph_us(executor: Any) -> float:
    """The captured step, back to back."""
    engine, bound = executor._engine, _bound(executor)
    if bound.graph is None:
        return float("nan")
    return _device_us(executor, lambda: bound.graph.launch(engine.stream))


def _queued_us(executor: Any) -> float:
    """The step's launches without a graph, back to back."""
    engine, bound = executor._engine, _bound(executor)
    return _device_us(executor, lambda: engine._calls(bound))


def _host_us(executor: Any, x: Any, past: int) -> float:
    """What the host does until all is queued, the device asleep."""
    took = []
    for _ in range(STEPS):
        executor.truncate(past)
        start = time.perf_counter()
        job = executor.launch({"embeddings": x})
        took.append((time.perf_counter() - start) * 1e6)
        job.sync()
    return statistics.median(took)


def _growing_us(executor: Any, x: Any, past: int) -> float:
    """Steps that follow one another, each a token longer: no sizes come twice."""
    took = []
    for _ in range(3):
        executor.truncate(past)
        start = time.perf_counter()
        for _ in range(100):
            executor.run({"embeddings": x})
        took.append((time.perf_counter() - start) * 1e4)
    return statistics.median(took)


def measure_loop(pasts: Sequence[int], format: str, cache_type: str | None) -> None:
    """Tokens that the device chooses by itself, greedily, behind a prompt: microseconds a token, and the host's processor time."""
    tensors = packed_tensors(format)
    context = max(2048, max(pasts) + 2 * _TEXT)
    whole = tec.lm.load(
        Checkpoint("llama", model.CONFIG, tensors), target="cuda", context=context, cache_type=cache_type
    )
    for past in pasts:
        token = int(whole.begin([k % model.VOCABULARY for k in range(past)]).argmax())
        text = whole.ahead(token, Sampling(), None, _TEXT)
        assert text is not None, "the device does not choose"
        for _ in range(_TEXT // 4):
            next(text)
        start, used, ids = time.perf_counter(), time.process_time(), list(text)
        took, used = time.perf_counter() - start, time.process_time() - used
        row = {
            "name": f"decode loop, {format}, caches of {whole.cache_type}, past {past}",
            "token_us": took / len(ids) * 1e6,
            "host_us": used / len(ids) * 1e6,
        }
        print(json.dumps({n: round(x, 1) if isinstance(x, float) else x for n, x in row.items()}), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--list", action="store_true", help="only list the launches; needs no GPU")
    parser.add_argument("--target", default="cuda -arch=sm_90a", help="of --list")
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--past", default="128,1024")
    parser.add_argument("--weights", default="F16", choices=("F16", *_SCALES))
    parser.add_argument("--loop", action="store_true", help="a text that tec.lm writes")
    parser.add_argument("--cache-type", help="of the loop's caches: int8, fp8, ...")
    parser.add_argument("--kernels", action="store_true")
    parser.add_argument("--chain", action="store_true", help="what each launch adds to those before it")
    parser.add_argument("--torch", action="store_true")
    args = parser.parse_args()
    pasts = [int(p) for p in args.past.split(",")]
    if args.loop:
        measure_loop(pasts, args.weights, args.cache_type)
        return
    if not args.list:
        measure(args.batch, pasts, args.kernels, args.torch, args.chain, args.weights)
        return
    net, _ = compiled(args.batch, Target(args.target), None if args.weights == "F16" else packed_tensors(args.weights))
    found = launches_of(net, pasts[-1], pasts[-1] + 512)
    for kernel, rows in distinct(found).items():
        print(
            f"{len(rows):3} {kernel:60} grid {rows[0]['grid']} block {rows[0]['block']} {rows[0]['bytes']} bytes early={rows[0]['early']}"
        )
    print(f"{sum(min(r['grid']) > 0 for r in found)} launches")


if __name__ == "__main__":
    main()
