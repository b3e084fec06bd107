"""PTX as text: the LLVM machine that makes it, and one text of several kernels'."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache

from ...errors import TargetError
from ...ir.func import Func
from ...ir.shared_layout import shared_layout
from ...target import Target
from ..llvm_util import LLVMMachine

TRIPLE = "nvptx64-nvidia-cuda"
# The lowest PTX version that knows a chip and what code is made of for it: it loads on the oldest drivers. 8.1 has the FP8 conversions of sm_89 and sm_90's
# reductions of vectors.
_PTX_OF = {70: 63, 72: 63, 75: 63, 80: 70, 86: 71, 87: 74, 89: 81, 90: 81, 100: 86, 101: 86, 103: 88, 120: 87, 121: 88}
_PTX_OF_WARPGROUPS = 81  # wgmma, bulk tensor copies, setmaxnreg


def number(target: Target) -> int:
    """The chip's number: 90 of sm_90 and sm_90a."""
    return int(target.mcpu.removeprefix("sm_").removesuffix("a"))


@lru_cache(maxsize=64)
def machine_of(target: Target) -> LLVMMachine:
    """The LLVM target machine; `-ptx=78` chooses a PTX version, by default the lowest that knows the chip."""
    least = max(_PTX_OF[number(target)], _PTX_OF_WARPGROUPS if target.chip.warpgroup else 0)
    asked = target.options.get("ptx", "")
    if asked:
        digits = asked.replace(".", "")
        if not digits.isdigit() or int(digits) < least:
            raise TargetError(
                f"PTX version {asked!r}", hint=f"{target.mcpu} needs {least // 10}.{least % 10} or later: -ptx={least}"
            )
        least = int(digits)
    return LLVMMachine(TRIPLE, target.mcpu, f"+ptx{least}", 3, "small")


def ordered_loads(ptx: str) -> str:
    """The text of kernels that begin early (`early_start`) with loads that stay behind their wait. What a kernel only reads, LLVM loads by ld.global.nc:
    memory that nothing writes while the kernel is there, which is not true of one that begins beside the kernel ahead of it, and ptxas might load before
    the wait. Those ahead of it, of constants, are ordered against it: relaxed ones of the work-group's own scope, which the first cache may answer. Volatile ones go past it,
    and scales of which a line holds 16 came 16 times."""
    if "griddepcontrol.wait" not in ptx:
        return ptx
    before, wait, after = ptx.replace("ld.global.nc.", "ld.global.").partition("griddepcontrol.wait")
    return before.replace("ld.global.", "ld.relaxed.cta.global.") + wait + after


_PAIR_SUM = re.compile(r"\badd\.[su]16x2[ \t]+(%r\d+), (%r\d+), (%r\d+);")


def sums_one_by_one(ptx: str) -> str:
    """The text with sums of pairs of 16-bit integers (add.s16x2, sm_90 and later) done one by one. Where one sum of a pair is used and an operand is a
    constant, ptxas 13.0 adds 0 instead: `mov.b32 %r2, 65537; add.s16x2 %r3, %r1, %r2; mov.b32 {%rs1, _}, %r3` becomes `VIADD.16x2 R0, R0, 0x0`. It does so
    with -O1, too; pairs' least and greatest and sums of halfs are right. What is a constant ptxas finds out for itself, so that no such sum stays."""
    return _PAIR_SUM.sub(
        r"{ .reg .b16 %pair<4>; mov.b32 {%pair0, %pair1}, \2; mov.b32 {%pair2, %pair3}, \3; "
        r"add.s16 %pair0, %pair0, %pair2; add.s16 %pair1, %pair1, %pair3; mov.b32 \1, {%pair0, %pair1}; }",
        ptx,
    )


_HALF = r"(%(?:rs|pair)\d+|-?\d+)"
_EXTREMUM = re.compile(rf"\b(min|max)\.([su])16[ \t]+{_HALF}, {_HALF}, {_HALF};")
_PAIR_EXTREMUM = re.compile(r"\b(min|max)\.([su])16x2[ \t]+(%r\d+), (%r\d+), (%r\d+);")
_ONE_BY_ONE = (
    r"{ .reg .b16 %pair<4>; mov.b32 {%pair0, %pair1}, \4; mov.b32 {%pair2, %pair3}, \5; "
    r"\1.\g<2>16 %pair0, %pair0, %pair2; \1.\g<2>16 %pair1, %pair1, %pair3; mov.b32 \3, {%pair0, %pair1}; }"
)


def extrema_in_words(ptx: str) -> str:
    """The text with the least and greatest of 16-bit integers taken of 32 bits where 16-bit integers are compared. For sm_90, ptxas before 13.4 makes one instruction of
    `min.u16 %rs2, %rs1, 5; setp.eq.b16 %p1, %rs2, 5`, `VIMNMX.U16x2 R0, P0, P0, R0, 0x5`, whose other half, of nothing, overwrites the answer; of pairs of which one half is
    compared likewise."""
    if "setp.eq.b16" not in ptx and "setp.ne.b16" not in ptx:
        return ptx
    return _EXTREMUM.sub(_in_words, _PAIR_EXTREMUM.sub(_ONE_BY_ONE, ptx))


def _in_words(found: re.Match[str]) -> str:
    which, sign, result, *given = found.groups()
    words = (
        f"cvt.{sign}32.{sign}16 %word{k}, {x}" if x.startswith("%") else f"mov.b32 %word{k}, {_word(int(x), sign)}"
        for k, x in enumerate(given)
    )
    return f"{{ .reg .b32 %word<2>; {'; '.join(words)}; {which}.{sign}32 %word0, %word0, %word1; cvt.u16.u32 {result}, %word0; }}"


def _word(value: int, sign: str) -> int:
    """A 16-bit constant, which LLVM writes with either sign, as a word."""
    value &= 0xFFFF
    return value - 0x10000 if sign == "s" and value >= 0x8000 else value


_DYNAMIC = re.compile(r"(?m)^\.extern \.shared \.align (\d+) (\.b8 \w+\[\]);\n+")
_HEADER = re.compile(r"(?s)\A.*?^\.address_size \d+\n", re.M)


def join_ptx(texts: Sequence[str]) -> str:
    """One PTX text of several for one target: what a driver compiles as one module.

    Kernels and their shared arrays have names of their own; labels have, too, within a kernel. The dynamic array is the one thing that is
    declared by each that has it: it is declared once, with the strictest alignment. Blank lines that only LLVM's tools need are left out.
    """
    header = _HEADER.match(texts[0])
    assert header is not None, "PTX begins with its version, target and address size"
    align: dict[str, int] = {}
    for text in texts:
        for bytes_, array in _DYNAMIC.findall(text):
            align[array] = max(align.get(array, 0), int(bytes_))
    declared = "".join(f".extern .shared .align {n} {array};\n" for array, n in align.items())
    bodies = []
    for k, text in enumerate(texts):
        body = _DYNAMIC.sub("", _HEADER.sub("", text, count=1))
        bodies.append(body.replace("$L__BB0_", f"$L__BB{k}_") if k else body)
    return re.sub(r"\n{3,}", "\n\n", "\n".join([header[0], declared, *bodies]))


def dynamic_shared_bytes(f: Func, target: Target) -> int:
    """Bytes of dynamic shared memory that a launch of the kernel asks for: all of it, where it is beyond the static limit."""
    total = int(f.attrs.get("lds_bytes", 0))
    if total <= target.static_lds_bytes:
        return 0
    return shared_layout(f.body)[1]
