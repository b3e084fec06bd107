"""A quick look instead of the race and init checks, for launches in which they would find nothing; and how a launch begins again where they might.

Following the undefined bits of every register, and writing down who touched each word, takes several times as long as the kernel itself. Most launches
give no reason for it. So a launch is *screened* first. All that its kernel reads from registers is proved to be filled (`analyses.definedness`). As it
runs, each load is looked at for undefined bytes, and each access for another wave's at the same place, in a way that is cheap and errs to the safe
side: it knows no order but the barriers of LDS, and of loads from global memory only the lines (`support.screen`). Nothing is reported by it. Where
there is anything to look at, or any fault, memory is put back as it was before the launch, and the launch runs under the full checks, which know what
to say. So does every launch of the kernel after it.

In: a launch whose driver checks races or undefined values. Out: whether it ended so. Kernels with atomics, scratch, images, requests to the host, stores to LDS within a barrier, and those
that the proof does not cover are not screened, nor are launches of few waves, for which code of two kinds is not worth compiling.
"""

from __future__ import annotations

import ctypes
import re
from typing import TYPE_CHECKING

import numpy as np

from ..analyses.definedness import all_filled
from ..context import SCREEN, SCREEN_BYTES
from ..decode.inst import KernelText, generation
from .across import find_across
from .order import find_order, polling_branches

if TYPE_CHECKING:
    from ..device_memory import DeviceMemory

# Waves from which on a launch is screened. Below, a kernel's second compilation takes longer (0.1 to 0.5 s) than the checks cost.
FEWEST_WAVES = 32
_MEMORY = re.compile(
    r"(global|flat|buffer|scratch|ds|image|tbuffer|cluster|tensor|export|exp|lds)_|s_(store|buffer_store|scratch|atomic|buffer_atomic)"
)
_FOLLOWED = re.compile(
    r"(global|flat)_(load|store)_(?!lds|tr|block|async|addtid)|buffer_(load|store)_(?!format|lds|tr)|"
    r"ds_(read|write|load|store)(?!\w*(_tr|gs_reg|addtid|append|consume|xchg))|ds_(bpermute|permute|swizzle)|ds_nop|"
    r"(buffer|global)_(wb|inv|gl[01]_inv|wbinv)"
)
_PAGE, _LINE = 4096, 64
_DEFINED = 3  # the state of a page that was put by without its undefined bits, as it had none (`screen.ll`)
_MOST_WAVES = (1 << 24) - 2


def screening_checks(checks: frozenset[str]) -> frozenset[str]:
    """The checks of the translation for the quick look."""
    races = {"screen races"} if "race" in checks else set()
    return (checks - {"race", "init", "progress"}) | {"screen"} | races


def may_be_screened(
    text: KernelText, chip: str, lanes: int, full: bool, init: bool, scalars: int, vectors: int
) -> bool:
    """Whether the quick look sees all that the checks would (`init`: undefined values too) in a kernel."""
    for inst in text.insts:
        op = inst.op
        if _MEMORY.match(op) and (
            not _FOLLOWED.match(op) or "_atomic" in op or "lds" in inst.mods or "gds" in inst.mods
        ):
            return False
    if text.functions or find_order(text, chip) is not None or polling_branches(text, chip):
        return False
    if find_across(text, chip, 0).lds_stores:
        return False
    return not init or all_filled(text, generation(chip), lanes, full, scalars, vectors)


class Screen:
    """One screened launch: what its threads share, and the way back."""

    def __init__(self, memory: DeviceMemory, races: bool, init: bool, waves: int):
        arena = memory.arena
        self.memory, self.races, self.init = memory, races, init
        self.launch = memory.next_screen() if races else 1
        live = sum((a.size + 2 * _PAGE) // _PAGE for a in memory.live.values())
        self.pool = memory.room_for_pages(max(1, live) * 2 * _PAGE)
        self.pages = np.zeros(max(1, live), np.int64)
        self.state = memory.saved_pages
        self.fields = np.zeros(SCREEN_BYTES // 8, np.uint64)
        for name, value in (
            ("base", arena.base), ("watched", arena.watched), ("undefined", arena.shadow["undefined"] if init else 0),
            ("stores", arena.shadow["screen_w"] if races else 0), ("loads", arena.shadow["screen_r"] if races else 0),
            ("saved", self.state.ctypes.data), ("pages", self.pages.ctypes.data), ("room", live), ("pool", self.pool),
            ("launch", self.launch << 24), ("waves", waves), ("defined", memory.defined_pages.ctypes.data),
        ):  # fmt: skip
            self.fields[SCREEN[name] // 8] = value

    @property
    def address(self) -> int:
        return int(self.fields.ctypes.data)

    def _touched(self) -> np.ndarray:
        """The numbers of the pages that were written, in the order in which they were put by."""
        count = min(int(self.fields[SCREEN["next"] // 8]), len(self.pages))
        return self.pages[:count]

    def is_clean(self) -> bool:
        """Whether no wave loaded a line in which another one stored: known at the end alone."""
        pages = self._touched()
        if not self.races or not len(pages):
            return True
        arena = self.memory.arena
        count = arena.size // _PAGE + 1
        loads = _words(arena.shadow["screen_r"], count * _PAGE // _LINE).reshape(count, -1)[pages]
        at, line = np.nonzero(loads >> 24 == self.launch)
        if not len(at):
            return True
        stores = _words(arena.shadow["screen_w"], count * _PAGE // 4).reshape(count, -1, _LINE // 4)[pages[at], line]
        return not np.any((stores >> 24 == self.launch) & (stores != loads[at, line][:, None]))

    def put_back(self) -> None:
        """Memory as it was before the launch."""
        arena = self.memory.arena
        for n, page in enumerate(self._touched().tolist()):
            at = self.pool + 2 * _PAGE * n
            ctypes.memmove(arena.base + page * _PAGE, at, _PAGE)
            if self.init and self.state[page] != _DEFINED:
                self.memory.defined_pages[page] = 0
                ctypes.memmove(arena.shadow["undefined"] + page * _PAGE, at + _PAGE, _PAGE)

    def close(self) -> None:
        self.state[self._touched()] = 0


def _words(address: int, count: int) -> np.ndarray:
    return np.ctypeslib.as_array((ctypes.c_uint32 * count).from_address(address))


def is_counted(waves: int) -> bool:
    """Whether the records have numbers enough for a launch's waves."""
    return waves <= _MOST_WAVES
