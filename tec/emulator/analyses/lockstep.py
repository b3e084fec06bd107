"""Where a wave of handwritten assembly lets the other waves of its work-group catch up.

Waves run here one after another from barrier to barrier, and on hardware side by side. Handwritten assembly counts on that, and leaves barriers out. So a wave gives way until the
others have come as far, or to a barrier, before

- the first store to LDS that follows a load from it: the others have read by then what is overwritten,
- the first store behind a wait for loads straight into LDS: when a wave's own have arrived the others' have, which may have filled the same places with what nobody reads,
- the first load from LDS that follows a store: the others have stored by then what is read.

AMD's own kernels do all three. `check="race"` reports the missing barrier all the same.
"""

from __future__ import annotations

from ..decode.inst import Inst, KernelText


def way_given(text: KernelText) -> frozenset[int]:
    """The instructions of a kernel before which a wave gives way."""
    labels = set(text.labels.values())
    found = set()
    read = False  # or what was loaded straight into LDS has arrived
    loaded = stored = False
    for i, inst in enumerate(text.insts):
        if i in labels:
            read = True  # whatever came before
        if inst.op.startswith("s_barrier"):
            read = loaded = stored = False
        elif _stores(inst):
            if read:
                found.add(i)
            read, stored = False, True
            loaded |= _loads(inst)
        elif loaded and _waits_for_loads(inst):
            read = True
        elif inst.op.startswith(("ds_read", "ds_load")):
            if stored:
                found.add(i)
            read, stored = True, False
    return frozenset(found)


def _stores(inst: Inst) -> bool:
    """Whether an instruction stores to LDS, a load from memory into it included."""
    return inst.op.startswith(("ds_write", "ds_store")) or _loads(inst)


def _loads(inst: Inst) -> bool:
    """Whether an instruction loads from memory straight into LDS."""
    return "lds" in inst.mods or "_load_lds_" in inst.op


def _waits_for_loads(inst: Inst) -> bool:
    return inst.op.startswith("s_wait") and any(word in inst.text for word in ("vmcnt", "loadcnt", "asynccnt"))
