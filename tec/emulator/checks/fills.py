"""`check="wait"` for what loads bring straight into LDS: has the wave that loads waited for as many as it must before anybody reads?

A pipelined kernel fills one stage of LDS while it reads another, and waits for all loads but the last so many. Which bytes a load fills is known when it runs. So each
dword of LDS keeps a mark: the wave that filled it, and the load's number among the operations of its counter, which return in order. A wave keeps how
many it has issued, and how many of them its waits have covered. A read or a store is in order if the load is covered: by this wave's waits so far, or by those that another wave had made when
it came to the last barrier that both have passed.

gfx1250 also stores straight out of LDS: what is on its way out may be read, and is not to be overwritten.
"""

from __future__ import annotations

from ..decode.inst import Inst, KernelText
from .waits import counter_of, empties_lds, fills_lds, waits_of

# A mark: the load's number among its wave's operations in the low bits, the wave's, the load's site, and whether it is a store instead. None is 0, for numbers begin with 1.
FILL_WAVE, FILL_SITE = 26, 32
FILL_NUMBERS, FILL_WAVES, FILL_SITES = (1 << FILL_WAVE) - 1, (1 << FILL_SITE - FILL_WAVE) - 1, (1 << 31) - 1


def fill_counter(kernel: KernelText, gfx: int) -> str:
    """The counter of a kernel's loads straight into LDS and stores out of it; "" where it has none, or of two counters, whose marks would not be told apart."""
    found = {counter_of(i, gfx) for i in kernel.insts if fills_lds(i) or empties_lds(i)}
    return found.pop() or "" if len(found) == 1 else ""


def issues(inst: Inst, counter: str, gfx: int) -> bool:
    """Whether an instruction adds to the counter."""
    return counter_of(inst, gfx) == counter


def may_stay_out(inst: Inst, counter: str) -> int | None:
    """How many of the counter's operations a wait leaves on their way; None of what waits for none of them."""
    return waits_of(inst).get(counter)
