"""A wave stopped at a line of its kernel, and its registers: for those who look for a bug (`tec emu run --break kernel.s:120 --lane 3`)."""

from __future__ import annotations

import struct
from dataclasses import dataclass

import numpy as np

from tec.errors import DeviceError

from .decode.inst import NAMED_SGPRS, KernelText
from .errors import EmulationError

_ASSEMBLY = (".s", ".S", ".asm", ".amdgcn")
_NAMES = {index: name for name, (index, count) in NAMED_SGPRS.items() if count == 1}


@dataclass(frozen=True, slots=True)
class Stop:
    """Where to stop: a line of the assembly; in any wave and work-group (by its number in the grid), or in that one."""

    line: int
    wave: int | None = None
    group: int | None = None


@dataclass(frozen=True, slots=True)
class WaveState:
    """A wave before the instruction on `line`. `vectors[("v", 3)]`: v3, a u32 a lane; `scalars[7]`: s7; `exec` one bit a lane."""

    line: int
    instruction: str
    workgroup: tuple[int, int, int]
    wave: int
    scalars: dict[int, int]
    vectors: dict[tuple[str, int], np.ndarray]
    scc: int
    exec: int

    def describe(self, lane: int | None = None) -> str:
        """The registers as text: of one lane with their values as i32 and f32, else the first lanes'. DeviceError where there is no such lane."""
        lanes = next((len(v) for v in self.vectors.values()), 64)
        if lane is not None and not 0 <= lane < lanes:
            raise DeviceError(f"no lane {lane}", hint=f"a wavefront of this kernel has {lanes}")
        lines = [f"wave {self.wave} of work-group {self.workgroup} before line {self.line}: {self.instruction.strip()}"]
        lines.append(f"  exec {self.exec:#x}  scc {self.scc}")
        for index, value in sorted(self.scalars.items()):
            lines.append(f"  {_NAMES.get(index, f's{index}'):<10} {_number(value)}")
        for (kind, index), values in sorted(self.vectors.items(), key=lambda x: (x[0][0] == "a", x[0][1])):
            if lane is not None:
                lines.append(f"  {kind + str(index):<10} {_number(int(values[lane]))}")
            else:
                lines.append(f"  {kind + str(index):<10} " + " ".join(f"{int(v):08x}" for v in values[:8]) + " ...")
        return "\n".join(lines)


class Stopped(EmulationError):
    """A launch that came to the line of `EmuDriver.stop`; `state` has the registers. The device is usable afterwards."""

    def __init__(self, state: WaveState, kernel: str):
        self.state = state
        super().__init__(f"stopped in wave {state.wave} of work-group {state.workgroup}", kernel=kernel, line=state.line, instruction=state.instruction)  # fmt: skip


def _number(value: int) -> str:
    signed = value - (1 << 32) if value >> 31 else value
    return f"{value:08x}  {signed:>11}  {struct.unpack('<f', struct.pack('<I', value))[0]:.8g}"


def _split(place: str) -> tuple[str, int | None]:
    """FILE:NUMBER in its parts."""
    file, _, number = place.rpartition(":")
    return file, int(number) if number.isdigit() else None


def find_line(text: KernelText, wanted: str) -> int:
    """The line of the assembly that "120", "kernel.s:120" or "kernel.py:33" names: the first instruction there or behind it.

    Files of the source are those that the assembly's `.loc` directives or the code object's line table know; another is taken for the assembly
    by its suffix. Raises DeviceError.
    """
    file, _, number = wanted.rpartition(":")
    if not number.isdigit():
        raise DeviceError(f"no line in {wanted!r}", hint="a number, or FILE:NUMBER")
    if file:
        places = [(inst.line, *_split(text.statements.get(inst.line, ""))) for inst in text.insts]
        lines = [(n, at) for at, place, n in places if n is not None and (place == file or place.endswith("/" + file))]
        later = [n for n, _ in lines if n >= int(number)]
        if later:
            return next(at for n, at in lines if n == min(later))
        if lines:
            known = ", ".join(map(str, sorted({n for n, _ in lines})))
            raise DeviceError(
                f"{text.name} has no instruction of line {number} of {file} or behind it",
                hint=f"it has some of {known}",
            )
        if not file.endswith(_ASSEMBLY):
            sources = (
                ", ".join(sorted({place for _, place, _ in places if place})) or "none: compile with -gline-tables-only"
            )
            raise DeviceError(f"{text.name} has no lines of {file}", hint=f"it has those of {sources}")
    behind = [inst.line for inst in text.insts if inst.line >= int(number)]
    if not behind:
        raise DeviceError(
            f"{text.name} has no instruction on line {number} or behind it",
            hint=f"its last one is on line {text.insts[-1].line}",
        )
    return behind[0]
