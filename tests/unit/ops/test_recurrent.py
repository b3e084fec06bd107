"""Recurrent layers: every cell, way and size against NumPy, on the CPU (panels whole and not, weights packed and not, threads), by the
reference interpreter, and on the software GPU in both ways of going through time."""

import numpy as np
import pytest

import tec
from tec.errors import ImportModelError
from tec.graph import Graph, run_graph
from tec.ops.dims import Dim
from tec.ops.recurrent import GATES
from tests.thinned import thinned

USUAL = {"rnn": ["tanh"], "gru": ["sigmoid", "tanh"], "lstm": ["sigmoid", "tanh", "tanh"]}


def recurrence(
    cell,
    steps,
    batch,
    hidden,
    *,
    back=(False,),
    acts=None,
    extras=(),
    dtype="float32",
    constant=True,
    open_=False,
    **more,
):
    """(graph, feeds) of one layer."""
    rng = np.random.default_rng(hidden + 7 * steps + batch)
    n, directions = GATES[cell], len(back)
    g = Graph("layer")

    def rand(*shape):
        return (rng.standard_normal(shape) / np.sqrt(shape[-1])).astype(dtype)

    arrays = {"fed": rand(steps, batch, directions * n * hidden), "w": rand(directions, n * hidden, hidden)}
    shapes = {
        "hidden_start": (directions, batch, hidden), "cell_start": (directions, batch, hidden),
        "r_bias": (directions, hidden), "peepholes": (directions, 3 * hidden),
    }  # fmt: skip
    arrays |= {name: rand(*shapes[name]) for name in extras if name != "lengths"}
    if "lengths" in extras:
        arrays["lengths"] = rng.integers(0, steps + 1, batch).astype(np.int32)
    names = [*(("seq", "batch") if open_ else ()), "", ""]

    def shape(name):
        given = list(arrays[name].shape)
        for at, size in {"fed": {0: names[0], 1: names[1]}, "lengths": {0: names[1]}}.get(
            name, {1: names[1]} if "start" in name else {}
        ).items():
            given[at] = Dim(size) if size else given[at]
        return tuple(given)

    feeds = {k: v for k, v in arrays.items() if k != "w" or not constant}
    values = [g.constant(v, k) if k not in feeds else g.input(k, str(v.dtype), shape(k)) for k, v in arrays.items()]
    own = tuple((a if isinstance(a, tuple) else (a, 0.3, 0.6)) for a in (acts or USUAL[cell]))
    attrs = {
        "cell": cell,
        "hidden": hidden,
        "backward": back,
        "activations": (own,) * directions,
        "extras": tuple(extras),
        **more,
    }
    g.set_outputs(g.add("recurrence", values, attrs))
    return g, feeds


def check(g, feeds, target="llvm", device=None, tol=2e-5, choices=None):
    want = run_graph(g, feeds)
    got = tec.compile(g, target, cache=False, choices=choices).run(feeds, device)
    for a, b in zip(got, want, strict=True):
        assert a.shape == b.shape and a.dtype == b.dtype
        np.testing.assert_allclose(a.astype("float64"), b.astype("float64"), rtol=tol, atol=tol)


CASES = {
    "rnn": {"cell": "rnn", "steps": 4, "batch": 1, "hidden": 16},
    "gru before": {"cell": "gru", "steps": 4, "batch": 2, "hidden": 24},
    "gru after": {"cell": "gru", "steps": 3, "batch": 1, "hidden": 33, "reset_after": True, "extras": ("r_bias",)},
    "gru after, no bias": {"cell": "gru", "steps": 3, "batch": 1, "hidden": 33, "reset_after": True},
    "lstm": {"cell": "lstm", "steps": 5, "batch": 1, "hidden": 40},
    "lstm of all": {
        "cell": "lstm", "steps": 4, "batch": 3, "hidden": 20, "back": (False, True), "clip": 0.4, "coupled": True,
        "extras": ("hidden_start", "cell_start", "peepholes", "lengths"),
    },
    "many rows": {"cell": "lstm", "steps": 3, "batch": 11, "hidden": 17, "extras": ("lengths",)},
    "backwards": {"cell": "rnn", "steps": 4, "batch": 2, "hidden": 8, "back": (True,), "extras": ("hidden_start",)},
    "one unit": {"cell": "gru", "steps": 4, "batch": 2, "hidden": 1},
    "one step": {"cell": "lstm", "steps": 1, "batch": 1, "hidden": 5},
    "no entries": {"cell": "lstm", "steps": 2, "batch": 0, "hidden": 5},
    "no steps": {"cell": "gru", "steps": 0, "batch": 2, "hidden": 5, "extras": ("hidden_start",)},
}  # fmt: skip


@thinned(1, ("constant", [True, False]), ("case", CASES))
def test_layers_on_the_cpu(case, constant):
    check(*recurrence(**CASES[case], constant=constant))


@pytest.mark.parametrize("target", ["llvm -mcpu=x86-64-v3", "llvm -mcpu=x86-64"])
def test_layers_with_narrow_vectors(target):
    check(*recurrence(**CASES["lstm of all"]), target)


@pytest.mark.parametrize("threads", ["tasks", "panels", "none"])
def test_threads_change_nothing(threads):
    g, feeds = recurrence("gru", 4, 3, 40, back=(False, True))
    check(g, feeds, choices=lambda *_: {"template": "cpu recurrence", "threads": threads, "rows": 2})


@thinned(
    1, ("case", ["gru before", "gru after", "lstm of all"]), ("way", [("loop", 1), ("launches", 1), ("launches", 2)])
)
def test_layers_on_the_software_gpu(case, way):
    g, feeds = recurrence(**CASES[case], constant=case != "gru before")
    choice = {"template": "gpu recurrence", "time": way[0], "rows": way[1]}
    check(g, feeds, "rocm -mcpu=gfx942", "rocm_emu:gfx942", choices=lambda *_: choice)


@thinned(1, ("target", ["cuda -arch=sm_90", "rocm -mcpu=gfx1100"]), ("cell", GATES))
def test_layers_have_code_for_other_gpus(cell, target):
    g, _ = recurrence(cell, 5, 2, 48, extras=("lengths",))
    assert tec.compile(g, target, cache=False).get_binary()


@pytest.mark.parametrize(("target", "device"), [("llvm", None), ("rocm -mcpu=gfx942", "rocm_emu:gfx942")])
def test_one_function_serves_all_lengths(target, device):
    g, _ = recurrence(
        "lstm", 3, 2, 12, back=(False, True), extras=("hidden_start", "cell_start", "lengths"), open_=True
    )
    net = tec.compile(g, target, cache=False)
    for steps, batch in ((3, 2), (1, 1), (7, 5)):
        same, feeds = recurrence(
            "lstm", steps, batch, 12, back=(False, True), extras=("hidden_start", "cell_start", "lengths")
        )
        same.nodes[0].inputs[1].data = g.nodes[0].inputs[1].data
        for a, b in zip(net.run(feeds, device), run_graph(same, feeds), strict=True):
            np.testing.assert_allclose(a, b, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize(
    "name",
    ["relu", "softsign", "softplus", "leaky_relu", "elu", "thresholded_relu", "hard_sigmoid", "affine", "scaled_tanh"],
)
def test_activations(name):
    check(*recurrence("rnn", 3, 2, 10, acts=[name]))


def test_directions_may_have_other_activations():
    g, feeds = recurrence("rnn", 3, 2, 10, back=(False, True))
    node = g.nodes[0]
    node.attrs["activations"] = ((("tanh", 0.0, 0.0),), (("relu", 0.0, 0.0),))
    check(g, feeds)
    check(g, feeds, "rocm -mcpu=gfx942", "rocm_emu:gfx942")


@pytest.mark.parametrize(("dtype", "tol"), [("float64", 1e-12), ("float16", 4e-3)])
def test_other_types(dtype, tol):
    g, feeds = recurrence("lstm", 4, 2, 20, dtype=dtype)
    check(g, feeds, tol=tol)


def test_the_definition_is_what_numpy_says():
    from tec import te
    from tec.ir.interp import run
    from tec.ops import TensorType, get_op
    from tec.schedule import create_schedule, to_loops

    for case in ("gru before", "lstm of all"):  # "gru after" by the compiled tests above
        g, feeds = recurrence(**CASES[case], constant=False)
        node, op = g.nodes[0], get_op("recurrence")
        xs = [te.placeholder(v.shape, v.dtype, name=f"x{k}") for k, v in enumerate(node.inputs)]
        outs = op.compute(node.attrs, list(xs), [TensorType(v.dtype, v.shape) for v in node.outputs])
        func = to_loops(create_schedule([outs[0].op]), [*xs, *outs], name="f")
        arrays = [feeds[v.name].copy() for v in node.inputs]
        made = [np.zeros(v.shape, v.dtype) for v in node.outputs]
        run(func, [*arrays, *made])
        for a, b in zip(made, run_graph(g, feeds), strict=True):
            np.testing.assert_allclose(a, b, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"hidden": 9}, "of 9 units that is fed"),
        ({"cell": "mgu"}, "cell 'mgu'"),
        ({"activations": ((("tanh", 0.0, 0.0),) * 2,)}, "activations"),
        ({"backward": (False, False, True)}, "directions"),
        ({"extras": ("peepholes",)}, "inputs"),
    ],
)
def test_what_does_not_fit_is_refused(change, says):
    g, _ = recurrence("rnn", 2, 1, 4)
    node = g.nodes[0]
    with pytest.raises(ImportModelError, match=says):
        g.add("recurrence", node.inputs, {**node.attrs, **change})
