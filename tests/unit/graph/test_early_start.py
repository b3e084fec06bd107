"""Kernels of a network with states may begin before the ones ahead of them have ended, where the chip can; those of others may not."""

from __future__ import annotations

import pytest

import tec
from tec.graph import Graph
from tec.graph.builders import Builder
from tec.graph.compiler import compile_graph
from tec.ops.dims import Dim, Empty


@pytest.mark.parametrize(("chip", "has_state"), [("sm_90a", True), ("sm_90a", False), ("sm_80", True)])
def test_short_kernels_of_a_step(chip: str, has_state: bool) -> None:
    graph = Graph("step")
    b = Builder(graph)
    x = graph.input("x", "float32", (1, 64))
    past = graph.input("past", "float32", (Dim(Empty("rows")), 64))
    graph.set_outputs([b.op("tanh", x), b.concat([past, x], 0)], ["y", "present"])
    net = compile_graph(graph, tec.Target(f"cuda -arch={chip}"), state={"past": "present"} if has_state else None)
    rows = net._launches().rows
    assert rows and {r.early for r in rows} == {has_state and chip == "sm_90a"}
    assert ("griddepcontrol.wait" in net.get_source("ptx")) == (has_state and chip == "sm_90a")
