"""Attention on matrix units in one kernel: scores, weights and sums of a wavefront's queries stay in its registers.

A work-group has some wavefronts, each with `rows` queries of a head; blocks of `keys` keys and values pass through shared memory, which all of
them read. For each block: scores by the matrix unit; scale, soft cap, biases and masks where they lie; the running maximum, by shuffles between the
lanes that share a query; weights in base 2; what was summed before scaled; weights as the operand of the second product (`fragments`
says why they need not leave the registers). Sums of weights are kept by each lane, and added up at the end.

Masks are applied under a condition of the whole work-group: most blocks of a causal attention need none. The blocks' loop is a software pipeline.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import ClassVar

from ....ir.dtype import dtype_info
from ....target import Target, latency_ns, level_gbps
from ....target.lds import lds_phase
from ....te import intrin
from ....te.like import Index
from ...parts import needs
from ...space import Choice, Cost
from .fragments import Fragments
from .grid import Grid
from .kernel import Kernel, SplitAttention
from .tiles import PIECE_BYTES, shared_bytes, sizes
from .wave import Wave

# Of the keys. On AMD GPUs as many as the work-groups call for: with powers of two alone units have one or two of them each where all could have two.
SPLITS = (1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 20, 24, 28, 32)
# Of a head: its sums for 16 queries are 64 registers of a lane, and there is no work-group that shares them.
MOST_SIZE = 256
# Of a step's barriers: where another work-group works meanwhile, where none does.
BARRIER_CLOCKS, ALONE_CLOCKS = 60, 300
_COPY = 12  # operations of a thread for 16 bytes that it copies into shared memory, most of them for the place
_THREADS_BESIDE = 128  # of a work-group, of which two a unit keep enough keys under way
LATENCY_CLOCKS = 900  # of a load from memory that nothing was done in


def fragments(dtype: str, target: Target) -> dict[str, Fragments]:
    """The chip's instructions for a type by their shape, the largest first; k is what a lane reads 16 bytes at once for."""
    bytes_ = dtype_info(dtype).bytes
    found: dict[str, Fragments] = {}
    narrows = dtype != "bfloat16" or target.chip.narrows_bf16
    phase = lds_phase(target.chip.name, target.chip.lds_banks, "load", PIECE_BYTES)
    for i in sorted(intrin.shapes(target, dtype), key=lambda x: -x.m * x.n):
        if i.acc_dtype == "float32":
            k = i.k * max(1, PIECE_BYTES // bytes_ // i.a_elems) if i.unit == "mfma" else i.k
            found.setdefault(f"{i.m}x{i.n}", Fragments(replace(i, k=k), phase, narrows))
    return found


def takes(target: Target, dtype: str, size: Index, value_size: Index) -> bool:
    """Whether the chip's matrix units have the type, and heads are whole pieces of memory of which sums fit in registers."""
    piece = PIECE_BYTES // dtype_info(dtype).bytes
    whole = all(isinstance(n, int) and n % piece == 0 and 0 < n <= MOST_SIZE for n in (size, value_size))
    return whole and target.is_gpu and bool(fragments(dtype, target))


# Registers that an operand can name. CDNA has as many accumulation registers beside, but LLVM puts few values there that are no sums: it then asks for the
# next keys one by one and waits for each.
_NAMED = 256


class MatrixAttention(SplitAttention):
    """`waves` wavefronts of `rows` queries each by a block of `keys` a work-group; blocks of keys over `splits` work-groups."""

    template: ClassVar[str] = "matrix attention"

    def read_form(self) -> None:
        super().read_form()
        self.units = fragments(self.dtype, self.target)
        # Where heads of 256 leave AMD's units room for two wavefronts by 32 keys, there is room for four by 16, with the next step's under way.
        keys = (64, 32, 128) if self.target.chip.background_copies else (64, 32, 128, 16)
        self.parameters = {
            "waves": self.threads_up_to_limit(4, 8, 2, 1, each=self.target.wavefront_size), "rows": (32, 16, 64), "keys": keys, "unit": tuple(self.units), "stages": (1, 2, 0),
            "splits": SPLITS if self.target.machine.priced_by_model else (1, 2, 4, 8, 16, 32), "hold": (True, False),
        }  # fmt: skip

    @property
    def fits_at_all(self) -> bool:
        """Whether the chip's unit takes the type, rows of operands are whole pieces, and there are queries enough."""
        if not takes(self.target, self.dtype, self.g.size, self.g.value_size):
            return False
        rows: int = self.rows[0]
        least = self.figures["least_rows_alone" if self.is_alone else "least_rows"]
        return rows >= least and next(self.drafts(), None) is not None

    @property
    def is_wide(self) -> bool:
        """Whether sums and queries leave a SIMD of CDNA two wavefronts at most."""
        f = next(iter(self.units.values()))
        return f.instr.unit == "mfma" and dtype_info(self.dtype).bytes == 2 and self.g.size + self.g.value_size > 448

    def registers(self, choice: Choice) -> int:
        """Of a lane: sums, scores, queries where they are held, and what is on its way to shared memory."""
        f, wave = self.units[choice["unit"]], self.target.wavefront_size
        size, value_size = sizes(f, self.g)
        bytes_ = dtype_info(self.dtype).bytes
        rows, keys = choice["rows"], choice["keys"]
        queries = rows * size * f.instr.copies * bytes_ // 4 if choice["hold"] else 0
        moving = keys * (size + value_size) * bytes_ // 4 // choice["waves"] if choice["stages"] == 1 else 0
        total: int = (rows * (value_size + keys) + queries + moving) // wave + self.figures.count("registers_beside")
        return total

    def _held_registers(self, choice: Choice) -> int:
        """A work-group of two wavefronts a SIMD holds LLVM to the registers that there are."""
        is_held = self.is_wide and choice["waves"] >= 2 * self.target.chip.simds
        return self.registers(choice) - (self.figures.count("registers_spared") if is_held else 0)

    def why_not(self, choice: Choice) -> str | None:
        f = self.units[choice["unit"]]
        if choice["rows"] % f.queries or choice["keys"] % max(f.instr.k, f.keys):
            return "a wavefront's queries, or the keys of a block, are no whole number of tiles"
        chip, need, tight = self.target.chip, self.registers(choice), self._held_registers(choice)
        if need > chip.vgprs:
            return f"{need} registers of a lane, there are {chip.vgprs}"
        if chip.registers(self.target.wavefront_size)[0] // tight * chip.simds < choice["waves"]:
            return f"a unit has not the registers for {choice['waves']} wavefronts of {need}"
        return needs.shared_memory(shared_bytes(f, self.g, self.dtype, choice), self.target.lds_bytes)

    def drafts(self) -> Iterator[Choice]:
        # Copies in the background fill a second slot by themselves; where registers do not suffice for the next step, there is none under way.
        usual = 2 if self.target.chip.background_copies else 1
        undivided = list(self.legal({**self.parameters, "stages": (usual, 0), "splits": (1,)}))
        if next(iter(self.units.values())).instr.unit == "mfma":
            undivided = [c for c in undivided if self._held_registers(c) <= _NAMED] or undivided
        legal = [{**c, "splits": n} for c in undivided for n in self._divided(c)]
        most = max((c["stages"] for c in legal), default=0)
        ahead = [c for c in legal if c["stages"] == most]
        if not any(c["hold"] for c in ahead):
            # Queries in registers rather than the next step's tiles there: shared memory holds more work-groups, which work while one waits (heads of
            # 256 on gfx1201: matrix share 53 to 57 % in a model of a unit, 19 to 24 % the other way).
            ahead = [c for c in legal if c["hold"]] or ahead
        yield from ahead

    def _divided(self, choice: Choice) -> Sequence[int]:
        """Work-groups that keys may be divided over: as many as units have room for, or fewer where the price knows what a second kernel reads."""
        most = self.splits(choice["rows"] * choice["waves"], choice["keys"], self._beside(choice))
        return [n for n in SPLITS if n <= most] if self.target.machine.priced_by_model else [most]

    def _beside(self, choice: Choice) -> int:
        """Work-groups of a unit that keys are divided for: of small ones more, for each has only a block or two of keys under way."""
        beside = 2 * max(1, _THREADS_BESIDE // (int(choice["waves"]) * self.target.wavefront_size))
        return 3 * beside if self._is_uneven(choice) else beside

    def _is_uneven(self, choice: Choice) -> bool:
        """Whether the longest of a head's tiles are twice as long as the mean, as under a causal mask: in shorter parts the others fill the units beside them. Not of work-groups that
        leave a SIMD without a wavefront, which wait for shared memory more than they gain."""
        is_causal = self.form.attrs.get("right") is not None and self.queries > int(choice["rows"] * choice["waves"])
        return is_causal and bool(self.target.machine.priced_by_model) and choice["waves"] >= self.target.chip.simds

    def cost(self, choice: Choice) -> Cost:
        """Matrix work or vector work of a step, whichever is more where wavefronts share a SIMD, else both, by how many work-groups there are."""
        g, machine = self.g, self.target.machine
        f = self.units[choice["unit"]]
        tile = choice["rows"] * choice["waves"]
        groups = self.groups(tile) * choice["splits"]
        steps = -(-self.length // (choice["keys"] * choice["splits"]))
        size, value_size = sizes(f, g)
        matrix = tile * choice["keys"] * (size + value_size) / machine.macs(self.dtype)
        # A weight takes some ten operations, four of them for an exponential's quarter rate; a sum is scaled by one.
        vector = tile * (10 * choice["keys"] + value_size) / machine.macs("float32", matrix=False)
        bytes_ = dtype_info(self.dtype).bytes
        reads = choice["waves"] * choice["rows"] // f.queries * choice["keys"] * (size + value_size) * bytes_
        reads += 0 if choice["hold"] else tile * size * bytes_ * choice["keys"] // f.keys
        lds = reads * f.instr.copies / machine.scratch_bytes_a_clock
        chip, wave = self.target.chip, self.target.wavefront_size
        lds_bytes = shared_bytes(f, g, self.dtype, choice)
        waves = choice["waves"]
        by_registers = chip.occupancy(self.registers(choice), lds_bytes, waves, wave)[0] * chip.simds
        by_lds = max(1, (chip.unit_lds_bytes or self.target.lds_bytes) // lds_bytes) * waves
        resident = max(waves, min(by_registers, by_lds))  # wavefronts of a unit
        idle = chip.simds / min(chip.simds, resident)
        matrix, vector = matrix * idle, vector * idle
        alone = resident < 2 * waves  # no other work-group works while this one waits
        beside = max(1, min(resident // waves, -(-groups // machine.units)))  # work-groups of a unit at once
        clocks = max(matrix, vector, lds) if resident >= 2 * chip.simds else max(matrix + vector, lds)
        if self.is_wide:
            # A key's read that a second wavefront does not hide.
            clocks = max(clocks, matrix + self.figures["read_clocks"] * reads / waves / (wave * PIECE_BYTES))
        if "waited_reads" in self.figures:
            there, alone = beside * waves, beside == 1
            matrix, vector = (x * min(chip.simds, resident) / min(chip.simds, there) for x in (matrix, vector))
            clocks = max(clocks, self._held_up(choice, matrix, vector, lds, there))
        beside_others = self.figures["waited_barrier"] if "waited_reads" in self.figures else BARRIER_CLOCKS
        clocks += (ALONE_CLOCKS if alone else beside_others) + (0 if choice["stages"] else LATENCY_CLOCKS) / max(
            1, resident // waves
        )
        begin = 600.0
        if chip.background_copies:
            # Nothing is done while the first keys are asked for, which takes the longer the fewer threads a work-group has.
            pieces = choice["keys"] * (size + value_size) * bytes_ / PIECE_BYTES
            begin += _COPY * pieces / (wave * min(waves, chip.simds))
        pipes = (matrix / clocks, vector / clocks)
        seconds = self._rounds_seconds(choice, groups, steps, clocks, begin, max(1, resident // waves), pipes)
        if choice["splits"] > 1 and machine.priced_by_model:
            # What work-groups leave in float32 and the second kernel reads.
            parts = 2 * 4 * self.groups(1) * choice["splits"] * (g.value_size + 2)
            seconds += parts / (level_gbps(machine, "memory") * 1e9)
        return Cost(seconds + (1 + (choice["splits"] > 1)) * machine.launch_seconds, "matrix")

    def _held_up(self, choice: Choice, matrix: float, vector: float, lds: float, there: int) -> float:
        """Clocks of a step where products wait for shared memory, of so many wavefronts a unit: LLVM reads an operand where its product is, so that reads hide nothing. Each
        work-group writes the keys and values there that all of its queries read."""
        machine, chip = self.target.machine, self.target.chip
        size, value_size = sizes(self.units[choice["unit"]], self.g)
        filled = choice["keys"] * (size + value_size) * dtype_info(self.dtype).bytes  # of shared memory
        vector += _COPY * filled / PIECE_BYTES / (self.target.wavefront_size * min(there, chip.simds))
        lds += filled / machine.scratch_bytes_a_clock
        shown = self.figures["shown_alone" if there < 2 * chip.simds else "shown"]
        work = max(matrix, vector) + shown * min(matrix, vector)
        l2_bytes = level_gbps(machine, "L2") * 1e3 / machine.units / machine.clock_mhz  # a clock of a unit
        return float(max(work + self.figures["waited_reads"] * lds, filled / l2_bytes))

    def _rounds_seconds(
        self,
        choice: Choice,
        groups: int,
        steps: int,
        clocks: float,
        begin: float,
        held: int,
        pipes: tuple[float, float],
    ) -> float:
        """Of all rounds of work-groups, of which a unit holds so many. pipes: shares of a step in which the matrix and the vector pipes are busy."""
        machine, waits = self.target.machine, "waited_reads" in self.figures
        rounds: float = -(-groups // machine.units)
        together = min(held, rounds)
        if self._is_uneven(choice):
            rounds = max(1.0, groups / machine.units / 2)
        mhz: float = machine.matrix_clock(self.dtype) or machine.clock_mhz
        if waits:
            full = groups / machine.units / math.ceil(rounds)  # of the units
            mhz = machine.held_mhz(self.dtype, full * pipes[0], full * pipes[1] / 2)
        seconds = rounds * (steps * clocks + begin) / mhz * 1e-6
        if machine.priced_by_model:
            # Each step waits for keys and values that were asked for a step ago; of the work-groups of a unit that are there at once all wait together.
            wait = latency_ns(machine, "memory") * 1e-9
            if waits:
                # But for what others do meanwhile, and half of what the step itself does: LLVM asks in its middle.
                wait = max(0.0, wait - (together - 0.5) * clocks / mhz * 1e-6)
            seconds += math.ceil(rounds / held) * steps * wait
        return seconds

    def loops(self, kernel: Kernel, choice: Choice) -> None:
        f, shape = self.units[choice["unit"]], (self.target.wavefront_size, choice["waves"])
        columns = 4 if self.target.chip.loads_anywhere else 1
        grid = Grid(
            kernel,
            self.rows[1],
            choice["rows"] * choice["waves"],
            choice["splits"],
            shape,
            columns=columns,
            dies=self.target.machine.dies,
        )
        grid.launch(lambda of, first, tx, ty: Wave(kernel, f, choice, of, first, tx, ty))
