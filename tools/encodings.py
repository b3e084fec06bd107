"""The tables of opcodes that the software GPU reads machine code by, made by asking LLVM's assembler.

    python -m tools.encodings tables [FOLDER]      writes encodings_gfx9.txt and encodings_rdna.txt (default: tec/emulator/decode)
    python -m tools.encodings samples [FOLDER]     writes the tests' samples "chip bytes instruction" (default: tests/unit/emulator)
    python -m tools.encodings check                disassembles the samples, assembles that again, and compares the bytes

Names come from the texts of the instruction printer in llvmlite's library, so that they are those that LLVM can emit; operands are found by trying: each name is
assembled with every list of operands that its kind may have, and the first that is taken stands in the table. The assembler is the one
in Triton's package from PyPI (LLVM 22 or later: it knows the same chips), which must be installed beside llvmlite.
"""

from __future__ import annotations

import re
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path

from tools import encodings_cdna5 as cdna5
from tools.encodings_forms import duals, scaled_products, variants
from tools.encodings_llvm import Assembler
from tools.encodings_operands import Candidates

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
    from tec.emulator.isa import opcodes
    from tec.emulator.isa.table import ROWS

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


def samples(chip: str) -> Iterator[tuple[str, bytes, str]]:
    """(row of the table, bytes, instruction) of every form that the assembler takes of every opcode of a chip."""
    from tec.emulator.decode.words import encodings

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
    if chip == "gfx950":
        lines |= dict.fromkeys(scaled_products(), "VOPD")  # pairs, as those are
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
    from tec.emulator.decode.disassemble import decoder
    from tec.errors import TecError

    taken = list(samples(chip))
    read: list[str] = []
    for _, data, _ in taken:
        program = decoder(chip, data)
        try:
            text = program.next().text
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
        folder = Path(rest[0]) if rest else ROOT / "tec" / "emulator" / "decode"
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
