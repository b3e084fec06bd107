"""Kernels of a network with states may begin before the ones ahead of them have ended, where the chip can; those of others may not."""

from __future__ import annotations

import re

import numpy as np
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


@pytest.mark.parametrize("constant", [True, False])
def test_constant_weights_are_asked_for_before_the_kernel_ahead_has_ended(constant: bool) -> None:
    """Others may be what that kernel writes."""
    graph = Graph("step")
    b = Builder(graph)
    x, past = graph.input("x", "float16", (1, 1024)), graph.input("past", "float16", (Dim(Empty("rows")), 1024))
    w = np.ones((512, 1024), np.float16)
    weights = graph.constant(w, "w") if constant else graph.input("w", "float16", w.shape)
    (y,) = graph.add("matmul", [x, weights], {"transpose_b": True})
    graph.set_outputs([y, b.concat([past, x], 0)], ["y", "present"])
    net = compile_graph(graph, tec.Target("cuda -arch=sm_90a"), state={"past": "present"})
    early = [
        re.search(r"ld\S*\.global", kernel.partition("griddepcontrol.wait")[0]) is not None
        for kernel in net.get_source("ptx").split(".entry")[1:]
        if "griddepcontrol.wait" in kernel
    ]
    assert early and any(early) == constant
