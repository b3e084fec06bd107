"""Run hand-written assembly on the emulator: many instructions a kernel, so that the whole opcode table can be walked.

A `Bench` is one kernel whose text is made here (the code object gives only its descriptor and metadata). Inputs lie in vector
registers, as planes of one dword a lane; each `case` is a few lines that leave results in v2 (and up), which are
stored to the case's own place. EXEC of the cases is an argument, as are four scalar words, so one translation serves many runs.
"""

from __future__ import annotations

import re
import struct
from functools import cache

import numpy as np

from tec.emulator import get_driver

from .harness import LANES, compile_ir, download, upload

_IR = """define amdgpu_kernel void @k(ptr addrspace(1) %p, ptr addrspace(1) %o, i64 %m, i64 %s, i64 %t) #0 {{
  %a = alloca [64 x i32], addrspace(5)
  %j = trunc i64 %m to i32
  %e = getelementptr i32, ptr addrspace(5) %a, i32 %j
  store volatile i32 0, ptr addrspace(5) %e
  call void asm sideeffect "; BODY", "s,s,s,s,s,~{{v255}},~{{s99}}"(ptr addrspace(1) %p, ptr addrspace(1) %o, i64 %m, i64 %s, i64 %t)
  ret void
}}
attributes #0 = {{ "amdgpu-flat-work-group-size"="{n},{n}" "amdgpu-no-implicitarg-ptr" "amdgpu-waves-per-eu"="1,1" }}"""


@cache
def _shell(chip: str, lanes: int) -> tuple[str, bytes, int]:
    """(assembly, code object, SGPR of the kernel arguments) of an empty kernel."""
    asm, image = compile_ir(_IR.format(n=lanes), chip)
    found = re.search(r"s_load_\w+ s\[\d+:\d+\], s\[(\d+):\d+\]", asm)
    assert found is not None
    return asm, image, int(found[1])  # the kernel has 256 bytes of scratch a lane


class Bench:
    """Cases of one kernel. Registers free for cases: v2 to v9, s40 to s98, VCC, SCC; v0 is the lane, v1 scratch."""

    def __init__(self, chip: str, planes: dict[str, int], masked: bool = True, first: int = 20):
        self.chip, self.lanes, self.masked = chip, LANES[chip], masked
        self.place: dict[str, int] = {}
        self.count = 0
        at = first
        for name, dwords in planes.items():  # registers of the inputs, wide ones at even numbers
            at += at & (dwords > 1)
            self.place[name] = at
            at += dwords
        self.planes = planes
        wide = self.lanes == 64
        self.exec, self.b = ("exec", "b64") if wide else ("exec_lo", "b32")
        load = "global_load_dword" if chip.startswith("gfx9") else "global_load_b32"
        sload = "s_load_dwordx2" if chip.startswith("gfx9") else "s_load_b64"
        _, _, args = _shell(chip, self.lanes)
        self.lines = [f"{sload} s[{30 + 2 * i}:{31 + 2 * i}], s[{args}:{args + 1}], {8 * i}" for i in range(5)]
        self.lines += ["s_waitcnt lgkmcnt(0)", "v_lshlrev_b32 v1, 2, v0"]
        offset = 0
        for name, dwords in planes.items():
            for k in range(dwords):
                self.lines.append(f"{load} v{self.place[name] + k}, v1, s[30:31] offset:{offset}")
                offset += 4 * self.lanes
        self.lines += ["s_waitcnt vmcnt(0)"]

    def reg(self, name: str, dwords: int | None = None) -> str:
        at, n = self.place[name], dwords or self.planes[name]
        return f"v{at}" if n == 1 else f"v[{at}:{at + n - 1}]"

    def case(self, lines: list[str], before: list[str] = [], after: list[str] = [], dwords: int = 2) -> int:  # noqa: B006
        """`lines` run under the mask; results are v2 and up. Returns the number of the case's first plane."""
        store = "global_store_dword" if self.chip.startswith("gfx9") else "global_store_b32"
        self.lines += before
        if self.masked:
            pair = "s[34:35]" if self.lanes == 64 else "s34"
            self.lines.append(f"s_mov_{self.b} {self.exec}, {pair}")
        self.lines += lines
        if self.masked:
            self.lines.append(f"s_mov_{self.b} {self.exec}, -1")
        self.lines += after
        first = self.count
        for k in range(dwords):
            self.lines.append(f"{store} v1, v{2 + k}, s[32:33] offset:{4 * self.lanes * (first + k)}")
        self.count += dwords
        return first

    def launch(self, *, lds: int = 0, **options: object):  # type: ignore[no-untyped-def]
        """A function (inputs by name, mask, two 64-bit scalars) -> planes of results."""
        asm, image, _ = _shell(self.chip, self.lanes)
        start = asm.index("\nk:") + 3
        end = asm.index("s_endpgm", start)
        text = asm[:start] + "\n\t" + "\n\t".join(self.lines) + "\n\t" + asm[end:]
        driver = options.pop("driver", None) or get_driver(self.chip, **options)
        kernel = driver.get_function(driver.load_module(0, image, text), "k")

        def run(inputs: dict[str, np.ndarray], mask: int = -1, s: int = 0, t: int = 0) -> np.ndarray:
            rows = []
            for name, dwords in self.planes.items():
                a = np.ascontiguousarray(inputs[name])
                rows.append(a.view(np.uint32).reshape(self.lanes, dwords).T.reshape(-1))
            p = upload(driver, np.concatenate(rows) if rows else np.zeros(1, np.uint32))
            out = np.full((max(1, self.count), self.lanes), 0xCDCDCDCD, np.uint32)
            o = upload(driver, out)
            bits = mask & ((1 << self.lanes) - 1)
            args = struct.pack("<QQQQQ", p, o, bits, s & (2**64 - 1), t & (2**64 - 1))
            try:
                driver.launch(kernel, (1, 1, 1), (self.lanes, 1, 1), lds, args)
                return download(driver, o, out)
            finally:
                driver.free(0, p)
                driver.free(0, o)

        run.driver = driver  # type: ignore[attr-defined]
        return run
