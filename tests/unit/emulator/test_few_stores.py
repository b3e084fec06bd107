"""Stores by some of the threads: to LDS under a store predicate, and one sum of a few work-groups each, in float64."""

from __future__ import annotations

from typing import Any

import numpy as np

import tec


def _run(s: Any, args: list[Any], chip: str, given: Any, size: int) -> Any:
    device = tec.rocm_emu(chip, check="all")
    out = tec.nd.array(np.zeros(size, given.dtype), device)
    tec.build(s, args, f"rocm -mcpu={chip}", name="k")(tec.nd.array(given, device), out)
    return out.numpy()


def test_lds_is_stored_to_by_the_threads_of_a_predicate() -> None:
    """Sixteen of 64 threads fill four floats each; without the predicate the others store beyond the array."""
    a = tec.placeholder((256,), "float32", name="a")
    b = tec.compute((256,), lambda i: a[i] * 2.0, name="b")
    c = tec.compute((256,), lambda i: b[i] + 1.0, name="c")
    s = tec.create_schedule(c.op)
    s[b].set_scope("shared")
    block, inner = s[c].split(c.op.axis[0], factor=64)
    thread = tec.thread_axis("threadIdx.x")
    s[c].bind(block, tec.thread_axis("blockIdx.x"))
    s[c].bind(inner, thread)
    s[b].compute_at(s[c], block)
    outer, _ = s[b].split(s[b].op.axis[0], factor=4)
    s[b].bind(outer, thread)
    s[b].set_store_predicate(thread.var < 16)
    given = np.arange(256, dtype=np.float32)
    np.testing.assert_array_equal(_run(s, [a, c], "gfx1250", given, 256), 2 * given + 1)


def test_sums_in_float64_of_few_groups() -> None:
    a = tec.placeholder((3, 1000), "float64", name="a")
    k = tec.reduce_axis((0, 1000), name="k")
    b = tec.compute((3,), lambda i: tec.sum(a[i, k], axis=k), name="b")
    s = tec.create_schedule(b.op)
    _, inner = s[b].split(b.op.reduce_axis[0], factor=64)
    parts = s.rfactor(b, inner)
    thread = tec.thread_axis("threadIdx.x")
    s[b].bind(s[b].op.axis[0], tec.thread_axis("blockIdx.x"))
    s[b].bind(s[b].op.reduce_axis[0], thread)
    s[parts].compute_at(s[b], s[b].op.reduce_axis[0])
    s[b].set_store_predicate(thread.var.equal(0))
    given = np.random.default_rng(1).standard_normal((3, 1000))
    given[1] *= 1e8  # float32's precision would show
    np.testing.assert_allclose(_run(s, [a, b], "gfx942", given, 3), given.sum(1), rtol=1e-12)
