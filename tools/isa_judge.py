"""The software GPU's opcodes held against AMD's machine-readable ISA: which of them it decodes, and which it executes.

AMD publishes the ISA of CDNA 3 and 4, RDNA 3 and RDNA 4 as XML. The package `tinygrad` has the opcodes of these files as Python (`runtime/autogen/amd/*/enum.py`), which is what this tool reads:

    pip install tinygrad && python -m tools.isa_judge         # the table in docs/emulator.md
    python -m tools.isa_judge --names                         # with the opcodes that are missing
"""

from __future__ import annotations

import argparse
import importlib
import re
import sys

from tec.emulator.analyses.calls import CALLS
from tec.emulator.decode.words import encodings
from tec.emulator.isa import opcodes
from tec.emulator.isa.table import ROWS
from tec.emulator.translate.kernel import CONTROL

FAMILIES = {"cdna": ("gfx942", "gfx950"), "rdna3": ("gfx1100", "gfx1151"), "rdna4": ("gfx1200", "gfx1201")}
# AMD's name, and LLVM's where it has another.
ALIASES = {
    "v_accvgpr_read": "v_accvgpr_read_b32",
    "v_accvgpr_write": "v_accvgpr_write_b32",
    "s_sub_nc_u64": "s_sub_u64",
}

# What `decode` reads without a row of its tables: operands that are no operands' codes, and two instructions that are one.
IN_CODE = {"s_set_gpr_idx_on", "s_fmaak_f32", "s_fmamk_f32", "v_mfma_ld_scale_b32"}
IN_CODE |= {"v_dot2acc_f32_f16", "v_dot2acc_f32_bf16"}
IN_CODE |= {f"v_mfma_scale_f32_{n}_f8f6f4" for n in ("16x16x128", "32x32x64")}
GRAPHICS = r"v_interp_|export$|exp$|(lds|ds)_(param|direct)_load|.*(bvh|msaa|gs_reg|ordered_count)|s_.*cdbg|image_gather4h|.*_pck"


def plain(name: str) -> str:
    """One spelling of a matrix instruction that has two: v_mfma_f32_32x32x4_2b_f16 is v_mfma_f32_32x32x4f16."""
    name = name.replace("v_dual_", "v_")  # a half of a pair
    name = name.replace("v_mad_mix", "v_fma_mix")  # one opcode, fused since gfx906
    return re.sub(r"_\d+b_|_1k$|_", "", name) if name.startswith(("v_mfma", "v_smfmac")) else name


def of_amd(family: str) -> set[str]:
    """The opcodes of AMD's file, without the suffixes of their encodings."""
    module = importlib.import_module(f"tinygrad.runtime.autogen.amd.{family}.enum")
    lists = [v for k, v in vars(module).items() if isinstance(v, type) and k.endswith("Op") and k != "OpType"]
    names = {re.sub(r"_e(32|64)$", "", e.name.lower()) for found in lists for e in found}  # type: ignore[attr-defined]
    return {ALIASES.get(n, n) for n in names}


def judged(family: str) -> tuple[set[str], set[str], set[str]]:
    """The opcodes (a half of a pair as the instruction that it is), those that are not decoded, and those that are decoded but not executed."""
    opcodes.load()
    names = of_amd(family)
    known = {plain(n) for n in {e.name for chip in FAMILIES[family] for e in encodings(chip).values()} | IN_CODE}
    rows = ROWS.keys() | CALLS | CONTROL | {"s_getpc_b64", "s_setpc_b64", "v_mfma_ld_scale_b32"}
    executed = {plain(n) for n in rows}
    unknown = {n for n in names if plain(n) not in known}
    idle = {n for n in names - unknown if plain(n) not in executed and not n.startswith("s_cbranch")}
    return names, unknown, idle


def table() -> str:
    lines = ["| AMD's file | chips | opcodes | graphics | others decoded | others executed |"]
    lines.append("| --- | --- | --- | --- | --- | --- |")
    titles = {"cdna": "CDNA 3 and 4", "rdna3": "RDNA 3 and 3.5", "rdna4": "RDNA 4"}
    for family, chips in FAMILIES.items():
        names, unknown, idle = judged(family)
        drawn = {n for n in names if re.match(GRAPHICS, n)}
        n, d = len(names - drawn), len(names - drawn - unknown)
        e = len(names - drawn - unknown - idle)
        cells = (titles[family], ", ".join(chips), len(names), len(drawn), f"{d} ({d / n:.1%})", f"{e} ({e / n:.1%})")
        lines.append(f"| {' | '.join(map(str, cells))} |")
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--names", action="store_true", help="print the opcodes that are missing as well")
    args = parser.parse_args()
    try:
        print(table())
    except ImportError as e:
        print(f"the opcodes of AMD's files are in the package tinygrad ({e})", file=sys.stderr)
        return 1
    for family in FAMILIES if args.names else ():
        _, unknown, idle = judged(family)
        print(f"\n{family}, not decoded: {' '.join(sorted(unknown))}\n{family}, not executed: {' '.join(sorted(idle))}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
