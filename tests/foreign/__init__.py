"""Correct kernels of other compilers on the software GPU, under every check: right numbers and no report. `make foreign` has the packages."""
