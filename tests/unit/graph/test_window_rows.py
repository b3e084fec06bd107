"""Convolutions of few channels by rows of their windows: what they mean, and where they pay."""

from __future__ import annotations

import numpy as np
import pytest

import tec
from tec.graph import Graph, run_graph
from tec.graph.optimize import optimize
from tests.unit.graph.test_few_outputs import convolution, image

MI210 = tec.Target("rocm -mcpu=gfx90a")

CASES = [
    {"shape": (2, 3, 9, 11), "channels": 24, "kernel": (3, 3), "dtype": "float16"},
    {"shape": (1, 9, 12, 10), "channels": 17, "kernel": (5, 3), "strides": (2, 2), "dilations": (2, 1), "before": (1, 0), "after": (2, 3), "dtype": "float16"},
    {"shape": (2, 5, 14), "channels": 16, "kernel": (7,), "strides": (3,), "dtype": "float16"},
    {"shape": (1, 3, 5, 6, 7), "channels": 16, "kernel": (3, 2, 5), "before": (1, 0, 2), "dtype": "float32"},
    {"shape": (1, 1, 8, 40), "channels": 16, "kernel": (1, 9), "before": (0, 0), "dtype": "float32"},
]  # fmt: skip


@pytest.fixture
def by_rows(monkeypatch) -> None:
    """Whatever prices say."""
    monkeypatch.setattr("tec.graph.passes.window_rows._pays", lambda *a: True)


@pytest.mark.parametrize("case", CASES)
def test_values(case, by_rows) -> None:
    """As the convolution's, of one channel without padding."""
    g = convolution(**case)
    after = optimize(g, MI210)
    (conv,) = (n for n in after.nodes if n.op == "conv")
    assert not any((*conv.attrs["before"], *conv.attrs["after"]))
    np.testing.assert_array_equal(run_graph(after, image(g))[0], run_graph(g, image(g))[0])


@pytest.mark.parametrize("case", CASES[:3])
@pytest.mark.parametrize("chip", ["gfx90a", "gfx1201"])
def test_on_the_software_gpu(case, chip, by_rows) -> None:
    g = convolution(**case)
    want = run_graph(g, image(g))[0]
    dev = tec.rocm_emu(chip, check="all")
    (got,) = tec.compile(g, f"rocm -mcpu={chip}", cache=False).run(image(g), device=dev)
    np.testing.assert_array_equal(np.asarray(got), want)


def _taken(target: str, **case) -> bool:
    return any(n.op == "transpose" for n in optimize(convolution(**case), tec.Target(target)).nodes)


@pytest.mark.parametrize("target,pays,case", [
    ("rocm -mcpu=gfx90a", True, {"shape": (32, 9, 32, 32), "channels": 752, "kernel": (7, 7), "dtype": "float16"}),
    ("rocm -mcpu=gfx950", True, {"shape": (32, 14, 207, 207), "channels": 11, "kernel": (7, 7), "dtype": "float16"}),
    ("rocm -mcpu=gfx942", False, {"shape": (32, 3, 128, 128), "channels": 14, "kernel": (3, 3), "dtype": "float16"}),  # the copy takes longer
    ("rocm -mcpu=gfx90a", False, {"shape": (32, 16, 32, 32), "channels": 752, "kernel": (7, 7), "dtype": "float16"}),  # whole pieces
    ("rocm -mcpu=gfx90a", False, {"shape": (32, 9, 32, 32), "channels": 752, "kernel": (7, 7), "dilations": (1, 2), "before": (3, 6), "dtype": "float16"}),  # no runs
    ("cuda -arch=sm_90a", False, {"shape": (32, 9, 32, 32), "channels": 752, "kernel": (7, 7), "dtype": "float16"}),  # whose prices do not tell
])  # fmt: skip
def test_where_it_pays(target, pays, case) -> None:
    assert _taken(target, **case) == pays


def test_only_pictures(by_rows) -> None:
    """Of a network only those of its inputs: within it images lie as pixels by channels already."""
    g, rng = Graph(), np.random.default_rng(1)
    x = g.input("x", "float16", (1, 3, 16, 16))
    for channels in (12, 20):
        w = g.constant(rng.integers(-2, 3, (channels, x.shape[1], 3, 3)).astype("float16"))
        (x,) = g.add(
            "conv", [x, w], {"strides": (1, 1), "dilations": (1, 1), "groups": 1, "before": (1, 1), "after": (1, 1)}
        )
    g.set_outputs([x])
    assert sum(n.op == "transpose" for n in optimize(g, MI210).nodes) == 1
