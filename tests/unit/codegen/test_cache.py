"""The object cache and the pool's stored objects."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tec.codegen import cache, llvm_util
from tec.codegen.support import pool
from tec.ir import BufferStore, FloatImm, Func, IntImm
from tec.runtime.modules import _pool_data
from tec.runtime.objects.elfobject import parse_object

from .harness import buffer, compile_func


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("TEC_CACHE_DIR", str(tmp_path))
    return tmp_path / "objects"


def test_round_trip_and_damage(folder):
    key = cache.key_of("a", "b")
    assert cache.load(key) is None
    cache.store(key, b"object")
    assert cache.load(key) == b"object"
    path = folder / key[:2] / key
    raw = bytearray(path.read_bytes())
    raw[-1] ^= 1
    path.write_bytes(raw)
    assert cache.load(key) is None and not path.exists()
    cache.store(key, b"object")
    path.write_bytes(path.read_bytes()[:10])
    assert cache.load(key) is None


def test_keys_depend_on_every_part():
    keys = {cache.key_of(*p) for p in (("ab", "c"), ("a", "bc"), ("abc",), ("a", "b", "c"), ("ab", "c", ""))}
    assert len(keys) == 5


def test_the_longest_unused_go_first(folder, monkeypatch):
    monkeypatch.setenv("TEC_CACHE_LIMIT_MB", "1")
    keys = [cache.key_of(str(k)) for k in range(8)]
    for k, key in enumerate(keys):
        cache.store(key, bytes(200_000))
        path = folder / key[:2] / key
        if path.exists():
            os.utime(path, (1000 + k, 1000 + k))
    cache.trim()
    left = [key for key in keys if cache.load(key) is not None]
    assert left and left == keys[-len(left) :] and len(left) <= 5


def test_off_and_unwritable(monkeypatch, tmp_path):
    monkeypatch.setenv("TEC_CACHE_DIR", "0")
    cache.store("ab" * 20, b"x")
    assert cache.load("ab" * 20) is None
    blocked = tmp_path / "file"
    blocked.write_text("")
    monkeypatch.setenv("TEC_CACHE_DIR", str(blocked))
    cache.store("ab" * 20, b"x")
    assert cache.load("ab" * 20) is None


def test_a_second_build_does_not_compile(folder, monkeypatch):
    out = buffer("out", "float32", 1)
    f = Func("main", (out,), BufferStore(out, FloatImm(3.0), (IntImm(0),)))
    first = compile_func(f)
    monkeypatch.setattr(llvm_util, "begin", lambda *a, **k: pytest.fail("compiled again"))
    assert compile_func(f).code.object == first.code.object


def test_stored_pool_is_made_from_this_source():
    assert pool.digest() == _pool_data.SOURCE, "run python -m tec.codegen.support.pool"
    assert set(_pool_data.OBJECTS) == set(pool.TRIPLES)
    for arch, data in pool.objects().items():
        names = {s.name for s in parse_object(data).symbols if s.section == 0 and s.name}
        assert names <= {
            "pthread_create", "pthread_join", "pthread_mutex_init", "pthread_mutex_lock", "pthread_mutex_unlock", "pthread_cond_init",
            "pthread_cond_wait", "pthread_cond_broadcast", "sched_yield", "posix_memalign", "free", "memmove", "syscall",
        }, arch  # fmt: skip


def test_the_pool_needs_no_llvm():
    code = "import sys; from tec.runtime.modules import hostpool; assert hostpool.symbols()['tec_alloc']; assert 'llvmlite' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("threads", ["1", "3"])
def test_the_number_of_threads_is_the_users(threads):
    code = (
        "import ctypes, threading, time\n"
        "from tec.runtime.modules import hostpool\n"
        "seen = set()\n"
        "@ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)\n"
        "def body(closure, begin, end):\n"
        "    seen.add(threading.get_ident()); time.sleep(0.02); return 0\n"
        "run = hostpool.pool().function('tec_parallel_for', ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)\n"
        "assert run(ctypes.cast(body, ctypes.c_void_p), None, 60) == 0\n"
        "print(len(seen))\n"
    )
    env = {**os.environ, "TEC_NUM_THREADS": threads}
    out = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True, env=env)
    assert out.stdout.strip() == threads
