"""What is compiled and dropped leaves nothing behind in the process, and its threads end before it does."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.thinned import thinned_rows

NETWORKS = """
import gc, sys
import numpy as np, tec
from tec.graph import Graph
def resident():
    gc.collect()
    with open("/proc/self/statm") as f:
        return int(f.read().split()[1]) * 4096 / 2**20
def one(k):
    g = Graph()
    x = g.input("x", "float32", (4, 8 + k % 5))
    (y,) = g.add("relu", [x])
    (z,) = g.add("add", [y, x])
    g.set_outputs([z])
    out = tec.compile(g, target="llvm", cache=False).run([np.ones((4, 8 + k % 5), "float32")])
    assert (out[0] == 2).all()
for k in range(15):
    one(k)
before = resident()
for k in range(int(sys.argv[1])):
    one(k)
print(resident() - before)
"""
THREADS = """
import numpy as np, tec
from tec import te
a = te.placeholder((4096,), name="A")
b = te.compute((4096,), lambda i: a[i] + 1.0, name="B")
s = tec.create_schedule(b.op)
s[b].parallel(s[b].split(b.op.axis[0], 4)[0])
f = tec.build(s, [a, b], "llvm")
x, y = tec.nd.array(np.ones(4096, "float32")), tec.nd.empty((4096,), "float32")
for _ in range(5):
    f(x, y)
print((y.numpy() == 2).all())
"""


def run(code: str, *arguments: str, **env: str) -> subprocess.CompletedProcess:
    return subprocess.run(
        [sys.executable, "-c", code, *arguments], capture_output=True, text=True, timeout=500, check=False,
        env={**os.environ, "TEC_CACHE_DIR": "0", **env},
    )  # fmt: skip


@pytest.mark.skipif(not os.path.exists("/proc/self/statm"), reason="needs /proc")
@pytest.mark.parametrize("count,most_mb", [(40, 2.0), pytest.param(500, 20.0, marks=pytest.mark.slow)])
def test_dropped_networks_leave_nothing(count, most_mb):
    done = run(NETWORKS, str(count))
    assert float(done.stdout) < most_mb, done.stderr[-2000:]


@thinned_rows(2, "threads", ["2", "255", "5000", "1000"])  # at the gate the fewest and the most
def test_any_number_of_threads_ends_well(threads):
    done = run(THREADS, TEC_NUM_THREADS=threads)
    assert (done.returncode, done.stdout.strip(), done.stderr) == (0, "True", "")
