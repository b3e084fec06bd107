"""Networks for GPUs as libraries, on the software GPU through the stand-in for libamdhip64: what Python's executors make of the same network, to the bit."""

from __future__ import annotations

import ctypes
import functools
import os
import subprocess
import sys
import threading
from ctypes import byref, c_size_t, c_void_p

import numpy as np
import pytest

import tec
from tec.emulator.hip import environment
from tec.emulator.hip.library import library_folder
from tec.errors import ArgumentError
from tec.native import runtime
from tec.runtime.arrays.dlpack import DLTensor
from tests import seeds
from tests.unit.graph.random_graphs import random_graph
from tests.unit.native.harness import POINTER, Failed, Net, build, needs_cc, tensor
from tests.unit.native.networks import cached_sum, cnn
from tests.unit.native.test_networks import nested
from tests.unit.native.test_programs import RUN_CNN, inputs, numbers

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="an ELF library")
CHIP = "rocm -mcpu=gfx942"
ROCM = 10


@pytest.fixture(autouse=True)
def emulated(monkeypatch):
    """What Python runs on: the same chip in software, without the stand-in."""
    monkeypatch.setenv("TEC_EMULATE", "gfx942")


@functools.cache
def hip():
    return ctypes.CDLL(str(library_folder() / "lib" / "libamdhip64.so"))


class GpuNet(Net):
    """A net on the software GPU."""

    def outputs(self, rows, n):
        """Host arrays for the outputs, and tensors over them."""
        made = []
        for k, (_, dtype, sizes) in enumerate(self.ports(True)):
            shape = (ctypes.c_int64 * max(len(sizes), 1))()
            self.check(self.lib.tec_net_shape(self.net, rows, n, k, shape, len(sizes)))
            made.append(np.zeros(tuple(shape[: len(sizes)]), dtype))
        return made

    def run(self, given):
        ports = self.ports()
        values = [given[n] for n, *_ in ports] if isinstance(given, dict) else list(given)
        made = [tensor(np.asarray(x), dtype) for x, (_, dtype, _) in zip(values, ports)]
        rows = (POINTER * max(len(made), 1))(*(ctypes.pointer(t) for t, _ in made))
        outs = self.outputs(rows, len(made))
        kept = [tensor(o) for o in outs]
        targets = (POINTER * max(len(outs), 1))(*(ctypes.pointer(t) for t, _ in kept))
        self.check(self.lib.tec_net_run(self.net, rows, len(made), targets, len(outs)))
        return outs


@pytest.fixture
def made(tmp_path, monkeypatch):
    """Writes a network's library; a net of it."""
    monkeypatch.setenv("TEC_HIP_LIBRARY", str(library_folder() / "lib" / "libamdhip64.so"))
    nets = []

    def make(network, name="net.so", **given):
        network.export_library(tmp_path / name, **{k: given.pop(k) for k in ("weights",) if k in given})
        nets.append(GpuNet(tmp_path / name, **given))
        return nets[-1]

    yield make
    for n in nets:
        n.close()


@needs_cc
def test_a_program_without_python(tmp_path):
    """The C program of the tests for CPUs, built by the system's compiler, runs a network for a GPU."""
    cnn(CHIP).export_library(tmp_path / "cnn.so")
    program = build(tmp_path, RUN_CNN, tmp_path / "cnn.so")
    done = subprocess.run(
        [str(program)], capture_output=True, text=True, timeout=300, check=False, env=environment("gfx942")
    )
    assert done.returncode == 0, done.stderr[-2000:]
    np.testing.assert_array_equal(numbers(done.stdout).reshape(2, 10), cnn(CHIP).run([inputs()])[0])
    done = subprocess.run(
        [str(program)], capture_output=True, text=True, check=False, env=os.environ | {"TEC_HIP_LIBRARY": "/nowhere.so"}
    )
    assert done.returncode == 4 and "libamdhip64 could not be loaded (/nowhere.so" in done.stderr


def test_open_sizes_and_strides(made):
    net = made(cnn(CHIP), weights="beside")
    rng = np.random.default_rng(0)
    for n in (1, 3, 1):
        x = rng.standard_normal((n, 3, 12, 12)).astype("f")
        np.testing.assert_array_equal(net.run([x])[0], cnn(CHIP).run([x])[0])
        turned = np.ascontiguousarray(x.transpose(0, 2, 3, 1)).transpose(0, 3, 1, 2)
        np.testing.assert_array_equal(net.run([turned])[0], net.run([x])[0])


def test_a_cache_grows(made):
    """States on the device, and a condition of the data that is looked at after a run."""
    net, ex = made(cached_sum(CHIP), capacity=2), cached_sum(CHIP).executor(capacity=2)
    rng = np.random.default_rng(1)
    for n in (1, 3, 1):
        ids = rng.integers(0, 5, (2, n))
        np.testing.assert_array_equal(net.run([ids])[0], ex.run([ids])[0].numpy())
    with pytest.raises(Failed, match="is outside of") as e:
        net.run([np.array([[7], [1]])])
    assert e.value.status == 5 and net.lib.tec_net_rows(net.net) == 5
    net.check(net.lib.tec_net_truncate(net.net, 2))
    ex.truncate(2)
    np.testing.assert_array_equal(net.run([ids])[0], ex.run([ids])[0].numpy())


@pytest.mark.slow
def test_loops_in_loops(made):
    """Conditions and numbers of trips that the device makes, states that change places, rows that a loop goes over."""
    network = tec.compile(nested(3), CHIP)
    net = made(network)
    rng = np.random.default_rng(3)
    for limit in (-100.0, 0.0, 100.0):
        given = {
            "x": rng.standard_normal(6).astype("f"),
            "w": rng.standard_normal((3, 6)).astype("f"),
            "limit": np.array([limit], "f"),
        }
        for a, b in zip(net.run(given), network.run(given), strict=True):
            np.testing.assert_array_equal(a, b)


@pytest.mark.slow
@pytest.mark.parametrize("seed", seeds.some(8 if seeds.number() else 4))
def test_drawn_networks(seed, made):
    g = random_graph(seed, 6, ("n", "h") if seed % 2 else ())
    network = tec.compile(g, CHIP)
    net = made(network, weights="beside" if seed % 3 == 0 else "inside")
    rng = np.random.default_rng(seed)
    shapes = {v.name: [d if isinstance(d, int) else int(rng.integers(4, 9)) for d in v.shape] for v in g.inputs}
    feeds = {name: rng.normal(size=shape).astype("f") for name, shape in shapes.items()}
    for a, b in zip(net.run(feeds), network.run(feeds), strict=True):
        np.testing.assert_array_equal(a, b)


def on_device(array, gap=0):
    """An array's bytes on the software GPU, `gap` bytes behind the beginning of a piece of memory, and a tensor over them."""
    at = c_void_p()
    assert hip().hipMalloc(byref(at), c_size_t(array.nbytes + gap)) == 0
    data = c_void_p(at.value + gap)
    assert hip().hipMemcpy(data, c_void_p(array.ctypes.data), c_size_t(array.nbytes), 1) == 0
    t, keep = tensor(array)
    t.data, t.device_type = data.value, ROCM
    t.keep = keep
    return t


def from_device(t, like):
    out = np.empty_like(like)
    assert hip().hipMemcpy(c_void_p(out.ctypes.data), c_void_p(t.data), c_size_t(out.nbytes), 2) == 0
    return out


@pytest.mark.parametrize("with_stream", [False, True])
def test_tensors_on_the_device(with_stream, made):
    stream = c_void_p()
    if with_stream:
        assert hip().hipStreamCreateWithFlags(byref(stream), 0) == 0
    net = made(cnn(CHIP), stream=stream.value)
    want = cnn(CHIP).run([inputs()])[0]
    for gap_in, gap_out in ((0, 0), (4, 4)):  # at whole elements is enough: such a tensor is copied
        x, y = on_device(inputs(), gap_in), on_device(np.zeros_like(want), gap_out)
        rows, outs = (POINTER * 1)(ctypes.pointer(x)), (POINTER * 1)(ctypes.pointer(y))
        net.check(net.lib.tec_net_run(net.net, rows, 1, outs, 1))
        if with_stream:
            assert hip().hipStreamSynchronize(stream) == 0
        np.testing.assert_array_equal(from_device(y, want), want)
    net.check(net.lib.tec_net_run(net.net, rows, 1, None, 0))
    kept = DLTensor()
    net.check(net.lib.tec_net_result(net.net, 0, byref(kept)))
    assert (kept.device_type, kept.device_id) == (ROCM, 0)
    if with_stream:
        assert hip().hipStreamSynchronize(stream) == 0
    np.testing.assert_array_equal(from_device(kept, want), want)


def test_what_is_refused(made, tmp_path):
    net = made(cnn(CHIP))
    x = on_device(inputs())
    rows = (POINTER * 1)(ctypes.pointer(x))
    for changes, says in (
        ({"device_type": 2}, r"is on DLPack device 2:0, it must be in the host's memory or on 10:0"),
        ({"device_id": 1, "device_type": ROCM}, "is on DLPack device 10:1"),
        ({"device_id": 0, "strides": (ctypes.c_int64 * 4)(432, 1, 36, 3)}, "must be compact"),
    ):
        for k, v in changes.items():
            setattr(x, k, v)
        with pytest.raises(Failed, match=says):
            net.check(net.lib.tec_net_run(net.net, rows, 1, None, 0))
    with pytest.raises(Failed, match=r"options.device is 7, and there are \d+ devices"):
        GpuNet(tmp_path / "net.so", device=7)
    cnn("rocm -mcpu=gfx90a").export_library(tmp_path / "other.so")
    with pytest.raises(Failed, match="compiled for rocm -mcpu=gfx90a, could not be loaded") as e:
        GpuNet(tmp_path / "other.so")
    assert e.value.status == 4
    with pytest.raises(ArgumentError, match="for code that is for llvm"):
        cnn().export_library(tmp_path / "cpu.so", host="llvm")


def test_threads_share_code_and_weights(made, tmp_path):
    """Sixteen threads with nets of their own of two libraries; the last net of a library gives its memory back."""
    paths = []
    for seed in (0, 1):
        cnn(CHIP, seed).export_library(tmp_path / f"{seed}.so")
        paths.append(tmp_path / f"{seed}.so")
    made(cnn(CHIP))  # the driver is found
    want = [cnn(CHIP, seed).run([inputs()])[0] for seed in (0, 1)]  # in the same memory
    free, total = c_size_t(), c_size_t()
    assert hip().hipMemGetInfo(byref(free), byref(total)) == 0
    before = free.value
    wrong = []

    def work(k):
        net = GpuNet(paths[k % 2])
        if not np.array_equal(net.run([inputs()])[0], want[k % 2]):
            wrong.append(k)
        net.close()

    threads = [threading.Thread(target=work, args=(k,)) for k in range(16)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong
    assert hip().hipMemGetInfo(byref(free), byref(total)) == 0 and free.value == before


def test_sizes_of_the_runtime(tmp_path):
    for arch in ("x86_64", "aarch64", "riscv64"):
        assert sum(map(len, runtime.objects(arch).values())) < 110_000
    cnn(CHIP).export_library(tmp_path / "a.so", host="llvm -mtriple=aarch64-linux-gnu")
    assert int.from_bytes((tmp_path / "a.so").read_bytes()[18:20], "little") == 183  # EM_AARCH64
