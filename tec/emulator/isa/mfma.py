"""The rows of MFMA: one for each mnemonic of `matrix.parse_mfma`. Sparse ones stand in `isa.smfmac`, WMMA in `isa.wmma`.

Source: see `matrix`. EXEC is not looked at: matrix instructions compute in all lanes.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..decode.inst import Inst, Operand
from ..translate.ops import Ops
from ..translate.wave import Wave
from .matrix import Mfma, b_source, function_name, parse_mfma, parse_mixed
from .matrix_product import Stage, lane_order, product_function, product_name, stages, whole_function
from .matrix_ruled import ruled_function
from .matrix_sums import FMA, Rule, rule_of
from .table import custom

_SHAPES_F32 = ("32x32x1{b2}f32", "16x16x1{b4}f32", "4x4x1{b16}f32", "32x32x2{}f32", "16x16x4{}f32")
_SHAPES_F16 = ("32x32x4{b2}T", "16x16x4{b4}T", "4x4x4{b16}T", "32x32x8{}T", "16x16x16{}T")


def _names() -> list[str]:
    """All names of matrix instructions, as gfx90a and gfx942 spell them."""
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


def gather_lanes(o: Ops, t: str, value: str, lanes: Sequence[int]) -> str:
    ty = o.type(t)
    return o.out.emit(f"shufflevector {ty} {value}, {ty} poison, {lane_order(lanes)}")


def gather_pair(o: Ops, a: str, b: str, lanes: Sequence[int]) -> str:
    """In lane i what lane lanes[i] of `a` has, or of `b` from o.lanes on."""
    ty = o.type("i32")
    return o.out.emit(f"shufflevector {ty} {a}, {ty} {b}, {lane_order(lanes)}")


def registers(w: Wave, op: Operand, regs: int) -> list[str]:
    if op.kind in ("v", "a"):
        if op.count != regs:
            raise w.fail(f"{op.text} as {regs} registers")
        return [w.reg(op.kind, op.index + k) for k in range(regs)]
    if op.kind in ("int", "float"):
        return [w.v.const("i32", w.literal(op, "f32"))] * regs
    raise w.fail(f"matrix operand {op.text!r}")


def store_operand(w: Wave, op: Operand, regs: int, buffer: str, lanes: list[int] | None = None, sign: int = 0) -> None:
    """An operand's registers to a buffer: `lanes` says which lane each takes; with `sign`, doubles change theirs."""
    values = registers(w, op, regs)
    if lanes is not None:
        values = [gather_lanes(w.v, "i32", v, lanes) if v[0] == "%" else v for v in values]
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
        rule = rule_of(w.chip, shape.out, shape.source, shape.name.endswith("_1k"), w.options.numerics)
        whole = "init" in w.options.checks
        staged = functions(w, shape, rule, whole)
        if whole:  # which follows undefined bits through whole instructions
            store_operand(w, c, shape.out_regs, "%xacc", sign=signs[2])
            store_operand(w, a, shape.regs(0), "%xa", lanes_a, signs[0])
            store_operand(w, b, shape.regs(1), "%xb", lanes_b, signs[1])
            w.out.put(f"call void @{function_name(shape)}(ptr %xacc, ptr %xa, ptr %xb)")
            take_results(w, dst, shape.out_regs)
            return
        sources = [
            _staged(w, op, stage, buffer, lanes, sign)
            for op, stage, buffer, lanes, sign in zip((a, b), staged, ("%xa", "%xb"), (lanes_a, lanes_b), signs)
        ]
        _start(w, dst, c, shape.out_regs, signs[2])
        acc = w.in_memory(dst.kind, dst.index, shape.out_regs)
        w.out.put(f"call void @{product_name(shape)}(ptr {acc}, ptr {sources[0]}, ptr {sources[1]})")
        w.in_memory(dst.kind, dst.index, shape.out_regs, write=True)

    return handler


def functions(w: Wave, shape: Mfma, rule: Rule, whole: bool = False) -> list[Stage]:
    """Give the kernel the functions of a shape, and say how A and B are staged for them. `whole`: the one that takes registers too."""
    flush = w.chip in ("gfx908", "gfx90a") if rule == FMA else rule.kind == "pairs"
    staged = stages(shape, flush, w.chip == "gfx950", rule.kind in ("aligned", "bytes"))
    for stage in staged:
        w.library(stage.name, stage.function)  # type: ignore[attr-defined]
    product = (lambda: product_function(shape)) if rule == FMA else (lambda: ruled_function(shape, rule, staged))
    w.library(product_name(shape), product)  # type: ignore[attr-defined]
    if whole:
        w.library(function_name(shape), lambda: whole_function(shape, staged))  # type: ignore[attr-defined]
    return staged


def _staged(w: Wave, op: Operand, stage: Stage, buffer: str, lanes: list[int] | None, sign: int) -> str:
    """Pointer to an operand as `stage` has it, from an earlier instruction where its registers stand since then."""
    as_it_is = op.kind in ("v", "a") and op.count == stage.regs and lanes is None and not sign
    key = (stage.name, op.kind, op.index, stage.regs) if as_it_is else (stage.name, buffer, w.position, 0)
    slot, fresh = w.staged.slot(key, stage.bytes)
    if fresh or not as_it_is:
        if as_it_is:
            buffer = w.in_memory(op.kind, op.index, stage.regs)
        else:
            store_operand(w, op, stage.regs, buffer, lanes, sign)
        w.out.put(f"call void @{stage.name}(ptr {slot}, ptr {buffer})")
    return slot


def _start(w: Wave, dst: Operand, c: Operand, regs: int, sign: int) -> None:
    """The accumulator's start in the registers of the result."""
    if dst.kind not in ("v", "a") or dst.count != regs:
        raise w.fail(f"{dst.text} as {regs} registers")
    if (dst.kind, dst.index, dst.count) == (c.kind, c.index, c.count) and not sign:
        return
    values = registers(w, c, regs)
    for k, value in enumerate(values):
        if sign and k % 2:
            value = w.v.xor(value, w.v.const("i32", -(2**31)))
        w.set_reg(dst.kind, dst.index + k, value)


def _mixed(name: str):  # type: ignore[no-untyped-def]
    """f8f6f4: types by CBSZ and BLGP. Scaled ones take a byte, which OP_SEL names, of a lane's register as the exponent of its 32 elements."""

    def handler(w: Wave, inst: Inst) -> None:
        shape = parse_mixed(name, inst.take_int("cbsz"), inst.take_int("blgp"))
        if shape is None:
            raise w.fail("this combination of formats")
        dst, a, b, c, *scales = inst.operands
        functions(w, shape, FMA, whole=True)
        store_operand(w, c, shape.out_regs, "%xacc")
        low, high = inst.take_list("op_sel") or [0, 0], inst.take_list("op_sel_hi") or [0, 0]
        for which, (op, buffer) in enumerate(((a, "%xa"), (b, "%xb"))):
            store_operand(w, op, shape.regs(which), buffer)
            if not scales:
                continue
            byte = _byte(w, registers(w, scales[which], 1)[0], low[which] + 2 * high[which])
            at = w.out.emit(f"getelementptr i8, ptr {buffer}, i64 {4 * w.lanes * shape.regs(which)}")
            w.out.put(f"store {w.v.type('i32')} {byte}, ptr {at}, align 64")
        w.out.put(f"call void @{function_name(shape)}(ptr %xacc, ptr %xa, ptr %xb)")
        take_results(w, dst, shape.out_regs)

    return handler


def _byte(w: Wave, word: str, byte: int) -> str:
    """A word with one of its bytes in the lowest place, and zeros."""
    return w.v.and_(w.v.lshr(word, w.v.const("i32", 8 * byte)), w.v.const("i32", 255))


def take_results(w: Wave, dst: Operand, regs: int) -> None:
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
