"""A kernel whose code ends without s_endpgm: a fault that names it, in the place of whatever lies behind the translated code."""

from __future__ import annotations

import struct

import numpy as np
import pytest

from tec.emulator.errors import KernelFault

from .harness import function, upload

IR = """define amdgpu_kernel void @k(ptr addrspace(1) %o, i32 %n) {
  %all = icmp sgt i32 %n, 0
  br i1 %all, label %good, label %bad
good:
  store volatile i32 1, ptr addrspace(1) %o
  ret void
bad:
  store volatile i32 2, ptr addrspace(1) %o
  unreachable
}
"""


@pytest.mark.parametrize("chip", ["gfx942", "gfx1100"])
def test_code_that_ends_without_an_end(chip):
    driver, k = function(IR, chip)
    o = upload(driver, np.zeros(1, np.int32))
    driver.launch(k, (1, 1, 1), (64, 1, 1), 0, struct.pack("<Qi", o, 1))
    with pytest.raises(KernelFault, match="ran past the end of the kernel's code"):
        driver.launch(k, (1, 1, 1), (64, 1, 1), 0, struct.pack("<Qi", o, 0))
    driver.launch(k, (1, 1, 1), (64, 1, 1), 0, struct.pack("<Qi", o, 1))
