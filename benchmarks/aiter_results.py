"""aiter's own kernels for the rows of amd_results.csv whose source names one: its code objects in assembly by hand, and the time model's word on them.

They lie in the folder `hsa` of a checkout of ROCm/aiter (tried with e404860), which the environment variable AITER names. Arguments as its callers have them
(`asm_gemm_a16w16.cu`, `asm_gemm_a8w8.cu`, `mha_fwd.cu`): each in 16 bytes, strides in bytes.
"""

from __future__ import annotations

import os
import re
import struct
from pathlib import Path

import tec
from tec.emulator import emulator_profile, get_driver
from tec.emulator.driver import EmuDriver
from tec.target import Machine, find_product

SEMAPHORES = 1 << 16


def folder() -> Path:
    """The code objects. Raises TecError where there are none."""
    found = Path(os.environ.get("AITER", "")) / "hsa"
    if "AITER" not in os.environ or not found.is_dir():
        raise tec.TecError("no checkout of aiter", hint="git clone https://github.com/ROCm/aiter; AITER=aiter")
    return found


class Arguments:
    """Kernel arguments: pointers to memory that nobody reads, numbers, each in 16 bytes."""

    def __init__(self, driver: EmuDriver):
        self.driver, self.words, self.held = driver, b"", list[int]()

    def pointers(self, *sizes: int) -> Arguments:
        for n in sizes:
            if n:
                self.held.append(self.driver.alloc(0, n))
            self.words += struct.pack("<QQ", self.held[-1] if n else 0, 0)
        return self

    def numbers(self, *values: float) -> Arguments:
        for v in values:
            self.words += struct.pack("<f12x" if isinstance(v, float) else "<I12x", v)
        return self

    def free(self) -> None:
        for address in self.held:
            self.driver.free(0, address)


Launch = tuple[Path, tuple[int, int, int], int]  # code object, work-groups, threads of one


def tile(name: str) -> tuple[int, int]:
    """Rows and columns of "bf16gemm_fp32bf16_tn_96x64_pf3_splitk"."""
    found = re.search(r"_(\d+)x(\d+)(_|$)", name)
    assert found, name
    return int(found[1]), int(found[2])


def product_16_bits(name: str, sizes: tuple[int, ...], splits: int, args: Arguments) -> Launch:
    m, n, k = sizes
    args.pointers(m * n * 4, 0, m * k * 2, n * k * 2).numbers(
        1.0, 0.0, n * 2, 0, n * 2, 0, k * 2, 0, k * 2, 0, m, n, k, splits, 1
    )
    args.pointers(0).numbers(0).pointers(SEMAPHORES)
    rows, columns = tile(name)
    return Path("bf16gemm"), (-(-n // columns), -(-m // rows), splits), 256


def product_8_bits(name: str, sizes: tuple[int, ...], splits: int, args: Arguments) -> Launch:
    m, n, k = sizes
    args.pointers(m * n * 2, m * k, n * k, m * 4, n * 4, n * 4).numbers(m, n, k, k, k, n * 2, splits)
    rows, columns = tile(name)
    return Path("i8gemm"), (n // columns * splits, -(-m // rows), 1), 256


def attention(name: str, sizes: tuple[int, ...], splits: int, args: Arguments) -> Launch:
    """Batch, heads, places, size; in memory places before heads, the log of the sums asked for."""
    batch, heads, length, size = sizes
    rows = 256
    whole, row, head = batch * heads * length * size * 2, heads * size * 2, size * 2
    strides = (row, head, length * row)
    args.pointers(whole, whole, whole, whole, batch * heads * length * 4).numbers(
        size**-0.5, length, row, rows * row, head, length * row, 1
    )
    args.numbers(*strides, 5, 1, length, size, size, heads, *strides, *strides).pointers(0, 0).numbers(
        length * 4
    ).pointers(0, 0)
    return Path("fmha_v3_fwd"), (-(-length // rows), heads, batch), 512


KERNELS = {"bf16gemm": product_16_bits, "I8gemm": product_8_bits, "fwd": attention}


def theirs(work: str, product: str, warm: bool, with_launch: bool, name: str, splits: int = 1) -> float:
    """Microseconds. `name`: the code object's, without ".co"."""
    machine: Machine | None = find_product(product)
    assert machine is not None, product
    driver = get_driver(machine.chip)
    args = Arguments(driver)
    sizes = tuple(map(int, work.split()[2].split("x")))
    where, grid, threads = KERNELS[name.split("_")[0]](name, sizes, splits, args)
    module = driver.load_module(0, (folder() / machine.chip / where / f"{name}.co").read_bytes())
    (kernel,) = module.code.kernels
    function = driver.get_function(module, kernel)
    room = function.info.explicit_bytes
    try:
        with emulator_profile(driver, False, product, warm) as p:
            driver.launch(function, grid, (threads, 1, 1), 0, args.words[:room].ljust(room, b"\0"))
    finally:
        args.free()
    estimate = p.launches[0].estimate
    if estimate.limit == "data":
        raise tec.TecError(f"{name} was not modelled")
    return estimate.microseconds if with_launch else estimate.kernel_us
