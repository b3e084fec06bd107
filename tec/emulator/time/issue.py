"""What each instruction costs where it is issued: its port, how long it holds it, when its results may be read.

In clocks of the compute unit. Sources:
- CDNA: a SIMD starts an instruction of each kind every 4 clocks, each from another wave (rocprofiler-compute, "pipeline descriptions"); a vector
  instruction of 64 lanes holds its 16 lanes for 4, a transcendental for 16, 32-bit integer products for 16 (LLVM's SISchedule.td).
- RDNA: one instruction a clock and wave; 32 lanes take 1; results of vector instructions after 5 clocks, of transcendentals after 10 (SISchedule.td).
- Matrix instructions: multiply-adds over the chip's rate (`tec.target.chips`, from AMD's matrix instruction calculator), and not less than 8, 16 and
  32 clocks for 4, 16 and 32 rows (float64: 16; WMMA: 4), which is what the shapes with less k cost. They leave the issue port after one slot on CDNA; on RDNA
  they are done by the vector lanes, and hold them. Their results may be read passes + 3 slots later (LLVM's GCNHazardRecognizer, gfx940),
  by the next matrix instruction's accumulator at once.
- s_nop n: n + 1 slots.
- s_setprio n: the wave's user priority, 0 to 3; a wave's place in arbitration is {priority, age} (ISA manuals, S_SETPRIO). It takes no port, as
  waits do not: instruction traces of CDNA 4 have no issue for it (tinygrad 18106).
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from ..analyses.roles import fills
from ..analyses.skeleton import registers
from ..checks.waits import counter_of, waits_of
from ..chips import Chip
from ..decode.inst import Inst, KernelText, Operand, generation
from ..isa.matrix import FORMATS, parse_mfma, parse_mixed
from ..isa.table import ROWS

VALU, TRANS, MATRIX, SCALAR, LDS, LOAD, STORE, SMEM, WAIT, BARRIER, NOP, FREE, PRIORITY = range(13)
KIND_NAMES = (
    "VALU",
    "VALU",
    "matrix",
    "scalar",
    "LDS",
    "VMEM",
    "VMEM",
    "SMEM",
    "wait",
    "barrier",
    "nop",
    "free",
    "priority",
)
_WMMA = re.compile(r"v_s?wmmac?_\w+?_(16|32)x16x(\d+)_(\w+?)(?:_\w+)?$")
_SPARSE = re.compile(r"v_smfmac_\w+?_(16|32)x\d+x(\d+)_(\w+)$")
SMALL = (frozenset({"fp6", "bf6", "fp4"}), frozenset({"fp4"}))  # on gfx1250 6 bits are as slow as 8
_QUARTER = re.compile(r"v_(mul_lo_[ui]32|mul_hi_[ui]32|mad_[ui]64|mul_[ui]64)")
_KINDS = {
    "valu": VALU,
    "packed": VALU,
    "lane": VALU,
    "trans": TRANS,
    "matrix": MATRIX,
    "salu": SCALAR,
    "branch": SCALAR,
    "smem": SMEM,
    "lds": LDS,
}
_HINTS = ("s_delay_alu", "s_clause", "s_set_inst", "s_inst_prefetch", "s_code_end", "s_wait_alu", "s_waitcnt_depctr", "s_barrier_signal",
          "s_barrier_leave", "s_version")  # fmt: skip


@dataclass(slots=True)
class Issue:
    """One instruction. `busy`: clocks that its unit is held (the matrix pipe, the vector lanes), or the priority that is set; `after`: clocks from its start until its results
    may be read by any instruction (0: as soon as the next one starts)."""

    kind: int
    busy: int = 0
    after: int = 0
    reads: tuple[int, ...] = ()
    writes: tuple[int, ...] = ()
    # Of a matrix instruction: accumulators that the one before may have left at the end of its passes.
    chained: tuple[int, ...] = ()
    counter: str = ""  # that a memory operation adds to
    waits: tuple[tuple[str, int], ...] = ()
    macs: int = 0  # multiply-adds of a matrix instruction, and their type
    dtype: str = ""
    text: str = ""
    number: int = 0  # of the kernel's instructions


def matrix_work(inst: Inst) -> tuple[int, str, int]:
    """(multiply-adds, type, least clocks) of a matrix instruction."""
    op = inst.op
    formats = (int(inst.mods.get(name) or "0", 0) for name in ("cbsz", "blgp"))
    mfma = parse_mixed(op, *formats) if op.endswith("f8f6f4") else parse_mfma(op)
    if mfma is not None:
        least = 16 if mfma.source == "f64" else {4: 8, 16: 16, 32: 32}[mfma.m]
        return mfma.m * mfma.n * mfma.k * mfma.blocks, mfma.source, least
    sparse = _SPARSE.match(op)
    if sparse:  # half of the k of A are there
        size = int(sparse[1])
        return size * size * int(sparse[2]) // 2, sparse[3], {16: 16, 32: 32}[size]
    found = _WMMA.match(op)
    if found is None:
        return 4096, "f16", 4
    kind = found[3]
    if kind == "f8f6f4":  # gfx1250: as fast as bytes but where both are of 4 bits
        both = all(inst.mods.get(m, "").endswith("FP4") for m in ("matrix_a_fmt", "matrix_b_fmt"))
        kind = "fp4" if both else "fp8"
    elif kind == "f4":
        kind = "fp4"
    macs = int(found[1]) * 16 * int(found[2])
    return macs // (2 if op.startswith("v_swmmac") else 1), kind, 4


def matrix_clocks(chip: Chip, inst: Inst) -> int:
    """How long a matrix instruction holds its pipe."""
    macs, kind, least = matrix_work(inst)
    rate = chip.matrix.get(matrix_type(kind)) or chip.matrix.get("f32") or chip.matrix.get("f16") or 256
    if kind == "iu4" or _small(chip, kind):  # twice what bytes do, where both are so small
        rate *= 2
    return max(least, macs * chip.limits.simds // rate)


def _small(chip: Chip, kind: str) -> bool:
    """Whether both factors are floats of so few bits that the chip does twice as many as of bytes."""
    return set(kind.split("_")) <= SMALL[chip.name == "gfx1250"]


def matrix_type(kind: str) -> str:
    """The type in a matrix instruction's name, as the rates are listed: f16, i8, f8, ..."""
    first = kind.split("_")[0]
    return {"iu8": "i8", "iu4": "i8", **dict.fromkeys(FORMATS, "f8")}.get(first, first)


def _all(ops: list[Operand]) -> tuple[int, ...]:
    return tuple(r for o in ops for r in registers(o) if r >= 256)


def decode(text: KernelText, chip: Chip, lanes: int) -> list[Issue]:
    """The instructions of a kernel, as the compute unit sees them."""
    gfx = generation(chip.name)
    rdna = gfx >= 10
    out = []
    for number, inst in enumerate(text.insts):
        issue = _decode(inst, chip, lanes, gfx, rdna)
        issue.text, issue.number = inst.text, number
        out.append(issue)
    if not rdna:
        # Only results of matrix instructions come late on CDNA: nothing else is looked up.
        late = {r for i in out if i.kind == MATRIX for r in i.writes}
        for i in out:
            if i.kind != MATRIX:
                i.reads = tuple(r for r in i.reads if r in late)
                i.writes = ()
    return out


def _decode(inst: Inst, chip: Chip, lanes: int, gfx: int, rdna: bool) -> Issue:
    """How the time model issues an instruction: its unit, its clocks, the registers it reads and writes, the counters that it waits for."""
    op, slot = inst.op, 1 if rdna else 4
    waits = tuple(waits_of(inst).items())
    if op.startswith(("s_barrier", "s_barrier_wait")) and not op.endswith(("signal", "leave")):
        return Issue(BARRIER)
    if op.startswith(_HINTS):
        return Issue(FREE)
    if op.startswith("s_wait"):
        return Issue(WAIT, waits=waits)
    if op == "s_setprio":
        return Issue(PRIORITY, int(inst.text.split()[1], 0) & 3)
    if op in ("s_nop", "s_sleep"):
        n = int(inst.text.split()[1], 0) if len(inst.text.split()) > 1 else 0
        return Issue(NOP, (n + 1) * (slot if op == "s_nop" else 64))
    row = ROWS.get(op)
    kind = _KINDS.get(row.kind, FREE) if row is not None else SCALAR if op.startswith("s_") else FREE
    if row is not None and row.kind == "vmem" and op.startswith("s_"):  # scalar stores and atomics
        kind = SMEM
    if op.startswith(("global_", "flat_", "buffer_", "tbuffer_", "image_", "scratch_", "cluster_")):
        if "_wb" in op or "_inv" in op or "_gl" in op:
            return Issue(FREE)
        kind = STORE if "_store" in op or "_atomic" in op else LOAD
    parts = [inst] if inst.dual is None else [inst, inst.dual]
    stores = kind == STORE or (kind == LDS and not fills(inst))
    reads = _all([o for p in parts for o in (p.operands if stores else p.operands[1:])])
    writes = () if stores else _all([p.operands[0] for p in parts if p.operands])
    if kind in (LDS, LOAD, STORE, SMEM):
        return Issue(kind, reads=reads, writes=(), counter=counter_of(inst, gfx) or "", waits=waits)
    if kind == MATRIX:
        busy = matrix_clocks(chip, inst)
        chained = writes
        sources = _all(inst.operands[1:3])
        after = busy + (1 if rdna else 3 * slot)
        macs, dtype, _ = matrix_work(inst)
        dtype = "f4" if _small(chip, dtype) else matrix_type(dtype)
        return Issue(MATRIX, busy, after, sources, writes, chained, macs=macs, dtype=dtype)
    if kind in (VALU, TRANS):
        passes = max(1, lanes // chip.limits.simd_lanes)
        if kind == TRANS or _QUARTER.match(op):
            passes *= 4
        if "_f64" in op:
            rate = chip.machine.vector_macs.get("float64", 0)
            passes = (
                max(passes, lanes * chip.limits.simds // max(1, rate))
                if rate < chip.limits.simds * chip.limits.simd_lanes
                else passes
            )
        return Issue(kind, passes, (10 if kind == TRANS else 5) if rdna else 0, reads, writes)
    return Issue(kind, slot)
