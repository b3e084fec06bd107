"""The operations that `Call` may name: one table of what each is, read by builders, verifier, analyses, passes and printer.

A row says what a call does besides giving a value, so that no pass keeps names: `tec.ir.effects` answers from it. What a row
leaves out is so: no memory touched, free to be dropped, repeated or moved, a value that depends on the arguments alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ..errors import ExprError
from ..records import dataclass
from .dtype import dtype_info, with_lanes

if TYPE_CHECKING:
    from .expr import Expr


@dataclass(frozen=True, slots=True)
class Intrin:
    """One operation.

    reads, writes: positions of arguments that name an element of memory by a BufferLoad, which is then no load; `span` says how
      much of the buffer from there on: "one" element, a "run" whose length is the last argument, a "row" of 16 bytes, a "tile"
      that may be anywhere in it.
    fills: each element of the box (attrs `box`) that it writes gets a value, one beyond the tensor as well.
    pointer: the first argument names an element whose address is the value; attrs `rw` ("r", "w", "rw") says what happens
      through it, anywhere in the buffer.
    hint: the first argument names an element that is not touched.
    atomic: the access is ordered by itself against others of its kind.
    opaque: it has state of its own, so its order among opaque calls is kept.
    collective: which threads must come together: "wave", "group", or "active" where the result depends on which have come.
    varying: the value may differ between threads though the arguments do not.
    lanes: "map" works lane by lane on vectors; "scalar" takes scalars only; "any" says for itself.
    result: the dtype, or the position of the argument whose dtype it is; "bool" has the lanes of the first argument.
    """

    name: str
    nargs: int  # -1: any number
    doc: str = ""
    lanes: str = "map"
    result: int | str = 0
    reads: tuple[int, ...] = ()
    writes: tuple[int, ...] = ()
    span: str = "one"
    fills: bool = False
    pointer: bool = False
    hint: bool = False
    atomic: bool = False
    opaque: bool = False
    collective: str = ""
    varying: bool = False

    @property
    def is_kept(self) -> bool:
        """Whether a call does more than give a value: it is not dropped, repeated or moved past what it acts on."""
        return bool(self.writes or self.opaque or self.collective or self.hint)

    @property
    def is_pure(self) -> bool:
        """Whether equal arguments give equal values, at any time; memory that arguments load is theirs."""
        return not self.is_kept and not self.reads

    @property
    def elements(self) -> tuple[int, ...]:
        """Positions of the arguments that must be a BufferLoad."""
        return tuple(sorted({*self.reads, *self.writes, *((0,) if self.pointer or self.hint else ())}))


INTRINS: dict[str, Intrin] = {}


def register(intrin: Intrin) -> None:
    """Add an operation to the table. Its meaning: `interp_calls.register_meaning`; its lowering: `codegen.emit.calls.register_call`."""
    if intrin.name in INTRINS:
        raise ExprError(
            f"there is an operation {intrin.name!r} already", hint="another name; the table is tec.ir.intrin.INTRINS"
        )
    INTRINS[intrin.name] = intrin


def result_dtype(op: str, args: Sequence[Expr]) -> str:
    """The dtype of a call whose own is not stated."""
    known = INTRINS.get(op)
    result = 0 if known is None else known.result
    if isinstance(result, int):
        return args[result].dtype if result < len(args) else "int32"
    return with_lanes(result, dtype_info(args[0].dtype).lanes) if result == "bool" and args else result


def _add(names: str, nargs: int, doc: str = "", lanes: str = "map", result: int | str = 0, **traits: Any) -> None:
    for name in names.split():
        register(Intrin(name, nargs, doc, lanes, result, **traits))


# Float math, lane by lane, result of the argument's dtype. `tec.ir.passes.lower_math` expands what a target lacks.
UNARY_FLOAT_MATH = (
    "exp exp2 exp10 log log2 log10 log1p expm1 sqrt rsqrt sin cos tan asin acos atan sinh cosh tanh asinh acosh atanh sigmoid erf "
    "floor ceil trunc round nearbyint"
)
_add(UNARY_FLOAT_MATH, 1, "round: half away from zero; nearbyint: half to even")
_add(
    "exp2_fast",
    1,
    "2**x of float32 by the chip's own instruction, within 2 units in the last place; what lies below the normal numbers may be 0",
)
_add(
    "exp_below",
    1,
    "e**x of x up to 0, as the weights of a softmax take it; what lies below the normal numbers may be 0",
)
_add("rcp_fast", 1, "1/x of float32 by the chip's own instruction, within 2**-14 of its value; x and 1/x normal")
_add(
    "div_fast", 2, "a / b of float32 within 2 units in the last place, by the chip's own way where it has one (NVIDIA)"
)
_add("pow atan2 fmod copysign hypot", 2)
_add(
    "floor_divide floor_remainder",
    2,
    "`//` and `%` of floats as NumPy has them: the quotient's floor found from the exact remainder, which has the sign of b; float16 and bfloat16 by float32",
)
_add("ldexp", 2, "a * 2**b; b int32")
_add("fma", 3, "a*b+c, one rounding")
_add("abs", 1, "floats and signed integers")
_add("isnan isinf isfinite", 1, "bool", result="bool")
_add(
    "bitand bitor bitxor shl shr mulhi",
    2,
    "integers; shr is arithmetic on signed types; a shift by the width and more, or by a negative count, leaves 0 or the sign, as NumPy has it",
)
_add("bitnot popcount clz ctz bitreverse", 1, "integers; clz(0) is the width")
_add("min_nan max_nan", 2, "minimum and maximum that keep NaN; of two zeros either")
_add("reinterpret", 1, "the same bits as `dtype`", lanes="any")
_add("likely", 1, "the condition, expected true (guards of splits)")
_add("if_then_else", 3, "(cond, a, b): only the chosen side is evaluated; cond scalar", result=1)
_add("undef", 0, "any value", varying=True)

# fmt: off  (a table: one row, one line)
# Memory and pointers.
_add("address_of", 1, "(BufferLoad): pointer to that element", "scalar", "handle", pointer=True)
_add("access_ptr", -1, "(BufferLoad of the first element); attrs: rw ('r','w','rw')", "scalar", "handle", pointer=True)
_add("prefetch", 1, "(BufferLoad): a hint; attrs: rw, locality", "scalar", "int32", hint=True)
_add(
    "atomic_add atomic_min atomic_max atomic_and atomic_or atomic_xor atomic_exch",
    2,
    "(BufferLoad, value): old value; device scope for global, work-group scope for shared; relaxed, or as attrs order says: 'acq_rel'",
    "scalar",
    writes=(0,),
    atomic=True,
    varying=True,
)
_add(
    "atomic_add_run",
    -1,
    "(BufferLoad, values): each is added to the element so many on from the first, of global memory, relaxed; chips with `adds_runs`",
    "scalar",
    "int32",
    writes=(0,),
    atomic=True,
    span="tile",
)
_add("atomic_cas", 3, "(BufferLoad, expected, desired): old value", "scalar", writes=(0,), atomic=True, varying=True)

# Threads of a GPU.
_add(
    "barrier",
    0,
    "all threads of the work-group; attrs: scope ('shared', 'global', 'wave'), fence included",
    "scalar",
    collective="group",
)
_add(
    "fence",
    0,
    "what the thread wrote is seen before what it writes behind here, and what it reads behind here is as new; attrs: scope ('group', 'device', 'system')",
    "scalar",
    "int32",
    opaque=True,
)
_add(
    "shuffle_xor shuffle_up shuffle_down shuffle_idx",
    3,
    "(value, lane mask/delta/index, width): value of another lane of the wavefront; 32-bit and smaller or 64-bit scalars",
    "scalar",
    collective="wave",
    varying=True,
)
_add(
    "ballot",
    1,
    "(bool): uint64 mask of the active lanes where it holds",
    "scalar",
    "uint64",
    collective="active",
    varying=True,
)
_add(
    "readfirstlane",
    1,
    "the value of the first active lane, uniform in the wavefront from then on",
    "scalar",
    collective="active",
)
_add("wave_lane", 0, "index of the lane in its wavefront", "scalar", "int32", varying=True)
_add(
    "async_copy",
    -1,
    "(dst BufferLoad, src BufferLoad, n elements[, lane or condition]): copy global -> shared in the background where the target can; attrs: masked: zeros where the condition is false",
    "scalar",
    "int32",
    reads=(1,),
    writes=(0,),
    span="run",
    opaque=True,
)
_add("async_commit", 0, "closes a group of async copies", "scalar", "int32", opaque=True)
_add("async_wait", 0, "attrs: n: waits until at most n groups are under way", "scalar", "int32", opaque=True)

_add(
    "keep_order",
    0,
    "a hint: machine code starts the memory accesses that stand before here before it goes on; no effect on values; attrs: firm: on NVIDIA too, where "
    "LLVM else puts a load that a loop carries back to where it is used",
    "scalar",
    "int32",
    opaque=True,
)

_add(
    "computed",
    1,
    "(x): x; what it is made of is computed before the calls that stand behind here (NVIDIA: LLVM moves sums behind a barrier, where their next use is)",
    opaque=True,
)

# Matrix and dot units. Vectors are per lane, layouts in tec.te.intrin and docs.
_add(
    "dot4",
    3,
    "(a int8x4|uint8x4, b, c int32): c + sum(a*b); c of n lanes: of 4n lanes, four beside each other a lane",
    "any",
    2,
)
_add(
    "dot4_narrow",
    3,
    "(a, b, c): as dot4 of n lanes, where a is below 128 or signed, and b is never -128: sums of two products fit 16 bits",
    "any",
    2,
)
_add("dot2", 3, "(a float16x2|bfloat16x2, b, c float32) or (a int16x2, b, c int32), or of n lanes as dot4", "any", 2)
_add(
    "mma",
    3,
    "(a, b, c): wavefront-wide c + a*b on the matrix unit; attrs: m, n, k, blocks, in_dtype",
    "any",
    2,
    collective="wave",
    varying=True,
)
_add(
    "mma_scaled",
    5,
    "(a uint8xN, b, c, scale a int32, scale b): c + (a*scale)*(b*scale) of microscaling formats, wavefront-wide; attrs: a, b (formats), m, n, k",
    "any",
    2,
    collective="wave",
    varying=True,
)
_add(
    "ldmatrix",
    -1,
    "matrix-fragment load from shared memory, each lane naming a row; attrs: num, trans",
    "any",
    reads=(0,),
    span="row",
    collective="wave",
    varying=True,
)

# Tile registers of a CPU (AMX): eight of a thread's, of up to 16 rows of 64 bytes, named by number; see tec.te.intrin.tiles.
_add("tile_zero", 0, "attrs: tile, rows, columns, acc", "scalar", "int32", opaque=True)
_add(
    "tile_load",
    2,
    "(BufferLoad of the first element, elements from row to row); attrs: tile, rows, columns",
    "scalar",
    "int32",
    reads=(0,),
    span="tile",
    opaque=True,
)
_add(
    "tile_dot",
    0,
    "tile c += a * b, b in groups along the sum; attrs: c, a, b, group, rows, dtype",
    "scalar",
    "int32",
    opaque=True,
)
_add(
    "tile_store",
    2,
    "(BufferLoad of the first element, elements from row to row); attrs: tile, rows, columns",
    "scalar",
    "int32",
    writes=(0,),
    span="tile",
    opaque=True,
)

# Bulk copies, barriers in memory and warpgroup products (Hopper); see tec.ir.passes.pipeline.bulk_copies and specialize_warps.
_add(
    "bulk_load",
    -1,
    "(shared BufferLoad, global BufferLoad, coordinates, sizes, strides[, barrier]): a box of a tensor; attrs: rank, box",
    "scalar",
    "int32",
    reads=(1,),
    writes=(0,),
    span="tile",
    fills=True,
    opaque=True,
)
_add(
    "bulk_store",
    -1,
    "(global BufferLoad, shared BufferLoad, coordinates, sizes, strides): a box of a tensor; attrs: rank, box",
    "scalar",
    "int32",
    reads=(1,),
    writes=(0,),
    span="tile",
    opaque=True,
)
_add(
    "early_wait",
    0,
    "in a kernel that may begin early (note early_start): until the kernel ahead has ended; without it the wait is the kernel's first statement",
    "scalar",
    "int32",
    opaque=True,
)
_add("bulk_commit", 0, "closes a group of bulk stores", "scalar", "int32", opaque=True)
_add(
    "bulk_wait",
    0,
    "attrs: n: at most n groups under way; read: shared memory has been read, not yet written out",
    "scalar",
    "int32",
    opaque=True,
)
_add(
    "proxy_fence",
    0,
    "what threads wrote to shared memory becomes visible to bulk copies and wgmma",
    "scalar",
    "int32",
    opaque=True,
)
_add(
    "mbarrier_init",
    2,
    "(BufferLoad of uint64 in shared memory, arrivals of a phase)",
    "scalar",
    "int32",
    writes=(0,),
    opaque=True,
)
_add("mbarrier_fence", 0, "what mbarrier_init wrote becomes visible to bulk copies", "scalar", "int32", opaque=True)
_add(
    "mbarrier_expect",
    2,
    "(BufferLoad, bytes): one arrival, and bytes that copies have to bring in this phase",
    "scalar",
    "int32",
    writes=(0,),
    atomic=True,
    opaque=True,
)
_add("mbarrier_arrive", 1, "(BufferLoad)", "scalar", "int32", writes=(0,), atomic=True, opaque=True)
_add(
    "mbarrier_wait",
    2,
    "(BufferLoad, parity): until the phase of that parity is complete",
    "scalar",
    "int32",
    reads=(0,),
    opaque=True,
)
_add(
    "wgmma",
    3,
    "(first element of a, of b in shared memory, acc): warpgroup-wide acc + a*b, under way until wgmma_wait; attrs: m, n, k, "
    "in_dtype, a_major, b_major, a_box, b_box",
    "any",
    2,
    reads=(0, 1),
    span="tile",
    collective="wave",
    varying=True,
    opaque=True,
)
_add(
    "wgmma_registers",
    3,
    "(a in registers, first element of b in shared memory, acc): as wgmma, each warp with its 16 rows of a as mma.sync takes them; attrs: "
    "m, n, k, in_dtype, b_major, b_box",
    "any",
    2,
    reads=(1,),
    span="tile",
    collective="wave",
    varying=True,
    opaque=True,
)
_add(
    "bulk_release",
    1,
    "(first element of a shared buffer): what a bulk copy brought is no longer needed, the next may come (specialize_region)",
    "scalar",
    "int32",
    reads=(0,),
    opaque=True,
)
_add(
    "turn_take",
    1,
    "(warpgroup's number): until the other of two warpgroups has given the turn; for order alone, no memory is made visible",
    "scalar",
    "int32",
    opaque=True,
)
_add("turn_give", 1, "(warpgroup's number): the other warpgroup's turn", "scalar", "int32", opaque=True)
_add(
    "turn_meet",
    1,
    "(warpgroup's number): a barrier of the threads of one of two warpgroups, fence included",
    "scalar",
    "int32",
    opaque=True,
)
_add("wgmma_fence", 0, "before the first wgmma on registers that other code wrote", "scalar", "int32", opaque=True)
_add("wgmma_commit", 0, "closes a group of wgmmas", "scalar", "int32", opaque=True)
_add(
    "wgmma_wait",
    -1,
    "([acc]): acc once at most attrs n groups are under way; attrs again: a wait before this one has seen to that",
    "any",
    opaque=True,
    varying=True,
)
_add(
    "set_registers",
    0,
    "attrs: n registers a thread of this warpgroup from here on; more: whether that is more than before",
    "scalar",
    "int32",
    collective="wave",
    opaque=True,
)

# Functions outside; memory they reach by pointers, which say what happens there.
_add(
    "call_extern", -1, "attrs: symbol: a C function linked into the CPU code", "any", "int32", opaque=True, varying=True
)
_add("call_pure_extern", -1, "attrs: symbol", "any", varying=True)
_add(
    "call_llvm_intrin",
    -1,
    "attrs: name: an LLVM intrinsic by full name, e.g. llvm.amdgcn.s.sleep",
    "any",
    "int32",
    opaque=True,
    varying=True,
)
_add("call_llvm_pure_intrin", -1, "attrs: name", "any", varying=True)

_add(
    "assembly",
    -1,
    "attrs: text, constraints: a statement of assembly as LLVM takes it, of `pack` elements at a time; outs: dtypes of its results, of which the value is number `which`",
    "scalar",
    varying=True,
)
_add("assembly_once", -1, "the same, whose statement does more than give values", "scalar", opaque=True, varying=True)

# Host side, made by split_host_device; see tec.runtime.modules.program.
_add(
    "tensor_map",
    -1,
    "(data pointer, sizes, strides): what a bulk copy names a tensor by; attrs: dtype, box, swizzle",
    "any",
    "handle",
)
_add("launch", -1, "attrs: kernel, grid, block, dyn_shared", "any", "int32", opaque=True)
# fmt: on
