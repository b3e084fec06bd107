"""Mistakes in launches and calls whose remedy the error tells: a row is what is done, a part of the message, and a part of the hint."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tec
from tec.errors import TecError


@tec.kernel
def double(a: Any) -> None:
    a[tec.thread_idx.x] *= 2.0


def relu() -> Any:
    g = tec.graph.Graph()
    g.set_outputs(g.add("relu", [g.input("x", "float32", (4,))]), ["y"])
    return tec.compile(g, target="llvm").executor()


def numbers(n: int = 4) -> Any:
    return np.ones(n, "float32")


MISTAKES = {
    "too few arguments of a kernel": (lambda: double[1, 4](), "takes 1 argument, 0 given", "for each parameter"),
    "a block of no number": (lambda: double[1, 2.5](numbers()), "is 2.5", "whole numbers"),
    "a block that is too large": (lambda: double[1, 2048](numbers()), "2048 threads", "smaller blocks"),
    "negative shared memory": (lambda: double[1, 4, None, -1](numbers()), "-1 bytes of shared memory", "from 0 on"),
    "a block of other dimensions": (
        lambda: double.launch(4, block=(2, 2))(numbers()), "2 dimensions for 1 extents", "for each extent"),
    "too few types": (lambda: double.asm(target="gfx942"), "takes 1 arguments, 0 given", "float32[:]"),
    "a device by a text for a number": (lambda: tec.rocm("0"), "takes a device number", "tec.device"),
    "a device below the first": (lambda: tec.cuda(-1), "device numbers start at 0", "first device is 0"),
    "a function without a name": (lambda: tec.register_func(3, len), "has a name, not 3", "my.sort"),
    "a name without a function": (lambda: tec.register_func("f", 3), "to be a function", "above a def"),
    "too many outputs": (
        lambda: relu().run({"x": numbers()}, outputs=[numbers(), numbers()]), "2 arrays given for outputs", "by name"),
    "an output of another shape": (
        lambda: relu().run({"x": numbers()}, outputs={"y": tec.nd.array(numbers(5))}), "the network makes", "tec.nd.empty"),
    "a weight that is not there": (lambda: relu().network.provide({"w": numbers()}), "no weight 'w'", "net.params"),
}  # fmt: skip


@pytest.mark.parametrize("name", MISTAKES)
def test_a_remedy_is_told(name: str) -> None:
    mistake, message, remedy = MISTAKES[name]
    with pytest.raises(TecError) as caught:
        mistake()
    assert message in caught.value.message and remedy in (caught.value.hint or "")
