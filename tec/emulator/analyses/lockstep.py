"""Where a wave of handwritten assembly lets the other waves of its work-group catch up.

Waves run here one after another from barrier to barrier, and on hardware side by side. Handwritten assembly counts on that: AMD's own kernels store to LDS
what other waves have just read, with no barrier between, since all of them have come as far by then. So before the first store to LDS that follows a load
from it, a wave gives way until the others have come as far, or to a barrier. `check="race"` reports the missing barrier all the same.
"""

from __future__ import annotations

from ..decode.inst import Inst, KernelText


def way_given(text: KernelText) -> frozenset[int]:
    """The instructions of a kernel before which a wave gives way."""
    labels = set(text.labels.values())
    found = set()
    read = False
    for i, inst in enumerate(text.insts):
        if i in labels:
            read = True  # whatever came before
        if inst.op.startswith("s_barrier"):
            read = False
        elif _stores(inst):
            if read:
                found.add(i)
            read = False
        elif inst.op.startswith(("ds_read", "ds_load")):
            read = True
    return frozenset(found)


def _stores(inst: Inst) -> bool:
    """Whether an instruction stores to LDS, a load from memory into it included."""
    return inst.op.startswith(("ds_write", "ds_store")) or "lds" in inst.mods or "_load_lds_" in inst.op
