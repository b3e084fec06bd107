"""The rows of MFMA and WMMA. One row serves each mnemonic of `matrix.parse_mfma`; WMMA shapes are 16 x 16 x 16 (and 32).

Source: see `matrix`. EXEC is not looked at: matrix instructions compute in all lanes.
"""

from __future__ import annotations

from dataclasses import dataclass

from .asmparse import Inst, Operand
from .float8 import decode
from .matrix import Mfma, b_source, element, function_name, mfma_function, parse_mfma, parse_mixed
from .matrix_ruled import ruled_function
from .matrix_sums import FMA, rule_of
from .ops import Ops, Out
from .table import custom
from .table_packed import Selectors
from .wave import Wave

_SHAPES_F32 = ("32x32x1{b2}f32", "16x16x1{b4}f32", "4x4x1{b16}f32", "32x32x2{}f32", "16x16x4{}f32")
_SHAPES_F16 = ("32x32x4{b2}T", "16x16x4{b4}T", "4x4x4{b16}T", "32x32x8{}T", "16x16x16{}T")


def _names() -> list[str]:
    names = []

    def both(out: str, pattern: str, tail90: str = "", tail94: str = "") -> None:
        """gfx90a's spelling and gfx942's."""
        size, _, rest = pattern.partition("{")
        blocks, _, source = rest.partition("}")
        names.append(f"v_mfma_{out}_{size}{source}{tail90}")
        names.append(f"v_mfma_{out}_{size}_{blocks[1:] + 'b_' if blocks else ''}{source}{tail94}")

    for shape in _SHAPES_F32:
        both("f32", shape)
    for shape in _SHAPES_F16:
        both("f32", shape.replace("T", "f16"))
        both("f32", shape.replace("T", "bf16"), "_1k")
    for shape in ("32x32x2{b2}bf16", "16x16x2{b4}bf16", "4x4x2{b16}bf16", "32x32x4{}bf16", "16x16x8{}bf16"):
        both("f32", shape)
    for shape in ("32x32x4{b2}i8", "16x16x4{b4}i8", "4x4x4{b16}i8", "32x32x8{}i8", "16x16x16{}i8"):
        both("i32", shape)
    names += ["v_mfma_f64_16x16x4f64", "v_mfma_f64_16x16x4_f64", "v_mfma_f64_4x4x4f64", "v_mfma_f64_4x4x4_4b_f64"]
    names += ["v_mfma_i32_32x32x16_i8", "v_mfma_i32_16x16x32_i8", "v_mfma_i32_32x32x32_i8", "v_mfma_i32_16x16x64_i8"]
    names += ["v_mfma_f32_32x32x4_xf32", "v_mfma_f32_16x16x8_xf32"]
    names += [f"v_mfma_f32_{s}_{t}" for s in ("32x32x16", "16x16x32") for t in ("f16", "bf16")]
    names += [
        f"v_mfma_f32_{s}_{a}_{b}" for s in ("32x32x16", "16x16x32") for a in ("fp8", "bf8") for b in ("fp8", "bf8")
    ]
    return sorted(set(names))


def _registers(w: Wave, op: Operand, regs: int) -> list[str]:
    if op.kind in ("v", "a"):
        if op.count != regs:
            raise w.fail(f"{op.text} as {regs} registers")
        return [w.reg(op.kind, op.index + k) for k in range(regs)]
    if op.kind in ("int", "float"):
        return [w.v.const("i32", w.literal(op, "f32"))] * regs
    raise w.fail(f"matrix operand {op.text!r}")


def _store_operand(w: Wave, op: Operand, regs: int, buffer: str, lanes: list[int] | None = None, sign: int = 0) -> None:
    """An operand's registers to a buffer: `lanes` says which lane each takes; with `sign`, doubles change theirs."""
    values = _registers(w, op, regs)
    if lanes is not None:
        values = [_gather_lanes(w.v, "i32", v, lanes) if v[0] == "%" else v for v in values]
    for k, value in enumerate(values):
        if sign and k % 2:
            value = w.v.xor(value, w.v.const("i32", -(2**31)))
        at = w.out.emit(f"getelementptr i8, ptr {buffer}, i64 {4 * w.lanes * k}")
        w.out.put(f"store {w.v.type('i32')} {value}, ptr {at}, align 64")


def _broadcasts(w: Wave, inst: Inst, shape: Mfma) -> tuple[list[int] | None, list[int] | None]:
    """The lanes that A and B are read from, by cbsz, abid and blgp; None where each lane reads itself."""
    cbsz, abid, blgp = (inst.take_int(name) for name in ("cbsz", "abid", "blgp"))
    if (cbsz or abid) and (1 << cbsz > shape.blocks or abid >= 1 << cbsz or shape.out == "f64"):
        raise w.fail(f"cbsz:{cbsz} abid:{abid} with {shape.blocks} block{'s' * (shape.blocks > 1)}")
    if blgp and (blgp > 7 or not shape.broadcasts()):
        raise w.fail(f"blgp:{blgp} on this instruction")
    lanes_a = [shape.a_source(l, cbsz, abid) for l in range(64)] if cbsz else None
    return lanes_a, [b_source(l, blgp) for l in range(64)] if blgp else None


def _mfma(shape: Mfma):  # type: ignore[no-untyped-def]
    def handler(w: Wave, inst: Inst) -> None:
        signs = inst.take_list("neg") or [0, 0, 0]
        if any(signs) and (shape.out != "f64" or not w.cdna3):
            raise w.fail("neg on this matrix instruction")
        lanes_a, lanes_b = _broadcasts(w, inst, shape)
        dst, a, b, c = inst.operands
        if any(op.neg or op.abs for op in (a, b, c)):
            raise w.fail("a modifier on a matrix operand")
        if shape.out == "f64" and c.kind in ("int", "float") and c.value:
            raise w.fail("an f64 constant other than 0")
        ocp = w.chip == "gfx950"
        rule = rule_of(w.chip, shape.out, shape.source, shape.name.endswith("_1k"), w.options.numerics)

        def function() -> str:
            return mfma_function(shape, w.chip == "gfx90a", ocp) if rule == FMA else ruled_function(shape, rule, ocp)

        w.library(function_name(shape), function)  # type: ignore[attr-defined]
        _store_operand(w, c, shape.out_regs, "%xacc", sign=signs[2])
        _store_operand(w, a, shape.regs(0), "%xa", lanes_a, signs[0])
        _store_operand(w, b, shape.regs(1), "%xb", lanes_b, signs[1])
        w.out.put(f"call void @{function_name(shape)}(ptr %xacc, ptr %xa, ptr %xb)")
        _take_results(w, dst, shape.out_regs)

    return handler


def _mixed(name: str):  # type: ignore[no-untyped-def]
    """f8f6f4: types by CBSZ and BLGP. Scaled ones take a byte, which OP_SEL names, of a lane's register as the exponent of its 32 elements."""

    def handler(w: Wave, inst: Inst) -> None:
        shape = parse_mixed(name, inst.take_int("cbsz"), inst.take_int("blgp"))
        if shape is None:
            raise w.fail("this combination of formats")
        dst, a, b, c, *scales = inst.operands
        w.library(function_name(shape), lambda: mfma_function(shape, False, True))  # type: ignore[attr-defined]
        _store_operand(w, c, shape.out_regs, "%xacc")
        low, high = inst.take_list("op_sel") or [0, 0], inst.take_list("op_sel_hi") or [0, 0]
        for which, (op, buffer) in enumerate(((a, "%xa"), (b, "%xb"))):
            _store_operand(w, op, shape.regs(which), buffer)
            if not scales:
                continue
            if shape.sources[which] in ("fp8", "bf8"):
                raise w.fail("scales of 8-bit elements, whose order in a lane is not known here")
            byte = _byte(w, _registers(w, scales[which], 1)[0], low[which] + 2 * high[which])
            at = w.out.emit(f"getelementptr i8, ptr {buffer}, i64 {4 * w.lanes * shape.regs(which)}")
            w.out.put(f"store {w.v.type('i32')} {byte}, ptr {at}, align 64")
        w.out.put(f"call void @{function_name(shape)}(ptr %xacc, ptr %xa, ptr %xb)")
        _take_results(w, dst, shape.out_regs)

    return handler


def _byte(w: Wave, word: str, byte: int) -> str:
    """A word with one of its bytes in the lowest place, and zeros."""
    return w.v.and_(w.v.lshr(word, w.v.const("i32", 8 * byte)), w.v.const("i32", 255))


def _take_results(w: Wave, dst: Operand, regs: int) -> None:
    if dst.kind not in ("v", "a") or dst.count != regs:
        raise w.fail(f"{dst.text} as {regs} registers")
    for k in range(regs):
        at = w.out.emit(f"getelementptr i8, ptr %xacc, i64 {4 * w.lanes * k}")
        w.set_reg(dst.kind, dst.index + k, w.out.emit(f"load volatile {w.v.type('i32')}, ptr {at}, align 64"))


for _name in _names():
    _shape = parse_mfma(_name)
    assert _shape is not None, _name
    custom(_name, "matrix")(_mfma(_shape))

for _shape_name in ("16x16x128", "32x32x64"):
    for _kind in ("", "scale_"):
        _name = f"v_mfma_{_kind}f32_{_shape_name}_f8f6f4"
        custom(_name, "matrix")(_mixed(_name))


# Sparse A (v_smfmac, gfx942): two of each four k are stored, with the two bits of their places. A lane's stored elements are those of as many k in
# order, its indices a byte (16-bit elements) or a halfword (8-bit ones) of the fourth operand, which ABID chooses where CBSZ is 0. Source: CDNA3
# ISA manual 7.1.5. Computed as the dense product with zeros between, so an infinity in B makes NaN of the k that A leaves out as well.


def _dense(o: Ops, words: list[str], index: str, bits: int) -> list[str]:
    """A lane's stored elements of `bits` bits, spread out to twice as many registers."""
    per, out = 32 // bits, [o.const("i32", 0)] * (2 * len(words))
    for i in range(per * len(words)):
        value = o.and_(o.lshr(words[i // per], o.const("i32", bits * (i % per))), o.const("i32", (1 << bits) - 1))
        at = o.and_(o.lshr(index, o.const("i32", 2 * i)), o.const("i32", 3))
        for place in range(4):
            register, spot = divmod(4 * (i // 2) + place, per)
            here = o.icmp("eq", "i32", at, o.const("i32", place))
            shifted = o.shl(value, o.const("i32", bits * spot))
            out[register] = o.or_(out[register], o.select(here, "i32", shifted, o.const("i32", 0)))
    return out


def _sparse(shape: Mfma, bits: int):  # type: ignore[no-untyped-def]
    def handler(w: Wave, inst: Inst) -> None:
        cbsz, abid = inst.take_int("cbsz"), inst.take_int("abid")
        dst, a, b, places = inst.operands
        if cbsz > 1 or abid >= 32 // (2 * 64 // bits):
            raise w.fail(f"cbsz:{cbsz} abid:{abid} on this instruction")
        index = _registers(w, places, 1)[0]
        if not cbsz and abid:
            index = w.v.lshr(index, w.v.const("i32", abid * 2 * 64 // bits))
        w.library(function_name(shape), lambda: mfma_function(shape, False, w.chip == "gfx950"))  # type: ignore[attr-defined]
        _store_operand(w, dst, shape.out_regs, "%xacc")
        for k, value in enumerate(_dense(w.v, _registers(w, a, 2), index, bits)):
            at = w.out.emit(f"getelementptr i8, ptr %xa, i64 {4 * w.lanes * k}")
            w.out.put(f"store {w.v.type('i32')} {value}, ptr {at}, align 64")
        _store_operand(w, b, 4, "%xb")
        w.out.put(f"call void @{function_name(shape)}(ptr %xacc, ptr %xa, ptr %xb)")
        _take_results(w, dst, shape.out_regs)

    return handler


SPARSE = [("f32", "16x16x32", "f16", 16), ("f32", "32x32x16", "f16", 16), ("f32", "16x16x32", "bf16", 16), ("f32", "32x32x16", "bf16", 16),
          ("i32", "16x16x64", "i8", 8), ("i32", "32x32x32", "i8", 8)]  # fmt: skip
SPARSE += [("f32", s, f"{x}_{y}", 8) for s in ("16x16x64", "32x32x32") for x in ("fp8", "bf8") for y in ("fp8", "bf8")]
for _out, _size, _source, _bits in SPARSE:
    _m, _, _k = (int(x) for x in _size.split("x"))
    _dense_shape = Mfma(f"v_mfma_{_out}_{_size}_{_source}", _out, _source, _m, _m, _k, 1)
    custom(f"v_smfmac_{_out}_{_size}_{_source}", "matrix", (9,))(_sparse(_dense_shape, _bits))


# WMMA. gfx11: a lane holds a whole row of A (16 k), and every group of 16 lanes the same rows; register q of a result holds row
# (lanes / 16) q + lane div 16. gfx12: the groups share the k out between them, in order; row (256 / lanes) (lane div 16) + q.


def _gather_lanes(o: Ops, t: str, value: str, lanes: list[int]) -> str:
    ty = o.type(t)
    order = f"<{o.lanes} x i32> <" + ", ".join(f"i32 {l}" for l in lanes) + ">"
    return o.out.emit(f"shufflevector {ty} {value}, {ty} poison, {order}")


@dataclass(frozen=True, slots=True)
class WmmaProduct:
    """What one WMMA computes, its operands' registers and the accumulator given as values. A function of its own keeps a kernel of many short to compile."""

    lanes: int
    new: bool  # gfx12's layout
    k: int
    kinds: tuple[str, str]  # the elements of A and B
    flips: tuple[tuple[int, int], tuple[int, int]]  # signs of the low and of the high halves, of A and of B
    clamp: bool
    regs: int  # of A, and of B

    @property
    def type(self) -> str:
        return "i32" if self.kinds[0] in ("i4", "u4", "i8", "u8") else "f32"

    @property
    def name(self) -> str:
        signs = "".join(str(int(bool(f))) for pair in self.flips for f in pair)
        return f"wmma_{self.k}_{'_'.join(self.kinds)}_{signs}_{int(self.clamp)}"

    def sums(self, o: Ops, a: list[str], b: list[str], start: list[str]) -> list[str]:
        """The accumulator's items and the products, in order of k."""
        n, new, t = self.lanes, self.new, self.type
        integer, groups, items = t == "i32", n // 16, 256 // n
        per_lane = self.k // groups if new else self.k
        elements: list[list[str]] = []
        for words, kind, flips in zip((a, b), self.kinds, self.flips):
            values = [_element(o, words, i, kind, new) for i in range(per_lane)]
            elements.append([o.fneg("f32", v) if flips[i % 2] else v for i, v in enumerate(values)])
        rows = [[items * (l // 16) + q if new else groups * q + l // 16 for l in range(n)] for q in range(items)]
        acc = [o.const("i32", 0)] * items if self.clamp else list(start)
        for group in range(groups if new else 1):
            for i in range(per_lane):
                column = _gather_lanes(o, t, elements[1][i], [16 * group + l % 16 for l in range(n)])
                for q in range(items):
                    row = _gather_lanes(o, t, elements[0][i], [16 * group + r for r in rows[q]])
                    if integer:
                        acc[q] = o.add(acc[q], o.mul(row, column))
                    else:
                        acc[q] = o.fma("f32", row, column, acc[q])
        if self.clamp:  # the products' sum fits; one saturation with the accumulator
            acc = [o.call("sadd.sat", "i32", x, y) for x, y in zip(start, acc)]
        return acc

    def function(self, declares: set[str]) -> str:
        """LLVM IR of `void @name(ptr acc, ptr a, ptr b)`, vectors of all lanes one after another: acc += A B."""
        out = Out(declares=declares)
        o = Ops(out, self.lanes)

        def loads(name: str, t: str, count: int) -> list[str]:
            at = [out.emit(f"getelementptr i8, ptr %{name}, i64 {4 * self.lanes * r}") for r in range(count)]
            return [out.emit(f"load {o.type(t)}, ptr {p}, align 64") for p in at]

        items = 256 // self.lanes
        acc = self.sums(o, loads("a", "i32", self.regs), loads("b", "i32", self.regs), loads("acc", self.type, items))
        for q, value in enumerate(acc):
            at = out.emit(f"getelementptr i8, ptr %acc, i64 {4 * self.lanes * q}")
            out.put(f"store {o.type(self.type)} {value}, ptr {at}, align 64")
        body = "\n".join(out.lines)
        return (
            f"define internal void @{self.name}(ptr %acc, ptr %a, ptr %b) noinline {{\nentry:\n{body}\n  ret void\n}}\n"
        )

    def call(self, o: Ops, a: list[str], b: list[str], start: list[str]) -> list[str]:
        for buffer, t, values in (("%xa", "i32", a), ("%xb", "i32", b), ("%xacc", self.type, start)):
            for r, value in enumerate(values):
                at = o.out.emit(f"getelementptr i8, ptr {buffer}, i64 {4 * self.lanes * r}")
                o.out.put(f"store {o.type(t)} {value}, ptr {at}, align 64")
        o.out.put(f"call void @{self.name}(ptr %xacc, ptr %xa, ptr %xb)")
        places = [
            o.out.emit(f"getelementptr i8, ptr %xacc, i64 {4 * self.lanes * q}") for q in range(256 // self.lanes)
        ]
        return [o.out.emit(f"load volatile {o.type(self.type)}, ptr {p}, align 64") for p in places]


def _wmma(out: str, source_a: str, source_b: str, result: str = "", k: int = 16):  # type: ignore[no-untyped-def]
    """`out`: f32 or i32; `result`: f16 or bf16 where the accumulator is narrow."""

    def handler(w: Wave, inst: Inst) -> None:
        o, n = w.v, w.lanes
        new = w.gfx >= 12
        sel = Selectors(inst, 3)
        clamp = inst.take("clamp") is not None
        dst, a, b, c = inst.operands
        integer = out == "i32"
        if integer:
            bits = {"iu8": 8, "iu4": 4}[source_a]
            kinds = [("i" if sel.neg_lo[i] else "u") + str(bits) for i in (0, 1)]
            if any(sel.neg_hi) or sel.neg_lo[2]:
                raise w.fail("neg_hi or neg_lo[2] on an integer WMMA")
        else:
            kinds = [source_a, source_b]
            if source_a in ("fp8", "bf8") and (any(sel.neg_lo[:2]) or any(sel.neg_hi[:2])):
                raise w.fail("neg_lo or neg_hi on 8-bit floats")
        element_bits = {"f16": 16, "bf16": 16, "iu8": 8, "iu4": 4, "fp8": 8, "bf8": 8}[source_a]
        groups = n // 16
        per_lane = k // groups if new else k
        if per_lane * element_bits < 32:
            raise w.fail("half a register of elements a lane")
        regs = per_lane * element_bits // 32
        for op in (a, b):
            if op.kind != "v" or op.count != regs:
                raise w.fail(f"{op.text} as {regs} registers")
        if clamp and not integer:
            raise w.fail("clamp on a float WMMA")
        flips = [(sel.neg_lo[i], sel.neg_hi[i]) if not integer else (0, 0) for i in (0, 1)]
        product = WmmaProduct(n, new, k, (kinds[0], kinds[1]), (flips[0], flips[1]), clamp, regs)
        words = [[w.reg("v", op.index + r) for r in range(regs)] for op in (a, b)]
        start = _wmma_accumulator(w, c, sel, result, new, integer, 256 // n)
        if "init" in w.options.checks:  # which follows undefined bits through values, not into functions
            acc = product.sums(o, words[0], words[1], start)
        else:
            w.library(product.name, lambda: product.function(o.out.declares))  # type: ignore[attr-defined]
            acc = product.call(o, words[0], words[1], start)
        _wmma_results(w, dst, acc, sel, result, new, product.type)

    return handler


def _element(o: Ops, words: list[str], i: int, kind: str, ocp: bool) -> str:
    if kind in ("i4", "u4"):
        up = o.shl(words[i // 8], o.const("i32", 28 - 4 * (i % 8)))
        return o.bin("ashr" if kind == "i4" else "lshr", "i32", up, o.const("i32", 28))
    if kind in ("fp8", "bf8"):
        byte = o.and_(o.lshr(words[i // 4], o.const("i32", 8 * (i % 4))), o.const("i32", 255))
        return decode(o, byte, kind, fnuz=not ocp)
    return element(o, words, i, kind, False)


def _wmma_accumulator(
    w: Wave, c: Operand, sel: Selectors, result: str, new: bool, integer: bool, items: int
) -> list[str]:
    o = w.v
    if c.kind in ("int", "float"):
        if integer:
            return [o.const("i32", int(c.value))] * items
        if c.kind == "int" and c.value:
            raise w.fail(f"the integer {c.text} as a float accumulator")
        return [o.const("f32", c.value if c.kind == "float" else 0.0)] * items
    t = "i32" if integer else "f32"
    regs = items // 2 if result and new else items
    if c.kind != "v" or c.count != regs:
        raise w.fail(f"{c.text} as {regs} registers")
    if not result:
        acc = [w._typed("v", c.index + q, t) for q in range(items)]
    else:
        acc = []
        for q in range(items):
            word = w.reg("v", c.index + (q // 2 if new else q))
            high = q % 2 if new else sel.lo[2]
            bits = o.lshr(word, o.const("i32", 16)) if high else word
            acc.append(o.fpext(result, "f32", o.bitcast("i16", result, o.trunc("i32", "i16", bits))))
    if not integer:
        if sel.neg_hi[2]:
            acc = [o.call("fabs", "f32", x) for x in acc]
        if sel.neg_lo[2]:
            acc = [o.fneg("f32", x) for x in acc]
    return acc


def _wmma_results(w: Wave, dst: Operand, acc: list[str], sel: Selectors, result: str, new: bool, t: str) -> None:
    o = w.v
    if not result:
        for q, value in enumerate(acc):
            w.set_reg("v", dst.index + q, value, t)
        return
    halves = [o.zext("i16", "i32", o.bitcast(result, "i16", o.fptrunc("f32", result, x))) for x in acc]
    if new:
        for k in range(len(halves) // 2):
            w.set_reg("v", dst.index + k, o.or_(halves[2 * k], o.shl(halves[2 * k + 1], o.const("i32", 16))))
        return
    for q, half in enumerate(halves):
        old = w.reg("v", dst.index + q)
        if sel.lo[2]:
            value = o.or_(o.shl(half, o.const("i32", 16)), o.and_(old, o.const("i32", 0xFFFF)))
        else:
            value = o.or_(half, o.and_(old, o.const("i32", 0xFFFF0000)))
        w.set_reg("v", dst.index + q, value)


custom("v_wmma_f32_16x16x16_f16", "matrix")(_wmma("f32", "f16", "f16"))
custom("v_wmma_f32_16x16x16_bf16", "matrix")(_wmma("f32", "bf16", "bf16"))
custom("v_wmma_f16_16x16x16_f16", "matrix")(_wmma("f32", "f16", "f16", "f16"))
custom("v_wmma_bf16_16x16x16_bf16", "matrix")(_wmma("f32", "bf16", "bf16", "bf16"))
custom("v_wmma_i32_16x16x16_iu8", "matrix")(_wmma("i32", "iu8", "iu8"))
custom("v_wmma_i32_16x16x16_iu4", "matrix")(_wmma("i32", "iu4", "iu4"))
custom("v_wmma_i32_16x16x32_iu4", "matrix", (12,))(_wmma("i32", "iu4", "iu4", k=32))
for _a in ("fp8", "bf8"):
    for _b in ("fp8", "bf8"):
        custom(f"v_wmma_f32_16x16x16_{_a}_{_b}", "matrix", (12,))(_wmma("f32", _a, _b))
