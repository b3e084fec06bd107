"""The helpers of CPU code in a process that forks."""

import ctypes
import os
import subprocess
import sys

import pytest

from tec.runtime import hostpool

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
from tec.runtime import hostpool
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
