"""`check="init"`: which bits of registers and memory were never given a value, followed through a kernel as it runs.

A pass over the LLVM IR of a translated wave, as LLVM's MemorySanitizer is over a program. Every value has a shadow of its size,
a 1 for each bit that nothing defined; registers, buffers and the wave's state have theirs beside them, LDS, scratch and global
memory in shadows that the second context block describes, so that the memory functions of the support library move
them as well. Undefined bits may be copied, merged, spilled and thrown away, as compilers do; a fault is reported where they decide
something: an address, a branch, EXEC, the operand of an atomic, or a value stored to global memory.

In: the IR text with a line `;@ <index of the instruction>` where an instruction begins. Out: the IR text with shadows. Source of the
rules: Stepanov and Serebryany, "MemorySanitizer: fast detector of uninitialized memory use in C++", CGO 2015; a sum or product is
undefined in the bits where an operand is, a comparison where the defined bits leave it open.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ..context import CTX, CTX_BYTES, PEEK, state_bytes
from ..isa.matrix import Mfma, function_name, parse_mfma
from .undefined_rules import RULES, Shadows, shadow_type, split_args, typed, zero

if TYPE_CHECKING:
    from ..decode.inst import Inst, KernelText
    from ..translate.translation import Translation

BRANCH, ADDRESS, STORED, EXEC_MASK, ATOMIC = 14, 15, 16, 17, 9
_ASSIGN = re.compile(r"  (%[\w.]+) = (?:volatile )?(\w+) (.*)")
_MEMORY = re.compile(r"@tec_(ld|st)_(global|lds|scratch)_(\w+)_(32|64)$")
_ATOMICS = re.compile(r"@tec_atomic_(global|lds)_(\w+)_(32|64)_(32|64)$")
_BYTES = {"b32": 4, "b64": 8, "b96": 12, "b128": 16, "u8": 1, "i8": 1, "u16": 2, "i16": 2}
_ONE = {  # the number 1 in the dwords of one or more elements
    "f32": (0x3F800000,), "xf32": (0x3F800000,), "f64": (0, 0x3FF00000), "f16": (0x3C003C00,), "bf16": (0x3F803F80,),
    "i8": (0x01010101,), "fp8": (0x40404040,), "bf8": (0x40404040,), "fp4": (0x22222222,),
    # 16 elements of 6 bits fill three dwords, and lie across them.
    **{kind: tuple(sum(one << 6 * i for i in range(16)) >> 32 * k & 0xFFFFFFFF for k in range(3)) for kind, one in (("fp6", 8), ("bf6", 12))},
}  # fmt: skip
_MOVES = ("llvm.bswap", "llvm.bitreverse")
_FUNNELS = ("llvm.fshl", "llvm.fshr")


@dataclass(slots=True)
class _Pass(Shadows):
    """The walk over the lines of the wave's function."""

    lanes: int = 64
    sites: list[tuple[int, str]] = field(default_factory=list)
    insts: list[Inst] = field(default_factory=list)
    declares: set[str] = field(default_factory=set)
    block: str = "entry"
    block_ends: dict[str, str] = field(default_factory=dict)
    inst: int = 0
    site_of: dict[int, int] = field(default_factory=dict)
    functions: dict[str, str] = field(default_factory=dict)  # of matrix instructions, by their names
    # Addresses that a function left in a buffer -> their shadows' buffer.
    placed: dict[str, str] = field(default_factory=dict)

    # Reports.
    def site(self) -> int:
        """A number for the instruction that is being written."""
        found = self.site_of.get(self.inst)
        if found is None:
            inst = self.insts[self.inst]
            self.sites.append((inst.line, inst.text))
            found = self.site_of[self.inst] = len(self.sites) - 1
        return found

    def fault_if(self, condition: str, kind: int, address: str = "0") -> None:
        self.declares.add("declare i32 @tec_fault(ptr, i64, i32, i64, i64)")
        self.count += 1
        call = f"%u.{self.count} = call i32 @tec_fault(ptr %ctx, i64 {kind}, i32 {self.site()}, i64 0, i64 {address})"
        self.rare(condition, call, "fault")

    def lanes_of(self, ty: str, shadow: str | None, mask: str) -> str | None:
        """The lanes of a mask (bits) in which a vector is undefined."""
        if shadow is None:
            return None
        return self._on(self.emit(f"bitcast <{self.lanes} x i1> {self.some(ty, shadow)} to i{self.lanes}"), mask)

    def _on(self, bits: str, mask: str) -> str:
        return bits if mask == "-1" else self.emit(f"and i{self.lanes} {bits}, {mask}")

    def check_access(self, ty: str, address: str, mask: str, data: str | None = None, kind: int = STORED) -> None:
        """A fault where an address is undefined in a lane of the mask, or data are in the lanes `data`."""
        w = f"i{self.lanes}"
        if address in self.placed:
            name = f"@tec_marked_wide_{self.lanes}"
            self.declares.add(f"declare {w} {name}(ptr)")
            found: str | None = self._on(self.emit(f"call {w} {name}(ptr {self.placed[address]})"), mask)
        else:
            found = self.lanes_of(ty, self.u(address), mask)
        total = self.either(w, found, data)
        if total is None:
            return
        bad = self.emit(f"icmp ne {w} {total}, 0")
        name = f"@tec_undefined_{ty[1:-1].partition(' x ')[2]}_{self.lanes}"
        self.declares.add(f"declare void {name}({ty}, {w}, {w}, i64, ptr, i32)")
        self.rare(
            bad,
            f"call void {name}({ty} {address}, {w} {found or 0}, {w} {data or 0}, i64 {kind}, ptr %ctx, i32 {self.site()})",
            "fault",
        )

    def rare(self, condition: str, call: str, then: str = "") -> None:
        """A call where the condition holds, then to a label or on."""
        self.count += 1
        yes, no = f"ub.{self.count}", f"ug.{self.count}"
        self.put(f"br i1 {condition}, label %{yes}, label %{no}, !prof !0")
        self.out.append(f"{yes}:")
        self.put(call)
        self.put(f"br label %{then or no}")
        self.out.append(f"{no}:")
        self.block_ends[self.block] = no

    # Lines.
    def line(self, line: str) -> None:
        """Follow a line of the function's text: an assignment, a call, a store or a branch."""
        if line.startswith(";@"):
            self.inst = int(line[2:])
            return
        m = _ASSIGN.match(line)
        if m is not None:
            name, op, rest = m[1], m[2], m[3]
            rest = rest.split(", !", 1)[0]
            if op == "call" or (op == "tail" and rest.startswith("call ")):
                self.call(line, name, rest.removeprefix("call "))
                return
            self.out.append(line)
            handler = RULES.get(op)
            if handler is None:
                raise AssertionError(f"no rule for {op!r}: {line}")
            shadow = handler(self, op, name, rest)
            if shadow is not None:
                self.shadows[name] = shadow
            if op == "load" and rest.partition(", ptr ")[2].startswith("%places,"):
                self.placed[name] = self.pointers["%places"]
            return
        body = line.strip()
        if body.startswith("store "):
            self.store(line, body)
        elif body.startswith("call void "):
            self.call(line, "", body.removeprefix("call "))
        elif body.startswith("br i1 "):
            condition = body[6:].split(",", 1)[0].strip()
            shadow = self.u(condition)
            if shadow is not None:
                self.fault_if(shadow, BRANCH)
            self.out.append(line)
        elif body.endswith(":") and line[:1] != " ":
            self.block = body[:-1]
            self.out.append(line)
        else:
            self.out.append(line)

    def store(self, line: str, body: str) -> None:
        ty, value = typed(split_args(body[6:])[0])
        pointer = split_args(body[6:])[1].removeprefix("ptr ")
        shadow = self.u(value)
        if pointer in ("%s126", "%s127") and shadow is not None:
            self.fault_if(self.some(shadow_type(ty), shadow), EXEC_MASK)
        self.out.append(line)
        at = self.pointers.get(pointer)
        if at is not None and ty != "ptr":
            su = shadow_type(ty)
            tail = line.split(pointer, 1)[1].split(", !", 1)[0]
            self.put(f"store {su} {shadow if shadow is not None else zero(su)}, ptr {at}{tail}")

    # Calls.
    def call(self, line: str, name: str, rest: str) -> None:
        """Follow a call: accesses of memory and atomics check and carry the undefined bits, others by what they do with their arguments."""
        ty, after = typed(rest)
        callee, _, arguments = after.partition("(")
        callee = callee.strip()
        args = [typed(a) for a in split_args(arguments[: arguments.rindex(")")])]
        memory, atomic = _MEMORY.match(callee), _ATOMICS.match(callee)
        if line.endswith(PEEK):
            self.out.append(line)
        elif memory is not None:
            self.memory(line, memory[1], memory[2], memory[3], args)
        elif atomic is not None:
            self.atomic(line, atomic[1], atomic[2], int(atomic[3]), args)
        elif callee.startswith("@tec_places_"):
            self.places(line, args)
        elif callee.startswith("@tec_zero_"):
            self.zeros(line, args)
        elif callee.startswith("@tec_scalar_"):
            shadow = self.u(args[0][1])
            if shadow is not None:
                self.fault_if(self.some("i64", shadow), ADDRESS, args[0][1])
            self.out.append(line)
        elif callee.startswith("@llvm.masked.gather"):
            self.out.append(line)
            self.gather(name, ty, args)
        elif callee.startswith("@llvm.masked.scatter"):
            self.out.append(line)
            self.scatter(args)
        elif callee.startswith(
            (
                "@tec_fault",
                "@tec_message",
                "@tec_race_",
                "@tec_clash_",
                "@tec_order_",
                "@tec_lines_",
                "@tec_banks_",
                "@tec_lds_fault",
                "@tec_arrays_",
                "@tec_fill",
            )
        ):
            self.out.append(line)
        elif not name:
            self.out.append(line)
            self.matrix(callee, args)
        else:
            self.out.append(line)
            self.value(name, ty, callee, args)

    def places(self, line: str, args: list[tuple[str, str]]) -> None:
        """Addresses of all lanes, into a buffer: each is undefined where the base or its own bits are."""
        goal, low, high, base = (v for _, v in args)
        name = f"@tec_blurs_{self.lanes}"
        self.declares.add(f"declare void {name}(ptr, ptr, ptr, i64)")
        self.out.append(line)
        upper = self.pointers[high] if high != "null" else high
        self.put(
            f"call void {name}(ptr {self.pointers[goal]}, ptr {self.pointers[low]}, ptr {upper}, i64 {self.u(base) or 0})"
        )

    def zeros(self, line: str, args: list[tuple[str, str]]) -> None:
        """0 in some lanes of registers: they are defined then."""
        (_, at), (w, mask), (_, n) = args
        undecided = self.u(mask)
        if undecided is not None:
            self.fault_if(self.some(w, undecided), ADDRESS)
        self.out.append(line)
        self.put(f"call void @tec_zero_{self.lanes}(ptr {self.pointers[at]}, {w} {mask}, i64 {n})")

    def value(self, name: str, ty: str, callee: str, args: list[tuple[str, str]]) -> None:
        """A function of values alone: undefined where any argument is, lane by lane."""
        if ty[0] == "{":
            first = shadow_type(split_args(ty[1:-1])[0])
            shadow = self.either(first, *(self.u(v) for t, v in args if shadow_type(t) == first))
            if shadow is not None:
                self.pairs[name] = shadow
            return
        to = shadow_type(ty)
        if callee[1:].startswith(_MOVES):
            shadow = self.u(args[0][1])
            if shadow is not None:
                self.shadows[name] = self.emit(f"call {to} {callee}({to} {shadow})")
            return
        if callee[1:].startswith(_FUNNELS):  # the bits that a word takes from two others
            (_, a), (_, b), (_, amount) = args
            first, second = (self.u(v) or zero(to) for v in (a, b))
            moved = (
                None
                if first == second == zero(to)
                else f"call {to} {callee}({to} {first}, {to} {second}, {to} {amount})"
            )
            found = self.either(to, moved and self.emit(moved), self.smear(to, self.u(amount), to))
            if found is not None:
                self.shadows[name] = found
            return
        if callee.startswith("@llvm.arithmetic.fence"):  # the shadow's select is to see none either: see `Ops.select`
            shadow = self.u(args[0][1])
            if shadow is not None:
                seen = self.emit(f"call {ty} {callee}({ty} {self.emit(f'bitcast {to} {shadow} to {ty}')})")
                self.shadows[name] = self.emit(f"bitcast {ty} {seen} to {to}")
            return
        total: str | None = None
        for t, v in args:
            total = self.either(to, total, self.smear(shadow_type(t), self.u(v), to))
        if total is not None:
            self.shadows[name] = total

    def gather(self, name: str, ty: str, args: list[tuple[str, str]]) -> None:
        pointers = args[0][1].split()[-1]
        at, to = self.pointers.get(pointers), shadow_type(ty)
        if at is None:
            return
        callee = f"@llvm.masked.gather.v{self.width(ty)}i32.v{self.width(ty)}p0"
        n = self.width(ty)
        self.declares.add(f"declare {to} {callee}(<{n} x ptr>, <{n} x i1>, {to})")
        old = self.u(args[2][1])
        got = self.emit(
            f"call {to} {callee}(<{n} x ptr> align 4 {at}, <{n} x i1> {args[1][1]}, {to} {old if old is not None else zero(to)})"
        )
        index = self.indices.get(pointers)
        shadow = self.either(to, got, self.smear(f"<{n} x i64>", index, to) if index is not None else None)
        if shadow is not None:
            self.shadows[name] = shadow

    def scatter(self, args: list[tuple[str, str]]) -> None:
        (ty, value), pointers, mask = args[0], args[1][1].split()[-1], args[2][1]
        at, to, n = self.pointers.get(pointers), shadow_type(ty), self.width(ty)
        if at is None:
            return
        shadow = self.u(value)
        callee = f"@llvm.masked.scatter.v{n}i32.v{n}p0"
        self.declares.add(f"declare void {callee}({to}, <{n} x ptr>, <{n} x i1>)")
        self.put(
            f"call void {callee}({to} {shadow if shadow is not None else zero(to)}, <{n} x ptr> align 4 {at}, <{n} x i1> {mask})"
        )

    def width(self, ty: str) -> int:
        return int(ty[1:].split(" ", 1)[0])

    def matrix(self, callee: str, args: list[tuple[str, str]]) -> None:
        """acc += A B: a result is undefined where its row of A, its column of B or what was there is.

        Found by the instruction itself: A with ones for its undefined elements and zeros else times a B of ones, and the
        reverse. Rarely needed, so it stands behind a branch.
        """
        shape = parse_mfma("v_" + callee[1:])
        if shape is None or callee[1:] != function_name(shape):
            raise AssertionError(f"no rule for {callee}")
        name = "undefined_" + callee[1:]
        if name not in self.functions:
            before = self.out, self.block_ends, self.count
            self.out, self.block_ends, self.count = [], {}, 0  # the same text in every kernel
            self._product(shape, callee)
            buffers = [
                f"  %{n} = alloca [{k} x <{self.lanes} x i32>], align 64"
                for n, k in (("umacc", 32), ("uma", 9), ("umb", 9))
            ]
            head = f"define internal void @{name}(ptr %acc, ptr %a, ptr %b) noinline {{"
            self.functions[name] = "\n".join([head, *buffers, *self.out, "  ret void", "}"])
            self.out, self.block_ends, self.count = before
        given = ", ".join(f"ptr {self.pointers[v]}" for _, v in args)
        self.put(f"call void @{name}({given})")

    def _product(self, shape: Mfma, callee: str) -> None:
        """The body of a function that carries the undefined bits of one matrix instruction, from those of %a and %b to %acc."""
        acc, a, b = "%acc", "%a", "%b"
        vector, size = f"<{self.lanes} x i32>", 4 * self.lanes

        def registers(pointer: str, n: int) -> list[str]:
            places = [self.emit(f"getelementptr i8, ptr {pointer}, i64 {size * k}") if k else pointer for k in range(n)]
            return [self.emit(f"load {vector}, ptr {at}, align 64") for at in places]

        def put(values: list[str], pointer: str) -> None:
            for k, value in enumerate(values):
                at = self.emit(f"getelementptr i8, ptr {pointer}, i64 {size * k}")
                self.put(f"store {vector} {value}, ptr {at}, align 64")

        sources = [registers(a, shape.regs(0) + shape.scaled), registers(b, shape.regs(1) + shape.scaled)]
        total = self.either(vector, *sources[0], *sources[1])
        any_lane = self.emit(f"bitcast <{self.lanes} x i1> {self.some(vector, total or '')} to i{self.lanes}")
        bad = self.emit(f"icmp ne i{self.lanes} {any_lane}, 0")
        self.count += 1
        yes, no = f"ub.{self.count}", f"ug.{self.count}"
        self.put(f"br i1 {bad}, label %{yes}, label %{no}, !prof !0")
        self.out.append(f"{yes}:")
        put([zero(vector)] * shape.out_regs, "%umacc")
        for which in (0, 1):
            marked = self._ones_where(sources[which], shape.sources[which], shape.scaled)
            every = self._ones(shape.sources[1 - which], shape.regs(1 - which), shape.scaled)
            put(marked if which == 0 else every, "%uma")
            put(every if which == 0 else marked, "%umb")
            self.put(f"call void {callee}(ptr %umacc, ptr %uma, ptr %umb)")
        found = registers("%umacc", shape.out_regs)
        if shape.out == "f64":  # two dwords an element
            pairs = [self.either(vector, found[k], found[k + 1]) or "" for k in range(0, len(found), 2)]
            found = [x for x in pairs for _ in range(2)]
        before = registers(acc, shape.out_regs)
        put([self.either(vector, self.smear(vector, f, vector), u) or "" for f, u in zip(found, before)], acc)
        self.put(f"br label %{no}")
        self.out.append(f"{no}:")
        self.block_ends[self.block] = no

    def _ones(self, kind: str, n: int, scaled: bool = False) -> list[str]:
        """n registers full of the number 1, and its exponent where they are scaled."""
        dwords = _ONE[kind]
        return [*(f"splat (i32 {dwords[k % len(dwords)]})" for k in range(n)), *["splat (i32 127)"] * scaled]

    def _ones_where(self, shadows: list[str], kind: str, scaled: bool = False) -> list[str]:
        """Registers with a 1 in each element that has an undefined bit, and 0 elsewhere. An undefined scale is its lane's elements'."""
        vector = f"<{self.lanes} x i32>"
        if scaled:
            scale = self.smear(vector, shadows[-1], vector) or ""
            marked = self._ones_where([self.either(vector, x, scale) or "" for x in shadows[:-1]], kind)
            return [*marked, "splat (i32 127)"]
        if kind == "f64":
            pairs = [self.either(vector, shadows[k], shadows[k + 1]) or "" for k in range(0, len(shadows), 2)]
            shadows = [x for x in pairs for _ in range(2)]
        if kind in ("fp6", "bf6"):  # all of a lane's or none
            shadows = [self.either(vector, *shadows) or ""] * len(shadows)
        bits = {"f16": 16, "bf16": 16, "i8": 8, "fp8": 8, "bf8": 8, "fp4": 4}.get(kind, 32)
        narrow = f"<{self.lanes * 32 // bits} x i{bits}>"
        out = []
        for shadow, one in zip(shadows, self._ones(kind, len(shadows))):
            elements = shadow if bits == 32 else self.emit(f"bitcast {vector} {shadow} to {narrow}")
            full = self.smear(narrow, elements, narrow) or ""
            full = full if bits == 32 else self.emit(f"bitcast {narrow} {full} to {vector}")
            out.append(self.emit(f"and {vector} {full}, {one}"))
        return out

    def buffer_lanes(self, pointer: str, dwords: int, mask: str, bits: int = 32) -> str:
        """The lanes in which data waiting in a buffer are undefined."""
        w, name = f"i{self.lanes}", f"@tec_marked_{self.lanes}"
        self.declares.add(f"declare {w} {name}(ptr, i64, i32)")
        wanted = (1 << bits) - 1 if bits < 32 else -1
        found = self.emit(f"call {w} {name}(ptr {self.pointers[pointer]}, i64 {dwords}, i32 {wanted})")
        return self._on(found, mask)

    def shadow_address(self, space: str, ty: str, address: str) -> str:
        """Where the shadows of these addresses lie, for a memory function with the second context."""
        return self.emit(f"add {ty} {address}, %uoffv") if space == "global" else address

    def access(self, verb: str, space: str, what: str, buffer: str, ty: str, address: str, mask: str) -> None:
        """Move shadows between memory and a buffer."""
        callee = f"@tec_{verb}_{space}_{what}_{self.lanes}"
        w = f"i{self.lanes}"
        self.declares.add(f"declare i32 {callee}(ptr, {ty}, {w}, ptr, i32)")
        at = self.shadow_address(space, ty, address)
        self.emit(f"call i32 {callee}(ptr {buffer}, {ty} {at}, {w} {mask}, ptr %ctx2, i32 {self.site()})")

    def memory(self, line: str, verb: str, space: str, what: str, args: list[tuple[str, str]]) -> None:
        buffer, (ty, address), mask = args[0][1], args[1], args[2][1]
        nbytes = _BYTES[what]
        dwords = max(1, nbytes // 4)
        data = self.buffer_lanes(buffer, dwords, mask, 8 * nbytes) if verb == "st" and space == "global" else None
        self.check_access(ty, address, mask, data)
        self.out.append(line)
        # A signed narrow load spreads its highest bit, and so does that bit's shadow.
        self.access(verb, space, what, self.pointers[buffer], ty, address, mask)
        if verb == "ld":
            self.note_origin(buffer, dwords, ty, address, mask)

    def note_origin(self, buffer: str, dwords: int, ty: str, address: str, mask: str) -> None:
        """Remember the last load that found undefined bits, for a message."""
        lanes = self.buffer_lanes(buffer, dwords, mask)
        w = f"i{self.lanes}"
        bad = self.emit(f"icmp ne {w} {lanes}, 0")
        name = f"@tec_origin_{ty[1:-1].partition(' x ')[2]}_{self.lanes}"
        self.declares.add(f"declare void {name}({ty}, {w}, ptr, i32)")
        self.rare(bad, f"call void {name}({ty} {address}, {w} {lanes}, ptr %ctx, i32 {self.site()})")

    def atomic(self, line: str, space: str, op: str, bits: int, args: list[tuple[str, str]]) -> None:
        buffer, (ty, address), mask = args[0][1], args[1], args[2][1]
        n = bits // 32
        data = self.buffer_lanes(buffer, 2 * n if op == "cmpswap" else n, mask)
        self.check_access(ty, address, mask, data)
        shadow = self.pointers[buffer]
        self.access("ld", space, f"b{bits}", shadow, ty, address, mask)
        if op != "swap":
            self.note_origin(buffer, n, ty, address, mask)
            self.check_access(ty, address, mask, self.buffer_lanes(buffer, n, mask), ATOMIC)
        self.out.append(line)
        if op == "swap":  # what was there comes back as it was; what is there now is defined
            self.put(f"store [4 x <{self.lanes} x i32>] zeroinitializer, ptr %uzero, align 64")
            self.access("st", space, f"b{bits}", "%uzero", ty, address, mask)

    def run(self, ir: str, state: int) -> str:
        """A function's text with code beside it that follows which bits are undefined."""
        lines = ir.split("\n")
        start = next(i for i, l in enumerate(lines) if l.startswith("define "))
        end = next(i for i in range(start, len(lines)) if lines[i] == "}")
        self.pointers["%st"] = "%st.u"
        self.out = lines[: start + 1]
        wide = f"<{self.lanes} x i64>"
        head = [
            f"  %st.u = getelementptr i8, ptr %st, i64 {state}",
            f"  %ctx2 = getelementptr i8, ptr %ctx, i64 {CTX_BYTES}",
            f"  %uoff_p = getelementptr i8, ptr %ctx, i64 {CTX['undefined_offset']}",
            "  %uoff = load i64, ptr %uoff_p",
            f"  %uoff_i = insertelement {wide} poison, i64 %uoff, i64 0",
            f"  %uoffv = shufflevector {wide} %uoff_i, {wide} poison, <{self.lanes} x i32> zeroinitializer",
            f"  %uzero = alloca [4 x <{self.lanes} x i32>], align 64",
        ]
        for line in lines[start + 1 : end]:
            self.line(line)
            if line == "entry:":
                self.out += head
        text = "\n".join(self.out)
        if self.block_ends and " phi " in text:
            text = re.sub(r"(?m)^  %[\w.]+ = phi .*$", lambda m: self._phi(m[0]), text)
        tail = [l for l in lines[end:] if not l.startswith("declare")]
        declares = self.declares | {l for l in lines[end:] if l.startswith("declare")}
        return "\n".join([text, tail[0], *self.functions.values(), *tail[1:], *sorted(declares)])

    def _phi(self, line: str) -> str:
        return re.sub(r"%([\w.]+) \]", lambda m: f"%{self.block_ends.get(m[1], m[1])} ]", line)


def follow_undefined(translation: Translation, text: KernelText, lanes: int) -> None:
    """Rewrite a translation's IR so that it carries shadows; its state is then twice as large."""
    state = state_bytes(lanes, translation.vgprs)
    translation.ir = _Pass(lanes=lanes, sites=translation.sites, insts=text.insts).run(translation.ir, state)
