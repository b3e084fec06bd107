"""Forged plans with loops and branches: what could make compiled code read or write what it must not is refused when a network is loaded."""

import copy

import numpy as np
import pytest

import tec
from tec.errors import PackageError
from tec.graph import Graph
from tec.graph.builders import Builder
from tec.graph.builders.control import choose, loop
from tec.ops.dims import Dim
from tec.runtime.networks.network import Network
from tec.runtime.plans.plan import Plan


def network(open_):
    g = Graph("g")
    t = Dim("t") if open_ else 4
    b, x, w, n = (
        Builder(g, "l"),
        g.input("x", "float32", (6,)),
        g.input("w", "float32", (t, 6)),
        g.input("n", "int64", ()),
    )

    def step(b, number, states, rows):
        s = b.op("add", states[0], rows[0])
        return [s], [b.op("tanh", s)], None

    final, made = loop(b, step, [x], t, rows=[(w, False)], made=[False])
    more, _ = loop(
        b,
        lambda b, k, s, rows: (
            [b.op("add", s[0], x)],
            [],
            b.op("less", b.op("reduce_max", s[0], axes=(0,)), b.const(np.float32(9))),
        ),
        [x],
        None,
        count=n,
    )
    flag = b.op("less", n, b.const(np.int64(3)))
    last = choose(
        b, flag, lambda body: [Builder(body).op("neg", more[0])], lambda body: [Builder(body).op("tanh", more[0])]
    )
    g.set_outputs([*final, *made, *last], ["final", "made", "last"])
    return tec.compile(g, cache=False)


@pytest.fixture(scope="module", params=[False, True], ids=["numbers", "open"])
def net(request):
    return network(request.param)


def first(p, op):
    return next(s for s in p["steps"] if s["op"] == op)


def rows(p):
    return next(s for s in p["steps"] if s.get("items"))


def item(p):
    return p["values"][rows(p)["items"][0][0]]


def make(p, name, like, **change):
    p["values"][name] = copy.deepcopy(p["values"][like]) | change
    return name


FORGED = {
    "no steps": lambda p: first(p, "repeat").update(steps=None),
    "steps that are no steps": lambda p: first(p, "choose").update(then=[3]),
    "a state of three": lambda p: first(p, "repeat").update(carried=[["a", "b", "c"]]),
    "a state that is not there": lambda p: first(p, "repeat")["carried"][0].__setitem__(0, "ghost"),
    "a state that is a weight": lambda p: first(p, "repeat")["carried"][0].__setitem__(1, "x"),
    "a state of another type": lambda p: first(p, "repeat")["carried"][0].__setitem__(1, rows(p)["items"][0][0]),
    "a state twice": lambda p: first(p, "repeat")["carried"].append(list(first(p, "repeat")["carried"][0])),
    "a row that moves by two": lambda p: rows(p)["items"][0].__setitem__(1, 2),
    "a row of nothing": lambda p: item(p).update(of="ghost"),
    "a row of something flat": lambda p: item(p).update(of="x"),
    "more rows than there are": lambda p: rows(p).update(trips=99),
    "rows without an end": lambda p: rows(p).pop("trips"),
    "a row outside of its loop": lambda p: p["steps"].append(copy.deepcopy(rows(p)["steps"][0])),
    "a row that no loop moves": lambda p: rows(p).update(items=[]),
    "a count that is a number of another kind": lambda p: next(s for s in p["steps"] if "count" in s).update(count="x"),
    "a condition that is a state": lambda p: first(p, "choose").update(condition=rows(p)["carried"][0][0]),
    "a condition that is not there": lambda p: first(p, "choose").update(condition="ghost"),
    "a loop before what it needs": lambda p: p["steps"].reverse(),
    "a loop without an end": lambda p: [s.pop(k, None) for s in p["steps"] if s["op"] == "repeat" for k in ("count", "going")],
    "trips by a size that no input gives": lambda p: rows(p).update(trips="moon"),
    "a body that does not make its state": lambda p: [s for s in p["steps"] if s["op"] == "repeat"][-1].update(steps=[], going=None),
    "an output that is a row": lambda p: p["outputs"][0].update(value=rows(p)["items"][0][0]),
}  # fmt: skip


@pytest.mark.parametrize("case", FORGED)
def test_forged(net, case):
    data = copy.deepcopy(net.plan.to_json())
    assert Plan.from_json(data) == net.plan
    FORGED[case](data)
    with pytest.raises(PackageError):
        made = Network(net.module, Plan.from_json(data), net.params)
        made.run({"x": np.zeros(6, np.float32), "w": np.zeros((4, 6), np.float32), "n": np.int64(2)})


def test_steps_may_be_deep_but_not_endless(net):
    data = net.plan.to_json()
    step = copy.deepcopy(first(data, "repeat"))
    for _ in range(40):
        step = {"op": "repeat", "steps": [step], "trips": 1, "carried": [], "items": []}
    data["steps"] = [step]
    with pytest.raises(PackageError, match="deep"):
        Plan.from_json(data)
