"""What a call of a built function, and a run of a small network, cost over their work: CPU with NDArrays and NumPy arrays, and a GPU launch where one is.

    python benchmarks/call_cost.py

The work is a vector add of 16 elements; the least of several rounds counts.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable

import numpy as np
from turns import line

import tec


def vector_add(target: str):
    n = tec.var("n")
    a = tec.placeholder((n,), name="A")
    b = tec.placeholder((n,), name="B")
    c = tec.compute((n,), lambda i: a[i] + b[i], name="C")
    s = tec.create_schedule(c.op)
    if target != "llvm":
        block, thread = s[c].split(c.op.axis[0], factor=64)
        s[c].bind(block, tec.thread_axis("blockIdx.x"))
        s[c].bind(thread, tec.thread_axis("threadIdx.x"))
    return tec.build(s, [a, b, c], target, name="add")


def least_us(call: Callable[[], None], sync: Callable[[], None], number: int, rounds: int = 7) -> float:
    best = float("inf")
    for _ in range(rounds):
        sync()
        start = time.perf_counter()
        for _ in range(number):
            call()
        best = min(best, (time.perf_counter() - start) / number)
        sync()
    return best * 1e6


def step_us(add: object, n: int = 1000) -> float:
    """A step of a network's plan: the table of steps that an executor walks, of the same function n times."""
    from tec.runtime.modules.cpu_code import step_loop

    arrays = [np.zeros(16, "float32") for _ in range(3)]
    pointers, scalars = np.array([a.ctypes.data for a in arrays], np.int64), np.array([16], np.int64)
    code = ctypes.cast(add.cpu_function("add"), ctypes.c_void_p).value  # type: ignore[attr-defined]
    table = np.array([(code, pointers.ctypes.data, scalars.ctypes.data)] * n, np.int64)
    run = step_loop()
    return least_us(lambda: run(table.ctypes.data, n), lambda: None, 100) / n


def relu() -> object:
    """A network of one ReLU of 16 elements."""
    from tec.graph import Graph

    g = Graph()
    g.set_outputs(g.add("relu", [g.input("x", "float32", (16,))]), ["y"])
    return tec.compile(g, "llvm")


def networks() -> None:
    """A run of a network bound to its arrays, one of a dict of arrays, and one by an executor."""
    net = relu()
    x, y = np.zeros(16, "float32"), np.zeros(16, "float32")
    given, executor = {"x": x}, net.executor()  # type: ignore[attr-defined]
    calls = {
        "cpu, a bound run": (net.bind(given), 3.0),  # type: ignore[attr-defined]
        "cpu, a bound run that copies its output": (net.bind(given, [y]), 3.0),  # type: ignore[attr-defined]
        "cpu, Network.run of a dict": (lambda: net.run(given), 5.0),  # type: ignore[attr-defined]
        "cpu, Executor.run of a dict": (lambda: executor.run(given), None),
    }
    for what, (call, limit) in calls.items():
        line(what, least_us(call, lambda: None, 5000), "us", "goal", limit)


def main() -> None:
    networks()
    add = vector_add("llvm")
    for what, make, limit in (("cpu, NDArray", tec.nd.from_numpy, 5.0), ("cpu, NumPy", lambda x: x, None)):
        x, y, z = (make(np.zeros(16, "float32")) for _ in range(3))
        line(what, least_us(lambda x=x, y=y, z=z: add(x, y, z), lambda: None, 5000), "us", "goal", limit)
    line("cpu, a step of a network's plan", step_us(add), "us", "goal", 0.3)
    for kind, exists in (("cuda", tec.runtime.cuda_exists), ("rocm", tec.runtime.rocm_exists)):
        if not exists():
            continue
        dev = tec.device(kind)
        if dev.is_emulated:
            continue
        arch = dev.arch.split(":")[0]
        add = vector_add(f"cuda -arch={arch}" if kind == "cuda" else f"rocm -mcpu={arch}")
        x, y, z = (tec.nd.zeros(16, "float32", dev) for _ in range(3))
        add(x, y, z)
        line(f"{kind}, launch", least_us(lambda x=x, y=y, z=z: add(x, y, z), dev.sync, 500), "us", "goal", 4.5)  # noqa: B023
        with dev.capture() as graph:
            for _ in range(100):
                add(x, y, z)
        start, stop = dev.event(), dev.event()
        graph.launch()
        dev.sync()
        start.record()
        for _ in range(50):
            graph.launch()
        stop.record()
        line(f"{kind}, a kernel of a captured graph of 100", start.elapsed_ms(stop) * 1e3 / 5000, "us", "goal", 2.5)


if __name__ == "__main__":
    main()
