"""Conversions from and to floats of 8, 6 and 4 bits: plain (gfx942, gfx950, gfx12), and by powers of two (gfx950).

Source: CDNA3 and CDNA4 ISA manuals, "BF8 / FP8 and smaller formats and conversions"; op_sel picks bytes and halves as in LLVM's intrinsics. All round to nearest even
whatever MODE says, or add random bits below the last place and cut off. Where one random number serves several elements, each further one takes the next of
`v_prng_b32`'s sequence (of formats of 4 bits so seen on hardware; in which order those of 6 bits are taken, no source says). Elements of v_cvt_scalef32_2xpk16
alternate between its two operands (ROCm's hip-fpsan, probed on gfx950).
"""

from __future__ import annotations

from collections.abc import Callable

from ..decode.inst import Inst, Operand
from ..translate.ops import Ops
from ..translate.wave import Wave
from .float8 import FORMATS, decode, e8m0, encode, scale_exponent
from .packed import join16
from .table import custom, valu


def small_bits(kind: str) -> int:
    return 1 + sum(FORMATS[kind])


def next_random(o: Ops, seed: str) -> str:
    """v_prng_b32: one step of a linear feedback shift register."""
    tap = o.and_(o.ashr(seed, o.const("i32", 31)), o.const("i32", 197))
    return o.xor(o.shl(seed, o.const("i32", 1)), tap)


valu("v_prng_b32", "i32 = i32", next_random, generations=(9, 12))


def narrow(w: Wave, value: str, kind: str, random: str | None = None, scale: str | None = None) -> str:
    """An f32 to a small float, as this chip and its MODE have it."""
    eight = kind in ("fp8", "bf8")
    return encode(
        w.v, value, kind, fnuz=w.chip == "gfx942", saturate=eight and w.f16_overflow, rdna4=eight and w.gfx >= 12,
        random=random, scale=scale,
    )  # fmt: skip


def _place(w: Wave, inst: Inst, bits: int) -> int:
    """The first bit of the result's byte or half: op_sel's last bit is the half, the one before it the byte; gfx12 says `byte_sel`."""
    sel = w.op_sel_bits or [0]
    if bits == 16:
        return 16 * sel[-1]
    return 8 * (2 * sel[-1] + (sel[-2] if len(sel) > 1 else 0) + inst.take_int("byte_sel"))


def _insert(w: Wave, inst: Inst, value: str, bits: int) -> None:
    """A result that leaves the rest of its register."""
    o, dst, at = w.v, inst.operands[0], _place(w, inst, bits)
    old = w.reg(dst.kind, dst.index)
    mask = ((1 << bits) - 1) << at
    w.write_reg(dst.kind, dst.index, o.or_(o.and_(old, o.const("i32", ~mask)), o.shl(value, o.const("i32", at))))


def picked(w: Wave, inst: Inst, word: str, bits: int) -> str:
    """The byte or half of a source that op_sel's first bits (or `byte_sel`) name."""
    sel = w.op_sel_bits or [0]
    at = 16 * sel[0] if bits == 16 else 8 * (sel[0] + 2 * (sel[1] if len(sel) > 2 else 0) + inst.take_int("byte_sel"))
    return w.v.and_(w.v.lshr(word, w.v.const("i32", at)), w.v.const("i32", (1 << bits) - 1))


def wide(w: Wave, code: str, kind: str, scale: str | None) -> str:
    value = decode(w.v, code, kind, fnuz=w.chip == "gfx942")
    return value if scale is None else w.v.bin("fmul", "f32", value, e8m0(w.v, scale_exponent(w.v, scale)))


def fields(w: Wave, word: str, bits: int, count: int) -> list[str]:
    o = w.v
    mask = o.const("i32", (1 << bits) - 1)
    return [o.and_(o.lshr(word, o.const("i32", bits * i)), mask) for i in range(count)]


def _floats(w: Wave, position: int, t: str) -> list[str]:
    """The two halves of a packed operand as f32."""
    o, word = w.v, w.source(position, "i32")
    return [o.fpext(t, "f32", o.bitcast("i16", t, o.trunc("i32", "i16", h))) for h in fields(w, word, 16, 2)]


def _pair(w: Wave, first: str, second: str, bits: int) -> str:
    return w.v.or_(first, w.v.shl(second, w.v.const("i32", bits)))


# Plain ones.


def _plain_packed(kind: str) -> Callable[[Wave, str, str], str]:
    return lambda w, a, b: w.v.trunc("i32", "i16", _pair(w, narrow(w, a, kind), narrow(w, b, kind), 8))


def _plain_wide(kind: str) -> Callable[[Wave, str], str]:
    def fn(w: Wave, word: str) -> str:
        assert w.inst is not None
        return wide(w, picked(w, w.inst, word, 8), kind, None)

    return fn


def _plain_pair(kind: str) -> Callable[[Wave, str], str]:
    def fn(w: Wave, word: str) -> str:
        parts = fields(w, w.v.zext("i16", "i32", word), 8, 2)
        return w.v.pack(*(w.v.bitcast("f32", "i32", wide(w, p, kind, None)) for p in parts))

    return fn


def random_byte(kind: str, t: str, scaled: bool):  # type: ignore[no-untyped-def]
    """v_cvt_sr, v_cvt_scalef32_sr: an f32, or a half of that type, and a random number to a byte or a half."""

    def handler(w: Wave, inst: Inst) -> None:
        chosen, w.op_sel_bits = w.op_sel_bits, []  # none of the source: it names a byte of the result
        value = w.source(1, t)
        random = w.source(2, "i32")
        scale = w.source(3, "f32") if scaled else None
        w.op_sel_bits = chosen
        value = value if t == "f32" else w.v.fpext(t, "f32", value)
        if kind in FORMATS:
            _insert(w, inst, narrow(w, value, kind, random, scale), 8)
        else:
            saturate = kind == "f16" and w.f16_overflow
            _insert(w, inst, encode(w.v, value, kind, saturate=saturate, random=random), 16)

    return handler


for _kind in ("fp8", "bf8"):
    valu(f"v_cvt_pk_{_kind}_f32", "i16 = f32 f32", _plain_packed(_kind), wave=True, keep_high=True)
    valu(f"v_cvt_f32_{_kind}", "f32 = i32", _plain_wide(_kind), wave=True)
    valu(f"v_cvt_pk_f32_{_kind}", "i64 = i16", _plain_pair(_kind), wave=True)
    custom(f"v_cvt_sr_{_kind}_f32", "valu")(random_byte(_kind, "f32", False))
for _kind in ("f16", "bf16"):
    custom(f"v_cvt_sr_{_kind}_f32", "valu", (9,))(random_byte(_kind, "f32", False))

# Those with a scale, an f32 of which the exponent counts: the last operand. Numbers are divided by it on the way to few bits, multiplied by it on the way back.


def _scaled_narrow(kind: str, t: str, random: bool):  # type: ignore[no-untyped-def]
    """Two f32, or a packed pair, to a half of 8-bit floats or a byte of 4-bit ones."""

    def handler(w: Wave, inst: Inst) -> None:
        if t != "f32":
            values, at = _floats(w, 1, t), 2
        elif random:  # a pair of registers
            op = inst.operands[1]
            if op.kind not in ("v", "a") or op.count != 2 or op.neg or op.abs:
                raise w.fail(f"{op.text} as a pair of f32")
            values, at = [w.operand("f32", w._typed(op.kind, op.index + k, "f32")) for k in (0, 1)], 2
        else:
            values, at = [w.source(1, "f32"), w.source(2, "f32")], 3
        seed = w.source(at, "i32") if random else None
        scale = w.source(at + random, "f32")
        codes = []
        for value in values:
            codes.append(narrow(w, value, kind, seed, scale))
            seed = next_random(w.v, seed) if seed is not None else None
        _insert(w, inst, _pair(w, codes[0], codes[1], small_bits(kind)), 2 * small_bits(kind))

    return handler


def _scaled_wide(kind: str, t: str, packed: bool):  # type: ignore[no-untyped-def]
    """A byte, or two elements of a half or a byte, to f32 or a half type."""

    def handler(w: Wave, inst: Inst) -> None:
        o, bits = w.v, small_bits(kind)
        scale = w.source(2, "f32")
        word = w.source(1, "i32")
        dst = inst.operands[0]
        chosen = picked(w, inst, word, 2 * bits if packed else 8)
        codes = fields(w, chosen, bits, 2) if packed else [chosen]
        values = [wide(w, c, kind, scale) for c in codes]
        if t == "f32":
            for k, value in enumerate(values):
                w.write_reg(dst.kind, dst.index + k, w.result("f32", value), "f32")
        elif packed:
            pair = (w.to_half(t, v, wide(w, c, kind, None)) for v, c in zip(values, codes))
            w.write_reg(dst.kind, dst.index, join16(o, t, *pair))
        else:
            half = o.zext("i16", "i32", o.bitcast(t, "i16", w.to_half(t, values[0], wide(w, codes[0], kind, None))))
            _insert(w, inst, half, 16)

    return handler


def block(w: Wave, op: Operand, count: int) -> list[str]:
    if op.kind not in ("v", "a") or op.count != count or op.neg or op.abs:
        raise w.fail(f"{op.text} as {count} registers")
    return [w.reg(op.kind, op.index + k) for k in range(count)]


def codes_in(w: Wave, words: list[str], bits: int, count: int) -> list[str]:
    """Elements of `bits` bits, one after the other through the registers."""
    o, found = w.v, []
    for i in range(count):
        k, at = divmod(bits * i, 32)
        code = o.lshr(words[k], o.const("i32", at))
        if at + bits > 32:
            code = o.or_(code, o.shl(words[k + 1], o.const("i32", 32 - at)))
        found.append(o.and_(code, o.const("i32", (1 << bits) - 1)))
    return found


def write_codes(w: Wave, dst: Operand, codes: list[str], bits: int) -> None:
    """Elements of `bits` bits into registers, one after the other."""
    o = w.v
    words = [o.const("i32", 0)] * (bits * len(codes) // 32)
    for i, code in enumerate(codes):
        k, at = divmod(bits * i, 32)
        words[k] = o.or_(words[k], o.shl(code, o.const("i32", at)))
        if at + bits > 32:
            words[k + 1] = o.or_(words[k + 1], o.lshr(code, o.const("i32", 32 - at)))
    for k, word in enumerate(words):
        w.write_reg(dst.kind, dst.index + k, word)


def halves_in(w: Wave, words: list[str], t: str) -> list[str]:
    """16-bit floats, two a register, as f32."""
    o, halves = w.v, [h for word in words for h in fields(w, word, 16, 2)]
    return [o.fpext(t, "f32", o.bitcast("i16", t, o.trunc("i32", "i16", h))) for h in halves]


def narrowed(w: Wave, values: list[str], kind: str, seed: str | None, scale: str) -> list[str]:
    """The codes of numbers; each is rounded by the random number that follows the one before."""
    codes = []
    for value in values:
        codes.append(narrow(w, value, kind, seed, scale))
        seed = next_random(w.v, seed) if seed is not None else None
    return codes


def write_wide(w: Wave, dst: Operand, t: str, values: list[str], plain: list[str]) -> None:
    """Numbers into registers, two of 16 bits in each; plain: them before they were scaled."""
    if t == "f32":
        for i, value in enumerate(values):
            w.write_reg(dst.kind, dst.index + i, value, "f32")
        return
    halves = [w.to_half(t, value, before) for value, before in zip(values, plain)]
    for i, pair in enumerate(zip(halves[::2], halves[1::2])):
        w.write_reg(dst.kind, dst.index + i, join16(w.v, t, *pair))


def _block_narrow(kind: str, t: str, random: bool, two: bool):  # type: ignore[no-untyped-def]
    """32 numbers to six registers of 6-bit floats."""

    def handler(w: Wave, inst: Inst) -> None:
        o = w.v
        dst, first, *rest = inst.operands
        if t == "f32":
            words = [o.bitcast("i32", "f32", x) for x in block(w, first, 16 if two else 32)]
            if two:
                others = [o.bitcast("i32", "f32", x) for x in block(w, rest[0], 16)]
                words = [x for pair in zip(words, others) for x in pair]
            values = [w.operand("f32", x) for x in words]
        else:
            values = halves_in(w, block(w, first, 16), t)
        seed = w.source(2, "i32") if random else None
        scale = w.source(len(inst.operands) - 1, "f32")
        write_codes(w, dst, narrowed(w, values, kind, seed, scale), 6)

    return handler


def _block_wide(kind: str, t: str):  # type: ignore[no-untyped-def]
    def handler(w: Wave, inst: Inst) -> None:
        dst, source, _ = inst.operands
        codes, scale = codes_in(w, block(w, source, 6), 6, 32), w.source(2, "f32")
        scaled = [w.result("f32", wide(w, c, kind, scale)) if t == "f32" else wide(w, c, kind, scale) for c in codes]
        write_wide(w, dst, t, scaled, [wide(w, c, kind, None) for c in codes])

    return handler


for _t in ("f32", "f16", "bf16"):
    for _kind in ("fp8", "bf8", "fp4"):
        custom(f"v_cvt_scalef32_pk_{_kind}_{_t}", "valu", (9,))(_scaled_narrow(_kind, _t, False))
        custom(f"v_cvt_scalef32_pk_{_t}_{_kind}", "valu", (9,))(_scaled_wide(_kind, _t, True))
        if _kind == "fp4":
            custom(f"v_cvt_scalef32_sr_pk_fp4_{_t}", "valu", (9,))(_scaled_narrow(_kind, _t, True))
            continue
        custom(f"v_cvt_scalef32_sr_{_kind}_{_t}", "valu", (9,))(random_byte(_kind, _t, True))
        if _t != "bf16":
            custom(f"v_cvt_scalef32_{_t}_{_kind}", "valu", (9,))(_scaled_wide(_kind, _t, False))
    for _kind in ("fp6", "bf6"):
        if _t == "f32":
            custom(f"v_cvt_scalef32_2xpk16_{_kind}_f32", "valu", (9,))(_block_narrow(_kind, _t, False, True))
        else:
            custom(f"v_cvt_scalef32_pk32_{_kind}_{_t}", "valu", (9,))(_block_narrow(_kind, _t, False, False))
        custom(f"v_cvt_scalef32_sr_pk32_{_kind}_{_t}", "valu", (9,))(_block_narrow(_kind, _t, True, False))
        custom(f"v_cvt_scalef32_pk32_{_t}_{_kind}", "valu", (9,))(_block_wide(_kind, _t))
