"""Constants of the time model that no source gives and that were chosen by published results: each with its unit and the rows that it was chosen by.

Everything else in the machine table has a source of its own. The rows are those of `benchmarks/amd_rows` whose shape is a fit row (`benchmarks/model_rows.py`); a judged row has
chosen none. `benchmarks/amd_model.py` says what the model makes of both.
"""

from __future__ import annotations

from ..records import dataclass


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
        1615, "MHz", "f4 8192x8192x8192 (asm, 216 us), 3200x53248x16384 (asm, 1,129 us), 16384x53248x16384 (asm, 5,173 us)", "the code objects take these times at 1,739, 1,865 and 1,775 MHz, where they "
        "keep the pipes busy for 0.70, 0.64 and 0.74 of the time: by the cube of the clock 1,576, 1,637 and 1,641 where they are busy for 0.94, whose geometric mean is 1,618",
    ),
    "MI355X bfloat16 clock": Fitted(
        1700, "MHz", "bf16 8192x8192x8192, 32768x5120x5120, 2048x53248x16384, 4096x16384x4096, 4096x2560x8192 (asm, 689, 1,172, 2,446, 384, 164 us)", "the same: 2,048, 1,826, 1,857, 1,763 and 1,886 MHz, "
        "busy for 0.75, 0.76, 0.74, 0.76 and 0.53, so 1,895, 1,699, 1,717, 1,642 and 1,561, whose geometric mean this is. A loop of matrix instructions alone, whose operands stay in registers, holds "
        "2,133 (1,907 of an MI350X, by the power of both)",
    ),
    "MI355X last cache": Fitted(
        6100, "GB/s", "f4 8192x1280x8192, 3200x2304x16384, 4096x2304x16384 (asm, 51 to 78 us)", "the fit rows that take most from it, 5.2 to 6.2 TB/s: at [O]'s 8,530 they are modelled at 0.81 to 0.89 of "
        "their times, at 6,500 at 0.91 to 0.98, at 5,700 at 1.02 to 1.11. No row of any kind takes more than 6.2",
    ),
    "MI355X memory latency": Fitted(
        680, "ns", "f4 1x12288x4096, 2x2048x7168, 2x7168x2048, 16x12288x1536, 64x6144x16384, 128x2048x7168 (asm, 4 to 28 us), less the profiler's part", "a few waves that wait for memory: at the "
        "MI300X's 425 ns they take 0.66 to 0.76 of the time that they took, at 680 ns 0.92 to 1.06. Their operands are other ones each time (101 copies), so pages' first uses are in it",
    ),
    "MI355X last cache latency": Fitted(
        295, "ns", "f4 2x512x4096, 8x512x4096, 64x512x4096, 256x512x4096, 640x256x768, 128x256x256, f8 2x128x7168 (asm, 3.5 to 7.4 us), whose operands the last cache holds", "a few waves that wait for it: at "
        "the MI300X's 218 ns six of the seven take 0.83 to 0.95 of the time that they took (the other one 1.04), at 295 ns all 0.88 to 1.07, which is the least sum of squares. Memory's latency is longer by a like part",
    ),
    "profiled kernel": Fitted(
        2.1, "us", "f4 2x512x4096, 8x512x4096, 2x16384x2048 (MI355X, asm, 5.4 to 6.2 us)", "what torch's profiler has for a kernel beside its work, where kernels follow each other. In published traces of "
        "MI300X (TraceLens) the medians of kernels of one work-group are 2.0 and 2.1 us in two of six, 4.2 to 5.2 in the others, whose GPUs wait for their host",
    ),
    "profiled kernel, CDNA 3": Fitted(
        3.7, "us", "i8 64x5120x1280, 64x1536x5120, 512x1536x5120 (MI300X, asm, 7.7 to 18.7 us), bf16 32x256x6144 (MI308X, asm, 7.9 us)", "the same of the MI300X's generation: these rows leave 3.1, 3.7, 3.8 "
        "and 3.8 us, whose median this is; the six traces lie on both sides of it",
    ),
    "call of aiter's attention": Fitted(
        38.6, "us", "attention 16x16x16x1024x128 and 16x64x8x1024x128, causal and not (MI355X, asm, 124 to 532 us)", "HipKittens' script waits for the device before each call, records an event, calls "
        "aiter.flash_attn_func from Python, and records another one: the device does nothing until the call has come to its launch. The rows leave 34.2, 36.1, 41.1 and 47.8 us beside the kernel, "
        "whose median this is; their spread is not explained",
    ),
    "call of aiter's attention gradient": Fitted(
        158, "us", "attention_bwd 16x16x16x2048x128, causal and not (MI355X, asm, 1,021 and 1,584 us)", "the same of `out.backward`, which HipKittens' script has between its two events: the call goes through "
        "autograd's thread to Python, which makes the results and asks for the first of three kernels. The rows leave 121 and 196 us beside the kernels and the zeros, whose mean this is. Longer fit rows "
        "(10.6 to 73 ms) say nothing of it: a hundredth of a kernel's time is as much",
    ),
    "zeros written first": Fitted(
        0.8, "us", "f8 2x128x7168, 64x768x7168, 640x128x7168, 64x6144x7168 (MI355X, asm), 32x128x7168, 240x128x7168, 448x128x7168, 640x128x7168, i8 80x1536x5120, 220x1536x5120 (MI308X, asm), all sums in parts",
        "a launch of hipMemsetAsync ahead of the kernel, beside the kernel's own part of the profiler: the rows leave -0.3 to 2.0 us, their median is 0.8",
    ),
}  # fmt: skip


def fitted(name: str) -> float:
    """A constant by its name."""
    return FITTED[name].value
