"""What a trace runs at each block and access: LLVM IR of the recording functions.

A wave's trace lies at CTX's "trace" plus its number times "trace_stride": `TRACE_HEADER` words (how many events and lines there are, whether
the trace was cut), then events, then lines. An event is one word: its kind in bits 30 and 31 (0: a block begins; 1: an access of global
memory; 2: of LDS; 3: an atomic of global memory or a store), the row of the translation in bits 12 to 29, and a count in bits 0 to 11: of the
distinct cache lines, whose numbers (address / 128) follow among the lines, or of LDS clocks. A wave whose trace is full ends at its next block.
"""

from __future__ import annotations

from ..context import CTX
from .lane_loop import over_lanes
from .template import ir

LINE_SHIFT = 7
KINDS = {"block": 0, "load": 1, "lds": 2, "store": 3}


def trace_names(w: int) -> list[str]:
    return [f"tec_trace_{n}_{w}" for n in ("block", "global", "lds")]


def _context() -> str:
    """%events and %lines, of this wave; the counts %ne and %nl with their places %nep and %nlp; %cutp."""
    fields = "".join(
        f"  %{n}_q = getelementptr i8, ptr %ctx, i64 {CTX[n]}\n  %{n} = load {ty}, ptr %{n}_q\n"
        for n, ty in (("trace", "ptr"), ("trace_stride", "i64"), ("trace_events", "i64"), ("trace_lines", "i64"), ("wave", "i64"))
    )  # fmt: skip
    return ir("trace.head", fields=fields)


def trace_functions(w: int) -> str:
    """`tec_trace_block`: whether the wave is to end; or it counts the block alone. The others take an event's word without its count."""
    before = "<" + ", ".join(f"i32 {max(0, i - 1)}" for i in range(w)) + ">"
    carried = "  %n = phi i64 [ 0, %begin ], [ %n, %found ], [ %n1, %fresh ]\n"
    return ir(
        "trace.trace",
        w=w,
        context=_context(),
        append=ir("trace.append"),
        line_shift=LINE_SHIFT,
        before=before,
        lanes=over_lanes(w, "%first", "begin", "[ %left1, %found ], [ %left1, %fresh ]", "end", carried),
    )
