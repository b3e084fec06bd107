"""Launches made ready once, over a fake of libcuda that knows cuLaunchKernelEx: what reaches it, from call to call and from several threads."""

from __future__ import annotations

import ctypes
import threading
from typing import Any

import numpy as np
import pytest
from fake_gpu_library import FakeCuda
from runtime_fakes import VADD_PROGRAM
from test_gpu_drivers import PTX, arrays, vadd_kernel, vadd_module

from tec.errors import DeviceError, TecError
from tec.runtime.devices.cuda_driver import CudaDriver
from tec.runtime.devices.device import custom
from tec.runtime.modules.prepared_launch import PROGRAMMATIC_STREAM_SERIALIZATION, LaunchAttribute, LaunchConfig

VADD_BYTES = 28  # three pointers and an int


class FakeCudaEx(FakeCuda):
    """Arguments come by pointers into one block."""

    def do_cuLaunchKernelEx(self, config: Any, function: Any, params: Any, extra: Any) -> int:
        assert extra is None
        c = LaunchConfig.from_address(config.value)
        self.early.append(
            [(a.which, a.value) for a in (LaunchAttribute * c.attribute_count).from_address(c.attributes)]
            if c.attribute_count
            else []
        )
        pointers = (ctypes.c_void_p * 4).from_address(params.value)
        base = pointers[0] or 0
        assert [(p or 0) - base for p in pointers] == [0, 8, 16, 24]
        packed = ctypes.string_at(base, VADD_BYTES)
        if c.block_x * c.block_y * c.block_z > 1024:
            return 1
        geometry = (c.grid_x, c.grid_y, c.grid_z), (c.block_x, c.block_y, c.block_z), c.shared_bytes

        def run() -> None:
            self.kernels[self.handles[function.value]](*geometry, packed)

        if self.captured is not None:
            self.captured.append(run)
        else:
            run()
        self.streams.append(c.stream)
        return 0


@pytest.fixture
def setup() -> tuple[FakeCudaEx, Any, Any]:
    lib = FakeCudaEx({"vadd": vadd_kernel})
    lib.streams, lib.early = [], []
    return lib, custom(CudaDriver(lib), "cuda"), vadd_module("cuda", PTX)


def test_calls_go_one_way_with_their_own_arguments(setup: Any) -> None:
    lib, dev, f = setup
    a, b, c = arrays(dev)
    d, e, g = arrays(dev)
    for _ in range(2):
        f(a, b, c)
        f(e, e, g)
    np.testing.assert_array_equal(c.numpy(), np.arange(100) * 3)
    np.testing.assert_array_equal(g.numpy(), np.arange(100) * 4)
    assert not lib.named("cuLaunchKernel") and len(lib.named("cuLaunchKernelEx")) == 4
    d.copyfrom(np.full(100, 7, np.float32))
    f(d, d, c)
    np.testing.assert_array_equal(c.numpy(), np.full(100, 14))


def test_the_stream_is_the_callers(setup: Any) -> None:
    lib, dev, f = setup
    a, b, c = arrays(dev)
    f(a, b, c)
    stream = dev.stream()
    with stream:
        f(a, b, c)
    f(a, b, c)
    assert lib.streams == [None, stream.handle, None]


def test_threads_have_arguments_of_their_own(setup: Any) -> None:
    _, dev, f = setup
    sets = [arrays(dev) for _ in range(4)]
    for k, (a, _, _) in enumerate(sets):
        a.copyfrom(np.full(100, k, np.float32))

    def work(k: int) -> None:
        a, b, c = sets[k]
        for _ in range(50):
            f(a, b, c)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    for k, (_, _, c) in enumerate(sets):
        np.testing.assert_array_equal(c.numpy(), np.arange(100) * 2 + k)


def test_outputs_that_share_memory_are_refused_at_any_call(setup: Any) -> None:
    _, dev, f = setup
    a, b, c = arrays(dev)
    f(a, b, c)
    with pytest.raises(TecError, match="memory"):
        f(a, c, c)
    f(a, b, c)
    with pytest.raises(TecError, match="memory"):
        f(c, b, c)


def test_a_launch_that_fails_says_why(setup: Any) -> None:
    lib, dev, _ = setup
    launch = {**VADD_PROGRAM[0], "block": [2048, 1, 1]}
    f = vadd_module("cuda", PTX, [launch])
    a, b, c = arrays(dev)
    for _ in range(2):
        with pytest.raises(DeviceError, match="2048"):
            f(a, b, c)
    with dev.capture() as graph:
        vadd_module("cuda", PTX)(a, b, c)
    graph.launch()
    np.testing.assert_array_equal(c.numpy(), np.arange(100) * 3)


def test_a_kernel_of_a_graph_keeps_its_arrays(setup: Any) -> None:
    lib, dev, f = setup
    a, b, c = arrays(dev)
    f(a, b, c)
    with dev.capture() as graph:
        f(a, b, c)
    a.copyfrom(np.ones(100, np.float32))
    graph.launch()
    np.testing.assert_array_equal(c.numpy(), np.arange(100) * 2 + 1)


def test_a_kernel_that_waits_by_itself_is_launched_early(setup: Any) -> None:
    """And no other: a kernel of a package from before has no such wait in it."""
    lib, dev, plain = setup
    (launch,) = [dict(step) for step in VADD_PROGRAM]
    early = vadd_module("cuda", PTX, program=[{**launch, "early": True}])
    a, b, c = arrays(dev)
    for f in (plain, early, early):
        f(a, b, c)
    assert lib.early == [[], *[[(PROGRAMMATIC_STREAM_SERIALIZATION, 1)]] * 2]
    np.testing.assert_array_equal(c.numpy(), np.arange(100) * 3)
