"""LLVM's own tests of AMD's encodings as the judge of the software GPU: which instructions in them it decodes, and which it executes.

    python -m tools.mc_judge LLVM/llvm/test/MC                   # the table in docs/emulator.md
    python -m tools.mc_judge LLVM/llvm/test/MC --chip gfx942 --names

LLVM's tests of its assembler and disassembler (`MC/AMDGPU`, `MC/Disassembler/AMDGPU`) say for each line which bytes it is. An instruction counts as decoded if the decoder's text is LLVM's,
or is assembled to the same bytes again (by the assembler in Triton's package, which knows newer chips than llvmlite's); as executed if it is also translated. Lines whose bytes hold a
relocation are left out. Nothing runs here: the tests of rows hold what instructions do.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tec.emulator.decode.disassemble import decoder
from tec.emulator.decode.inst import Inst, KernelText
from tec.emulator.translate.kernel import translate
from tec.emulator.translate.registers import Options
from tec.errors import TecError
from tools.isa_judge import GRAPHICS, plain

# The processors whose tests are a chip's: gfx1201 has gfx1200's instructions.
CHIPS = {
    "gfx942": ("gfx942", "gfx940"),
    "gfx950": ("gfx950",),
    "gfx1100": ("gfx1100",),
    "gfx1201": ("gfx1200", "gfx1201"),
}
_RUN = re.compile(r"RUN:.*llvm-mc\b(?P<words>.*?)\|.*FileCheck(?P<checks>.*)")
_PREFIXES = re.compile(r"-check-prefix(?:es)?[= ]([\w,-]+)")
# Beside the opcodes: counters of streams in GDS; images of several samples, and with a word that says which of their texels are there.
_GRAPHICS = re.compile(rf"{GRAPHICS}|.* gds$|.* gds |image_.*(MSAA| tfe| lwe)")
# What no manual gives a meaning: of CDNA's matrix instructions broadcasts of more blocks than there are (CBSZ, ABID), of sparse ones index sets beyond the register's, and rearranged lanes of B
# (BLGP) where the elements are not 32 bits; scales without a product behind them; bytes and halves of packed operands (SDWA); signs of packed operands where DPP reads them; fields of hardware registers without a name.
_MEANINGLESS = re.compile(
    r"cbsz:\d+ abid:\d+ |blgp:\d+ on|modifier src\d_sel|on a packed operand|s_[gs]etreg 0x|v_mfma_ld_scale"
)
_CHECK = re.compile(r"^\s*(?://|#|;)\s*([\w-]+?)(?:-NEXT)?:\s*(.*?)\s*(?://|;)\s*encoding: \[([^\]]*)\]")


@dataclass(frozen=True, slots=True)
class Line:
    """An instruction of the tests: its bytes, LLVM's text, and the lanes of a wave (0: the chip's usual)."""

    data: bytes
    text: str
    lanes: int
    file: str


@dataclass(slots=True)
class Verdict:
    """What became of a line: "right", or what failed."""

    line: Line
    decoded: bool
    executed: bool
    why: str


def _runs(text: str, chip: str) -> dict[str, int]:
    """The prefixes of the checks that hold for a chip, each with the lanes of a wave."""
    found: dict[str, int] = {}
    for run in _RUN.finditer(re.sub(r"\\\n\s*(?://|#|;)\s*RUN:", "", text)):
        words = run["words"]
        cpu = re.search(r"-mcpu=(\w+)", words)
        if cpu is None or cpu[1] not in CHIPS[chip] or "-show-encoding" not in words:
            continue
        lanes = 64 if "+wavefrontsize64" in words else 32 if "+wavefrontsize32" in words else 0
        for m in _PREFIXES.finditer(run["checks"]):
            for prefix in m[1].split(","):
                found.setdefault(prefix, lanes)
    return found


def lines(folder: Path, chip: str) -> list[Line]:
    """The instructions of a chip's tests, each once."""
    found: dict[tuple[bytes, int], Line] = {}
    for path in sorted(p for room in ("AMDGPU", "Disassembler/AMDGPU") for p in (folder / room).iterdir()):
        if path.suffix not in (".s", ".txt"):
            continue
        text = path.read_text(encoding="utf-8", errors="replace")
        prefixes = _runs(text, chip)
        for row in text.splitlines() if prefixes else ():
            m = _CHECK.match(row)
            if m is None or m[1] not in prefixes or not re.fullmatch(r"[0-9a-fx, ]+", m[3]):
                continue
            data = bytes(int(x, 0) for x in m[3].split(","))
            lanes = prefixes[m[1]]
            found.setdefault((data, lanes), Line(data, " ".join(m[2].split()), lanes, path.name))
    return list(found.values())


def _said(error: Exception) -> str:
    """An error in one line; with its type where it is none of tec's."""
    text = (str(error).splitlines() or [""])[0]
    return text if isinstance(error, TecError) else f"{type(error).__name__}: {text}"


def read(chip: str, line: Line) -> tuple[Inst | None, str]:
    """The instruction of a line's bytes, and its text; None and what the decoder says where it refuses."""
    try:
        program = decoder(chip, line.data, lanes=line.lanes)
        inst = program.next()
    except Exception as error:  # a decoder that fails itself is one more refusal here
        return None, _said(error)
    if program.at != len(line.data):
        return None, f"{program.at} bytes read of {len(line.data)}"
    return inst, inst.text


def _plain(text: str) -> str:
    """A text in one spelling: a matrix instruction's two names are one, a branch's goal is a number of words."""
    name, _, rest = " ".join(text.split()).partition(" ")
    rest = re.sub(r"\.L_(-?\w+)", lambda m: str((int(m[1], 16) - 4) // 4 & 0xFFFF), rest)
    # Of conversions of 8-bit floats LLVM does not say that SDWA writes the whole register.
    return f"{plain(name)} {rest}".replace(" dst_sel:DWORD dst_unused:UNUSED_PAD", "")


def _by_selectors(text: str) -> str:
    """Halves of registers as LLVM has them where it does not name them: op_sel of the sources, then the result, where one is a high half."""
    name, _, rest = text.partition(" ")
    operands = re.match(r".*?(?= [a-z]\w*:[\[\w-]| (?:clamp|row_mirror|row_half_mirror)\b|$)", rest)
    assert operands is not None
    parts = operands[0].split(", ")
    high = [p.endswith((".h", ".h|")) for p in parts]
    if "_cmpx_" not in name:
        high = [*high[1:], high[0]]
    selectors = f" op_sel:[{','.join(str(int(h)) for h in high)}]" if any(high) else ""
    return f"{name} {re.sub(r'[.][lh]', '', operands[0])}{selectors}{rest[operands.end() :]}"


def same(text: str, llvm: str) -> bool:
    """Whether the decoder's text says what LLVM's does, which names halves of registers, selects them, or both."""
    text, llvm = _plain(text), _plain(llvm)
    if re.search(r"\d\.[lh]", llvm):
        return text == re.sub(r" op_sel:\[[01,]+\]", "", llvm) or text == llvm
    return text == llvm or _by_selectors(text) == llvm


def again(chip: str, lanes: int, texts: list[str]) -> dict[str, bytes]:
    """What the assembler makes of texts."""
    from tools.encodings_llvm import Assembler

    # The decoder names halves of registers, which some tests have as op_sel alone.
    features = "" if chip.startswith("gfx9") else "+real-true16"
    return Assembler(chip, lanes == 64 and not chip.startswith("gfx9"), features)(texts)


def translated(chip: str, inst: Inst, lanes: int) -> str:
    """Why an instruction is not executed; "" where it is."""
    ends = decoder(chip, b"\0\0\x81\xbf" if chip.startswith(("gfx9", "gfx10")) else b"\0\0\xb0\xbf").next()
    names = [o.text for o in inst.operands if o.kind == "label"]
    text = KernelText("k", [inst.copy(), ends], dict.fromkeys(names, 1))
    wave = lanes or (64 if chip.startswith("gfx9") else 32)
    options = Options(chip, wave, False, accum_offset=256 if chip.startswith("gfx9") else 0, vgpr_count=512)
    try:
        translate(text, options, "k")
    except Exception as error:  # as above
        return _said(error)
    return ""


def judged(folder: Path, chip: str) -> Iterator[Verdict]:
    """A verdict on each line of a chip's tests."""
    todo = lines(folder, chip)
    insts = [read(chip, line) for line in todo]
    differ: dict[int, list[str]] = defaultdict(list)
    for line, (inst, text) in zip(todo, insts):
        if inst is not None and not same(text, line.text):
            differ[line.lanes].append(text)
    bytes_of = {lanes: again(chip, lanes, texts) for lanes, texts in differ.items()}
    for line, (inst, text) in zip(todo, insts):
        if inst is None:
            yield Verdict(line, False, False, text)
            continue
        if not same(text, line.text) and bytes_of[line.lanes].get(text) != line.data:
            yield Verdict(line, False, False, f"{line.text} read as {text}")
            continue
        why = translated(chip, inst, line.lanes)
        yield Verdict(line, True, not why, why)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="llvm/test/MC of LLVM's sources")
    parser.add_argument("--chip", action="append", choices=sorted(CHIPS))
    parser.add_argument("--names", action="store_true", help="print what fails, by opcode and reason")
    args = parser.parse_args()
    print(
        "| chip | instructions | graphics | others decoded | without a meaning | the rest executed |\n| --- | --- | --- | --- | --- | --- |"
    )
    for chip in args.chip or CHIPS:
        found = list(judged(args.folder, chip))
        rest = [v for v in found if not _GRAPHICS.match(v.line.text)]
        n, d, e = len(rest), sum(v.decoded for v in rest), sum(v.executed for v in rest)
        idle = sum(v.decoded and not v.executed and bool(_MEANINGLESS.search(v.why)) for v in rest)
        cells = chip, len(found), len(found) - n, f"{d} ({d / n:.2%})", idle, f"{e} ({e / (n - idle):.2%})"
        print(f"| {' | '.join(map(str, cells))} |", flush=True)
        if args.names:
            failed: dict[tuple[bool, str], Counter[str]] = defaultdict(Counter)
            for v in rest:
                if not v.executed:
                    failed[v.decoded, re.sub(r"\(bytes.*|\d+", "#", v.why)][v.line.text.split()[0]] += 1
            for (decoded, why), names in sorted(failed.items(), key=lambda x: -x[1].total()):
                print(
                    f"    {names.total():5} {'not executed' if decoded else 'not decoded'}: {why[:200]} ({', '.join(n for n, _ in names.most_common(6))})"
                )
    return 0


if __name__ == "__main__":
    sys.exit(main())
