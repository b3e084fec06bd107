"""Counts of a launch: numbers that can be worked out by hand."""

from __future__ import annotations

import json
import struct

import numpy as np
import pytest

from tec import TecError
from tec.emulator import emulator_profile

from .harness import function, upload

_TAIL = """
declare i32 @llvm.amdgcn.workitem.id.x()
attributes #0 = { "amdgpu-flat-work-group-size"="1,256" "amdgpu-no-implicitarg-ptr" }
"""


def strided(stride: int) -> str:
    return f"""define amdgpu_kernel void @k(ptr addrspace(1) %p, ptr addrspace(1) %o) #0 {{
  %t = call i32 @llvm.amdgcn.workitem.id.x()
  %i = mul i32 %t, {stride}
  %a = getelementptr float, ptr addrspace(1) %p, i32 %i
  %x = load float, ptr addrspace(1) %a
  %b = getelementptr float, ptr addrspace(1) %o, i32 %t
  store float %x, ptr addrspace(1) %b
  ret void
}}{_TAIL}"""


def profile(ir: str, chip: str, block: int, grid: int = 1):
    driver, k = function(ir, chip)
    p, o = upload(driver, np.zeros(1 << 14, np.float32)), upload(driver, np.zeros(1 << 12, np.float32))
    with emulator_profile(driver) as result:
        driver.launch(k, (grid, 1, 1), (block, 1, 1), 0, struct.pack("<QQ", p, o))
    assert not driver.profile
    return result


def test_coalescing() -> None:
    for stride, lines in ((1, 8), (2, 16), (32, 256)):
        counts = profile(strided(stride), "gfx942", 256).launches[0].counts
        load, store = counts.memory["global_load"], counts.memory["global_store"]
        assert (load.instructions, load.bytes, load.lines) == (4, 1024, lines)
        assert (store.instructions, store.bytes, store.lines) == (4, 1024, 8)
        assert counts.instructions["VMEM"] == 8 and counts.active_lanes == 1.0
        assert abs(load.efficiency - 1024 / (lines * 128)) < 1e-9


def test_partial_waves() -> None:
    counts = profile(strided(1), "gfx942", 96, grid=2).launches[0].counts
    assert counts.memory["global_load"].bytes == 2 * 96 * 4
    assert counts.active_lanes == 0.75  # 64 and 32 lanes of two waves


def test_bank_conflicts() -> None:
    def ir(stride: int) -> str:
        return f"""@l = internal addrspace(3) global [8192 x float] poison
define amdgpu_kernel void @k(ptr addrspace(1) %p, ptr addrspace(1) %o) #0 {{
  %t = call i32 @llvm.amdgcn.workitem.id.x()
  %i = mul i32 %t, {stride}
  %a = getelementptr float, ptr addrspace(3) @l, i32 %i
  store volatile float 1.0, ptr addrspace(3) %a
  %x = load volatile float, ptr addrspace(3) %a
  %b = getelementptr float, ptr addrspace(1) %o, i32 %t
  store float %x, ptr addrspace(1) %b
  ret void
}}{_TAIL}"""

    # 32 lanes a clock: stride 1 is free, 2 puts two words in a bank, 32 puts all in one.
    for stride, clocks in ((1, 1), (2, 2), (4, 4), (32, 32), (33, 1)):
        counts = profile(ir(stride), "gfx1100", 32).launches[0].counts
        load = counts.memory["lds_load"]
        assert (load.clocks, load.extra_clocks) == (clocks, clocks - 1), stride
    assert profile(ir(1), "gfx942", 64).launches[0].counts.memory["lds_load"].clocks == 2


# Of half a wave: as published (`tec.target.lds`).
_PHASES = {
    "gfx942": (32, [[0, 1, 2, 3, 20, 21, 22, 23], [4, 5, 6, 7, 16, 17, 18, 19], [8, 9, 10, 11, 28, 29, 30, 31], [12, 13, 14, 15, 24, 25, 26, 27]]),
    "gfx950": (64, [[*range(4), *range(12, 16), *range(20, 28)], [*range(4, 12), *range(16, 20), *range(28, 32)]]),
    "gfx90a": (32, [[*range(n, n + 8)] for n in (0, 8, 16, 24)]),
}  # fmt: skip


@pytest.mark.parametrize("chip", sorted(_PHASES))
def test_reads_of_four_dwords_meet_in_their_phases(chip: str) -> None:
    """Places of 16 bytes by the lane's bits: a lane meets those that are served with it, which on CDNA 3 and 4 are not its neighbours."""
    banks, phases = _PHASES[chip]
    for bit in (2, 3, 4):
        ir = f"""@l = internal addrspace(3) global [2048 x <4 x float>] poison
define amdgpu_kernel void @k(ptr addrspace(1) %p, ptr addrspace(1) %o) #0 {{
  %t = call i32 @llvm.amdgcn.workitem.id.x()
  %low = and i32 %t, 3
  %s = lshr i32 %t, {bit}
  %one = and i32 %s, 1
  %four = mul i32 %one, 4
  %far = mul i32 %t, 16
  %sum = add i32 %low, %four
  %i = add i32 %sum, %far
  %a = getelementptr <4 x float>, ptr addrspace(3) @l, i32 %i
  %x = load volatile <4 x float>, ptr addrspace(3) %a
  %f = extractelement <4 x float> %x, i32 0
  %b = getelementptr float, ptr addrspace(1) %o, i32 %t
  store float %f, ptr addrspace(1) %b
  ret void
}}{_TAIL}"""
        slots = [(t & 3) + 4 * (t >> bit & 1) for t in range(32)]
        assert max(slots) < banks // 4
        most = [max(sum(slots[a] == slots[b] for b in phase) for a in phase) for phase in phases]
        load = profile(ir, chip, 64).launches[0].counts.memory["lds_load"]
        assert (load.instructions, load.clocks) == (1, 2 * sum(most)), bit


def test_report_and_trace(tmp_path) -> None:
    result = profile(strided(1), "gfx942", 256, grid=8)
    assert "k" in str(result) and "launch" in str(result)
    path = tmp_path / "trace.json"
    result.save_chrome_trace(str(path))
    event = json.loads(path.read_text())["traceEvents"][0]
    assert event["name"] == "k" and event["dur"] > 0 and event["args"]["VMEM"] == 8 * 4 * 2


def test_only_a_software_gpu_has_a_profile() -> None:
    with pytest.raises(TecError, match="takes the driver of a software GPU, not None"), emulator_profile(None):
        pass
