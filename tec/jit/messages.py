"""What kernels print and assert, brought to the host: the buffer that a launch gets, and what is done with what it holds.

A kernel that prints or asserts is waited for. Printed text goes to standard output, each line with its block, thread and place; an
assertion that did not hold raises KernelError with the first thread's message and place.
"""

from __future__ import annotations

import os
import sys
import threading
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import DeviceError, KernelError
from ..kernels.output import HEADER, WORDS, Message, read
from ..runtime.arrays.filled import zeros
from ..runtime.arrays.ndarray import NDArray
from ..runtime.devices.device import Device

if TYPE_CHECKING:
    from .specialise import Compiled

_LOCAL = threading.local()


def buffer_for(device: Device) -> NDArray:
    """This thread's buffer on a device, with no messages in it."""
    held: dict[Device, NDArray] = _LOCAL.__dict__.setdefault("held", {})
    if device.capturing is not None:
        raise DeviceError(
            "a kernel that prints or asserts, inside of dev.capture()", hint="its messages are read after each launch"
        )
    found = held.get(device)
    if found is None:
        found = held[device] = zeros((WORDS,), "int32", device)
    else:
        found[:HEADER] = np.zeros(HEADER, np.int32)
    return found


def collect(buffer: NDArray, compiled: Compiled, grid: tuple[int, int, int], name: str) -> None:
    """Wait for a launch and say what it said. Raises KernelError where an assertion failed."""
    count = int(buffer[:HEADER].numpy()[0])
    if not count:
        return
    words = buffer.numpy() if not 0 < count < WORDS - HEADER else buffer[: HEADER + count].numpy()
    if len(words) < WORDS:
        words = np.concatenate([words, np.zeros(1, np.int32)])
    said, lost = read(words, compiled.places, compiled.launch.block, grid)
    failed = [m for m in said if m.place.kind == "assert"]
    text = "".join(_line(m) for m in said if m.place.kind == "print")
    if text:
        sys.stdout.write(text)
        sys.stdout.flush()
    if lost:
        print(f"tec: {name} said more than {WORDS * 4 >> 20} MiB hold; the rest is lost", file=sys.stderr)
    if failed:
        first = failed[0]
        more = f"; {len(failed) - 1} more thread{'s' * (len(failed) > 2)} failed" if len(failed) > 1 else ""
        raise KernelError(
            f"{name}: {first.text}\n  in block {first.block}, thread {first.thread}{more}",
            where=first.place.loc,
            locate=False,
        )


def _line(m: Message) -> str:
    return f"[{os.path.basename(m.place.loc.file)}:{m.place.loc.line} block {m.block} thread {m.thread}] {m.text}"


__all__ = ["Any", "buffer_for", "collect"]
