"""Networks over several ranks: compiled, on CPUs, on GPUs in software and in processes; what is told of them; what is refused."""

from __future__ import annotations

import multiprocessing
import os
import socket
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tec
from tec.errors import ArgumentError, DeviceError, PackageError, TecError
from tec.graph import Graph
from tec.graph.builders import Builder
from tec.graph.graph import bind_sizes, run_graph
from tec.lm import Checkpoint
from tec.lm.config import Config
from tec.lm.plain import graph_of
from tec.sharding import Mesh, PartitionSpec, Shard, ShardedNetwork, decoder_rules, load, shard
from tec.sharding.rules import names_of
from tests.seeds import first
from tests.thinned import thinned
from tests.unit.lm.tiny import HIDDEN, llama, tensor
from tests.unit.sharding.ranks import run_ranks

P = PartitionSpec
RNG = np.random.default_rng(first(36))
X = RNG.standard_normal((6, 16)).astype("float32")
RULES = {"x": P("d"), "w1": P(None, "t")}


def network() -> Graph:
    """Two products with a residual sum."""
    rng = np.random.default_rng(5)
    g = Graph()
    b = Builder(g)
    x = g.input("x", "float32", (6, 16))
    w1, w2 = (
        g.constant(rng.standard_normal(s).astype("float32") / 4, n) for n, s in (("w1", (16, 32)), ("w2", (32, 16)))
    )
    bias = g.constant(rng.standard_normal(32).astype("float32"), "bias")
    hidden = b.op("relu", b.op("add", b.op("matmul", x, w1), bias))
    g.set_outputs([b.op("add", b.op("matmul", hidden, w2), x)], ["y"])
    return g


WANT = run_graph(network(), {"x": X})[0]


@pytest.fixture(scope="module")
def both() -> ShardedNetwork:
    return shard(network(), Mesh({"d": 2, "t": 2}), RULES)


def test_the_graph_that_is_given_stays_as_it_is() -> None:
    graph = network()
    graph.state = {"x": "y"}
    sharded = shard(graph, Mesh({"t": 2}), {}, state=False)
    assert graph.state == {"x": "y"} and not sharded.network().plan.states


def test_equals_one_device(both: ShardedNetwork) -> None:
    np.testing.assert_allclose(both.run({"x": X})[0], WANT, rtol=1e-4, atol=1e-5)
    assert both.inputs[0]["shape"] == [6, 16] and both.network().inputs[0]["shape"] == [3, 16]
    assert all(n is not None and n.module is both.network().module for n in both.networks)


def test_says_how_it_is_split(both: ShardedNetwork) -> None:
    text = both.sharding()
    assert (
        "w1: Shard(1)" in text
        and "w2: Shard(0)" in text
        and "x: Shard(0)" in text
        and "1 all_reduce of 192 bytes a rank" in text
    )


@pytest.mark.parametrize("axes", [{"t": 2}, {"d": 2, "t": 4}], ids=str)
def test_on_gpus_in_software(axes: dict[str, int]) -> None:
    mesh = Mesh(axes)
    devices = [tec.rocm_emu("gfx942", r) for r in range(mesh.size)]
    rules = {k: r for k, r in RULES.items() if k != "x" or "d" in axes}
    net = shard(network(), mesh, rules, target="rocm -mcpu=gfx942")
    with net.executor(devices) as executor:
        np.testing.assert_allclose(executor.run({"x": X})[0], WANT, rtol=1e-4, atol=1e-5)
    time = net.report()
    assert 0 < time.collectives_us < time.total_us and time.links == "xgmi-mi300x" and "latency" in str(time)


def test_a_package_gives_the_same(both: ShardedNetwork, tmp_path: Path) -> None:
    both.save(tmp_path)
    again = load(tmp_path)
    np.testing.assert_array_equal(again.run({"x": X})[0], both.run({"x": X})[0])
    assert again.sharding() == both.sharding()
    one = load(tmp_path, ranks=[3])
    assert one.network().plan.exchanges == both.network(3).plan.exchanges
    with pytest.raises(ArgumentError, match="rank 0 of 4 is not here"):
        one.network(0)
    with pytest.raises(PackageError, match="no sharded network"):
        load(tmp_path / "nothing")


def _rank(folder: str, rank: int, address: str, out: Any) -> None:
    net = load(folder, ranks=[rank])
    with net.rank_executor(rank, address, timeout_s=30) as r:
        out.put((rank, r.run({"x": X})[0].numpy()))


def _free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return int(s.getsockname()[1])


def test_a_process_for_each_rank(tmp_path: Path) -> None:
    net = shard(network(), Mesh({"t": 2}), {"w1": P(None, "t")})
    net.save(tmp_path)
    context = multiprocessing.get_context("fork")
    out: Any = context.Queue()
    address = f"127.0.0.1:{_free_port()}"
    processes = [context.Process(target=_rank, args=(str(tmp_path), r, address, out)) for r in range(2)]
    for p in processes:
        p.start()
    got = dict(out.get(timeout=60) for _ in processes)
    for p in processes:
        p.join(30)
    for r in range(2):
        np.testing.assert_allclose(got[r], WANT, rtol=1e-4, atol=1e-5)


# ---- decoders


def _eight_heads(layers: int) -> Checkpoint:
    """A decoder of eight heads, and two of keys and values."""
    checkpoint = llama({"num_attention_heads": 8, "head_dim": 8, "num_hidden_layers": layers})
    for name, t in checkpoint.tensors.items():
        if "k_proj" in name or "v_proj" in name:
            whole = t.dequantize()[:16]
            checkpoint.tensors[name] = tensor(name, whole)  # type: ignore[index]
    return checkpoint


@pytest.mark.parametrize("ranks", [2, 4, 8])
def test_a_decoder_by_heads_columns_and_rows(ranks: int) -> None:
    """Two heads of keys and values are held by two or four ranks each where there are four or eight."""
    checkpoint = _eight_heads(1)
    graph = graph_of(checkpoint, all_logits=True, tokens=3)
    rules = decoder_rules(Config(checkpoint.config, "llama"), ranks, "t", names_of(graph))
    feeds: dict[str, Any] = {"embeddings": RNG.standard_normal((3, HIDDEN)).astype("float32")}
    feeds |= {v.name: RNG.standard_normal((1, 2, 4, 8)).astype("float32") for v in graph.inputs[1:]}
    graph.state = {}
    bound = bind_sizes(graph, {"past": 4})
    got, _, notes = run_ranks(bound, Mesh({"t": ranks}), rules, feeds)
    for g, w in zip(got, run_graph(bound, feeds)):
        np.testing.assert_allclose(g, w, rtol=1e-3, atol=1e-4)
    moved = [kind for kind, _, _ in notes["t"].moved]
    assert moved == ["all_reduce"] * 2 and not notes["t"].replicated  # two a layer, as in Megatron-LM


@pytest.mark.slow
@thinned(1, ("ranks", [2, 4, 8]), ("target", ["llvm", "rocm -mcpu=gfx942"]))
def test_a_compiled_decoder_keeps_its_caches_by_heads(ranks: int, target: str) -> None:
    checkpoint = _eight_heads(1)
    graph = graph_of(checkpoint, target, all_logits=True)
    rules = decoder_rules(Config(checkpoint.config, "llama"), ranks, "t", names_of(graph))
    devices = [tec.rocm_emu("gfx942", r) for r in range(ranks)] if "rocm" in target else None
    net = shard(graph, Mesh({"t": ranks}, devices), rules, target)
    one = tec.compile(graph, target).executor(devices[0] if devices else None)
    with net.executor() as executor:
        for tokens in (4, 1, 1):
            x = RNG.standard_normal((tokens, HIDDEN)).astype("float32")
            got, want = executor.run({"embeddings": x})[0], one.run({"embeddings": x})[0].numpy()
            np.testing.assert_allclose(got, want, rtol=1e-3, atol=1e-4)


# ---- refused


@pytest.mark.parametrize(
    ("rules", "words"),
    [
        ({"w1": P("t", "t")}, "splits two dimensions over mesh axis 't'"),
        ({"w1": P(None, None, "t")}, r"'w1' splits w1 .* along mesh axis 't': it has no dimension 2"),
        ({"x": P("t")}, r"'x' splits x .* along mesh axis 't': dimension 0 \(6\) is no multiple of 4 parts"),
        ({"w1": P("data")}, "the mesh has no axis 'data'"),
        ({"w9": P("t")}, "no value of the network has a name like 'w9'"),
        ({"w1": "t"}, "the rule for 'w1' is 't'"),
        ({"w1": {"t": tec.sharding.Partial()}}, "never said to be Partial"),
        ({"w1": {"t": Shard(1, 3)}}, "4 ranks are no multiple of 3 copies"),
        (["w1"], "rules are list"),
    ],
)
def test_a_wrong_rule_names_the_value_and_the_axis(rules: Any, words: str) -> None:
    with pytest.raises(TecError, match=words):
        shard(network(), Mesh({"t": 4}), rules)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Mesh({}), "a mesh has named axes"),
        (lambda: Mesh({"t": 0}), "mesh axis 't' is 0"),
        (lambda: Mesh({"t": 2}, ["cpu"]), "1 devices for a mesh of 2 ranks"),
        (lambda: shard(network(), {"t": 2}, {}), "a mesh is needed, not dict"),  # type: ignore[arg-type]
        (lambda: decoder_rules(Config(llama().config, "llama"), 3), "4 heads cannot be split among 3 ranks"),
    ],
)
def test_a_wrong_mesh_is_told(make: Any, words: str) -> None:
    with pytest.raises(ArgumentError, match=words):
        make()


def test_what_cannot_be_split_is_told() -> None:
    g = Graph()
    b = Builder(g)
    x = g.input("x", "float32", (4, 8))
    g.set_outputs([b.op("softmax", b.op("relu", x), axes=(1,))], ["y"])
    g.nodes[-1].origin = "/head/Softmax"
    feeds = {"x": RNG.standard_normal((4, 8)).astype("float32")}
    got, _, notes = run_ranks(g, Mesh({"t": 2}), {"x": P(None, "t")}, feeds)
    np.testing.assert_allclose(got[0], run_graph(g, feeds)[0], rtol=1e-5)
    assert notes["t"].replicated == [("softmax", "/head/Softmax", "its parts would have to be moved")]


def test_a_wrong_input_is_told(both: ShardedNetwork) -> None:
    with pytest.raises(
        ArgumentError,
        match=r"input x: shape \(5, 16\) cannot be divided into 2 parts along dimension 0, for mesh axis 'd'",
    ):
        both.run({"x": X[:5]})
    both._executor = None
    np.testing.assert_allclose(both.run({"x": X})[0], WANT, rtol=1e-4, atol=1e-5)


def test_a_rank_alone_says_what_it_needs(both: ShardedNetwork) -> None:
    with pytest.raises(ArgumentError, match="one rank of 2 along mesh axis 't', and has no communicator"):
        both.network(1).run({"x": X[:3]})


def test_a_rank_that_dies_ends_the_others() -> None:
    net = shard(network(), Mesh({"t": 2}), {"w1": P(None, "t")})
    with net.executor(timeout_s=5) as executor:

        def work(r: Any) -> Any:
            if r.rank == 1:
                raise RuntimeError("the device is gone")
            return r.executor.run({"x": X})

        with pytest.raises(RuntimeError, match="the device is gone"):
            executor.each(work)
        with pytest.raises(DeviceError, match="rank 1 raised RuntimeError"):
            executor.run({"x": X})


def _dying(folder: str, address: str) -> None:
    with load(folder, ranks=[1]).rank_executor(1, address, timeout_s=30):
        os._exit(9)


def test_a_process_that_dies_is_told_to_the_others(tmp_path: Path) -> None:
    shard(network(), Mesh({"t": 2}), {"w1": P(None, "t")}).save(tmp_path)
    address = f"127.0.0.1:{_free_port()}"
    other = multiprocessing.get_context("fork").Process(target=_dying, args=(str(tmp_path), address))
    other.start()
    with load(tmp_path, ranks=[0]).rank_executor(0, address, timeout_s=30) as r:
        with pytest.raises(DeviceError, match="rank 1 has died"):
            r.run({"x": X})
    other.join(30)


def test_ranks_of_different_networks_are_told(both: ShardedNetwork) -> None:
    """One rank adds terms of the first product, the other one of the second."""
    other = shard(network(), Mesh({"d": 2, "t": 2}), {"x": P("d"), "w1": P("t")})
    with other.executor(timeout_s=5) as executor:
        mixed = executor.ranks[3]
        mixed.executor = both.network(3).executor("cpu", communicators=mixed.communicators)
        with pytest.raises(DeviceError, match="ranks do not make the same calls"):
            executor.run({"x": X})


def test_a_rank_that_does_not_come_is_told_within_the_limit() -> None:
    net = shard(network(), Mesh({"t": 2}), {"w1": P(None, "t")})
    with net.executor(timeout_s=0.2) as executor:
        with pytest.raises(DeviceError, match=r"rank 1 did not come within 0.2 s"):
            executor.ranks[0].run({"x": X})
