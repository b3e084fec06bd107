"""Calls: math, bits, control-flow expressions, pointers, atomics, outside functions.

A call's lowering is a function `(emitter, call) -> value`, found by name in `Emitter.calls`; a target's table adds and replaces entries. What LLVM lowers natively is a
whitelist, `native_math(op, dtype)`: an intrinsic that a target lacks does not raise inside LLVM, it ends the process.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from ...ir import expr as E
from ...ir.dtype import dtype_info, with_lanes
from ...ir.visit import walk_exprs
from . import narrow_atomics
from .writer import quote

if TYPE_CHECKING:
    from .emitter import Emitter

CallHandler = Callable[[Any, E.Call], str]

# op -> LLVM intrinsic; all of these every back end lowers for float32 and float64, and for 16 bits through float32.
EXACT_MATH = {
    "sqrt": "sqrt", "fma": "fma", "floor": "floor", "ceil": "ceil", "trunc": "trunc", "nearbyint": "roundeven",
    "round": "round", "copysign": "copysign", "abs": "fabs",
}  # fmt: skip
_BITS = {"bitand": "and", "bitor": "or", "bitxor": "xor", "shl": "shl"}
_COUNTS = {"popcount": "ctpop", "clz": "ctlz", "ctz": "cttz", "bitreverse": "bitreverse"}
_ATOMICS = {
    "atomic_add": ("add", "add", "fadd"), "atomic_min": ("min", "umin", "fmin"), "atomic_max": ("max", "umax", "fmax"),
    "atomic_and": ("and", "and", ""), "atomic_or": ("or", "or", ""), "atomic_xor": ("xor", "xor", ""),
    "atomic_exch": ("xchg", "xchg", "xchg"),
}  # fmt: skip


def in_order(cond: E.Expr) -> E.Expr:
    """A condition under which something runs, with what its left sides guard put behind them.

    `i < n and A[i] > 0` as the condition of a branch reads A[i] only where i < n; as a plain value it would read both.
    """
    if isinstance(cond, (E.And, E.Or)) and cond.dtype == "bool":
        a, b = in_order(cond.a), in_order(cond.b)
        if _may_fault(b):
            known = E.IntImm(int(isinstance(cond, E.Or)), "bool")
            sides = (known, b) if isinstance(cond, E.Or) else (b, known)
            return E.Call("if_then_else", (a, *sides), "bool")
        return cond if a is cond.a and b is cond.b else type(cond)(a, b)
    if isinstance(cond, E.Call) and cond.op == "likely":
        inner = in_order(cond.args[0])
        return cond if inner is cond.args[0] else E.Call("likely", (inner,), cond.dtype)
    return cond


def _may_fault(e: E.Expr) -> bool:
    """Whether evaluating `e` touches memory. An element that a thread's own array has at a known place is in a register, and a division is safe for any divisor."""
    return any(isinstance(x, E.BufferLoad) and not _is_register(x) for x in walk_exprs(e))


def _is_register(load: E.BufferLoad) -> bool:
    """Of places beyond an array, which a guard may leave out, is none."""
    places = zip(load.indices, load.buffer.shape)
    return load.buffer.scope == "local" and all(
        isinstance(i, E.IntImm) and isinstance(n, E.IntImm) and 0 <= i.value < n.value for i, n in places
    )


# ---- math


def math_call(em: Emitter, e: E.Call) -> str:
    """A float function, lane by lane."""
    t = em.type_of(e.dtype)
    if not t.info.is_float:
        raise em.error(f"{e.op} of {e.dtype} is not an operation that code can be made for")
    args = [(em.expr(a), a.dtype) for a in e.args]
    wide = e.dtype
    if em.is_soft(e.dtype):
        args = [em.floats.widen(v, d) for v, d in args]
        wide = with_lanes("float32", t.info.lanes)
    name = em.native_math(e.op, dtype_info(wide).element)
    if name is None:
        raise em.error(
            f"{e.op} of {e.dtype} has no native instruction on this target and was not expanded",
            hint="lower it with tec.ir.passes.lower_math first, or cast to float32",
        )
    value = math_values(em, name, [v for v, _ in args], [em.reg(d) for _, d in args], wide)
    return em.floats.narrow(value, e.dtype) if wide != e.dtype else value


def math_values(em: Emitter, name: str, args: list[str], types: list[str], dtype: str) -> str:
    """Call the intrinsic or C function `name` on values of `dtype`; C functions go lane by lane."""
    r, info = em.reg(dtype), dtype_info(dtype)
    if name.startswith("llvm."):
        return em.intrinsic(f"{name}.{em.mangle(dtype)}", r, list(zip(types, args)), em.fast)
    one = em.reg(info.element)
    lanes = [em.lanes_of(a, dtype) for a in args]
    out = [em.intrinsic(name, one, [(one, x) for x in xs]) for xs in zip(*lanes)]
    return em.vector_of(out, dtype)


def fmod(em: Emitter, e: E.Call) -> str:
    return em.arithmetic.binary_values(E.Mod, em.expr(e.args[0]), em.expr(e.args[1]), E.Mod(e.args[0], e.args[1]))


def rsqrt(em: Emitter, e: E.Call) -> str:
    """1 / sqrt(x), two correctly rounded operations."""
    value, wide = em.floats.widen(em.expr(e.args[0]), e.dtype)
    r = em.reg(wide)
    root = math_values(em, "llvm.sqrt", [value], [r], wide)
    out = em.op(f"fdiv {em.fast}{r} {em.float_const(1.0, wide)}, {root}")
    return em.floats.narrow(out, e.dtype) if wide != e.dtype else out


def ldexp(em: Emitter, e: E.Call) -> str:
    """a * 2**b with one rounding: natively, or by powers of two in steps that do not round before the last."""
    value, wide = em.floats.widen(em.expr(e.args[0]), e.dtype)
    n, nt = em.expr(e.args[1]), e.args[1].dtype
    info = dtype_info(wide)
    ints = with_lanes("int32", info.lanes)
    n = em.arithmetic.convert(n, nt, ints)
    if em.native_math("ldexp", info.element) is not None:
        r = em.reg(wide)
        name = f"llvm.ldexp.{em.mangle(wide)}.{em.mangle(ints)}"
        out = em.intrinsic(name, r, [(r, value), (em.reg(ints), n)])
    else:
        work = with_lanes("float64" if info.bits == 64 else "float32", info.lanes)
        out = em.arithmetic.convert(_scale(em, em.arithmetic.convert(value, wide, work), n, work), work, wide)
    return em.floats.narrow(out, e.dtype) if wide != e.dtype else out


def _scale(em: Emitter, x: str, n: str, dtype: str) -> str:
    info = dtype_info(dtype)
    mantissa, top = (52, 1023) if info.bits == 64 else (23, 127)
    ints, bools = with_lanes("int32", info.lanes), with_lanes("bool", info.lanes)
    bits = with_lanes(f"int{info.bits}", info.lanes)
    i, b, r = em.reg(ints), em.reg(bools), em.reg(dtype)
    low_step = mantissa + 2 - top  # keeps the intermediate product normal
    for _ in range(2):
        for how, bound, step in (("sgt", top, top), ("slt", 1 - top, low_step)):
            out = em.op(f"icmp {how} {i} {n}, {em.int_const(bound, ints)}")
            factor = em.float_const(2.0**step, dtype)
            x = em.op(f"select {b} {out}, {r} {em.op(f'fmul {r} {x}, {factor}')}, {r} {x}")
            n = em.op(f"select {b} {out}, {i} {em.op(f'sub {i} {n}, {em.int_const(step, ints)}')}, {i} {n}")
    for name, bound in (("smin", top), ("smax", 1 - top)):
        n = em.intrinsic(f"llvm.{name}.{em.mangle(ints)}", i, [(i, n), (i, em.int_const(bound, ints))])
    biased = em.arithmetic.convert(em.op(f"add {i} {n}, {em.int_const(top, ints)}"), ints, bits)
    power = em.op(f"shl {em.reg(bits)} {biased}, {em.int_const(mantissa, bits)}")
    return em.op(f"fmul {r} {x}, {em.op(f'bitcast {em.reg(bits)} {power} to {r}')}")


def absolute(em: Emitter, e: E.Call) -> str:
    t = em.type_of(e.dtype)
    if t.info.is_float:
        if em.is_soft(e.dtype) and not t.info.element.endswith("fnuz"):  # whose NaN is a sign alone
            magnitude = (1 << (t.info.bits - 1)) - 1
            return em.op(f"and {t.reg} {em.expr(e.args[0])}, {int_const_bits(em, magnitude, e.dtype)}")
        return em.math(e)
    value = em.expr(e.args[0])
    if t.kind != "int":
        return value
    return em.intrinsic(f"llvm.abs.{em.mangle(e.dtype)}", t.reg, [(t.reg, value), ("i1", "false")])


def int_const_bits(em: Emitter, bits: int, dtype: str) -> str:
    """An integer pattern in the register type of a soft float."""
    return em.splat(str(bits), dtype)


def classify(em: Emitter, e: E.Call) -> str:
    """isnan, isinf, isfinite: tests of the bits, so that no fast-math flag can undo them."""
    value, wide = em.floats.widen(em.expr(e.args[0]), e.args[0].dtype)
    t = em.type_of(wide)
    if not t.info.is_float:
        return em.splat("true" if e.op == "isfinite" else "false", e.dtype)
    ints = with_lanes(f"int{t.info.bits}", t.info.lanes)
    i = em.reg(ints)
    mantissa = {16: 10, 32: 23, 64: 52}[t.info.bits] if t.kind == "float" else 7
    infinity = ((1 << (t.info.bits - 1 - mantissa)) - 1) << mantissa
    bits = em.op(f"bitcast {t.reg} {value} to {i}")
    magnitude = em.op(f"and {i} {bits}, {em.int_const((1 << (t.info.bits - 1)) - 1, ints)}")
    how = {"isnan": "ugt", "isinf": "eq", "isfinite": "ult"}[e.op]
    return em.op(f"icmp {how} {i} {magnitude}, {em.int_const(infinity, ints)}")


def nan_extremum(em: Emitter, e: E.Call) -> str:
    """min_nan, max_nan."""
    a, b = em.expr(e.args[0]), em.expr(e.args[1])
    t = em.type_of(e.dtype)
    if t.info.is_float:
        return em.arithmetic.float_extremum("minimum" if e.op == "min_nan" else "maximum", a, b, e.dtype)
    name = f"llvm.{'s' if t.kind == 'int' else 'u'}{e.op[:3]}.{em.mangle(e.dtype)}"
    return em.intrinsic(name, t.reg, [(t.reg, a), (t.reg, b)])


# ---- bits


def bits(em: Emitter, e: E.Call) -> str:
    t = em.type_of(e.dtype)
    if not (t.info.is_int or t.kind == "bool"):
        raise em.error(f"{e.op} of {e.dtype}", hint="reinterpret the float as an integer first")
    args = [em.expr(a) for a in e.args]
    if e.op in _BITS:
        return em.op(f"{_BITS[e.op]} {t.reg} {args[0]}, {args[1]}")
    if e.op == "shr":
        return em.op(f"{'ashr' if t.kind == 'int' else 'lshr'} {t.reg} {args[0]}, {args[1]}")
    if e.op == "bitnot":
        return em.op(f"xor {t.reg} {args[0]}, {em.int_const(-1, e.dtype)}")
    if e.op == "mulhi":
        double = f"i{2 * t.info.bits}"
        wide = double if t.info.lanes == 1 else f"<{t.info.lanes} x {double}>"
        ext = "sext" if t.kind == "int" else "zext"
        x, y = (em.op(f"{ext} {t.reg} {a} to {wide}") for a in args)
        shift = str(t.info.bits) if t.info.lanes == 1 else f"splat ({double} {t.info.bits})"
        product = em.op(f"mul {wide} {x}, {y}")
        return em.op(f"trunc {wide} {em.op(f'lshr {wide} {product}, {shift}')} to {t.reg}")
    src = e.args[0].dtype
    s = em.reg(src)
    extra = [("i1", "false")] if e.op in ("clz", "ctz") else []
    value = em.intrinsic(f"llvm.{_COUNTS[e.op]}.{em.mangle(src)}", s, [(s, args[0]), *extra])
    return em.arithmetic.convert(value, src, e.dtype)


def reinterpret(em: Emitter, e: E.Call) -> str:
    value, src = em.expr(e.args[0]), em.type_of(e.args[0].dtype)
    dst = em.type_of(e.dtype)
    if src.reg == dst.reg:
        return value
    if src.info.bits * src.info.lanes != dst.info.bits * dst.info.lanes or "bool" in (src.kind, dst.kind):
        raise em.error(f"reinterpret of {e.args[0].dtype} as {e.dtype}: sizes differ")
    return em.op(f"bitcast {src.reg} {value} to {dst.reg}")


# ---- control


def likely(em: Emitter, e: E.Call) -> str:
    return em.index(e.args[0]) if em.values.is_pure(e.args[0]) else em.expr(e.args[0])


def if_then_else(em: Emitter, e: E.Call) -> str:
    """Only the chosen side runs: blocks and a phi, or a load that needs none."""
    found = em.memory.guarded_load(e)
    if found is not None:
        return found
    if dtype_info(e.args[0].dtype).lanes != 1:
        raise em.error("if_then_else on a vector condition", hint="use select, or predicate the access")
    cond = em.expr(in_order(e.args[0]))
    then, orelse, join = em.label("then"), em.label("else"), em.label("join")
    em.branch_if(cond, then, orelse)
    sides: list[tuple[str, str]] = []
    for label, side in ((then, e.args[1]), (orelse, e.args[2])):
        em.place(label)
        mark = em.memo_mark()
        value = em.expr(side)
        em.memo_release(mark)
        sides.append((value, em.block))
        em.branch(join)
    em.place(join)
    return em.phi(em.reg(e.dtype), *sides)


# ---- pointers and memory (the access itself is in `memory`)


def address_of(em: Emitter, e: E.Call) -> str:
    """address_of and access_ptr: a generic pointer to an element."""
    value, type_ = em.memory.element_pointer(em.memory.load_of(e.args[0], e.op))
    if e.op == "access_ptr" and len(e.args) > 1:
        load = em.memory.load_of(e.args[0], e.op)
        offset = em.index(e.args[1])
        value = em.op(
            f"getelementptr {em.type_of(load.buffer.dtype).element}, {type_} {value}, {em.reg(e.args[1].dtype)} {offset}"
        )
    return value if type_ == "ptr" else em.op(f"addrspacecast {type_} {value} to ptr")


def prefetch(em: Emitter, e: E.Call) -> str:
    value, type_ = em.memory.element_pointer(em.memory.load_of(e.args[0], e.op))
    attrs = e.attrs or {}
    rw, locality = int(attrs.get("rw", 0) in ("w", 1, "rw")), min(3, max(0, int(attrs.get("locality", 3))))
    space = type_.partition("(")[2].rstrip(")") or "0"
    em.intrinsic(
        f"llvm.prefetch.p{space}", "void", [(type_, value), ("i32", str(rw)), ("i32", str(locality)), ("i32", "1")]
    )
    return "0"


def atomic(em: Emitter, e: E.Call) -> str:
    load = em.memory.load_of(e.args[0], e.op)
    t = em.type_of(load.buffer.dtype)
    if t.kind == "bool" or t.info.lanes != 1:
        raise em.error(f"{e.op} on a buffer of {load.buffer.dtype}")
    pointer, type_ = em.memory.element_pointer(load)
    scope = em.scope_of_atomic(load.buffer.scope)
    order = (e.attrs or {}).get("order", "monotonic")
    if e.op == "atomic_cas":
        return _compare_and_swap(em, e, pointer, type_, scope, order)
    signed, unsigned, floating = _ATOMICS[e.op]
    how = floating if t.info.is_float else signed if t.kind == "int" else unsigned
    soft = em.is_soft(load.buffer.dtype)
    if not how or (soft and not load.buffer.dtype.endswith("float16")):
        raise em.error(f"{e.op} on a buffer of {load.buffer.dtype}")
    value = em.expr(e.args[1])
    kind = t.mem
    if soft:  # held as an integer: the operation is on the float
        kind = "bfloat" if load.buffer.dtype == "bfloat16" else "half"
        em.needs_rounding_to(kind)
        value = em.op(f"bitcast {t.reg} {value} to {kind}")
    if em.atomic_by_words(how, load.buffer.dtype):
        orders = f"{scope}{order} {_FAILING.get(order, order)}"
        made = narrow_atomics.update(em, how, pointer, type_, value, (kind, t.info.bits), orders)
    else:
        made = em.op(
            f"atomicrmw {how} {type_} {pointer}, {kind} {value} {scope}{order}, align {t.info.bytes}{em.atomic_suffix(e)}"
        )
    return em.op(f"bitcast {kind} {made} to {t.reg}") if soft else made


# The order of a compare-and-swap that fails, where it is not that of one that succeeds: it stores nothing.
_FAILING = {"acq_rel": "acquire", "release": "monotonic"}


def _compare_and_swap(em: Emitter, e: E.Call, pointer: str, type_: str, scope: str, order: str) -> str:
    t = em.type_of(e.dtype)
    old, new = em.expr(e.args[1]), em.expr(e.args[2])
    word = f"i{t.info.bits}"
    if t.info.is_float and t.reg != word:
        old, new = (em.op(f"bitcast {t.reg} {v} to {word}") for v in (old, new))
    failing = _FAILING.get(order, order)
    pair = em.op(
        f"cmpxchg {type_} {pointer}, {word} {old}, {word} {new} {scope}{order} {failing}, align {t.info.bytes}"
    )
    value = em.op(f"extractvalue {{ {word}, i1 }} {pair}, 0")
    return em.op(f"bitcast {word} {value} to {t.reg}") if t.info.is_float and t.reg != word else value


# ---- outside functions


def extern(em: Emitter, e: E.Call) -> str:
    """call_extern, call_pure_extern: a C function by symbol; C's promotions of small integers are said with attributes."""
    symbol = str((e.attrs or {}).get("symbol", ""))
    if not symbol or symbol.startswith("llvm."):
        raise em.error(f"{e.op} needs the symbol of a C function", hint='attrs={"symbol": "name"}')
    args = [(_c_type(em, a.dtype), em.expr(a)) for a in e.args]
    result = "void" if e.op == "call_extern" and not e.dtype else _c_type(em, e.dtype)
    name = quote(symbol)
    plain = ", ".join(t for t, _ in args)
    attr = " nounwind memory(none) willreturn" if e.op == "call_pure_extern" else " nounwind"
    line = f"declare {_c_result(result)} {name}({plain}){attr}"
    if em.declarations.setdefault(symbol, line) != line:
        raise em.error(f"C function {symbol!r} is called with different argument types")
    text = f"call {_c_result(result)} {name}({', '.join(f'{t} {v}' for t, v in args)})"
    return em.op(text)


def _c_type(em: Emitter, dtype: str) -> str:
    t = em.type_of(dtype)
    if t.info.lanes == 1 and t.info.bits < 32 and not t.info.is_float:
        return f"{t.reg} {'signext' if t.kind == 'int' else 'zeroext'}"
    return t.reg


def llvm_intrinsic(em: Emitter, e: E.Call) -> str:
    """call_llvm_intrin, call_llvm_pure_intrin: only of this target, or of no target."""
    name = str((e.attrs or {}).get("name", ""))
    em.user_intrinsics = True
    check_intrinsic(em, name)
    args = [(em.reg(a.dtype), em.expr(a)) for a in e.args]
    void = bool((e.attrs or {}).get("void", False))
    return em.intrinsic(name, "void" if void else em.reg(e.dtype), args) or "0"


def no_assembly(em: Emitter, e: E.Call) -> str:
    """Targets whose assembly nothing here reads: LLVM as pip has it assembles its host's alone, and PTX is text."""
    raise em.error(
        "a statement of assembly (tl.inline_asm_elementwise) on a target other than NVIDIA's GPUs",
        hint="its text is PTX: on other targets say the same by words of tl",
    )


def check_intrinsic(em: Emitter, name: str) -> None:
    """Raise CodegenError for an intrinsic this target's code generator does not know."""
    own = any(name.startswith(p) for p in em.intrinsic_prefixes)
    if (not own and name.split(".")[1:2] and name.split(".")[1] not in _GENERIC_INTRINSICS) or not name.startswith(
        "llvm."
    ):
        raise em.error(
            f"LLVM intrinsic {name!r} is not one this target lowers",
            hint=f"target intrinsics start with {', '.join(em.intrinsic_prefixes) or '(none)'}",
        )


def hint(em: Emitter, e: E.Call) -> str:
    """A call that changes no value, on targets without an instruction for it."""
    return "0"


def undef(em: Emitter, e: E.Call) -> str:
    return (
        "zeroinitializer"
        if dtype_info(e.dtype).lanes > 1
        else em.splat("null" if e.dtype == "handle" else em.zero(e.dtype), e.dtype)
    )


# ---- dot products


def dot(em: Emitter, e: E.Call) -> str:
    """dot4 and dot2 in plain arithmetic; targets with the instruction replace this."""
    a, b, c = (em.expr(x) for x in e.args)
    info = dtype_info(e.args[0].dtype)
    wide = with_lanes(e.dtype, info.lanes)
    x, y = em.arithmetic.convert(a, e.args[0].dtype, wide), em.arithmetic.convert(b, e.args[1].dtype, wide)
    r, one = em.reg(wide), em.reg(e.dtype)
    lanes = dtype_info(e.dtype).lanes
    if lanes > 1:
        mul, add = ("fmul " + em.fast, "fadd " + em.fast) if info.is_float else ("mul ", "add ")
        product, group = em.op(f"{mul}{r} {x}, {y}"), info.lanes // lanes
        for k in range(group):
            picks = ", ".join(f"i32 {j * group + k}" for j in range(lanes))
            part = em.op(f"shufflevector {r} {product}, {r} poison, <{lanes} x i32> <{picks}>")
            c = em.op(f"{add}{one} {c}, {part}")
        return c
    if not info.is_float:
        product = em.op(f"mul {r} {x}, {y}")
        total = em.intrinsic(f"llvm.vector.reduce.add.{em.mangle(wide)}", one, [(r, product)])
        return em.op(f"add {one} {total}, {c}")
    product = em.op(f"fmul {em.fast}{r} {x}, {y}")
    for lane in em.lanes_of(product, wide):
        c = em.op(f"fadd {em.fast}{one} {c}, {lane}")
    return c


# ---- what a target must bring


def fence(em: Emitter, e: E.Call, scopes: Mapping[str, str] | None = None) -> str:
    """A fence; `scopes`: what the target calls the IR's."""
    attrs = e.attrs or {}
    scope, order = (scopes or {}).get(str(attrs.get("scope", "device")), ""), attrs.get("order", "seq_cst")
    em.line(f'fence syncscope("{scope}") {order}' if scope else f"fence {order}")
    return "0"


def unsupported(em: Emitter, e: E.Call) -> str:
    raise em.error(f"{e.op} is not available on this target")


# Generic intrinsics that every code generator lowers for the types it has.
_GENERIC_INTRINSICS = frozenset(
    "abs smin smax umin umax ctpop ctlz cttz bitreverse bswap fshl fshr sadd uadd ssub usub smul umul sqrt fma fmuladd fabs "
    "floor ceil trunc rint nearbyint roundeven copysign minnum maxnum canonicalize prefetch assume expect vector ptrmask donothing".split()
)


def _c_result(t: str) -> str:
    """Attributes of a result stand before its type."""
    head, _, attr = t.partition(" ")
    return f"{attr} {head}" if attr in ("signext", "zeroext") else t


CALLS: dict[str, CallHandler] = {
    "abs": absolute, "reinterpret": reinterpret, "likely": likely, "if_then_else": if_then_else,
    "prefetch": prefetch, "undef": undef, "keep_order": hint, "fence": fence, "fmod": fmod, "rsqrt": rsqrt, "ldexp": ldexp,
    **dict.fromkeys(("isnan", "isinf", "isfinite"), classify),
    **dict.fromkeys(("min_nan", "max_nan"), nan_extremum),
    **dict.fromkeys(("bitand", "bitor", "bitxor", "shl", "shr", "mulhi", "bitnot", "popcount", "clz", "ctz", "bitreverse"), bits),
    **dict.fromkeys(("address_of", "access_ptr"), address_of),
    **dict.fromkeys((*_ATOMICS, "atomic_cas"), atomic),
    **dict.fromkeys(("call_extern", "call_pure_extern"), extern),
    **dict.fromkeys(("call_llvm_intrin", "call_llvm_pure_intrin"), llvm_intrinsic), **dict.fromkeys(("assembly", "assembly_once"), no_assembly),
    **dict.fromkeys(("dot4", "dot4_narrow", "dot2"), dot),
    **dict.fromkeys(
        ("barrier", "shuffle_xor", "shuffle_up", "shuffle_down", "shuffle_idx", "ballot", "readfirstlane", "wave_lane", "async_copy",
         "async_commit", "async_wait", "mma", "mma_scaled", "ldmatrix", "launch"), unsupported),
}  # fmt: skip


def register_call(op: str, lowering: CallHandler) -> None:
    """Lower calls of `op` by `lowering(emitter, call) -> value` on every target that has no entry of its own for it."""
    CALLS[op] = lowering
