"""What running a network costs beside its functions: limits with much room, by the least of many, so that other work on the machine does not matter."""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable

import numpy as np
from test_executor import chain

import tec
from tec import te
from tec.runtime.modules.cpu_code import step_loop


def least(call: Callable[[int], object], rounds: int = 40) -> float:
    """The least seconds of a call, which gets its number."""
    best = float("inf")
    for k in range(rounds):
        start = time.perf_counter()
        call(k)
        best = min(best, time.perf_counter() - start)
    return best


def test_a_step_takes_less_than_300_ns() -> None:
    """The loop over the table of steps, an addition of 16 elements with it."""
    a = te.placeholder((16,), name="A")
    b = te.compute((16,), lambda i: a[i] + 1.0, name="B")
    add = tec.build(te.create_schedule(b.op), [a, b], "llvm", name="add")
    data = [np.zeros(16, "float32") for _ in range(2)]
    pointers = np.array([x.ctypes.data for x in data], np.int64)
    code = ctypes.cast(add.cpu_function("add"), ctypes.c_void_p).value
    table = np.array([(code, pointers.ctypes.data, 0)] * 1000, np.int64)
    run = step_loop()
    assert least(lambda _: run(table.ctypes.data, 1000)) / 1000 < 0.3e-6
    assert data[1][0] == 1


def test_200_steps_are_planned_for_a_new_size_within_half_a_millisecond() -> None:
    net = tec.compile(chain(100), target="llvm")
    assert len(net.plan.steps) >= 200
    assert least(lambda k: net._layout.bind({"n": 5 + k})) < 0.5e-3
    executor, x = net.executor(), [np.ones((n, 8), "float32") for n in range(1, 41)]
    executor.run([x[0]])
    assert least(lambda k: executor.run([x[k]])) - least(lambda k: executor.run([x[39]])) < 0.5e-3
