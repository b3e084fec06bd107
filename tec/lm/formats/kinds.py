"""The formats that weights lie in: names, sizes of their blocks, and ggml's numbers for them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from enum import Enum

from ...errors import ImportModelError


class Format(Enum):
    """A format of weights. Values are (ggml's number or None, weights in a block, bytes of a block).

    GPTQ and AWQ tensors are several arrays; their `PackedTensor.data` are the packed integers alone, and scales and zero points are its `parts`.

    >>> tec.lm.Format.Q4_0.block, tec.lm.Format.Q4_0.nbytes
    (32, 18)
    """

    F32 = (0, 1, 4)
    F16 = (1, 1, 2)
    Q4_0 = (2, 32, 18)
    Q4_1 = (3, 32, 20)
    Q5_0 = (6, 32, 22)
    Q5_1 = (7, 32, 24)
    Q8_0 = (8, 32, 34)
    Q8_1 = (9, 32, 36)
    Q2_K = (10, 256, 84)
    Q3_K = (11, 256, 110)
    Q4_K = (12, 256, 144)
    Q5_K = (13, 256, 176)
    Q6_K = (14, 256, 210)
    Q8_K = (15, 256, 292)
    IQ2_XXS = (16, 256, 66)
    IQ2_XS = (17, 256, 74)
    IQ3_XXS = (18, 256, 98)
    IQ1_S = (19, 256, 50)
    IQ4_NL = (20, 32, 18)
    IQ3_S = (21, 256, 110)
    IQ2_S = (22, 256, 82)
    IQ4_XS = (23, 256, 136)
    I8 = (24, 1, 1)
    I16 = (25, 1, 2)
    I32 = (26, 1, 4)
    I64 = (27, 1, 8)
    F64 = (28, 1, 8)
    IQ1_M = (29, 256, 56)
    BF16 = (30, 1, 2)
    TQ1_0 = (34, 256, 54)
    TQ2_0 = (35, 256, 66)
    MXFP4 = (39, 32, 17)
    NVFP4 = (40, 64, 36)
    Q1_0 = (41, 128, 18)
    # What ggml has no number for. The third entry of each is a name that keeps equal sizes apart.
    F8_E4M3 = (None, 1, 1, "float8_e4m3fn")
    F8_E5M2 = (None, 1, 1, "float8_e5m2")
    U8 = (None, 1, 1, "uint8")
    BOOL = (None, 1, 1, "bool")
    GPTQ = (None, 1, 0, "gptq")
    AWQ = (None, 1, 0, "awq")

    @property
    def ggml(self) -> int | None:
        """The number that GGUF files have for it."""
        number: int | None = self.value[0]
        return number

    @property
    def block(self) -> int:
        """Weights in a block."""
        return int(self.value[1])

    @property
    def nbytes(self) -> int:
        """Bytes of a block; 0 where a tensor is several arrays (GPTQ, AWQ)."""
        return int(self.value[2])

    @property
    def dtype(self) -> str | None:
        """The little-endian NumPy type of its elements, where NumPy has one; None for packed formats, bfloat16 and 8-bit floats."""
        return _DTYPES.get(self.name)


_DTYPES = {
    "F32": "<f4", "F16": "<f2", "F64": "<f8", "I8": "<i1", "I16": "<i2", "I32": "<i4", "I64": "<i8", "U8": "<u1", "BOOL": "|b1",
}  # fmt: skip
_OF_GGML = {f.ggml: f for f in Format if f.ggml is not None}
# Numbers that once were in use: files with them were made to be read by ggml of that time alone.
_GONE = {
    4: "Q4_2", 5: "Q4_3", 31: "Q4_0_4_4", 32: "Q4_0_4_8", 33: "Q4_0_8_8", 36: "IQ4_NL_4_4", 37: "IQ4_NL_4_8", 38: "IQ4_NL_8_8",
}  # fmt: skip


def of_ggml(number: int) -> Format:
    """The format of a number in a GGUF file. Raises ImportModelError for a number that ggml does not have, or no longer has."""
    found = _OF_GGML.get(number)
    if found is not None:
        return found
    if number in _GONE:
        raise ImportModelError(
            f"weights in {_GONE[number]}, a format that ggml gave up",
            hint="quantize the model again, to Q4_0 for example",
        )
    raise ImportModelError(
        f"weights in a format with the number {number}, which is unknown", hint="a newer version of tec may know it"
    )


def packed_bytes(format: Format, shape: Sequence[int]) -> int:
    """Bytes of a tensor, its rows (the last axis) one behind the other. Raises ImportModelError where a row is no whole number of blocks."""
    elements = math.prod(shape)
    row = shape[-1] if shape else 1
    if row % format.block:
        raise ImportModelError(
            f"rows of {row} weights in {format.name}, whose blocks hold {format.block}",
            hint=f"rows of a multiple of {format.block} weights, or a format without blocks (F16)",
        )
    return elements // format.block * format.nbytes
