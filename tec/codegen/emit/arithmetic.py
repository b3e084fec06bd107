"""Arithmetic, comparisons, conversions, vectors: what an expression without memory or calls becomes.

Semantics follow `tec.ir.expr`: integers wrap (indices are taken not to overflow), division by zero gives 0 as NumPy's
does and never traps, float to integer saturates, minimum and maximum let NaN lose. bfloat16 without hardware is 16 bits
of integer, widened to float32 for arithmetic and rounded to nearest even after each operation.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ...ir import expr as E
from ...ir.dtype import dtype_info, with_lanes
from .part import Part

if TYPE_CHECKING:
    from .emitter import Emitter

_FLOAT_OPS: dict[type, str] = {E.Add: "fadd", E.Sub: "fsub", E.Mul: "fmul", E.Div: "fdiv", E.Mod: "frem"}
_INT_OPS: dict[type, str] = {E.Add: "add", E.Sub: "sub", E.Mul: "mul"}
_COMPARE: dict[type, tuple[str, str, str]] = {
    E.EQ: ("eq", "eq", "oeq"), E.NE: ("ne", "ne", "une"), E.LT: ("slt", "ult", "olt"),
    E.LE: ("sle", "ule", "ole"), E.GT: ("sgt", "ugt", "ogt"), E.GE: ("sge", "uge", "oge"),
}  # fmt: skip


Handler = Callable[[Any], str]


class Arithmetic(Part):
    """Handlers for every node type but BufferLoad and Call."""

    def __init__(self, em: Emitter):
        super().__init__(em)
        self.widen, self.narrow = em.floats.widen, em.floats.narrow
        self.is_pure, self.is_nonneg = em.values.is_pure, em.values.is_nonneg

    def handlers(self) -> dict[type, Handler]:
        """By the class of a node."""
        return {
            **dict.fromkeys((E.Add, E.Sub, E.Mul), self.binary),
            **dict.fromkeys((E.Div, E.Mod, E.FloorDiv, E.FloorMod), self.divide),
            **dict.fromkeys((E.Min, E.Max), self.extremum),
            **dict.fromkeys((E.EQ, E.NE, E.LT, E.LE, E.GT, E.GE), self.compare),
            **dict.fromkeys((E.And, E.Or), self.logical),
            E.Not: self.logical_not, E.Select: self.select, E.Cast: self.cast, E.Let: self.let,
            E.Ramp: self.ramp, E.Broadcast: self.broadcast, E.Shuffle: self.shuffle_lanes, E.StringImm: self.string,
        }  # fmt: skip

    # ---- arithmetic

    def binary(self, e: E.BinaryExpr) -> str:
        """Add, Sub, Mul, and Div and Mod on floats."""
        return self.binary_values(type(e), self.expr(e.a), self.expr(e.b), e)

    def binary_values(self, cls: type, a: str, b: str, e: E.BinaryExpr) -> str:
        t = self.type_of(e.dtype)
        if t.info.is_float:
            if self.is_soft(e.dtype):
                (x, wide), (y, _) = self.widen(a, e.dtype), self.widen(b, e.dtype)
                return self.narrow(self.op(f"{_FLOAT_OPS[cls]} {self.em.fast}{self.reg(wide)} {x}, {y}"), e.dtype)
            if cls is E.Sub and type(e.a) is E.FloatImm and e.a.value == 0 and str(e.a.value)[0] == "-":
                return self.op(f"fneg {self.em.fast}{t.reg} {b}")
            return self.op(f"{_FLOAT_OPS[cls]} {self.em.fast}{t.reg} {a}, {b}")
        if t.kind in ("bool", "handle"):
            raise self.error(f"{cls.__name__} of {e.dtype}")
        nsw = "nsw " if self.em.in_index and t.kind == "int" and self.is_pure(e) else ""
        return self.op(f"{_INT_OPS[cls]} {nsw}{t.reg} {a}, {b}")

    def divide(self, e: E.BinaryExpr) -> str:
        """Div, Mod, FloorDiv, FloorMod."""
        t = self.type_of(e.dtype)
        if t.info.is_float:
            if type(e) in (E.FloorDiv, E.FloorMod):
                raise self.error(
                    f"{type(e).__name__} of {e.dtype}",
                    hint="write te.floordiv or te.floormod, which are calls of floor_divide and floor_remainder",
                )
            return self.binary(e)
        if t.kind == "bool":
            raise self.error(f"{type(e).__name__} of {e.dtype}")
        a, b = self.expr(e.a), self.expr(e.b)
        divisor = e.b.value if isinstance(e.b, E.Broadcast) else e.b
        k = divisor.value if isinstance(divisor, E.IntImm) else None
        wants_mod = type(e) in (E.Mod, E.FloorMod)
        floors = type(e) in (E.FloorDiv, E.FloorMod) and t.kind == "int"
        trusted = self.em.in_index and self.is_pure(e)
        if floors and trusted and self.is_nonneg(e.a) and self.is_nonneg(e.b):
            floors = False
            if k is None or k > 0:
                return self.op(f"{'urem' if wants_mod else 'udiv'} {t.reg} {a}, {b}")
        if floors and k is not None and k > 0 and k & (k - 1) == 0:  # two's complement rounds down by itself
            if wants_mod:
                return self.op(f"and {t.reg} {a}, {self.int_const(k - 1, e.dtype)}")
            return self.op(f"ashr {t.reg} {a}, {self.int_const(k.bit_length() - 1, e.dtype)}")
        zero = ""
        if not k and not trusted:
            b, zero = self._safe_divisor(a, b, e.dtype)
        elif k == -1 and not wants_mod:
            return self.op(f"sub {t.reg} {self.int_const(0, e.dtype)}, {a}")
        elif k == -1:
            return self.int_const(0, e.dtype)
        sign = "s" if t.kind == "int" else "u"
        if not floors:
            result = self.op(f"{sign}{'rem' if wants_mod else 'div'} {t.reg} {a}, {b}")
        else:
            rem = self.op(f"srem {t.reg} {a}, {b}")
            bt = self.reg(with_lanes("bool", t.info.lanes))
            null = self.int_const(0, e.dtype)
            if k is not None and k > 0:
                off = self.op(f"icmp slt {t.reg} {rem}, {null}")
            else:
                differ = self.op(f"icmp slt {t.reg} {self.op(f'xor {t.reg} {rem}, {b}')}, {null}")
                off = self.op(f"and {bt} {differ}, {self.op(f'icmp ne {t.reg} {rem}, {null}')}")
            if wants_mod:
                moved = self.op(f"add {t.reg} {rem}, {b}")
                result = self.op(f"select {bt} {off}, {t.reg} {moved}, {t.reg} {rem}")
            else:
                quo = self.op(f"sdiv {t.reg} {a}, {b}")
                result = self.op(f"add {t.reg} {quo}, {self.op(f'sext {bt} {off} to {t.reg}')}")
        if zero:
            bt = self.reg(with_lanes("bool", t.info.lanes))
            result = self.op(f"select {bt} {zero}, {t.reg} {self.int_const(0, e.dtype)}, {t.reg} {result}")
        return result

    def _safe_divisor(self, a: str, b: str, dtype: str) -> tuple[str, str]:
        """A divisor that cannot trap, and the flag "it was zero". MIN / -1 traps on x86: dividing by 1 gives the wrapped result."""
        t, bt = self.type_of(dtype), self.reg(with_lanes("bool", dtype_info(dtype).lanes))
        zero = self.op(f"icmp eq {t.reg} {b}, {self.int_const(0, dtype)}")
        bad = zero
        if t.kind == "int":
            minus = self.op(f"icmp eq {t.reg} {b}, {self.int_const(-1, dtype)}")
            least = self.op(f"icmp eq {t.reg} {a}, {self.int_const(1 << (t.info.bits - 1), dtype)}")
            bad = self.op(f"or {bt} {zero}, {self.op(f'and {bt} {minus}, {least}')}")
        return self.op(f"select {bt} {bad}, {t.reg} {self.int_const(1, dtype)}, {t.reg} {b}"), zero

    def extremum(self, e: E.BinaryExpr) -> str:
        """Min, Max."""
        t = self.type_of(e.dtype)
        name = "min" if type(e) is E.Min else "max"
        a, b = self.expr(e.a), self.expr(e.b)
        if t.kind == "bool":
            return self.op(f"{'and' if name == 'min' else 'or'} {t.reg} {a}, {b}")
        if t.info.is_float:
            return self.float_extremum(f"{name}num", a, b, e.dtype)
        full = f"llvm.{'s' if t.kind == 'int' else 'u'}{name}.{self.mangle(e.dtype)}"
        return self.intrinsic(full, t.reg, [(t.reg, a), (t.reg, b)])

    def float_extremum(self, name: str, a: str, b: str, dtype: str) -> str:
        """minnum, maxnum, minimum or maximum of floats; te leaves open which zero they give of two."""
        (x, wide), (y, _) = self.widen(a, dtype), self.widen(b, dtype)
        r = self.reg(wide)
        fast = self.em.fast if "nsz" in self.em.fast or "fast" in self.em.fast else f"nsz {self.em.fast}"
        value = self.intrinsic(f"llvm.{name}.{self.mangle(wide)}", r, [(r, x), (r, y)], fast)
        return self.narrow(value, dtype) if wide != dtype else value

    def compare(self, e: E.CmpExpr) -> str:
        return self.compare_values(type(e), self.expr(e.a), self.expr(e.b), e.a.dtype)

    def compare_values(self, cls: type, a: str, b: str, dtype: str) -> str:
        signed, unsigned, floating = _COMPARE[cls]
        t = self.type_of(dtype)
        if t.info.is_float:
            (x, wide), (y, _) = self.widen(a, dtype), self.widen(b, dtype)
            return self.op(f"fcmp {self.em.fast}{floating} {self.reg(wide)} {x}, {y}")
        return self.op(f"icmp {signed if t.kind == 'int' else unsigned} {t.reg} {a}, {b}")

    def logical(self, e: E.BinaryExpr) -> str:
        """And, Or."""
        t = self.type_of(e.dtype)
        if t.kind != "bool":
            raise self.error(f"{type(e).__name__} of {e.dtype}")
        return self.op(f"{'and' if type(e) is E.And else 'or'} {t.reg} {self.expr(e.a)}, {self.expr(e.b)}")

    def logical_not(self, e: E.Not) -> str:
        return self.op(f"xor {self.reg(e.dtype)} {self.expr(e.a)}, {self.splat('true', e.dtype)}")

    def select(self, e: E.Select) -> str:
        lanes = dtype_info(e.cond.dtype).lanes
        if lanes not in (1, dtype_info(e.dtype).lanes):
            raise self.error(f"select of {e.dtype} by {e.cond.dtype}")
        if (
            type(e.cond) is E.Call
            and e.cond.op == "likely"
            and not isinstance(e.b, (E.Var, E.IntImm, E.FloatImm, E.Broadcast))
        ):
            return self.select_likely(e)
        cond, a, b = self.expr(e.cond), self.expr(e.a), self.expr(e.b)
        r = self.reg(e.dtype)
        return self.op(f"select {self.reg(e.cond.dtype)} {cond}, {r} {a}, {r} {b}")

    def select_likely(self, e: E.Select) -> str:
        """A select whose condition nearly always holds: the other side is computed only where a lane needs it."""
        ct, r = self.reg(e.cond.dtype), self.reg(e.dtype)
        cond, a = self.expr(e.cond), self.expr(e.a)
        every = cond
        if dtype_info(e.cond.dtype).lanes > 1:
            every = self.intrinsic(f"llvm.vector.reduce.and.{self.mangle(e.cond.dtype)}", "i1", [(ct, cond)])
        rare, join, before = self.label("rare"), self.label("join"), self.em.block
        self.branch_if(every, join, rare, self.expected(True))
        self.place(rare)
        mark = self.memo_mark()
        b = self.expr(e.b)
        self.memo_release(mark)
        mixed = self.op(f"select {ct} {cond}, {r} {a}, {r} {b}")
        after = self.em.block
        self.branch(join)
        self.place(join)
        return self.phi(r, (a, before), (mixed, after))

    def let(self, e: E.Let) -> str:
        value = self.expr(e.value)
        key = id(e.var)
        before, mult = self.em.vars.get(key), self.em.values.multiples.get(key)
        self.em.values.bind(e.var, value, e.value)
        mark = self.memo_mark()
        body = self.expr(e.body)
        self.memo_release(mark)
        if before is None:
            self.em.vars.pop(key, None)
            return body
        self.em.vars[key] = before
        if mult is not None:
            self.em.values.multiples[key] = mult
        return body

    # ---- conversions

    def cast(self, e: E.Cast) -> str:
        value = self.expr(e.value)
        return self.convert(value, e.value.dtype, e.dtype)

    def convert(self, value: str, src: str, dst: str) -> str:
        """`value` of dtype `src` as `dst` (see Cast)."""
        s, d = self.type_of(src), self.type_of(dst)
        if src == dst:
            return value
        if s.info.lanes != d.info.lanes:
            raise self.error(f"cast of {src} to {dst}: lanes differ")
        if "handle" in (s.kind, d.kind):
            how = "ptrtoint" if s.kind == "handle" else "inttoptr"
            return self.op(f"{how} {s.reg} {value} to {d.reg}")
        if s.info.is_float and d.info.is_float:
            return self._float_to_float(value, src, dst)
        if s.info.is_float:
            value, src = self.widen(value, src)
            s = self.type_of(src)
            if d.kind == "bool":
                return self.op(f"fcmp une {s.reg} {value}, {self.float_const(0.0, src)}")
            if s.info.bits == 16 and not self.em.saturates_half:
                wide = with_lanes("float32", s.info.lanes)
                value, src = self.op(f"fpext {s.reg} {value} to {self.reg(wide)}"), wide
                s = self.type_of(src)
            return self.saturated(value, src, dst)
        if d.info.is_float:
            how = "sitofp" if s.kind == "int" else "uitofp"
            if d.kind == "bfloat" and s.info.bits >= 32:
                value, wide = self._int_to_odd(value, src)
                return self._float_to_float(value, wide, dst)
            if self.is_soft(dst):
                wide = with_lanes("float32", d.info.lanes)
                return self.narrow(self.op(f"{how} {s.reg} {value} to {self.reg(wide)}"), dst)
            return self.op(f"{how} {s.reg} {value} to {d.reg}")
        if d.kind == "bool":
            return self.op(f"icmp ne {s.reg} {value}, {self.int_const(0, src)}")
        if d.info.bits < s.info.bits:
            return self.op(f"trunc {s.reg} {value} to {d.reg}")
        if d.info.bits == s.info.bits:
            return value
        return self.op(f"{'sext' if s.kind == 'int' else 'zext'} {s.reg} {value} to {d.reg}")

    def saturated(self, value: str, src: str, dst: str) -> str:
        """Floats as integers, toward zero, saturating, NaN as 0."""
        d = self.type_of(dst)
        if self.em.clamps_narrow and d.info.lanes > 1 and d.info.bits < 32:
            return self._clamped(value, src, dst)
        name = f"llvm.fpto{'s' if d.kind == 'int' else 'u'}i.sat.{self.mangle(dst)}.{self.mangle(src)}"
        return self.intrinsic(name, d.reg, [(self.reg(src), value)])

    def _clamped(self, value: str, src: str, dst: str) -> str:
        """The same of vectors, by way of int32, which holds all of them: comparisons, one conversion, and the low bits."""
        d, reg = self.type_of(dst), self.reg(src)
        low = -(1 << d.info.bits - 1) if d.kind == "int" else 0
        high = low + (1 << d.info.bits) - 1
        conditions = f"<{d.info.lanes} x i1>"
        for how, limit in (("uno", 0.0), ("olt", float(low)), ("ogt", float(high))):
            held = self.float_const(limit, src)
            beyond = self.op(f"fcmp {how} {reg} {value}, {held}")
            value = self.op(f"select {conditions} {beyond}, {reg} {held}, {reg} {value}")
        wide = self.reg(with_lanes("int32", d.info.lanes))
        return self.op(f"trunc {wide} {self.op(f'fptosi {reg} {value} to {wide}')} to {d.reg}")

    def _float_to_float(self, value: str, src: str, dst: str) -> str:
        value, src = self.widen(value, src)
        if self.is_soft(dst):
            if dtype_info(src).bits == 64:
                value, src = self._double_to_odd(value, src)
            elif dtype_info(src).bits == 16:
                wide = with_lanes("float32", dtype_info(src).lanes)
                value = self.op(f"fpext {self.reg(src)} {value} to {self.reg(wide)}")
            return self.narrow(value, dst)
        if src == dst:
            return value
        s, d = self.type_of(src), self.type_of(dst)
        if s.info.bits == 64 and d.info.bits == 16 and not self.em.exact_half_from_double:
            value, src = self._double_to_odd(value, src)
            s = self.type_of(src)
        if s.info.bits == d.info.bits:  # half and bfloat have float32 in common
            wide = with_lanes("float32", s.info.lanes)
            value = self.op(f"fpext {s.reg} {value} to {self.reg(wide)}")
            return self.op(f"fptrunc {self.reg(wide)} {value} to {d.reg}")
        return self.op(f"{'fpext' if d.info.bits > s.info.bits else 'fptrunc'} {s.reg} {value} to {d.reg}")

    def _int_to_odd(self, value: str, src: str) -> tuple[str, str]:
        """An integer as a float64 that rounds to 16 bits as the integer does: of what float64 may not hold, one bit says that
        it is there."""
        info = dtype_info(src)
        t = self.reg(src)
        if info.bits == 64:
            signed = info.kind == "int"
            low = self.op(f"and {t} {value}, {self.int_const(0x7FF, src)}")
            there = self.op(f"icmp ne {t} {low}, {self.int_const(0, src)}")
            bit = self.op(
                f"select {self.reg(with_lanes('bool', info.lanes))} {there}, {t} {self.int_const(1 << 11, src)}, {t} {self.int_const(0, src)}"
            )
            coarse = self.op(f"or {t} {self.op(f'sub {t} {value}, {low}')}, {bit}")
            moved = self.op(f"add {t} {value}, {self.int_const(1 << 53, src)}") if signed else value
            small = self.op(f"icmp ult {t} {moved}, {self.int_const(1 << (54 if signed else 53), src)}")
            value = self.op(f"select {self.reg(with_lanes('bool', info.lanes))} {small}, {t} {value}, {t} {coarse}")
        wide = with_lanes("float64", info.lanes)
        return self.op(f"{'sitofp' if info.kind == 'int' else 'uitofp'} {t} {value} to {self.reg(wide)}"), wide

    def _double_to_odd(self, value: str, src: str) -> tuple[str, str]:
        """float64 to float32 rounded to odd, so that rounding once more to 16 bits is right (Boldo and Melquiond, 2008)."""
        lanes = dtype_info(src).lanes
        f32, i32, b = with_lanes("float32", lanes), with_lanes("int32", lanes), self.reg(with_lanes("bool", lanes))
        t, rf, rd = self.reg(i32), self.reg(f32), self.reg(src)
        near = self.op(f"fptrunc {rd} {value} to {rf}")
        back = self.op(f"fpext {rf} {near} to {rd}")
        inexact = self.op(f"fcmp one {rd} {back}, {value}")
        mag_back = self.intrinsic(f"llvm.fabs.{self.mangle(src)}", rd, [(rd, back)])
        mag = self.intrinsic(f"llvm.fabs.{self.mangle(src)}", rd, [(rd, value)])
        above = self.op(f"fcmp ogt {rd} {mag_back}, {mag}")
        bits = self.op(f"bitcast {rf} {near} to {t}")
        toward_zero = self.op(f"add {t} {bits}, {self.op(f'sext {b} {above} to {t}')}")
        odd = self.op(f"or {t} {toward_zero}, {self.op(f'zext {b} {inexact} to {t}')}")
        return self.op(f"bitcast {t} {odd} to {rf}"), f32

    # ---- vectors

    def broadcast(self, e: E.Broadcast) -> str:
        info = dtype_info(e.value.dtype)
        if info.lanes == 1:
            return self.broadcast_value(self.expr(e.value), e.value.dtype, e.lanes)
        one, total = self.reg(e.value.dtype), e.lanes * info.lanes
        picks = ", ".join(f"i32 {i % info.lanes}" for i in range(total))
        return self.op(f"shufflevector {one} {self.expr(e.value)}, {one} poison, <{total} x i32> <{picks}>")

    def ramp(self, e: E.Ramp) -> str:
        t, many = self.type_of(e.base.dtype), self.reg(e.dtype)
        if isinstance(e.base, E.IntImm) and isinstance(e.stride, E.IntImm):
            return self.vector_literal([e.base.value + i * e.stride.value for i in range(e.lanes)], e.base.dtype)
        base = self.broadcast_value(self.expr(e.base), e.base.dtype, e.lanes)
        nsw = "nsw " if self.em.in_index and t.kind == "int" and self.is_pure(e) else ""
        if isinstance(e.stride, E.IntImm):
            steps = self.vector_literal([i * e.stride.value for i in range(e.lanes)], e.base.dtype)
        else:
            stride = self.broadcast_value(self.expr(e.stride), e.base.dtype, e.lanes)
            steps = self.op(f"mul {nsw}{many} {stride}, {self.vector_literal(list(range(e.lanes)), e.base.dtype)}")
        return self.op(f"add {nsw}{many} {base}, {steps}")

    def shuffle_lanes(self, e: E.Shuffle) -> str:
        """Shuffle: one or two vectors map to shufflevector, more go through their lanes."""
        sizes = [dtype_info(v.dtype).lanes for v in e.vectors]
        if any(not 0 <= i < sum(sizes) for i in e.indices):
            raise self.error(f"shuffle picks lane {max(e.indices)} of {sum(sizes)}")
        values = [self.expr(v) for v in e.vectors]
        element = dtype_info(e.vectors[0].dtype).element
        if len(values) <= 2 and len(set(sizes)) == 1 and sizes[0] > 1:
            t = self.reg(e.vectors[0].dtype)
            second = values[1] if len(values) == 2 else "poison"
            if len(e.indices) == 1:
                which, lane = divmod(e.indices[0], sizes[0])
                return self.op(f"extractelement {t} {values[which]}, i64 {lane}")
            picks = ", ".join(f"i32 {i}" for i in e.indices)
            return self.op(f"shufflevector {t} {values[0]}, {t} {second}, <{len(e.indices)} x i32> <{picks}>")
        wanted: dict[int, str] = {}
        starts = [sum(sizes[:k]) for k in range(len(sizes))]
        for i in e.indices:
            if i not in wanted:
                k = max(j for j, start in enumerate(starts) if start <= i)
                t = self.reg(e.vectors[k].dtype)
                wanted[i] = (
                    values[k] if sizes[k] == 1 else self.op(f"extractelement {t} {values[k]}, i64 {i - starts[k]}")
                )
        return self.vector_of([wanted[i] for i in e.indices], with_lanes(element, len(e.indices)))

    def string(self, e: E.StringImm) -> str:
        """The address of a C string."""
        data = e.value.encode() + b"\0"
        name = f"@.str{len(self.em.globals)}"
        text = "".join(chr(c) if 32 <= c < 127 and c not in (34, 92) else f"\\{c:02X}" for c in data)
        self.em.globals.append(f'{name} = private unnamed_addr constant [{len(data)} x i8] c"{text}"')
        return name
