"""Decoders token by token: caches that grow in place, against ONNX Runtime, which is given its caches anew each time."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tec
from tec.errors import ArgumentError, ImportModelError, PackageError
from tec.graph import Graph
from tec.ops.dims import Dim
from tec.runtime.networks.network import Network
from tec.runtime.plans.plan import Plan
from tests.networks.decoder import decoder, feeds

ort = pytest.importorskip("onnxruntime")

HEADS, SIZE = 2, 16
IDS = np.random.default_rng(3).integers(0, 96, (2, 24))


class Reference:
    """ONNX Runtime with its caches."""

    def __init__(self, model: Any):
        self.session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
        self.names = [o.name for o in self.session.get_outputs()]
        self.caches: dict[str, Any] = {}

    def start(self, batch: int) -> None:
        shape = (batch, HEADS, 0, SIZE)
        self.caches = {
            i.name: np.zeros(shape, np.float32) for i in self.session.get_inputs() if i.name.startswith("past")
        }

    def run(self, inputs: dict[str, Any]) -> Any:
        out = dict(zip(self.names, self.session.run(None, {**inputs, **self.caches})))
        self.caches = {n: out[n.replace("past_key_values", "present")] for n in self.caches}
        return out["logits"]


@pytest.fixture(scope="module")
def model() -> Any:
    return decoder()


@pytest.fixture(scope="module")
def net(model) -> Network:
    return tec.compile(model, target="llvm")


def close(a: Any, b: Any) -> None:
    np.testing.assert_allclose(np.asarray(a), b, rtol=2e-4, atol=2e-4)


def tokens(batch: int, at: int, n: int) -> dict[str, Any]:
    return feeds(IDS[:batch, at : at + n], at)


def both(ex: Any, ref: Reference, batch: int, at: int, n: int) -> None:
    f = tokens(batch, at, n)
    (logits,) = ex.run(f)
    close(logits.numpy(), ref.run(f))
    assert ex.length == at + n


def test_states_are_found_by_name(net):
    assert [(s.input, s.output, s.axis) for s in net.plan.states[:2]] == [
        ("past_key_values.0.key", "present.0.key", 2),
        ("past_key_values.0.value", "present.0.value", 2),
    ]
    assert net.plan.empty == ("past_sequence_length",)
    assert [i["shape"] for i in net.inputs][1] == ["batch", ["add", "past_sequence_length", "sequence_length"]]


@pytest.mark.parametrize("capacity", [None, 2])
def test_token_by_token(model, net, capacity):
    ex, ref = net.executor(capacity=capacity), Reference(model)
    for batch in (2, 1):
        ex.reset()
        ref.start(batch)
        at = 0
        for n in (5, 1, 1, 3, 1, 1):  # with a capacity of 2: it grows in the first step, later, and not in others
            both(ex, ref, batch, at, n)
            at += n
        for name, cache in ex.state.items():
            close(cache.numpy(), ref.caches[name])


def test_nothing_but_new_rows_moves(net):
    ex = net.executor(capacity=16)
    ex.run(tokens(1, 0, 4))
    places = {n: a.address for n, a in ex.state.items()}
    before = {n: a.numpy() for n, a in ex.state.items()}
    ex.run(tokens(1, 4, 1))
    for n, a in ex.state.items():
        assert a.address == places[n]
        np.testing.assert_array_equal(a.numpy()[:, :, :4], before[n])
    # Of the plan's functions none writes a cache but those that append to it.
    rows = [n for n, v in net.plan.values.items() if v.place == "rows" and n.endswith(".new")]
    assert len(rows) == len(net.plan.states)


def test_stateless_as_before(model, net):
    ref = Reference(model)
    ref.start(2)
    for at, n in ((0, 3), (3, 1)):
        f = tokens(2, at, n)
        got = dict(zip([o["name"] for o in net.outputs], net.run({**f, **ref.caches})))
        close(got["logits"], ref.run(f))
        for name, cache in ref.caches.items():
            close(got[name.replace("past_key_values", "present")], cache)


def test_begins_with_given_caches(model, net):
    ex, ref = net.executor(), Reference(model)
    ref.start(2)
    ref.run(tokens(2, 0, 6))
    f = tokens(2, 6, 1)
    given = {**f, **ref.caches}
    close(ex.run(given)[0].numpy(), ref.run(f))
    both(ex, ref, 2, 7, 1)


def test_truncate(model, net):
    ex, ref = net.executor(), Reference(model)
    ref.start(1)
    both(ex, ref, 1, 0, 4)
    ex.run(tokens(1, 4, 3))  # a draft that is not taken
    ex.truncate(4)
    both(ex, ref, 1, 4, 1)
    for wrong, says in ((6, "has 5 rows"), (-1, "number of rows"), (1.5, "number of rows")):
        with pytest.raises(ArgumentError, match=says):
            ex.truncate(wrong)
    both(ex, ref, 1, 5, 1)


def test_beams(model, net):
    ex, ref = net.executor(), Reference(model)
    ref.start(1)
    both(ex, ref, 1, 0, 4)
    for order, batch in (([0, 0], 2), ([1, 0], 2), ([1], 1)):
        ex.reorder(order)
        ref.caches = {n: c[order] for n, c in ref.caches.items()}
        at = ex.length
        both(ex, ref, batch, at, 1)
    for wrong in ([1], [-1], [], [[0]], [0.5], "a"):
        with pytest.raises(ArgumentError, match="reorder"):
            ex.reorder(wrong)
    both(ex, ref, 1, ex.length, 1)


def test_wrong_runs_lose_nothing(model, net):
    ex, ref = net.executor(), Reference(model)
    ref.start(1)
    both(ex, ref, 1, 0, 4)
    short = tokens(1, 4, 1)
    short["attention_mask"] = short["attention_mask"][:, 1:]
    wrong: list[tuple[dict[str, Any], str]] = [
        (short, "attention_mask has shape"),  # a mask for a cache of another length
        (tokens(2, 4, 1), "state past_key_values.0.key has shape"),  # another batch
        ({**tokens(1, 4, 1), "input_ids": np.array([[96]])}, "element that is not there"),
        ({**tokens(1, 4, 1), "past_key_values.0.key": np.zeros((1, 2, 4, 16), "float32")}, "missing"),
        ({"input_ids": IDS[:1, 4:5]}, "missing"),
    ]
    other = {n: np.zeros((1, 3, 4, 16), np.float32) for n in ref.caches}  # of a network with three heads
    wrong.append(({**tokens(1, 4, 1), **other}, "past_key_values.0.key has shape"))
    uneven = {n: np.zeros((1, 2, 4 - n.endswith("value"), 16), np.float32) for n in ref.caches}
    wrong.append(({**tokens(1, 4, 1), **uneven}, "past_sequence_length is 4 elsewhere and 3"))
    for given, says in wrong:
        with pytest.raises(ArgumentError, match=says):
            ex.run(given)
        assert ex.length == 4
    both(ex, ref, 1, 4, 2)


def test_given_caches_that_fail_lose_nothing(model, net):
    """What a run is given takes no place of what there is before it has succeeded: another batch, other contents."""
    ex, ref = net.executor(), Reference(model)
    ref.start(1)
    both(ex, ref, 1, 0, 4)
    for batch in (1, 2):
        f = tokens(batch, 4, 1)
        given = {n: np.full((batch, 2, 4, 16), 7, np.float32) for n in ref.caches}
        with pytest.raises(ArgumentError, match="element that is not there"):
            ex.run({**f, **given, "input_ids": np.full((batch, 1), 96)})
        for n, cache in ex.state.items():
            np.testing.assert_allclose(cache.numpy(), ref.caches[n], rtol=2e-4, atol=2e-4)
    both(ex, ref, 1, 4, 1)


@pytest.mark.parametrize("wrong", [0, -1, 1.5, "a", True, 1 << 70])
def test_room_that_is_no_number(net, wrong):
    with pytest.raises(ArgumentError, match="capacity is"):
        net.executor(capacity=wrong)
    with pytest.raises(ArgumentError, match="memory_limit is"):
        net.executor(memory_limit=wrong or -1)


def test_no_fixed_sizes(net):
    with pytest.raises(ArgumentError, match="whose states grow has no fixed sizes"):
        net.bind(batch=1)


def test_saved_with_its_states(model, net, tmp_path):
    net.save(tmp_path / "d.tec")
    again = tec.load(tmp_path / "d.tec")
    assert again.plan.states == net.plan.states
    ex, ref = again.executor(), Reference(model)
    ref.start(1)
    for at, n in ((0, 3), (3, 1)):
        both(ex, ref, 1, at, n)


def test_without_states(model):
    net = tec.compile(model, target="llvm", state=False)
    assert not net.plan.states
    with pytest.raises(ArgumentError, match="no state"):
        net.executor().reset()
    ref = Reference(model)
    ref.start(1)
    ref.run(tokens(1, 0, 3))
    f = tokens(1, 3, 1)
    close(net.run({**f, **ref.caches})[0], ref.run(f))


@pytest.mark.parametrize(
    ("state", "says"),
    [
        ({"past": "present.0.key"}, "no input 'past'"),
        (["past_key_values.0.key"], "state is"),
        ({"past_key_values.0.key": "present"}, "no output 'present'"),
        ({"past_key_values.0.key": "logits"}, "cannot become input"),
        ({"past_key_values.0.key": "present.0.key", "past_key_values.0.value": "present.0.key"}, "becomes two inputs"),
    ],
)
def test_wrong_declarations(model, state, says):
    with pytest.raises(ImportModelError, match=says):
        tec.compile(model, target="llvm", state=state)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda p: p["values"]["present_0_key.new"].update(offset=["add", "past_sequence_length", 99]), "no rows of"),
        (lambda p: p["values"]["present.0.key"].update(offset=1), "not its rows"),
        (lambda p: p["states"][0].update(axis=3), "grows along axis"),
        (lambda p: p["states"][0].update(capacity="batch"), "grows along axis"),
        (lambda p: p["states"].pop(0), "no state that grows"),
        (lambda p: p["states"][0].update(input="nobody"), "no input and output"),
        (lambda p: p.update(states=[3]), "a state is"),
    ],
)
def test_forged_states(net, change, says):
    plan = net.plan.to_json()
    change(plan)
    with pytest.raises(PackageError, match=says):
        forged = Network(net.module, Plan.from_json(plan), net.params)
        forged.executor().run(tokens(1, 0, 3))


def test_a_state_that_is_replaced():
    """A recurrent step: its state has one size, and is what the output was."""
    g = Graph()
    b = Dim("batch")
    x, h = g.input("x", "float32", (b, 8)), g.input("h", "float32", (b, 8))
    w = g.constant(np.eye(8, dtype="float32") * 0.5)
    new = g.add("tanh", [g.add("add", [x, g.add("matmul", [h, w])[0]])[0]])[0]
    g.set_outputs([new, g.add("multiply", [new, new])[0]], ["h_next", "y"])
    net = tec.compile(g, target="llvm", state={"h": "h_next"})
    ex = net.executor()
    rng = np.random.default_rng(0)
    want = np.zeros((3, 8), "float32")
    for _ in range(4):
        now = rng.standard_normal((3, 8)).astype("float32")
        want = np.tanh(now + 0.5 * want)
        close(ex.run({"x": now})[0].numpy(), want * want)
    close(ex.state["h"].numpy(), want)
    with pytest.raises(ArgumentError, match="3 elsewhere and 2"):
        ex.run({"x": now[:2]})
    ex.reorder([2, 0])
    want = np.tanh(now[:2] + 0.5 * want[[2, 0]])
    close(ex.run({"x": now[:2]})[0].numpy(), want * want)
    with pytest.raises(ArgumentError, match="no rows"):
        ex.truncate(0)
    ex.reset()
    close(ex.run({"x": now})[0].numpy(), np.tanh(now) ** 2)


@pytest.mark.slow
def test_on_the_software_gpu():
    model = decoder(layers=2, hidden=64, heads=4, kv_heads=2, vocabulary=96)
    net = tec.compile(model, target="rocm -mcpu=gfx942")
    ex, ref = net.executor(tec.rocm_emu("gfx942"), capacity=4), Reference(model)
    ref.start(2)
    ids = IDS
    at = 0
    for n in (3, 1, 1):
        f = feeds(ids[:, at : at + n], at)
        close(ex.run(f)[0].numpy(), ref.run(f))
        at += n
    ex.reorder([1, 1])
    ref.caches = {n: c[[1, 1]] for n, c in ref.caches.items()}
    ex.truncate(at)
    f = feeds(ids[:, at : at + 1], at)
    close(ex.run(f)[0].numpy(), ref.run(f))
