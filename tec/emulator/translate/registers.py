"""The registers of one wavefront while its kernel is translated: scalars, vectors, lane masks, and what is known of them.

Scalar registers are allocas (`%s7`, an i32) that LLVM promotes to values. Vector registers live in the wave's state (`%v3` and
`%a3` point there), one i32 a lane. Within a segment of straight code the last value of each register is kept here, by type,
and the vector registers that a later segment reads are stored at its end. `strips` has the form for 16 lanes at a time.
EXEC is the register pair s126:127.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from ..analyses.lane_patterns import STRIP
from ..context import STATE_VGPRS
from ..decode.inst import Inst, Operand
from ..errors import UnsupportedInstruction
from ..stopping import Stop
from .ops import Ops, Out
from .strip_reads import read_lds
from .strips import Region, close_region, mask_strip, set_mask_strip, strip_address

VCC, EXEC, M0, FLAT_SCRATCH = 106, 126, 124, 102
FLOATS = frozenset(("f16", "bf16", "f32", "f64"))
# The checks that want to know of no load of LDS but whether it is in bounds.
NO_RECORDS = frozenset(("bounds", "wait", "registers", "hazards", "progress", "barrier"))
# Those that the loops over strips look after by themselves where a launch is screened (`checks.screening`).
SCREENED = NO_RECORDS | {"screen", "screen races", "arrays", "align"}


@dataclass(frozen=True, slots=True)
class Options:
    """What one translation assumes and adds. `full`: every wave starts with all its lanes on."""

    chip: str
    lanes: int
    full: bool
    checks: frozenset[str] = frozenset({"bounds"})
    profile: bool = False
    # A trace in the counters' place (`trace`), for which global memory is not written; and the instructions, by their place in the text, that
    # it needs not do (`skeleton`), whose loads are not done either.
    trace: bool = False
    skip: frozenset[int] = frozenset()
    accum_offset: int = 0
    vgpr_count: int = 256
    stop: Stop | None = None  # a line at which a wave gives its registers and ends
    numerics: str = "chip"  # how matrix instructions sum: as the chip does where that is known, or one "fma" a k
    fast: bool = False  # worth code for how lanes are expected to lie (`strip_reads`)
    strip: int = STRIP  # lanes that a loop over strips takes at once; less than `STRIP` where LDS loads are not in line
    lockstep: bool = False  # waves of a work-group keep up with each other (`analyses.lockstep`)
    rsrc1: int = 0xF0 << 12  # of the kernel's descriptor: MODE at the start, and how waves are spread

    @property
    def float_mode(self) -> int:
        """MODE bits 0 to 7 at the start: rounding, denormals."""
        return self.rsrc1 >> 12 & 255


@dataclass(slots=True)
class _State:
    typed: dict[tuple[str, int], dict[str, str]] = field(default_factory=dict)
    pairs: dict[int, str] = field(default_factory=dict)
    masks: dict[int, str] = field(default_factory=dict)


@dataclass(slots=True)
class Segment:
    """A stretch of straight code: the registers whose memory it loads before storing, and those that it stores."""

    loads: set[tuple[str, int]] = field(default_factory=set)
    stores: set[tuple[str, int]] = field(default_factory=set)
    next: list[int | str] = field(default_factory=list)  # segments by number, or by label


# Bytes of the stack for operands of one size that are staged for matrix instructions: with the results of a tile they are to fit the host's L1.
_STAGED_BYTES = 16384


class Staged:
    """Operands of matrix instructions in another form (`isa.mfma`), kept while the registers that they come from stand."""

    def __init__(self) -> None:
        self.sizes: list[int] = []  # of the slots of this function
        # A form, its registers (kind, first, count) -> slot; the latest used last.
        self.held: dict[tuple[str, str, int, int], int] = {}

    def slot(self, key: tuple[str, str, int, int], nbytes: int) -> tuple[str, bool]:
        """(pointer to the slot of `key`, whether it is to be filled)."""
        found = self.held.pop(key, None)
        fresh = found is None
        if found is None:
            found = self._free(nbytes)
        self.held[key] = found
        return f"%stage{found}", fresh

    def _free(self, nbytes: int) -> int:
        slots = [n for n, size in enumerate(self.sizes) if size == nbytes]
        used = set(self.held.values())
        for n in slots:
            if n not in used:
                return n
        if len(slots) < max(2, _STAGED_BYTES // nbytes):
            self.sizes.append(nbytes)
            return len(self.sizes) - 1
        oldest = next(key for key, n in self.held.items() if n in slots)
        return self.held.pop(oldest)

    def changed(self, kind: str, index: int) -> None:
        """A register has another value."""
        for key in [k for k in self.held if k[1] == kind and k[2] <= index < k[2] + k[3]]:
            del self.held[key]


class Registers:
    """The translator's view of the machine's registers. `v` writes vector IR, `s` scalar IR; both to the same function."""

    def __init__(self, kernel: str, options: Options):
        self.kernel = kernel
        self.options = options
        self.lanes = options.lanes
        self.strip_bits = f"i{options.strip}"  # of the lane masks of a strip
        self.chip = options.chip
        digits = options.chip.removeprefix("gfx")
        self.gfx = int(digits[:-2])  # 9, 10, 11, 12
        self.cdna3 = options.chip in ("gfx940", "gfx941", "gfx942", "gfx950")
        self.out = Out()
        self.body = Out("b", self.out.declares)  # the loop body of the open region
        self.body.helpers = self.out.helpers
        self.rounding: dict[str, int] = {}  # of this instruction's results (`modes`)
        self.whole_ops, self.strip_ops = (
            Ops(o, n, self.rounding) for o, n in ((self.out, options.lanes), (self.body, options.strip))
        )
        self.v = self.whole_ops
        self.s = Ops(self.out, 0, self.rounding)
        self.region: Region | None = None
        self.regions = 0
        self.mask_slots = self.resident_slots = self.saved_slots = 0
        self.places = False  # whether a function leaves addresses in %places
        self.lds_dwords: set[int] = set()  # widths of the LDS loads within regions
        # LDS loads need not be told to the race and init checks, the align check or the profile.
        unseen = SCREENED if "screen" in options.checks else NO_RECORDS
        self.plain_lds = not options.profile and not options.checks - unseen
        # In line a load is some 60 lines, four times as much for LLVM as all else of a kernel that runs few waves: there a function loads.
        self.reads_in_line = self.plain_lds and options.fast
        # Of the lanes of LDS loads, by place in the text (`lane_patterns`).
        self.patterns: dict[int, tuple[int, ...]] = {}
        self.position = 0  # of the instruction in the text
        self.dirty: dict[tuple[str, int], tuple[str, str]] = {}  # vector registers not yet stored: (type, value)
        self.agpr_base = options.vgpr_count
        self.regs: set[tuple[str, int]] = set()
        self.state = _State()
        self.staged = Staged()
        self.segments = [Segment()]
        self.segment = self.segments[0]
        self.inst: Inst | None = None
        self.dpp_mask: str | None = None  # lanes that this instruction may write, beyond EXEC
        self.full = options.full  # EXEC is known to be all ones here
        self.deferred: list[tuple[tuple[str, int], str]] | None = None  # VOPD: writes held back
        self.mask_type = f"i{self.lanes}"

    # Errors.
    def fail(self, what: str) -> UnsupportedInstruction:
        inst = self.inst
        return UnsupportedInstruction(
            f"not modelled on {self.chip}: {what}",
            kernel=self.kernel,
            line=inst.line if inst else None,
            instruction=inst.text if inst else None,
        )

    def new_block(self) -> None:
        assert self.region is None and not self.dirty
        self.state = _State()
        self.staged.held.clear()

    def forget_vectors(self) -> None:
        """Values of one lane count mean nothing to the other."""
        typed = self.state.typed
        self.state.typed = {key: known for key, known in typed.items() if key[0] == "s"}
        self.state.masks.clear()

    def forget_registers(self) -> None:
        """Any vector register may have been written."""
        self.forget_vectors()
        self.staged.held.clear()

    def reg_offset(self, kind: str, index: int) -> int:
        """Where a vector register lies in the wave's state."""
        return STATE_VGPRS + 4 * self.lanes * (index + (self.agpr_base if kind == "a" else 0))

    def flush(self) -> None:
        """Store the vector registers written in this segment, but for those that no later one reads."""
        place = len(self.segments) - 1
        for (kind, index), (t, value) in self.dirty.items():
            at = strip_address(self, kind, index) if self.region is not None else f"%{kind}{index}"
            if self.region is not None and self.region.resident:
                self.out.put(f"store {self.v.type(t)} {value}, ptr {at}")
                continue
            self.v.out.lines.append(
                f"\0put {kind} {index} {place} store {self.v.type(t)} {value}, ptr {at}, align {4 * self.options.strip}"
            )
        self.dirty.clear()

    def settle(self) -> None:
        """Before control flow: the region ends, and registers lie in the state, where what follows may look for them."""
        if self.region is not None:
            close_region(self)
        if self.dirty:
            self.flush()
            # Of which it is known what it reads, be it on the other side of a barrier that is none for one wave.
            self.new_segment(True)

    def in_memory(self, kind: str, index: int, count: int, write: bool = False) -> str:
        """Pointer to `count` registers in the state, for a function that reads them there (or, with `write`, fills them)."""
        assert self.region is None
        for k in range(index, index + count):
            key = (kind, k)
            self.regs.add(key)
            if write:
                self.staged.changed(kind, k)
                self.dirty.pop(key, None)
                self.state.typed.pop(key, None)
                self.segment.stores.add(key)
                continue
            if key not in self.segment.stores:
                self.segment.loads.add(key)
            if key in self.dirty:
                t, value = self.dirty.pop(key)
                self.out.put(f"store {self.v.type(t)} {value}, ptr %{kind}{k}, align 64")
        return f"%{kind}{index}"

    def new_segment(self, falls_through: bool, branch: str | None = None) -> int:
        """End the segment: it goes to label `branch`, or on to the next one, or both, or nowhere."""
        if branch is not None:
            self.segment.next.append(branch)
        if falls_through:
            self.segment.next.append(len(self.segments))
        self.segment = Segment()
        self.segments.append(self.segment)
        return len(self.segments) - 1

    # Raw registers.
    def reg(self, kind: str, index: int) -> str:
        """The i32 (scalar or vector) in a register."""
        return self._typed(kind, index, "i32")

    def _typed(self, kind: str, index: int, t: str) -> str:
        """A register's value seen as a 32-bit type."""
        key = (kind, index)
        if self.region is not None and key in self.region.loads:
            read_lds(self, self.region.loads[key])
        known = self.state.typed.get(key)
        if known is None:
            known = self.state.typed[key] = {}
            self.regs.add(key)
            if key not in self.segment.stores:
                self.segment.loads.add(key)
            if kind == "s":
                known["i32"] = self.out.emit(f"load i32, ptr %s{index}")
            elif self.region is not None:
                at = strip_address(self, kind, index)
                known["i32"] = self.body.emit(f"load {self.v.type('i32')}, ptr {at}, align {4 * self.options.strip}")
            else:
                known["i32"] = self.out.emit(f"load {self.v.type('i32')}, ptr %{kind}{index}, align 64")
        value = known.get(t)
        if value is None:
            ops = self.s if kind == "s" else self.v
            first = next(iter(known))
            value = known[t] = ops.bitcast(first, t, known[first])
        return value

    def set_reg(self, kind: str, index: int, value: str, t: str = "i32") -> None:
        """Write a whole register, EXEC not considered."""
        key = (kind, index)
        if kind == "s":
            self.drop_scalar(index, 1)
            if index in (EXEC, EXEC + 1):
                self.full = False
        if self.deferred is not None:
            self.deferred.append((key, value if t == "i32" else self.v.bitcast(t, "i32", value)))
            return
        self.regs.add(key)
        self.segment.stores.add(key)
        self.state.typed[key] = {t: value}
        if kind == "s":
            self.out.put(f"store {self.s.type(t)} {value}, ptr %s{index}")
            return
        self.staged.changed(kind, index)
        self.dirty[key] = (t, value)
        if self.region is not None:
            self.region.loads.pop(key, None)

    def write_reg(self, kind: str, index: int, value: str, t: str = "i32") -> None:
        """Write a vector register in the lanes that EXEC and DPP leave on."""
        if not self.full:
            value = self.v.select(self.exec_mask(), t, value, self._typed(kind, index, t))
        if self.dpp_mask is not None:
            value = self.v.select(self.dpp_mask, t, value, self._typed(kind, index, t))
        self.set_reg(kind, index, value, t)

    def drop_scalar(self, index: int, count: int) -> None:
        """Forget what was known of SGPRs `index` and on, as pairs and as masks."""
        for k in range(index, index + count):
            for first in (k & ~1, k - 1, k):
                self.state.pairs.pop(first, None)
                self.state.masks.pop(first, None)
            if count > 1 or self.region is not None:
                self.state.typed.pop(("s", k), None)

    def flush_deferred(self) -> None:
        writes, self.deferred = self.deferred or [], None
        for (kind, index), value in writes:
            self.set_reg(kind, index, value)

    def sgpr64(self, index: int) -> str:
        value = self.state.pairs.get(index)
        if value is None:
            value = self.s.pack(self.reg("s", index), self.reg("s", index + 1))
            self.state.pairs[index] = value
        return value

    def set_sgpr64(self, index: int, value: str) -> None:
        if self.options.profile or value[0] == "%":
            lo, hi = self.s.unpack(value)
        else:
            bits = int(value) & 0xFFFFFFFFFFFFFFFF
            lo, hi = self.s.const("i32", bits & 0xFFFFFFFF), self.s.const("i32", bits >> 32)
        self.set_reg("s", index, lo)
        self.set_reg("s", index + 1, hi)
        self.state.pairs[index] = value

    # Lane masks.
    def mask_bits(self, index: int) -> str:
        """The lane mask in SGPR `index` (a pair in wave64) as an integer of one bit a lane."""
        return self.sgpr64(index) if self.lanes == 64 else self.reg("s", index)

    def set_mask_bits(self, index: int, bits: str) -> None:
        if self.lanes == 64:
            self.set_sgpr64(index, bits)
        else:
            self.set_reg("s", index, bits)

    def mask(self, index: int) -> str:
        """The lane mask in SGPR `index` as a vector of i1."""
        value = self.state.masks.get(index)
        if value is None:
            if self.region is not None:
                value = self.body.emit(f"bitcast {self.strip_bits} {mask_strip(self, index)} to {self.v.type('i1')}")
            else:
                value = self.out.emit(f"bitcast {self.mask_type} {self.mask_bits(index)} to {self.v.type('i1')}")
            self.state.masks[index] = value
        return value

    def to_bits(self, mask: str) -> str:
        return self.out.emit(f"bitcast {self.v.type('i1')} {mask} to {self.mask_type}")

    def from_bits(self, bits: str) -> str:
        return self.out.emit(f"bitcast {self.mask_type} {bits} to {self.v.type('i1')}")

    def exec_bits(self) -> str:
        return "-1" if self.full else self.mask_bits(EXEC)

    def exec_mask(self) -> str:
        return self.v.const("i1", 1) if self.full else self.mask(EXEC)

    def exec_strip(self) -> str:
        """The lanes of the region's strip that are on, as a number of as many bits."""
        return mask_strip(self, EXEC)

    def set_mask_operand(self, op: Operand, mask: str) -> None:
        """A compare's result: inactive lanes give 0."""
        if self.region is not None:
            set_mask_strip(self, op, mask)
            return
        bits = self.to_bits(mask)
        if not self.full:
            bits = self.s.and_(bits, self.exec_bits(), self.mask_type)
            mask = ""
        if op.kind == "special" and op.text == "null":
            return
        if op.kind != "s":
            raise self.fail(f"lane mask written to {op.text}")
        self.set_mask_bits(op.index, bits)
        if mask and op.index != EXEC:
            self.state.masks[op.index] = mask
