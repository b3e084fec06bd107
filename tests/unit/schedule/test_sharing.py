"""Inlined values that are read more than once: computed once, in time linear in the nodes, and right."""

import time

import numpy as np
import pytest

import tec
from tec.te.evaluation import evaluate


def chain(step, count, shape=(37,)):
    """`count` stages, all but the last inlined, each `step(reader of the one before, indices)`."""
    A = tec.placeholder(shape, name="A")
    stages = [A]
    for k in range(count):
        stages.append(tec.compute(shape, (lambda t: lambda *i: step(t, *i))(stages[-1]), name=f"t{k}"))
    s = tec.create_schedule(stages[-1].op)
    for t in stages[1:-1]:
        s[t].compute_inline()
    return s, A, stages[-1]


STEPS = {
    "twice": lambda t, i: t[i] * 0.5 + t[i] * 0.5,
    "in both arms": lambda t, i: tec.select(i % 2 == 0, t[i] * 0.75, t[i] * 0.5 + 0.25),
    "condition and arm": lambda t, i: tec.select(t[i] > 0.25, t[i] * 0.5, t[i] + 0.125),
    "under a call": lambda t, i: tec.sqrt(t[i] * t[i]) - 0.0625,
}


@pytest.mark.parametrize("name", STEPS)
def test_a_long_chain_is_computed_once_a_link(name):
    s, A, out = chain(STEPS[name], 40)
    start = time.process_time()
    f = tec.build(s, [A, out], target="llvm")
    assert time.process_time() - start < 20  # written out it would have 2^40 terms
    a = np.random.default_rng(3).random(37, np.float32)
    got = tec.nd.array(np.zeros(37, np.float32))
    f(tec.nd.array(a), got)
    np.testing.assert_allclose(got.numpy(), evaluate([out], {A: a})[0], rtol=1e-5, atol=1e-6)


def test_on_a_gpu_and_in_vectors():
    a = np.random.default_rng(4).random(64, np.float32)
    want = None
    for target in ("llvm", "rocm -mcpu=gfx942"):
        s, A, out = chain(STEPS["condition and arm"], 20, (64,))
        outer, inner = s[out].split(out.op.axis[0], factor=16)
        if target == "llvm":
            s[out].vectorize(inner)
            dev = tec.cpu()
        else:
            s[out].bind(outer, tec.thread_axis("blockIdx.x"))
            s[out].bind(inner, tec.thread_axis("threadIdx.x"))
            dev = tec.rocm_emu("gfx942")
        f = tec.build(s, [A, out], target=target)
        got = tec.nd.array(np.zeros(64, np.float32), dev)
        f(tec.nd.array(a, dev), got)
        want = evaluate([out], {A: a})[0] if want is None else want
        np.testing.assert_allclose(got.numpy(), want, rtol=1e-6)


def test_a_guarded_read_stays_behind_its_condition():
    """What only one arm reads may lie outside of the tensor elsewhere."""

    def step(t, i):
        near = t[tec.max(i - 1, 0)]
        return tec.if_then_else(i > 0, near * 0.5 + near * 0.25, t[i]) + t[i] * 0.25

    s, A, out = chain(step, 6)
    f = tec.build(s, [A, out], target="llvm")
    a = np.random.default_rng(5).random(37, np.float32)
    got = tec.nd.array(np.zeros(37, np.float32))
    f(tec.nd.array(a), got)
    np.testing.assert_allclose(got.numpy(), evaluate([out], {A: a})[0], rtol=1e-5)


def test_work_that_doubles_at_each_step_is_refused():
    s, A, out = chain(lambda t, i: t[i // 2] + t[(i * i) % 37], 40)
    start = time.process_time()
    with pytest.raises(tec.ScheduleError, match="inlining makes more than"):
        tec.build(s, [A, out], target="llvm")
    assert time.process_time() - start < 20


def test_small_bodies_are_left_as_they_are():
    s, A, out = chain(STEPS["twice"], 4)
    assert "let" not in str(tec.lower(s, [A, out], simple_mode=True)).lower()
