"""Tokens that a device chooses: those that the host would choose, and caches that hold no more than what was given."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tec
from tec.errors import ArgumentError
from tec.graph import Graph
from tec.graph.builders import Builder
from tec.graph.compiler import compile_graph
from tec.lm import Checkpoint, load
from tec.lm.ahead import LOG, chooser_graph, serves
from tec.lm.kept import Form, weights_of
from tec.lm.sampling import Sampling
from tec.lm.starting import code_of
from tec.ops.dims import Dim, Empty
from tec.runtime.networks import state
from tests.seeds import first

from .tiny import VOCABULARY, llama

IDS = [3, 17, 5, 9]
MIXED = {"layer_types": ["sliding_attention", "full_attention"], "use_sliding_window": True, "no_rope_layers": [1, 1]}


@pytest.mark.parametrize(
    "sampling",
    [Sampling(), Sampling(0.8, top_k=5), Sampling(1.3, top_k=8, top_p=0.6), Sampling(1.0, top_k=8, min_p=0.2)],
    ids=str,
)
def test_the_same_tokens_as_the_host(sampling: Sampling) -> None:
    vocabulary, hidden = 50, 8
    rng = np.random.default_rng(first())
    graph = chooser_graph(vocabulary, hidden, "float32", sampling.top_k or 1)
    net = compile_graph(graph, tec.Target("llvm"), state=graph.state)
    table = rng.standard_normal((vocabulary, hidden)).astype("f4")
    net.provide({"table": table})
    picker, executor = sampling.picker(), net.executor(capacity=LOG)
    inputs: dict[str, Any] = {}
    if sampling.temperature:
        inputs["draws"] = np.random.default_rng(sampling.seed).random(LOG).astype("f4")
        inputs["settings"] = np.array([1 / sampling.temperature, sampling.top_p, sampling.min_p], np.float32)
    assert executor.reserve(LOG) == LOG
    want = []
    for k in range(40):
        logits = (2 * rng.standard_normal(vocabulary)).astype("f4")
        executor.truncate(LOG - 1)
        inputs |= {"logits": logits[None], "count": np.array([k]), "row": np.array([k + 7])}
        chosen, row, count = (y.numpy() for y in executor.run(inputs))
        want.append(picker.pick(logits))
        assert (row[0], count[0]) == (k + 8, k + 1) and (chosen[0] == table[want[-1]]).all()
    executor.truncate(LOG - 1)
    executor.run({**inputs, "logits": np.full((1, vocabulary), np.nan, "f4"), "count": np.array([40])})
    assert executor.state["tokens"].numpy()[:41].tolist() == [*want, -1]


def test_what_the_host_has_to_choose() -> None:
    assert serves(Sampling(), 100) and serves(Sampling(1.0, top_k=40), 100)
    for sampling in (
        Sampling(1.0),
        Sampling(1.0, top_k=400),
        Sampling(repetition_penalty=1.1),
        Sampling(logit_bias={3: 1.0}),
    ):
        assert not serves(sampling, 1000)
    assert load(llama(), target="llvm", cache=False).ahead(3, Sampling(), None, 4) is None


def test_rows_go_where_an_input_says() -> None:
    """Sizes are those of the whole memory, whatever is in it."""
    graph = Graph("step")
    b = Builder(graph)
    x, _ = graph.input("x", "float32", (2, 4)), graph.input("row", "int64", (1,))
    past = graph.input("past", "float32", (3, Dim(Empty("past")), 4))
    whole = b.concat([past, b.op("multiply", b.broadcast(x, (3, 2, 4)), b.const(2.0, "float32"))], 1)
    graph.set_outputs([b.op("reduce_sum", whole, axes=(0, 1), keepdims=False), whole], ["y", "present"])
    graph.row_inputs["past"] = "row"
    net = compile_graph(graph, tec.Target("llvm"), state={"past": "present"})
    executor, x_of = net.executor(capacity=8), np.arange(8, dtype="f4").reshape(2, 4)
    assert executor.reserve(3) == 8
    want = np.zeros((3, 8, 4), "f4")
    for k, row in enumerate((2, 0, 6, 1)):
        executor.truncate(6)
        y = executor.run({"x": x_of + k, "row": np.array([row])})[0].numpy()
        want[:, row : row + 2] = 2 * (x_of + k)
        assert (y == want.sum((0, 1))).all() and (executor.state["past"].numpy() == want).all()
    assert executor.reserve(9) == 16  # what there is comes along
    assert (executor.state["past"].numpy()[:, :8] == want).all() and not executor.state["past"].numpy()[:, 8:].any()
    graph.row_inputs["past"] = "place"
    with pytest.raises(tec.ImportModelError, match="place"):
        compile_graph(graph, tec.Target("llvm"), state={"past": "present"})


def test_a_step_whose_place_is_an_input() -> None:
    """The same logits as of a network that has it as a size, with a window; behind a prompt that that one has read, and sizes that never change."""
    made = llama({"sliding_window": 4})
    checkpoint = Checkpoint("mistral", made.config, made.tensors)
    lm = load(checkpoint, target="llvm", cache=False)
    code = code_of(checkpoint, Form(lm.target, lm.dtype, tokens=1, placed=True, forgets=True), None)
    step = code.network(weights_of(code, checkpoint, None, 1)).executor(capacity=lm.context)
    tokens = np.random.default_rng(first()).integers(0, VOCABULARY, 12).tolist()

    def logits() -> list[Any]:
        return [lm.begin(tokens[:3]), *map(lm.next, tokens[3:]), lm.begin([*tokens[:5], 1, 2]), lm.next(3)]

    want = logits()
    lm.begin([0])
    lm._step = step
    assert max(np.abs(a - b).max() for a, b in zip(logits(), want)) < 1e-4
    assert lm.is_placed and step.length == len(lm.ids) == 8 and len(step._bindings) == 1


def test_a_network_goes_on_from_the_states_of_another() -> None:
    """Of some rows at a time, and of one: the second reads what the first has written, and the other way round; their weights are the same."""

    def net(rows: object) -> tec.Network:
        graph = Graph("step")
        b = Builder(graph)
        x = graph.input("x", "float32", (rows, 4))
        past = graph.input("past", "float32", (Dim(Empty("past")), 4))
        whole = b.concat([past, b.op("multiply", x, graph.deferred("w", "float32", (1, 4)))], 0)
        graph.set_outputs([b.op("reduce_sum", whole, axes=(0,), keepdims=False), whole], ["y", "present"])
        return compile_graph(graph, tec.Target("llvm"), state={"past": "present"})

    some, one = net(Dim("rows")), net(1)
    some.provide({"w": np.full((1, 4), 2, "f4")})
    one.share(some)
    a, b = some.executor(), one.executor()
    x = np.arange(24, dtype="f4").reshape(6, 4)
    a.run({"x": x[:3]})
    b.go_on_from(a)
    assert (b.run({"x": x[3:4]})[0].numpy() == 2 * x[:4].sum(0)).all() and b.length == 4
    a.go_on_from(b)
    assert (a.run({"x": x[4:]})[0].numpy() == 2 * x.sum(0)).all() and a.length == 6
    other = Graph("none")
    y = other.input("x", "float32", (4,))
    other.set_outputs([Builder(other).op("tanh", y)], ["y"])
    with pytest.raises(tec.ArgumentError, match="no state"):
        a.go_on_from(compile_graph(other, tec.Target("llvm")).executor())


@pytest.mark.parametrize("windows", [pytest.param(False, marks=pytest.mark.slow), True])
def test_a_text_on_a_gpu_in_software(windows: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """The caches are full behind the fourth token that is written, and grow; those of a window let rows go. Where tokens stand is counted by the device, which no CPU
    does."""
    monkeypatch.setattr(tec.lm.networks, "_FIRST_ROWS", 8)
    monkeypatch.setattr(state, "STEP", 2)
    monkeypatch.setattr(state, "SPARE", 2)
    made = llama({"sliding_window": 3, **MIXED} if windows else {})
    made = Checkpoint("smollm3" if windows else "llama", made.config, made.tensors)
    lm = load(made, target="rocm -mcpu=gfx942", device=tec.rocm_emu("gfx942"), dtype="float16")
    token = int(lm.begin(IDS).argmax())
    want = [token]
    for _ in range(7):
        want.append(int(lm.next(want[-1]).argmax()))
    assert bool(lm.executor.dropped.get("near")) == windows
    fresh = load(made, target="rocm -mcpu=gfx942", device=lm.executor.device, dtype="float16")
    fresh.begin(IDS)
    assert list(fresh.ahead(token, Sampling(), None, 7) or ()) == want[1:]
    assert "step" not in lm.report and lm.executor is not lm._whole
    lm.begin(IDS)
    text = lm.ahead(token, Sampling(), None, 4)
    assert text is not None
    assert [next(text), next(text)] == want[1:3]
    assert lm.ids == [*IDS, *want[:2]]
    text.close()  # a step that was queued is forgotten
    assert lm.executor.length == len(lm.ids)
    assert int(lm.next(want[2]).argmax()) == want[3]
    lm.begin(IDS)
    assert list(lm.ahead(token, Sampling(), None, 4) or ()) == want[1:5]


@pytest.mark.parametrize(
    "wrong",
    [
        {"seed": -1},
        {"seed": 0.5},
        {"seed": True},
        {"presence_penalty": float("nan")},
        {"frequency_penalty": float("inf")},
    ],
)
def test_how_tokens_are_drawn_is_checked_before_any_is(wrong):
    with pytest.raises(ArgumentError, match=r"seed|penalties"):
        Sampling(**wrong)
