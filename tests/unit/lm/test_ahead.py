"""Tokens that a device chooses: those that the host would choose, and caches that hold no more than what was given."""

from __future__ import annotations

import numpy as np
import pytest

import tec
from tec.graph import Graph
from tec.graph.builders import Builder
from tec.graph.compiler import compile_graph
from tec.lm import load
from tec.lm.ahead import chooser_graph, serves
from tec.lm.sampling import Sampling
from tec.ops.dims import Dim, Empty
from tests.seeds import first

from .tiny import llama

IDS = [3, 17, 5, 9]


@pytest.mark.parametrize(
    "sampling",
    [Sampling(), Sampling(0.8, top_k=5), Sampling(1.3, top_k=8, top_p=0.6), Sampling(1.0, top_k=8, min_p=0.2)],
    ids=str,
)
def test_the_same_tokens_as_the_host(sampling: Sampling) -> None:
    vocabulary, hidden = 50, 8
    rng = np.random.default_rng(first())
    net = compile_graph(chooser_graph(vocabulary, hidden, "float32", sampling.top_k or 1), tec.Target("llvm"))
    table = rng.standard_normal((vocabulary, hidden)).astype("f4")
    net.provide({"table": table})
    picker, draws = sampling.picker(), np.random.default_rng(sampling.seed)
    for _ in range(40):
        logits = (2 * rng.standard_normal(vocabulary)).astype("f4")
        inputs = {"logits": logits[None]}
        if sampling.temperature:
            given = [draws.random(), 1 / sampling.temperature, sampling.top_p, sampling.min_p]
            inputs["draw"] = np.array(given, np.float32)
        token, best, row = (y.numpy() for y in net.executor().run(inputs))
        assert token[0] == picker.pick(logits)
        assert best[0] == logits.max() and (row[0] == table[token[0]]).all()


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


@pytest.mark.slow
def test_a_text_on_a_gpu_in_software() -> None:
    lm = load(llama(), target="rocm -mcpu=gfx942", device=tec.rocm_emu("gfx942"), dtype="float16", cache=False)
    token = int(lm.begin(IDS).argmax())
    want = [token]
    for _ in range(4):
        want.append(int(lm.next(want[-1]).argmax()))
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
    assert list(lm.ahead(token, Sampling(), None, 4) or ()) == want[1:]
