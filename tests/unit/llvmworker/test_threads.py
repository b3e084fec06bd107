"""Builds from several threads and asyncio tasks at once: each gets its own target and its own right code."""

from __future__ import annotations

import asyncio
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import tec
from tec import te
from tec.runtime.objects.codeobject import read_code_object

TARGETS = ("llvm", "rocm -mcpu=gfx942", "rocm -mcpu=gfx1100", "cuda")
A = te.placeholder((64,), name="A")  # shared by all of them


def build(k: int) -> None:
    """Build under a target of its own, and look at what came."""
    text = TARGETS[k % len(TARGETS)]
    with tec.Target(text) as target:
        b = te.compute((64,), lambda i: A[i] + float(k % 50), name="B")
        s = tec.create_schedule(b.op)
        if target.is_gpu:
            x, t = s[b].split(b.op.axis[0], factor=32)
            s[b].bind(x, te.thread_axis("blockIdx.x"))
            s[b].bind(t, te.thread_axis("threadIdx.x"))
        f = tec.build(s, [A, b], name="f")
        assert tec.Target.current() is target
    assert tec.Target.current() is None and f.target == str(target)
    if target.kind == "llvm":
        out = tec.nd.empty((64,), "float32")
        f(tec.nd.array(np.arange(64, dtype="float32")), out)
        np.testing.assert_array_equal(out.numpy(), np.arange(64, dtype="float32") + np.float32(k % 50))
    elif target.kind == "rocm":
        assert list(read_code_object(f.get_binary()).kernels) == ["f_kernel0"]
        assert "fadd contract float" in f.get_source("llvm") or k % 50 == 0
    else:
        assert ".entry f_kernel0" in f.get_source("ptx")


def from_threads(builds: int) -> None:
    before = sys.getrecursionlimit()
    with ThreadPoolExecutor(8) as pool:
        for done in [pool.submit(build, k) for k in range(builds)]:
            done.result()
    assert sys.getrecursionlimit() == before and tec.Target.current() is None


def test_eight_threads():
    from_threads(80)


@pytest.mark.slow
def test_eight_threads_a_thousand_builds():
    from_threads(1000)


def test_asyncio_tasks_have_their_own_target():
    async def task(text: str) -> str:
        with tec.Target(text):
            await asyncio.sleep(0.001)
            here = str(tec.Target.current())
            await asyncio.sleep(0.001)
            b = te.compute((64,), lambda i: A[i] + 1.0, name="B")
            s = tec.create_schedule(b.op)
            if here != "llvm":
                x, t = s[b].split(b.op.axis[0], factor=32)
                s[b].bind(x, te.thread_axis("blockIdx.x"))
                s[b].bind(t, te.thread_axis("threadIdx.x"))
            return f"{here}: {tec.build(s, [A, b], name='f').target}"

    async def all_of_them() -> list[str]:
        return await asyncio.gather(*[task(t) for t in ("llvm", "rocm -mcpu=gfx90a") * 4])

    assert set(asyncio.run(all_of_them())) == {"llvm: llvm", "rocm -mcpu=gfx90a: rocm -mcpu=gfx90a"}
    assert tec.Target.current() is None


def test_a_target_entered_twice_at_once_is_left_twice():
    shared, barrier = tec.Target("rocm"), threading.Barrier(2)
    seen: list[object] = []

    def work() -> None:
        with shared:
            barrier.wait(10)
            with tec.Target("llvm"):
                seen.append(str(tec.Target.current()))
            barrier.wait(10)
            seen.append(tec.Target.current() is shared)
        seen.append(tec.Target.current())

    threads = [threading.Thread(target=work) for _ in range(2)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert sorted(map(str, seen)) == ["None", "None", "True", "True", "llvm", "llvm"]
