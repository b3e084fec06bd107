"""The functions that compute MFMA: one stages an operand as numbers of the width that is summed in, one multiplies staged operands.

The instructions of a tile share operands, so `mfma` keeps what is staged for as long as its registers stand. `mfma_function` does both, for
those that have no place for it.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable
from dataclasses import dataclass

from ..translate.ops import Ops, Out
from .float8 import decode, e8m0
from .matrix import Mfma, function_name
from .matrix_sums import LEAST, exponents, unsafe

_BITS = {"f32": 32, "xf32": 32, "f16": 16, "bf16": 16, "f64": 64, "fp6": 6, "bf6": 6, "fp4": 4}
_TYPES = {"f32": "float", "i32": "i32", "f64": "double"}
_ROWS = 4  # of a tile of results: so many independent sums hide the latency of the host's fma


@functools.lru_cache(4096)
def _order(lanes: tuple[int, ...]) -> str:
    return f"<{len(lanes)} x i32> <" + ", ".join([f"i32 {l}" for l in lanes]) + ">"


def lane_order(lanes: Iterable[int]) -> str:
    """A shuffle's mask. A matrix instruction has some hundred shuffles by few masks."""
    return _order(tuple(lanes))


@dataclass(frozen=True, slots=True)
class Stage:
    """How an operand's registers become numbers: element i of lane l at [64 i + l], of type `wide`. `exponents`: then those of
    four elements each, as bytes of a word: words of lane l at [64 i + l], and one that says whether one of them is of unsafe size (`matrix_sums`)."""

    source: str
    per_lane: int
    wide: str
    scaled: bool = False
    neighbours: int = 0  # rows of the shape whose 8-bit elements are to lie as `_neighbours` says
    flush: bool = False
    ocp: bool = False
    exponents: bool = False

    @property
    def name(self) -> str:
        flags = "".join(str(int(x)) for x in (self.scaled, self.neighbours, self.flush, self.ocp, self.exponents))
        return f"stage_{self.source}_{self.wide}_{self.per_lane}_{flags}"

    @property
    def regs(self) -> int:
        return max(1, self.per_lane * _BITS.get(self.source, 8) // 32)

    @property
    def values_bytes(self) -> int:
        return 64 * self.per_lane * (8 if self.wide == "f64" else 4)

    @property
    def flag_at(self) -> int:
        """Where the word of unsafe sizes is: behind the exponents."""
        return self.values_bytes + 256 * -(-self.per_lane // 4)

    @property
    def bytes(self) -> int:
        return self.flag_at + 64 if self.exponents else self.values_bytes

    def function(self) -> str:
        """LLVM IR of `void @name(ptr out, ptr in)`. Registers lie one vector of 64 i32 after another."""
        o = Ops(Out(), 64)
        emit, put = o.out.emit, o.out.put
        words = []
        for r in range(self.regs + self.scaled):
            words.append(emit(f"load <64 x i32>, ptr {emit(f'getelementptr i8, ptr %in, i64 {256 * r}')}, align 64"))
        values = [element(o, words, i, self.source, self.flush, self.ocp) for i in range(self.per_lane)]
        if self.neighbours:
            values = _neighbours(o, values, self.neighbours)
        if self.scaled:
            scale = e8m0(o, words[-1])
            values = [o.bin("fmul", "f32", v, scale) for v in values]

        def store(at: int, value: str) -> None:
            place = emit(f"getelementptr i8, ptr %out, i64 {at}")
            put(f"store {o.type(self.wide)} {value}, ptr {place}, align 64")

        each = self.values_bytes // self.per_lane
        for i, value in enumerate(values):
            store(each * i, value)
        if self.exponents:
            for i, word in enumerate(exponents(o, values, LEAST[self.source])):
                put(
                    f"store <64 x i32> {word}, ptr {emit(f'getelementptr i8, ptr %out, i64 {self.values_bytes + 256 * i}')}, align 64"
                )
            odd = o.const("i1", 0)
            for value in values:
                odd = o.or_(odd, unsafe(o, value), "i1")
            place = emit(f"getelementptr i8, ptr %out, i64 {self.flag_at}")
            put(f"store i64 {emit(f'bitcast <64 x i1> {odd} to i64')}, ptr {place}")
        body = "\n".join([*o.out.lines, "  ret void", "}", *sorted(o.out.declares), ""])
        return f"define internal void @{self.name}(ptr %out, ptr %in) noinline {{\nentry:\n{body}"


def stages(s: Mfma, flush: bool, ocp: bool, exponents: bool) -> list[Stage]:
    """Of A and of B."""
    wide = s.out
    return [
        Stage(
            source, s.per_lane, wide, s.scaled, s.m if source in ("fp8", "bf8") and s.per_lane == 32 else 0, flush, ocp, exponents
        )
        for source in s.sources
    ]  # fmt: skip


def product_name(s: Mfma) -> str:
    return "mul_" + s.name.removeprefix("v_mfma_")


def whole_function(s: Mfma, staged: list[Stage]) -> str:
    """LLVM IR of `void @name(ptr acc, ptr a, ptr b)`: acc += A B, the operands' registers given."""
    lines = [f"define internal void @{function_name(s)}(ptr %acc, ptr %a, ptr %b) noinline {{"]
    for name, stage in zip("ab", staged):
        lines.append(f"  %s{name} = alloca [{stage.bytes} x i8], align 64")
        lines.append(f"  call void @{stage.name}(ptr %s{name}, ptr %{name})")
    return "\n".join([*lines, f"  call void @{product_name(s)}(ptr %acc, ptr %sa, ptr %sb)", "  ret void", "}", ""])


def product_function(s: Mfma) -> str:
    """LLVM IR of `void @name(ptr acc, ptr sa, ptr sb)`: acc += A B of staged operands, one fma a k."""
    body = _small(s) if s.m == 4 else _tiles(s)
    text = "\n".join(body)
    return f"define internal void @{product_name(s)}(ptr %acc, ptr %sa, ptr %sb) noinline {{\nentry:\n{text}\n{_DECLARES[s.out]}"


def _tiles(s: Mfma) -> list[str]:
    """Sixteen columns and four rows at a time: B's vectors stay in registers while A's numbers are read row by row."""
    out = Out()
    emit, put = out.emit, out.put
    wide = _TYPES[s.out]
    vec, size = f"<16 x {wide}>", 8 if s.out == "f64" else 4
    places = [64 * i + s.m * s.blocks * g for g in range(s.k // s.per_lane) for i in range(s.per_lane)]

    def at(pointer: str, offset: int | str) -> str:
        return emit(f"getelementptr i8, ptr {pointer}, i64 {offset}")

    put("br label %block")
    out.label("block")
    put("%blk = phi i64 [ 0, %entry ], [ %blk1, %next ]")
    row = emit(f"mul i64 %blk, {size * s.m}")
    a, b = at("%sa", row), at("%sb", row)
    acc = at("%acc", emit(f"mul i64 %blk, {4 * s.m * s.m}"))
    before = "block"
    turns = [(places[k : k + 16], column) for k in range(0, len(places), 16) for column in range(0, s.m, 16)]
    for n, (some, column) in enumerate(turns):
        columns = [emit(f"load {vec}, ptr {at(b, size * (k + column))}, align {size}") for k in some]
        put(f"br label %tile{n}")
        out.label(f"tile{n}")
        put(f"%r{n} = phi i64 [ 0, %{before} ], [ %r{n}n, %tile{n} ]")
        rows = at(a, emit(f"mul i64 %r{n}, {size * _ROWS}"))
        if s.out == "f64":
            goals = [at(acc, emit(f"add i64 {emit(f'mul i64 %r{n}, 512')}, {64 * j}")) for j in range(_ROWS)]
        else:
            per = 64 // s.m  # such tiles beside each other in the lanes of four registers
            first = emit(f"mul i64 {emit(f'udiv i64 %r{n}, {per}')}, 1024")
            second = emit(f"mul i64 {emit(f'urem i64 %r{n}, {per}')}, {4 * s.m}")
            place = at(acc, emit(f"add i64 {first}, {second}"))
            goals = [at(place, 256 * j + 4 * column) for j in range(_ROWS)]
        sums = [_load_sums(out, s, goal) for goal in goals]
        for k, column_values in zip(some, columns):
            for j in range(_ROWS):
                one = emit(f"load {wide}, ptr {at(rows, size * (k + j))}")
                low = emit(f"insertelement {vec} poison, {wide} {one}, i64 0")
                splat = emit(f"shufflevector {vec} {low}, {vec} poison, <16 x i32> zeroinitializer")
                sums[j] = _accumulate(out, s, 16, splat, column_values, sums[j])
        for goal, value in zip(goals, sums):
            _store_sums(out, s, goal, value)
        before = f"end{n}"
        put(f"%r{n}n = add i64 %r{n}, 1")
        put(f"br i1 {emit(f'icmp ult i64 %r{n}n, {s.m // _ROWS}')}, label %tile{n}, label %{before}")
        out.label(before)
    put("br label %next")
    out.label("next")
    put("%blk1 = add i64 %blk, 1")
    put(f"br i1 {emit(f'icmp ult i64 %blk1, {s.blocks}')}, label %block, label %done")
    return [*out.lines, "done:", "  ret void", "}", ""]


def _accumulate(out: Out, s: Mfma, lanes: int, a: str, b: str, c: str) -> str:
    vec = f"<{lanes} x {_TYPES[s.out]}>"
    if s.out == "i32":
        return out.emit(f"add {vec} {out.emit(f'mul {vec} {a}, {b}')}, {c}")
    return out.emit(f"call {vec} @llvm.fma.v{lanes}{s.out}({vec} {a}, {vec} {b}, {vec} {c})")


def _load_sums(out: Out, s: Mfma, at: str, lanes: int = 16) -> str:
    """Results from where they lie in registers: a double's low word, and 64 lanes on its high one."""
    if s.out != "f64":
        return out.emit(f"load <{lanes} x {_TYPES[s.out]}>, ptr {at}, align 64")
    words = []
    for pointer in (at, out.emit(f"getelementptr i8, ptr {at}, i64 256")):
        word = out.emit(f"load <{lanes} x i32>, ptr {pointer}, align 64")
        words.append(out.emit(f"zext <{lanes} x i32> {word} to <{lanes} x i64>"))
    high = out.emit(f"shl <{lanes} x i64> {words[1]}, splat (i64 32)")
    both = out.emit(f"or <{lanes} x i64> {words[0]}, {high}")
    return out.emit(f"bitcast <{lanes} x i64> {both} to <{lanes} x double>")


def _store_sums(out: Out, s: Mfma, at: str, value: str, lanes: int = 16) -> None:
    if s.out != "f64":
        out.put(f"store <{lanes} x {_TYPES[s.out]}> {value}, ptr {at}, align 64")
        return
    bits = out.emit(f"bitcast <{lanes} x double> {value} to <{lanes} x i64>")
    for k, part in enumerate((bits, out.emit(f"lshr <{lanes} x i64> {bits}, splat (i64 32)"))):
        word = out.emit(f"trunc <{lanes} x i64> {part} to <{lanes} x i32>")
        pointer = out.emit(f"getelementptr i8, ptr {at}, i64 {256 * k}")
        out.put(f"store <{lanes} x i32> {word}, ptr {pointer}, align 64")


def _small(s: Mfma) -> list[str]:
    """The 4x4 shapes: every lane its own row and column, by shuffles."""
    out = Out()
    emit = out.emit
    wide = _TYPES[s.out]
    vec, size = f"<64 x {wide}>", 8 if s.out == "f64" else 4

    def staged(name: str, i: int) -> str:
        return emit(f"load {vec}, ptr {emit(f'getelementptr i8, ptr %s{name}, i64 {64 * size * i}')}, align 64")

    def shuffled(value: str, lanes: list[int]) -> str:
        return emit(f"shufflevector {vec} {value}, {vec} poison, {lane_order(lanes)}")

    values = [(staged("a", i), staged("b", i)) for i in range(s.per_lane)]
    for q in range(s.out_items):
        goal = emit(f"getelementptr i8, ptr %acc, i64 {256 * q}")
        total = _load_sums(out, s, goal, 64)
        places = [s.place(q, l) for l in range(64)]
        for g in range(s.k // s.per_lane):
            rows = [s.a_lane(row, g, block) for block, row, _ in places]
            columns = [s.a_lane(column, g, block) for block, _, column in places]
            for a, b in values:
                total = _accumulate(out, s, 64, shuffled(a, rows), shuffled(b, columns), total)
        _store_sums(out, s, goal, total, 64)
    return [*out.lines, "  ret void", "}", ""]


_DECLARES = {
    "f32": "declare <16 x float> @llvm.fma.v16f32(<16 x float>, <16 x float>, <16 x float>)\n"
    "declare <64 x float> @llvm.fma.v64f32(<64 x float>, <64 x float>, <64 x float>)\n",
    "f64": "declare <16 x double> @llvm.fma.v16f64(<16 x double>, <16 x double>, <16 x double>)\n"
    "declare <64 x double> @llvm.fma.v64f64(<64 x double>, <64 x double>, <64 x double>)\n",
    "i32": "",
}


def _neighbours(o: Ops, values: list[str], m: int) -> list[str]:
    """Rows of 8-bit elements, of which a lane holds 16 from each half of the k, as those of 6 and 4 bits lie: 32 neighbours a lane.

    So numbers of both kinds meet in one product, and a lane's scale is that of what it holds then. Source: CDNA4 ISA manual 7.1.5.1 and 7.2.1;
    Composable Kernel's probes of the scales (test/mx_mfma_op) found the same on hardware.
    """
    ty, groups = o.type("f32"), 64 // m
    out = []
    for i in range(32):
        order = []
        for lane in range(64):
            k = 32 * (lane // m) + i
            half, rest = divmod(k, 16 * groups)
            order.append(lane % m + m * (rest // 16) + 64 * half)
        out.append(o.out.emit(f"shufflevector {ty} {values[i % 16]}, {ty} {values[16 + i % 16]}, {lane_order(order)}"))
    return out


def element(o, words: list[str], i: int, source: str, flush: bool, ocp: bool = False) -> str:  # type: ignore[no-untyped-def]
    """Element i of a lane's registers, widened: f32, i32 or f64."""
    if source == "f32":
        return str(o.bitcast("i32", "f32", words[i]))
    if source == "xf32":  # ten mantissa bits: the lower ones are dropped
        return str(o.bitcast("i32", "f32", o.and_(words[i], o.const("i32", 0xFFFFE000))))
    if source == "f64":
        return str(o.bitcast("i64", "f64", o.pack(words[2 * i], words[2 * i + 1])))
    if source in ("f16", "bf16"):
        word = words[i // 2]
        half = o.lshr(word, o.const("i32", 16)) if i % 2 else o.and_(word, o.const("i32", 0xFFFF))
        if flush:
            exponent = 0x7C00 if source == "f16" else 0x7F80
            small = o.icmp("eq", "i32", o.and_(half, o.const("i32", exponent)), o.const("i32", 0))
            half = o.select(small, "i32", o.const("i32", 0), half)
        return str(o.fpext(source, "f32", o.bitcast("i16", source, o.trunc("i32", "i16", half))))
    if source in ("fp4", "fp6", "bf6"):
        bits = 4 if source == "fp4" else 6
        first, at = divmod(bits * i, 32)
        low = o.lshr(words[first], o.const("i32", at))
        if at + bits > 32:
            low = o.or_(low, o.shl(words[first + 1], o.const("i32", 32 - at)))
        return decode(o, o.and_(low, o.const("i32", (1 << bits) - 1)), source, fnuz=False)
    byte = o.shl(words[i // 4], o.const("i32", 24 - 8 * (i % 4)))
    if source in ("i8", "u8"):
        return str(o.bin("ashr" if source == "i8" else "lshr", "i32", byte, o.const("i32", 24)))
    return decode(o, o.lshr(byte, o.const("i32", 24)), source, fnuz=not ocp)
