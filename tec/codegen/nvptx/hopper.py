"""What sm_90a adds to PTX: bulk tensor copies, barriers in memory, warpgroup products. LLVM passes them through as inline assembly.

LLVM's inline assembly keeps the order of these statements among each other and to memory accesses ("sideeffect", a memory clobber);
accumulators of a product under way are operands of every statement that may not overtake it.
Source: PTX ISA 8.3, "mbarrier", "cp.async.bulk.tensor", "wgmma", "Matrix descriptor", "setmaxnreg".
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...ir import expr as E
from ...ir.buffer import Buffer
from ...ir.dtype import dtype_info
from ...ir.matrix import WARPGROUP
from ..emit.gpu import SHARED_SPACE
from .calls import CONSTRAINTS, in_register, out_of_register, register_of

if TYPE_CHECKING:
    from . import NvptxEmitter

# The first of two named barriers; 0 is the work-group's, 1 that of those that work (`specialize_warps`).
_TURN_BARRIERS = 2
_MEET_BARRIERS = 4  # the first of two: each of two warpgroups in turn among its own threads
_SWIZZLE_128 = 1 << 30  # of the descriptor's upper half: layout type in bits 62 and 63
_ROWS_BYTES = 1024  # eight rows of 128 bytes: the stride between core matrices along rows
_TYPES = {
    "float16": "f16",
    "bfloat16": "bf16",
    "tf32": "tf32",
    "int8": "s8",
    "uint8": "u8",
    "float8_e4m3": "e4m3",
    "float8_e5m2": "e5m2",
    "float32": "f32",
    "int32": "s32",
}
_TRANSPOSABLE = ("float16", "bfloat16")  # only 16-bit operands may lie along m or n


def assembly(
    em: NvptxEmitter, text: str, operands: list[tuple[str, str, str]], results: str = "void", constraints: str = ""
) -> str:
    """Inline assembly of (constraint, type, value) operands."""
    clauses = ",".join([*filter(None, [constraints]), *[c for c, _, _ in operands], "~{memory}"])
    args = ", ".join(f"{t} {v}" for _, t, v in operands)
    call = f'call {results} asm sideeffect "{text}", "{clauses}"({args}) convergent nounwind'
    if results == "void":
        em.line(call)
        return "0"
    return em.op(call)


def shared_address(em: NvptxEmitter, load: E.Expr, what: str) -> str:
    """The 32-bit address of an element of shared memory."""
    pointer, type_ = em.memory.element_pointer(em.memory.load_of(load, what))
    if type_ != f"ptr addrspace({SHARED_SPACE})":
        raise em.error(f"{what} works on shared memory")
    return em.op(f"ptrtoint {type_} {pointer} to i32")


def bulk_copy(em: NvptxEmitter, e: E.Call) -> str:
    """bulk_load(shared, map, coordinates..., barrier), bulk_store(map, shared, coordinates...)."""
    rank = int((e.attrs or {})["rank"])
    is_load = e.op == "bulk_load"
    inside, outside = e.args[:2] if is_load else (e.args[1], e.args[0])
    shared = shared_address(em, inside, e.op)
    map_, _ = em.memory.element_pointer(em.memory.load_of(outside, e.op))
    coords = [em.arithmetic.convert(em.expr(c), c.dtype, "int32") for c in e.args[2 : 2 + rank]]
    places = ", ".join(f"${k + 2}" for k in range(rank))
    operands = [("r", "i32", shared), ("l", "ptr", map_), *[("r", "i32", c) for c in coords]]
    if not is_load:
        return assembly(
            em, f"cp.async.bulk.tensor.{rank}d.global.shared::cta.bulk_group [$1, {{{places}}}], [$0];", operands
        )
    operands.append(("r", "i32", shared_address(em, e.args[-1], e.op)))
    text = f"cp.async.bulk.tensor.{rank}d.shared::cluster.global.mbarrier::complete_tx::bytes [$0], [$1, {{{places}}}], [${rank + 2}];"
    return assembly(em, text, operands)


def prefetch_maps(em: NvptxEmitter, maps: list[Buffer]) -> None:
    """The first thread asks for the tensors' descriptions, which else come when the first copy waits for them."""
    if maps:
        places = " ".join(f"@p prefetch.tensormap [${k}];" for k in range(len(maps)))
        head = (
            "{ .reg .pred p; .reg .b32 x, y; mov.u32 x, %tid.x; mov.u32 y, %tid.y; or.b32 x, x, y; setp.eq.u32 p, x, 0;"
        )
        operands = [("l", "ptr", em.memory.address(b, E.IntImm(0))[0]) for b in maps]
        assembly(em, f"{head} {places} }}", operands)


def wait_for_kernel_ahead(em: NvptxEmitter) -> None:
    """As assembly that clobbers memory: LLVM's intrinsic touches none, and loads might pass it."""
    assembly(em, "griddepcontrol.wait;", [])


def early_wait(em: NvptxEmitter, e: E.Call) -> str:
    if em.frame.starts_early:
        wait_for_kernel_ahead(em)
    return "0"


def bulk_commit(em: NvptxEmitter, e: E.Call) -> str:
    return assembly(em, "cp.async.bulk.commit_group;", [])


def bulk_wait(em: NvptxEmitter, e: E.Call) -> str:
    attrs = e.attrs or {}
    return assembly(em, f"cp.async.bulk.wait_group{'.read' if attrs.get('read') else ''} {int(attrs.get('n', 0))};", [])


def proxy_fence(em: NvptxEmitter, e: E.Call) -> str:
    return assembly(em, "fence.proxy.async.shared::cta;", [])


def mbarrier(em: NvptxEmitter, e: E.Call) -> str:
    if e.op == "mbarrier_fence":
        return assembly(em, "fence.mbarrier_init.release.cluster; fence.proxy.async.shared::cta;", [])
    operands = [("r", "i32", shared_address(em, e.args[0], e.op))]
    operands += [("r", "i32", em.arithmetic.convert(em.expr(a), a.dtype, "int32")) for a in e.args[1:]]
    text = {
        "mbarrier_init": "mbarrier.init.shared::cta.b64 [$0], $1;",
        "mbarrier_expect": "mbarrier.arrive.expect_tx.shared::cta.b64 _, [$0], $1;",
        "mbarrier_arrive": "mbarrier.arrive.shared::cta.b64 _, [$0];",
        "mbarrier_wait": "{ .reg .pred p; AGAIN: mbarrier.try_wait.parity.shared::cta.b64 p, [$0], $1; @!p bra AGAIN; }",
    }[e.op]
    return assembly(em, text, operands)


def keep_order(em: NvptxEmitter, e: E.Call) -> str:
    """Loads stay on their side. Without it LLVM makes one load at a loop's head of one before the loop and one at its end."""
    return assembly(em, "", []) if (e.attrs or {}).get("firm") else "0"


def computed(em: NvptxEmitter, e: E.Call) -> str:
    """The value through an empty statement that keeps its place; a vector by registers of 32 bits, which hold two halves."""
    value, info = em.expr(e.args[0]), dtype_info(e.dtype)
    if info.lanes > 1 and info.bits * info.lanes % 32 == 0:
        own, words = em.reg(e.dtype), info.bits * info.lanes // 32
        kind = f"<{words} x i32>"
        whole = em.op(f"bitcast {own} {value} to {kind}")
        for k in range(words):
            word = em.op(f"extractelement {kind} {whole}, i32 {k}")
            word = em.op(f'call i32 asm sideeffect "", "=r,0"(i32 {word}) nounwind')
            whole = em.op(f"insertelement {kind} {whole}, i32 {word}, i32 {k}")
        return em.op(f"bitcast {kind} {whole} to {own}")
    if e.dtype == "bool" or dtype_info(e.dtype).bits not in CONSTRAINTS:
        raise em.error(f"computed() is for numbers of 16, 32 and 64 bits, not {e.dtype}")
    held, letter = register_of(em, e.dtype)
    value = in_register(em, value, e.dtype, held)
    made = em.op(f'call {held} asm sideeffect "", "={letter},0"({held} {value}) nounwind')
    return out_of_register(em, made, held, e.dtype)


def turn(em: NvptxEmitter, e: E.Call) -> str:
    """Two warpgroups in turn: each has a named barrier, at which it waits and the other only arrives; and one at which its own threads meet."""
    group = em.arithmetic.convert(em.expr(e.args[0]), e.args[0].dtype, "int32")
    verb, threads = "sync", 2 * WARPGROUP
    if e.op == "turn_take":
        at = em.op(f"add i32 {group}, {_TURN_BARRIERS}")
    elif e.op == "turn_give":
        at, verb = em.op(f"sub i32 {_TURN_BARRIERS + 1}, {group}"), "arrive"
    else:
        at, threads = em.op(f"add i32 {group}, {_MEET_BARRIERS}"), WARPGROUP
    return assembly(em, f"bar.{verb} $0, {threads};", [("r", "i32", at)])


def set_registers(em: NvptxEmitter, e: E.Call) -> str:
    attrs = e.attrs or {}
    return assembly(em, f"setmaxnreg.{'inc' if attrs.get('more') else 'dec'}.sync.aligned.u32 {int(attrs['n'])};", [])


# ---- warpgroup products


def wgmma(em: NvptxEmitter, e: E.Call) -> str:
    """acc + a * b over k as one instruction for each k of the unit's own."""
    attrs: dict[str, Any] = e.attrs or {}
    in_dtype, acc_dtype, n, k = attrs["in_dtype"], attrs["acc_dtype"], int(attrs["n"]), int(attrs["k"])
    own = {i: step for i, _, step in em.target.chip.warpgroup}.get(in_dtype)
    if own is None or k % own:
        raise em.error(f"{em.target} has no warpgroup product of k {k} for {in_dtype}")
    majors = [attrs["a_major"], attrs["b_major"]]
    if "mn" in majors and in_dtype not in _TRANSPOSABLE:
        raise em.error(
            f"warpgroup products of {in_dtype} read both operands along k from shared memory",
            hint="store B as [n, k] (trans_b=True)",
        )
    descriptors = [_Descriptor(em, e.args[r], attrs, role, own) for r, role in enumerate("ab")]
    is_fresh, count = _is_zero(e.args[2]), dtype_info(e.dtype).lanes
    registers = ", ".join(f"${i}" for i in range(count))
    lines = ["{ .reg .pred t, f; .reg .b32 x, y; .reg .b64 da, db; setp.eq.u32 t, 0, 0; setp.ne.u32 f, 0, 0;"]
    scales = ", 1, 1" if acc_dtype == "float32" else ""
    if in_dtype in _TRANSPOSABLE:
        scales += f", {int(majors[0] == 'mn')}, {int(majors[1] == 'mn')}"
    name = f"wgmma.mma_async.sync.aligned.m64n{n}k{own}.{_TYPES[acc_dtype]}.{_TYPES[in_dtype]}.{_TYPES[in_dtype]}"
    for step in range(k // own):
        for d, half, reg, at in zip(descriptors, "xy", ("da", "db"), (count, count + 1)):
            lines.append(f"add.u32 {half}, ${at}, {d.offset(step) >> 4}; mov.b64 {reg}, {{{half}, {d.high}}};")
        # Where acc is 0, the first instruction starts anew.
        lines.append(f"{name} {{{registers}}}, da, db, {'f' if is_fresh and step == 0 else 't'}{scales};")
    return _accumulated(em, e, lines, [d.low for d in descriptors], count)


def _accumulated(em: NvptxEmitter, e: E.Call, lines: list[str], words: list[str], count: int) -> str:
    """The results of instructions in braces, `count` of a lane, which begin with the accumulator unless that is 0. words: their operands."""
    is_fresh = _is_zero(e.args[2])
    letter, one = ("f", "float") if dtype_info(e.dtype).is_float else ("r", "i32")
    acc = [] if is_fresh else em.lanes_of(em.expr(e.args[2]), e.dtype)
    operands = [("r", "i32", x) for x in words] + [(str(i), one, x) for i, x in enumerate(acc)]
    result = f"{{ {', '.join([one] * count)} }}"
    # Early clobbers: the first instruction writes results while later ones have operands to read.
    letters = ",".join([f"=&{letter}" if is_fresh else f"={letter}"] * count)
    out = assembly(em, " ".join([*lines, "}"]), operands, result, letters)
    return em.vector_of([em.op(f"extractvalue {result} {out}, {i}") for i in range(count)], e.dtype)


def _is_zero(e: E.Expr) -> bool:
    """Whether an accumulator is the constant 0."""
    value = e.value if isinstance(e, E.Broadcast) else None
    return isinstance(value, (E.FloatImm, E.IntImm)) and value.value == 0


def wgmma_registers(em: NvptxEmitter, e: E.Call) -> str:
    """The same with a in registers; where acc is 0, the first instruction starts anew."""
    attrs: dict[str, Any] = e.attrs or {}
    in_dtype, n, k = attrs["in_dtype"], int(attrs["n"]), int(attrs["k"])
    own = {i: step for i, _, step in em.target.chip.warpgroup}.get(in_dtype)
    if own is None or k % own or in_dtype not in _TRANSPOSABLE:
        raise em.error(f"{em.target} has no warpgroup product of k {k} for {in_dtype} with an operand in registers")
    b = _Descriptor(em, e.args[1], attrs, "b", own)
    words = k // 2 * 64 // 128  # of a lane: two elements each
    value = em.op(f"bitcast {em.reg(e.args[0].dtype)} {em.expr(e.args[0])} to <{words} x i32>")
    a = [em.op(f"extractelement <{words} x i32> {value}, i64 {i}") for i in range(words)]
    is_fresh, count = _is_zero(e.args[2]), n // 2
    registers = ", ".join(f"${i}" for i in range(count))
    lines = ["{ .reg .pred t, f; .reg .b32 x; .reg .b64 d; setp.eq.u32 t, 0, 0; setp.ne.u32 f, 0, 0;"]
    name = f"wgmma.mma_async.sync.aligned.m64n{n}k{own}.f32.{_TYPES[in_dtype]}.{_TYPES[in_dtype]}"
    of = count + words  # the descriptor's lower half, behind results and a
    for step in range(k // own):
        mine = ", ".join(f"${count + step * 4 + i}" for i in range(4))
        lines.append(f"add.u32 x, ${of}, {b.offset(step) >> 4}; mov.b64 d, {{x, {b.high}}};")
        scales = f"{'f' if is_fresh and step == 0 else 't'}, 1, 1, {int(attrs['b_major'] == 'mn')}"
        lines.append(f"{name} {{{registers}}}, {{{mine}}}, d, {scales};")
    return _accumulated(em, e, lines, [*a, b.low], count)


class _Descriptor:
    """A shared-memory operand as wgmma takes it: the lower half (address, leading stride), the upper (row stride, swizzle)."""

    def __init__(self, em: NvptxEmitter, operand: E.Expr, attrs: dict[str, Any], role: str, own: int):
        load = em.memory.load_of(operand, "wgmma")
        info = dtype_info(load.buffer.dtype)
        self.size = info.bytes * info.lanes
        self.along_k = attrs[f"{role}_major"] == "k"
        self.own = own
        self.box_bytes = int(attrs[f"{role}_box"]) * self.size
        address = shared_address(em, operand, "wgmma")
        # Along k the leading stride is not read: a row of 128 bytes is one swizzled line.
        leading = 1 if self.along_k else self.box_bytes >> 4
        within = em.op(f"lshr i32 {em.op(f'and i32 {address}, {0x3FFFF}')}, 4")
        self.low = em.op(f"or disjoint i32 {within}, {leading << 16}")
        self.high = _SWIZZLE_128 | _ROWS_BYTES >> 4

    def offset(self, step: int) -> int:
        """Bytes from the operand's first element to that of a step of the unit's own k."""
        if not self.along_k:
            return step * self.own * 128
        at = step * self.own * self.size
        return at // 128 * self.box_bytes + at % 128


def wgmma_fence(em: NvptxEmitter, e: E.Call) -> str:
    return assembly(em, "wgmma.fence.sync.aligned;", [])


def wgmma_commit(em: NvptxEmitter, e: E.Call) -> str:
    return assembly(em, "wgmma.commit_group.sync.aligned;", [])


def wgmma_wait(em: NvptxEmitter, e: E.Call) -> str:
    attrs = e.attrs or {}
    # One statement waits for all sums: of two, ptxas takes the second for the end of another stage and waits after each product (C7515).
    text = "" if attrs.get("again") else f"wgmma.wait_group.sync.aligned {int(attrs.get('n', 0))};"
    if not e.args:
        return assembly(em, text, [])
    acc = em.lanes_of(em.expr(e.args[0]), e.dtype)
    info = dtype_info(e.dtype)
    letter, one = ("f", "float") if info.is_float else ("r", "i32")
    result = f"{{ {', '.join([one] * len(acc))} }}"
    operands = [(str(i), one, x) for i, x in enumerate(acc)]
    out = assembly(em, text, operands, result, ",".join([f"={letter}"] * len(acc)))
    return em.vector_of([em.op(f"extractvalue {result} {out}, {i}") for i in range(len(acc))], e.dtype)


CALLS = {
    **dict.fromkeys(("bulk_load", "bulk_store"), bulk_copy), "early_wait": early_wait, "bulk_commit": bulk_commit, "bulk_wait": bulk_wait,
    "proxy_fence": proxy_fence, "keep_order": keep_order, "computed": computed, "set_registers": set_registers, "wgmma": wgmma, "wgmma_registers": wgmma_registers, "wgmma_fence": wgmma_fence,
    "wgmma_commit": wgmma_commit, "wgmma_wait": wgmma_wait, **dict.fromkeys(("turn_take", "turn_give", "turn_meet"), turn),
    **dict.fromkeys(("mbarrier_init", "mbarrier_fence", "mbarrier_expect", "mbarrier_arrive", "mbarrier_wait"), mbarrier),
}  # fmt: skip
