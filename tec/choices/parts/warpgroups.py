"""What a warpgroup's product (wgmma) takes, of products and of attention: 64 rows at once, operands in tiles of rows of 128 bytes.

Source: PTX ISA, "wgmma.mma_async", and of the copy engine's swizzles "Swizzling modes".
"""

from __future__ import annotations

from ...ir.dtype import dtype_info
from .needs import filled

ROWS = 64  # that a warpgroup multiplies at once
WARPS = 4  # of a warpgroup, 16 rows each
BOX_BYTES = 128  # of a tile's row: the widest swizzle, of the copy engine too
FILE_REGISTERS = 1 << 16  # 32-bit registers of a multiprocessor


def step(dtype: str) -> int:
    """Terms of a product's step: a row of a tile."""
    return BOX_BYTES // dtype_info(dtype).bytes


def boxed(elements: int, dtype: str) -> int:
    """So many elements of a row, filled up to whole boxes."""
    return filled(elements, BOX_BYTES // dtype_info(dtype).bytes)
