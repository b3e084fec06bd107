"""What `tools.encodings` asks LLVM's assembler of gfx1250 alone: lists of operands, and forms of instructions, that no chip before it has."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator

from tools.encodings_operands import reg

CHIP = "gfx1250"
# Left to the decoder: the scales' load is a part of the product behind it.
MEANINGLESS = re.compile(r"v_cvt_sr_[fb][fp]8_f16 .* op_sel:\[\d,1")  # a half of the random number
BY_HAND = re.compile(r"v_wmma_(scale|ld_scale)|^tensor_|^v_dual_")


def lists(name: str) -> Iterator[tuple[str, tuple[str, ...]]]:
    """(operands, tokens of the table), before those that the other chips' opcodes have."""
    if name.startswith(("v_wmma", "v_swmmac")):
        for d, a, b, c in itertools.product((4, 8, 16), (2, 8, 16), (2, 8, 16), (1, 2, 4, 8, 16)):
            parts = (reg("v", n, at) for n, at in ((d, 64), (a, 8), (b, 24), (c, 96)))
            yield ", ".join(parts), tuple(f"v{n}" for n in (d, a, b, c))
    elif name.startswith("v_permlane_"):
        yield "v4, v40, s7, s8", ("v1", "v1", "s1", "s1")
        yield "v4, v40, s7", ("v1", "v1", "s1")
    elif name.startswith(("v_perm_pk16", "v_cvt_scale_pk")):
        for d, a, b, c in itertools.product((2, 3, 4, 8, 16), (1, 2, 3), (1, 2), (0, 2)):
            sizes = (d, a, b, c) if c else (d, a, b)
            yield ", ".join(reg("v", n, at) for n, at in zip(sizes, (4, 40, 72, 104))), tuple(f"v{n}" for n in sizes)
    elif name.startswith("cluster_"):
        for n in (1, 2, 4):
            yield f"{reg('v', n, 4)}, v[20:21], off", (f"D{n}",)
    elif name.endswith("prefetch_b8"):
        yield ("v[20:21]" if name[0] == "f" else "v[20:21], off"), ("D1",)


def variants(name: str, tokens: tuple[str, ...], kind: str) -> Iterator[str]:
    sizes = [int(t[1:]) for t in tokens if t[0] != "="]
    if kind == "FLAT":
        value, sixth = reg("v", sizes[0] if sizes else 1, 4), " th:TH_LOAD_NT scope:SCOPE_SYS"
        for base, address in (("off", "v[20:21]"), ("s[6:7]", "v20")):
            where = base if name[0] in "gc" else base if base != "off" else ""
            for end in (
                "",
                " offset:64",
                " offset:-64 scale_offset",
                " scale_offset",
                " nv",
                " scale_offset nv",
                sixth,
            ):
                tail = (f", {where}" if where else "") + end
                yield from (
                    f"{name} {value}, {address}{tail}",
                    f"{name} {address}, {value}{tail}",
                    f"{name} {address}{tail}",
                )
                yield f"{name} v40, {address}, {value}{tail} th:TH_ATOMIC_RETURN"
        yield from (f"{name} {value}, v9, s3 scale_offset", f"{name} v9, {value}, s3 offset:8 scale_offset nv")
    elif kind == "MUBUF":
        yield f"{name} {reg('v', sizes[0] if sizes else 1, 4)}, v9, s[8:11], s3 offen offset:20 nv"
    elif kind == "SMEM" and len(sizes) == 3:
        to = f"{name} {reg('s', sizes[0], 16)}, {reg('s', sizes[1], 8)}"
        yield from (f"{to}, s7 scale_offset", f"{to}, s7 offset:0x20 scale_offset nv", f"{to}, 0x20 nv")
    elif kind in ("SOP1", "SOP2", "SOPC") and 2 in sizes[-2:]:
        plain = [reg("s", n, 4 + 16 * k) for k, n in enumerate(sizes)]
        for value in ("0x123456789abcdef0", "lit64(0x12)", "src_flat_scratch_base_lo"):
            yield f"{name} {', '.join([*plain[:-1], value])}"
    elif kind in ("V", "VOP3P"):
        at = (4, 40, 72, 104, 136)
        kinds = [t[0] for t in tokens if t[0] != "="]
        flat = [reg("v" if k in "vh" else "s", n, p) + ".l" * (k == "h") for k, n, p in zip(kinds, sizes, at)]
        plain_text = ", ".join(flat)
        if 2 in sizes[1:2]:
            for value in ("0x123456789abcdef0", "lit64(0x12)", "src_flat_scratch_base_lo"):
                yield f"{name} {', '.join([flat[0], value, *flat[2:]])}"
        for k, t in enumerate(tokens):
            if t[0] == "?":
                wide = [*flat[:k], "lit64(0x123456789a)", *flat[k + 1 :]]
                yield f"{name} {', '.join(wide)}"
        for end in ("matrix_a_reuse", "matrix_b_reuse", "matrix_a_reuse matrix_b_reuse", "index_key:1", "neg_lo:[0,0,1]", "neg_hi:[0,0,1]", "neg_lo:[1,0,0] clamp",
                    "scale_sel:3", "scale_sel:9", "byte_sel:1", "byte_sel:3"):  # fmt: skip
            yield f"{name} {plain_text} {end}"
        if any(k == "s" for k in kinds[2:]):
            yield f"{name} {', '.join([*flat[:2], *(['1', '16'][: len(flat) - 2])])}"


FORMATS = {"FP8": 16, "BF8": 16, "FP6": 12, "BF6": 12, "FP4": 8}


def by_hand() -> Iterator[str]:
    """Products of small floats, with their scales; copies of tensors; pairs of three-operand instructions."""
    for (x, m), (y, n) in itertools.product(FORMATS.items(), repeat=2):
        fmt = f"matrix_a_fmt:MATRIX_FMT_{x} matrix_b_fmt:MATRIX_FMT_{y}"
        operands = f"v[64:71], {reg('v', m, 0)}, {reg('v', n, 16)}, v[64:71]"
        yield f"v_wmma_f32_16x16x128_f8f6f4 {operands} {fmt}"
        for scales, many in (("v2, v3", ""), ("s2, v3", ""), ("v[2:3], v[4:5]", "16"), ("1, v[4:5]", "16")):
            stem = f"v_wmma_scale{many}_f32_16x16x128_f8f6f4 {operands}, {scales} {fmt}"
            yield from (
                stem,
                f"{stem} matrix_a_scale:MATRIX_SCALE_ROW1",
                f"{stem} matrix_b_scale:MATRIX_SCALE_ROW1 matrix_a_reuse matrix_b_reuse",
            )
    for scales, many in (("v2, v3", ""), ("v[2:3], v[4:5]", "16")):
        for end in ("", " matrix_a_scale:MATRIX_SCALE_ROW1", " matrix_b_reuse"):
            yield f"v_wmma_scale{many}_f32_32x16x128_f4 v[64:79], v[0:15], v[16:23], v[64:79], {scales}{end}"
        yield f"v_wmma_ld_scale{many}_paired_b{64 if many else 32} {scales}"
    for op, end in itertools.product(("load_to", "store_from"), ("", " th:TH_{}_NT scope:SCOPE_SYS")):
        what = end.format(op.partition("_")[0].upper())
        yield from (
            f"tensor_{op}_lds s[0:3], s[4:11]{what}",
            f"tensor_{op}_lds s[0:3], s[4:11], s[12:15], s[16:19]{what}",
        )
    three = ["fma_f32 {d}, {a}, {b}, {c}", "cndmask_b32 {d}, {a}, {b}, s5", "bitop2_b32 {d}, {a}, {b} bitop3:0x1a", "sub_nc_u32 {d}, {a}, {b}",
             "lshrrev_b32 {d}, {a}, {b}", "ashrrev_i32 {d}, {a}, {b}", "max_i32 {d}, {a}, {b}", "min_i32 {d}, {a}, {b}", "mul_f32 {d}, {a}, {b}",
             "fma_f32 {d}, -{a}, {b}, -{c}", "add_f32 {d}, {a}, -{b}", "cndmask_b32 {d}, -{a}, {b}, vcc_lo", "mov_b32 {d}, {a}", "fma_f32 {d}, s5, {b}, {c}"]  # fmt: skip
    wide = ["fma_f64 v[4:5], v[12:13], v[18:19], v[24:25]", "add_f64 v[4:5], -v[12:13], v[18:19]", "mul_f64 v[4:5], 1.0, v[18:19]",
            "max_num_f64 v[4:5], v[12:13], v[18:19]", "min_num_f64 v[4:5], s[12:13], v[18:19]"]  # fmt: skip
    one = [x.format(d="v4", a="v12", b="v18", c="v24") for x in three]
    other = [x.format(d=d, a="v17", b="v23", c="v29") for x in three for d in ("v7", "v6")]
    yield from (f"v_dual_{x} :: v_dual_{y}" for x, y in itertools.product([*one, *wide], other))
