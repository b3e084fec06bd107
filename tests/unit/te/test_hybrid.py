"""te.hybrid.script: loops in Python as tensors, on the CPU, on a software GPU, and as Python itself."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tec
from tec import te

F32 = np.float32
rng = np.random.default_rng(0)


@te.hybrid.script
def outer_product(a, b):
    c = output_tensor((a.shape[0], b.shape[0]), "float32")  # noqa: F821
    for i in range(a.shape[0]):
        for j in range(b.shape[0]):
            c[i, j] = a[i] * b[j]
    return c


def test_outer_product() -> None:
    n, m = te.var("n"), te.var("m")
    a, b = te.placeholder((n,), name="a"), te.placeholder((m,), name="b")
    c = outer_product(a, b)
    assert isinstance(c, te.Tensor) and c.ndim == 2
    f = tec.build(
        te.create_schedule(c.op) if hasattr(te, "create_schedule") else tec.create_schedule(c.op), [a, b, c], "llvm"
    )
    x, y = rng.random(9).astype(F32), rng.random(5).astype(F32)
    out = np.zeros((9, 5), F32)
    f(x, y, out)
    np.testing.assert_allclose(out, np.outer(x, y), rtol=1e-6)
    np.testing.assert_allclose(outer_product(x, y), np.outer(x, y), rtol=1e-6)  # as Python


@te.hybrid.script
def mixed(a, n, scale):
    """Branches, a variable that changes, two outputs, storage of its own, every kind of loop."""
    total = output_tensor((n,), "float32")  # noqa: F821
    which = output_tensor((n,), "int32")  # noqa: F821
    row = allocate((16,), "float32")  # noqa: F821
    for i in serial(n):  # noqa: F821
        for j in vectorize(16):  # noqa: F821
            row[j] = a[i, j] * scale
        for j in unroll(16):  # noqa: F821
            row[j] += 1.0
        acc = 0.0
        best = 0
        for j in range(16):
            acc += row[j]
            if row[j] > row[best]:
                best = j
            elif row[j] < -100.0:
                break
        for k in const_range(2):  # noqa: F821
            acc = acc + k
        total[i] = sqrt(abs(acc)) if acc > 0 else float32(0)  # noqa: F821
        which[i] = best
    return total, which


def test_all_there_is() -> None:
    a = te.placeholder((6, 16), name="a")
    total, which = mixed(a, 6, 2.0)
    x = rng.standard_normal((6, 16)).astype(F32)
    got, best = np.zeros(6, F32), np.zeros(6, np.int32)
    s = tec.create_schedule([total.op])
    tec.build(s, [a, total, which], "llvm")(x, got, best)
    acc = (x * 2 + 1).sum(1) + 1
    np.testing.assert_allclose(got, np.where(acc > 0, np.sqrt(np.abs(acc)), 0), rtol=1e-4)
    np.testing.assert_array_equal(best, (x * 2 + 1).argmax(1))


@te.hybrid.script
def rows(a):
    c = output_tensor((a.shape[0],), "float32")  # noqa: F821
    for bx in bind("blockIdx.x", a.shape[0] // 8):  # noqa: F821
        for tx in bind("threadIdx.x", 8):  # noqa: F821
            acc = 0.0
            for k in range(a.shape[1]):
                acc += a[bx * 8 + tx, k]
            c[bx * 8 + tx] = acc
    return c


def test_bound_to_threads_and_read_by_a_compute() -> None:
    a = te.placeholder((32, 10), name="a")
    r = rows(a)
    d = te.compute((32,), lambda i: r[i] * 2.0, name="d")
    s = tec.create_schedule(d.op)
    bx, tx = s[d].split(d.op.axis[0], factor=16)
    s[d].bind(bx, te.thread_axis("blockIdx.x"))
    s[d].bind(tx, te.thread_axis("threadIdx.x"))
    f = tec.build(s, [a, d], "rocm -mcpu=gfx942")
    dev = tec.rocm_emu("gfx942")
    x = rng.random((32, 10)).astype(F32)
    out = tec.nd.array(np.zeros(32, F32), dev)
    f(tec.nd.array(x, dev), out)
    np.testing.assert_allclose(out.numpy(), x.sum(1) * 2, rtol=1e-5)
    np.testing.assert_allclose(rows(x), x.sum(1), rtol=1e-5)


WEIGHTS = [1.0, 2.0, 4.0]


@te.hybrid.script
def weighted(inputs, bias):
    c = output_tensor((4,), "float32")  # noqa: F821
    for i in range(4):
        assert i < 4, "an index out of range"
        c[i] = bias[0][1]
        for j in const_range(len(inputs)):  # noqa: F821
            c[i] += inputs[j][i] * WEIGHTS[j]
    return c


def test_lists_of_tensors_and_of_numbers() -> None:
    inputs = [te.placeholder((4,), name=f"t{k}") for k in range(3)]
    C = weighted(inputs, [[0.0, 10.0]])
    assert len(C.op.inputs) == 3
    arrays = [rng.random(4).astype(F32) for _ in inputs]
    out = tec.nd.array(np.zeros(4, F32))
    tec.build(tec.create_schedule(C.op), [*inputs, C], "llvm")(*map(tec.nd.array, arrays), out)
    np.testing.assert_allclose(out.numpy(), 10 + arrays[0] + 2 * arrays[1] + 4 * arrays[2], rtol=1e-6)


@te.hybrid.script
def checked(a):
    c = output_tensor((4,), "float32")  # noqa: F821
    for i in range(4):
        assert a[i] >= 0.0, "a negative value"
        c[i] = a[i]
    return c


def test_an_assertion_fails_the_call() -> None:
    A = te.placeholder((4,), name="A")
    C = checked(A)
    f = tec.build(tec.create_schedule(C.op), [A, C], "llvm")
    out = tec.nd.array(np.zeros(4, F32))
    f(tec.nd.array(np.ones(4, F32)), out)
    with pytest.raises(tec.TecError, match="a negative value"):
        f(tec.nd.array(-np.ones(4, F32)), out)


@te.hybrid.script
def returns_nothing(a):
    c = output_tensor((4,), "float32")  # noqa: F821
    c[0] = a[0]


@te.hybrid.script
def returns_its_input(a):
    return a


@te.hybrid.script
def unknown_word(a):
    c = output_tensor((4,), "float32")  # noqa: F821
    c[0] = no_such_word(a[0])  # noqa: F821
    return c


@pytest.mark.parametrize(
    ("f", "says"),
    [
        (returns_nothing, "returns its outputs"),
        (returns_its_input, "the array a is returned"),
        (unknown_word, "no_such_word"),
    ],
)
def test_mistakes(f: Any, says: str) -> None:
    with pytest.raises(tec.KernelError, match=says) as e:
        f(te.placeholder((4,), name="a"))
    assert e.value.where is not None and e.value.where.file == __file__


# ---- schedules over the loops of a script


@te.hybrid.script
def smooth(a, n):
    """Two nests: a variable of each step's own, and one statement beside it."""
    b = output_tensor((n,), "float32")  # noqa: F821
    b[0] = 0.0
    for i in range(1, n):
        total = 0.0
        for j in range(3):
            total += a[i + j - 1]
        b[i] = total / 3.0
    return b


def smoothed(x: Any, n: int) -> Any:
    return np.array([0.0, *(x[i - 1 : i + 2].sum() / 3 for i in range(1, n))], F32)


def built(s: Any, args: Any, shape: Any, *inputs: Any) -> Any:
    """What a schedule computes on the CPU, which the interpreter gives too."""
    from tec.ir import interp

    out, again = np.zeros(shape, F32), np.zeros(shape, F32)
    tec.build(s, args, "llvm")(*inputs, out)
    interp.run(next(iter(tec.lower(s, args, simple_mode=True))), [*inputs, again])
    np.testing.assert_allclose(again, out, rtol=1e-6)
    return out


def test_loops_are_split_fused_reordered_and_annotated() -> None:
    a, b = te.placeholder((13,), name="a"), te.placeholder((10,), name="b")
    x, y = rng.random(13).astype(F32), rng.random(10).astype(F32)
    c = outer_product(a, b)
    for fused in (False, True):
        s = tec.create_schedule(c.op)
        i, j = c.op.axis
        if fused:
            s[c].parallel(s[c].split(s[c].fuse(i, j), 7)[0])
        else:
            (io, ii), (jo, ji) = s[c].split(i, 5), s[c].split(j, 4)
            s[c].reorder(ii, io, jo, ji)
            s[c].parallel(ii)
            s[c].vectorize(ji)
        np.testing.assert_allclose(built(s, [a, b, c], (13, 10), x, y), np.outer(x, y), rtol=1e-6)
        again = tec.create_schedule(c.op).replay(s.trace)
        assert str(tec.lower(again, [a, b, c], simple_mode=True)) == str(tec.lower(s, [a, b, c], simple_mode=True))


def test_a_variable_of_a_step_does_not_keep_steps_from_running_at_once() -> None:
    a = te.placeholder((20,), name="a")
    x = rng.random(20).astype(F32)
    c = smooth(a, 18)
    s = tec.create_schedule(c.op)
    i, j = c.op.axis
    s[c].parallel(s[c].split(i, 4)[0])
    s[c].unroll(j)
    np.testing.assert_allclose(built(s, [a, c], 18, x), smoothed(x, 18), rtol=1e-5)


def test_loops_run_as_threads_of_a_gpu() -> None:
    a, b = te.placeholder((40,), name="a"), te.placeholder((6,), name="b")
    x, y = rng.random(40).astype(F32), rng.random(6).astype(F32)
    c = outer_product(a, b)
    s = tec.create_schedule(c.op)
    block, thread = s[c].split(c.op.axis[0], 16)
    s[c].bind(block, te.thread_axis("blockIdx.x"))
    s[c].bind(thread, te.thread_axis("threadIdx.x"))
    dev = tec.rocm_emu("gfx1100")
    f = tec.build(s, [a, b, c], "rocm -mcpu=gfx1100")
    out = tec.nd.empty((40, 6), "float32", dev)
    f(tec.nd.array(x, dev), tec.nd.array(y, dev), out)
    np.testing.assert_allclose(out.numpy(), np.outer(x, y), rtol=1e-6)


@te.hybrid.script
def sums(a):
    """Its inner loop comes back to an element."""
    b = output_tensor((a.shape[0],), "float32")  # noqa: F821
    for i in range(a.shape[0]):
        b[i] = 0.0
    for i in range(a.shape[0]):
        for j in range(a.shape[1]):
            b[i] = b[i] * 0.5 + a[i, j]
    return b


def test_what_a_schedule_may_not_do() -> None:
    a = te.placeholder((6, 8), name="a")
    x = rng.random((6, 8)).astype(F32)
    c = sums(a)
    s = tec.create_schedule(c.op)
    first, i, j = c.op.axis
    for what, loops, says in (
        ("parallel", (j,), "its steps write"),
        ("vectorize", (j,), "its steps write"),
        ("fuse", (first, i), "other statements"),
        ("reorder", (i, first), "other statements"),
    ):
        with pytest.raises(tec.ScheduleError, match=says):
            getattr(s[c], what)(*loops)
    jo, ji = s[c].split(j, 2)
    with pytest.raises(tec.ScheduleError, match=r"reorder of .*their steps write"):
        s[c].reorder(ji, jo)
    with pytest.raises(tec.ScheduleError, match="into sums, whose statements are written by hand"):
        d = te.compute(a.shape, lambda p, q: a[p, q] + 1.0, name="d")
        e = sums(d)
        t = tec.create_schedule(e.op)
        t[d].compute_at(t[e], e.op.axis[0])
    s[c].reorder(jo, i, ji)  # for one element j still counts up
    want = np.zeros(6, F32)
    for k in range(8):
        want = want * F32(0.5) + x[:, k]
    np.testing.assert_allclose(built(s, [a, c], 6, x), want, rtol=1e-6)


@te.hybrid.script
def calls_another(a, b, table):
    c = outer_product(a, b)
    d = output_tensor((a.shape[0], b.shape[0]), "float32")  # noqa: F821
    for i in const_range(2):  # noqa: F821
        for j in const_range(3):  # noqa: F821
            d[i, j] = c[i, j] + table[i, j]
    return d


def test_a_script_calls_another_and_reads_a_table() -> None:
    a, b = te.placeholder((2,), name="a"), te.placeholder((3,), name="b")
    x, y = rng.random(2).astype(F32), rng.random(3).astype(F32)
    table = [[1, 2, 3], [4, 5, 6]]
    d = calls_another(a, b, table)
    got = built(tec.create_schedule(d.op), [a, b, d], (2, 3), x, y)
    np.testing.assert_allclose(got, np.outer(x, y) + table, rtol=1e-6)
    with pytest.raises(tec.KernelError, match="element 2 of a tuple of 2"):
        calls_another(a, b, [[1, 2], [3, 4]])
