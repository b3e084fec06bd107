"""The operations that `Call` may name: one table, read by builders, verifier, interpreter and emitters.

effect: "pure" (no memory), "read", "write", "opaque" (may do anything, order kept), "barrier".
lanes: "map" works lane by lane on vectors; "scalar" takes scalars only; "any" says for itself.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Intrin:
    name: str
    nargs: int  # -1: any number
    effect: str
    lanes: str
    doc: str


INTRINS: dict[str, Intrin] = {}


def _add(names: str, nargs: int, effect: str = "pure", lanes: str = "map", doc: str = "") -> None:
    for name in names.split():
        INTRINS[name] = Intrin(name, nargs, effect, lanes, doc)


# Float math, lane by lane, result of the argument's dtype. `tec.ir.passes.lower_math` expands what a target lacks.
UNARY_FLOAT_MATH = (
    "exp exp2 exp10 log log2 log10 log1p expm1 sqrt rsqrt sin cos tan asin acos atan sinh cosh tanh asinh acosh atanh sigmoid erf "
    "floor ceil trunc round nearbyint"
)
_add(UNARY_FLOAT_MATH, 1, doc="round: half away from zero; nearbyint: half to even")
_add("pow atan2 fmod copysign hypot", 2)
_add("ldexp", 2, doc="a * 2**b; b int32")
_add("fma", 3, doc="a*b+c, one rounding")
_add("abs", 1, doc="floats and signed integers")
_add("isnan isinf isfinite", 1, doc="bool")
_add(
    "bitand bitor bitxor shl shr mulhi",
    2,
    doc="integers; shr is arithmetic on signed types; shift amounts are below the width",
)
_add("bitnot popcount clz ctz bitreverse", 1, doc="integers; clz(0) is the width")
_add("min_nan max_nan", 2, doc="minimum and maximum that keep NaN (IEEE minimum, maximum)")
_add("reinterpret", 1, lanes="any", doc="the same bits as `dtype`")
_add("likely", 1, doc="the condition, expected true (guards of splits)")
_add("if_then_else", 3, doc="(cond, a, b): only the chosen side is evaluated; cond scalar")

# Memory and pointers.
_add("address_of", 1, "pure", "scalar", "(BufferLoad): pointer to that element")
_add("access_ptr", -1, "pure", "scalar", "(BufferLoad of the first element); attrs: rw ('r','w','rw')")
_add("prefetch", 1, "opaque", "scalar", "(BufferLoad): a hint; attrs: rw, locality")
_add(
    "atomic_add atomic_min atomic_max atomic_and atomic_or atomic_xor atomic_exch",
    2,
    "write",
    "scalar",
    "(BufferLoad, value): old value; relaxed, device scope for global, work-group scope for shared",
)
_add("atomic_cas", 3, "write", "scalar", "(BufferLoad, expected, desired): old value")

# Threads of a GPU.
_add(
    "barrier",
    0,
    "barrier",
    "scalar",
    "all threads of the work-group; attrs: scope ('shared', 'global', 'wave'), fence included",
)
_add(
    "shuffle_xor shuffle_up shuffle_down shuffle_idx",
    3,
    "opaque",
    "scalar",
    "(value, lane mask/delta/index, width): value of another lane of the wavefront; 32-bit and smaller or 64-bit scalars",
)
_add("ballot", 1, "opaque", "scalar", "(bool): uint64 mask of the active lanes where it holds")
_add("readfirstlane", 1, "opaque", "scalar", "the value of the first active lane, uniform from then on")
_add("wave_lane", 0, "pure", "scalar", "index of the lane in its wavefront")
_add(
    "async_copy",
    -1,
    "opaque",
    "scalar",
    "(dst BufferLoad, src BufferLoad, n elements): copy global -> shared in the background where the target can",
)
_add("async_commit", 0, "opaque", "scalar", "closes a group of async copies")
_add("async_wait", 0, "opaque", "scalar", "attrs: n: waits until at most n groups are under way")

# Matrix and dot units. Vectors are per lane, layouts in tec.te.intrin and docs.
_add("dot4", 3, "pure", "any", "(a int8x4|uint8x4, b, c int32): c + sum(a*b)")
_add("dot2", 3, "pure", "any", "(a float16x2|bfloat16x2, b, c float32)")
_add(
    "mma", 3, "opaque", "any", "(a, b, c): wavefront-wide c + a*b on the matrix unit; attrs: m, n, k, blocks, in_dtype"
)
_add("ldmatrix", -1, "opaque", "any", "matrix-fragment load from shared memory; attrs: num, trans")

# Functions outside.
_add("call_extern", -1, "opaque", "any", "attrs: symbol: a C function linked into the CPU code")
_add("call_pure_extern", -1, "pure", "any", "attrs: symbol")
_add("call_llvm_intrin", -1, "opaque", "any", "attrs: name: an LLVM intrinsic by full name, e.g. llvm.amdgcn.s.sleep")
_add("call_llvm_pure_intrin", -1, "pure", "any", "attrs: name")
_add("undef", 0, doc="any value")

# Host side, made by split_host_device; see tec.runtime.program.
_add("launch", -1, "opaque", "any", "attrs: kernel, grid, block, dyn_shared")
