"""The errors of the emulator: each names the kernel, the instruction and its line."""

from __future__ import annotations

from dataclasses import dataclass

from tec.errors import DeviceError


class OutOfMemory(DeviceError):
    """An allocation finds no room: on the device, or on the host that holds its memory."""


class EmulationError(DeviceError):
    """What the emulator cannot do, or a fault that a kernel made.

    `kernel`, `line` (of the assembly) and `instruction` say where; None where that is not known.
    """

    def __init__(
        self,
        message: str,
        *,
        kernel: str | None = None,
        line: int | None = None,
        instruction: str | None = None,
        hint: str | None = None,
    ):
        self.kernel, self.line, self.instruction = kernel, line, instruction
        text = message
        if instruction is not None:
            text += f"\n  instruction: {instruction.strip()}"
        if kernel is not None:
            text += f"\n  kernel: {kernel}" + (f", line {line} of its assembly" if line is not None else "")
        super().__init__(text, hint=hint)


class UnsupportedInstruction(EmulationError):
    """An opcode, a modifier or an operand that is not modelled. Raised when a kernel is translated, never guessed at."""


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing that a check found while a kernel ran."""

    kind: str  # "out of bounds", "misaligned", "lds out of bounds", "race", "uninitialized", ...
    kernel: str
    instruction: str
    line: int
    lane: int
    workgroup: tuple[int, int, int]
    wave: int
    address: int
    detail: str = ""


class KernelFault(EmulationError):
    """A kernel did what hardware would fault on or silently get wrong; `fault` has the particulars."""

    def __init__(self, fault: Fault, hint: str | None = None):
        self.fault = fault
        x, y, z = fault.workgroup
        super().__init__(
            f"{fault.kind}: address {fault.address:#x}, lane {fault.lane} of wave {fault.wave}, "
            f"work-group ({x}, {y}, {z})" + (f"\n  {fault.detail}" if fault.detail else ""),
            kernel=fault.kernel, line=fault.line, instruction=fault.instruction, hint=hint,
        )  # fmt: skip
