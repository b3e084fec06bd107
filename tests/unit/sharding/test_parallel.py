"""Ways to be parallel that follow from rules: training by batch, prefill by sequence, mixtures by experts, ONNX and PyTorch graphs by columns and rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tec
from tec.graph import Graph
from tec.graph.builders import Builder
from tec.graph.graph import bind_sizes, run_graph
from tec.lm.config import Config
from tec.lm.plain import graph_of
from tec.runtime.plans import memory_plan
from tec.runtime.plans.plan import Exchange, Plan
from tec.runtime.plans.steps import bursts
from tec.sharding import Mesh, PartitionSpec, decoder_rules, shard
from tec.sharding.bursts import in_bursts
from tec.sharding.rules import names_of
from tests.seeds import first
from tests.unit.lm.tiny import llama
from tests.unit.sharding.ranks import run_ranks

P = PartitionSpec
BATCH, PIXELS, WIDTH, DIGITS = 16, 12, 8, 4
WEIGHTS = ["w1", "b1", "w2", "b2"]


def training_step() -> Graph:
    """A step of gradient descent: loss and new weights, which are states."""
    g = Graph("reader")
    b = Builder(g)
    x, right = g.input("x", "float32", (BATCH, PIXELS)), g.input("right", "float32", (BATCH, DIGITS))
    w1, b1 = g.input("w1", "float32", (PIXELS, WIDTH)), g.input("b1", "float32", (WIDTH,))
    w2, b2 = g.input("w2", "float32", (WIDTH, DIGITS)), g.input("b2", "float32", (DIGITS,))
    hidden = b.op("gelu", b.op("add", b.op("matmul", x, w1), b1))
    normal = b.ops("layer_norm", hidden, axis=1, epsilon=1e-5)[0]
    scores = b.op("log_softmax", b.op("add", b.op("matmul", normal, w2), b2), axes=(1,))
    surprise = b.op("reduce_sum", b.op("multiply", scores, right), axes=(1,), keepdims=False)
    g.set_outputs([b.op("neg", b.op("reduce_mean", surprise, axes=(0,), keepdims=False))], ["loss"])
    step = tec.grad(g, WEIGHTS, output="loss")
    b, made, inputs = Builder(step), dict(zip(step.output_names, step.outputs)), {v.name: v for v in step.inputs}
    new = [b.op("subtract", inputs[w], b.op("multiply", made[f"grad_{w}"], b.like(0.5, inputs[w]))) for w in WEIGHTS]
    step.set_outputs([step.outputs[0], *new], ["loss", *(f"new_{w}" for w in WEIGHTS)])
    step.state = {w: f"new_{w}" for w in WEIGHTS}
    return step


def test_training_by_batch_is_that_of_one_device_after_20_steps() -> None:
    rng = np.random.default_rng(first(20))
    graph = training_step()
    weights = {v.name: rng.standard_normal(v.shape).astype("float32") * 0.3 for v in graph.inputs if v.name in WEIGHTS}
    one = tec.compile(graph, "llvm", state=graph.state).executor()
    net = shard(graph, Mesh({"data": 2}), {"x": P("data"), "right": P("data")}, "llvm")
    assert [kind for kind, _, _ in net.notes["data"].moved].count("all_reduce") >= len(WEIGHTS)
    _check_bursts(net.network().plan)
    losses = []
    with net.executor() as ranks:
        for k in range(20):
            labels = np.eye(DIGITS, dtype="float32")[rng.integers(0, DIGITS, BATCH)]
            feeds = {"x": rng.standard_normal((BATCH, PIXELS)).astype("float32"), "right": labels} | (
                weights if k == 0 else {}
            )
            want, got = one.run(feeds)[0].numpy(), ranks.run(feeds)[0]
            losses.append(float(got))
            np.testing.assert_allclose(got, want, rtol=1e-4)
        for name, array in one.state.items():
            for r in ranks.ranks:
                np.testing.assert_allclose(r.executor.state[name].numpy(), array.numpy(), rtol=1e-3, atol=1e-5)
    assert len(set(losses)) == 20


def _check_bursts(plan: Plan) -> None:
    """The gradients are reduced in one burst, whose values lie apart in memory: its calls run at the same time."""
    flat, values = plan.flat, memory_plan.place(plan, {}).values
    (burst,) = (b for b in bursts(flat) if len(b) >= len(WEIGHTS))
    calls = [s for k in burst if isinstance(s := flat[k], Exchange)]
    assert len(calls) == len(burst) and {s.kind for s in calls} == {"all_reduce"}

    def place(name: str) -> tuple[int, int]:
        begin = values[name].offset
        assert begin is not None
        return begin, begin + values[name].nbytes({})

    for one in calls:
        for other in calls:
            for name in (other.source, other.target) if other is not one else ():
                if values[name].place == values[one.target].place == "arena":
                    (begin, end), (there, behind) = place(one.target), place(name)
                    assert end <= there or behind <= begin, (one, other)


def _reductions(nodes: str) -> Graph:
    """A graph as the splitter makes them. "r": an all-reduce of x, "u": a use of the last one, "p": a product that reads the last one and is reduced in turn."""
    g = Graph()
    b = Builder(g)
    x = g.input("x", "float32", (4, 4))
    shown, last = [], x
    for k, kind in enumerate(nodes):
        if kind == "r":
            last = b.op("all_reduce", b.op("multiply", x, b.like(k + 1, x)), mesh_axis="d", ranks=2, reduction="sum")
        elif kind == "u":
            shown.append(b.op("subtract", x, last))
        else:
            last = b.op("all_reduce", b.op("matmul", last, x), mesh_axis="d", ranks=2, reduction="sum")
    g.set_outputs([*shown, last], [f"y{k}" for k in range(len(shown) + 1)])
    return g


@pytest.mark.parametrize(
    ("nodes", "most", "wanted"),
    [
        ("rururu", 1 << 20, "rrruuu"),
        ("ruruur", 128, "rruuur"),  # two of 64 bytes fill a burst
        ("rpuru", 1 << 20, "rprruu"),  # the first is awaited by the second: it stays
    ],
)
def test_bursts_of_reductions(nodes: str, most: int, wanted: str) -> None:
    graph = _reductions(nodes)
    made = in_bursts(graph, most)
    seen = set(made.inputs) | set(made.constants())
    for n in made.nodes:
        assert seen.issuperset(n.inputs)
        seen.update(n.outputs)
    kinds = {"all_reduce": "r", "subtract": "u", "matmul": "p"}
    assert "".join(kinds.get(n.op, "") for n in made.nodes) == wanted


@pytest.mark.parametrize("heads_too", [False, True])
def test_prefill_by_sequence(heads_too: bool) -> None:
    """Tokens are split over ranks. Alone: keys and values are gathered, queries stay where they are. With tensor parallel: rows are gathered ahead of products by
    columns, and scattered where terms are added (Megatron's sequence parallelism)."""
    checkpoint = llama({"num_hidden_layers": 1})
    graph = graph_of(checkpoint, all_logits=True, tokens=8)
    rng = np.random.default_rng(first(8))
    rules: dict[str, Any] = {"embeddings": P("t")}
    if heads_too:
        rules |= decoder_rules(Config(checkpoint.config, "llama"), 2, "t", names_of(graph))
    graph.state = {}
    bound = bind_sizes(graph, {"past": 2})
    feeds = {v.name: rng.standard_normal(v.shape).astype("float32") for v in bound.inputs}
    got, graphs, notes = run_ranks(bound, Mesh({"t": 2}), rules, feeds)
    for g, w in zip(got, run_graph(bound, feeds)):
        np.testing.assert_allclose(g, w, rtol=1e-3, atol=1e-4)
    kinds = [kind for kind, _, _ in notes["t"].moved]
    attention = next(n for n in graphs[1].nodes if n.op == "attention")
    queries = attention.inputs[0].shape  # batch, tokens, heads, size
    if heads_too:
        assert kinds.count("reduce_scatter") == 2 and "all_reduce" not in kinds and queries[1:3] == (8, 2)
    else:
        assert set(kinds) == {"all_gather"} and queries[1:3] == (4, 4) and attention.attrs["offset"] == 2 + 4


def experts() -> Graph:
    """A mixture of experts as einsums over groups of tokens (arXiv 2006.16668): dispatch, the experts' networks, combination."""
    groups, tokens, width, count, room, feed = 4, 6, 8, 4, 3, 16
    rng = np.random.default_rng(3)
    g = Graph("experts")
    b = Builder(g)
    x = g.input("x", "float32", (groups, tokens, width))
    gates = g.input("gates", "float32", (groups, tokens, count, room))
    w1 = g.constant(rng.standard_normal((count, width, feed)).astype("float32"), "w1")
    w2 = g.constant(rng.standard_normal((count, feed, width)).astype("float32"), "w2")
    chosen = b.cast(b.op("greater", gates, b.like(0.5, gates)), "float32")
    sent = b.op("einsum", chosen, x, equation="gsec,gsm->egcm")
    hidden = b.op("relu", b.op("einsum", sent, w1, equation="egcm,emh->egch"))
    back = b.op("einsum", hidden, w2, equation="egch,ehm->egcm")
    g.set_outputs([b.op("einsum", gates, back, equation="gsec,egcm->gsm")], ["y"])
    return g


@pytest.mark.parametrize("ranks", [2, 4])
def test_a_mixture_of_experts_goes_to_its_experts_and_back(ranks: int) -> None:
    rng = np.random.default_rng(first(4))
    graph = experts()
    feeds = {v.name: rng.random(v.shape).astype("float32") for v in graph.inputs}
    rules = {"x": P("e"), "gates": P("e"), "w1": P("e"), "w2": P("e")}
    got, _, notes = run_ranks(graph, Mesh({"e": ranks}), rules, feeds)
    np.testing.assert_allclose(got[0], run_graph(graph, feeds)[0], rtol=1e-4, atol=1e-4)
    assert [kind for kind, _, _ in notes["e"].moved] == ["all_to_all"] * 2 and not notes["e"].replicated


def test_an_open_batch_is_split() -> None:
    g = Graph()
    b = Builder(g)
    from tec.ops.dims import Dim

    x = g.input("x", "float32", (Dim("batch"), 6))  # type: ignore[arg-type]
    w = g.constant(np.random.default_rng(1).standard_normal((6, 4)).astype("float32"), "w")
    g.set_outputs([b.op("softmax", b.op("matmul", x, w), axes=(1,))], ["y"])
    net = shard(g, Mesh({"data": 2}), {"x": P("data")}, "llvm")
    for batch in (2, 6):
        feed = np.random.default_rng(batch).standard_normal((batch, 6)).astype("float32")
        np.testing.assert_allclose(net.run({"x": feed})[0], run_graph(g, {"x": feed})[0], rtol=1e-4, atol=1e-6)
    with pytest.raises(tec.errors.ArgumentError, match=r"shape \(3, 6\) cannot be divided into 2 parts"):
        net.run({"x": np.zeros((3, 6), "float32")})
    h = Graph()
    b = Builder(h)
    x = h.input("x", "float32", (Dim("batch"), 6))  # type: ignore[arg-type]
    h.set_outputs([b.op("softmax", x, axes=(0,))], ["y"])
    with pytest.raises(tec.errors.ArgumentError, match=r"softmax .* mesh axis 'data' splits its size batch"):
        shard(h, Mesh({"data": 2}), {"x": P("data")})


def test_a_vocabulary_is_split_by_rows() -> None:
    """Each rank looks its own rows up, and a token that is none of the table's is told as it is on one device."""
    g = Graph()
    b = Builder(g)
    table = g.constant(np.random.default_rng(2).standard_normal((12, 4)).astype("float32"), "table")
    ids = g.input("ids", "int64", (5,))
    g.set_outputs([b.op("gather", table, ids, axis=0)], ["rows"])
    net = shard(g, Mesh({"t": 4}), {"table": P("t")}, "llvm")
    feed = np.array([0, 3, -1, 11, 6])
    np.testing.assert_array_equal(net.run({"ids": feed})[0], run_graph(g, {"ids": feed})[0])
    with pytest.raises(tec.errors.ArgumentError, match="an index of gather is outside of 12 rows"):
        net.run({"ids": np.array([0, 3, 12, 11, 6])})


def test_an_onnx_graph_by_columns_and_rows() -> None:
    onnx = pytest.importorskip("onnx")
    from onnx import helper, numpy_helper

    rng = np.random.default_rng(6)
    weights = {
        n: rng.standard_normal(s).astype("float32") * 0.3
        for n, s in (
            ("wq", (16, 16)),
            ("wk", (16, 16)),
            ("wv", (16, 16)),
            ("wo", (16, 16)),
            ("scale", (16,)),
            ("bias", (16,)),
        )
    }
    shape = numpy_helper.from_array(np.array([2, 5, 4, 4]), "heads")
    back = numpy_helper.from_array(np.array([2, 5, 16]), "joined")
    nodes = [helper.make_node("LayerNormalization", ["x", "scale", "bias"], ["n"], axis=-1)]
    for w in "qkv":
        nodes += [
            helper.make_node("MatMul", ["n", f"w{w}"], [f"{w}0"]),
            helper.make_node("Reshape", [f"{w}0", "heads"], [f"{w}1"]),
            helper.make_node("Transpose", [f"{w}1"], [w], perm=[0, 2, 3, 1] if w == "k" else [0, 2, 1, 3]),
        ]
    nodes += [
        helper.make_node("MatMul", ["q", "k"], ["s"]), helper.make_node("Softmax", ["s"], ["p"], axis=-1), helper.make_node("MatMul", ["p", "v"], ["a"]),
        helper.make_node("Transpose", ["a"], ["b"], perm=[0, 2, 1, 3]), helper.make_node("Reshape", ["b", "joined"], ["c"]),
        helper.make_node("MatMul", ["c", "wo"], ["o"]), helper.make_node("Add", ["o", "x"], ["y"]),
    ]  # fmt: skip
    info = [helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, [2, 5, 16]) for n in ("x", "y")]
    initial = [numpy_helper.from_array(a, n) for n, a in weights.items()]
    proto = helper.make_model(
        helper.make_graph(nodes, "attention", info[:1], info[1:], [*initial, shape, back]),
        opset_imports=[helper.make_opsetid("", 21)],
    )
    graph = tec.graph.compiler.as_graph(proto, None)
    feeds = {"x": rng.standard_normal((2, 5, 16)).astype("float32")}
    rules = {"w[qkv]": P(None, "t")}  # the output's rows follow
    got, _, notes = run_ranks(graph, Mesh({"t": 4}), rules, feeds)
    np.testing.assert_allclose(got[0], run_graph(graph, feeds)[0], rtol=1e-4, atol=1e-4)
    assert [kind for kind, _, _ in notes["t"].moved] == ["all_reduce"] and not notes["t"].replicated
