"""Two GPUs in one process: code and networks on a device by its number, copies between the two, collectives with graphs and time limits, networks that are split over both.

NVIDIA's where the host has two (with NCCL_NVLS_ENABLE=0 where others share its switches); the same programs run on two GPUs in software with the long suites.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import tec
from tec.collectives import Communicator, local
from tec.errors import ArgumentError, DeviceError
from tec.graph import Graph
from tec.graph.graph import bind_sizes, run_graph
from tec.lm.config import Config
from tec.lm.plain import graph_of
from tec.runtime.devices.device import Device
from tec.runtime.plans.plan import Exchange
from tec.sharding import Mesh, PartitionSpec, decoder_rules, shard
from tec.sharding.rules import names_of
from tests.conformance.harness import cuda_target
from tests.seeds import first, some
from tests.unit.lm.tiny import llama
from tests.unit.sharding.test_drawn import Drawn, drawn_rules
from tests.unit.sharding.test_parallel import WEIGHTS, experts, training_step

P = PartitionSpec
LIMIT_SECONDS = 30.0  # for what must arrive
SHORT_SECONDS = 2.0  # for what never does
SLACK_SECONDS = 10.0  # in which an error must come after a limit: the host may be loaded


@dataclass(frozen=True)
class Pair:
    target: str
    devices: tuple[Device, Device]

    @property
    def is_real(self) -> bool:
        return self.devices[0].kind == "cuda"


@pytest.fixture(
    params=[
        pytest.param("software", marks=pytest.mark.slow),
        pytest.param(
            "cuda",
            marks=[pytest.mark.gpu, pytest.mark.skipif(not tec.runtime.cuda_exists(1), reason="needs two NVIDIA GPUs")],
        ),
    ]
)
def pair(request: pytest.FixtureRequest) -> Pair:
    if request.param == "cuda":
        return Pair(cuda_target(), (tec.cuda(0), tec.cuda(1)))
    return Pair("rocm -mcpu=gfx942", (tec.rocm_emu("gfx942", 0), tec.rocm_emu("gfx942", 1)))


def both(work: Callable[[int], Any]) -> list[Any]:
    """`work(0)` and `work(1)` side by side."""
    found: list[Any] = [None, None]

    def run(k: int) -> None:
        try:
            found[k] = work(k)
        except BaseException as error:
            found[k] = error

    threads = [threading.Thread(target=run, args=(k,)) for k in range(2)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    for f in found:
        if isinstance(f, BaseException):
            raise f
    return found


@tec.kernel
def add_one(x: Any, n: Any) -> None:
    i = tec.grid_idx(1)
    if i < n:
        x[i] += 1.0


@tec.kernel
def repeat_add(x: Any, n: Any, times: Any) -> None:
    """A kernel that takes a while: what does not wait for it reads too little."""
    i = tec.grid_idx(1)
    if i < n:
        for _ in range(times):
            x[i] = tec.cos(x[i] * 0.0) + x[i]


# ---- a device by its number


def test_one_kernel_on_either_device(pair: Pair) -> None:
    n = 5000
    for _ in range(2):
        for dev in pair.devices:
            x = tec.nd.array(np.arange(n, dtype="float32"), dev)
            add_one[-(-n // 256), 256](x, n)
            assert x.device is dev
            np.testing.assert_array_equal(x.numpy(), np.arange(n) + 1)


def test_memory_is_that_of_the_device(pair: Pair) -> None:
    used = [d.memory().used for d in pair.devices]
    held = tec.nd.empty((1 << 20,), "float32", pair.devices[1])
    assert pair.devices[0].memory().used == used[0]
    assert pair.devices[1].memory().used >= used[1] + held.nbytes


def test_a_network_on_either_device_and_on_both_at_a_time(pair: Pair) -> None:
    graph = _transformer(tokens=8)
    rng = np.random.default_rng(first(2))
    feeds = [_feeds(graph, rng) for _ in range(2)]
    net = tec.compile(graph, pair.target, state=False)
    executors = [net.executor(d) for d in pair.devices]
    want = [run_graph(graph, f) for f in feeds]

    def work(k: int) -> list[list[np.ndarray[Any, Any]]]:
        return [[a.numpy() for a in executors[k].run(feeds[k])] for _ in range(4)]  # queued, captured, replayed

    for k, runs in enumerate(both(work)):
        for got in runs:
            for g, w in zip(got, want[k]):
                np.testing.assert_allclose(g, w, rtol=2e-3, atol=2e-4)


def test_inputs_on_the_other_device_are_taken_over(pair: Pair) -> None:
    graph = _transformer(tokens=8)
    feeds = _feeds(graph, np.random.default_rng(first(3)))
    executor = tec.compile(graph, pair.target, state=False).executor(pair.devices[1])
    there = {n: tec.nd.array(x, pair.devices[0]) for n, x in feeds.items()}
    for _ in range(3):
        for g, w in zip(executor.run(there), run_graph(graph, feeds)):
            assert g.device is pair.devices[1]
            np.testing.assert_allclose(g.numpy(), w, rtol=2e-3, atol=2e-4)


# ---- copies


@pytest.mark.parametrize("n", [0, 1, 3, 1_000_003])
@pytest.mark.parametrize("dtype", ["uint8", "float16", "float64"])
def test_copies(pair: Pair, n: int, dtype: str) -> None:
    values = np.random.default_rng(first(n)).integers(0, 200, n).astype(dtype)
    one, other = pair.devices
    x = tec.nd.array(values, one)
    y = x.to(other)
    z = tec.nd.empty((n,), dtype, one)
    y.copyto(z)
    assert y.device is other and z.device is one
    np.testing.assert_array_equal(y.numpy(), values)
    np.testing.assert_array_equal(z.numpy(), values)
    np.testing.assert_array_equal(x[n // 3 : n // 2].to(other).numpy(), values[n // 3 : n // 2])
    np.testing.assert_array_equal(x[::2].to(other).numpy(), values[::2])
    np.testing.assert_array_equal(tec.nd.array(x, other, dtype="float32").numpy(), values.astype("float32"))


def test_a_copy_waits_for_both_sides(pair: Pair) -> None:
    """An array goes to and fro; each side adds to it, and nothing on the host waits meanwhile."""
    n, times, rounds = 1 << 14, 200 if pair.is_real else 2, 10
    streams = [d.stream() for d in pair.devices]
    blocks = -(-n // 256)
    with streams[0], streams[1]:
        x = tec.nd.zeros((n,), "float32", pair.devices[0])
        for k in range(rounds):
            repeat_add[blocks, 256](x, n, times)
            x = x.to(pair.devices[(k + 1) % 2])
        back = tec.nd.zeros((n,), "float32", pair.devices[1])
        repeat_add[blocks, 256](back, n, times)  # still under way when the copy into it is asked for
        x.copyto(back)
        np.testing.assert_array_equal(back.numpy(), np.full(n, times * rounds, "float32"))


def test_a_copy_within_a_capture_is_refused(pair: Pair) -> None:
    x, y = (tec.nd.zeros((4,), "float32", d) for d in pair.devices)
    with pair.devices[1].capture(), pytest.raises(DeviceError, match="another device inside"):
        x.copyto(y)


# ---- collectives


def _parts(rng: np.random.Generator, rows: int, dtype: str) -> list[np.ndarray[Any, Any]]:
    return [rng.integers(-2, 3, (2 * rows, 3)).astype(dtype) for _ in range(2)]


def _every_call(c: Communicator, x: Any) -> dict[str, Any]:
    own = x.copyto(c.device)
    made = {
        "sum": c.all_reduce(x), "max": c.all_reduce(x, "max"), "in place": c.all_reduce(own, out=own), "scattered": c.reduce_scatter(x),
        "gathered": c.all_gather(x), "exchanged": c.all_to_all(x), "root 1": c.broadcast(x.copyto(c.device), 1),
    }  # fmt: skip
    got = tec.nd.zeros(x.shape, x.dtype, c.device)
    if c.rank == 0:
        c.send(x, to=1)
        c.receive(got, source=1)
    else:
        c.receive(got, source=0)
        c.send(x, to=0)
    return made | {"received": got}


def _wanted(parts: list[np.ndarray[Any, Any]], rank: int) -> dict[str, np.ndarray[Any, Any]]:
    total, rows = parts[0] + parts[1], len(parts[0]) // 2
    own = slice(rank * rows, (rank + 1) * rows)
    return {
        "sum": total, "max": np.maximum(*parts), "in place": total, "scattered": total[own], "gathered": np.concatenate(parts),
        "exchanged": np.concatenate([p[own] for p in parts]), "root 1": parts[1], "received": parts[1 - rank],
    }  # fmt: skip


@pytest.mark.parametrize("dtype", ["float32", "int64", "float16"])
@pytest.mark.parametrize("streams", [False, True])
def test_calls_of_two_threads(pair: Pair, dtype: str, streams: bool) -> None:
    parts = _parts(np.random.default_rng(first(7)), 5000, dtype)
    with local(pair.devices, timeout_s=LIMIT_SECONDS) as group:

        def work(c: Communicator) -> dict[str, np.ndarray[Any, Any]]:
            if not streams:
                return {n: a.numpy() for n, a in _every_call(c, tec.nd.array(parts[c.rank], c.device)).items()}
            with c.device.stream():
                return {n: a.numpy() for n, a in _every_call(c, tec.nd.array(parts[c.rank], c.device)).items()}

        for rank, got in enumerate(group.run(work)):
            for name, want in _wanted(parts, rank).items():
                np.testing.assert_array_equal(got[name], want, err_msg=f"{name} of rank {rank}")


def test_calls_follow_what_their_stream_does(pair: Pair) -> None:
    n, times = 1 << 14, 500 if pair.is_real else 2
    with local(pair.devices, timeout_s=LIMIT_SECONDS) as group:

        def work(c: Communicator) -> np.ndarray[Any, Any]:
            with c.device.stream():
                x = tec.nd.zeros((n,), "float32", c.device)
                repeat_add[-(-n // 256), 256](x, n, times)
                c.all_reduce(x, out=x)
                add_one[-(-n // 256), 256](x, n)
                return x.numpy()

        for got in group.run(work):
            np.testing.assert_array_equal(got, np.full(n, 2 * times + 1, "float32"))


def test_calls_within_a_captured_graph(pair: Pair) -> None:
    """Kernels and all kinds of calls are one graph a rank; what a replay reads is what lies there then."""
    if not pair.is_real:
        pytest.skip("calls of GPUs in software wait on the host")
    rng = np.random.default_rng(first(8))
    with local(pair.devices, timeout_s=LIMIT_SECONDS) as group:
        first_parts, rounds = _parts(rng, 300, "float32"), [_parts(rng, 300, "float32") for _ in range(3)]

        def work(c: Communicator) -> list[dict[str, np.ndarray[Any, Any]]]:
            x = tec.nd.array(first_parts[c.rank], c.device)
            flat = x.reshape(-1)
            add_one[-(-flat.size // 256), 256](flat, flat.size)
            _every_call(c, x)  # connections are made here
            c.sync()
            with c.device.capture() as graph:
                add_one[-(-flat.size // 256), 256](flat, flat.size)
                made = _every_call(c, x)
            seen = []
            for parts in rounds:
                x.copyfrom(parts[c.rank])
                graph.launch()
                c.sync()
                seen.append({n: a.numpy() for n, a in made.items()})
            return seen

        for rank, seen in enumerate(group.run(work)):
            for parts, got in zip(rounds, seen):
                for name, want in _wanted([p + 1 for p in parts], rank).items():
                    np.testing.assert_array_equal(got[name], want, err_msg=f"{name} of rank {rank}")


def test_one_thread_makes_the_calls_of_both(pair: Pair) -> None:
    if not pair.is_real:
        pytest.skip("GPUs in software take a thread each")
    parts = _parts(np.random.default_rng(first(9)), 50, "float32")
    with local(pair.devices, timeout_s=LIMIT_SECONDS) as group:
        xs = [tec.nd.array(p, d) for p, d in zip(parts, pair.devices)]
        for _ in range(3):
            with group.together():
                made = [c.all_reduce(x) for c, x in zip(group, xs)]
            for m in made:
                np.testing.assert_array_equal(m.numpy(), parts[0] + parts[1])


# ---- a network over both


def _transformer(tokens: int) -> Graph:
    graph = graph_of(llama({"num_hidden_layers": 1}), all_logits=True, tokens=tokens)
    graph.state = {}
    return bind_sizes(graph, {"past": 2})


def _feeds(graph: Graph, rng: np.random.Generator) -> dict[str, Any]:
    return {v.name: rng.standard_normal(v.shape).astype("float32") for v in graph.inputs}


@pytest.mark.parametrize("how", ["columns and rows", "tokens", "both"])
def test_a_transformer_is_that_of_one_device(pair: Pair, how: str) -> None:
    checkpoint = llama({"num_hidden_layers": 1})
    graph = _transformer(tokens=8)
    rules: dict[str, Any] = {} if how == "columns and rows" else {"embeddings": P("t")}
    if how != "tokens":
        rules |= decoder_rules(Config(checkpoint.config, "llama"), 2, "t", names_of(graph))
    net = shard(graph, Mesh({"t": 2}), rules, pair.target, state=False)
    kinds = {e.kind for e in net.network().plan.exchanges}
    assert {"columns and rows": "all_reduce", "tokens": "all_gather", "both": "reduce_scatter"}[how] in kinds
    assert how == "columns and rows" or "all_reduce" not in kinds
    with net.executor(pair.devices, timeout_s=LIMIT_SECONDS) as ranks:
        for k in range(4):  # queued, captured, replayed
            feeds = _feeds(graph, np.random.default_rng(first(k)))
            for g, w in zip(ranks.run(feeds), run_graph(graph, feeds)):
                np.testing.assert_allclose(g, w, rtol=2e-3, atol=2e-3)


def test_the_batch_is_split(pair: Pair) -> None:
    rng = np.random.default_rng(first(4))
    graph = experts()
    feeds = {v.name: rng.random(v.shape).astype("float32") for v in graph.inputs}
    net = shard(graph, Mesh({"d": 2}, pair.devices), {v.name: P("d") for v in graph.inputs}, pair.target)
    assert not net.network().plan.exchanges
    for _ in range(3):
        np.testing.assert_allclose(net.run(feeds)[0], run_graph(graph, feeds)[0], rtol=1e-3, atol=1e-3)


def test_experts_are_split(pair: Pair) -> None:
    rng = np.random.default_rng(first(5))
    graph = experts()
    rules = {"x": P("e"), "gates": P("e"), "w1": P("e"), "w2": P("e")}
    net = shard(graph, Mesh({"e": 2}), rules, pair.target)
    assert [e.kind for e in net.network().plan.exchanges] == ["all_to_all"] * 2
    with net.executor(pair.devices, timeout_s=LIMIT_SECONDS) as ranks:
        for _ in range(4):
            feeds = {v.name: rng.random(v.shape).astype("float32") for v in graph.inputs}
            np.testing.assert_allclose(ranks.run(feeds)[0], run_graph(graph, feeds)[0], rtol=1e-3, atol=1e-3)


def test_training_by_batch(pair: Pair) -> None:
    """Weights of both ranks after 20 steps are those of one device."""
    rng = np.random.default_rng(first(20))
    graph = training_step()
    weights = {v.name: rng.standard_normal(v.shape).astype("float32") * 0.3 for v in graph.inputs if v.name in WEIGHTS}
    one = tec.compile(graph, "llvm", state=graph.state).executor()
    net = shard(graph, Mesh({"data": 2}), {"x": P("data"), "right": P("data")}, pair.target)
    with net.executor(pair.devices, timeout_s=LIMIT_SECONDS) as ranks:
        for k in range(20):
            x = rng.standard_normal((16, 12)).astype("float32")
            feeds = {"x": x, "right": np.eye(4, dtype="float32")[rng.integers(0, 4, 16)]} | (weights if k == 0 else {})
            np.testing.assert_allclose(ranks.run(feeds)[0], one.run(feeds)[0].numpy(), rtol=1e-3)
        for name, array in one.state.items():
            got = [r.executor.state[name].numpy() for r in ranks.ranks]
            np.testing.assert_array_equal(got[0], got[1])
            np.testing.assert_allclose(got[0], array.numpy(), rtol=1e-2, atol=1e-4)


@pytest.mark.parametrize("seed", some(8))
def test_drawn_graphs(pair: Pair, seed: int) -> None:
    rng = np.random.default_rng(seed)
    drawn = Drawn(rng)
    mesh = Mesh({"t": 2})
    rules = drawn_rules(rng, drawn.graph, mesh)
    for name in list(rules):
        try:
            shard(drawn.graph, mesh, {name: rules[name]}, "llvm")
        except ArgumentError:  # no rank can follow it
            del rules[name]
    net = shard(drawn.graph, mesh, rules, pair.target)
    with net.executor(pair.devices, timeout_s=LIMIT_SECONDS) as ranks:
        for _ in range(3):
            for g, w in zip(ranks.run(drawn.feeds), run_graph(drawn.graph, drawn.feeds)):
                np.testing.assert_allclose(g, w, rtol=1e-3, atol=1e-3)
    assert all(isinstance(e, Exchange) for e in net.network().plan.exchanges)


# ---- what goes wrong


def test_a_rank_that_makes_no_call(pair: Pair) -> None:
    """The other one raises within its limit, and the devices are of use to a new group."""
    with local(pair.devices, timeout_s=LIMIT_SECONDS) as group:
        one = group[0]
        x = tec.nd.zeros((1000,), "float32", pair.devices[0])
        begin = time.monotonic()
        with pytest.raises(DeviceError, match=r"did not come within|group has failed"):
            _limited(one, x)
        assert time.monotonic() - begin < SHORT_SECONDS + SLACK_SECONDS
        with pytest.raises(DeviceError, match="group has failed"):
            one.all_reduce(x)
    _devices_work(pair)


def _limited(c: Communicator, x: Any) -> None:
    if c.device.kind != "cuda":  # its calls wait on the host
        threading.Timer(SHORT_SECONDS, c.abort, ("the other ranks did not come within the limit",)).start()
    c.all_reduce(x, out=x)
    c.sync(SHORT_SECONDS)


def _devices_work(pair: Pair) -> None:
    with local(pair.devices, timeout_s=LIMIT_SECONDS) as group:
        for got in group.run(lambda c: c.all_reduce(tec.nd.array(np.ones(4, "float32"), c.device)).numpy()):
            np.testing.assert_array_equal(got, 2.0)


def test_a_rank_that_replays_no_graph(pair: Pair) -> None:
    if not pair.is_real:
        pytest.skip("calls of GPUs in software wait on the host")
    with local(pair.devices, timeout_s=LIMIT_SECONDS) as group:
        x = [tec.nd.zeros((1000,), "float32", d) for d in pair.devices]

        def captured(c: Communicator) -> Any:
            c.all_reduce(x[c.rank], out=x[c.rank])
            c.sync()
            with c.device.capture() as graph:
                c.all_reduce(x[c.rank], out=x[c.rank])
            return graph

        graphs = group.run(captured)
        graphs[0].launch()
        begin = time.monotonic()
        with pytest.raises(DeviceError, match="did not come within"):
            group[0].sync(SHORT_SECONDS)
        assert time.monotonic() - begin < SHORT_SECONDS + SLACK_SECONDS
    _devices_work(pair)


def test_a_rank_of_a_network_that_raises(pair: Pair) -> None:
    net = shard(experts(), Mesh({"e": 2}), {"x": P("e"), "gates": P("e"), "w1": P("e"), "w2": P("e")}, pair.target)
    ranks = net.executor(pair.devices, timeout_s=LIMIT_SECONDS)
    rng = np.random.default_rng(first(6))
    feeds = {v["name"]: rng.random(v["shape"]).astype("float32") for v in net.inputs}
    ranks.run(feeds)

    def work(r: Any) -> Any:
        if r.rank == 1:
            raise ValueError("no more")
        return [a.numpy() for a in r.run(feeds)]

    begin = time.monotonic()
    with pytest.raises(ValueError, match="no more"):
        ranks.each(work)
    assert time.monotonic() - begin < LIMIT_SECONDS
    ranks.close()
    _devices_work(pair)
