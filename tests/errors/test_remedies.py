"""Mistakes in launches and calls whose remedy the error tells: a row is what is done, a part of the message, and a part of the hint."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import tec
from tec import te
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


PLACE = te.placeholder((4,), name="A")


def doubled(size: Any = 4, by: Any = None) -> Any:
    A = te.placeholder((tec.var(size) if isinstance(size, str) else size,), name="A")
    B = te.compute(A.shape, lambda i: A[i] * (2.0 if by is None else by), name="B")
    return tec.build(te.create_schedule(B.op), [A, B] if by is None else [by, A, B], "llvm")


def gpu_module() -> Any:
    B = te.compute((4,), lambda i: PLACE[i] + 1, name="B")
    s = te.create_schedule(B.op)
    s[B].bind(B.op.axis[0], te.thread_axis("threadIdx.x"))
    return tec.build(s, [PLACE, B], "rocm -mcpu=gfx942")


MISTAKES = {
    "a chip that is nearly one": (lambda: tec.Target("rocm -mcpu=gfx94"), "unknown chip 'gfx94'", "is gfx942 meant?"),
    "an argument by torch's name": (
        lambda: tec.array.sum(tec.array.ones((2, 3)), dim=1), "sum has no argument dim", "axis=1"),
    "a method's argument by torch's name": (
        lambda: tec.array.ones((2, 3)).mean(axis=0, keepdim=True), "mean has no argument keepdim", "keepdims=True"),
    "arrays that are joined one by one": (
        lambda: tec.array.concat(tec.array.ones(3), tec.array.ones(3)), "one by one", "tec.array.concat([x, y])"),
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
    "a text that a module has not": (lambda: gpu_module().get_source("hsaco"), "for rocm -mcpu=gfx942", "get_binary()"),
    "an array of another size": (lambda: doubled()(numbers(5), numbers(5)), "dimension 0 is 5, not 4", 'tec.var("n")'),
    "an array with a dimension too many": (
        lambda: doubled()(np.ones((1, 4), "float32"), numbers()), "(4,) is wanted", "1 dimensions are wanted, this has 2"),
    "a size that is two": (lambda: doubled("n")(numbers(4), numbers(5)), "dimension 0 is 5, not 4", "a name is one size"),
    "an array for a number": (lambda: doubled(by=tec.var("by", "float32"))(numbers(), numbers(), numbers()), "is an array", "x.item()"),
    "a matrix unit that is not there": (
        lambda: te.intrin.matrix("rocm -mcpu=gfx906", "float16", 32, 32, 8), "no matrix instruction", "bind the product's loops"),
    "a comparison by Python's max": (lambda: max(PLACE[0], 0), "truth value", "tec.max or tec.min in place of Python's"),
    "a greater of NumPy": (lambda: np.maximum(PLACE[0], 0), "np.maximum", "tec.maximum(a, b)"),
    "a root of NumPy that tec has not": (lambda: np.cbrt(PLACE[0]), "np.cbrt", "tec.sign(a) * tec.power"),
    "a function of NumPy without a short form": (lambda: np.spacing(PLACE[0]), "np.spacing", "write what it computes"),
    "a package that is not there": (lambda: tec.load("no/such.tec"), "no such file", "tec compile"),
    "an array of elements that are none": (lambda: tec.nd.array([[1], [1, 2]]), "nd.array cannot take this", "equal lengths"),
    "a weight that is not there": (lambda: relu().network.provide({"w": numbers()}), "no weight 'w'", "net.params"),
}  # fmt: skip


@pytest.mark.parametrize("name", MISTAKES)
def test_a_remedy_is_told(name: str) -> None:
    mistake, message, remedy = MISTAKES[name]
    with pytest.raises(TecError) as caught:
        mistake()
    assert message in caught.value.message and remedy in (caught.value.hint or "")


@pytest.mark.parametrize("name", [n for n in dir(np) if isinstance(getattr(np, n), np.ufunc)])
def test_a_function_of_numpy_names_one_that_exists(name: str) -> None:
    """Hints once named tec.cbrt and others that are not there."""
    function = getattr(np, name)
    try:
        function(*[PLACE[0]] * function.nin)
    except TecError as error:
        for word in re.findall(r"tec\.(\w+)", error.hint or ""):
            assert hasattr(tec, word), word
