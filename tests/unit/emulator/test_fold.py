"""Pairs of bitwise instructions and selects, as LLVM may fold them into one of the host's, on several kinds of host CPU.

LLVM's x86 code generator folds a select over bitwise operations into one masked instruction, and a part of its patterns for that is
wrong (see `Ops.select`). Every ordered pair of opcodes that work bit by bit runs with operands from registers, literals, and each other, in
place and not, under EXEC masks, between selects, against the references in NumPy.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from itertools import permutations

import numpy as np
import pytest

from tests import seeds
from tests.thinned import thinned, thinned_rows

from .hosts import HOSTS
from .row_reference import REFERENCE, Ref
from .rows import Bench
from .test_valu import F32, U32

# Opcodes whose host code is logic on whole registers, or may become it.
BITWISE = (
    "v_and_b32 v_or_b32 v_xor_b32 v_not_b32 v_bfi_b32 v_and_or_b32 v_lshl_or_b32 v_or3_b32 v_bfe_u32 v_bfm_b32 v_mov_b32 "
    "v_cndmask_b32 v_add_u32 v_add_nc_u32 v_max_f32 v_min_f32 v_xnor_b32 v_xor3_b32 v_perm_b32 v_alignbit_b32 v_ashrrev_i32"
).split()
_CHIPS = {"gfx942": "v_xor3_b32 v_add_nc_u32".split(), "gfx1100": "v_add_u32".split()}  # which a chip has not
LITERALS = (0x7FFFFFFF, 0x80000000, 0x00FF00FF, 0xFFFF0000)
PICK = {64: 0xC3A5_5AF0_0FF1_9E37, 32: 0xC3A5_5AF0}
MASKS = {64: (-1, 0x5A5A_1234_8001_F00F), 32: (-1, 0x8001_F00F)}


@dataclass
class Step:
    """One instruction: destination register, sources (registers of cases by number, planes by name, literals)."""

    op: str
    ref: Ref
    dst: int
    sources: list[int | str]
    signs: list[str]


def _one(rng: random.Random, op: str, dst: int, used: list[int]) -> Step:
    ref = REFERENCE[op]
    count = sum(1 for t in ref.sources if t != "mask")
    sources: list[int | str] = []
    for _ in range(count):
        kind = rng.random()
        literals = sum(isinstance(s, str) and s.startswith("0x") for s in sources)
        if kind < 0.3 and not literals and op in ("v_bfi_b32", "v_and_b32", "v_or_b32", "v_xor_b32") and not sources:
            sources.append(hex(rng.choice(LITERALS)))
        elif kind < 0.75 and used:
            sources.append(rng.choice(used))
        else:
            sources.append(rng.choice(("a", "b", "c")))
    signs = [""] * count
    if op in ("v_cndmask_b32", "v_max_f32", "v_min_f32"):
        signs = [rng.choice(("", "", "", "-", "|", "-|")) for _ in range(count)]
    return Step(op, ref, dst, sources, signs)


def _steps(rng: random.Random, first: str, second: str) -> list[Step]:
    """A select, the pair, a select: results go to v2 to v5, which hold the planes a, b, c, a before."""
    registers = [2, 3, 4, 5]
    steps = []
    for op in (
        *(["v_cndmask_b32"] if rng.random() < 0.5 else []),
        first,
        second,
        *(["v_cndmask_b32"] if rng.random() < 0.5 else []),
    ):
        steps.append(_one(rng, op, rng.choice(registers), registers))
    return steps  # fmt: skip


def _text(step: Step, bench: Bench, gfx9_literal: int) -> list[str]:
    names = []
    before: list[str] = []
    for s, sign in zip(step.sources, step.signs):
        text = f"v{s}" if isinstance(s, int) else bench.reg(s) if not s.startswith("0x") else s
        if text.startswith("0x") and bench.chip.startswith("gfx9") and len(step.sources) > 2:
            before.append(f"s_mov_b32 s{gfx9_literal}, {text}")  # gfx9 has no literals in VOP3
            text = f"s{gfx9_literal}"
        bare = sign.strip("-")
        names.append(("-" if "-" in sign else "") + (f"|{text}|" if bare else text))
    if step.op == "v_cndmask_b32":
        names.append("s[36:37]" if bench.lanes == 64 else "s36")
    return [*before, f"{step.op} v{step.dst}, {', '.join(names)}"]


def _signed(x: np.ndarray, sign: str) -> np.ndarray:
    x = x & U32(0x7FFFFFFF) if "|" in sign else x
    return x ^ U32(0x80000000) if "-" in sign else x


def _expect(
    steps: list[Step], planes: dict[str, np.ndarray], on: np.ndarray, pick: np.ndarray
) -> tuple[list[np.ndarray], np.ndarray]:
    """v2 to v5 at the end, and the lanes in which no float operation met a NaN (which NaN it gives is not at issue here)."""
    sure = np.ones(len(on), bool)
    v = {2: planes["a"], 3: planes["b"], 4: planes["c"], 5: planes["a"]}
    for step in steps:
        args = []
        for s, sign in zip(step.sources, step.signs):
            x = (
                v[s]
                if isinstance(s, int)
                else planes[s]
                if not s.startswith("0x")
                else np.full(len(on), int(s, 16), U32)
            )
            args.append(_signed(x, sign))
        if step.op == "v_cndmask_b32":
            value = np.where(pick, args[1], args[0])
        elif step.ref.out[0] == "f32":
            floats = [x.view(F32) for x in args]
            sure &= ~np.isnan(floats).any(axis=0)
            with np.errstate(over="ignore", invalid="ignore"):
                value = step.ref.fn(*floats).astype(F32).view(U32)
        else:
            value = step.ref.fn(*args).astype(U32)
        v[step.dst] = np.where(on, value, v[step.dst])
    return [v[k] for k in (2, 3, 4, 5)], sure


def _lane_bits(mask: int, lanes: int) -> np.ndarray:
    return np.array([mask >> i & 1 for i in range(lanes)], bool)


def check(chip: str, host: str, seed: int, programs: list[list[Step]]) -> None:
    """Each program under each mask; v2 to v5 start as the planes a, b, c, a, and are compared afterwards."""
    bench = Bench(chip, {"a": 1, "b": 1, "c": 1})
    cases = []
    for steps in programs:
        before = [f"v_mov_b32 v{r}, {bench.reg(p)}" for r, p in ((2, "a"), (3, "b"), (4, "c"), (5, "a"))]
        lines = [line for k, step in enumerate(steps) for line in _text(step, bench, 44 + k)]
        cases.append((bench.case(lines, before, dwords=4), steps, lines))
    run = bench.launch(host_cpu=host)
    lanes = bench.lanes
    numbers = np.random.default_rng(seed)
    planes = {p: numbers.integers(0, 2**32, lanes, np.uint32) for p in "abc"}
    for mask in MASKS[lanes]:
        out = run(planes, mask, PICK[lanes])
        on, pick = _lane_bits(mask, lanes), _lane_bits(PICK[lanes], lanes)
        for at, steps, lines in cases:
            wants, sure = _expect(steps, planes, on, pick)
            for k, want in enumerate(wants):
                np.testing.assert_array_equal(
                    out[at + k][sure], want[sure], err_msg=f"v{2 + k} of {lines}, EXEC {mask:#x}, {host}"
                )


def _pairs(chip: str) -> list[tuple[str, str]]:
    names = [n for n in BITWISE if n in REFERENCE and n not in _CHIPS[chip]]
    return [(a, b) for a in names for b in names]


@thinned_rows(3, "host", HOSTS)
def test_bit_selects(host: str) -> None:
    """v_bfi_b32 with a constant mask (copysign, say) of a float result into each register, its sources and others; then a select
    from it and another register."""
    mul, bfi, select = (REFERENCE[n] for n in ("v_mul_f32", "v_bfi_b32", "v_cndmask_b32"))
    programs = []
    for literal in LITERALS[:3]:
        for x, y in permutations((2, 3, 4), 2):
            for dst in (2, 3, 5):
                start = Step("v_mul_f32", mul, x, [x, "c"], ["", ""])
                first = Step("v_bfi_b32", bfi, dst, [hex(literal), x, y], [""] * 3)
                for other in (x, y) if dst == 5 else (3,):
                    programs.append([start, first, Step("v_cndmask_b32", select, 4, [dst, other], ["", ""])])
    check("gfx1100", host, 1, programs)


@pytest.mark.slow
@thinned(2, ("seed", seeds.some(4)), ("chip", ["gfx942", "gfx1100"]), ("host", HOSTS))
def test_all_pairs(host: str, chip: str, seed: int) -> None:
    rng = random.Random(seed)
    check(chip, host, seed, [_steps(rng, a, b) for a, b in _pairs(chip)])


@pytest.mark.parametrize("host", HOSTS[:1])
def test_halves_without_conversions_of_the_host(host: str) -> None:
    """x86-64-v2 converts f16 by a function: every f16 to f32 and back, and what rounds between; atomics of f16 link."""
    bench = Bench("gfx942", {"h": 1, "f": 1})
    wide = bench.case([f"v_cvt_f32_f16 v2, {bench.reg('h')}", f"v_cvt_f16_f32 v3, {bench.reg('f')}"])
    run = bench.launch(host_cpu=host)
    numbers = np.random.default_rng(3)
    edges = np.concatenate([np.arange(0, 65536, 89), [0x7C00, 0xFC00, 1, 0x3FF, 0x400, 0x7BFF, 0x7E00]]).astype(
        np.uint16
    )
    for k in range(0, len(edges) - 64, 64):
        half = edges[k : k + 64]
        exact = half.view(np.float16).astype(F32)
        with np.errstate(all="ignore"):
            between = (exact.astype(np.float64) * (1 + numbers.uniform(-1, 1, 64) * 2.0**-11)).astype(F32)
        out = run({"h": half.astype(np.uint32), "f": between})
        with np.errstate(all="ignore"):
            narrow = between.astype(np.float16)
        np.testing.assert_array_equal(out[wide].view(F32), exact)
        np.testing.assert_array_equal((out[wide + 1] & 0xFFFF).astype(np.uint16).view(np.float16), narrow)
