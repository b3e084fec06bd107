"""Work-groups of one launch that wait for each other by flags in memory: they get on, or it is told that they cannot."""

from __future__ import annotations

import struct
import threading

import numpy as np
import pytest

import tec
from tec import te
from tec.emulator import get_driver, together
from tec.emulator.errors import EmulationError
from tec.emulator.together import groups_at_once
from tests.thinned import thinned

from .harness import compile_ir, download, upload

# Each work-group waits for the flag of the next one (the last one for nobody), takes its number and one more, and sets its own flag.
_IR = """define amdgpu_kernel void @chain(ptr addrspace(1) %flags, ptr addrspace(1) %out, i32 %groups) #0 {
entry:
  %g = call i32 @llvm.amdgcn.workgroup.id.x()
  %next = add i32 %g, 1
  %last = icmp eq i32 %next, %groups
  %fp = getelementptr i32, ptr addrspace(1) %flags, i32 %next
  br i1 %last, label %first, label %poll
poll:
  %f = load atomic i32, ptr addrspace(1) %fp syncscope("agent") acquire, align 4
  %set = icmp ne i32 %f, 0
  br i1 %set, label %there, label %poll
there:
  %np = getelementptr i32, ptr addrspace(1) %out, i32 %next
  %n = load i32, ptr addrspace(1) %np
  br label %first
first:
  %v = phi i32 [ 0, %entry ], [ %n, %there ]
  %v1 = add i32 %v, 1
  %mp = getelementptr i32, ptr addrspace(1) %out, i32 %g
  store i32 %v1, ptr addrspace(1) %mp
  %sp = getelementptr i32, ptr addrspace(1) %flags, i32 %g
  store atomic i32 1, ptr addrspace(1) %sp syncscope("agent") release, align 4
  ret void
}
declare i32 @llvm.amdgcn.workgroup.id.x()
attributes #0 = { "amdgpu-flat-work-group-size"="1,32" "amdgpu-no-implicitarg-ptr" }"""


def _launch(chip: str, groups: int, lds: int = 0, **options: object) -> np.ndarray:
    _, image = compile_ir(_IR, chip)
    driver = get_driver(chip, **options)
    kernel = driver.get_function(driver.load_module(0, image), "chain")
    zeros = np.zeros(groups, np.int32)
    held = [upload(driver, x) for x in (zeros, zeros)]
    driver.launch(kernel, (groups, 1, 1), (1, 1, 1), lds, struct.pack("<QQi", *held, groups))
    return download(driver, held[1], zeros)


@thinned(1, ("check", ["bounds", "race"]), ("chip", ["gfx90a", "gfx942", "gfx1100", "gfx1200"]))
def test_a_chain_that_runs_backward(chip: str, check: str) -> None:
    """The first work-group waits for the second, that for the third, more than the host has CPUs."""
    np.testing.assert_array_equal(_launch(chip, 40, check=check), np.arange(40, 0, -1))


def test_one_thread_of_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEC_EMULATOR_THREADS", "1")
    np.testing.assert_array_equal(_launch("gfx942", 7), np.arange(7, 0, -1))


def test_more_than_the_chip_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    """64 KiB of LDS each: one more than all its units have room for."""
    chip = get_driver("gfx1151").chip
    most = groups_at_once(chip, 32, 65536, 1, 32)
    monkeypatch.setenv("TEC_EMULATOR_THREADS", str(most))
    np.testing.assert_array_equal(_launch("gfx1151", most, 65536), np.arange(most, 0, -1))
    with pytest.raises(
        EmulationError,
        match=rf"a deadlock: {most + 1} work-groups, of which the chip holds {most} at once.* 1 have not begun",
    ) as told:
        _launch("gfx1151", most + 1, 65536, budget=1 << 22)  # of a host that is slow to start 40 threads
    assert "TEC_EMULATOR_BUDGET" in str(told.value)


def test_long_kernels_run_on_threads_with_room_for_their_values(monkeypatch: pytest.MonkeyPatch) -> None:
    """A drawn kernel of 34,937 instructions under check="race" once ended the process: the host's code of it has more than 8 MB on the stack."""
    assert together.stack_bytes(1) == 0
    assert together.stack_bytes(34_937) == 512 << 20 and together.stack_bytes(1 << 40) == 4 << 30
    before = threading.stack_size()
    monkeypatch.setattr(together, "_usual_stack", lambda: 0)
    a = te.placeholder((64,), name="a")
    b = te.compute((64,), lambda i: a[i] + 1, name="b")
    s = tec.create_schedule(b.op)
    s[b].bind(b.op.axis[0], te.thread_axis("threadIdx.x"))
    f, dev = tec.build(s, [a, b], "rocm -mcpu=gfx942"), tec.rocm_emu("gfx942", check="race")
    got = tec.nd.empty((64,), "float32", dev)
    asked: list[int] = []
    size = threading.stack_size
    monkeypatch.setattr(threading, "stack_size", lambda n=0: asked.append(n) or size(n))
    f(tec.nd.array(np.arange(64, dtype="float32"), dev), got)
    np.testing.assert_array_equal(got.numpy(), np.arange(1, 65))
    assert asked[0] == 64 << 20 and threading.stack_size() == before
