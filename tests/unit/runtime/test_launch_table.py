"""The launches of a plan as one table, queued by machine code over libraries whose launch functions are called as C: what reaches them at each size."""

from __future__ import annotations

import ctypes
import struct
from typing import Any

import numpy as np
import pytest
from fake_gpu_library import FakeCuda, FakeHip
from runtime_fakes import VADD_PROGRAM, VADD_SIGNATURE
from test_executor import sum_twice
from test_gpu_drivers import PTX, vadd_kernel

import tec
from tec.errors import ArgumentError, DeviceError
from tec.runtime.devices.cuda_driver import CudaDriver
from tec.runtime.devices.device import custom
from tec.runtime.devices.hip_driver import HipDriver
from tec.runtime.modules.module import Module
from tec.runtime.modules.prepared_launch import PROGRAMMATIC_STREAM_SERIALIZATION, LaunchAttribute, LaunchConfig
from tec.runtime.networks.network import Network

VADD_BYTES = 28  # three pointers and an int
P, U = ctypes.c_void_p, ctypes.c_uint
LAUNCH = ctypes.CFUNCTYPE(ctypes.c_int, P, *(U,) * 7, P, P, P)
LAUNCH_EX = ctypes.CFUNCTYPE(ctypes.c_int, P, P, P, P)


def with_c_functions(lib: Any, end: int) -> Any:
    """The library with launch functions of the C ABI, which run vadd and note (geometry, stream, early)."""
    lib.launched, lib.status = [], 0

    def go(function: Any, geometry: Any, stream: Any, params: Any, extra: Any, early: bool) -> int:
        if lib.status:
            return int(lib.status)
        if extra:
            words = (ctypes.c_uint64 * 5).from_address(extra)
            assert (words[0], words[2], words[4]) == (1, 2, end)
            packed = ctypes.string_at(words[1], ctypes.c_size_t.from_address(words[3]).value)
        else:
            at = (ctypes.c_uint64 * 4).from_address(params)
            packed = b"".join(ctypes.string_at(a, n) for a, n in zip(at, (8, 8, 8, 4)))
        assert len(packed) == VADD_BYTES and lib.handles[function] == "vadd"
        lib.launched.append((geometry, stream, early))
        run = lambda: vadd_kernel(geometry[:3], geometry[3:6], geometry[6], packed)  # noqa: E731
        if lib.captured is not None:
            lib.captured.append(run)
        else:
            run()
        return 0

    def launch(function: Any, *rest: Any) -> int:
        return go(function, tuple(rest[:7]), rest[7], rest[8], rest[9], False)

    def launch_ex(config: Any, function: Any, params: Any, extra: Any) -> int:
        c = LaunchConfig.from_address(config)
        attributes = (LaunchAttribute * c.attribute_count).from_address(c.attributes)
        assert [(a.which, a.value) for a in attributes] == [(PROGRAMMATIC_STREAM_SERIALIZATION, 1)]
        geometry = c.grid_x, c.grid_y, c.grid_z, c.block_x, c.block_y, c.block_z, c.shared_bytes
        return go(function, geometry, c.stream, params, extra, True)

    for name, made in (("hipModuleLaunchKernel", LAUNCH(launch)), ("cuLaunchKernel", LAUNCH(launch)), ("cuLaunchKernelEx", LAUNCH_EX(launch_ex))):  # fmt: skip
        lib.__dict__[name] = made
    return lib


def devices(kind: str) -> tuple[Any, Any]:
    if kind == "rocm":
        lib = with_c_functions(FakeHip({"vadd": vadd_kernel}), 3)
        return lib, custom(HipDriver(lib), kind)
    lib = with_c_functions(FakeCuda({"vadd": vadd_kernel}), 0)
    return lib, custom(CudaDriver(lib), kind)


def network(kind: str, program: Any = VADD_PROGRAM) -> Network:
    """z = (x + y) + y."""
    image = PTX if kind == "cuda" else b"\x7fELF code"
    module = Module("llvm", "vadd", VADD_SIGNATURE, program=program, imported=[Module(kind, image=image)])
    return Network(module, sum_twice("n").plan, {})


def pair(n: int) -> list[Any]:
    rng = np.random.default_rng(n)
    return [rng.standard_normal(n).astype("float32") for _ in range(2)]


@pytest.mark.parametrize("kind", ["rocm", "cuda"])
def test_each_size_has_its_own_numbers(kind: str) -> None:
    lib, dev = devices(kind)
    ex = network(kind).executor(dev)
    for n in (100, 1, 500, 100, 100, 64):
        x, y = pair(n)
        lib.launched.clear()
        np.testing.assert_allclose(ex.run([x, y])[0].numpy(), x + y + y, rtol=1e-6)
        if lib.launched:  # else a captured graph
            assert lib.launched == [((-(-n // 64), 1, 1, 64, 1, 1, 0), lib.launched[0][1], False)] * 2
            assert lib.launched[0][1]  # the executor's stream
    assert not ex._engine._table.launches.sections[1:]


def test_a_kernel_that_may_begin_early() -> None:
    lib, dev = devices("cuda")
    ex = network("cuda", [{**VADD_PROGRAM[0], "early": True}]).executor(dev)
    for n in (30, 200):
        x, y = pair(n)
        np.testing.assert_allclose(ex.run([x, y])[0].numpy(), x + y + y, rtol=1e-6)
    assert [early for *_, early in lib.launched] == [True] * 4
    assert [g[0] for g, *_ in lib.launched] == [1, 1, 4, 4] and lib.launched[0][1]


THROUGH_SCRATCH = [
    {"op": "assert", "cond": ["le", "n", 300], "message": "too long"},
    {"op": "alloc", "name": "S", "dtype": "float32", "size": "n"},
    {**VADD_PROGRAM[0], "args": [{"buffer": "A"}, {"buffer": "B"}, {"buffer": "S"}, {"scalar": "n", "dtype": "int32"}]},
    {"op": "alloc", "name": "T", "dtype": "float32", "size": ["mul", "n", 2]},
    {**VADD_PROGRAM[0], "args": [{"buffer": "S"}, {"buffer": "B"}, {"buffer": "T"}, {"scalar": "n", "dtype": "int32"}]},
    {**VADD_PROGRAM[0], "args": [{"buffer": "S"}, {"buffer": "T"}, {"buffer": "C"}, {"scalar": "n", "dtype": "int32"}]},
    {"op": "free", "name": "S"},
    {"op": "free", "name": "T"},
]


@pytest.mark.parametrize("kind", ["rocm", "cuda"])
def test_scratch_memory_and_conditions(kind: str) -> None:
    """C = (A + B) + (A + B + B), twice."""
    lib, dev = devices(kind)
    ex = network(kind, THROUGH_SCRATCH).executor(dev)
    for n in (20, 300, 7, 300, 300):
        x, y = pair(n)
        t = 2 * x + 3 * y
        np.testing.assert_allclose(ex.run([x, y])[0].numpy(), 2 * t + 3 * y, rtol=1e-5, atol=1e-5)
    with pytest.raises(ArgumentError, match=r"vadd: too long \(n = 301\)"):
        ex.run(pair(301))
    x, y = pair(9)
    np.testing.assert_allclose(ex.run([x, y])[0].numpy(), 4 * x + 9 * y, rtol=1e-5, atol=1e-5)


def test_branches_of_host_programs_are_rows() -> None:
    """The launch of the branch that is not taken has an empty grid; nothing is called for a size."""
    lib, dev = devices("rocm")
    (step,) = VADD_PROGRAM
    wide = {**step, "grid": [7, 1, 1]}
    inner = {"op": "if", "cond": ["gt", "n", 90], "then": [wide], "else": [step]}
    program = [{"op": "if", "cond": ["gt", "n", 4], "then": [inner], "else": [step]}]
    ex = network("rocm", program).executor(dev)
    for n, grid in ((2, 1), (70, 2), (100, 7), (2, 1)):
        x, y = pair(n)
        lib.launched.clear()
        np.testing.assert_allclose(ex.run([x, y])[0].numpy(), x + y + y, rtol=1e-6)
        assert [g[0] for g, *_ in lib.launched] == [grid] * 2
    assert ex._engine._table.launches.sections == [(0, 6)]


def test_branches_that_divide_by_a_size_and_loops_are_called() -> None:
    """A size may be 0 where the branch is not taken."""
    (step,) = VADD_PROGRAM
    divided = {**step, "grid": [["add", 1, ["floordiv", "n", ["sub", "n", 1]]], 1, 1]}
    for program in (
        [{"op": "if", "cond": ["gt", "n", 1], "then": [divided], "else": [step]}],
        [{"op": "for", "var": "i", "min": 0, "extent": 1, "body": [step]}],
    ):
        _, dev = devices("rocm")
        ex = network("rocm", program).executor(dev)
        for n in (1, 70):
            x, y = pair(n)
            np.testing.assert_allclose(ex.run([x, y])[0].numpy(), x + y + y, rtol=1e-6)
        assert ex._engine._table.launches.sections == [0, 1]


def test_nothing_to_do_is_not_launched() -> None:
    lib, dev = devices("rocm")
    grid = [["max", ["sub", "n", 10], 0], 1, 1]
    ex = network("rocm", [{**VADD_PROGRAM[0], "grid": grid}]).executor(dev)
    ex.run(pair(10))
    assert not lib.launched
    ex.run(pair(11))
    assert [g[:3] for g, *_ in lib.launched] == [(1, 1, 1)] * 2


@pytest.mark.parametrize("kind", ["rocm", "cuda"])
def test_a_launch_that_fails_says_which(kind: str) -> None:
    lib, dev = devices(kind)
    ex = network(kind).executor(dev)
    x, y = pair(70)
    lib.status = 999
    with pytest.raises(DeviceError, match=r"'vadd' could not be launched \(grid \(2, 1, 1\), block \(64, 1, 1\)"):
        ex.run([x, y])
    lib.status = 0
    np.testing.assert_allclose(ex.run([x, y])[0].numpy(), x + y + y, rtol=1e-6)


def test_a_profile_sees_each_launch() -> None:
    lib, dev = devices("rocm")
    ex = network("rocm").executor(dev)
    x, y = pair(70)
    with tec.profile(dev) as profile:
        ex.run([x, y])
    assert [p.name for p in profile.launches] == ["vadd", "vadd"]


def test_a_size_past_32_bits_is_refused() -> None:
    _, dev = devices("rocm")
    args = [*VADD_PROGRAM[0]["args"][:3], {"scalar": ["mul", "n", 1 << 28], "dtype": "int32"}]
    ex = network("rocm", [{**VADD_PROGRAM[0], "args": args}]).executor(dev)
    with pytest.raises(ArgumentError, match="past 32 bits"):
        ex.run(pair(8))


def test_the_block_of_arguments_is_as_struct_has_it() -> None:
    """Numbers of every width, after pointers and between them."""
    seen: list[bytes] = []
    lib, dev = devices("rocm")
    widths = ["int8", "uint16", "int32", "int64", "uint8", "uint32"]
    args = [{"buffer": "A"}]
    for d in widths:
        args += [{"scalar": ["add", "n", 3], "dtype": d}, {"buffer": "C"}]

    def launch(*a: Any) -> int:
        words = (ctypes.c_uint64 * 5).from_address(a[10])
        seen.append(ctypes.string_at(words[1], ctypes.c_size_t.from_address(words[3]).value))
        return 0

    made = LAUNCH(launch)
    lib.__dict__["hipModuleLaunchKernel"] = made
    dev = custom(HipDriver(lib), "rocm")
    ex = network("rocm", [{**VADD_PROGRAM[0], "args": args}]).executor(dev)
    ex.run(pair(70))
    values = struct.unpack("<QB7xQH6xQi4xQqQB7xQI4xQ", seen[0])
    assert values[1::2] == (73,) * 6 and len(set(values[2::2])) == 1
