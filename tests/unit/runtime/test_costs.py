"""What running a network costs beside its functions, counted in what Python does: neither a step nor a new size costs Python anything a step."""

from __future__ import annotations

import ctypes

import numpy as np
from test_executor import chain

import tec
from tec import te
from tec.runtime.modules.cpu_code import step_loop
from tests.counting import cost


def test_the_loop_over_steps_is_machine_code() -> None:
    """A thousand additions cost Python what one costs."""
    a = te.placeholder((16,), name="A")
    b = te.compute((16,), lambda i: a[i] + 1.0, name="B")
    add = tec.build(te.create_schedule(b.op), [a, b], "llvm", name="add")
    data = [np.zeros(16, "float32") for _ in range(2)]
    pointers = np.array([x.ctypes.data for x in data], np.int64)
    code = ctypes.cast(add.cpu_function("add"), ctypes.c_void_p).value
    table = np.array([(code, pointers.ctypes.data, 0)] * 1000, np.int64)
    run, first = step_loop(), table.ctypes.data
    one, thousand = cost(lambda: run(first, 1)), cost(lambda: run(first, 1000))
    assert one == thousand and one.instructions < 20, (one, thousand)
    assert data[1][0] == 1


def test_a_new_size_is_planned_without_a_look_at_each_step() -> None:
    """Sizes and addresses of all steps follow from tables at once: 457 instructions for 200 steps, and no more for 20 (CPython 3.11)."""

    def new_size(layers: int) -> tuple[int, int, int]:
        net = tec.compile(chain(layers), target="llvm")
        sizes = iter(range(2, 20))
        bind = cost(lambda: net._layout.bind({"n": next(sizes)}))
        executor = net.executor()
        inputs = iter([np.ones((n, 8), "float32") for n in range(1, 9)])
        executor.run([next(inputs)])
        new, known = cost(lambda: executor.run([next(inputs)])), np.ones((8, 8), "float32")
        return (
            len(net.plan.steps),
            bind.instructions,
            new.instructions - cost(lambda: executor.run([known])).instructions,
        )

    steps, bind, more = new_size(100)
    assert steps >= 200 and bind < 700 and more < 1200, (steps, bind, more)
    few = new_size(10)
    assert few[0] < steps / 5 and (bind, more) <= (1.1 * few[1], 1.1 * few[2]), (few, bind, more)
