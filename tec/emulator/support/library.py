"""The support library: what translated kernels call. LLVM IR text, written once for 64 lanes and once for 32.

Memory helpers take the addresses of all lanes and the mask of active ones, check each access, and move the data; a return
value other than 0 is a fault, described in the thread's context block (`context.CTX`). Data travels through memory, one
vector of i32 a dword. `tec_run` runs work-groups until none is left. Compiled once per host and kept on disk.
"""

from __future__ import annotations

from .atomics import ATOMICS, FLOAT_ATOMICS, RARE_ATOMICS, atomic_function
from .clash import order_function
from .fills import fill_functions
from .fills import names as fill_names
from .math import math_functions
from .memory import ACCESSES, check_function, memory_function, scalar_load
from .places import names as place_names
from .places import place_functions
from .race import names as race_names
from .race import race_functions
from .race_slow import slow_function
from .run import run_function
from .screen import names as screen_names
from .screen import screen_functions
from .template import ir
from .trace import trace_functions, trace_names
from .track import measure_functions
from .undefined import names as undefined_names
from .undefined import undefined_functions

_CORE_DECLARES = "declare i32 @tec_fault(ptr, i64, i32, i64, i64)\n" + "".join(
    f"declare i32 @tec_check_{w}(<{w} x i64>, i{w}, ptr, i32, i64, i64)\n" for w in (32, 64)
)


def _gathers(w: int) -> str:
    text = f"declare i{w} @llvm.cttz.i{w}(i{w}, i1)\n"
    for ty in ("i8", "i16", "i32"):
        text += f"declare <16 x {ty}> @llvm.masked.gather.v16{ty}.v16p0(<16 x ptr>, <16 x i1>, <16 x {ty}>)\n"
        text += f"declare void @llvm.masked.scatter.v16{ty}.v16p0(<16 x {ty}>, <16 x ptr>, <16 x i1>)\n"
    return text


def groups() -> list[str]:
    """The library in parts: a part is compiled when a kernel first needs a function of it."""
    out = ["core"]
    for w in (32, 64):
        out += [f"{space}_{w}" for space in ("global", "lds", "scratch")]
        out += [f"{kind}_{space}_{w}" for kind in ("atomic", "rare") for space in ("global", "lds")]
        out += [f"math_{w}", f"track_{w}", f"race_{w}", f"undefined_{w}", f"screen_{w}", f"places_{w}", f"fills_{w}"]
    return [*out, "math_1", "math_8", "math_16", "strip_16", "screen_16"]


def group_names(group: str) -> list[str]:
    """The functions that a part defines for kernels and for the other parts."""
    kind, _, width = group.rpartition("_")
    if group == "core":
        return ["tec_fault", "tec_message", "tec_gws_barrier", "tec_run", "tec_check_32", "tec_check_64"] + [
            f"tec_scalar_{n}" for n in (1, 2, 3, 4, 8, 16)
        ]
    if kind == "strip":
        return ["tec_lds_fault"]
    if kind == "math":
        return [f"tec_{m}_{width}" for m in ("exp2", "log2", "sin2pi", "cos2pi", "tanh")]
    if kind == "screen":
        return ["tec_screen_strip"] if width == "16" else screen_names(int(width))
    if kind == "race":
        return race_names(int(width))
    if kind == "undefined":
        return undefined_names(int(width))
    if kind == "places":
        return place_names(int(width))
    if kind == "fills":
        return fill_names(int(width))
    if kind == "track":
        return [f"tec_{m}_{width}" for m in ("lines", "banks")] + trace_names(int(width))
    if kind.startswith("atomic"):
        ops = [f"{op}_{bits}" for bits in (32, 64) for op in (*ATOMICS, "cmpswap", *FLOAT_ATOMICS)]
        ops += ["pk_add_f16_32", "pk_add_bf16_32"]
        return [f"tec_{kind}_{op}_{width}" for op in ops]
    if kind.startswith("rare"):
        return [
            f"tec_atomic_{kind.removeprefix('rare_')}_{op}_{bits}_{width}" for bits in (32, 64) for op in RARE_ATOMICS
        ]
    loads = [f"tec_ld_{kind}_{access}_{width}" for access in ACCESSES]
    loads += [f"tec_arrays_{width}"] if kind == "lds" else []
    return loads + [f"tec_st_{kind}_{access}_{width}" for access, spec in ACCESSES.items() if not spec[2]]


def group_ir(group: str) -> str:
    """One part as LLVM IR text."""
    tail = '\n!0 = !{!"branch_weights", i32 1, i32 1000}\n'
    kind, _, width = group.rpartition("_")
    if group == "core":
        parts = [ir("memory.fault"), ir("run.message"), ir("run.gws"), check_function(32), check_function(64)]
        parts += [scalar_load(n) for n in (1, 2, 3, 4, 8, 16)]
        return "".join([*parts, ir("screen.turn"), run_function()]) + tail
    if group == "math_1":
        return math_functions(0)
    if kind == "strip":
        return ir("memory.lds_fault") + _CORE_DECLARES
    w = int(width)
    if kind == "math":
        return math_functions(w)
    if kind == "screen":
        return screen_functions(w) + tail
    if kind == "places":
        return place_functions(w)
    if kind == "fills":
        return (
            fill_functions(w)
            + _CORE_DECLARES
            + f"declare i{w} @llvm.cttz.i{w}(i{w}, i1)\n"
            + tail
            + '!1 = !{!"branch_weights", i32 1000, i32 1}\n'
        )
    if kind == "undefined":
        return undefined_functions(w) + _CORE_DECLARES + tail
    if kind == "race":
        body = slow_function() + race_functions(w, "global") + race_functions(w, "lds") + order_function(w)
        return body + _CORE_DECLARES + _gathers(w) + tail
    if kind == "track":
        return measure_functions(w) + trace_functions(w) + _CORE_DECLARES + _gathers(w) + tail
    if kind.startswith("atomic"):
        space = kind.removeprefix("atomic_")
        body = ""
        for bits in (32, 64):
            body += "".join(atomic_function(w, space, op, bits) for op in (*ATOMICS, "cmpswap", *FLOAT_ATOMICS))
        body += "".join(atomic_function(w, space, op, 32) for op in ("pk_add_f16", "pk_add_bf16"))
        return body + _CORE_DECLARES + _gathers(w) + tail
    if kind.startswith("rare"):
        space = kind.removeprefix("rare_")
        body = "".join(atomic_function(w, space, op, bits) for bits in (32, 64) for op in RARE_ATOMICS)
        return body + _CORE_DECLARES + _gathers(w) + tail
    body = "".join(memory_function(w, kind, access, True) for access in ACCESSES)
    body += "".join(memory_function(w, kind, access, False) for access, spec in ACCESSES.items() if not spec[2])
    body += ir("memory.arrays", w=w) if kind == "lds" else ""
    return body + _CORE_DECLARES + _gathers(w) + tail
