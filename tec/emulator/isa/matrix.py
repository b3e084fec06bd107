"""Matrix instructions: the layouts of MFMA (CDNA) and WMMA (RDNA3, RDNA4), and the functions that compute them.

Source: CDNA3 ISA manual 7.1.4 ("Dense matrix layout"), RDNA3 ISA manual 7.9, RDNA4 ISA manual ("WMMA"). For MFMA with blocks of
M x N x K over 64 lanes: lane l holds of A the row l mod M, of block (l div M) mod B, and of the k that belong to l div (M B),
as many as fit its registers; B likewise by columns. The result's rows come four by four: register q of lane l holds row
4 * (rows' group) + q mod 4.

Numbers: f16, bf16 and 8-bit inputs are widened (exact); how products are summed is `matrix_sums`'s. 8-bit floats are FNUZ on gfx942, OCP on gfx950.

Modifiers, from the same manual and AMD's matrix instruction calculator: CBSZ and ABID give one block of A to each group of
2**CBSZ blocks, the one that ABID names; BLGP lets B's lanes read other lanes. In f64 instructions of gfx942 its bits are signs.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from ..translate.ops import Ops, Out
from .float8 import decode, e8m0

FORMATS = ("fp8", "bf8", "fp6", "bf6", "fp4")  # by the value of CBSZ (of A) and BLGP (of B) in an f8f6f4
_MIXED = re.compile(r"v_mfma_(?:scale_)?f32_(\d+x\d+x\d+)_f8f6f4$")
_NAME = re.compile(
    r"v_mfma_(f32|i32|f64)_(\d+)x(\d+)x(\d+)(?:_(\d+)b)?_?(f32|f16|bf16|i8|f64|xf32|(?:fp8|bf8|fp6|bf6|fp4)_(?:fp8|bf8|fp6|bf6|fp4))(_1k)?(_scaled)?$"
)


@dataclass(frozen=True, slots=True)
class Mfma:
    """One MFMA shape. `per_lane`: how many k a lane holds of one row; `a_regs` and so on count 32-bit registers."""

    name: str
    out: str  # f32, i32 or f64
    source: str  # f32, f16, bf16, i8, f64, xf32, fp8_bf8, ...
    m: int
    n: int
    k: int
    blocks: int
    scaled: bool = False  # a power of two for each lane's elements of A and of B, behind their registers

    @property
    def per_lane(self) -> int:
        return self.m * self.k * self.blocks // 64

    @property
    def sources(self) -> tuple[str, str]:
        """The types of A's and B's elements."""
        a, _, b = self.source.partition("_")
        return a, b or a

    def regs(self, which: int) -> int:
        """Registers of A (0) or B (1)."""
        bits = {"f32": 32, "xf32": 32, "f16": 16, "bf16": 16, "f64": 64, "fp6": 6, "bf6": 6, "fp4": 4}
        return max(1, self.per_lane * bits.get(self.sources[which], 8) // 32)

    @property
    def out_items(self) -> int:
        return self.m * self.n * self.blocks // 64

    @property
    def out_regs(self) -> int:
        return self.out_items * (2 if self.out == "f64" else 1)

    def a_lane(self, row: int, group: int, block: int) -> int:
        """The lane that holds row (or column) `row` of `block`, for k in [group * per_lane, ...)."""
        return row + self.m * (block + self.blocks * group)

    def place(self, item: int, lane: int) -> tuple[int, int, int]:
        """(block, row, column) of a result item."""
        if self.out == "f64":
            if self.m == 4:
                return lane // 4 % 4, lane // 16, lane % 4
            return 0, 4 * item + lane // 16, lane % 16
        if self.m == 4:
            return lane // 4, item, lane % 4
        per_block = self.m * self.m // 64
        block, q = divmod(item, per_block)
        groups = 64 // self.m  # lane groups of one block's columns
        row = 4 * groups * (q // 4) + 4 * (lane // self.m) + q % 4
        return block, row, lane % self.m

    # Operands that read other lanes.
    def broadcasts(self) -> bool:
        """Whether BLGP means lanes: not of f64, of the 8-bit floats, of xf32 or of the shapes that gfx950 added."""
        wide = {"f16": 8, "bf16": 8, "i8": 16}.get(self.source)
        return self.source in ("f32", "f16", "bf16", "i8") and self.per_lane != wide

    def a_source(self, lane: int, cbsz: int, abid: int) -> int:
        """The lane whose A this lane takes."""
        row, rest = lane % self.m, lane // self.m
        block, group = rest % self.blocks, rest // self.blocks
        return self.a_lane(row, group, block >> cbsz << cbsz | abid)


def b_source(lane: int, blgp: int) -> int:
    """The lane whose B this lane takes: all, one half of the wave for both, a turn by 16, or one quarter for all."""
    if blgp in (1, 2):
        return lane % 32 + 32 * (blgp - 1)
    if blgp == 3:
        return (lane + 16) % 64
    return lane % 16 + 16 * (blgp - 4) if blgp else lane


def parse_mfma(op: str) -> Mfma | None:
    """The shape that a mnemonic names, in gfx90a's spelling (32x32x8f16) or gfx942's (32x32x8_f16, 2b for blocks)."""
    m = _NAME.match(op)
    if m is None or m[2] != m[3]:
        return None
    size, k = int(m[2]), int(m[4])
    per_lane = _per_lane(m[6], bool(m[7]), size, k)
    blocks = int(m[5]) if m[5] else _blocks(size, k, per_lane)
    return Mfma(op, m[1], m[6], size, size, k, blocks, bool(m[8]))


def parse_mixed(op: str, cbsz: int, blgp: int) -> Mfma | None:
    """The shape of an f8f6f4, whose types its modifiers give."""
    m = _MIXED.match(op)
    if m is None or max(cbsz, blgp) >= len(FORMATS):
        return None
    return parse_mfma(f"v_mfma_f32_{m[1]}_{FORMATS[cbsz]}_{FORMATS[blgp]}{'_scaled' * ('_scale_' in op)}")


def _per_lane(source: str, one_k: bool, size: int, k: int) -> int:
    """How many k one lane holds, where the spelling does not give the blocks."""
    if source in ("f32", "f64"):
        return 1
    if source == "xf32":
        return 2
    if source == "f16" or (source == "bf16" and one_k):
        return 8 if size * k >= 512 else 4
    if source == "bf16":
        # gfx908's form holds two; gfx942 names (x8_bf16, x16_bf16) hold four, gfx950's eight.
        return {(32, 2): 2, (16, 2): 2, (4, 2): 2, (32, 4): 2, (16, 8): 2}.get((size, k), 8 if size * k >= 512 else 4)
    if source == "i8":
        return 16 if size * k >= 1024 else 8 if size * k >= 512 else 4
    return 32 if size * k > 1024 else 8


def _blocks(size: int, k: int, per_lane: int) -> int:
    return max(1, 64 * per_lane // (size * k))


def convert(source: str, wide: str, denormals: bool) -> str:
    """A comment-free name for the conversion of one element; see `mfma_function`."""
    return f"{source}->{wide}{'' if denormals else ' flushed'}"


def mfma_function(s: Mfma, flush: bool, ocp: bool = False) -> str:
    """LLVM IR of `void @name(ptr acc, ptr a, ptr b)`: acc += A B. Registers lie one vector of 64 i32 after another."""
    wide, ty = {"f32": ("float", "f32"), "i32": ("i32", "i32"), "f64": ("double", "f64")}[s.out]
    size = 8 if s.out == "f64" else 4
    groups = s.k // s.per_lane
    lines = [f"define internal void @{function_name(s)}(ptr %acc, ptr %a, ptr %b) noinline {{", "entry:"]
    lines.append(f"  %sa = alloca [{64 * s.per_lane} x {wide}], align 64")
    lines.append(f"  %sb = alloca [{64 * s.per_lane} x {wide}], align 64")
    for name in "ab":
        lines += _stage(s, name, wide, flush, ocp)
    if s.m == 4:
        return "\n".join(lines + _small(s, wide, ty, groups)) + _DECLARES[s.out]
    # Each run of 16 lanes shares one row, so A is one number and B sixteen in sequence.
    lines += [
        "  br label %items",
        "items:",
        "  %q = phi i64 [ 0, %entry ], [ %q1, %items ]",
        *_row_of_item(s),
    ]
    vec = f"<16 x {wide}>"
    for c in range(4):
        acc_at = f"%p{c}"
        lines.append(f"  %o{c} = add i64 %accq, {16 * c * 4 if s.out != 'f64' else 0}")
        if s.out == "f64":
            lines += _load_f64(c)
        else:
            lines.append(f"  {acc_at} = getelementptr i8, ptr %acc, i64 %o{c}")
            lines.append(f"  %v{c}_0 = load {vec}, ptr {acc_at}, align 64")
        row_extra = 4 * (16 * c // s.m) if s.out != "f64" else c
        lines.append(f"  %row{c} = add i64 %rowq, {row_extra}")
        step = 0
        for g in range(groups):
            for item in range(s.per_lane):
                base = item * 64 + s.m * s.blocks * g
                lines.append(f"  %ia{c}_{step} = add i64 %row{c}, {base}")
                lines.append(f"  %ja{c}_{step} = add i64 %ia{c}_{step}, %blockoff")
                lines.append(f"  %pa{c}_{step} = getelementptr {wide}, ptr %sa, i64 %ja{c}_{step}")
                lines.append(f"  %xa{c}_{step} = load {wide}, ptr %pa{c}_{step}")
                lines.append(f"  %ya{c}_{step} = insertelement {vec} poison, {wide} %xa{c}_{step}, i64 0")
                lines.append(
                    f"  %za{c}_{step} = shufflevector {vec} %ya{c}_{step}, {vec} poison, <16 x i32> zeroinitializer"
                )
                lines.append(f"  %ib{c}_{step} = add i64 %blockoff, {base + 16 * c % s.m}")
                lines.append(f"  %pb{c}_{step} = getelementptr {wide}, ptr %sb, i64 %ib{c}_{step}")
                lines.append(f"  %xb{c}_{step} = load {vec}, ptr %pb{c}_{step}, align {size}")
                lines += _accumulate(
                    s, vec, ty, f"%v{c}_{step + 1}", f"%za{c}_{step}", f"%xb{c}_{step}", f"%v{c}_{step}"
                )
                step += 1
        if s.out == "f64":
            lines += _store_f64(c, step)
        else:
            lines.append(f"  store {vec} %v{c}_{step}, ptr {acc_at}, align 64")
    lines += [
        "  %q1 = add i64 %q, 1",
        f"  %more = icmp ult i64 %q1, {s.out_items}",
        "  br i1 %more, label %items, label %done",
        "done:",
        "  ret void",
        "}",
        "",
    ]
    return "\n".join(lines) + _DECLARES[s.out]


def function_name(s: Mfma) -> str:
    return "mfma_" + s.name.removeprefix("v_mfma_")


_DECLARES = {
    "f32": "declare <16 x float> @llvm.fma.v16f32(<16 x float>, <16 x float>, <16 x float>)\n"
    "declare <64 x float> @llvm.fma.v64f32(<64 x float>, <64 x float>, <64 x float>)\n",
    "f64": "declare <16 x double> @llvm.fma.v16f64(<16 x double>, <16 x double>, <16 x double>)\n"
    "declare <64 x double> @llvm.fma.v64f64(<64 x double>, <64 x double>, <64 x double>)\n",
    "i32": "",
}


def _row_of_item(s: Mfma) -> list[str]:
    """%rowq, %blockoff (lanes to the item's block) and %accq (bytes to the item's register) from %q."""
    if s.out == "f64":
        return ["  %rowq = mul i64 %q, 4", "  %blockoff = add i64 0, 0", "  %accq = mul i64 %q, 512"]
    per_block = s.m * s.m // 64
    return [
        f"  %blk = udiv i64 %q, {per_block}",
        f"  %qq = urem i64 %q, {per_block}",
        "  %q4 = udiv i64 %qq, 4",
        f"  %r4 = mul i64 %q4, {4 * (64 // s.m)}",
        "  %qm = urem i64 %qq, 4",
        "  %rowq = add i64 %r4, %qm",
        f"  %blockoff = mul i64 %blk, {s.m}",
        "  %accq = mul i64 %q, 256",
    ]


def _accumulate(s: Mfma, vec: str, ty: str, out: str, a: str, b: str, c: str) -> list[str]:
    lanes = vec[1 : vec.index(" ")]
    if s.out == "i32":
        return [f"  {out}_m = mul {vec} {a}, {b}", f"  {out} = add {vec} {out}_m, {c}"]
    return [f"  {out} = call {vec} @llvm.fma.v{lanes}{ty}({vec} {a}, {vec} {b}, {vec} {c})"]


def _load_f64(c: int) -> list[str]:
    """16 lanes of a double from a low and a high register."""
    return [
        f"  %l{c}o = add i64 %accq, {64 * c}",
        f"  %l{c}p = getelementptr i8, ptr %acc, i64 %l{c}o",
        f"  %l{c}h = getelementptr i8, ptr %l{c}p, i64 256",
        f"  %l{c}a = load <16 x i32>, ptr %l{c}p",
        f"  %l{c}b = load <16 x i32>, ptr %l{c}h",
        f"  %l{c}c = zext <16 x i32> %l{c}a to <16 x i64>",
        f"  %l{c}d = zext <16 x i32> %l{c}b to <16 x i64>",
        f"  %l{c}e = shl <16 x i64> %l{c}d, splat (i64 32)",
        f"  %l{c}f = or <16 x i64> %l{c}c, %l{c}e",
        f"  %v{c}_0 = bitcast <16 x i64> %l{c}f to <16 x double>",
    ]


def _store_f64(c: int, step: int) -> list[str]:
    return [
        f"  %s{c}a = bitcast <16 x double> %v{c}_{step} to <16 x i64>",
        f"  %s{c}b = trunc <16 x i64> %s{c}a to <16 x i32>",
        f"  %s{c}c = lshr <16 x i64> %s{c}a, splat (i64 32)",
        f"  %s{c}d = trunc <16 x i64> %s{c}c to <16 x i32>",
        f"  store <16 x i32> %s{c}b, ptr %l{c}p",
        f"  store <16 x i32> %s{c}d, ptr %l{c}h",
    ]


def _stage(s: Mfma, name: str, wide: str, flush: bool, ocp: bool) -> list[str]:
    """A's or B's registers to numbers: element i of lane l at [64 i + l]."""
    out = Out()
    o = Ops(out, 64)
    which = 0 if name == "a" else 1
    source = s.sources[which]
    dst = {"f32": "f32", "i32": "i32", "f64": "f64"}[s.out]
    values: list[str] = []
    words = []
    for r in range(s.regs(which) + s.scaled):
        p = out.emit(f"getelementptr i8, ptr %{name}, i64 {256 * r}")
        words.append(out.emit(f"load <64 x i32>, ptr {p}, align 64"))
    for i in range(s.per_lane):
        values.append(element(o, words, i, source, flush, ocp))
    if source in ("fp8", "bf8") and s.per_lane == 32:
        values = _neighbours(o, values, s.m)
    if s.scaled:
        scale = e8m0(o, words[-1])
        values = [o.bin("fmul", "f32", v, scale) for v in values]
    for i, value in enumerate(values):
        p = out.emit(f"getelementptr i8, ptr %s{name}, i64 {64 * i * (8 if dst == 'f64' else 4)}")
        out.put(f"store {o.type(dst)} {value}, ptr {p}, align 64")
    return [line.replace("%t", f"%{name}t") for line in out.lines]


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
        text = f"<64 x i32> <{', '.join(f'i32 {x}' for x in order)}>"
        out.append(o.out.emit(f"shufflevector {ty} {values[i % 16]}, {ty} {values[16 + i % 16]}, {text}"))
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


def _small(s: Mfma, wide: str, ty: str, groups: int) -> list[str]:
    """The 4x4 shapes: every lane its own row and column, by shuffles."""
    vec = f"<64 x {wide}>"
    lines = []

    def order(lanes: list[int]) -> str:
        return "<64 x i32> <" + ", ".join(f"i32 {l}" for l in lanes) + ">"

    for i in range(s.per_lane):
        for name in "ab":
            lines.append(f"  %w{name}{i}p = getelementptr {wide}, ptr %s{name}, i64 {64 * i}")
            lines.append(f"  %w{name}{i} = load {vec}, ptr %w{name}{i}p, align 64")
    for q in range(s.out_items):
        if s.out == "f64":
            lines += [
                "  %hp = getelementptr i8, ptr %acc, i64 256",
                "  %lo = load <64 x i32>, ptr %acc",
                "  %hi = load <64 x i32>, ptr %hp",
                "  %lz = zext <64 x i32> %lo to <64 x i64>",
                "  %hz = zext <64 x i32> %hi to <64 x i64>",
                "  %hs = shl <64 x i64> %hz, splat (i64 32)",
                "  %lh = or <64 x i64> %lz, %hs",
                "  %c0_0 = bitcast <64 x i64> %lh to <64 x double>",
            ]
        else:
            lines.append(f"  %cp{q} = getelementptr i8, ptr %acc, i64 {256 * q}")
            lines.append(f"  %c{q}_0 = load {vec}, ptr %cp{q}, align 64")
        step = 0
        for g in range(groups):
            for i in range(s.per_lane):
                places = [s.place(q, l) for l in range(64)]
                rows = [s.a_lane(row, g, block) for block, row, _ in places]
                cols = [s.a_lane(col, g, block) for block, _, col in places]
                t = f"{q}_{step}"
                lines.append(f"  %ra{t} = shufflevector {vec} %wa{i}, {vec} poison, {order(rows)}")
                lines.append(f"  %rb{t} = shufflevector {vec} %wb{i}, {vec} poison, {order(cols)}")
                lines += _accumulate(s, vec, ty, f"%c{q}_{step + 1}", f"%ra{t}", f"%rb{t}", f"%c{t}")
                step += 1
        if s.out == "f64":
            lines += [
                f"  %b64 = bitcast <64 x double> %c0_{step} to <64 x i64>",
                "  %blo = trunc <64 x i64> %b64 to <64 x i32>",
                "  %bsh = lshr <64 x i64> %b64, splat (i64 32)",
                "  %bhi = trunc <64 x i64> %bsh to <64 x i32>",
                "  store <64 x i32> %blo, ptr %acc",
                "  store <64 x i32> %bhi, ptr %hp",
            ]
        else:
            lines.append(f"  store {vec} %c{q}_{step}, ptr %cp{q}, align 64")
    return [*lines, "  ret void", "}", ""]
