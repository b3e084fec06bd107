"""Products whose weights are codes: 4-bit and 8-bit weights with a scale a block (packed), and microscaling formats (mx)."""
