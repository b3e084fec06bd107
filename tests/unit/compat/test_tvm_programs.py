"""A drawn te program gives the same through TVM's spelling and through tec's."""

from __future__ import annotations

import random

import numpy as np
import pytest

import tec
import tec.compat.tvm as tvm
from tests.seeds import some

UNARY = ("exp", "tanh", "sqrt", "abs", "floor", "sigmoid")


def program(rng: random.Random, te, tir):
    """Two elementwise stages and a reduction of them, under a drawn schedule; the tensors and the schedule."""
    n, m = rng.choice([8, 12, 33]), rng.choice([16, 20])
    A = te.placeholder((n, m), name="A")
    f, g = (getattr(te, rng.choice(UNARY)) for _ in range(2))
    scale = rng.choice([0.5, 2.0])
    B = te.compute((n, m), lambda i, j: f(te.abs(A[i, j])) * tir.const(scale, "float32"), name="B")
    C = te.compute(
        (n, m),
        lambda i, j: te.if_then_else(te.all(i > 0, j < m - 1), g(te.abs(B[i, j])), tir.const(0, "float32")),
        name="C",
    )
    k = te.reduce_axis((0, m), name="k")
    D = te.compute((n,), lambda i: te.sum(C[i, k], axis=k), name="D")
    s = te.create_schedule(D.op)
    xo, xi = s[D].split(D.op.axis[0], factor=rng.choice([2, 4, 5]))
    if rng.random() < 0.7:
        s[C].compute_at(s[D], rng.choice([xo, xi]))
        s[C].vectorize(C.op.axis[1])
        if rng.random() < 0.5:
            s[B].compute_at(s[D], xo)
    if rng.random() < 0.3:
        s[B].compute_inline()
    if rng.random() < 0.5:
        s[D].parallel(xo)
    return s, [A, D]


@pytest.mark.parametrize("seed", some(4))
def test_both_spellings_agree(seed):
    results = []
    a = np.random.default_rng(seed).standard_normal((33, 20)).astype("float32")
    for te, tir, build, array in (
        (tec.te, tec.te, tec.build, tec.nd.array),
        (tvm.te, tvm.tir, tvm.build, tvm.nd.array),
    ):
        s, (A, D) = program(random.Random(seed), te, tir)
        n, m = (int(d) for d in A.shape)
        out = array(np.zeros(n, "float32"))
        build(s, [A, D], "llvm")(array(np.ascontiguousarray(a[:n, :m])), out)
        results.append(out.numpy())
    np.testing.assert_array_equal(*results)


def test_nodes_answer_to_tvms_names():
    x, y = tvm.te.var("x"), tvm.te.var("y")
    loop = tvm.tir.For(x, 0, 10, tvm.tir.ForKind.PARALLEL, tvm.tir.Evaluate(y))
    assert loop.loop_var is x and isinstance(loop, tvm.tir.For) and isinstance(loop, tec.ir.For)
    assert tvm.tir.Select(x > 1, x, y).true_value is x
    assert tvm.tir.shift_left(x, y).op.name == "tir.shift_left"
    with pytest.raises(tvm.TVMError):
        tvm.tir.Let(tvm.tir.Var("z", "int8"), tvm.tir.Var("w", "int32"), x)


def test_a_function_that_returns():
    a, b = tvm.tir.Var("a", "float32"), tvm.tir.Var("b", "float32")
    ib = tvm.tir.ir_builder.create()
    with ib.if_scope(a > b):
        ib.emit(tvm.tir.Evaluate(tvm.tir.ret(a)))
    ib.emit(tvm.tir.Evaluate(tvm.tir.ret(b)))
    f = tvm.build(tvm.IRModule({"most": tvm.tir.PrimFunc([a, b], ib.get())}))
    assert f(1.0, 2.0) == 2.0 and f(3.0, 2.0) == 3.0


def test_an_unknown_attribute_is_refused_by_name():
    v = tvm.te.var("v")
    note = tvm.tir.AttrStmt(v, "stride", 10, tvm.tir.Evaluate(v))
    assert note.attr_key == "stride" and note.node is v
    with pytest.raises(tec.ExprError, match="no attribute 'stride'"):
        tvm.build(tvm.IRModule({"f": tvm.tir.PrimFunc([v], note)}), target="llvm")
