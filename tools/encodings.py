"""The tables of opcodes that the software GPU reads machine code by, made by asking LLVM's assembler.

    python -m tools.encodings tables [FOLDER]      writes encodings_gfx9.txt and encodings_rdna.txt (default: tec/emulator)
    python -m tools.encodings samples [FOLDER]     writes the tests' samples "chip bytes instruction" (default: tests/unit/emulator)
    python -m tools.encodings check                disassembles the samples, assembles that again, and compares the bytes

Names come from the texts of the instruction printer in llvmlite's library, so that they are those that LLVM can emit; operands are found by trying: each name is
assembled with every list of operands that its kind may have, and the first that is taken stands in the table. The assembler is the one
in Triton's package from PyPI (LLVM 22 or later: it knows the same chips), which must be installed beside llvmlite.
"""

from __future__ import annotations

import itertools
import os
import re
import struct
import sys
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from tools import encodings_cdna5 as cdna5

# Letter in the table -> chip. gfx1201 has gfx1200's instructions.
GFX9 = {"a": "gfx90a", "b": "gfx942", "c": "gfx950"}
RDNA = {"d": "gfx1030", "e": "gfx1100", "f": "gfx1151", "g": "gfx1200", "h": "gfx1250"}
ROOT = Path(__file__).parent.parent
# Graphics, debuggers' branches, and what LLVM never emits.
_LEFT_OUT = re.compile(
    r"v_interp|image_bvh|image_msaa|image_rsrc|ds_bvh|ds_param|ds_direct|ds_gws_sema|_gfx|v_illegal|ds_ordered|^lds_|s_cbranch_cdbg|s_subvector|s_cbranch_[gi]_fork|s_cbranch_join|s_rfe_restore|s_dcache_discard|v_mfma_scale_"
)


def names() -> list[str]:
    """Mnemonics in llvmlite's library; a name that ends another one shares its text (s_add_u32 in ds_add_u32)."""
    import llvmlite.binding as llvm

    llvm.initialize_all_targets()
    data = Path(llvm.ffi.lib._name).read_bytes()
    found = set()
    for m in re.finditer(
        rb"(?:s|v|ds|global|flat|scratch|buffer|tbuffer|image|cluster)_[a-z0-9_]+(?= ?[\0\t\n])", data
    ):
        text = m[0].decode()
        found |= {text} | (
            {text[1:]}
            if text.startswith(("ds_", "tbuffer_"))
            else {text[2:]}
            if text.startswith(("s_buffer_", "s_scratch_"))
            else set()
        )
    plain = {re.sub(r"(_e32|_e64|_dpp8?|_sdwa|_gfx\d+|_vi|_e64_dpp)+$", "", n) for n in found}
    return sorted(n for n in plain if not _LEFT_OUT.search(n))


class Assembler:
    """LLVM's assembler in Triton's package: many lines at once, of which some may be wrong."""

    def __init__(self, chip: str, wave64: bool = False):
        import triton._C.libtriton as library

        library.llvm.init_targets()
        self._assemble = library.amd.assemble_amdgcn
        self.chip, self.features = chip, "+wavefrontsize64" if wave64 else ""

    def _once(self, lines: list[str]) -> tuple[bytes, str]:
        with tempfile.TemporaryFile() as file:
            sys.stderr.flush()
            before = os.dup(2)
            os.dup2(file.fileno(), 2)
            try:
                image = self._assemble("\n".join(lines) + "\n", "amdgcn-amd-amdhsa", self.chip, self.features)
            finally:
                os.dup2(before, 2)
                os.close(before)
            file.seek(0)
            return image, file.read().decode()

    def known(self, names: list[str]) -> list[str]:
        """The mnemonics that the chip has."""
        _, errors = self._once(names)
        unknown = re.findall(r"error: (?:invalid instruction|instruction not supported)[^\n]*\n([^\n]*)\n", errors)
        return sorted(set(names) - set(unknown))

    def __call__(self, lines: Iterable[str]) -> dict[str, bytes]:
        """Line -> its bytes, for those that are right."""
        todo = list(dict.fromkeys(lines))
        for _ in range(4):
            if not todo:
                return {}
            marked = [x for k, line in enumerate(todo) for x in (f"L{k}:", line)] + [f"L{len(todo)}:"]
            image, errors = self._once(marked)
            if image:
                text, places = _text_and_labels(image)
                return {line: text[places[f"L{k}"] : places[f"L{k + 1}"]] for k, line in enumerate(todo)}
            wrong = set(re.findall(r"error: [^\n]*\n([^\n]*)\n", errors))
            todo = [line for line in todo if line not in wrong]
        raise RuntimeError(f"the assembler still objects: {errors[:500]}")


def _text_and_labels(image: bytes) -> tuple[bytes, dict[str, int]]:
    """The .text section of a relocatable object and its symbols."""
    offset, size, count = (*struct.unpack_from("<Q", image, 40), *struct.unpack_from("<HH", image, 58))
    heads = [struct.unpack_from("<IIQQQQIIQQ", image, offset + size * k) for k in range(count)]
    symbols = next(h for h in heads if h[1] == 2)
    strings = image[heads[symbols[6]][4] :]
    text, places = b"", {}
    for k in range(symbols[5] // 24):
        name, _, _, section, value, _ = struct.unpack_from("<IBBHQQ", image, symbols[4] + 24 * k)
        label = strings[name : strings.index(b"\0", name)].decode()
        if label:
            places[label] = value
            text = image[heads[section][4] : heads[section][4] + heads[section][5]]
    return text, places


def reg(kind: str, size: int, at: int) -> str:
    return f"{kind}{at}" if size == 1 else f"{kind}[{at}:{at + size - 1}]"


_START = (4, 40, 72, 104, 136)  # where an operand's registers begin: apart, and aligned for every size


class Candidates:
    """The lists of operands that an opcode may have: (text of the operands, tokens in the table)."""

    def __init__(self, gfx: int, mask_size: int):
        self.gfx, self.mask = gfx, mask_size

    def token(self, token: str, k: int) -> str:
        kind, size = token[0], int(token[1:])
        at = _START[k]
        if kind in "sSm":
            return reg("s", size, 4 + 16 * k)
        if kind == "?":
            return "0x123"
        if kind == "h":
            return f"v{at}.l"
        return reg("v" if kind != "a" else "a", size, at)

    def lists(self, *choices: list[str]) -> Iterator[tuple[str, tuple[str, ...]]]:
        for tokens in itertools.product(*choices):
            yield ", ".join(self.token(t, k) for k, t in enumerate(tokens)), tokens

    def of(self, name: str) -> Iterator[tuple[str, tuple[str, ...]]]:
        if name.startswith(
            (
                "s_load",
                "s_store",
                "s_atomic",
                "s_buffer",
                "s_scratch",
                "s_memtime",
                "s_memrealtime",
                "s_dcache",
                "s_gl1_inv",
            )
        ):
            yield from self.scalar_memory(name)
        elif name.startswith("s_"):
            yield from self.scalar(name)
        elif name.startswith("ds_"):
            yield from self.lds(name)
        elif name.startswith(("global_", "flat_", "scratch_", "cluster_")):
            yield from self.flat(name)
        elif name.startswith("image_"):
            yield from self.images(name)
        elif name.startswith("tbuffer_"):
            for n in (1, 2, 3, 4):
                yield f"{reg('v', n, 4)}, v8, s[8:11], s3 format:1 idxen", (f"D{n}",)
        elif name.startswith("buffer_"):
            yield "", ()
            for n in (1, 2, 3, 4):
                yield f"{reg('v', n, 4)}, off, s[8:11], s3", (f"D{n}",)
            yield "off, s[8:11], s3 lds", ("D1",)
        elif re.match(r"v_(mfma|smfmac|wmma|swmmac)", name):
            yield from self.matrix(name)
        elif name.startswith("v_accvgpr"):
            yield from self.lists(["v1"], ["a1"])
            yield from self.lists(["a1"], ["v1", "a1"])
        else:
            yield from self.vector(name)

    def images(self, name: str) -> Iterator[tuple[str, tuple[str, ...]]]:
        """Of dimension 2D; what follows from names and masks is not in the table."""
        from tec.emulator.decode_image import address_registers, sampled

        at = address_registers(name, "2D", False)
        address = (
            reg("v", at, 20)
            if self.gfx < 12 or at == 1
            else f"[{', '.join(f'v{20 + 2 * k}' for k in range(min(at, 4 if sampled(name) else 5)))}]"
        )
        if self.gfx >= 12 and sampled(name) and at > 4:
            address = f"[v20, v22, v24, {reg('v', at - 3, 26)}]"
        tail = " s[8:15]" + (", s[16:19]" if sampled(name) else "")
        dimension = " dim:SQ_RSRC_IMG_2D" if self.gfx > 9 else " unorm" if not sampled(name) else ""
        for n, mask in ((4, 1), (1, 1), (2, 3), (4, 15)):
            yield f"{reg('v', n, 4)}, {address},{tail} dmask:{mask:#x}{dimension}", ()

    def scalar_memory(self, name: str) -> Iterator[tuple[str, tuple[str, ...]]]:
        yield "", ()
        yield "s[4:5]", ("s2",)
        for n, base in itertools.product((1, 2, 3, 4, 8, 16), (2, 4)):
            yield f"{reg('s', n, 16)}, {reg('s', base, 8)}, 0x10", (f"s{n}", f"s{base}", "?1")

    def scalar(self, name: str) -> Iterator[tuple[str, tuple[str, ...]]]:
        if "getreg" in name:
            yield "s4, hwreg(HW_REG_MODE)", ("s1", "?1")
        elif name.startswith("s_setreg"):
            yield "hwreg(HW_REG_MODE), s4", ("s1", "?1")
            yield "hwreg(HW_REG_MODE), 0x123", ("?1", "?1")
        if name.startswith("s_waitcnt_") and self.gfx >= 10:
            yield "null, 0x3", ("s1", "?1")
        yield "", ()
        one = ["s1", "s2"]
        yield from self.lists(one)
        yield from self.lists(one, one)
        yield from self.lists(one, one, one)
        yield "s4, 0x123", ("s1", "?1")
        yield "s[4:5], 0x123", ("s2", "?1")
        yield "0x3", ("?1",)
        yield "-1", ("S1",)
        yield "s[4:5], 0x10, s7, 3", ("s2", "?1", "s1", "?1")

    def lds(self, name: str) -> Iterator[tuple[str, tuple[str, ...]]]:
        result, one, two = ([f"{k}{n}" for n in (1, 2, 3, 4)] for k in "D01")
        yield "", ()
        if "_gws_" in name:
            yield "v4 gds", ("A1",)
            return
        if re.search("_rtn|read|load|swizzle|permute|append|consume", name):
            yield from self.lists(result)
            yield from self.lists(result, ["A1"])
            yield from self.lists(result, ["A1"], one)
            yield from self.lists(result, ["A1"], one, two)
        else:
            yield from self.lists(["01"] if "addtid" in name else ["A1"])
            yield from self.lists(["A1"], one)
            yield from self.lists(["A1"], one, two)

    def flat(self, name: str) -> Iterator[tuple[str, tuple[str, ...]]]:
        address, tail = {"g": ("v[20:21]", ", off"), "f": ("v[20:21]", ""), "s": ("v20", ", off")}[
            name[0].replace("c", "g")
        ]
        returns = " th:TH_ATOMIC_RETURN" if self.gfx >= 12 else " glc"
        yield "", ()
        for n in (1, 2, 3, 4):
            value = reg("v", n, 4)
            if "_store" in name or "_atomic" in name:
                yield f"{address}, {value}{tail}", (f"0{n}",)
                if "_atomic" in name:  # some have only the form that returns
                    yield f"v40, {address}, {value}{tail}{returns}", (f"0{n}",)
                    yield f"v[40:41], {address}, {value}{tail}{returns}", (f"0{n}",)
                yield f"{value}{tail}", (f"0{n}",)
            else:
                yield f"{value}, {address}{tail}", (f"D{n}",)
                yield f"{value}{tail}", (f"D{n}",)
        yield f"{address}{tail}", ("D1",)

    def matrix(self, name: str) -> Iterator[tuple[str, tuple[str, ...]]]:
        sizes = (1, 2, 3, 4, 6, 8, 16, 32)
        for d, a, b in itertools.product(sizes, sizes[:-2], sizes[:-2]):
            if a != b and not re.match(r"v_(smfmac|swmmac)|v_mfma_(scale_)?f32_\d+x\d+x\d+_f8f6f4", name):
                continue
            last = (d,) if not name.startswith(("v_smfmac", "v_swmmac")) else (1, 2)
            for c in last:
                at = (64, 8, 16, 24)
                text = ", ".join(reg("v", n, p) for n, p in zip((d, a, b, c), at))
                yield text + ("" if "_scale_" not in name else ", v40, v41"), tuple(f"v{n}" for n in (d, a, b, c))

    def vector(self, name: str) -> Iterator[tuple[str, tuple[str, ...]]]:
        yield "", ()
        m = [f"m{self.mask}"]
        values, table = ["h1", "v1", "v2"], ["bitop3" in name]
        wide = ["v1", "v2", "v3", "v4", "v6", "v8", "v16", "v32"]
        if "mk_f" in name or "ak_f" in name:
            for k in ("h1", "v1", "v2"):
                for order in ([k, k, "?1", k], [k, k, k, "?1"]):
                    yield from self.lists(*([x] for x in order))
            return
        if name.startswith("v_cmpx") and self.gfx >= 10:
            yield from self.lists(values, values)
            return
        if name.startswith("v_cmp"):
            yield from self.lists(m, values, values)
            return
        if re.search(r"div_scale|mad_u64_u32|mad_i64_i32|mad_co_", name):
            yield from self.lists(values, m, values, values, values)
            return
        if "cndmask" in name:
            yield from self.lists(values, values, values, m)
            return
        if re.match(r"v_(add|sub|subrev)c?_co_|v_subbrev|v_subb_", name):
            yield from self.lists(values, m, values, values, m)
            yield from self.lists(values, m, values, values)
            return
        if re.match(r"v_(readlane|readfirstlane|s_)", name):
            first = ["s1"]
            yield from self.lists(first, ["s1"] if name.startswith("v_s_") else ["v1"])
            yield from self.lists(first, ["v1"], ["s1"])
            return
        if (
            "lane" in name
            and not name.startswith("v_permlane_")
            and ("write" in name or re.search(r"permlanex?16_b", name))
        ):
            yield "v4, s5, m0", ("v1", "s1", "s1")  # gfx9 reads one SGPR beside M0
            yield from self.lists(["v1"], ["v1"], ["s1"], ["s1"])
            return
        end = " bitop3:0x5a" if table[0] else ""
        for count in (1, 2, 3):
            for text, tokens in self.lists(values, *([values] * count)):
                yield text + end, tokens
        if re.search(r"sad|scalef32|cvt_.*f6|cvt_.*f4|cvt_sr|pk32|perm|prng|ashr_pk|fp8|bf8|_f8", name):
            for count in (1, 2, 3):
                for text, tokens in self.lists(
                    wide, *([wide] * min(count, 2)), *([["v1", "v4"]] if count == 3 else [])
                ):
                    yield text, tokens


def key(data: bytes, gfx: int) -> tuple[str, int] | None:
    """The encoding and the opcode of an instruction's first word, as the decoders look them up."""
    w = int.from_bytes(data[:4], "little")
    bits = lambda low, n: w >> low & ((1 << n) - 1)  # noqa: E731
    if w >> 31 == 0:
        if bits(25, 7) == 0b0111110:
            return "V", bits(17, 8)
        return (
            ("V", (0x140 if gfx == 9 else 0x180) + bits(9, 8))
            if bits(25, 7) == 0b0111111
            else ("V", 0x100 + bits(25, 6))
        )
    if w >> 30 == 2:
        if bits(23, 9) == 0b101111111:
            return "SOPP", bits(16, 7)
        if bits(23, 9) == 0b101111110:
            return "SOPC", bits(16, 7)
        if bits(23, 9) == 0b101111101:
            return "SOP1", bits(8, 8)
        return ("SOPK", bits(23, 5)) if bits(28, 4) == 0b1011 else ("SOP2", bits(23, 7))
    top = bits(26, 6)
    if gfx == 9:
        if top == 0b110100:
            return ("VOP3P", bits(16, 7)) if bits(23, 9) == 0b110100111 else ("V", bits(16, 10))
        return {0b110000: ("SMEM", bits(18, 8)), 0b110110: ("DS", bits(17, 8)), 0b110111: ("FLAT", bits(14, 2) << 8 | bits(18, 7)),
                0b111000: ("MUBUF", bits(18, 7)), 0b111010: ("MTBUF", bits(15, 4)), 0b111100: ("MIMG", bits(18, 7) | bits(0, 1) << 7)}.get(top)  # fmt: skip
    if top == 0b110101:
        return "V", bits(16, 10)
    if bits(24, 8) == 0b11001100:
        return "VOP3P", bits(16, 8)  # seven bits, and a zero but on gfx1250
    if top == 0b110110:
        return "DS", bits(18, 8)
    if top == 0b111101:
        return "SMEM", bits(13, 6) if gfx >= 12 else bits(18, 8)
    if gfx >= 12:
        if top == 0b111011:
            return "FLAT", bits(24, 2) << 8 | bits(14, 7)
        kind = {0b110001: "MUBUF", 0b110100: "VIMAGE", 0b111001: "VSAMPLE"}.get(top)
        return (kind, bits(14, 8)) if kind else None
    if top == 0b110111:
        return "FLAT", (bits(14, 2) if gfx == 10 else bits(16, 2)) << 8 | bits(18, 7)
    if top == 0b111010:
        return "MTBUF", bits(16, 3) | (data[6] >> 5 & 1) << 3 if gfx == 10 else bits(15, 4)
    if top == 0b111100:
        return "MIMG", bits(18, 8) if gfx >= 11 else bits(18, 7) | bits(0, 1) << 7
    return ("MUBUF", bits(18, 7) | bits(25, 1) << 7) if top == 0b111000 else None


def _preferred() -> Callable[[str, int], tuple[bool, int, int, str]]:
    """Of two names of one opcode, the greater: one that the software GPU knows, then the newer (fewer generations before have it), the longer."""
    from tec.emulator import opcodes
    from tec.emulator.table import ROWS

    opcodes.load()
    before = {int(chip[3:-2]): set(Assembler(chip).known(names())) for chip in ("gfx90a", "gfx1030", "gfx1100")}
    return lambda name, gfx: (
        name in ROWS,
        sum(name not in known for g, known in before.items() if g < gfx),
        len(name),
        name,
    )


def table(chips: dict[str, str]) -> str:
    """The table of a family of chips, a line an opcode."""
    rows: dict[tuple[str, int, str, tuple[str, ...]], str] = defaultdict(str)
    owner: dict[tuple[str, str, int], tuple[str, tuple[str, ...]]] = {}
    everything = names()
    chosen = _preferred()
    for letter, chip in chips.items():
        gfx = int(chip[3:-2])
        for wave64 in (False, True):
            if wave64 and (gfx == 9 or chip == cdna5.CHIP):
                continue
            ask, make = Assembler(chip, wave64), Candidates(gfx, 2 if gfx == 9 or wave64 else 1)
            tried: dict[str, list[tuple[str, tuple[str, ...]]]] = {}
            if not wave64:
                known = [n for n in ask.known(everything) if not cdna5.BY_HAND.match(n)]
            for name in known:
                if wave64 and "wmma" not in name and "swmmac" not in name:
                    continue
                own = cdna5.lists(name) if chip == cdna5.CHIP else ()
                tried[name] = [(f"{name} {text}".strip(), tokens) for text, tokens in (*own, *make.of(name))]
            taken = ask(line for lists in tried.values() for line, _ in lists)
            for name, lists in tried.items():
                line, tokens = next(((line, t) for line, t in lists if line in taken), ("", ()))
                found = key(taken[line], gfx) if line else None
                if found is None:
                    if line and not wave64:
                        print(f"{chip}: no room for {line} {taken[line].hex()}", file=sys.stderr)
                    continue
                kind, op = found
                if kind == "SOP1" and len(tokens) == 1 and taken[line][0] == 4:
                    tokens = (f"S{tokens[0][1:]}",)
                if kind == "SOP1" and tokens == ("?1",):
                    tokens = ("S1",)
                if gfx == 9:
                    tokens = tuple(t.replace("m", "s") for t in tokens)
                if gfx >= 10 and kind == "VOP3P" and not re.match("v_(mfma|smfmac|accvgpr)", name):
                    w = int.from_bytes(taken[line], "little")
                    tokens = (*tokens, f"={w >> 59 & 3 | (w >> 14 & 1) << 2}")
                place = letter, kind + ("64" if wave64 else ""), op
                if place not in owner or chosen(name, gfx) > chosen(owner[place][0], gfx):
                    owner[place] = name, tokens
    for (letter, kind, op), (name, tokens) in sorted(owner.items()):
        rows[kind, op, name, tokens] += letter
    return "".join(
        f"{kind} {op:#x} {name} {letters} {' '.join(tokens)}".rstrip() + "\n"
        for (kind, op, name, tokens), letters in sorted(rows.items(), key=lambda r: r[0][:3])
    )


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
    from tec.emulator.decode_image import DIMENSIONS, address_registers, sampled

    tail = "s[8:15]" + (", s[16:19]" if sampled(name) else "")
    what = next((w for w in ("ATOMIC", "STORE") if w.lower() in name), "LOAD")
    ends = ["", " d16", " a16", *(" " + p.format(what) for p in policy), " th:TH_ATOMIC_RETURN"] + [" da", " unorm"] * (
        gfx == 9 or sampled(name)
    )
    for kind, end in itertools.product(DIMENSIONS[:6], ends):
        n = address_registers(name, kind, end == " a16")
        apart = [f"v{20 + 2 * k}" for k in range(n)]
        most = 4 if gfx >= 12 and sampled(name) else 5
        if gfx > 10 and n > most:
            apart[most - 1 :] = [reg("v", n - most + 1, 40)]
        dimension = f" dim:SQ_RSRC_IMG_{kind}" if gfx > 9 else " unorm" if not sampled(name) else ""
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


def samples(chip: str) -> Iterator[tuple[str, bytes, str]]:
    """(row of the table, bytes, instruction) of every form that the assembler takes of every opcode of a chip."""
    from tec.emulator.decode_words import encodings

    gfx = int(chip[3:-2])
    mask, ask = 2 if gfx == 9 else 1, Assembler(chip)
    lines = {
        line: f"{kind} {op:#x}"
        for (kind, op), e in encodings(chip).items()
        if not kind.endswith("64")
        for line in variants(e.name, tuple(f"{k}{n}" for k, n in e.operands), kind, gfx, mask)
    }
    if gfx >= 11:
        lines |= dict.fromkeys(duals(gfx), "VOPD")
    if chip == cdna5.CHIP:
        for (kind, op), e in encodings(chip).items():
            more = cdna5.variants(e.name, tuple(f"{k}{n}" for k, n in e.operands), kind)
            lines = {**dict.fromkeys(more, f"{kind} {op:#x}"), **lines}
        lines |= dict.fromkeys(cdna5.by_hand(), "VOPD")
        lines = {x: row for x, row in lines.items() if not cdna5.MEANINGLESS.match(x)}
    for line, data in ask(lines).items():
        if key(data, gfx) is not None or lines[line] == "VOPD":
            yield lines[line], data, line


def _few(chip: str, met: set[str]) -> Iterator[str]:
    """Of a chip's samples one of each opcode, fewer where a chip before it has the opcode, and of pairs every fifth."""
    rows: dict[str, list[str]] = defaultdict(list)
    for row, data, text in read_back(chip)[0]:
        name = re.sub(r"_(e32|e64|dpp|sdwa|e64_dpp)$", "", text.split()[0])
        rows[row if row == "VOPD" else f"{row} {name}"].append(f"{chip} {data.hex()} {text}")
    for n, (row, forms) in enumerate(rows.items()):
        if row == "VOPD":
            yield from forms[::5]
        elif row not in met:
            yield forms[(7 * n) % len(forms)]
        elif n % 8 == 0:
            yield forms[n % len(forms)]
        met.add(row)


def read_back(chip: str) -> tuple[list[tuple[str, bytes, str]], list[str]]:
    """(row, bytes, the disassembler's text) of the samples whose text the assembler turns into the same bytes; what is told of the others."""
    from tec.emulator.disassemble import decoder
    from tec.errors import TecError

    taken = list(samples(chip))
    read: list[str] = []
    for _, data, _ in taken:
        program = decoder(chip, data)
        try:
            text = program.instruction()
            read.append(re.sub(r"\.L_(-?\w+)", lambda m: str((int(m[1], 16) - 4) // 4 & 0xFFFF), text))
            if program.at != len(data):
                read[-1] = f"{program.at} bytes read"
        except TecError as error:
            read.append(re.sub(r"[:\n]", " ", str(error)))
    again = Assembler(chip)(read)
    good, bad = [], []
    for (row, data, line), text in zip(taken, read):
        if again.get(text) == data:
            good.append((row, data, text))
        else:
            bad.append(f"{data.hex()} | {line} | {text}")
    return good, bad


def check(chip: str) -> int:
    """Disassemble every sample, assemble that, and compare; how many differ."""
    good, wrong = read_back(chip)
    print(f"{chip}: {len(good) + len(wrong)} forms, {len(wrong)} differ")
    for text in wrong[:60]:
        print("    " + text)
    return len(wrong)


if __name__ == "__main__":
    what, *rest = sys.argv[1:] or [""]
    if what == "tables":
        folder = Path(rest[0]) if rest else ROOT / "tec" / "emulator"
        (folder / "encodings_gfx9.txt").write_text(table(GFX9))
        (folder / "encodings_rdna.txt").write_text(table(RDNA))
    elif what == "samples":
        folder = Path(rest[0]) if rest else ROOT / "tests" / "unit" / "emulator"
        for family, chips in (("gfx9", GFX9), ("rdna", RDNA)):
            lines: list[str] = []
            met: set[str] = set()
            for chip in chips.values():
                lines += _few(chip, met)
            (folder / f"encodings_{family}.txt").write_text("\n".join(sorted(lines)) + "\n")
    elif what == "check":
        sys.exit(1 if sum(check(chip) for chip in rest or [*GFX9.values(), *RDNA.values()]) else 0)
    else:
        sys.exit(__doc__)
