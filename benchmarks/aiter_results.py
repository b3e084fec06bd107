"""aiter's own kernels for published results whose source names one: its code objects in assembly by hand, the time model's word on them, and their numbers on the software GPU.

They lie in the folder `hsa` of a checkout of ROCm/aiter (tried with e404860), which the environment variable AITER names; the wheel `amd-aiter` has most of them in its folder
`aiter_meta`. Arguments as its callers have them (`asm_gemm_a16w16.cu`, `asm_gemm_a8w8.cu`, `asm_gemm_a4w4.cu`, `asm_a8w8_blockscale_bpreshuffle.cu`, `mha_fwd.cu`): each in 16 bytes, strides in bytes
except where a function says elements. `aiter_check` holds each of them to NumPy.
"""

from __future__ import annotations

import os
import re
import struct
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

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


class Arguments:
    """Kernel arguments, each in 16 bytes: numbers, and pointers to memory, of which `held` has (address, bytes). `data`: arrays that are put there in turn, None for memory that
    nobody reads."""

    def __init__(self, driver: EmuDriver, data: list[np.ndarray | None] | None = None):
        self.driver, self.words, self.held = driver, b"", list[tuple[int, int]]()
        self.data = list(reversed(data)) if data is not None else None

    def pointers(self, *sizes: int) -> Arguments:
        for n in sizes:
            address = 0
            if n:
                source = self.data.pop() if self.data else None
                n = max(n, source.nbytes if source is not None else 0)
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


def attention(name: str, sizes: tuple[int, ...], splits: int, args: Arguments) -> Launch:
    """Batch, heads, heads of keys, places, size; in memory places before heads, the log of the sums asked for."""
    batch, heads, of_keys, length, size = sizes if len(sizes) == 5 else (sizes[0], sizes[1], *sizes[1:])
    rows = 256
    group = heads // of_keys
    q, kv = batch * heads * length * size * 2, batch * of_keys * length * size * 2
    row, row_kv, head = heads * size * 2, of_keys * size * 2, size * 2
    causal = "causal" in name
    args.pointers(q, q, kv, kv, batch * heads * length * 4).numbers(
        size**-0.5, length, row, rows * row, head, length * row, group
    )
    options = 3 if causal and (heads % 8 or length > 16384) else 5
    args.numbers(row_kv, head, length * row_kv, options, 1, length, size, size, heads, row_kv, head, length * row_kv)
    args.numbers(row, head, length * row).pointers(0, 0).numbers(length * 4).pointers(0, 0)
    tiles = -(-length // rows)
    return Path("fmha_v3_fwd"), (-(-tiles // 2) if causal else tiles, heads, batch), 512


Builder = Callable[[str, tuple[int, ...], int, Arguments], Launch]
KERNELS: dict[str, Builder] = {
    "bf16gemm": product_16_bits,
    "I8gemm": product_8_bits,
    "fp8gemm": product_f8,
    "f4gemm": product_f4,
    "fwd": attention,
}


def builder(name: str) -> Builder:
    """What has a kernel's arguments, by its name."""
    if name.startswith("fmoe"):
        from benchmarks.aiter_moe import fused

        return fused
    if name.startswith(("bwd", "mla", "pa_")):
        from benchmarks import aiter_attention

        return {"bwd": aiter_attention.gradient, "mla": aiter_attention.latent, "pa_": aiter_attention.paged}[name[:3]]
    return KERNELS[name.split("_")[0]]


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
    chip: str, name: str, sizes: tuple[int, ...], splits: int = 1, data: list[np.ndarray | None] | None = None
) -> Loaded:
    """The code object `name` (without ".co") with arguments for a problem of `sizes`; `data`: see `Arguments`. Raises TecError where there is none of that name."""
    driver = get_driver(chip)
    args = Arguments(driver, data)
    where, grid, threads = builder(name)(name, sizes, splits, args)
    path = folder() / chip / where
    path = path if path.suffix == ".co" else path / f"{name}.co"
    if not path.exists():  # those of attention lie in a folder for each product
        path = next(iter((folder() / chip / where).glob(f"MI300/{name}.co")), path)
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
