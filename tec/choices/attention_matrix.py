"""Attention on matrix units in one kernel: scores, weights and sums of a wavefront's queries stay in its registers.

A work-group has some wavefronts, each with `rows` queries of a head; blocks of `keys` keys and values pass through shared memory, which all of
them read. For each block: scores by the matrix unit; scale, soft cap, biases and masks where they lie; the running maximum, by shuffles between the
lanes that share a query; weights in base 2; what was summed before scaled; weights as the operand of the second product (`attention_fragments`
says why they need not leave the registers). Sums of weights are kept by each lane, and added up at the end.

Masks are applied under a condition of the whole work-group: most blocks of a causal attention need none. The blocks' loop is a software pipeline.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import cached_property
from typing import Any, ClassVar

from .. import te
from ..ir.dtype import dtype_info
from ..ops.forms import Form
from ..target import Target
from ..te import Tensor, intrin
from . import loops
from .attention_fragments import Fragments
from .attention_grid import Grid
from .attention_loops import Kernel
from .attention_wave import PIECE_BYTES, Wave, sizes
from .group import Group
from .space import Choice, Cost

FEW = 16  # queries up to which the heads of a group go into one tile
OPEN = 2048  # queries and keys, for choices where their number is open
LEAST_ROWS = 32  # below, tiles of a matrix unit are mostly empty: plain vector code reads the keys as fast
REGISTERS_BESIDE = 56  # of a lane: operands on their way, addresses, masks (read off what LLVM makes of the loops)


def fragments(dtype: str, target: Target) -> dict[str, Fragments]:
    """The chip's instructions for a type by their shape, the largest first; k is what a lane reads 16 bytes at once for."""
    bytes_ = dtype_info(dtype).bytes
    found: dict[str, Fragments] = {}
    for i in sorted(intrin.shapes(target, dtype), key=lambda x: -x.m * x.n):
        if i.acc_dtype == "float32":
            k = i.k * max(1, PIECE_BYTES // bytes_ // i.a_elems) if i.unit == "mfma" else i.k
            found.setdefault(f"{i.m}x{i.n}", Fragments(replace(i, k=k)))
    return found


class MatrixAttention(loops.LoopForm):
    """`waves` wavefronts of `rows` queries each by a block of `keys` a work-group; blocks of keys over `splits` work-groups."""

    template: ClassVar[str] = "matrix attention"

    def __init__(self, group: Group, target: Target, form: Form, carriers: dict[int, Tensor]):
        super().__init__(group, target, form, carriers)
        self.dtype = form.inputs[0].dtype
        self.units = fragments(self.dtype, target)
        self.g = Kernel.sizes_of(form)
        self.parameters = {
            "waves": (4, 8, 2, 1), "rows": (32, 16, 64), "keys": (64, 32, 128), "unit": tuple(self.units), "stages": (1, 2, 0),
            "splits": (1, 2, 4, 8, 16, 32),
        }  # fmt: skip

    @property
    def fits_at_all(self) -> bool:
        """Whether the chip's unit takes the type, rows of operands are whole pieces, and there are queries enough."""
        g, piece = self.g, PIECE_BYTES // dtype_info(self.dtype).bytes
        if not self.units or g.size % piece or g.value_size % piece or max(g.size, g.value_size) > 256:
            return False
        return self.rows[0] >= LEAST_ROWS and next(self.all, None) is not None

    @cached_property
    def rows(self) -> tuple[int, bool]:
        """Queries of one tile's head, or of its group of heads where they are few; `OPEN` where their number is open."""
        s = self.g.queries
        if not isinstance(s, int):
            return OPEN, False
        folded = s <= FEW and self.g.group != 1
        return (s * self.g.group if folded else s), folded

    def registers(self, choice: Choice) -> int:
        """Of a lane: sums, scores, queries and what is on its way to shared memory."""
        f, wave = self.units[choice["unit"]], self.target.wavefront_size
        size, value_size = sizes(f, self.g)
        bytes_ = dtype_info(self.dtype).bytes
        rows, keys = choice["rows"], choice["keys"]
        queries = rows * size * f.instr.copies * bytes_ // 4
        moving = keys * (size + value_size) * bytes_ // 4 // choice["waves"] if choice["stages"] == 1 else 0
        return (rows * (value_size + keys) + queries + moving) // wave + REGISTERS_BESIDE

    def why_not(self, choice: Choice) -> str | None:
        f = self.units[choice["unit"]]
        if choice["rows"] % f.queries:
            return "a wavefront's queries are no whole number of tiles"
        if choice["keys"] % max(f.instr.k, f.keys):
            return "a block is no whole number of tiles"
        if choice["waves"] * self.target.wavefront_size > self.target.max_threads:
            return "a work-group has too many threads"
        # With more than four wavefronts, two share a SIMD's registers, and some wait while others work.
        have = self.most_registers // (2 if choice["waves"] > 4 and self.target.kind == "rocm" else 1)
        need = self.registers(choice)
        if need > have:
            return f"{need} registers of a lane, there are {have}"
        lds = Wave.shared_bytes(f, self.g, self.dtype, choice["keys"]) * max(1, choice["stages"])
        if lds > self.target.lds_bytes:
            return f"tiles take {lds} bytes of shared memory, there are {self.target.lds_bytes}"
        return None

    @property
    def most_registers(self) -> int:
        """What a lane can have: CDNA's matrix units also take accumulation registers."""
        chip = self.target.chip
        return 512 if chip.family.startswith("cdna") else chip.vgprs

    @property
    def default(self) -> Choice:
        return min(self.drafts(), key=lambda c: self.cost(c).seconds)

    def drafts(self) -> Iterator[Choice]:
        stages = 2 if self.target.kind == "cuda" else 1
        for choice in self.all:
            if choice["stages"] == stages and choice["splits"] == self._splits(choice):
                yield choice

    def _splits(self, choice: Choice) -> int:
        """So many that two work-groups a compute unit have four blocks of keys each at least."""
        rows, folded = self.rows
        heads = self.g.key_heads if folded else self.g.heads
        batch = self.g.batch if isinstance(self.g.batch, int) else 1
        length = self.g.keys if isinstance(self.g.keys, int) else OPEN
        groups = batch * heads * -(-rows // (choice["rows"] * choice["waves"]))
        wanted = min(2 * self.target.machine.units // groups, length // (4 * choice["keys"]))
        return min(32, 1 << max(0, wanted.bit_length() - 1))

    def cost(self, choice: Choice) -> Cost:
        """Matrix work or vector work of a step, whichever is more where wavefronts share a SIMD, else both, by how many work-groups there are."""
        g, machine = self.g, self.target.machine
        f = self.units[choice["unit"]]
        rows, folded = self.rows
        heads = g.key_heads if folded else g.heads
        batch = g.batch if isinstance(g.batch, int) else 1
        length = g.keys if isinstance(g.keys, int) else OPEN
        tile = choice["rows"] * choice["waves"]
        groups = batch * heads * -(-rows // tile) * choice["splits"]
        steps = -(-length // (choice["keys"] * choice["splits"]))
        size, value_size = sizes(f, g)
        matrix = tile * choice["keys"] * (size + value_size) / machine.macs(self.dtype)
        # A weight takes some ten operations, four of them for an exponential's quarter rate; a sum is scaled by one.
        vector = tile * (10 * choice["keys"] + value_size) / machine.macs("float32", matrix=False)
        bytes_ = dtype_info(self.dtype).bytes
        reads = choice["waves"] * choice["rows"] // f.queries * choice["keys"] * (size + value_size) * bytes_
        lds = reads * f.instr.copies / machine.scratch_bytes_a_clock
        have = self.most_registers
        lds_bytes = Wave.shared_bytes(f, g, self.dtype, choice["keys"]) * max(1, choice["stages"])
        waves_there = 4 * max(1, have // self.registers(choice))  # of a unit's four SIMDs
        resident = max(1, min(waves_there // choice["waves"], self.target.lds_bytes // lds_bytes))
        overlapped = resident * choice["waves"] >= 8
        clocks = max(matrix, vector, lds) if overlapped else max(matrix + vector, lds)
        # A barrier and its wait are covered where another work-group is there.
        clocks += 60 if resident > 1 else 300
        rounds = -(-groups // machine.units)
        seconds = rounds * (steps * clocks + 600) / ((machine.matrix_clock_mhz or machine.clock_mhz) * 1e6)
        return Cost(seconds + (1 + (choice["splits"] > 1)) * machine.launch_us * 1e-6, "matrix")

    def tensors(self, choice: Choice) -> list[Tensor]:
        form, folded, f = self.form, self.rows[1], self.units[choice["unit"]]

        def body(ib: Any, sources: list[Any], results: list[Any]) -> None:
            k = Kernel.of(form, ib, sources, results[0])
            shape = (self.target.wavefront_size, choice["waves"])
            grid = Grid(k, folded, choice["rows"] * choice["waves"], choice["splits"], shape)
            grid.launch(lambda of, first, tx, ty: Wave(k, f, choice, of, first, tx, ty))

        out = form.outputs[0]
        return loops.extern("attention", list(form.inputs), [(out.shape, out.dtype)], body)
