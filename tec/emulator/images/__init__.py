"""Images, samplers and typed buffers: descriptors, formats of elements, and the opcodes that read and write them."""
