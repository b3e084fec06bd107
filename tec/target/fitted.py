"""Constants of the time model that no source gives and that were chosen by published results: each with its unit and the rows that it was chosen by.

Everything else in the machine table has a source of its own. The rows are those of `benchmarks/amd_rows` whose shape is a fit row (`benchmarks/model_rows.py`); a judged row has
chosen none. `benchmarks/amd_model.py` says what the model makes of both.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Fitted:
    """A value, what it is of, and the rows that it was chosen by."""

    value: float
    unit: str
    rows: str
    how: str


FITTED: dict[str, Fitted] = {
    "MI308X clock": Fitted(
        1420, "MHz", "f8 32768x2048x2048 and 4096x6144x2048 (ck, 431 TFLOP/s); i8 8192x1280x8192 (asm, 379)",
        "the clock at which the best kernel keeps the matrix pipes busy for 0.93 of the time, as the largest products of other chips do; at 2,100 MHz every row, of whatever "
        "kind, would be 1.4 to 1.6 times as fast as it was",
    ),
    "MI308X memory": Fitted(
        3270, "GB/s", "f8 16x18432x7168 and 8x36864x7168 (ck)", "the fastest streams of weights that no cache holds; ROCm's validation tests expect 2,003",
    ),
    "MI355X float4 clock": Fitted(
        1615, "MHz", "f4 8192x8192x8192 (asm, 216 us) and 3200x53248x16384 (asm, 1,129 us)", "at 2,400 MHz the code objects would keep the pipes busy for 0.68 and 0.65 of the time and take 160 and 861 us: "
        "1,795 and 1,834 MHz, by the cube of the clock 1,614 and 1,618 where they are busy for 0.94",
    ),
    "MI355X bfloat16 clock": Fitted(
        1810, "MHz", "bf16 8192x8192x8192 (asm, 689 us), 32768x5120x5120 (asm, 1,172 us), 4096x2560x8192 (asm, 164 us)", "the same: 598, 968, 145 us at 2,400 MHz, so 1,922, 1,804, 1,711, "
        "whose geometric mean this is. A loop of matrix instructions alone, whose operands stay in registers, holds 2,133 (1,907 of an MI350X, by the power of both)",
    ),
    "MI355X memory latency": Fitted(
        680, "ns", "f4 1x12288x4096, 2x2048x7168, 2x7168x2048, 16x12288x1536, 64x6144x16384, 128x2048x7168 (asm, 4 to 28 us), less the profiler's part", "a few waves that wait for memory: at the "
        "MI300X's 425 ns they take 0.66 to 0.76 of the time that they took, at 680 ns 0.92 to 1.06. Their operands are other ones each time (101 copies), so pages' first uses are in it",
    ),
    "profiled kernel": Fitted(
        2.1, "us", "f4 2x512x4096, 8x512x4096, 2x16384x2048 (MI355X, asm, 5.4 to 6.2 us)", "what torch's profiler has for a kernel beside its work, where kernels follow each other. In published traces of "
        "MI300X (TraceLens) the medians of kernels of one work-group are 2.0 and 2.1 us in two of six, 4.2 to 5.2 in the others, whose GPUs wait for their host",
    ),
}  # fmt: skip


def fitted(name: str) -> float:
    """A constant by its name."""
    return FITTED[name].value
