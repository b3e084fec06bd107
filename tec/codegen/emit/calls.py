"""Calls: math, bits, control-flow expressions, pointers, atomics, outside functions.

A call's handler is found by name in `Emitter.calls`; a target adds and replaces entries. What LLVM lowers natively is a
whitelist, `native_math(op, dtype)`: an intrinsic that a target lacks does not raise inside LLVM, it ends the process.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

from ...ir import expr as E
from ...ir.dtype import dtype_info, with_lanes
from ...ir.visit import walk_exprs
from .arithmetic import Arithmetic
from .writer import quote

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
    """Whether evaluating `e` touches memory or divides integers by what is no constant."""
    for x in walk_exprs(e):
        if isinstance(x, E.BufferLoad):
            return True
        if isinstance(x, (E.Div, E.Mod, E.FloorDiv, E.FloorMod)) and not isinstance(x.b, E.IntImm):
            return True
    return False


class Calls(Arithmetic):
    """Handlers for Call nodes."""

    calls: ClassVar[dict[str, CallHandler]] = {}
    intrinsic_prefixes: ClassVar[tuple[str, ...]] = ()  # of target intrinsics that call_llvm_intrin may name
    atomic_scope: ClassVar[str] = ""  # e.g. 'syncscope("agent") '

    def call(self, e: E.Call) -> str:
        handler = self.calls.get(e.op) or CALLS.get(e.op)
        if handler is not None:
            return handler(self, e)
        return self.math(e)

    # ---- math

    def native_math(self, op: str, dtype: str) -> str | None:
        """The intrinsic ("llvm.sqrt") or C function ("expf") that computes `op` on scalars of `dtype`; None: the target has none.

        Float ops only; a target's whitelist extends this one.
        """
        exact = EXACT_MATH.get(op)
        return f"llvm.{exact}" if exact else None

    def math(self, e: E.Call) -> str:
        """A float function, lane by lane."""
        t = self.type_of(e.dtype)
        if not t.info.is_float:
            raise self.error(f"{e.op} of {e.dtype} is not an operation that code can be made for")
        args = [(self.expr(a), a.dtype) for a in e.args]
        wide = e.dtype
        if self.is_soft(e.dtype):
            args = [self.widen(v, d) for v, d in args]
            wide = with_lanes("float32", t.info.lanes)
        name = self.native_math(e.op, dtype_info(wide).element)
        if name is None:
            raise self.error(
                f"{e.op} of {e.dtype} has no native instruction on this target and was not expanded",
                hint="lower it with tec.ir.passes.lower_math first, or cast to float32",
            )
        value = self.math_values(name, [v for v, _ in args], [self.reg(d) for _, d in args], wide)
        return self.narrow(value, e.dtype) if wide != e.dtype else value

    def math_values(self, name: str, args: list[str], types: list[str], dtype: str) -> str:
        """Call the intrinsic or C function `name` on values of `dtype`; C functions go lane by lane."""
        r, info = self.reg(dtype), dtype_info(dtype)
        if name.startswith("llvm."):
            return self.intrinsic(f"{name}.{self.mangle(dtype)}", r, list(zip(types, args)), self.fast)
        one = self.reg(info.element)
        lanes = [self.lanes_of(a, dtype) for a in args]
        out = [self.intrinsic(name, one, [(one, x) for x in xs]) for xs in zip(*lanes)]
        return self.vector_of(out, dtype)

    def fmod(self, e: E.Call) -> str:
        return self.binary_values(E.Mod, self.expr(e.args[0]), self.expr(e.args[1]), E.Mod(e.args[0], e.args[1]))

    def rsqrt(self, e: E.Call) -> str:
        """1 / sqrt(x), two correctly rounded operations."""
        value, wide = self.widen(self.expr(e.args[0]), e.dtype)
        r = self.reg(wide)
        root = self.math_values("llvm.sqrt", [value], [r], wide)
        out = self.op(f"fdiv {self.fast}{r} {self.float_const(1.0, wide)}, {root}")
        return self.narrow(out, e.dtype) if wide != e.dtype else out

    def ldexp(self, e: E.Call) -> str:
        """a * 2**b with one rounding: natively, or by powers of two in steps that do not round before the last."""
        value, wide = self.widen(self.expr(e.args[0]), e.dtype)
        n, nt = self.expr(e.args[1]), e.args[1].dtype
        info = dtype_info(wide)
        ints = with_lanes("int32", info.lanes)
        n = self.convert(n, nt, ints)
        if self.native_math("ldexp", info.element) is not None:
            r = self.reg(wide)
            name = f"llvm.ldexp.{self.mangle(wide)}.{self.mangle(ints)}"
            out = self.intrinsic(name, r, [(r, value), (self.reg(ints), n)])
        else:
            work = with_lanes("float64" if info.bits == 64 else "float32", info.lanes)
            out = self.convert(self._scale(self.convert(value, wide, work), n, work), work, wide)
        return self.narrow(out, e.dtype) if wide != e.dtype else out

    def _scale(self, x: str, n: str, dtype: str) -> str:
        info = dtype_info(dtype)
        mantissa, top = (52, 1023) if info.bits == 64 else (23, 127)
        ints, bools = with_lanes("int32", info.lanes), with_lanes("bool", info.lanes)
        bits = with_lanes(f"int{info.bits}", info.lanes)
        i, b, r = self.reg(ints), self.reg(bools), self.reg(dtype)
        low_step = mantissa + 2 - top  # keeps the intermediate product normal
        for _ in range(2):
            for how, bound, step in (("sgt", top, top), ("slt", 1 - top, low_step)):
                out = self.op(f"icmp {how} {i} {n}, {self.int_const(bound, ints)}")
                factor = self.float_const(2.0**step, dtype)
                x = self.op(f"select {b} {out}, {r} {self.op(f'fmul {r} {x}, {factor}')}, {r} {x}")
                n = self.op(f"select {b} {out}, {i} {self.op(f'sub {i} {n}, {self.int_const(step, ints)}')}, {i} {n}")
        for name, bound in (("smin", top), ("smax", 1 - top)):
            n = self.intrinsic(f"llvm.{name}.{self.mangle(ints)}", i, [(i, n), (i, self.int_const(bound, ints))])
        biased = self.convert(self.op(f"add {i} {n}, {self.int_const(top, ints)}"), ints, bits)
        power = self.op(f"shl {self.reg(bits)} {biased}, {self.int_const(mantissa, bits)}")
        return self.op(f"fmul {r} {x}, {self.op(f'bitcast {self.reg(bits)} {power} to {r}')}")

    def absolute(self, e: E.Call) -> str:
        t = self.type_of(e.dtype)
        if t.info.is_float:
            if self.is_soft(e.dtype):
                return self.op(f"and {t.reg} {self.expr(e.args[0])}, {self.int_const_bits(0x7FFF, e.dtype)}")
            return self.math(e)
        value = self.expr(e.args[0])
        if t.kind != "int":
            return value
        return self.intrinsic(f"llvm.abs.{self.mangle(e.dtype)}", t.reg, [(t.reg, value), ("i1", "false")])

    def int_const_bits(self, bits: int, dtype: str) -> str:
        """An integer pattern in the register type of a soft float."""
        return self.splat(str(bits), dtype)

    def classify(self, e: E.Call) -> str:
        """isnan, isinf, isfinite: tests of the bits, so that no fast-math flag can undo them."""
        value, wide = self.widen(self.expr(e.args[0]), e.args[0].dtype)
        t = self.type_of(wide)
        if not t.info.is_float:
            return self.splat("true" if e.op == "isfinite" else "false", e.dtype)
        ints = with_lanes(f"int{t.info.bits}", t.info.lanes)
        i = self.reg(ints)
        mantissa = {16: 10, 32: 23, 64: 52}[t.info.bits] if t.kind == "float" else 7
        infinity = ((1 << (t.info.bits - 1 - mantissa)) - 1) << mantissa
        bits = self.op(f"bitcast {t.reg} {value} to {i}")
        magnitude = self.op(f"and {i} {bits}, {self.int_const((1 << (t.info.bits - 1)) - 1, ints)}")
        how = {"isnan": "ugt", "isinf": "eq", "isfinite": "ult"}[e.op]
        return self.op(f"icmp {how} {i} {magnitude}, {self.int_const(infinity, ints)}")

    def nan_extremum(self, e: E.Call) -> str:
        """min_nan, max_nan."""
        a, b = self.expr(e.args[0]), self.expr(e.args[1])
        t = self.type_of(e.dtype)
        if t.info.is_float:
            return self.float_extremum("minimum" if e.op == "min_nan" else "maximum", a, b, e.dtype)
        name = f"llvm.{'s' if t.kind == 'int' else 'u'}{e.op[:3]}.{self.mangle(e.dtype)}"
        return self.intrinsic(name, t.reg, [(t.reg, a), (t.reg, b)])

    # ---- bits

    def bits(self, e: E.Call) -> str:
        t = self.type_of(e.dtype)
        if not (t.info.is_int or t.kind == "bool"):
            raise self.error(f"{e.op} of {e.dtype}", hint="reinterpret the float as an integer first")
        args = [self.expr(a) for a in e.args]
        if e.op in _BITS:
            return self.op(f"{_BITS[e.op]} {t.reg} {args[0]}, {args[1]}")
        if e.op == "shr":
            return self.op(f"{'ashr' if t.kind == 'int' else 'lshr'} {t.reg} {args[0]}, {args[1]}")
        if e.op == "bitnot":
            return self.op(f"xor {t.reg} {args[0]}, {self.int_const(-1, e.dtype)}")
        if e.op == "mulhi":
            double = f"i{2 * t.info.bits}"
            wide = double if t.info.lanes == 1 else f"<{t.info.lanes} x {double}>"
            ext = "sext" if t.kind == "int" else "zext"
            x, y = (self.op(f"{ext} {t.reg} {a} to {wide}") for a in args)
            shift = str(t.info.bits) if t.info.lanes == 1 else f"splat ({double} {t.info.bits})"
            product = self.op(f"mul {wide} {x}, {y}")
            return self.op(f"trunc {wide} {self.op(f'lshr {wide} {product}, {shift}')} to {t.reg}")
        src = e.args[0].dtype
        s = self.reg(src)
        extra = [("i1", "false")] if e.op in ("clz", "ctz") else []
        value = self.intrinsic(f"llvm.{_COUNTS[e.op]}.{self.mangle(src)}", s, [(s, args[0]), *extra])
        return self.convert(value, src, e.dtype)

    def reinterpret(self, e: E.Call) -> str:
        value, src = self.expr(e.args[0]), self.type_of(e.args[0].dtype)
        dst = self.type_of(e.dtype)
        if src.reg == dst.reg:
            return value
        if src.info.bits * src.info.lanes != dst.info.bits * dst.info.lanes or "bool" in (src.kind, dst.kind):
            raise self.error(f"reinterpret of {e.args[0].dtype} as {e.dtype}: sizes differ")
        return self.op(f"bitcast {src.reg} {value} to {dst.reg}")

    # ---- control

    def likely(self, e: E.Call) -> str:
        return self.index(e.args[0]) if self.is_pure(e.args[0]) else self.expr(e.args[0])

    def if_then_else(self, e: E.Call) -> str:
        """Only the chosen side runs: blocks and a phi."""
        if dtype_info(e.args[0].dtype).lanes != 1:
            raise self.error("if_then_else on a vector condition", hint="use select, or predicate the access")
        cond = self.expr(in_order(e.args[0]))
        then, orelse, join = self.label("then"), self.label("else"), self.label("join")
        self.branch_if(cond, then, orelse)
        sides: list[tuple[str, str]] = []
        for label, side in ((then, e.args[1]), (orelse, e.args[2])):
            self.place(label)
            mark = self.memo_mark()
            value = self.expr(side)
            self.memo_release(mark)
            sides.append((value, self.block))
            self.branch(join)
        self.place(join)
        return self.phi(self.reg(e.dtype), *sides)

    # ---- pointers and memory (the access itself is in `memory`)

    def load_of(self, e: E.Expr, what: str) -> E.BufferLoad:
        if not isinstance(e, E.BufferLoad):
            raise self.error(f"{what} takes an element of a buffer, not {type(e).__name__}")
        return e

    def element_pointer(self, load: E.BufferLoad) -> tuple[str, str]:
        """The address of a buffer's element, and its pointer type."""
        raise NotImplementedError

    def address_of(self, e: E.Call) -> str:
        """address_of and access_ptr: a generic pointer to an element."""
        value, type_ = self.element_pointer(self.load_of(e.args[0], e.op))
        if e.op == "access_ptr" and len(e.args) > 1:
            load = self.load_of(e.args[0], e.op)
            offset = self.index(e.args[1])
            value = self.op(
                f"getelementptr {self.type_of(load.buffer.dtype).element}, {type_} {value}, {self.reg(e.args[1].dtype)} {offset}"
            )
        return value if type_ == "ptr" else self.op(f"addrspacecast {type_} {value} to ptr")

    def prefetch(self, e: E.Call) -> str:
        value, type_ = self.element_pointer(self.load_of(e.args[0], e.op))
        attrs = e.attrs or {}
        rw, locality = int(attrs.get("rw", 0) in ("w", 1, "rw")), min(3, max(0, int(attrs.get("locality", 3))))
        space = type_.partition("(")[2].rstrip(")") or "0"
        self.intrinsic(
            f"llvm.prefetch.p{space}", "void", [(type_, value), ("i32", str(rw)), ("i32", str(locality)), ("i32", "1")]
        )
        return "0"

    def atomic(self, e: E.Call) -> str:
        load = self.load_of(e.args[0], e.op)
        t = self.type_of(load.buffer.dtype)
        if t.kind == "bool" or t.info.lanes != 1:
            raise self.error(f"{e.op} on a buffer of {load.buffer.dtype}")
        pointer, type_ = self.element_pointer(load)
        scope = self.scope_of_atomic(load.buffer.scope)
        if e.op == "atomic_cas":
            return self._compare_and_swap(e, pointer, type_, scope)
        signed, unsigned, floating = _ATOMICS[e.op]
        how = floating if t.info.is_float else signed if t.kind == "int" else unsigned
        if not how or self.is_soft(load.buffer.dtype):
            raise self.error(f"{e.op} on a buffer of {load.buffer.dtype}")
        value = self.expr(e.args[1])
        return self.op(
            f"atomicrmw {how} {type_} {pointer}, {t.mem} {value} {scope}monotonic, align {t.info.bytes}{self.atomic_suffix(e)}"
        )

    def scope_of_atomic(self, scope: str) -> str:
        """The syncscope of an atomic on memory of `scope`."""
        return self.atomic_scope

    def atomic_suffix(self, e: E.Call) -> str:
        """Metadata of an atomic operation."""
        return ""

    def _compare_and_swap(self, e: E.Call, pointer: str, type_: str, scope: str) -> str:
        t = self.type_of(e.dtype)
        old, new = self.expr(e.args[1]), self.expr(e.args[2])
        word = f"i{t.info.bits}"
        if t.info.is_float and t.reg != word:
            old, new = (self.op(f"bitcast {t.reg} {v} to {word}") for v in (old, new))
        pair = self.op(
            f"cmpxchg {type_} {pointer}, {word} {old}, {word} {new} {scope}monotonic monotonic, align {t.info.bytes}"
        )
        value = self.op(f"extractvalue {{ {word}, i1 }} {pair}, 0")
        return self.op(f"bitcast {word} {value} to {t.reg}") if t.info.is_float and t.reg != word else value

    # ---- outside functions

    def extern(self, e: E.Call) -> str:
        """call_extern, call_pure_extern: a C function by symbol; C's promotions of small integers are said with attributes."""
        symbol = str((e.attrs or {}).get("symbol", ""))
        if not symbol or symbol.startswith("llvm."):
            raise self.error(f"{e.op} needs the symbol of a C function", hint='attrs={"symbol": "name"}')
        args = [(self._c_type(a.dtype), self.expr(a)) for a in e.args]
        result = "void" if e.op == "call_extern" and not e.dtype else self._c_type(e.dtype)
        name = quote(symbol)
        plain = ", ".join(t for t, _ in args)
        attr = " nounwind memory(none) willreturn" if e.op == "call_pure_extern" else " nounwind"
        line = f"declare {_c_result(result)} {name}({plain}){attr}"
        if self.declarations.setdefault(symbol, line) != line:
            raise self.error(f"C function {symbol!r} is called with different argument types")
        text = f"call {_c_result(result)} {name}({', '.join(f'{t} {v}' for t, v in args)})"
        return self.op(text)

    def _c_type(self, dtype: str) -> str:
        t = self.type_of(dtype)
        if t.info.lanes == 1 and t.info.bits < 32 and not t.info.is_float:
            return f"{t.reg} {'signext' if t.kind == 'int' else 'zeroext'}"
        return t.reg

    def llvm_intrinsic(self, e: E.Call) -> str:
        """call_llvm_intrin, call_llvm_pure_intrin: only of this target, or of no target."""
        name = str((e.attrs or {}).get("name", ""))
        self.check_intrinsic(name)
        args = [(self.reg(a.dtype), self.expr(a)) for a in e.args]
        void = bool((e.attrs or {}).get("void", False))
        return self.intrinsic(name, "void" if void else self.reg(e.dtype), args) or "0"

    def check_intrinsic(self, name: str) -> None:
        """Raise CodegenError for an intrinsic this target's code generator does not know."""
        own = any(name.startswith(p) for p in self.intrinsic_prefixes)
        if (not own and name.split(".")[1:2] and name.split(".")[1] not in _GENERIC_INTRINSICS) or not name.startswith(
            "llvm."
        ):
            raise self.error(
                f"LLVM intrinsic {name!r} is not one this target lowers",
                hint=f"target intrinsics start with {', '.join(self.intrinsic_prefixes) or '(none)'}",
            )

    def hint(self, e: E.Call) -> str:
        """A call that changes no value, on targets without an instruction for it."""
        return "0"

    def undef(self, e: E.Call) -> str:
        return (
            "zeroinitializer"
            if dtype_info(e.dtype).lanes > 1
            else self.splat("null" if e.dtype == "handle" else self.zero(e.dtype), e.dtype)
        )

    def zero(self, dtype: str) -> str:
        """The zero of a dtype, vectors included."""
        info = dtype_info(dtype)
        if info.lanes > 1:
            return "zeroinitializer"
        if info.kind == "handle":
            return "null"
        return self.float_const(0.0, dtype) if info.is_float else self.int_const(0, dtype)

    # ---- dot products

    def dot(self, e: E.Call) -> str:
        """dot4 and dot2 in plain arithmetic; targets with the instruction replace this."""
        a, b, c = (self.expr(x) for x in e.args)
        info = dtype_info(e.args[0].dtype)
        wide = with_lanes(e.dtype, info.lanes)
        x, y = self.convert(a, e.args[0].dtype, wide), self.convert(b, e.args[1].dtype, wide)
        r, one = self.reg(wide), self.reg(e.dtype)
        lanes = dtype_info(e.dtype).lanes
        if lanes > 1:
            mul, add = ("fmul " + self.fast, "fadd " + self.fast) if info.is_float else ("mul ", "add ")
            product, group = self.op(f"{mul}{r} {x}, {y}"), info.lanes // lanes
            for k in range(group):
                picks = ", ".join(f"i32 {j * group + k}" for j in range(lanes))
                part = self.op(f"shufflevector {r} {product}, {r} poison, <{lanes} x i32> <{picks}>")
                c = self.op(f"{add}{one} {c}, {part}")
            return c
        if not info.is_float:
            product = self.op(f"mul {r} {x}, {y}")
            total = self.intrinsic(f"llvm.vector.reduce.add.{self.mangle(wide)}", one, [(r, product)])
            return self.op(f"add {one} {total}, {c}")
        product = self.op(f"fmul {self.fast}{r} {x}, {y}")
        for lane in self.lanes_of(product, wide):
            c = self.op(f"fadd {self.fast}{one} {c}, {lane}")
        return c

    # ---- what a target must bring

    def unsupported(self, e: E.Call) -> str:
        raise self.error(f"{e.op} is not available on this target")


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
    "abs": Calls.absolute, "reinterpret": Calls.reinterpret, "likely": Calls.likely, "if_then_else": Calls.if_then_else,
    "prefetch": Calls.prefetch, "undef": Calls.undef, "keep_order": Calls.hint, "fmod": Calls.fmod, "rsqrt": Calls.rsqrt, "ldexp": Calls.ldexp,
    **dict.fromkeys(("isnan", "isinf", "isfinite"), Calls.classify),
    **dict.fromkeys(("min_nan", "max_nan"), Calls.nan_extremum),
    **dict.fromkeys(("bitand", "bitor", "bitxor", "shl", "shr", "mulhi", "bitnot", "popcount", "clz", "ctz", "bitreverse"), Calls.bits),
    **dict.fromkeys(("address_of", "access_ptr"), Calls.address_of),
    **dict.fromkeys((*_ATOMICS, "atomic_cas"), Calls.atomic),
    **dict.fromkeys(("call_extern", "call_pure_extern"), Calls.extern),
    **dict.fromkeys(("call_llvm_intrin", "call_llvm_pure_intrin"), Calls.llvm_intrinsic),
    **dict.fromkeys(("dot4", "dot2"), Calls.dot),
    **dict.fromkeys(
        ("barrier", "shuffle_xor", "shuffle_up", "shuffle_down", "shuffle_idx", "ballot", "readfirstlane", "wave_lane", "async_copy",
         "async_commit", "async_wait", "mma", "mma_scaled", "ldmatrix", "launch"), Calls.unsupported),
}  # fmt: skip


def register_call(op: str, lowering: CallHandler) -> None:
    """Lower calls of `op` by `lowering(emitter, call) -> value` on every target that has no entry of its own for it."""
    CALLS[op] = lowering
