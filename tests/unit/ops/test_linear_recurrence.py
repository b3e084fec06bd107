"""Linear recurrences: the definition, the CPU's loops and a GPU's threads against NumPy in float64, at once and token by token."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tec
from tec.errors import ImportModelError
from tec.graph import Graph, run_graph
from tec.ops.dims import Dim
from tests.seeds import first
from tests.thinned import thinned_rows

NAMES = ("q", "k", "v", "decay", "state", "beta")


def drawn(tokens: int, heads: int, groups: int, size: int, width: int, what: int = 0, each: bool = False) -> dict[str, Any]:  # fmt: skip
    rng = np.random.default_rng(first(what))
    shapes = [(tokens, groups, size)] * 2 + [
        (tokens, heads, width),
        (tokens, heads, size, width) if each else (tokens, heads),
        (heads, size, width),
        (tokens, heads),
    ]
    feeds = {n: rng.standard_normal(s).astype(np.float32) for n, s in zip(NAMES, shapes)}
    feeds["k"] /= np.sqrt(size)
    feeds["decay"] = -np.abs(feeds["decay"])
    feeds["beta"] = 1 / (1 + np.exp(-feeds["beta"]))
    return feeds


def graph(feeds: dict[str, Any], delta: bool, tiled: bool, tokens: Any = None) -> Graph:
    g = Graph("scan")
    names = NAMES if delta else NAMES[:5]
    shapes = {n: feeds[n].shape if n == "state" or tokens is None else (tokens, *feeds[n].shape[1:]) for n in names}
    g.set_outputs(
        g.add("linear_recurrence", [g.input(n, "float32", shapes[n]) for n in names], {"tiled": tiled}), ["y", "end"]
    )
    return g


def reference(f: dict[str, Any], delta: bool, tiled: bool) -> tuple[Any, Any]:
    """As the formulas say, in float64."""
    q, k, v, decay, state, beta = (f[n].astype(np.float64) for n in NAMES)
    heads, groups = v.shape[1], q.shape[1]
    y, s = np.zeros(v.shape), state.copy()
    for t in range(len(v)):
        for h in range(heads):
            g = h % groups if tiled else h // (heads // groups)
            s[h] *= np.exp(decay[t, h])  # one number, or one for each of the state's
            u = beta[t, h] * (v[t, h] - k[t, g] @ s[h]) if delta else v[t, h]
            s[h] += np.outer(k[t, g], u)
            y[t, h] = q[t, g] @ s[h]
    return y, s


@thinned_rows(
    2,
    ("delta", "tiled", "sizes", "each"),
    [
        (False, False, (4, 2, 6, 32), False),
        (False, False, (1, 1, 6, 40), True),
        (True, False, (4, 2, 8, 5), False),
        (True, True, (6, 3, 8, 12), True),
    ],
)
def test_definition_and_cpu(delta: bool, tiled: bool, sizes: tuple[int, ...], each: bool) -> None:
    """each: a decay for each number of the state."""
    f = drawn(7, *sizes, each=each)
    g = graph(f, delta, tiled, Dim("tokens"))
    own = {v.name: f[v.name] for v in g.inputs}
    want = reference(f, delta, tiled)
    net = tec.compile(g, target="llvm", cache=False)
    for made in (run_graph(g, own), net.run(own)):
        for got, w in zip(made, want):
            np.testing.assert_allclose(got, w, atol=2e-5)
    state = f["state"]
    for t in range(7):
        y, state = net.run({n: state if n == "state" else x[t : t + 1] for n, x in own.items()})
        np.testing.assert_allclose(y[0], want[0][t], atol=2e-5)
    np.testing.assert_allclose(state, want[1], atol=2e-5)


def test_on_the_software_gpu() -> None:
    f = drawn(3, 2, 1, 4, 8)
    g = graph(f, True, False)
    own = {v.name: f[v.name] for v in g.inputs}
    made = tec.compile(g, target="rocm -mcpu=gfx1100", cache=False).run(own, device=tec.rocm_emu("gfx1100"))
    for got, w in zip(made, reference(f, True, False)):
        np.testing.assert_allclose(got, w, atol=2e-5)


def test_what_does_not_fit_is_refused() -> None:
    f = drawn(3, 4, 3, 4, 8)
    with pytest.raises(ImportModelError, match="linear recurrence"):
        graph(f, True, False)
