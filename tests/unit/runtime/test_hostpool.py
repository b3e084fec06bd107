"""The helpers of CPU code in a process that forks."""

import ctypes
import os
import subprocess
import sys

import pytest

from tec.runtime.modules import hostpool

pytestmark = pytest.mark.skipif(not hasattr(os, "fork") or not hostpool.symbols(), reason="needs fork and the pool")


def test_a_child_has_blocks_of_its_own():
    """What a forked child takes from the list of free blocks stays in its parent's list; what it puts there does not get there."""
    take = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_int64)(hostpool.symbols()["tec_alloc"])
    give = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(hostpool.symbols()["tec_free"])
    mine = take(300_000)
    give(mine)
    child = os.fork()
    if child == 0:
        took = take(300_000)
        other = take(700_000)
        give(other)
        os._exit(0 if took == mine else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert take(300_000) == mine
    give(mine)
    fresh = take(700_000)  # with the child's block in the list this would be its address, which is nothing here
    ctypes.memset(fresh, 0, 700_000)
    give(fresh)


_COUNTS = """
import ctypes, threading, time
from tec.runtime.modules import hostpool
body_type = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)
loop = ctypes.CFUNCTYPE(ctypes.c_int32, body_type, ctypes.c_void_p, ctypes.c_int64)(hostpool.symbols()["tec_parallel_for"])

def threads():
    seen = set()
    def body(closure, begin, end):
        seen.add(threading.get_ident())
        time.sleep(0.003)
        return 0
    loop(body_type(body), None, 60)
    return len(seen)

for n in (6, 2, 1, 4):
    hostpool.set_num_threads(n)
    print(threads(), end=" ")
"""


def test_fewer_threads_than_were_started():
    """Workers that an earlier setting started stay out of jobs that fewer threads are to do."""
    done = subprocess.run([sys.executable, "-c", _COUNTS], capture_output=True, text=True, timeout=60)
    assert done.stdout.split() == ["6", "2", "1", "4"], done.stderr


_STRESS = """
import numpy as np
import tec
from tec import te
from tec.runtime.modules import hostpool

def program(n, steps):
    def make(ins, outs):
        ib = te.ir_builder.create()
        out = ib.buffer_ptr(outs[0])
        with ib.for_range(0, n, "z") as z:
            out[z] = te.const(0, "int32")
        with ib.for_range(0, steps, "s") as s, ib.for_range(0, n, "p", kind="parallel") as p:
            with ib.for_range(0, 1000, "k") as k:
                out[p] = out[p] + k
        return ib.get()

    x = te.placeholder((1,), "int32", "x")
    y = te.extern((n,), [x], make, name="y", dtype="int32")
    return tec.build(te.create_schedule(y.op), [x, y], "llvm")

x = tec.nd.array(np.zeros(1, "int32"))
for n in (1, 2, 3, 7, 64, 1000):
    f = program(n, 100)
    for threads in (2, 3, 16, 1, 5):
        hostpool.set_num_threads(threads)
        y = tec.nd.array(np.full(n, -1, "int32"))
        f(x, y)
        assert (y.numpy() == 100 * 499500).all(), (n, threads, y.numpy())
print("done")
"""


def test_every_element_once_however_many_threads():
    """More threads than cores and than elements: ranges are shared out anew for each loop, and nobody takes from one that is over."""
    done = subprocess.run([sys.executable, "-c", _STRESS], capture_output=True, text=True, timeout=100)
    assert done.stdout.split() == ["done"], done.stderr


_FAILS = """
import ctypes
from tec.runtime.modules import hostpool
body_type = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)
loop = ctypes.CFUNCTYPE(ctypes.c_int32, body_type, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)(hostpool.symbols()["tec_parallel_work"])
hostpool.set_num_threads(4)
for bad in (0, 3, 59):
    for _ in range(50):
        assert loop(body_type(lambda c, b, e: 7 if b <= bad < e else 0), None, 60, 1 << 40) == 7
    seen = []
    assert loop(body_type(lambda c, b, e: seen.append((b, e)) or 0), None, 60, 1 << 40) == 0
    assert sorted(k for b, e in seen for k in range(b, e)) == list(range(60))
# One that is short is its caller's, and so is one beside sleeping workers.
calls = []
loop(body_type(lambda c, b, e: calls.append((b, e)) or 0), None, 60, 100)
assert calls == [(0, 60)], calls
print("done")
"""


def test_a_body_that_fails_ends_its_loop_and_no_other():
    done = subprocess.run([sys.executable, "-c", _FAILS], capture_output=True, text=True, timeout=100)
    assert done.stdout.split() == ["done"], done.stderr
