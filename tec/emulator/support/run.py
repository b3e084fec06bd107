"""`tec_run`: takes work-groups from the launch's shared counter, sets their waves up, and runs them to the end.

A wave function returns 0 at its end, n > 0 at barrier n, or a negative number after a fault. All live waves of a group
advance to a barrier (or their end) before any passes it.
"""

from __future__ import annotations

from ..checks.race_record import me_of
from ..context import CTX, CTX_BYTES, PARAMS
from .template import ir


def _field(base: str, table: dict[str, int], name: str, ty: str = "i64") -> str:
    return f"  %{name}_q = getelementptr i8, ptr {base}, i64 {table[name]}\n  %{name} = load {ty}, ptr %{name}_q\n"


def run_function() -> str:
    fields = "".join(
        _field("%params", PARAMS, n, "ptr" if n in ("sgprs", "vgprs", "exec", "template", "barrier_sites") else "i64")
        for n in ("total", "grid_x", "grid_y", "waves", "state_bytes", "sgprs", "vgprs", "exec", "place_x", "place_y",
                  "place_z", "lds_bytes", "vgpr_count", "lanes", "ttmp_mode", "budget", "scratch_sgpr",
                  "template", "template_bytes", "barrier_sites", "group_step", "group_first")
    )  # fmt: skip
    ctx = "".join(
        _field("%ctx", CTX, n, "ptr") for n in ("lds", "states", "stop", "scratch_all", "lds_stores", "screen_lds", "screen_own", "fills")
    ) + "".join(_field("%ctx", CTX, n) for n in ("scratch_stride", "launch", "race_bytes", "screen_bytes", "screen_turns", "screen_fill", "fills_bytes"))  # fmt: skip
    shadow = "".join(
        f"  %u{n}_q = getelementptr i8, ptr %ctx, i64 {CTX_BYTES + CTX[n]}\n  %u{n} = load {ty}, ptr %u{n}_q\n"
        for n, ty in (("lds", "ptr"), ("lds_bytes", "i64"), ("scratch_all", "ptr"), ("scratch_total", "i64"))
    )

    def put(place: str, value: str) -> str:
        """Store a work-group id into SGPR number %place where that is not negative."""
        return ir("run.put", place=place, value=value)

    return ir(
        "run.run",
        fields=fields,
        ctx=ctx,
        shadow=shadow,
        put_place_x=put("place_x", "%gx"),
        put_place_y=put("place_y", "%gy"),
        put_place_z=put("place_z", "%gz"),
        ttmp9_at=4 * 117,
        ttmp7_at=4 * 115,
        ttmp8_at=4 * 116,
        shadow_scratch=CTX_BYTES + CTX["scratch"],
        me_of=me_of("%launch", "%g", "%ep_now", "%i", "me"),
    )
