"""`check="hazards"`: is there a path on which an instruction comes too soon after another, in code whose author must keep them apart?

gfx9 does not hold back every instruction until what it reads is there: for some pairs the manuals ask for wait states between (other
instructions, one each, or s_nop n for n + 1). A compiler puts them in; assembly by hand forgets them, and works most of the time. A forward
analysis over all paths: for each register, how many wait states ago (the fewest over the paths) something with a consequence touched it.

Sources: CDNA2 and CDNA3 ISA manuals, 4.5 "Manually inserted wait states (NOPs)" and 7.3 to 7.6 (matrix instructions); RDNA3 ISA manual 7.9 (WMMA);
the counts of passes from AMD's matrix instruction calculator (`issue.matrix_clocks`). Where a manual gives more for one chip of a family
than LLVM inserts, the lesser number stands here, so that what is reported is wrong by both. The numbers of CDNA 1 are those of LLVM's
checkMAIHazards908: a result in accumulation registers may be read a wait state sooner than on CDNA 2, and overwritten sooner still.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from ..analyses.flow import forward
from ..analyses.roles import roles
from ..chips import Chip
from ..decode.inst import Inst, KernelText, Operand, generation
from ..errors import EmulationError
from ..isa.table import ROWS
from ..time.issue import matrix_clocks
from ..translate.wave import EXEC, M0, VCC

Reg = tuple[str, int]
# (what was done to the register, the register) -> (wait states since, the instruction's place)
State = dict[tuple[str, Reg], tuple[int, int]]

_FARTHEST = 19  # wait states that any rule looks back
_VALU = frozenset(("valu", "trans", "packed", "lane"))
_VCC, _EXEC, _M0 = ("s", VCC), ("s", EXEC), ("s", M0)
_MEMORY = ("global_", "flat_", "buffer_", "tbuffer_", "image_", "scratch_", "ds_")
_RESOURCES = ("buffer_", "tbuffer_", "image_")


@dataclass(frozen=True, slots=True)
class Touch:
    """One instruction as the rules see it."""

    kind: str  # valu, matrix, vmem, lds, salu, wait, ...
    reads: tuple[tuple[Reg, int], ...]  # registers and the operand that names each
    writes: tuple[Reg, ...]


def _regs(op: Operand) -> list[Reg]:
    return [(op.kind, op.index + k) for k in range(max(1, op.count))] if op.is_reg else []


def _kind(inst: Inst) -> str:
    if inst.op.startswith("ds_"):
        return "lds"
    if inst.op.startswith(_MEMORY):
        return "vmem"
    row = ROWS.get(inst.op)
    if row is None:
        return "salu" if inst.op.startswith("s_") else "valu"
    return "valu" if row.kind in _VALU else row.kind


def _touch(inst: Inst) -> Touch:
    op, kind = inst.op, _kind(inst)
    results, sources = ([], inst.operands) if kind in ("wait", "branch", "barrier") else roles(inst)
    writes = [r for o in results for r in _regs(o)]
    if op.startswith("v_cmpx"):
        writes += [("s", EXEC), ("s", EXEC + 1)]
    # Sources stand behind results, but for those that are both; operands of one text are one object.
    count = len(sources)
    places = range(len(inst.operands) - count, len(inst.operands))
    reads = [(r, k) for k in places for r in _regs(inst.operands[k])]
    if "div_fmas" in op:
        reads += [(_VCC, 9), (("s", VCC + 1), 9)]
    if inst.dual is not None:
        second = _touch(inst.dual)
        return Touch(kind, (*reads, *second.reads), (*writes, *second.writes))
    return Touch(kind, tuple(reads), tuple(writes))


class _Rules:
    """The rules of one chip over one kernel."""

    def __init__(self, kernel: KernelText, chip: Chip):
        self.kernel, self.chip = kernel, chip
        self.cdna1 = chip.name == "gfx908"
        self.cdna3 = chip.name in ("gfx942", "gfx950")
        self.waits_for_dots = chip.name in ("gfx90a", "gfx942", "gfx950")  # LLVM's checkMAIVALUHazards
        self.gfx = generation(chip.name)
        self.touches = [_touch(i) for i in kernel.insts]
        self.passes = {
            i: matrix_clocks(chip, inst) // 4 for i, inst in enumerate(kernel.insts) if self.touches[i].kind == "matrix"
        }

    def fails(self, state: State, at: int, tag: str, reg: Reg, need: int, why: str) -> None:
        """Raise where `tag` touched the register fewer than `need` wait states ago."""
        found = state.get((tag, reg))
        if found is None or found[0] >= need:
            return
        age, before = found
        inst, first = self.kernel.insts[at], self.kernel.insts[before]
        name = (
            {VCC: "vcc", VCC + 1: "vcc", EXEC: "exec", EXEC + 1: "exec", M0: "m0"}.get(reg[1])
            if reg[0] == "s"
            else None
        )
        raise EmulationError(
            f"hazard: {name or reg[0] + str(reg[1])} needs {need} wait states between, and has {age}: {why} "
            f"(line {first.line}: {first.text.strip()})",
            kernel=self.kernel.name,
            line=inst.line,
            instruction=inst.text,
            hint=f"put {need - age} independent instructions or s_nop {need - age - 1} between the two",
        )

    def step(self, state: State, at: int) -> None:
        inst = self.kernel.insts[at]
        (self.cdna if self.gfx == 9 else self.rdna)(state, at, inst, self.touches[at])

    # gfx9.
    def cdna(self, state: State, at: int, inst: Inst, t: Touch) -> None:
        """What CDNA's manuals ask for ahead of an instruction, by its kind."""
        op = inst.op
        if t.kind == "valu":
            self.vector(state, at, inst, t)
        if t.kind == "vmem":
            for reg, _ in t.reads:
                if reg[0] == "s":
                    self.fails(
                        state,
                        at,
                        "valu",
                        reg,
                        5,
                        "a vector instruction writes the scalar register that a memory access reads",
                    )
        if t.kind in ("valu", "vmem", "lds"):
            self.after_matrix(state, at, t)
        if t.kind == "matrix":
            self.matrix(state, at, t)
        if op.startswith(("v_movrel", "s_sendmsg", "global_load_lds")):
            self.fails(state, at, "salu", _M0, 1, "a scalar instruction writes m0")
        if op.startswith(("s_getreg", "s_setreg")):
            name = _hardware(inst)
            self.fails(state, at, "setreg", ("hw", hash(name)), 2, f"s_setreg writes {name}")
        states = 1
        if op == "s_nop":
            states = int(inst.text.split()[1], 0) + 1
        for key, (age, before) in list(state.items()):
            if age + states > _FARTHEST:
                del state[key]
            else:
                state[key] = (age + states, before)
        for key in self.marks(inst, t):
            state[key] = (0, at)

    def vector(self, state: State, at: int, inst: Inst, t: Touch) -> None:
        """What the manual asks for ahead of a vector instruction that reads what others wrote: through DPP, as a lane's number, as v_div_fmas's mask."""
        op = inst.op
        if inst.encoding in ("dpp", "e64_dpp"):
            for reg, k in t.reads:
                if reg[0] == "v" and k == 1:
                    self.fails(state, at, "valu", reg, 2, "a vector instruction writes what DPP reads from other lanes")
            self.fails(state, at, "valu", _EXEC, 5, "a vector instruction writes EXEC before DPP")
        if "div_fmas" in op:
            self.fails(state, at, "valu", _VCC, 4, "a vector instruction writes the VCC that v_div_fmas reads")
        lane = op.startswith(("v_readlane", "v_writelane", "v_readfirstlane"))
        if lane and not op.startswith("v_readfirstlane") and len(inst.operands) > 2:
            for reg in _regs(inst.operands[2]):
                if reg[0] == "s":
                    self.fails(
                        state, at, "valu", reg, 4, "a vector instruction writes the register that selects the lane"
                    )
        if self.cdna3:
            for reg, k in t.reads:
                if reg[0] == "s":
                    self.fails(
                        state, at, "valu", reg, 2, "a vector instruction writes the scalar register that another reads"
                    )
                elif lane and k == 1 and not op.startswith("v_writelane"):
                    self.fails(state, at, "valu", reg, 1, "a vector instruction writes what is read as a scalar")
                if not _is_trans(inst):
                    self.fails(
                        state, at, "trans", reg, 1, "a transcendental instruction's result is read by another kind"
                    )
                self.fails(state, at, "moved", reg, 1, "a vector instruction moves the bits of its result")
            if lane:
                self.fails(
                    state, at, "valu", _EXEC, 4, "a vector instruction writes EXEC before a lane is read or written"
                )
        for reg in t.writes:
            self.fails(state, at, "data", reg, 2 if self.cdna3 else 1, "a store of more than 8 bytes still reads it")
        for reg, k in t.reads:
            self.dot(state, at, inst, reg, k == 0 or k == 3)
        for reg in t.writes:
            self.dot(state, at, inst, reg, True)

    def dot(self, state: State, at: int, inst: Inst, reg: Reg, chained: bool) -> None:
        found = state.get(("dot", reg)) if self.waits_for_dots else None
        if found is not None and not (chained and self.kernel.insts[found[1]].op == inst.op):
            self.fails(state, at, "dot", reg, 3, "a dot product's result")

    def result_after(self, before: int, memory: bool) -> int:
        """Wait states until a matrix instruction's result may be read or overwritten by other instructions."""
        op, passes = self.kernel.insts[before].op, self.passes[before]
        if "_f64_" in op:
            small = "4x4x4" in op
            return (9 if small else 18) if memory else (6 if small else 11)
        return passes + (3 if self.xdl(op) and not self.cdna1 else 2)

    def overwritten_after(self, before: int, memory: bool) -> int:
        """Wait states until other instructions may overwrite a matrix instruction's result."""
        return self.passes[before] - 1 if self.cdna1 else self.result_after(before, memory)

    def xdl(self, op: str) -> bool:
        """Whether the matrix instruction runs on the pipe that takes a pass longer to write back: on gfx942 all but f32 and f64."""
        return not self.cdna3 or not re.search(r"_f64_|x\d+(_\d+b)?_?f32$", op)

    def after_matrix(self, state: State, at: int, t: Touch) -> None:
        memory = t.kind != "valu"
        ways = (([r for r, _ in t.reads], self.result_after), (t.writes, self.overwritten_after))
        for regs, needed in ways:
            for reg in regs:
                found = state.get(("matrix", reg))
                if found is not None:
                    self.fails(state, at, "matrix", reg, needed(found[1], memory), "a matrix instruction's result")
        if memory:
            return
        for reg in t.writes:
            found = state.get(("matrix c", reg))
            if found is not None:
                need = self.passes[found[1]] - (3 if self.cdna1 else 1)
                self.fails(state, at, "matrix c", reg, need, "a matrix instruction still reads its accumulator")

    def matrix(self, state: State, at: int, t: Touch) -> None:
        self.fails(state, at, "valu", _EXEC, 4, "a vector instruction writes EXEC before a matrix instruction")
        c = {r for r, k in t.reads if k == 3}
        for reg, k in t.reads:
            fresh = 1 if self.cdna1 and k == 3 and reg[0] == "a" else 2
            self.fails(state, at, "valu", reg, fresh, "a vector instruction writes what a matrix instruction reads")
            found = state.get(("matrix", reg))
            if found is None:
                continue
            before, passes = found[1], self.passes[found[1]]
            op = self.kernel.insts[before].op
            if k != 3:
                self.fails(
                    state,
                    at,
                    "matrix",
                    reg,
                    4 if self.cdna1 else self.result_after(before, False),
                    "a matrix instruction's result as A or B",
                )
            elif (
                set(self.touches[before].writes) != c and "_f64_" not in op and "_f64_" not in self.kernel.insts[at].op
            ):
                if self.cdna3 and self.xdl(self.kernel.insts[at].op) and not self.xdl(op):
                    continue
                need = 2 if self.cdna1 else passes + (1 if self.cdna3 and self.xdl(op) else 0)
                self.fails(state, at, "matrix", reg, need, "part of a matrix instruction's result as the accumulator")

    def marks(self, inst: Inst, t: Touch) -> Iterator[tuple[str, Reg]]:
        """What the instruction leaves behind for later ones to keep away from."""
        op = inst.op
        if t.kind == "matrix":
            for reg in t.writes:
                yield "matrix", reg
            if self.xdl(op) and "_f64_" not in op:
                for reg, k in t.reads:
                    if k == 3 and reg not in t.writes:
                        yield "matrix c", reg
        elif t.kind == "valu":
            dot = op.startswith("v_dot")
            for reg in t.writes:
                yield "valu", reg
                if _is_trans(inst):
                    yield "trans", reg
                if dot:
                    yield "dot", reg
                if self.cdna3 and _moves_result(inst):
                    yield "moved", reg
        elif t.kind == "vmem" and "_store" in op:
            data = inst.operands[0 if op.startswith(_RESOURCES) else 1]
            # A scalar offset takes a clock more, which is enough.
            held = op.startswith(("buffer_", "tbuffer_")) and inst.operands[3].kind == "s"
            if data.count > 2 and not held:
                for reg in _regs(data):
                    yield "data", reg
        elif op.startswith("s_setreg"):
            yield "setreg", ("hw", hash(_hardware(inst)))
        elif t.kind == "salu" and _M0 in t.writes:
            yield "salu", _M0

    # RDNA: the hardware holds instructions back, but for a matrix product that reads the one before it.
    def rdna(self, state: State, at: int, inst: Inst, t: Touch) -> None:
        if t.kind == "matrix" and self.gfx >= 11:
            for reg, k in t.reads:
                if k in (1, 2):
                    self.fails(state, at, "matrix", reg, 1, "the matrix instruction before gives it, as A or B")
        if t.kind in ("valu", "matrix") or inst.op == "v_nop":
            state.clear()
        if t.kind == "matrix":
            for reg in t.writes:
                state["matrix", reg] = (0, at)


def _is_trans(inst: Inst) -> bool:
    row = ROWS.get(inst.op)
    return row is not None and row.kind == "trans"


def _moves_result(inst: Inst) -> bool:
    """Whether the result goes to another part of its register than the first: SDWA's dst_sel, op_sel's bit of the destination."""
    if inst.encoding == "sdwa":
        return inst.mods.get("dst_sel", "DWORD") != "DWORD"
    halves = inst.mods.get("op_sel", "").strip("[]").split(",")
    # One for each operand, and with a single source they are its bytes; packed instructions have none for the result.
    return len(halves) == len(inst.operands) > 2 and halves[-1].strip() == "1"


def _hardware(inst: Inst) -> str:
    """The hardware register that s_getreg and s_setreg name."""
    found = re.search(r"hwreg\(\s*(\w+)", inst.text)
    return found[1] if found else inst.text.split()[-1]


def _join(into: State, other: State) -> bool:
    changed = False
    for key, (age, at) in other.items():
        if key not in into or into[key][0] > age:
            into[key] = (age, at)
            changed = True
    return changed


def check_hazards(kernel: KernelText, chip: Chip) -> None:
    """Raise `EmulationError` at the first instruction that comes too soon on some path."""
    start: State = {}
    forward(kernel, start, dict, _Rules(kernel, chip).step, _join)
