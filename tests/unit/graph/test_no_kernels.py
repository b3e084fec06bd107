"""A network that only renames and slices has no kernel, and still belongs to the device that it was compiled for."""

from __future__ import annotations

import numpy as np

import tec
from tec.graph import Graph


def test_a_network_without_kernels_runs_on_its_device() -> None:
    graph = Graph("views")
    x = graph.input("x", "float32", (4, 3))
    graph.set_outputs(graph.add("reshape", [x], {"shape": (3, 4)}))
    net = tec.compile(graph, target="rocm -mcpu=gfx942", cache=False)
    assert net.module.device_kind == "rocm"
    a = np.arange(12, dtype=np.float32).reshape(4, 3)
    (got,) = net.run({"x": a}, device=tec.rocm_emu("gfx942"))
    np.testing.assert_array_equal(got, a.reshape(3, 4))
