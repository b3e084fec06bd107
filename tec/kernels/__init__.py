"""Kernels written as plain Python functions: their syntax tree to the loop IR that te makes.

A kernel is one thread's program, as in CUDA, HIP or OpenCL. `source` finds the function's text, `translate` makes loop IR of it for
given types of arguments; `language` is what a kernel may name, `values` says which types combine. Compiling at the first call and
launching are `tec.jit`'s.
"""
