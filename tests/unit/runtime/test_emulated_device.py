"""`tec.rocm(0)` in software: the same program as on a GPU, from build to a saved module."""

from __future__ import annotations

import gc
import os
import random
import subprocess
import sys

import numpy as np
import pytest

import tec
from tec.errors import ArgumentError, DeviceError
from tec.runtime import nd, profile, rocm, rocm_emu
from tests import seeds


def build(target="rocm -mcpu=gfx942"):
    n = tec.var("n")
    A = tec.placeholder((n,), name="A")
    B = tec.placeholder((n,), name="B")
    C = tec.compute(A.shape, lambda i: A[i] + B[i], name="C")
    s = tec.create_schedule(C.op)
    bx, tx = s[C].split(C.op.axis[0], factor=64)
    s[C].bind(bx, tec.thread_axis("blockIdx.x"))
    s[C].bind(tx, tec.thread_axis("threadIdx.x"))
    return tec.build(s, [A, B, C], target, target_host="llvm", name="myadd")


@pytest.fixture(scope="module")
def fadd():
    return build()


@pytest.fixture
def dev(monkeypatch):
    monkeypatch.setenv("TEC_EMULATE", "gfx942")
    return rocm(0)


def arrays(dev, n):
    x = np.arange(n, dtype="float32")
    return x, nd.array(x, dev), nd.array(x * 2, dev), nd.zeros(n, "float32", dev)


def test_the_environment_names_the_chip(dev, monkeypatch):
    assert (
        dev.is_emulated and dev.arch == "gfx942" and dev.wavefront_size == 64 and dev is rocm(0) is rocm_emu("gfx942")
    )
    monkeypatch.setenv("TEC_EMULATE", "gfx1100")
    assert rocm(0).arch == "gfx1100" and rocm(0).wavefront_size == 32


def test_ragged_sizes(fadd, dev):
    for n in (1, 63, 64, 65, 1000):
        x, a, b, c = arrays(dev, n)
        fadd(a, b, c)
        np.testing.assert_array_equal(c.numpy(), 3 * x)


def test_views_streams_events_and_profile(fadd, dev):
    x, a, b, c = arrays(dev, 256)
    with dev.stream() as s:
        start = dev.event().record()
        fadd(a, b, c)
        stop = dev.event().record()
        s.sync()
    assert start.elapsed_ms(stop) > 0
    np.testing.assert_array_equal(c[::-3].numpy(), (3 * x)[::-3])
    with profile(dev) as p:
        fadd(a, b, c)
    assert len(p.launches) == 1 and p.launches[0].grid == (4, 1, 1) and p.total_ns > 0


def test_a_profile_shows_the_chip_not_the_host(fadd, dev):
    """Counters, the model's time and what limits it; in the table and in the trace; and no counting afterwards."""
    from tec.emulator import emulator_profile

    n = 64 * 1024
    _, a, b, c = arrays(dev, n)
    with profile(dev) as p, emulator_profile(dev.driver) as theirs:
        fadd(a, b, c)
        fadd(a, b, c)
    assert not dev.driver.profile and dev.driver.observer is None
    launch = p.launches[0]
    assert launch.counters["global_bytes"] == 3 * 4 * n == launch.counters["cache_line_bytes"]
    assert launch.counters["VMEM"] == 3 * n // 64 and launch.counters["coalescing_share"] == 1.0
    assert launch.time_ns == theirs.launches[0].estimate.microseconds * 1e3 == launch.counters["time_ns"]
    assert p.launches[1].time_ns == launch.time_ns != launch.host_ns
    (row,) = p.by_kernel()
    assert row["counters"]["VMEM"] == 6 * n // 64 and row["counters"]["active_lanes_share"] == 1.0
    assert "limit " + theirs.launches[0].estimate.limit in str(p) and "global_bytes 1,572,864" in str(p)
    there = [e for e in p.trace()["traceEvents"] if e.get("tid") == 2 and e["ph"] == "X"]
    assert [e["dur"] for e in there] == [launch.time_ns / 1e3] * 2 and there[0]["args"]["limit"] == row["counters"][
        "limit"
    ]
    fadd(a, b, c)
    assert len(p.launches) == len(theirs.launches) == 2 and dev.driver.last_counters(0) == {}


def test_memory_is_exact(dev):
    """Rounded or cached blocks would hide accesses past the end from the checks."""
    before = dev.memory()
    a = nd.empty(13, "uint8", dev)
    assert dev.memory().used == before.used + 13
    del a
    assert dev.memory().used == before.used and dev.memory().cached == 0


def test_code_for_another_chip(dev):
    _, a, b, c = arrays(dev, 4)
    with pytest.raises(DeviceError, match=r"built for gfx1100, and rocm_emu\('gfx942'\) is a gfx942"):
        build("rocm -mcpu=gfx1100")(a, b, c)


def test_arrays_of_two_devices(fadd, dev):
    _, a, b, c = arrays(dev, 4)
    with pytest.raises(ArgumentError, match="on cpu"):
        fadd(a, nd.zeros(4), c)
    with pytest.raises(
        ArgumentError,
        match=r"argument 2 \(B\) is on rocm_emu\('gfx1100'\), but argument 1 \(A\) on rocm_emu\('gfx942'\)",
    ):
        fadd(a, nd.zeros(4, "float32", rocm_emu("gfx1100")), c)


def test_saved_module_in_a_fresh_process(fadd, tmp_path):
    path = tmp_path / "fadd.tecmod"
    fadd.save(path)
    code = f"""
import sys, numpy as np, tec
f = tec.load_module({str(path)!r})
dev = tec.rocm(0)
x = np.arange(100, dtype="float32")
a, b, c = tec.nd.array(x, dev), tec.nd.array(x, dev), tec.nd.empty(100, "float32", dev)
f(a, b, c)
assert (c.asnumpy() == 2 * x).all()
assert f.imported_modules[0].get_source("asm") and f.get_binary()[:4] == b"\\x7fELF"
np.kept = a  # still there when modules are taken apart
print([m for m in sys.modules if m.startswith(("tec.ir", "tec.te", "tec.codegen", "tec.schedule", "tec.driver"))])
"""
    env = {**os.environ, "TEC_EMULATE": "gfx942", "TEC_EMULATE_CHECK": "race"}
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, env=env, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "[]" and done.stderr == ""


def test_checks_are_options(fadd, dev, monkeypatch):
    checked = rocm_emu("gfx942", check="race,init")
    assert checked is not dev and checked is rocm_emu("gfx942", check={"init", "race"})
    monkeypatch.setenv("TEC_EMULATE_CHECK", "race, init")
    assert rocm(0) is checked
    x, a, b, c = arrays(checked, 100)
    fadd(a, b, c)
    np.testing.assert_array_equal(c.numpy(), 3 * x)
    monkeypatch.setenv("TEC_EMULATE_CHECK", "speling")
    with pytest.raises(DeviceError, match="speling"):
        rocm(0)


@pytest.mark.parametrize("where", [tec.cpu, lambda: rocm_emu("gfx942")], ids=["cpu", "emulated"])
def test_memory_is_counted_and_running_out_says_what_is_held(where):
    device = where()
    gc.collect()  # running out collects what only cycles hold, of tests before this one too
    before = device.memory()
    held = nd.zeros((1 << 20,), "float32", device)
    now = device.memory()
    assert now.used == before.used + (4 << 20) and now.blocks == before.blocks + 1 and now.peak >= now.used
    with pytest.raises(DeviceError) as e:
        nd.empty((1 << 44,), "float32", device)
    for words in (
        f"out of memory on {device}",
        "64.0 TiB asked for",
        f"in {now.blocks} blocks",
        "free",
        "hint: drop arrays",
    ):
        assert words in str(e.value), str(e.value)
    del held
    device.empty_cache()
    assert device.memory().used == before.used and device.memory().cached == 0


def test_launches_are_waited_for_by_sync_and_by_copies(fadd, dev):
    """A chain of launches that each need the last one's result, without a wait between."""
    x, a, b, c = arrays(dev, 4096)
    for _ in range(20):
        fadd(a, b, c)  # c = a + b
        fadd(c, b, a)  # a = a + 2 b
    dev.sync()
    np.testing.assert_array_equal(a.numpy(), x + 2 * x * 2 * 20)


@pytest.mark.parametrize("check", ["", "race,init"])
def test_drawn_allocations_against_a_model(check):
    """What is live, how many bytes, where kernels may go, and that nothing is given back twice."""
    r = random.Random(seeds.first(5))
    device = tec.rocm_emu("gfx942", check=check) if check else tec.rocm_emu("gfx942")
    driver, live, gone = device.driver, {}, []
    memory = driver.memory
    before, others = memory.used_bytes, set(memory.live)
    for _ in range(60):
        if live and r.random() < 0.45:
            address = r.choice(sorted(live))
            driver.free(0, address)
            gone.append((address, live.pop(address)))
        else:
            size = r.choice((0, 1, 63, 4096))
            address = driver.alloc(0, size)
            assert address % 16 == 0 and all(
                address + size <= a or a + n <= address for a, n in live.items() if n and size
            )
            live[address] = size
        assert memory.used_bytes - before == sum(live.values())
        assert {int(a): int(n) for a, n in memory.table() if int(a) not in others} == live
    for address in [a for a, _ in gone[-8:] if a not in live]:
        with pytest.raises(DeviceError, match="was freed before"):
            driver.free(0, address)
    for address in live:
        driver.free(0, address)
    assert memory.used_bytes == before
