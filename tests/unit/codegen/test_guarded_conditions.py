"""`i < n and A[i] > 0` under a branch reads A only where i < n, on every target."""

import numpy as np

import tec
from tec import te
from tec.codegen.emit.calls import in_order
from tec.ir import Call
from tec.ir.build import buffer_load, logical_and, logical_or, truncdiv


def test_the_right_side_moves_behind_the_left():
    A, i = te.decl_buffer((4,), "int32", "A"), te.var("i")
    read = buffer_load(A, [i]) > 0
    both = in_order(logical_and(i < 4, read))
    assert isinstance(both, Call) and both.op == "if_then_else" and both.args[1] is read and both.args[2].value == 0
    either = in_order(logical_or(i >= 4, read))
    assert isinstance(either, Call) and either.args[1].value == 1 and either.args[2] is read
    plain = logical_and(i < 4, i > 1)
    assert in_order(plain) is plain


def test_registers_and_divisions_are_read_at_once():
    """A branch for each of them kept an implicit convolution's loads apart."""
    own, i, n = te.decl_buffer((4,), "int32", "own", scope="local"), te.var("i"), te.var("n")
    known = logical_and(i < 4, buffer_load(own, [3]) + truncdiv(i, n) > 0)
    assert in_order(known) is known
    unknown = in_order(logical_and(i < 4, buffer_load(own, [i]) > 0))
    assert isinstance(unknown, Call) and unknown.op == "if_then_else"


def test_a_guarded_read_past_the_end_does_not_happen():
    """The software GPU faults on any access outside of an allocation."""
    X, I = te.placeholder((5,), name="X"), te.placeholder((3,), "int32", name="I")
    k = te.reduce_axis((0, 3), "k")
    C = te.compute((5,), lambda i: te.sum(X[i], axis=k, where=I[k] == i), name="C")
    s = tec.create_schedule(C.op)
    s[C].bind(C.op.axis[0], te.thread_axis("blockIdx.x"))
    _, inner = s[C].split(k, factor=8)
    s[C].bind(inner, te.thread_axis("threadIdx.x"))
    f = tec.build(s, [X, I, C], "rocm -mcpu=gfx942")
    dev = tec.rocm_emu("gfx942")
    x, index = np.arange(5, dtype="float32") + 1, np.array([4, 1, 4], "int32")
    c = tec.nd.empty((5,), "float32", dev)
    f(tec.nd.array(x, dev), tec.nd.array(index, dev), c)
    np.testing.assert_array_equal(c.numpy(), [0, 2, 0, 0, 10])
