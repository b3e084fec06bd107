"""`i < n and A[i] > 0` under a branch reads A only where i < n, on every target."""

import math

import numpy as np
import pytest

import tec
import tec.tile as tl
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


def test_a_register_beyond_the_array_is_read_behind_its_guard():
    """An unrolled loop asks for eight of four registers, of which the guard leaves the last four out: read at once they are undefined, and the kernel crashed."""
    X, N = te.placeholder((16, 4), "int32", name="X"), te.placeholder((16,), "int32", name="N")

    def body(ins, outs):
        ib = te.ir_builder.create()
        (x, n), y = map(ib.buffer_ptr, ins), ib.buffer_ptr(outs[0])
        with ib.for_range(0, 16) as i:
            own, known = ib.allocate("int32", (4,), "own", scope="local"), ib.let("known", n[i])
            with ib.for_range(0, 4, kind="unroll") as j:
                own[j] = x[i, j]
            y[i] = te.const(0, "int32")
            with ib.for_range(0, 8, kind="unroll") as j, ib.if_scope(te.all(j < known, own[j] > 0)):
                y[i] = y[i] + 1
        return ib.get()

    Y = te.extern((16,), [X, N], body, dtype="int32", name="Y")
    rng = np.random.default_rng(1)
    x, n, y = rng.integers(-3, 4, (16, 4)).astype("i4"), rng.integers(0, 5, 16).astype("i4"), np.zeros(16, "i4")
    f = tec.build(te.create_schedule(Y.op), [X, N, Y], "llvm", name="f")
    f(x, n, y)
    np.testing.assert_array_equal(y, ((x > 0) & (np.arange(4) < n[:, None])).sum(1))


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


@tl.jit
def _per_number(out, n):
    if (n != 0) and (100 // n > 3):
        tl.store(out, 1)
    if (n != 0) and (100 % n > 3):
        tl.store(out + 1, 1)


@pytest.mark.parametrize("n", [0, 7, 16, -(2**31)])
def test_how_much_work_a_loop_has_is_asked_of_any_divisor(n: int) -> None:
    """Whether programs are worth threads depends on conditions of their bodies, which are asked ahead of what guards them there."""
    out = np.zeros(2, "int32")
    _per_number[(3,)](out, n)
    np.testing.assert_array_equal(out, [bool(n) and 100 // n > 3, bool(n) and math.fmod(100, n) > 3])
