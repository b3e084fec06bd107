"""What has no elements to compute has no tiles: every group compiles and runs, whatever template would serve it with some."""

from __future__ import annotations

import numpy as np

import tec
from tec.graph import Graph
from tec.graph.builders import Builder
from tests.thinned import thinned

DEVICES = {"llvm": "cpu", "rocm -mcpu=gfx942": "rocm_emu:gfx942", "rocm -mcpu=gfx1100": "rocm_emu:gfx1100"}
_CONV = {"strides": (1, 1), "dilations": (1, 1), "before": (1, 1), "after": (1, 1), "groups": 1}


@thinned(
    1,
    ("target", DEVICES),
    (
        "op, left, right, attrs, shape",
        [
            ("matmul", (0, 5), (5, 24), {}, (0, 24)),
            ("matmul", (2, 0, 64), (64, 64), {}, (2, 0, 64)),
            ("matmul", (2, 64), (64, 0), {}, (2, 0)),
            ("conv", (0, 16, 8, 8), (32, 16, 3, 3), _CONV, (0, 32, 8, 8)),
        ],
    ),
)
def test_of_nothing(op: str, left: tuple[int, ...], right: tuple[int, ...], attrs: dict, shape: tuple, target: str):
    g = Graph(op)
    b = Builder(g, "n")
    values = g.input("x", "float32", left), g.input("w", "float32", right)
    g.set_outputs([b.op(op, *values, **attrs)])
    net = tec.compile(g, target=target, cache=False)
    got = net.run({"x": np.zeros(left, "f"), "w": np.ones(right, "f")}, tec.device(DEVICES[target]))
    assert [x.shape for x in got] == [shape]
