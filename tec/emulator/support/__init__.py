"""The support library: LLVM IR of the functions that translated kernels call."""
