"""Addresses that a kernel loads from memory: of tables, of structures, of lists that it walks."""

from __future__ import annotations

import struct

import numpy as np
import pytest

from tec.emulator import get_driver
from tec.errors import DeviceError
from tests.thinned import thinned

from .harness import compile_ir, download, upload

LANES = 32
_TABLE = """define amdgpu_kernel void @k(ptr addrspace(1) %table, ptr addrspace(1) %out) #0 {
  %t = call i32 @llvm.amdgcn.workitem.id.x()
  %p = getelementptr ptr, ptr addrspace(1) %table, i32 AT
  %q = load SPACE, ptr addrspace(1) %p
  BODY
  %o = getelementptr i32, ptr addrspace(1) %out, i32 %t
  store i32 %v, ptr addrspace(1) %o
  ret void
}
declare i32 @llvm.amdgcn.workitem.id.x()
attributes #0 = { "amdgpu-flat-work-group-size"="1,64" "amdgpu-no-implicitarg-ptr" }"""
_LOAD, _STORE = "%v = load i32, SPACE %q", "store i32 %t, SPACE %q\n  %v = load i32, SPACE %q"
_ATOMIC = "%v = atomicrmw add SPACE %q, i32 5 monotonic"
# A node is the next one's address and a number; each lane takes as many steps as its number says.
_LIST = """br label %walk
walk:
  %n = phi SPACE [ %q, %0 ], [ %n1, %walk ]
  %i = phi i32 [ 0, %0 ], [ %i1, %walk ]
  %n1 = load SPACE, SPACE %n
  %i1 = add i32 %i, 1
  %go = icmp ult i32 %i, %t
  br i1 %go, label %walk, label %end
end:
  %np = getelementptr i8, SPACE %n, i32 8
  %v = load i32, SPACE %np"""


@thinned(
    2,
    ("check", ["bounds", "all"]),
    ("chip", ["gfx90a", "gfx950", "gfx1100", "gfx1250"]),
    ("space", ["ptr", "ptr addrspace(1)"]),
)
def test_tables_of_addresses(chip: str, check: str, space: str) -> None:
    lanes = np.arange(LANES)
    cases = ((_LOAD, "%t", 100 + lanes), (_LOAD, "3", np.full(LANES, 103)), (_STORE, "%t", lanes), (_ATOMIC, "%t", 100 + lanes), (_LIST, "0", 100 + lanes))  # fmt: skip
    driver = get_driver(chip, check=check)
    for body, at, want in cases:
        _, image = compile_ir(_TABLE.replace("BODY", body).replace("SPACE", space).replace("AT", at), chip)
        kernel = driver.get_function(driver.load_module(0, image), "k")
        if body is _LIST:
            nodes, following = [], 0
            for i in reversed(range(LANES)):
                following = upload(driver, np.array([following, 100 + i], np.uint64))
                nodes.append(following)
            places = nodes[::-1]
        else:
            places = [upload(driver, np.array([100 + i], np.int32)) for i in range(LANES)]
        table, out = upload(driver, np.array(places, np.uint64)), np.zeros(LANES, np.int32)
        held = upload(driver, out)
        driver.launch(kernel, (1, 1, 1), (LANES, 1, 1), 0, struct.pack("<QQ", table, held))
        np.testing.assert_array_equal(download(driver, held, out), want)


def test_memory_of_the_host_may_not_lie_over_what_kernels_know() -> None:
    driver = get_driver("gfx942")
    first = driver.alloc(0, 256)
    for address, nbytes in ((first, 64), (first + 255, 8), (first - 8, 9), (first, 0)):
        with pytest.raises(DeviceError, match="empty, or known already"):
            driver.memory.adopt(address, nbytes, "of a test")
    driver.free(0, first)
    driver.memory.adopt(first, 64, "of a test")
    with pytest.raises(DeviceError, match="known already"):
        driver.memory.adopt(first + 63, 1, "of a test")
    driver.memory.disown(first)
