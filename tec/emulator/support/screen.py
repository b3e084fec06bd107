"""What the quick look of `checks.screening` calls at each access: LLVM IR of `tec_screen_<ld|st>_<space>_<lanes>` and their kin.

None of them says what is wrong. A result of 1 asks for the launch to be done again under the full checks, so they may look at more than an
access touches, but never at less: lines of 64 bytes for loads of global memory, dwords for everything else.
"""

from __future__ import annotations

from .template import ir

SPACES = ("global", "lds", "scratch")


def names(w: int) -> list[str]:
    return [*(f"tec_screen_{verb}_{space}_{w}" for space in SPACES for verb in ("ld", "st")), f"tec_screen_scalar_{w}"]


def screen_functions(w: int) -> str:
    """The functions for wavefronts of `w` lanes; of 16, the one for a strip of them."""
    text = ir("screen.ranges") + ir("screen.again")
    if w == 16:
        strip = ir("screen.strip", prepare=ir("screen.prepare_lds"), quick=_quick_lds("ld", "lanes"))
        return text + strip + "declare i16 @llvm.cttz.i16(i16, i1)\n"
    text += ir("screen.scalar", w=w)
    for space in SPACES:
        for verb in ("ld", "st"):
            text += _access(w, verb, space)
    return text + ir("screen.declares", w=w)


def _access(w: int, verb: str, space: str) -> str:
    if space == "scratch":  # kernels with scratch are not screened; a buffer resource may turn out to be of it
        return ir("screen.scratch", verb=verb, w=w)
    wide = space == "global"
    at = "i64" if wide else "i32"
    prepare = quick = ""
    if not wide:
        prepare, quick = ir("screen.prepare_lds"), _quick_lds(verb, "done")
    elif verb == "ld":
        prepare, quick = ir("screen.prepare_ld_global"), ir("screen.quick_ld_global")
    return ir(
        "screen.access",
        verb=verb,
        space=space,
        w=w,
        at=at,
        size="add i64 %nbytes, 0" if wide else "trunc i64 %nbytes to i32",
        sixteen=", ".join(f"{at} {k}" for k in range(16)),
        shift="add i64 %sh, 0" if w == 64 else "trunc i64 %sh to i32",
        widen="add i64 %first, 0" if wide else "zext i32 %first to i64",
        widen_lane="add i64 %la, 0" if wide else "zext i32 %la to i64",
        begins="add i64 %a00, 0" if wide else "phi i32 [ %a00, %entry ], [ %lowest, %fill_block ]",
        widen_first="add i64 %begins, 0" if wide else "zext i32 %begins to i64",
        block="" if wide else _block(w),
        otherwise="columns" if wide else "block",
        strips_begin="[ 0, %columns ], [ 0, %columns_look ]",
        widen_mask="add i64 %apart_by, 0" if w == 64 else "zext i32 %apart_by to i64",
        widen_column="add i64 %ca, 0" if wide else "zext i32 %ca to i64",
        lanes=", ".join(f"{at} {k}" for k in range(w)),
        prepare=prepare,
        quick=quick,
        strips=w // 16,
        disorder=2 if verb == "st" else 0,
    )


def _quick_lds(verb: str, then: str) -> str:
    """The look at a short run of dwords of LDS in line; `then`: the label behind it."""
    wrong, does = (31, 32) if verb == "ld" else (48, 16)
    bytes_ = 0x0101010101010101
    stored = ir("screen.stored_lds") if verb == "st" else ""
    return ir("screen.quick_lds", wrong=wrong * bytes_, does=does * bytes_, stored=stored, then=then)


def _block(w: int) -> str:
    wide = f"zext <{w} x i32> %slots to <{w} x i{w}>" if w > 32 else f"add <{w} x i32> %slots, zeroinitializer"
    return ir("screen.block", w=w, widen_slots=wide)
