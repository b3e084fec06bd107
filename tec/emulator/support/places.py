"""What is done with the registers of all lanes around an access to memory, as functions: LLVM takes 2 to 5 ms for each of these written out over 64 lanes, and a
tenth of one for a call. Addresses and their shadows, buffers' ranges, zeros of what is out of range, the lanes with undefined bits."""

from __future__ import annotations

from .template import ir


def place_functions(w: int) -> str:
    text = ir("places.places", name="places", op="add", w=w) + ir("places.places", name="blurs", op="or", w=w)
    text += ir("places.ranged", w=w) + ir("places.zero", w=w)
    return text + ir("places.marked", w=w) + ir("places.marked_wide", w=w)


def names(w: int) -> list[str]:
    return [f"tec_{name}_{w}" for name in ("places", "blurs", "ranged", "zero", "marked", "marked_wide")]
