"""aiter's own kernels for published results whose source names one: its code objects in assembly by hand, the time model's word on them, and their numbers on the software GPU.

They lie in the folder `hsa` of a checkout of ROCm/aiter (tried with e404860), which the environment variable AITER names; the wheel `amd-aiter` has most of them in its folder
`aiter_meta`. Arguments as its callers have them (`asm_gemm_a16w16.cu`, `asm_gemm_a8w8.cu`, `asm_gemm_a4w4.cu`, `asm_a8w8_blockscale_bpreshuffle.cu`, `mha_fwd.cu`): each in 16 bytes, strides in bytes
except where a function says elements. `aiter_check` holds each of them to NumPy.
"""

from __future__ import annotations

import csv
import functools
import os
import re
import struct
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import tec
from tec.emulator import emulator_profile, get_driver
from tec.emulator.driver import EmuDriver
from tec.emulator.time.model import Estimate
from tec.target import Machine, find_product

SEMAPHORES = 1 << 16


def folder() -> Path:
    """The code objects. Raises TecError where there are none."""
    found = Path(os.environ.get("AITER", "")) / "hsa"
    if "AITER" not in os.environ or not found.is_dir():
        raise tec.TecError("no checkout of aiter", hint="git clone https://github.com/ROCm/aiter; AITER=aiter")
    return found


@functools.cache
def tables(chip: str) -> dict[str, tuple[Path, dict[str, str]]]:
    """What the tables beside the code objects say of each: its path within the chip's folder, and its row; by the name of the file without ".co"."""
    found: dict[str, tuple[Path, dict[str, str]]] = {}
    for path in sorted((folder() / chip).rglob("*.csv")):
        with path.open(newline="", encoding="utf-8") as f:
            for row in csv.DictReader(f):
                if "co_name" not in row:
                    break  # a table of something else
                file = path.parent / row["co_name"]
                if not file.exists():  # those of attention lie in a folder for each product
                    file = path.parent / "MI300" / row["co_name"]
                if file.exists():
                    found.setdefault(file.stem, (file.relative_to(folder() / chip), {**row, "table": path.stem}))
    return found


def row_of(chip: str, name: str) -> dict[str, str]:
    """The row of a code object. Raises TecError where no table has it."""
    if name not in tables(chip):
        raise tec.TecError(f"no table beside the code objects has {name}")
    return tables(chip)[name][1]


def folder_of(chip: str, name: str) -> Path:
    return tables(chip)[name][0]


def preshuffled(w: np.ndarray) -> np.ndarray:
    """B of (columns, depth) as the kernels that say "preshuffle" read it: blocks of 16 columns by 32 of depth, depth in pieces of 16 bytes before columns."""
    n, k = w.shape
    piece = 16 // w.itemsize
    block = 32
    return np.ascontiguousarray(w.reshape(n // 16, 16, k // block, block // piece, piece).transpose(0, 2, 3, 1, 4))


Read = Callable[[int], np.ndarray]  # the bytes of an argument by its number among the pointers that are not null
Pairs = list[tuple[np.ndarray, np.ndarray]]  # what a kernel made, and what NumPy makes


def values(read: Read, which: int, kind: Any, shape: tuple[int, ...]) -> np.ndarray:
    """The array of an argument, in float32."""
    n = int(np.prod(shape)) * np.dtype(kind).itemsize
    return read(which)[:n].view(kind).astype(np.float32).reshape(shape)


def compared(which: int, kind: Any, want: np.ndarray) -> Callable[[Read], Pairs]:
    """Hold argument `which` to `want`."""
    return lambda read: [(values(read, which, kind, want.shape), want)]


class Arguments:
    """Kernel arguments, each in 16 bytes: numbers, and pointers to memory, of which `held` has (address, bytes). `data`: arrays that are put there in turn, None for memory that
    nobody reads. `grain`: bytes that an array's memory is a multiple of; PyTorch's allocator has segments of 2 MiB."""

    def __init__(self, driver: EmuDriver, data: list[np.ndarray | None] | None = None, grain: int = 1):
        self.driver, self.words, self.held, self.grain = driver, b"", list[tuple[int, int]](), grain
        self.data = list(reversed(data)) if data is not None else None

    def pointers(self, *sizes: int) -> Arguments:
        for n in sizes:
            address = 0
            if n:
                source = self.data.pop() if self.data else None
                n = max(n, source.nbytes if source is not None else 0)
                n = -(-n // self.grain) * self.grain
                address = self.driver.alloc(0, n)
                self.held.append((address, n))
                if source is not None:
                    whole = np.zeros(n, np.uint8)
                    whole[: source.nbytes] = np.ascontiguousarray(source).view(np.uint8).reshape(-1)
                    self.driver.copy_to_device(0, address, whole.ctypes.data, n)
            self.words += struct.pack("<QQ", address, 0)
        return self

    def zeros(self, nbytes: int) -> Arguments:
        """A pointer to zeros."""
        self.pointers(nbytes)
        self.driver.memset(0, self.held[-1][0], 0, self.held[-1][1])
        return self

    def numbers(self, *values: float) -> Arguments:
        for v in values:
            self.words += struct.pack("<f12x" if isinstance(v, float) else "<I12x", v)
        return self

    def read(self, which: int) -> np.ndarray:
        """The bytes of the memory that was asked for as number `which`."""
        address, n = self.held[which]
        out = np.zeros(n, np.uint8)
        self.driver.copy_from_device(0, out.ctypes.data, address, n)
        return out

    def free(self) -> None:
        for address, _ in self.held:
            self.driver.free(0, address)


Launch = tuple[Path, tuple[int, int, int], int]  # code object or its folder, work-groups, threads of one


def tile(name: str) -> tuple[int, int]:
    """Rows and columns of "bf16gemm_fp32bf16_tn_96x64_pf3_splitk"."""
    found = re.search(r"_(\d+)x(\d+)(_|$)", name)
    assert found, name
    return int(found[1]), int(found[2])


def product_16_bits(name: str, sizes: tuple[int, ...], splits: int, args: Arguments) -> Launch:
    """bfloat16; the result's bytes an element are the fourth of `sizes`, 2 where that has three."""
    m, n, k, width = (*sizes, 2)[:4]
    args.pointers(m * n * width, 0, m * k * 2, n * k * 2).numbers(
        1.0, 0.0, n * width, 0, n * width, 0, k * 2, 0, k * 2, 0, m, n, k, splits, int(width == 2)
    )
    args.pointers(0).numbers(0).zeros(SEMAPHORES)
    rows, columns = tile(name)
    return Path("bf16gemm"), (-(-n // columns), -(-m // rows), splits), 256


def product_8_bits(name: str, sizes: tuple[int, ...], splits: int, args: Arguments) -> Launch:
    """8-bit integers with a scale a row of A and of B, and a bias a column."""
    m, n, k = sizes
    args.pointers(m * n * 2, m * k, n * k, m * 4, n * 4, n * 4).numbers(m, n, k, k, k, n * 2, splits)
    rows, columns = tile(name)
    return Path("i8gemm"), (n // columns * splits, -(-m // rows), 1), 256


def product_f8(name: str, sizes: tuple[int, ...], splits: int, args: Arguments) -> Launch:
    """8-bit floats with a scale for each 128 of k, of a row of A (k before rows) and of 128 columns of B."""
    m, n, k = sizes
    blocks = -(-k // 128)
    args.pointers(m * n * 2, m * k, n * k, m * blocks * 4, -(-n // 128) * blocks * 4, n * 4)
    args.numbers(m, n, k, k, k, n * 2, splits, m, -(-n // 128), blocks)
    rows, columns = tile(name)
    return Path("fp8gemm_blockscale"), (n // columns * splits, -(-m // rows), 1), 256


def product_f4(name: str, sizes: tuple[int, ...], splits: int, args: Arguments) -> Launch:
    """4-bit floats, two a byte, with a power of two for each 32 of k, of rows filled up to 256. Strides in elements."""
    m, n, k = sizes
    blocks = -(-k // 256) * 8
    scales_a, scales_b = (-(-x // 256) * 256 * blocks for x in (m, n))
    args.pointers(-(-m // 32) * 32 * n * 2, 0, m * k // 2, n * k // 2).numbers(
        1.0, 0.0, 0, 0, n, 0, k, 0, k, 0, m, n, k
    )
    args.pointers(scales_a, scales_b).numbers(blocks, 0, blocks, 0, 0)
    rows, columns = tile(name)
    return Path("f4gemm"), (-(-n // columns), -(-m // rows), 1), 256


Builder = Callable[[str, tuple[int, ...], int, Arguments], Launch]
KERNELS: dict[str, Builder] = {
    "bf16gemm": product_16_bits,
    "I8gemm": product_8_bits,
    "fp8gemm": product_f8,
    "f4gemm": product_f4,
}


def builder(name: str) -> Builder:
    """What has a kernel's arguments, by its name. Raises TecError where nothing has."""
    from benchmarks import aiter_attention, aiter_decode, aiter_moe

    word = name.split("_")[0].lower()
    others: dict[str, Builder] = {
        "fwd": aiter_attention.forward,
        "bwd": aiter_attention.gradient,
        "mla": aiter_decode.latent,
        "pa": aiter_decode.paged,
        "topksoftmax": aiter_decode.chosen,
        "fmoe": aiter_moe.first if name.startswith("fmoe_stage1") else aiter_moe.fused,
    }
    found = KERNELS.get(name.split("_")[0]) or others.get(word)
    if found is None:
        raise tec.TecError(f"{name} has no harness")
    return found


@dataclass(slots=True)
class Loaded:
    """A code object that is ready: `launch` asks the driver for it with the arguments of `args`."""

    driver: EmuDriver
    args: Arguments
    function: object
    grid: tuple[int, int, int]
    threads: int

    def launch(self) -> None:
        room = self.function.info.explicit_bytes  # type: ignore[attr-defined]
        words = self.args.words[:room].ljust(room, b"\0")
        self.driver.launch(self.function, self.grid, (self.threads, 1, 1), 0, words)  # type: ignore[arg-type]


def load(
    chip: str,
    name: str,
    sizes: tuple[int, ...],
    splits: int = 1,
    data: list[np.ndarray | None] | None = None,
    grain: int = 1,
    **options: Any,
) -> Loaded:
    """The code object `name` (without ".co") with arguments for a problem of `sizes`; `data`, `grain`: see `Arguments`; `options`: of the driver. Raises TecError where there is none of that
    name."""
    driver = get_driver(chip, **options)
    args = Arguments(driver, data, grain)
    where, grid, threads = builder(name)(name, sizes, splits, args)
    path = folder() / chip / where
    path = path if path.suffix == ".co" else path / f"{name}.co"
    if not path.exists():
        raise tec.TecError(f"no code object {name} for {chip}")
    module = driver.load_module(0, path.read_bytes())
    (kernel,) = module.code.kernels
    return Loaded(driver, args, driver.get_function(module, kernel), grid, threads)


def estimate(product: str, name: str, sizes: tuple[int, ...], splits: int = 1, warm: bool = False) -> Estimate:
    """What the time model says of a launch on `product`."""
    machine: Machine | None = find_product(product)
    assert machine is not None, product
    ready = load(machine.chip, name, sizes, splits)
    try:
        with emulator_profile(ready.driver, False, product, warm) as p:
            ready.launch()
    finally:
        ready.args.free()
    found: Estimate = p.launches[0].estimate
    if found.limit == "data":
        raise tec.TecError(f"{name} was not modelled")
    return found


def theirs(work: str, product: str, warm: bool, with_launch: bool, name: str, splits: int = 1) -> float:
    """Microseconds of a row of amd_results.csv. `name`: the code object's, without ".co"."""
    found = estimate(product, name, tuple(map(int, work.split()[2].split("x"))), splits, warm)
    return found.microseconds if with_launch else found.kernel_us
