"""One kernel's instructions to the LLVM IR of a function that runs one wave.

`i32 wave(ptr state, ptr ctx, i32 resume)`: registers are loaded from the state, the program runs from the resume point,
and the function returns 0 at s_endpgm, n at barrier n (registers stored back), -1 after a fault. Every backward branch pays
for the instructions of its loop from the budget and looks at the stop flag, so no program runs for ever.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace

from ..analyses.calls import CALLS, is_return
from ..analyses.lane_patterns import lane_patterns
from ..analyses.lockstep import way_given
from ..analyses.modes import ROUND_F16, ROUND_F32, find_modes
from ..checks.across import Across, find_across
from ..checks.fills import fill_counter
from ..checks.meeting import check_lanes, check_signal
from ..checks.order import ACQUIRES, find_order, polling_branches, waiting_branches
from ..checks.undefined import follow_undefined
from ..context import CTX, GAVE_WAY
from ..decode.inst import Inst, KernelText, Operand, generation
from ..isa import opcodes
from ..isa.lane import INDEXED_ROOM, indexed, put_indexed
from ..isa.table import lookup
from ..stopping import Stop
from .jumps import Jumps
from .strip_loops import loop_end, run_loop
from .strip_reads import is_read, lds_read
from .strips import close_region, may_stay, open_region, takes_strips, touches_masks
from .translation import Row, Translation, finish
from .wave import EXEC, Options

BARRIERS = frozenset(("s_barrier", "s_barrier_wait", "s_barrier_signal", "s_barrier_leave"))
CONTROL = BARRIERS | {"s_endpgm", "s_branch", "s_trap"}
_FLOAT = re.compile(r"(?<![a-z])(f16|f32|f64)")
# Opcodes that round their result by MODE, and those of which no source says how they do. The others are exact, or approximate: to nearest in any mode.
_ROUNDS = re.compile(
    r"[vs]_(dual_|pk_)?((add|sub|subrev|mul|fma|fmac|fmaak|fmamk|mad|mac|madak|madmk|mul_legacy|mul_dx9_zero|ldexp|div_fmas)_f(16|32|64)|"
    r"(fma|mad)_mix|cvt_f32_f64|cvt_f32_[iu]32|cvt_f16_f32|cvt_f16_[iu]16|cvt_pk_f16_f32)"
)
_INEXACT = re.compile(r"v_(fract|dot2|dot2c|dot4|trig_preop|cube|sad|cvt_pk_norm|cvt_norm|(?!cvt_s).*bf16|s_cvt_)")
_WRITES_EXEC = re.compile(r"s_\w*(saveexec|wrexec)|v_cmpx_")


class Translator(Jumps):
    """The walk over the instructions; `Wave` has the registers."""

    def __init__(self, kernel: KernelText, options: Options, waves_many: bool = True):
        writes_exec = any(_writes_exec(i) for i in kernel.insts)
        super().__init__(
            kernel.name,
            options if not writes_exec or not options.full else _with_full(options, False),
        )
        self.text = kernel
        self.many = waves_many
        self.float_mode = options.float_mode
        self.modes = find_modes(kernel, options.float_mode)
        self.sites: list[tuple[int, str]] = []
        self.symbols: list[str] = []
        self.barrier_count = 0
        self.barrier_sites: list[int] = [0]
        self.stops: list[int] = []  # segments that begin where a wave may stop
        # Atomics that make order between work-groups (`order`), in kernels that ask for it.
        self.order = find_order(kernel, options.chip) if options.checks & {"race", "progress"} else None
        racing = waves_many and "race" in options.checks
        self.across = find_across(kernel, options.chip, options.rsrc1) if racing else Across()
        self.polling = polling_branches(kernel, options.chip)
        self.waiting = waiting_branches(kernel, options.chip) if options.trace else frozenset()
        # Where waves of handwritten assembly wait for each other beside barriers.
        self.ways = way_given(kernel) if options.lockstep and waves_many and not options.profile else frozenset[int]()
        self.classes: dict[str, int] = {}
        self.rows: list[Row] = []
        self.block: dict[str, int] = {}
        self.block_matrix: dict[str, int] = {}
        self.since_getpc: int | None = None
        self.terminated = False
        gfx = generation(options.chip)
        self.fill_counter = fill_counter(kernel, gfx) if "wait" in options.checks and not options.trace else ""
        if self.fill_counter:  # reads of LDS are told to the check
            self.plain_lds = self.reads_in_line = False
        if self.reads_in_line:
            self.patterns = lane_patterns(kernel, options.lanes, is_read)
        self.segment_of: dict[str, int] = {}  # the segment that a label starts
        self.functions: dict[str, str] = {}  # helpers that go into the same module
        self.agpr_base = max(3, 1 + max((_last_vgpr(i) for i in kernel.insts), default=0))
        by_index = ("v_movrel", "v_swaprel", "s_set_gpr_idx")  # these name registers that no operand does
        if any(i.op.startswith(by_index) for i in kernel.insts):
            self.agpr_base = max(self.agpr_base, options.vgpr_count) + INDEXED_ROOM

    # What the tables call.
    def site(self) -> int:
        """A number for this instruction as a place that may fault."""
        assert self.inst is not None
        self.sites.append((self.inst.line, self.inst.text))
        return len(self.sites) - 1

    def leave_on_fault(self, rc: str) -> None:
        bad = self.out.emit(f"icmp ne i32 {rc}, 0")
        on = self.out.fresh_label("ok")
        self.out.put(f"br i1 {bad}, label %fault, label %{on}, !prof !0")
        self.out.label(on)

    def library(self, name: str, make: Callable[[], str]) -> None:
        """A function that this kernel needs in its own module, whose IR `make` writes at the first use; also the buffers that matrix helpers work on."""
        if name not in self.functions:
            self.functions[name] = make()

    def fault_if(self, condition: str, kind: int) -> None:
        """Leave with a fault of this kind where the scalar condition holds."""
        bad, on = self.out.fresh_label("bad"), self.out.fresh_label("ok")
        self.out.put(f"br i1 {condition}, label %{bad}, label %{on}, !prof !0")
        self.out.label(bad)
        self.out.declares.add("declare i32 @tec_fault(ptr, i64, i32, i64, i64)")
        self.out.emit(f"call i32 @tec_fault(ptr %ctx, i64 {kind}, i32 {self.site()}, i64 0, i64 0)")
        self.out.put("br label %fault")
        self.out.label(on)

    def row(self, kind: str, start: int, nbytes: int = 0) -> int:
        """A fresh row of counters."""
        line, text = (self.inst.line, self.inst.text) if self.inst is not None else (0, "")
        self.rows.append(Row(kind, {}, line, text, start=start, nbytes=nbytes))
        return len(self.rows) - 1

    def begin_block(self, start: int) -> None:
        """Count the executions of the block that begins with instruction `start`, and the lanes that are on (profile only)."""
        if not self.options.profile:
            return
        row = self.row("block", start)
        self.block, self.block_matrix = self.rows[row].classes, self.rows[row].matrix
        if self.options.trace:
            self.trace_block(row)
            return
        counters = self.ctx_load("counters", "ptr")
        bits = self.exec_bits()
        lanes = str(self.lanes) if self.full else self.s.call("ctpop", self.mask_type, bits)
        if self.lanes == 32 and not self.full:
            lanes = self.s.zext("i32", "i64", lanes)
        for k, value in ((0, "1"), (1, lanes)):
            at = self.out.emit(f"getelementptr i64, ptr {counters}, i64 {4 * row + k}")
            self.out.put(f"store i64 {self.s.add(self.out.emit(f'load i64, ptr {at}'), value, 'i64')}, ptr {at}")

    def trace_block(self, row: int) -> None:
        name = f"@tec_trace_block_{self.lanes}"
        self.out.declares.add(f"declare i1 {name}(ptr, i32)")
        cut = self.out.emit(f"call i1 {name}(ptr %ctx, i32 {row << 12})")
        end, on = self.out.fresh_label("cut"), self.out.fresh_label("go")
        self.out.put(f"br i1 {cut}, label %{end}, label %{on}, !prof !0")
        self.out.label(end)
        self.out.put("ret i32 0")
        self.out.label(on)

    def ctx_load(self, name: str, ty: str) -> str:
        at = self.out.emit(f"getelementptr i8, ptr %ctx, i64 {CTX[name]}")
        return self.out.emit(f"load {ty}, ptr {at}")

    def symbol(self, op: Operand) -> str:
        """A data symbol's address, half by half. s_getpc_b64 gives 0 here, so `sym@rel32@lo` must give all of it."""
        parts = op.reloc.split("@")
        if parts[0] not in ("rel32", "gotpcrel32", "abs32") or len(parts) != 2:
            raise self.fail(f"relocation {op.reloc}")
        lo, hi = self.s.unpack(self._symbol(op, parts[0]))
        return hi if parts[1] == "hi" else lo

    def symbol64(self, op: Operand) -> str:
        """A data symbol's address as gfx1250 adds it at once."""
        if op.reloc not in ("rel64", "gotpcrel", "abs64"):
            raise self.fail(f"relocation {op.reloc}")
        return self._symbol(op, op.reloc)

    def _symbol(self, op: Operand, kind: str) -> str:
        """The addend counts from the address of the literal itself: 4 for the word after s_getpc, 8 more for the high half's; what is over that is an
        offset into the symbol."""
        expected = 0
        if not kind.startswith("abs"):
            if self.since_getpc is None:
                raise self.fail("a pc-relative symbol with no s_getpc_b64 before it")
            expected = 4 + self.since_getpc
        delta = op.addend - expected
        if delta < 0:
            raise self.fail(f"addend of {op.text}@{op.reloc}")
        if op.text not in self.symbols:
            self.symbols.append(op.text)
        table = self.ctx_load("symbols", "ptr")
        slot = self.out.emit(f"getelementptr i64, ptr {table}, i64 {self.symbols.index(op.text)}")
        if kind.startswith("gotpcrel"):
            address = self.out.emit(f"ptrtoint ptr {slot} to i64")
        else:
            address = self.out.emit(f"load i64, ptr {slot}")
        return self.s.add(address, str(delta), "i64")

    # Control flow: see `Jumps` for branches and calls.
    def barrier(self) -> None:
        if "barrier" in self.options.checks and not self.full:
            check_lanes(self)
        if not self.many:
            return
        self.barrier_count += 1
        self.barrier_sites.append(self.site())
        self._leave(self.barrier_count)
        self.begin_block(self.position + 1)

    def _leave(self, result: int) -> None:
        """Leave the wave with this result, and go on from here when it is resumed."""
        n = self.barrier_count
        after = self.new_segment(True)
        self.out.lines.append(f"\0save {n} {after}")
        self.out.put(f"ret i32 {result}")
        self.out.label(f"resume{n}")
        self.out.lines.append(f"\0load {n} {after}")
        self.new_block()

    def give_way(self, inst: Inst) -> None:
        """Let the other waves of the work-group come as far as this one: see `way_given`."""
        self.inst = inst
        self.settle()
        self.barrier_count += 1
        self.barrier_sites.append(self.site())
        self._leave(self.barrier_count | GAVE_WAY)

    def stop_here(self, stop: Stop) -> None:
        """Before this instruction: give all registers to the state and leave, in the wave that is wanted."""
        self.inst = self.text.insts[self.position]
        self.settle()
        self.stops.append(self.new_segment(True))
        self.new_block()
        here = "true"
        for field, wanted in (("wave", stop.wave), ("group", stop.group)):
            if wanted is not None:
                here = self.s.and_(here, self.s.icmp("eq", "i64", self.ctx_load(field, "i64"), str(wanted)), "i1")
        leave, on = self.out.fresh_label("stop"), self.out.fresh_label("on")
        self.out.put(f"br i1 {here}, label %{leave}, label %{on}")
        self.out.label(leave)
        self.out.lines.append("\0give")
        self.fault_if("true", 21)
        self.out.put(f"br label %{on}")
        self.out.label(on)

    def instruction(self, inst: Inst) -> None:
        """The text of one instruction: control flow here, all others by `ordinary`."""
        if self.position in self.ways and not self.gpr_index:
            self.give_way(inst)
        self.inst = inst
        self.dpp_mask = None
        self.floats_read = []
        op = inst.op
        if op in CONTROL or op in CALLS or op.startswith(("s_cbranch_", "s_setpc")):
            self.settle()
            self.check_index_mode()
        self.mark()
        if op == "s_endpgm":
            self._class("branch")
            self.out.put("ret i32 0")
            self.out.label(self.out.fresh_label("dead"))
            self.new_segment(False)
            self.terminated = True
            self.new_block()
        elif op == "s_branch":
            self._class("branch")
            self.branch(self.target(inst.operands[0]))
        elif op.startswith("s_cbranch_"):
            self._class("branch")
            self.branch(self.target(inst.operands[0]), self.conditional(inst))
        elif op in BARRIERS:
            self._class("barrier")
            if inst.operands and inst.operands[0].value != -1:
                raise self.fail("a named barrier")
            if op in ("s_barrier_wait", "s_barrier_signal") and "barrier" in self.options.checks:
                check_signal(self, op == "s_barrier_wait")
            if op in ("s_barrier", "s_barrier_wait"):
                self.barrier()
        elif op == "s_trap" and inst.operands[0].value == 3:
            # For a debugger; without one nothing happens (LLVM's AMDGPU usage guide, "Trap Handler ABI").
            self._class("other")
        elif op in ("s_trap", "s_sethalt") or (op.startswith("s_sendmsg_rtn") and "REALTIME" not in inst.text):
            self._class("other")  # RDNA3 halts by hand where s_trap is passed over
            self.fault_if("true", 13)
        elif op in CALLS:
            self._class("branch")
            self.call(inst)
        elif is_return(inst):
            self._class("branch")
            self.jump(self.scalar(inst.operands[0], "i64"))
        elif op == "s_getpc_b64":
            self._class("salu")
            self.write_scalar(inst.operands[0], "0", "i64")
            self.since_getpc = 0
        else:
            self.ordinary(inst)
            if self.since_getpc is not None:
                # Words since s_getpc: an opcode, and one more where it has a symbol for a literal.
                self.since_getpc += 4 + 4 * any(o.kind == "symbol" for o in inst.operands)
                if self.since_getpc > 64:
                    self.since_getpc = None
        if inst.mods:
            raise self.fail("modifier " + ", ".join(f"{k}:{v}" if v else k for k, v in inst.mods.items()))

    def mark(self) -> None:
        """Where an instruction begins in the text, for `undefined`."""
        if "init" in self.options.checks:
            for out in {id(o): o for o in (self.out, self.v.out)}.values():
                out.lines.append(f";@ {self.position}")

    def ordinary(self, inst: Inst) -> None:
        """The text of an instruction that is no control flow, by its row in the tables of `isa`, with its modifiers."""
        goal = ""  # where a result by index goes
        if self.gpr_index:
            if self.region is not None:
                close_region(self)
            inst, goal = indexed(self, inst)
            self.inst = inst
        row = lookup(self, inst)
        self._class(row.kind)
        if self.position in self.options.skip and row.kind not in ("lds", "vmem", "smem"):
            if row.kind == "matrix":
                self.block_matrix[inst.op] = self.block_matrix.get(inst.op, 0) + 1
            inst.mods.clear()
            return
        self.set_modes(inst, row.kind)
        if touches_masks(self, inst, row):
            close_region(self)
        if self.order is not None and self.position in self.order.acquires:
            self.settle()
            self._order("zeroinitializer", "0", ACQUIRES)
        if takes_strips(self, inst, row):
            if self.region is None:
                open_region(self)
        elif self.region is not None and not may_stay(row):
            close_region(self)
        self.mark()
        if self.region is not None and row.kind == "lds":
            lds_read(self, inst)
            return
        if row.kind == "matrix":
            self.block_matrix[inst.op] = self.block_matrix.get(inst.op, 0) + 1
        if inst.dual is None:
            self.op_sel_bits = self._op_sel(inst, row.kind)
            row.handler(self, inst)
            if goal:
                if self.region is not None:
                    close_region(self)
                put_indexed(self, goal)
            return
        second = inst.dual
        self.deferred = []
        for half in (inst, second):
            self.inst = half
            self.op_sel_bits = []
            part = lookup(self, half)
            self.set_modes(half, part.kind)
            part.handler(self, half)
        self.inst = inst
        self.flush_deferred()
        if second.mods:
            raise self.fail("modifier " + ", ".join(second.mods))

    def set_modes(self, inst: Inst, kind: str) -> None:
        """MODE as it is here, and how this instruction rounds. Raises where it does not follow the mode."""
        found = self.modes.get(self.position)
        if found is not None:
            self.float_mode, self.mode_unknown = found.value, found.unknown
        self.rounding.clear()
        types = _FLOAT.findall(inst.op) if kind in ("valu", "salu", "packed", "trans") else []
        if not types or not (self.modes or self.float_mode != 0xF0):
            return
        if _ROUNDS.match(inst.op):
            for t in types if "mix" in inst.op else types[:1]:
                self.rounding[t] = self.mode(ROUND_F32 if t == "f32" else ROUND_F16, 2)
            if "mixlo" in inst.op or "mixhi" in inst.op:
                self.rounding["f32"] = self.mode(ROUND_F32, 2)
        elif _INEXACT.match(inst.op) and self.mode(ROUND_F32, 4):
            raise self.fail("this opcode under a rounding mode other than to nearest")

    def _op_sel(self, inst: Inst, kind: str) -> list[int]:
        """op_sel for opcodes that are not packed; those read it by themselves."""
        if kind in ("packed", "matrix", "lane") or "op_sel" not in inst.mods:
            return []
        return inst.take_list("op_sel") or []

    def _class(self, kind: str) -> None:
        self.classes[kind] = self.classes.get(kind, 0) + 1
        self.block[kind] = self.block.get(kind, 0) + 1

    # The function.
    def run(self, symbol: str) -> Translation:
        """Translate all instructions, blocks in order; straight lines and strips of them where that is quicker."""
        starts: dict[int, list[str]] = {}
        for label, index in self.text.labels.items():
            starts.setdefault(index, []).append(label)
        self.begin_block(0)
        done = 0
        for index, inst in enumerate(self.text.insts):
            if index < done:
                continue
            self.position = index
            for label in starts.get(index, ()):
                self.check_index_mode()
                self.settle()
                self.out.put(f"br label %{self.label_name(label)}")
                self.out.label(self.label_name(label))
                self.segment_of[label] = self.new_segment(True)
                self.new_block()
                self.begin_block(index)
                self.since_getpc = None
            if self.options.stop is not None and inst.line == self.options.stop.line:
                self.stop_here(self.options.stop)
            whole = index in starts and self.options.stop is None
            end = loop_end(self, index, starts) if whole else None
            if end is not None:
                run_loop(self, index, end)
                done = end + 1
                continue
            if self.fill_counter:
                self.count_fills(inst)
            self.instruction(inst)
        self.settle()
        for index, labels in starts.items():
            if index >= len(self.text.insts):
                for label in labels:
                    self.out.put(f"br label %{self.label_name(label)}")
                    self.out.label(self.label_name(label))
        if self.text.insts[-1].op not in ("s_endpgm", "s_branch", "s_setpc_b64") or any(
            i >= len(self.text.insts) for i in starts
        ):
            self.fault_if("true", 20)
        self.out.put("unreachable")
        return finish(self, symbol)


def _with_full(options: Options, full: bool) -> Options:
    return replace(options, full=full)


def _last_vgpr(inst: Inst) -> int:
    parts = inst.operands if inst.dual is None else inst.operands + inst.dual.operands
    return max((o.index + max(1, o.count) - 1 for o in parts if o.kind == "v"), default=0)


def _writes_exec(inst: Inst) -> bool:
    if _WRITES_EXEC.match(inst.op):
        return True
    dst = inst.operands[0] if inst.operands else None
    return dst is not None and dst.kind == "s" and dst.index <= EXEC + 1 and dst.index + dst.count > EXEC


def translate(kernel: KernelText, options: Options, symbol: str, waves_many: bool = True) -> Translation:
    """The IR of `kernel` under `options`; raises `UnsupportedInstruction` at the first thing not modelled."""
    opcodes.load()
    made = Translator(kernel, options, waves_many).run(symbol)
    if "init" in options.checks:
        follow_undefined(made, kernel, options.lanes)
    return made
