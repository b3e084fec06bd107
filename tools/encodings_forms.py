"""Forms of an instruction whose operands are known, which `tools.encodings` has assembled and read back."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator

from tools.encodings_operands import Candidates, reg


def variants(name: str, tokens: tuple[str, ...], kind: str, gfx: int, mask: int) -> Iterator[str]:
    """Forms of an instruction that the assembler may take: other registers, literals, modifiers."""
    make = Candidates(gfx, mask)
    flat = [make.token(t, k) for k, t in enumerate(tokens) if t[0] != "="]
    policy = (
        ["glc", "glc slc dlc"]
        if gfx in (10, 11)
        else ["th:TH_{}_NT scope:SCOPE_SYS", "scope:SCOPE_DEV"]
        if gfx >= 12
        else ["sc0 nt", "glc"]
    )
    if not tokens and kind == "V":
        yield name
        return
    if kind == "V" or kind.startswith("VOP3P"):
        moved = [re.sub(r"\.l$", ".h", t) for t in flat]
        last = " bitop3:0x5a" if "bitop3" in name else ""
        signs = [t if not k or t[0] != "v" else f"-{t}" if k == 1 else f"|{t}|" for k, t in enumerate(moved)]
        special = [*flat[:1], "s7", *flat[2:]]
        literal = [*flat[:1], "0x1234567", *flat[2:]]
        if name == "v_writelane_b32":
            flat = [*flat[:2], "m0"]
        dpp = [
            "quad_perm:[1,0,3,2] row_mask:0xf bank_mask:0xf",
            "row_ror:3 row_mask:0xa bank_mask:0x5 bound_ctrl:1",
            "dpp8:[7,6,5,4,3,2,1,0]",
        ]
        if gfx >= 10:
            dpp += [
                "row_share:3 row_mask:0xf bank_mask:0xf fi:1",
                "row_xmask:2 row_mask:0xf bank_mask:0xf bound_ctrl:1 fi:1",
            ]
        # (The assembler dies of a literal in some of gfx950's scaled conversions.)
        forms = [flat, moved, special] + [literal] * ("scalef32" not in name)
        for form in forms:
            yield f"{name} {', '.join(form)}{last}"
            yield f"{name}_e64 {', '.join(form)}{last}"
        for text in (signs, [*signs[:1], "s7", *signs[2:]]):
            for end in ("", " clamp", " mul:4"):
                yield f"{name}_e64 {', '.join(text)}{end}"
                yield f"{name} {', '.join(text)}{end}"
        for way in dpp:
            yield f"{name}_dpp {', '.join(flat)} {way}"
            yield f"{name}_e64_dpp {', '.join(signs)} {way}"
            yield f"{name}_e64_dpp {', '.join(moved)} {way}"
        if gfx == 10:
            for end in ("dst_sel:WORD_1 dst_unused:UNUSED_PRESERVE ", ""):
                for more in ("src0_sel:BYTE_1", "src0_sel:WORD_1 src1_sel:BYTE_3"):
                    yield f"{name}_sdwa {', '.join(flat)} {end}{more}"
        for end in ("op_sel:[1,0]", "op_sel:[1,0,1]", "op_sel:[0,1,0,1]", "op_sel:[0,1,1] op_sel_hi:[1,0,0]", "neg_lo:[1,0,0] neg_hi:[0,1,0]", "clamp",
                    "neg_lo:[1,1,0] clamp", "op_sel_hi:[0,1]", "neg_lo:[0,1]", "index_key:1", "byte_sel:2", "op_sel:[1,0,0] op_sel_hi:[0,0,1]"):  # fmt: skip
            yield f"{name} {', '.join(flat)} {end}"
        return
    plain = f"{name} {', '.join(flat)}".strip()
    if kind == "DS":
        yield from (plain, f"{plain} offset:4660", f"{plain} offset0:3 offset1:200", f"{plain} gds")
    elif kind == "FLAT":
        count = int(tokens[0][1:]) if tokens else 1
        value, result = reg("v", count, 4), reg("v", count // 2 if "cmpswap" in name else count, 40)
        addresses = {"f": ["v[20:21]"], "g": ["v[20:21]", "v20"], "s": ["v20", "off", "v20"]}[name[0].replace("c", "g")]
        tails = {"f": [""], "g": [", off", ", s[6:7]"], "s": [", off", ", s7", ", s7"]}[name[0].replace("c", "g")]
        extra = ["", "offset:16", "offset:-32", *(policy if gfx < 12 else [])]
        what = next((w for w in ("ATOMIC", "STORE", "LOAD") if w.lower() in name), "LOAD")
        extra += [p.format(what) for p in policy] + [
            "th:TH_ATOMIC_RETURN",
            "th:TH_ATOMIC_CASCADE_NT scope:SCOPE_DEV",
        ] * (what == "ATOMIC" and gfx >= 12)
        yield name
        if "_lds_" in name:
            yield from (
                f"{name} {address}{tail} {end}".strip() for address, tail in zip(addresses, tails) for end in extra
            )
            return
        for (address, tail), end in itertools.product(zip(addresses, tails), extra):
            if what == "ATOMIC":
                yield f"{name} {address}, {value}{tail} {end}".strip()
                yield f"{name} {result}, {address}, {value}{tail} {end}".strip()
            else:
                parts = f"{address}, {value}" if what == "STORE" else f"{value}, {address}"
                yield f"{name} {parts}{tail} {end}".strip()
                yield f"{name} {value}{tail} {end}".strip()
        if name[0] == "s":
            yield from (f"{name} {x}, off offset:8" for x in (f"off, {value}", f"{value}, off"))
    elif kind in ("MIMG", "VIMAGE", "VSAMPLE"):
        yield from image_variants(name, gfx, policy)
    elif kind == "MTBUF" or name[0] == "t":
        value = reg("v", int(tokens[0][1:]), 4)
        what = "STORE" if "store" in name else "LOAD"
        for end in ("", "offset:20", *(p.format(what) for p in policy)):
            yield f"{name} {value}, off, s[8:11], s3 format:22 {end}".strip()
            yield f"{name} {value}, v9, s[8:11], 0 format:77 offen {end}".strip()
            yield f"{name} {value}, v[10:11], s[8:11], s3 format:5 idxen offen {end}".strip()
    elif kind == "MUBUF":
        value = reg("v", int(tokens[0][1:]) if tokens else 1, 4)
        yield name
        what = next((w for w in ("ATOMIC", "STORE", "LOAD") if w.lower() in name), "LOAD")
        for end in ("", "offset:20", *(p.format(what) for p in policy)):
            yield f"{name} {value}, off, s[8:11], s3 {end}".strip()
            yield f"{name} {value}, v9, s[8:11], 0 offen {end}".strip()
            yield f"{name} {value}, v9, s[8:11], s3 idxen {end}".strip()
            yield f"{name} {value}, v[10:11], s[8:11], s3 idxen offen {end}".strip()
        yield f"{name} off, s[8:11], s3 lds"
    elif kind == "SMEM":
        yield plain
        if len(flat) == 3:
            for offset in (
                "s7",
                "s7 offset:0x20",
                "0x44",
                "-8" if "buffer" not in name else "0",
                f"0x10 {policy[0].format('LOAD')}",
                "m0",
            ):
                yield f"{name} {reg('s', int(tokens[0][1:]), 16)}, {reg('s', int(tokens[1][1:]), 8)}, {offset}"
    elif kind in ("SOPP", "SOPK"):
        coded = re.search("reg|sendmsg|s_waitcnt$", name)  # their numbers stand for what has names
        for end in ("vmcnt(3) lgkmcnt(2)", "sendmsg(MSG_INTERRUPT)", *(() if coded else ("", "5", "0xfffc", "-1"))):
            yield f"{name} {end}".strip()
        yield from () if coded else (plain,)
        yield from (
            f"{name} s5, hwreg(HW_REG_MODE, 4, 2)",
            f"{name} hwreg(HW_REG_MODE, 4, 2), s5",
            f"{name} hwreg(HW_REG_MODE, 4, 2), 0x30",
        )
    elif "sendmsg" in name:
        yield f"{name} {flat[0]}, sendmsg(MSG_RTN_GET_REALTIME)"
    else:
        yield plain
        for value in (
            "0x1234567",
            "m0",
            "null",
            "exec",
            "exec_lo",
            "vcc",
            "vcc_lo",
            "1.0",
            "-7",
            "scc",
            "ttmp3",
            "src_shared_base",
        ):
            yield f"{name} {', '.join([*flat[:-1], value])}"


def image_variants(name: str, gfx: int, policy: list[str]) -> Iterator[str]:
    """Images of every dimension, with addresses in a row and apart, of 16 bits, and results of 16."""
    from tec.emulator.decode.image import DIMENSIONS, address_registers
    from tec.emulator.decode.inst import has_sampler

    tail = "s[8:15]" + (", s[16:19]" if has_sampler(name) else "")
    what = next((w for w in ("ATOMIC", "STORE") if w.lower() in name), "LOAD")
    ends = ["", " d16", " a16", *(" " + p.format(what) for p in policy), " th:TH_ATOMIC_RETURN"] + [" da", " unorm"] * (
        gfx == 9 or has_sampler(name)
    )
    for kind, end in itertools.product(DIMENSIONS[:6], ends):
        n = address_registers(name, kind, end == " a16")
        apart = [f"v{20 + 2 * k}" for k in range(n)]
        most = 4 if gfx >= 12 and has_sampler(name) else 5
        if gfx > 10 and n > most:
            apart[most - 1 :] = [reg("v", n - most + 1, 40)]
        dimension = f" dim:SQ_RSRC_IMG_{kind}" if gfx > 9 else " unorm" if not has_sampler(name) else ""
        addresses = (
            ["v20"]
            if n == 1
            else [f"[{', '.join(apart)}]"] + [reg("v", n, 20)] * (gfx < 12) + (["v20"] if gfx == 9 else [])
        )
        for address, (data, mask) in itertools.product(addresses, ((1, 1), (2, 3), (4, 15), (4, 1), (1, 3))):
            yield f"{name} {reg('v', data, 4)}, {address}, {tail} dmask:{mask:#x}{dimension}{end}"


def duals(gfx: int) -> Iterator[str]:
    """Pairs of instructions in one."""
    big = ["max_num_f32", "min_num_f32"] if gfx >= 12 else ["max_f32", "min_f32"]
    plain = [
        "fmac_f32",
        "mul_f32",
        "add_f32",
        "sub_f32",
        "subrev_f32",
        "mul_dx9_zero_f32",
        "cndmask_b32",
        "dot2acc_f32_f16",
        "dot2acc_f32_bf16",
        *big,
    ]
    first = [f"v_dual_{n} v1, v2, v3" for n in plain] + [
        "v_dual_mov_b32 v7, s5",
        "v_dual_fmaak_f32 v1, v2, v3, 0x1234",
        "v_dual_fmamk_f32 v1, v2, 0x1234, v3",
    ]
    second = [f"v_dual_{n} v4, v9, v10" for n in (*plain, "add_nc_u32", "lshlrev_b32", "and_b32")]
    second += [
        "v_dual_mov_b32 v8, 1.0",
        "v_dual_fmaak_f32 v4, v9, v10, 0x1234",
        "v_dual_fmamk_f32 v4, s5, 0x1234, v10",
        "v_dual_add_f32 v4, 0x1234, v10",
    ]
    yield from (f"{a} :: {b}" for a, b in itertools.product(first, second))


def scaled_products() -> Iterator[str]:
    """gfx950's products with scales, which are two instructions in its machine code: formats, registers of either file, bytes of the scales."""
    for shape, n in (("16x16x128", 4), ("32x32x64", 16)):
        for a, b in itertools.product(range(5), repeat=2):
            sizes = [(8, 8, 6, 6, 4)[f] for f in (a, b)]
            formats = "".join(f" {m}:{f}" for m, f in (("cbsz", a), ("blgp", b)) if f)
            for kind, scales, end in (
                ("v", "v2, v3", ""),
                ("v", "v2, s3", " op_sel:[1,0,0]"),
                ("a", "v2, v3", " op_sel:[0,1,0] op_sel_hi:[1,1,0]"),
            ):
                operands = f"{kind}[64:{63 + n}], v[8:{7 + sizes[0]}], {kind}[16:{15 + sizes[1]}], {kind}[64:{63 + n}]"
                yield f"v_mfma_scale_f32_{shape}_f8f6f4 {operands}, {scales}{end}{formats}"
