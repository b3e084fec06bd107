"""The memory functions of the support library: LLVM IR text of checked loads, stores and atomics (see `support.library`)."""

from __future__ import annotations

from ..context import CTX
from .gather import grouped, in_strips, narrow
from .lane_loop import over_lanes
from .lanes import STRIP
from .template import ir

# name -> (bytes in memory, dwords in registers, sign-extended)
ACCESSES: dict[str, tuple[int, int, bool]] = {
    "b32": (4, 1, False), "b64": (8, 2, False), "b96": (12, 3, False), "b128": (16, 4, False),
    "u8": (1, 1, False), "i8": (1, 1, True), "u16": (2, 1, False), "i16": (2, 1, True),
}  # fmt: skip


def ctx_load(name: str, field: str, ty: str = "i64") -> str:
    return f"  %{name}_p = getelementptr i8, ptr %ctx, i64 {CTX[field]}\n  %{name} = load {ty}, ptr %{name}_p\n"


def _seq(n: int, start: int = 0, step: int = 1) -> str:
    return "<" + ", ".join(f"i32 {start + i * step}" for i in range(n)) + ">"


def splat(name: str, w: int, ty: str, value: str) -> str:
    return (
        f"  %{name}_i = insertelement <{w} x {ty}> poison, {ty} {value}, i64 0\n"
        f"  %{name} = shufflevector <{w} x {ty}> %{name}_i, <{w} x {ty}> poison, <{w} x i32> zeroinitializer\n"
    )


def check_function(w: int) -> str:
    """The slow path: look every offending lane's address up; remember the allocation for this site, or fault.

    %align has 256 added for loads. LLVM widens those of, say, three elements to the next size where the alignment of the address
    shows that this cannot leave the page, and throws away what is read beyond. So of a load only the last block of the
    address's own alignment must begin within the allocation; what follows an allocation is undefined, and NaN.
    """
    return ir("memory.check", w=w, lanes=over_lanes(w, "%bad", "entry", "[ %left1, %found ], [ %left1, %tail ]", "ok"))


def resolve(w: int, space: str, nbytes: int, align: int, strict: bool = False, load: bool = False) -> str:
    """Plain accesses may be unaligned (amdhsa turns unaligned access on), unless the context asks for alignment;
    `strict` ones (atomics) may not.
    From %addr, %m (mask bits): checked; falls through to label %go, where %mask is the vector mask."""
    wanted = (
        f"  %almask = add i64 0, {align - 1}\n"
        if strict
        else ctx_load("alctx", "align") + f"  %almask = and i64 %alctx, {align - 1}\n"
    )
    if space == "global":
        return (
            wanted
            + splat("almaskv", w, "i64", "%almask")
            + (
                f"  %mask = bitcast i{w} %m to <{w} x i1>\n"
                + ctx_load("cache", "cache", "ptr")
                + ir("memory.resolve_global", w=w, align_offset=257 if load else 1, nbytes=nbytes)
            )
        )
    limit, oob_kind, mis_kind = ("lds_bytes", 3, 5) if space == "lds" else ("scratch_bytes", 4, 10)
    base = "lds" if space == "lds" else "scratch"
    return (
        wanted
        + "  %almask32 = trunc i64 %almask to i32\n"
        + splat("almaskv", w, "i32", "%almask32")
        + f"  %mask = bitcast i{w} %m to <{w} x i1>\n"
        + ctx_load("size", limit)
        + ctx_load("base", base, "ptr")
        + ir("memory.resolve_local", nbytes=nbytes, w=w, oob_kind=oob_kind, mis_kind=mis_kind)
    )


def _pointers(w: int, space: str, k: int) -> str:
    """IR that makes %p<k>, the pointers of a strip's dword k."""
    if space == "scratch":
        return ir("memory.pointers_scratch", k=k, w=w, lane_places=_seq(STRIP, 4 * w * k, 4))
    if space == "lds":
        return ir("memory.pointers_lds", k=k, further=4 * k)
    return ir("memory.pointers_global", k=k, further=4 * k)


def memory_function(w: int, space: str, access: str, load: bool) -> str:
    """The text of the function that serves an access of `w` lanes: loads or stores of `access` in one space, which reports what is out of bounds or
    misaligned. A load leaves what %out has in the lanes that are off."""
    nbytes, n, signed = ACCESSES[access]
    at = "i64" if space == "global" else "i32"
    verb = "ld" if load else "st"
    # What the manuals ask of LDS where unaligned access is off: b96 and b128 at multiples of 16, b64 of 8.
    align = {8: 8, 12: 16, 16: 16}.get(nbytes, nbytes) if space == "lds" else min(nbytes, 4)
    text = (
        f"\ndefine i32 @tec_{verb}_{space}_{access}_{w}(ptr %out, <{w} x {at}> %addr, i{w} %m, ptr %ctx, i32 %site) {{\n"
        f"entry:\n  %lanes = alloca <{w} x {at}>, align 64\n{resolve(w, space, nbytes, align, load=load)}"
    )
    is_in_parts = space == "scratch" and nbytes > 1
    if is_in_parts:
        text += _scratch_unaligned(w, nbytes, align, load, signed)
    if nbytes < 4:
        body = _pointers(w, space, 0) + narrow(space, 8 * nbytes, load, signed)
    elif space == "scratch":
        body = "".join(_pointers(w, space, k) + _dword(k, 4 * w * k, load) for k in range(n))
    else:
        body = grouped(w, n, space, load)
    return text + in_strips(w, at, "even" if is_in_parts else "go", body)


def _scratch_unaligned(w: int, nbytes: int, align: int, load: bool, signed: bool) -> str:
    """Scratch interleaves the lanes dword by dword, so an access that is not aligned goes byte by byte where any lane's is not."""
    text = ir("memory.bytes_begin", w=w, below_align=align - 1, lane_bits=w if w == 32 else 64).replace(
        f"trunc i64 %bl to i{64}", "add i64 %bl, 0"
    )
    if load and nbytes < 4:
        text += "  store i32 0, ptr %bo\n"
    for b in range(nbytes):
        text += ir("memory.byte_place", b=b, w=w, byte_at=4 * w * (b // 4) + b % 4)
        source, goal = (f"%bp{b}", f"%bq{b}") if load else (f"%bq{b}", f"%bp{b}")
        text += f"  %bv{b} = load i8, ptr {source}\n  store i8 %bv{b}, ptr {goal}\n"
    if load and signed and nbytes == 2:
        text += "  %bn = load i16, ptr %bo\n  %bw = sext i16 %bn to i32\n  store i32 %bw, ptr %bo\n"
    return text + ir("memory.bytes_end", w=w)


def _dword(k: int, further: int, load: bool) -> str:
    if load:
        return ir("memory.dword_ld", k=k, further=further)
    return ir("memory.dword_st", k=k, further=further)


def scalar_load(n: int) -> str:
    """s_load of n dwords: the range checked, then nothing more; the kernel loads by itself."""
    return ir("memory.scalar_load", n=n, lane_bytes=4 * n)
