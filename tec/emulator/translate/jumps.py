"""Branches, calls and returns of a kernel as those of the function that is written for it.

A label is a block of that function. A call writes a number for the place behind it, which no address of memory equals, and goes to the function
whose address it is given; a return goes to the place that the number names (`calls` has found which of them may be meant).
"""

from __future__ import annotations

import re

from ..context import CROWDED, CTX
from ..decode.inst import Inst, KernelText, Operand
from .accesses import Accesses
from .wave import EXEC, VCC


class Jumps(Accesses):
    """The translator's side of control flow."""

    text: KernelText
    symbols: list[str]
    segment_of: dict[str, int]  # the segment that a label starts
    terminated: bool
    waiting: frozenset[int]  # of those, in a trace, the ones that only wait
    polling: frozenset[int]  # backward branches at which a work-group may wait for another one

    def fault_if(self, condition: str, kind: int) -> None:
        raise NotImplementedError

    def begin_block(self, start: int) -> None:
        raise NotImplementedError

    def label_name(self, label: str) -> str:
        return "L" + re.sub(r"\W", "_", label)

    def target(self, op: Operand) -> str:
        if op.kind != "label" or op.text not in self.text.labels:
            raise self.fail(f"branch target {op.text!r}")
        return op.text

    def branch(self, label: str, condition: str | None = None) -> None:
        """To `label` where the condition (an i1; None: always) holds, else on."""
        goal = self.label_name(label)
        after = self.out.fresh_label("next")
        backward = self.text.labels[label] <= self.position
        if backward and self.position in self.waiting:
            # Alone in a trace it would wait for ever: it goes on, as if what it waits for were there.
            self.out.put(f"br label %{after}")
            condition = "false"
        elif not backward:
            self.out.put(f"br i1 {condition}, label %{goal}, label %{after}" if condition else f"br label %{goal}")
        else:
            pay = self.out.fresh_label("loop")
            self.out.put(f"br i1 {condition}, label %{pay}, label %{after}" if condition else f"br label %{pay}")
            self.out.label(pay)
            if self.position in self.polling:
                self._yield()
            self.pay(self.position - self.text.labels[label] + 1, goal)
        self.out.label(after)
        self.new_segment(condition is not None, label)
        self.terminated = condition is None
        if condition is None:
            self.new_block()
        else:
            self.begin_block(self.position + 1)

    def _yield(self) -> None:
        """Where work-groups have more threads than the host has CPUs (`together`), one that waits for another lets it run."""
        crowd, on = self.out.fresh_label("crowd"), self.out.fresh_label("on")
        at = self.out.emit(f"getelementptr i8, ptr %stop, i64 {CROWDED}")
        many = self.s.icmp("ne", "i32", self.out.emit(f"load volatile i32, ptr {at}"), "0")
        self.out.put(f"br i1 {many}, label %{crowd}, label %{on}, !prof !0")
        self.out.label(crowd)
        self.out.declares.add("declare i32 @sched_yield()")
        self.out.emit("call i32 @sched_yield()")
        self.out.put(f"br label %{on}")
        self.out.label(on)

    def pay(self, cost: int, goal: str) -> None:
        """Take `cost` instructions from the budget and go on to `goal`; leave where it is spent, or a stop is asked for."""
        at = self.out.emit(f"getelementptr i8, ptr %ctx, i64 {CTX['budget']}")
        left = self.s.sub(self.out.emit(f"load i64, ptr {at}"), str(cost), "i64")
        self.out.put(f"store i64 {left}, ptr {at}")
        stop = self.out.emit("load volatile i32, ptr %stop")
        stopped = self.s.icmp("ne", "i32", stop, "0")
        spent = self.s.icmp("slt", "i64", left, "0")
        leave = self.s.or_(stopped, spent, "i1")
        out = self.out.fresh_label("leave")
        self.out.put(f"br i1 {leave}, label %{out}, label %{goal}, !prof !0")
        self.out.label(out)
        kind = self.s.select(stopped, "i64", "7", "6")
        self.out.declares.add("declare i32 @tec_fault(ptr, i64, i32, i64, i64)")
        self.out.emit(f"call i32 @tec_fault(ptr %ctx, i64 {kind}, i32 {self.site()}, i64 0, i64 0)")
        self.out.put("br label %fault")

    def conditional(self, inst: Inst) -> str:
        name = inst.op.removeprefix("s_cbranch_")
        if name in ("scc0", "scc1"):
            value = self.scc()
            return value if name == "scc1" else self.s.not_(value, "i1")
        if name in ("vccz", "vccnz", "execz", "execnz"):
            bits = self.mask_bits(VCC if name.startswith("vcc") else EXEC)
            if self.full and name.startswith("exec"):
                bits = "-1"
            return self.s.icmp("ne" if name.endswith("nz") else "eq", self.mask_type, bits, "0")
        if name == "vskip":
            bit = int(inst.operands[2].value) & 31
            held = self.s.and_(self.scalar(inst.operands[1]), self.s.const("i32", 1 << bit))
            return self.s.icmp("ne", "i32", held, "0")
        raise self.fail(f"branch {inst.op}")

    def call(self, inst: Inst) -> None:
        """To a function; the place behind the call is a number of its own in the register pair that a return reads."""
        goal = inst.operands[1]
        to = self.code_address(goal.text) if goal.kind == "label" else self.scalar(goal, "i64")
        self.write_scalar(inst.operands[0], str(self.return_place(self.position + 1)), "i64")
        self.settle()
        self.jump(to)
        self.terminated = False
        here = self.return_label(self.position + 1)
        self.out.put(f"br label %{here}")
        self.out.label(here)
        self.segment_of[here] = len(self.segments) - 1
        self.begin_block(self.position + 1)

    @staticmethod
    def return_place(at: int) -> int:
        """The number that stands for the address of instruction `at`: no address of memory."""
        return 0x7EC0 << 32 | 4 * at

    @staticmethod
    def return_label(at: int) -> str:
        return f"return_{at}"

    def code_address(self, function: str) -> str:
        """The address of a function, as the loader placed it."""
        if function not in self.symbols:
            self.symbols.append(function)
        slot = self.out.emit(
            f"getelementptr i64, ptr {self.ctx_load('symbols', 'ptr')}, i64 {self.symbols.index(function)}"
        )
        return self.out.emit(f"load i64, ptr {slot}")

    def jump(self, to: str) -> None:
        """To the function, or the place behind a call, whose address `to` (an i64) is: one of those that `calls` found."""
        named = {at: name for name, at in self.text.functions.items()}
        goals = self.text.jumps.get(self.position, ())
        for at in goals:
            if at in named:  # functions first: their addresses are known when the kernel is launched
                here = self.s.icmp("eq", "i64", to, self.code_address(named[at]))
                pay, other = self.out.fresh_label("call"), self.out.fresh_label("other")
                self.out.put(f"br i1 {here}, label %{pay}, label %{other}")
                self.out.label(pay)
                self.pay(8, self.label_name(named[at]))  # calls may go round for ever
                self.out.label(other)
                self.segment.next.append(named[at])
        places = [at for at in goals if at not in named]
        lost = self.out.fresh_label("lost")
        cases = " ".join(f"i64 {self.return_place(at)}, label %{self.return_label(at)}" for at in places)
        self.out.put(f"switch i64 {to}, label %{lost} [ {cases} ]" if places else f"br label %{lost}")
        self.segment.next += [self.return_label(at) for at in places]
        self.out.label(lost)
        self.fault_if("true", 22)
        self.new_segment(False)
        self.terminated = True
        self.new_block()
