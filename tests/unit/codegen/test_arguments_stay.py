"""Compiling never changes what it is given: names, alignment, bodies of schedules, functions, modules and graphs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tec
from tec import te
from tec.graph import Graph
from tec.ir import Buffer, Func, IRModule
from tec.ir import stmt as S
from tec.ir.visit import visit


def state(f: Func) -> Any:
    """Everything of a function that the compiler might touch: text, names, alignment, attrs."""
    found: list[Any] = [str(f), f.name, sorted(f.attrs)]

    def on_stmt(s: S.Stmt) -> None:
        if isinstance(s, S.Alloc):
            found.append((id(s.buffer), s.buffer.name, s.buffer.data.name, s.buffer.align_bytes))

    visit(f.body, None, on_stmt)
    for p in (*f.params, *f.implicit_vars()):
        found.append((id(p), p.name))
        if isinstance(p, Buffer):
            found.append((p.data.name, p.align_bytes, str(p.shape), str(p.strides)))
    return found


def program() -> tuple[Any, list[Any], list[Any]]:
    """Names that are taken twice: two sizes n, two tensors A, a stage of the name of one."""
    n, m = te.var("n"), te.var("n")
    a, b = te.placeholder((n, m), name="A"), te.placeholder((n, m), name="A")
    t = te.compute((n, m), lambda i, j: a[i, j] + b[i, j], name="A")
    c = te.compute((n, m), lambda i, j: t[i, j] * 2.0, name="C")
    return tec.create_schedule(c.op), [a, b, c], [n, m]


@pytest.mark.parametrize("as_module", [False, True])
@pytest.mark.parametrize("simple", [False, True])
def test_functions_and_modules(simple: bool, as_module: bool) -> None:
    s, args, _ = program()
    module = tec.lower(s, args, name="f", target="llvm", simple_mode=simple)
    func = next(iter(module))
    before = state(func)
    built = [tec.build(IRModule({"f": func}) if as_module else func, target="llvm") for _ in range(2)]
    assert state(func) == before
    a, b = (np.random.default_rng(k).random((5, 7), "float32") for k in range(2))
    for f in built:  # and what is built of it twice is the same
        c = np.zeros_like(a)
        f(a, b, c)
        np.testing.assert_array_equal(c, (a + b) * 2)
    assert built[0].get_source("llvm") == built[1].get_source("llvm")


@pytest.mark.parametrize("target", ["llvm", "rocm -mcpu=gfx942"])
def test_schedules(target: str) -> None:
    s, args, sizes = program()
    if target != "llvm":
        for t in (s.stages[-1], s.stages[-2]):
            i, _ = t.op.axis
            t.bind(i, te.thread_axis("blockIdx.x"))
    before = [(x.name, str(x.shape)) for x in args], [v.name for v in sizes], str(s)
    tec.build(s, args, target=target, name="f")
    assert ([(x.name, str(x.shape)) for x in args], [v.name for v in sizes], str(s)) == before


def test_graphs() -> None:
    """The second compilation sees the same graph: a convolution with its scale, which passes fold, reorder and cut up."""
    rng = np.random.default_rng(3)
    g = Graph("net")
    x = g.input("x", "float32", (1, 16, 8, 8))
    w = g.constant(rng.standard_normal((16, 16, 3, 3)).astype("float32"))
    attrs = {"strides": (1, 1), "before": (1, 1), "after": (1, 1), "dilations": (1, 1), "groups": 1}
    (y,) = g.add("conv", [x, w], attrs)
    (y,) = g.add("multiply", [y, g.constant(np.float32(3).reshape(1))], {})
    (y,) = g.add("relu", [y], {})
    g.set_outputs([g.add("add", [y, x], {})[0]])
    held = {id(v): v.data.copy() for n in g.nodes for v in n.inputs if v.is_const}
    before = str(g), [(n.op, dict(n.attrs), [id(v) for v in n.inputs]) for n in g.nodes]
    value = rng.standard_normal((1, 16, 8, 8)).astype("float32")
    outs = [tec.compile(g, target="llvm", cache=False).run({"x": value})[0] for _ in range(2)]
    np.testing.assert_array_equal(*outs)
    assert (str(g), [(n.op, dict(n.attrs), [id(v) for v in n.inputs]) for n in g.nodes]) == before
    for n in g.nodes:
        for v in n.inputs:
            if v.is_const:
                np.testing.assert_array_equal(v.data, held[id(v)])
