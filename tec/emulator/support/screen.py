"""What the quick look of `checks.screening` calls at each access: LLVM IR of `tec_screen_<ld|st>_<space>_<lanes>` and their kin.

None of them says what is wrong. A result of 1 asks for the launch to be done again under the full checks, so they may look at more than an
access touches, but never at less: lines of 64 bytes for loads of global memory, dwords for everything else.
"""

from __future__ import annotations

from .template import ir

SPACES = ("global", "lds", "scratch")
# Bits of a dword's byte in the map of LDS that are something to look at, and that the access sets (`screen.ll`).
_WRONG_DOES = {"ld": (31, 32), "st": (48, 16)}
_BYTES = 0x0101010101010101
_BY_RUNS = "orderly"  # the label of the look at lanes that go on from each other


def names(w: int) -> list[str]:
    return [*(f"tec_screen_{verb}_{space}_{w}" for space in SPACES for verb in ("ld", "st")), f"tec_screen_scalar_{w}"]


def screen_functions(w: int) -> str:
    """The functions for wavefronts of `w` lanes; of 16, the one for a strip of them."""
    text = ir("screen.ranges") + ir("screen.again") + "".join(_scattered(verb) for verb in ("ld", "st"))
    if w == 16:
        strip = ir(
            "screen.strip", prepare=ir("screen.prepare_lds"), quick=_quick_lds("ld", "lanes"), by_runs=_BY_RUNS,
            scattered=_look_at_scattered("ld", "%buf", "good"),
        )  # fmt: skip
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
    prepare = quick = scattered = ""
    if not wide:
        prepare, quick = ir("screen.prepare_lds"), _quick_lds(verb, "done")
        scattered = _look_at_scattered(verb, "%kp", "stripped")
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
        scattered=scattered,
        by_runs=_BY_RUNS if scattered else "lanes",
        strips=w // 16,
        disorder=2 if verb == "st" else 0,
    )


def _quick_lds(verb: str, then: str) -> str:
    """The look at a short run of dwords of LDS in line; `then`: the label behind it."""
    wrong, does = (x * _BYTES for x in _WRONG_DOES[verb])
    stored = ir("screen.stored_lds") if verb == "st" else ""
    return ir("screen.quick_lds", wrong=wrong, does=does, stored=stored, then=then)


def _scattered(verb: str) -> str:
    """The look at 16 lanes of whole dwords, one after another without a branch: rows that are padded or turned, as tiles have them."""
    text = ""
    for size in (4, 8, 16):
        wrong, does = (x * (_BYTES & (1 << 2 * size) - 1) for x in _WRONG_DOES[verb])
        stored = f"  store i{2 * size} 0, ptr %p, align 1\n" if verb == "st" else ""
        text += ir("screen.scattered", verb=verb, size=size, bits=2 * size, wrong=wrong, does=does, stored=stored)
    return text + ir("screen.scattered_sizes", verb=verb)


def _look_at_scattered(verb: str, at: str, fine: str) -> str:
    return ir("screen.scattered_look", verb=verb, at=at, fine=fine, by_runs=_BY_RUNS)


def _block(w: int) -> str:
    wide = f"zext <{w} x i32> %slots to <{w} x i{w}>" if w > 32 else f"add <{w} x i32> %slots, zeroinitializer"
    return ir("screen.block", w=w, widen_slots=wide)
