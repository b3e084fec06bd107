"""hiprtc: compiling HIP C++ at run time, which needs a compiler that no Python package brings. The functions are there and say so.

A program that asks gets HIPRTC_ERROR_COMPILATION and a log that says what to do.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass

from .base import Base, need, pointer, put_int, put_size
from .entry import entry

_COMPILATION, _INVALID_PROGRAM = 6, 4
_ERRORS = {
    0: "HIPRTC_SUCCESS",
    _INVALID_PROGRAM: "HIPRTC_ERROR_INVALID_PROGRAM",
    _COMPILATION: "HIPRTC_ERROR_COMPILATION",
}
_LOG = (
    "tec: the stand-in for hiprtc has no compiler for HIP C++. Compile the kernels where ROCm is (hipcc --genco --offload-arch=gfx942 -o kernel.hsaco), "
    "keep the code object, and load it by hipModuleLoad.\n"
)


@dataclass(eq=False)
class Program:
    """A source text that waits for a compiler."""

    name: str


class Rtc(Base):
    """hiprtc*: every program can be made, and none compiled."""

    @entry("pp")
    def hiprtcVersion(self, major: int, minor: int) -> None:
        put_int(major, 9)
        put_int(minor, 0)

    @entry("i", value=True)
    def hiprtcGetErrorString(self, status: int) -> int:
        return self.text(_ERRORS.get(status, f"HIPRTC error {status}"))

    @entry("pssipp")
    def hiprtcCreateProgram(self, out: int, source: bytes, name: bytes, count: int, headers: int, names: int) -> None:
        pointer(out).value = self.handle(Program((name or b"").decode(errors="replace")))

    @entry("ps")
    def hiprtcAddNameExpression(self, program: int, name: bytes) -> None: ...

    @entry("pip")
    def hiprtcCompileProgram(self, program: int, count: int, options: int) -> int:
        self.held(program, Program)
        self._tell("hiprtcCompileProgram", _LOG.strip().removeprefix("tec: "), _COMPILATION)
        return _COMPILATION

    @entry("pp")
    def hiprtcGetProgramLogSize(self, program: int, out: int) -> None:
        put_size(out, len(_LOG) + 1)

    @entry("pp")
    def hiprtcGetProgramLog(self, program: int, out: int) -> None:
        ctypes.memmove(need(out), _LOG.encode() + b"\0", len(_LOG) + 1)

    @entry("pp", "hiprtcGetCodeSize", "hiprtcGetCode", "hiprtcGetBitcodeSize", "hiprtcGetBitcode")
    def hiprtcGetCode(self, program: int, out: int) -> int:
        return _INVALID_PROGRAM

    @entry("p")
    def hiprtcDestroyProgram(self, program: int) -> None:
        self.drop(pointer(program).value or 0, Program)
        pointer(program).value = None
