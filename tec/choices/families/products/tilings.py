"""Tilings of products on matrix units: which are legal on a chip, and what each should cost.

A work-group of some wavefronts computes a tile of C, a step of k at a time. The cost is the largest of matrix work, traffic of shared memory (both on full
or idle compute units) and traffic of global memory, which they share.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

from ....ir.dtype import dtype_info
from ....ir.matrix import MatrixInstr
from ....ir.passes.pipeline.slots import MAX_REGISTER_BYTES
from ....records import dataclass
from ....target import Target, l2_gbps, latency_ns, level_gbps
from ....te import intrin
from ... import rules
from ...parts import grid, needs
from ...parts.ends import PIECE
from ...rules import figures
from . import narrow_loads, tile_order
from .outlines import DRAFTS, Outline

PIECE_BYTES = narrow_loads.PIECE_BYTES

_CALLED = {"m": "rows", "n": "columns", "k": "step"}  # what parameters of the template are called


@dataclass(frozen=True)
class Tiling:
    """Rows and columns of C of a work-group, its wavefronts along them, k of a step, and the instruction's shape."""

    m: int
    n: int
    k: int
    waves_m: int
    waves_n: int
    instr_m: int
    instr_n: int
    instr_k: int
    swizzle: bool = False  # the tiles in shared memory, in place of padding them
    stages: int = 1  # of software pipelining: 0 none, 1 the next step in registers, 2 and more in shared memory
    prefetch_distance: int = 1  # with one stage: steps on their way in registers
    # Tiles go by bands of so many rows of tiles, those that follow each other on one die; 0 row by row.
    group_m: int = 0
    interleave: bool = False  # loads and stores of a step between its sums (see `ir.passes.pipeline.leaves`)
    slice_k: int = 1  # wavefronts that have one part of the tile, each with its own part of the sum; a step is as many steps side by side
    # Half of the wavefronts come first where two share a vector unit (see `ir.notes.SoftwarePipeline`).
    ping_pong: bool = False
    direct_to_lds: bool = False  # with two slots: loads go straight into shared memory, and no register waits for them

    @classmethod
    def of(cls, choice: Mapping[str, Any]) -> Tiling:
        """A choice of the template as a tiling."""
        sizes = dict(zip(("instr_m", "instr_n", "instr_k"), map(int, choice["instruction"].split("x"))))
        fields: dict[str, Any] = {f: sizes.get(f) or choice[_CALLED.get(f, f)] for f in cls.__dataclass_fields__}
        return cls(**fields)

    def parameters(self) -> dict[str, Any]:
        """The same as the template's parameters; where the sum is in parts of a second kernel is not said."""
        own = {_CALLED.get(f, f): getattr(self, f) for f in self.__dataclass_fields__ if not f.startswith("instr_")}
        return {**own, "instruction": f"{self.instr_m}x{self.instr_n}x{self.instr_k}"}

    @property
    def waves(self) -> int:
        return self.waves_m * self.waves_n * self.slice_k

    @property
    def step(self) -> int:
        """Of the sum, of all wavefronts together."""
        return self.k * self.slice_k


TEMPLATE = "matrix product"  # whose rules are asked
LEAST = 16  # rows and columns of a product that a matrix unit is worth its padding for
_STORE = 1.25  # times a load's clocks that a store of 16 bytes takes of shared memory (rocprofiler-compute: 20 of 1 KiB at 64 bytes a clock)
_STEP_CLOCKS = 60  # of a step beside its work: a barrier, waiting for it, and addresses
# Rows times columns up to which loads are two steps ahead (their steps are shorter than memory's latency, and registers are left), and steps from which
# a product is worth that: it is a third copy of a step, and LLVM unrolls the loop.
_FAR, _FAR_STEPS = 64 * 64, 7
_BEYOND = 8  # of a sum in parts, one part of so many may be zeros beyond it: a tenth of the work, where parts save a half at least
_MARGIN = 0.95  # a smaller tile is taken where it should need less than this of a larger one's time: the estimate is no better than that


@dataclass(frozen=True)
class Shape:
    """A product as a tiling sees it: sizes (of symbolic ones, typical ones), the dtype or unit of its elements, and how its operands come."""

    m: int
    n: int
    k: int
    batch: int
    dtype: str
    acc: str
    padded: bool  # operands filled up with zeros to whole tiles
    guarded: bool = False  # elements under conditions
    unit: str = ""  # "tf32": float32 on a unit of 19 bits
    fixed: bool = False  # its sizes are numbers, and the sum can be shared out
    open_rows: bool = False  # of its sizes that of the rows alone is symbolic: wavefronts can share a sum
    turned: bool = False  # an operand lies along its rows or columns (see `turning`)
    parts: bool = False  # the results are sums of parts, stored in their type
    runs: tuple[int, int] = (0, 0)  # elements of A and of B that one load brings; 0: a whole piece
    along_k: tuple[bool, bool] = (True, True)  # whether A and B lie along the sum
    anywhere: bool = False  # loads may begin at any element
    distinct: tuple[float, float] = (1.0, 1.0)  # of the elements of A and of B, the share that lies apart in memory
    # Of windows in A and in B: elements along the sum from one of a window's places to the next.
    taps: tuple[int, int] = (0, 0)
    sides: tuple[int, int] = (0, 0)  # of them, the axes along which they have several places

    @property
    def bytes(self) -> int:
        """Of an element."""
        return dtype_info(self.dtype).bytes


def instructions(shape: Shape, target: Target) -> tuple[MatrixInstr, ...]:
    """The chip's instructions for the types, the largest first."""
    return _instructions(shape.unit or shape.dtype, shape.acc, target)


@lru_cache(maxsize=256)
def _instructions(dtype: str, acc: str, target: Target) -> tuple[MatrixInstr, ...]:
    known = intrin.shapes(target, dtype)
    return tuple(sorted((i for i in known if i.acc_dtype == acc), key=lambda x: -x.m * x.n))


def instr_k(i: MatrixInstr, shape: Shape) -> int:
    """k of an instruction as it is used: MFMAs take as many in a row as a 16-byte piece feeds."""
    return i.k * max(1, PIECE_BYTES // shape.bytes // i.a_elems) if i.unit == "mfma" else i.k


def steps(shape: Shape, target: Target) -> tuple[int, ...]:
    """Sizes of a step of k, best first: 128 bytes a row, 64 on RDNA, where registers are fewer."""
    most = (64 if target.chip.family.startswith("rdna") else 128) // shape.bytes
    return (most, most // 2, most // 4)


def usual(target: Target, shape: Shape) -> tuple[bool, int]:
    """(swizzle, stages): swizzled tiles are no larger than their data, and lanes that store several rows of an operand each meet in fewer banks of them (but beside what finds the places of
    windows, registers are few); copies in the background fill a second slot by themselves."""
    stores_rows = shape.turned and not any(shape.sides)
    return stores_rows or not target.chip.family.startswith("rdna"), 2 if target.chip.background_copies else 1


def why_not_outline(t: Tiling, shape: Shape) -> str | None:
    """What forbids a tile's rows, columns, wavefronts and instruction, whatever else is chosen."""
    # A tile may reach beyond the product where wavefronts share it, each with whole instructions; where parts of sums meet it has no more than there is.
    fills = t.slice_k == 1 and shape.padded and (shape.fixed or shape.open_rows)
    parts = [
        (needs.THREAD_PART if n > 1 else instr) if fills else 1
        for n, instr in ((t.waves_m, t.instr_m), (t.waves_n, t.instr_n))
    ]
    if (wrong := needs.extents((t.m, t.n), (shape.m, shape.n), (parts[0], parts[1]))) is not None:
        return wrong
    if t.m // t.waves_m % t.instr_m or t.n // t.waves_n % t.instr_n:
        return "a wavefront's part is not a whole number of instructions"
    if t.ping_pong and (t.waves_m % 2 or t.waves_m * t.waves_n < 8):
        return "half of the wavefronts along the rows come first where two share a vector unit"
    return None


def fills_wavefronts(t: Tiling, shape: Shape) -> bool:
    """Whether each wavefront has a part of a tile that is cut to the product's rows and columns."""
    sides = ((t.m, shape.m, t.waves_m), (t.n, shape.n, t.waves_n))
    return all(min(tile, there) > tile - tile // waves for tile, there, waves in sides)


def in_parts(k: int, parts: int, step: int, target: Target) -> bool:
    """Whether a sum can be made in parts of whole steps. Where loads are no copies in the background they stand under conditions, and the last part may have
    fewer: all parts have a step, and few are beyond the sum."""
    if target.chip.background_copies:
        return k % (parts * step) == 0
    return -(-k // (parts * step)) * parts * step <= k + min(k // _BEYOND, step * parts)


def why_not(t: Tiling, shape: Shape, target: Target) -> str | None:
    """Why a tiling does not fit a product on the chip; None where it does."""
    if (wrong := why_not_outline(t, shape)) is not None:
        return wrong
    if t.k % t.instr_k:
        return "a step is not a whole number of instructions"
    if t.slice_k > 1 and not in_parts(shape.k, t.slice_k, t.k, target):
        return f"a sum of {shape.k} is not {t.slice_k} parts of whole steps of {t.k}"
    if not shape.padded and shape.k % t.k:
        return f"a step does not divide the sum of {shape.k}, and the operands are not padded"
    threads, piece = t.waves * target.wavefront_size, PIECE_BYTES // shape.bytes
    if threads > target.max_threads:
        return f"{threads} threads"
    registers = t.m * t.n * t.slice_k // threads * dtype_info(shape.acc).bytes // 4
    wrong = needs.first(
        needs.dealt((t.m * t.step // piece, t.n * t.step // piece), threads, "pieces"),
        _meets_whole(t, threads),
        needs.shared_memory(max(_ring(t, shape), _meeting(t, shape)), target.lds_bytes),
        needs.sums(registers, (target.chip.vgprs + 1) // 2),
    )
    if wrong is not None:
        return wrong
    slotted = t.stages == 2 and not target.chip.background_copies
    if t.prefetch_distance > 1 and (
        not (t.stages == 1 or slotted)
        or (t.m + t.n) * t.step * shape.bytes // threads * t.prefetch_distance > MAX_REGISTER_BYTES
    ):
        return "registers hold the steps ahead with one slot alone, on AMD with two, and few bytes of them"
    if t.direct_to_lds and (t.stages < 2 or t.slice_k > 1 or not t.swizzle):
        return "loads straight into shared memory go into two slots of swizzled tiles that wavefronts share"
    if ((t.interleave or t.ping_pong) and not t.stages) or (t.ping_pong and t.slice_k > 1):
        return (
            "loads between sums and wavefronts that come first are for pipelines, the latter of those that share no sum"
        )
    if t.m * t.n >= 128 * 128 and target.chip.family.startswith("rdna") and shape.padded:
        if shape.guarded or shape.m % t.m or shape.n % t.n or shape.k % t.k:
            return "with guards it would need more registers than there are"
    if t.group_m and -(-shape.m // t.m) % t.group_m:
        return f"the tiles are not whole bands of {t.group_m} rows"
    return None


def _ring(t: Tiling, shape: Shape) -> int:
    """Bytes of shared memory of the tiles of all steps under way."""
    row = t.k + (0 if t.swizzle else PIECE_BYTES // shape.bytes)
    return (t.m + t.n) * row * t.slice_k * shape.bytes * max(1, t.stages)


def _meeting(t: Tiling, shape: Shape) -> int:
    """Bytes of shared memory where the parts of sums meet."""
    return t.slice_k * t.m * (t.n + PIECE) * dtype_info(shape.acc).bytes if t.slice_k > 1 else 0


def _meets_whole(t: Tiling, threads: int) -> str | None:
    """Threads that add up a piece each do so in one round, or in whole rounds of all: what a last round has beyond the tile would be rows that are multiplied as well."""
    pieces = t.m * t.n // PIECE
    return needs.dealt((pieces,), threads, "sums") if t.slice_k > 1 and pieces > threads else None


def drafts(shape: Shape, target: Target) -> Iterator[Tiling]:
    """For each of the usual tiles the one with the best instruction and the longest step that fit it."""
    least = LEAST // 2 if target.machine.priced_by_model and shape.padded and shape.fixed else LEAST
    if shape.m < least or shape.n < least or shape.k < LEAST // 2:
        return
    swizzle, usual_stages = usual(target, shape)
    weave, known = interleaves(target), figures.of(TEMPLATE, target)
    # Of sums that other work stands between the small ones are better: more places between, as many multiply-adds a clock ("mfma_16x16 instructions typically
    # outperform mfma_32x32", ROCm's guide to Triton; `rules/figures.jsonl`).
    # Of one size the one with the longest sum has the chip's newest, twice the rate (gfx950).
    units = instructions(shape, target)
    if weave:
        units = tuple(sorted(units, key=lambda i: (i.m * i.n, -i.k)))
    for o in outlines(shape, target):
        # Small tiles wait for their operands: a third slot halves that. Large ones are better off with two.
        stages = o.stages or usual_stages + (usual_stages > 1 and o.m * o.n <= known["third_slot_below"])
        fitting = (
            t
            for i in units
            for step in o.steps(steps(shape, target))
            if not o.registers or _fits_registers(o, i, step, shape, units)
            for near in [
                Tiling(
                    o.m, o.n, step, o.waves_m, o.waves_n, i.m, i.n, instr_k(i, shape), swizzle, stages, interleave=weave, ping_pong=o.ping_pong,
                    direct_to_lds=o.direct_to_lds,
                )
            ]
            for t in (*(() if o.near else _far(near, shape, target)), near)
            if why_not(t, shape, target) is None and (o.held == 1 or held(t, shape, target) >= o.held)
            # What the last step has beyond the sum, and instructions alone would not have, is a quarter of it at most.
            if (-shape.k % step - -shape.k % t.instr_k) * 4 <= shape.k or step == t.instr_k
        )  # fmt: skip
        found = next(fitting, None)
        if found is not None:
            yield _in_order(found, shape, target)
    if (shape.fixed or shape.open_rows) and not shape.parts:
        yield from _shared(shape, target, [i for i in units if i.m * i.n == LEAST * LEAST])


def _shared(shape: Shape, target: Target, units: Sequence[MatrixInstr]) -> Iterator[Tiling]:
    """Tiles whose sums some wavefronts share, where rules say so and units have few of them: with more there are others to change to while one waits."""
    swizzle, _ = usual(target, shape)
    if "shared_groups" not in figures.of(TEMPLATE, target):
        return
    for told in rules.preferred(TEMPLATE, target, _features(shape)):
        shared = itertools.product(told.get("shared", ()), zip(told.get("slice_k", ()), told.get("least_steps", ())))
        for (m, n, high), (slices, least) in shared:
            for i, step in itertools.product(units, steps(shape, target)[:2]):
                t = Tiling(
                    m, n, step, high, 1, i.m, i.n, instr_k(i, shape), swizzle, 1, 2, interleave=interleaves(target), slice_k=slices
                )  # fmt: skip
                long = shape.k >= least * t.step  # else there is more to add up at the end than was saved
                if long and has_few(t, shape, target) and why_not(t, shape, target) is None:
                    yield _in_order(t, shape, target)
                    break


def has_few(t: Tiling, shape: Shape, target: Target) -> bool:
    """Whether units have so few tiles that wavefronts had better share the sums of one."""
    return groups(t, shape) <= figures.of(TEMPLATE, target)["shared_groups"] * target.machine.units


def _in_order(t: Tiling, shape: Shape, target: Target) -> Tiling:
    """The tiling with its work-groups in the order that asks for least beyond the L2s, where that sets the time and the number of tiles is known. Elsewhere neighbours on a die
    only wait longer, since all of them wait for the one that asked first."""
    machine = target.machine
    if machine.dies == 1 or not shape.fixed or not machine.priced_by_model:
        return t
    together = held(t, shape, target)
    share = figures.of(TEMPLATE, target)["beyond_share" if min(shape.distinct) == 1 else "windows_beyond_share"]
    if tile_order.beyond_seconds(t, shape, machine, together) < share * seconds(t, shape, target)[0]:
        return t
    return tile_order.ordered(t, shape, machine, together)


def outlines(shape: Shape, target: Target) -> Iterator[Outline]:
    """What drafts are made of: the usual tiles, behind the largest of them those of rules, before it those that are larger still."""
    first, *rest = (Outline(*tile) for tile in DRAFTS)
    ruled: dict[tuple[int, ...], Outline] = {}
    for told in rules.preferred(TEMPLATE, target, _features(shape)):
        for tile in told.get("tiles", ()):
            ruled.setdefault(tuple(tile), Outline(*tile, **{k: v for k, v in told.items() if k != "tiles"}))
    larger = [o for o in ruled.values() if o.m * o.n > first.m * first.n]
    yield from (*larger, first, *(o for o in ruled.values() if o not in larger), *rest)


def _features(s: Shape) -> dict[str, Any]:
    """What rules may ask of a product; `moved`: bytes of operands and results."""
    moved = s.batch * (s.m * s.k + s.n * s.k + s.m * s.n) * s.bytes
    return {
        "m": s.m, "n": s.n, "k": s.k, "batch": s.batch, "fixed": s.fixed, "summed": s.fixed or s.open_rows, "guarded": s.guarded, "turned": s.turned, "parts": s.parts, "moved": moved
    }  # fmt: skip


def _fits_registers(o: Outline, i: MatrixInstr, step: int, shape: Shape, units: Sequence[MatrixInstr]) -> bool:
    """Whether an instruction is the chip's newest of its size, and leaves a thread the registers that a rule gives it: beside the sums elements of a part of a step
    and of the next, and what comes for the next step."""
    threads = o.waves_m * o.waves_n * i.wave
    elements = (o.m // o.waves_m + o.n // o.waves_n) * instr_k(i, shape) * shape.bytes // i.wave // 4
    coming = (o.m + o.n) * step * shape.bytes // threads // 4
    fits = o.m * o.n // threads + 2 * elements + coming <= o.registers
    return fits and i.k == max(other.k for other in units if (other.m, other.n) == (i.m, i.n))


def groups(t: Tiling, shape: Shape) -> int:
    """Work-groups, one a tile."""
    return grid.count((t.m, t.n), (shape.m, shape.n), shape.batch)


def interleaves(target: Target) -> bool:
    """Whether a default has its loads and stores between its sums: on CDNA, where LLVM keeps that order (`keep_order`)."""
    return target.chip.family.startswith("cdna")


def _far(t: Tiling, shape: Shape, target: Target) -> Iterator[Tiling]:
    """The tile with loads two steps ahead, where a default has them; with two slots first, where no other work-group could have the second and registers for
    the next step can be filled behind a barrier (`ir.passes.pipeline.leaves.carried`)."""
    if not _is_far(t, shape, target):
        return
    alone = groups(t, shape) <= target.machine.units and not shape.guarded
    if t.interleave and alone and t.m * t.n > _FAR and t.k // t.instr_k % 2 == 0:
        yield replace(t, stages=2, prefetch_distance=2)
    yield replace(t, prefetch_distance=2)


def _is_far(t: Tiling, shape: Shape, target: Target) -> bool:
    """Whether a default starts its loads two steps ahead: where the work of a step is short beside the way from memory. A search may ask for it anywhere."""
    if target.chip.background_copies or -(-shape.k // t.k) < _FAR_STEPS:
        return False
    if not t.interleave or t.m * t.n <= _FAR:
        return t.m * t.n <= _FAR
    machine = target.machine
    together = min(-(-groups(t, shape) // machine.units), held(t, shape, target))
    work = together * t.m * t.n * t.step / machine.macs(shape.unit or shape.dtype)
    return work < figures.of(TEMPLATE, target)["far_work"] * latency_ns(machine, "memory") * 1e-3 * machine.clock_mhz


def cheapest(shape: Shape, target: Target) -> Tiling | None:
    """The draft that should take the least time, of nearly equal ones the largest; None where no tiling fits."""
    best: tuple[float, Tiling] | None = None
    for t in drafts(shape, target):
        cost = seconds(t, shape, target)[0]
        if best is None or cost < _MARGIN * best[0]:
            best = cost, t
    return best[1] if best else None


def seconds(t: Tiling, shape: Shape, target: Target) -> tuple[float, str]:
    """The time of the product on the target's machine, and what limits it."""
    machine = target.machine
    macs = t.m * t.n * t.step / machine.macs(shape.unit or shape.dtype)
    reads = t.waves * (t.m // t.waves_m + t.n // t.waves_n)
    lds = (reads + _STORE * (t.m + t.n) * t.slice_k) * t.k * shape.bytes / machine.scratch_bytes_a_clock
    # A unit works on whole work-groups: with one more than there are units, it takes as long as with twice as many.
    rounds = -(-groups(t, shape) // machine.units)
    if machine.priced_by_model:
        lds += (
            narrow_loads.singles(t, shape, target, figures.of(TEMPLATE, target))
            * t.slice_k
            / machine.scratch_bytes_a_clock
        )
        return _amd_seconds(t, shape, target, macs, lds, rounds)
    count = -(-shape.k // t.step)
    gbps = l2_gbps(machine)
    memory = groups(t, shape) * count * (t.m + t.n) * t.step * shape.bytes / (gbps * 1e9)
    step, limit = max((macs, "matrix"), (lds, "LDS"))
    step = (step + _STEP_CLOCKS) / ((machine.matrix_clock(shape.dtype) or machine.clock_mhz) * 1e6)
    if t.stages > 1:
        known = figures.of(TEMPLATE, target)
        # What was asked for a step before comes so late, where few work-groups share a unit.
        if shape.guarded:
            alone = known["guarded_ns"] * 1e-9 / (t.stages - 1) / min(rounds, held(t, shape, target))
        else:
            # Work-groups that share a unit wait side by side; the rows of their tiles count.
            shared = (t.stages - 1) * min(rounds, held(t, shape, target))
            alone = (known["plain_ns"] / shared + known["row_ns"] * (t.m + t.n)) * 1e-9
        if alone > step:
            step, limit = alone, "latency"
    return max((rounds * count * step, limit), (memory, "memory"))


def _amd_seconds(t: Tiling, shape: Shape, target: Target, macs: float, lds: float, rounds: int) -> tuple[float, str]:
    """The same for AMD; macs, lds: clocks of a step's multiply-adds and of its traffic of shared memory."""
    machine, known = target.machine, figures.of(TEMPLATE, target)
    count = -(-shape.k // t.step)
    wait = latency_ns(machine, "memory") * 1e-9
    all_groups, together = groups(t, shape), min(rounds, held(t, shape, target))
    bytes_ = (t.m + t.n) * t.step * shape.bytes
    results = shape.batch * shape.m * shape.n * (dtype_info(shape.acc).bytes if shape.parts else shape.bytes)
    apart = shape.m * shape.distinct[0] + shape.n * shape.distinct[1]
    least = (shape.batch * apart * shape.k * shape.bytes + results) / (level_gbps(machine, "memory") * 1e9)
    peak = machine.clock_hz
    asked, issue, first = narrow_loads.brought(t, shape, target, figures.of(TEMPLATE, target))
    path = (bytes_ + asked) / (level_gbps(machine, "L1") * 1e9 / machine.units) * peak  # clocks of a step's loads
    lines = tile_order.touched(t, shape, machine, together)
    from_l2 = all_groups * count * (t.m * lines[0] + t.n * lines[1]) * t.step * shape.bytes
    l2 = from_l2 / (level_gbps(machine, "L2") * 1e9)
    beyond = tile_order.beyond_seconds(t, shape, machine, held(t, shape, target))
    own = max(1.0, target.chip.simds / t.waves)  # a wavefront alone has one vector unit's lanes and matrix pipe
    mhz, found = float(machine.clock_mhz), (0.0, "")
    for _ in range(3):
        # All clocks are the unit's, and the harder it works the slower it goes; memory's latency stays.
        clock = mhz * 1e6
        step, limit = max(
            ((macs + _STEP_CLOCKS) / clock, "matrix"), ((lds + _STEP_CLOCKS) / clock, "LDS"), (path / clock, "L1"),
            ((issue + _STEP_CLOCKS) / clock, "issue"),
        )  # fmt: skip
        # A work-group that has its unit for itself waits in each step for what it asked for a step before (or in this one), which then comes
        # through the L1; and at its start and end for arguments, the first tiles, the way of the results.
        work, chain = max(macs * own, lds, issue * own) / clock, known["chain_clocks"] / clock
        if t.slice_k > 1 and t.waves_m * t.waves_n == 1:
            alone = max(work, (wait + path / clock) / t.prefetch_distance, chain)
        else:
            alone = (max(work, wait / t.prefetch_distance, chain) if t.stages else work + wait) + (
                first + (path if t.prefetch_distance == 1 else known["later" if t.stages == 1 else "slotted"] * path)
            ) / clock
        if alone / together > step:
            step, limit = alone / together, "latency"
        # And at the end the last tiles' results.
        start = 3 * wait + results / rounds / (level_gbps(machine, "memory") * 1e9)
        found = max(
            (start + rounds * count * step, limit),
            (start + l2 * peak / clock, "L2"),
            (start + beyond, "MALL"),
            (start + least, "memory"),
        )
        busy = all_groups * count * macs / (machine.units * clock * found[0])
        mhz = machine.held_mhz(shape.dtype, busy, 0.05, least * level_gbps(machine, "memory") * 1e-3 / found[0])
    return found


def held(t: Tiling, shape: Shape, target: Target) -> int:
    """Work-groups that a unit holds at once, by their tiles in shared memory and by registers: sums, as many again for what comes and goes."""
    chip, threads = target.chip, t.waves * target.wavefront_size
    registers = min(chip.vgprs, 32 + 2 * t.m * t.n * t.slice_k // threads * dtype_info(shape.acc).bytes // 4)
    lds = _ring(t, shape) + _meeting(t, shape)
    if lds > target.lds_bytes:  # then they lie over each other (`ir.passes.plan_storage`)
        lds = max(_ring(t, shape), _meeting(t, shape))
    waves, _ = chip.occupancy(registers, 0, t.waves, target.wavefront_size)
    by_lds = (chip.unit_lds_bytes or target.lds_bytes) // lds
    return max(1, min(waves * chip.simds // t.waves, by_lds))


def turning(t: Tiling, rows: int, run: int, dtype: str, target: Target) -> tuple[int, int] | None:
    """The block (along the rows, along k) of a tile that a thread loads along the rows and stores along k, so that shared memory
    holds what the lanes read side by side; None where there is none that all threads have as many of. `run`: elements
    along the rows that lie side by side; single ones are loaded for neighbouring rows by neighbouring threads, a piece of the sum each."""
    size = dtype_info(dtype).bytes
    threads = t.waves // t.slice_k * target.wavefront_size
    if size > 4 or rows * t.k % threads:
        return None
    own = rows * t.k // threads
    if run == 1 and narrow_loads.gathers(t, rows, size, target):
        return 1, PIECE_BYTES // size
    along = 8 // size  # 8 bytes of shared memory at once
    for block in (16 // size, 8 // size, 4 // size):
        if run % block == 0 and rows % block == 0 and t.k % along == 0 and own % (block * along) == 0:
            return block, along
    return None
