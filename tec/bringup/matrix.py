"""Matrix instructions on the chip and on the software GPU, bit for bit, on drawn operands of three kinds.

- "integers": small integers, whose sums are exact in any order: a difference is one of layout, of elements, or of arithmetic;
- "normal": numbers about 1: a difference is one of how sums are rounded (for some chips no source says how; see docs/emulator-numbers.md);
- "bits": any bit patterns, with denormals, infinities and NaN. A NaN agrees with a NaN.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from ..emulator import get_driver
from .findings import AGREES, DIFFERS, FAILED, NOTE, Finding, wanted
from .gpu import Gpu, code_object
from .instructions import Instruction, instructions, module

KINDS = ("integers", "normal", "bits")
WAVES = 16  # of operands, each kind
SECTION = "matrix instructions"
_BITS = {"fp8": 8, "bf8": 8, "fp6": 6, "bf6": 6, "fp4": 4, "i8": 8, "iu8": 8, "iu4": 4, "f16": 16, "bf16": 16, "f32": 32, "xf32": 32, "f64": 64, "i32": 32}  # fmt: skip
_SMALL = {  # bit patterns of -2, -1, 0, 1, 2; of 8-bit floats with a bias of 7 and 15 (FNUZ: half of that, which is as exact)
    "fp8": (0xC0, 0xB8, 0, 0x38, 0x40), "bf8": (0xC0, 0xBC, 0, 0x3C, 0x40), "fp6": (0x30, 0x28, 0, 0x08, 0x10), "bf6": (0x30, 0x2C, 0, 0x0C, 0x10),
    "fp4": (0xC, 0xA, 0, 0x2, 0x4), "iu4": (14, 15, 0, 1, 2),
}  # fmt: skip
_FLOATS: dict[str, Any] = {"f16": np.float16, "f32": np.float32, "xf32": np.float32, "f64": np.float64}


def _fields(rng: np.random.Generator, kind: str, element: str, shape: tuple[int, int]) -> np.ndarray:
    """Bit patterns of so many elements, as unsigned integers."""
    bits = _BITS[element]
    if kind == "integers":
        at = rng.integers(0, 5, shape)
        if element in _SMALL:
            return np.array(_SMALL[element], np.uint64)[at]
        return _encoded((at - 2).astype(np.float64), element)
    if kind == "normal" and element not in ("i8", "iu8", "iu4", "i32", "fp4", "fp6", "bf6"):
        if element in ("fp8", "bf8"):  # exponents about the middle
            e, f = (4, 3) if element == "fp8" else (5, 2)
            middle = (1 << (e - 1)) + rng.integers(-3, 2, shape)
            return (rng.integers(0, 2, shape) << 7 | middle << f | rng.integers(0, 1 << f, shape)).astype(np.uint64)
        return _encoded(rng.standard_normal(shape), element)
    found: np.ndarray = rng.integers(0, 2**64 - 1, shape, np.uint64, endpoint=True) >> np.uint64(64 - bits)
    return found


def _encoded(values: np.ndarray, element: str) -> np.ndarray:
    found: np.ndarray
    if element in _FLOATS:
        found = values.astype(_FLOATS[element]).view({16: np.uint16, 32: np.uint32, 64: np.uint64}[_BITS[element]])
    elif element == "bf16":
        found = (values.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)
    else:
        found = np.rint(values).astype(np.int64).astype({8: np.uint8, 32: np.uint32}[_BITS[element]])
    return found


def operand(rng: np.random.Generator, kind: str, element: str, lanes: int, regs: int) -> np.ndarray:
    """So many 32-bit registers of each lane, filled with elements."""
    bits = _BITS[element]
    fields = _fields(rng, kind, element, (lanes, 32 * regs // bits))
    if bits in (8, 16, 32, 64):
        narrow = {8: np.uint8, 16: np.uint16, 32: np.uint32, 64: np.uint64}[bits]
        return np.ascontiguousarray(fields.astype(narrow)).view(np.uint32).reshape(lanes, regs)
    places = (fields.astype(np.uint64)[:, :, None] >> np.arange(bits, dtype=np.uint64) & np.uint64(1)).astype(np.uint8)
    return np.packbits(places.reshape(lanes, -1), axis=1, bitorder="little").view(np.uint32)


def _numbers(words: np.ndarray, element: str) -> np.ndarray | None:
    """A result's registers as float64; None of integers."""
    if element == "f32":
        return words.view(np.float32).astype(np.float64)
    if element == "f64":
        return words.view(np.float64)
    if element == "f16":
        return words.view(np.float16).astype(np.float64)
    if element == "bf16":
        return (words.view(np.uint16).astype(np.uint32) << 16).view(np.float32).astype(np.float64)
    return None


def _differences(x: Instruction, want: np.ndarray, got: np.ndarray) -> tuple[np.ndarray, float]:
    """(which items differ, by how much at most: relative to the larger one)."""
    a, b = _numbers(want, x.elements[2]), _numbers(got, x.elements[2])
    if a is None or b is None:
        return want != got, 1.0
    form = {"f16": np.uint16, "bf16": np.uint16, "f32": np.uint32, "f64": np.uint64}[x.elements[2]]
    other = want.view(form) != got.view(form)
    other &= ~(np.isnan(a) & np.isnan(b))
    with np.errstate(all="ignore"):
        apart = np.abs(a - b)[other] / np.maximum(np.abs(a), np.abs(b))[other]
    return other, float(np.nan_to_num(apart, nan=1.0, posinf=1.0).max(initial=0.0))


def _run(gpu: Gpu, function: Any, operands: list[np.ndarray], result: np.ndarray, lanes: int) -> np.ndarray:
    with gpu.scope():
        places = [gpu.array(o) for o in operands]
        out = gpu.array(result)
        gpu.launch(function, len(result) // lanes, lanes, "QQQQQ", *places, out)
        gpu.synchronize()
        return gpu.read(out, result)


def check(gpu: Gpu, seed: int = 0, waves: int = WAVES, only: str = "") -> Iterator[Finding]:
    """One finding an instruction and form. `only`: see `wanted`."""
    found, left = instructions(gpu.chip)
    found = [x for x in found if wanted(only, x.name)]
    if left:
        yield Finding(SECTION, "not tried", NOTE, ", ".join(left))
    if not found:
        return
    image = code_object(gpu.chip, module(gpu.chip, found), "matrix instructions")
    reference = Gpu(get_driver(gpu.chip, instance=1))  # not one that stands for the chip itself
    lanes = 64 if gpu.chip.startswith("gfx9") else 32
    for x in found:
        try:
            yield _compared(x, gpu, reference, image, lanes, np.random.default_rng((seed, len(x.name))), waves)
        except Exception as error:  # a check that fails is told, and the next one goes on
            yield Finding(SECTION, x.name, FAILED, f"{type(error).__name__}: {str(error).splitlines()[0]}")


def _compared(x: Instruction, gpu: Gpu, reference: Gpu, image: bytes, lanes: int, rng: np.random.Generator, waves: int) -> Finding:  # fmt: skip
    """What an instruction gives on the chip against the software GPU, for each kind of operands."""
    says, worst, items, rounding = [], 0.0, 0, True
    for kind in KINDS:
        n = waves * lanes
        operands = [operand(rng, kind, e, n, r) for e, r in zip(x.elements, x.regs)]
        # Scales about 1 (the byte of an exponent is 127), and where they are drawn, any; a sparse product's indices are two unlike places of each four.
        words = 0x7F7F7F7F + rng.integers(-2, 3, n) * 0x01010101 if "scaled" in x.name else _indices(rng, n)
        operands.append(words.astype(np.uint32))
        blank = np.zeros((n, x.regs[2]), np.uint32)
        want = _run(reference, reference.function(image, x.kernel), operands, blank, lanes)
        got = _run(gpu, gpu.function(image, x.kernel), operands, blank, lanes)
        other, apart = _differences(x, want, got)
        items += other.size
        if other.any():
            lane, item = np.argwhere(other)[0]
            bits = (
                want.view(f"u{want.nbytes // other.size}")[lane, item],
                got.view(f"u{want.nbytes // other.size}")[lane, item],
            )
            says.append(
                f"{kind}: {int(other.sum())} of {other.size} differ, by {apart:.2g} at most; wave {lane // lanes}, lane {lane % lanes}, item {item}: "
                f"{bits[0]:#x} by the software GPU, {bits[1]:#x} on the chip"
            )
            worst = max(worst, apart)
            rounding &= kind == "normal"
    if not says:
        return Finding(SECTION, x.name, AGREES, f"{items} items, to the bit")
    cause = "how sums are rounded; " if rounding and worst < 1e-2 else ""
    return Finding(SECTION, x.name, DIFFERS, cause + "; ".join(says), 0.0, worst, "relative")


def _indices(rng: np.random.Generator, n: int) -> np.ndarray:
    """Words of indices: in each four bits two places of four, the first below the second."""
    pairs = np.array([a | b << 2 for a in range(4) for b in range(a + 1, 4)], np.uint64)
    nibbles = pairs[rng.integers(0, len(pairs), (n, 8))]
    words: np.ndarray = (nibbles << (np.arange(8, dtype=np.uint64) * np.uint64(4))).sum(axis=1)
    return words
