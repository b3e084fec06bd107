"""The rows of sparse products on CDNA (v_smfmac): of each four k of A two are stored, with the two bits of their places.

gfx942's: a lane's stored elements are those of as many k as its B has, in order; its indices a byte (16-bit elements) or a halfword (8-bit ones) of the fourth
operand, which ABID chooses where CBSZ is 0. gfx950's of twice as many k: A's lanes hold neighbouring k, B's lanes 16 bytes from each half of the k; indices are a
halfword (16-bit elements) or the whole register. Computed as the dense product with zeros between, so an infinity in B makes NaN of the k that A leaves out as well.
Source: CDNA3 ISA manual 7.1.5, CDNA4 ISA manual 7.5 (whose places are those that ROCm's hip-fpsan found on an MI350, but for the names of the k; indices
of 16-bit elements as in LLVM's verifier of them).
"""

from __future__ import annotations

from ..decode.inst import Inst
from ..translate.ops import Ops
from ..translate.wave import Wave
from .matrix import Mfma, function_name
from .matrix_sums import FMA
from .mfma import functions, gather_pair, registers, store_operand, take_results
from .table import custom


def dense(o: Ops, words: list[str], index: str, bits: int) -> list[str]:
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


def _in_places_of_b(w: Wave, words: list[str], m: int) -> list[str]:
    """gfx950: dense A, which lies in its lanes by neighbouring k, as B lies: chunk c of group g of lanes has k from (groups c + g) times 16 bytes' elements on."""
    groups, half = 64 // m, len(words) // 2
    out = []
    for chunk in (0, 1):
        for r in range(half):
            order = []
            for lane in range(64):
                q = groups * chunk + lane // m  # so many 16 bytes of a row's k before these
                order.append(lane % m + m * (q // 2) + 64 * (q % 2))
            out.append(gather_pair(w.v, words[r], words[half + r], order))
    return out


def _sparse(shape: Mfma, bits: int, new: bool):  # type: ignore[no-untyped-def]
    stored = shape.per_lane // 2
    sets = 32 // (2 * stored)  # of indices in a register

    def handler(w: Wave, inst: Inst) -> None:
        cbsz, abid = inst.take_int("cbsz"), inst.take_int("abid")
        if new and w.chip != "gfx950":
            raise w.fail("a sparse product of gfx950")
        dst, a, b, places = inst.operands
        if sets > 1 and (cbsz > 1 or abid >= sets):
            raise w.fail(f"cbsz:{cbsz} abid:{abid} on this instruction")
        index = registers(w, places, 1)[0]
        if sets > 1 and not cbsz and abid:
            index = w.v.lshr(index, w.v.const("i32", abid * 2 * stored))
        functions(w, shape, FMA, whole=True)
        store_operand(w, dst, shape.out_regs, "%xacc")
        words = dense(w.v, registers(w, a, stored * bits // 32), index, bits)
        for k, value in enumerate(_in_places_of_b(w, words, shape.m) if new else words):
            at = w.out.emit(f"getelementptr i8, ptr %xa, i64 {4 * w.lanes * k}")
            w.out.put(f"store {w.v.type('i32')} {value}, ptr {at}, align 64")
        store_operand(w, b, shape.regs(1), "%xb")
        w.out.put(f"call void @{function_name(shape)}(ptr %xacc, ptr %xa, ptr %xb)")
        take_results(w, dst, shape.out_regs)

    return handler


# (result, shape, elements, their bits, whether gfx950 has it alone)
SPARSE = [
    (out, size, source, bits, new)
    for out, bits, sources, sizes in (
        ("f32", 16, ("f16", "bf16"), ("16x16x32", "32x32x16", "16x16x64", "32x32x32")),
        ("i32", 8, ("i8",), ("16x16x64", "32x32x32", "16x16x128", "32x32x64")),
        ("f32", 8, ("fp8_fp8", "fp8_bf8", "bf8_fp8", "bf8_bf8"), ("16x16x64", "32x32x32", "16x16x128", "32x32x64")),
    )
    for source in sources
    for size, new in zip(sizes, (False, False, True, True))
]
for _out, _size, _source, _bits, _new in SPARSE:
    _m, _, _k = (int(x) for x in _size.split("x"))
    _dense_shape = Mfma(f"v_mfma_{_out}_{_size}_{_source}_sparse", _out, _source, _m, _m, _k, 1)
    custom(f"v_smfmac_{_out}_{_size}_{_source}", "matrix", (9,))(_sparse(_dense_shape, _bits, _new))
