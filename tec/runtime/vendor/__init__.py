"""Vendor libraries through ctypes: products, convolutions and Fourier transforms of arrays where they lie, in the thread's stream.

    rocblas, hipblaslt, miopen, rocfft    AMD GPUs
    cublas, cudnn, cufft                  NVIDIA GPUs
    onednn                                CPUs

`finding` looks for them; `calls` has the functions that compiled programs call by name (`tec.register_func`).
"""
