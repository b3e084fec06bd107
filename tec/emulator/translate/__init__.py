"""A kernel's instructions to LLVM IR of a function that runs one wave, and that to the host's code."""
