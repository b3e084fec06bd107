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
        1600, "MHz", "f4 8192x8192x8192 (asm, 216 us)", "at 2,400 MHz the code object would keep the pipes busy for 0.68 of the time and take 161 us: 1,790 MHz, by the cube of the clock 1,600 where "
        "they are busy for 0.94",
    ),
    "MI355X bfloat16 clock": Fitted(
        1980, "MHz", "bf16 32768x5120x5120 (asm, 1,172 us)", "the same: 1,117 us at 2,400 MHz, pipes busy for 0.61 of the time. A loop of matrix instructions alone, whose operands stay in "
        "registers, holds 2,133 (1,907 of an MI350X, by the power of both)",
    ),
}  # fmt: skip


def fitted(name: str) -> float:
    """A constant by its name."""
    return FITTED[name].value
