"""How weights lie in files: the formats of ggml, 8-bit floats, and the packed integers of GPTQ and AWQ, with their exact values as float32.

A format of ggml is a run of blocks of equal size. `Format.block` weights, which are consecutive in a row, take `Format.nbytes` bytes. The values of a
format's blocks are those of `dequantize_row_*` in ggml-quants.c, to the last bit.
"""

from .kinds import Format, of_ggml, packed_bytes
from .values import dequantize_blocks

__all__ = ["Format", "dequantize_blocks", "of_ggml", "packed_bytes"]
