"""A writer of LLVM IR text over one wavefront's vectors, or over scalars: one vocabulary for both.

`Ops(out, lanes)` with lanes = 64 or 32 writes `<64 x T>`; with lanes = 0 it writes plain `T`, so that a rule for a
vector opcode serves its scalar sister. Values are IR operands in text ("%12", or a constant such as "splat (i32 5)");
types are the short names below. No value carries its type: each call states it.
"""

from __future__ import annotations

import struct

from .rounding import rounded

LLVM_TYPE = {
    "i1": "i1", "i8": "i8", "i16": "i16", "i24": "i24", "i32": "i32", "i64": "i64", "i128": "i128",
    "f16": "half", "bf16": "bfloat", "f32": "float", "f64": "double", "ptr": "ptr",
}  # fmt: skip
BITS = {"i1": 1, "i8": 8, "i16": 16, "i32": 32, "i64": 64, "f16": 16, "bf16": 16, "f32": 32, "f64": 64}
_MANGLED = {"i1": "i1", "i8": "i8", "i16": "i16", "i32": "i32", "i64": "i64", "f16": "f16", "bf16": "bf16",
            "f32": "f32", "f64": "f64"}  # fmt: skip


class Out:
    """The lines of one function, its fresh names, and the declarations that it needs.

    `tag` sets the names apart where two of these write one function.
    """

    def __init__(self, tag: str = "t", declares: set[str] | None = None) -> None:
        self.lines: list[str] = []
        self.tag = tag
        self.count = 0
        self.declares: set[str] = set() if declares is None else declares
        self.helpers: dict[str, str] = {}  # functions that the module needs besides, by name
        self.bitwise: set[str] = set()  # vectors that come out of bitwise operations: see `Ops.select`

    def name(self) -> str:
        self.count += 1
        return f"%{self.tag}{self.count}"

    def emit(self, text: str) -> str:
        self.count += 1
        name = f"%{self.tag}{self.count}"
        self.lines.append(f"  {name} = {text}")
        return name

    def put(self, text: str) -> None:
        self.lines.append("  " + text)

    def label(self, name: str) -> None:
        self.lines.append(name + ":")

    def fresh_label(self, hint: str = "b") -> str:
        self.count += 1
        return f"{hint}_{self.tag}{self.count}"


def float_literal(t: str, value: float) -> str:
    """An LLVM constant of a float type; f32 is written as the double that equals it."""
    if t == "f16":
        return f"0xH{struct.unpack('<H', struct.pack('<e', value))[0]:04X}"
    if t == "bf16":
        return f"0xR{struct.unpack('<I', struct.pack('<f', value))[0] >> 16:04X}"
    if t == "f32":
        value = struct.unpack("<f", struct.pack("<f", value))[0]
    return f"0x{struct.unpack('<Q', struct.pack('<d', value))[0]:016X}"


class Ops:
    """See the module's docstring. `lanes` is 0 for scalars."""

    def __init__(self, out: Out, lanes: int, rounding: dict[str, int] | None = None):
        self.out = out
        self.lanes = lanes
        # Of results by float type, where not to nearest (`rounded`).
        self.rounding = {} if rounding is None else rounding
        self._types = {k: (f"<{lanes} x {v}>" if lanes else v) for k, v in LLVM_TYPE.items()}

    def type(self, t: str) -> str:
        return self._types[t]

    # Constants.
    def const(self, t: str, value: float) -> str:
        if t[0] == "i":
            bits = int(t[1:])
            v = int(value) & ((1 << bits) - 1)
            if bits == 1:
                text = "true" if v else "false"
            else:
                text = str(v - (1 << bits) if v >> (bits - 1) else v)
        else:
            text = float_literal(t, value)
        return f"splat ({LLVM_TYPE[t]} {text})" if self.lanes else text

    def vector_const(self, t: str, values: list[int]) -> str:
        return "<" + ", ".join(f"{LLVM_TYPE[t]} {v}" for v in values) + ">"

    def splat(self, t: str, scalar: str) -> str:
        if not self.lanes:
            return scalar
        if scalar[0] != "%":
            return f"splat ({LLVM_TYPE[t]} {scalar})"
        v, e = self._types[t], LLVM_TYPE[t]
        x = self.out.emit(f"insertelement {v} poison, {e} {scalar}, i64 0")
        return self.out.emit(f"shufflevector {v} {x}, {v} poison, <{self.lanes} x i32> zeroinitializer")

    # Arithmetic.
    def bin(self, op: str, t: str, a: str, b: str) -> str:
        if op[0] == "f" and self.rounding.get(t):
            return rounded(self, op, t, t, a, b)
        value = self.out.emit(f"{op} {self._types[t]} {a}, {b}")
        known = self.out.bitwise
        # LLVM writes the sum of two such values as their "or" where it proves that they share no bits.
        if t != "i1" and (op in ("and", "or", "xor") or (op in ("add", "sub") and (a in known or b in known))):
            known.add(value)
        return value

    def add(self, a: str, b: str, t: str = "i32") -> str:
        return self.bin("add", t, a, b)

    def sub(self, a: str, b: str, t: str = "i32") -> str:
        return self.bin("sub", t, a, b)

    def mul(self, a: str, b: str, t: str = "i32") -> str:
        return self.bin("mul", t, a, b)

    def and_(self, a: str, b: str, t: str = "i32") -> str:
        return self.bin("and", t, a, b)

    def or_(self, a: str, b: str, t: str = "i32") -> str:
        return self.bin("or", t, a, b)

    def xor(self, a: str, b: str, t: str = "i32") -> str:
        return self.bin("xor", t, a, b)

    def not_(self, a: str, t: str = "i32") -> str:
        return self.bin("xor", t, a, self.const(t, -1))

    def shl(self, a: str, b: str, t: str = "i32") -> str:
        return self.bin("shl", t, a, b)

    def lshr(self, a: str, b: str, t: str = "i32") -> str:
        return self.bin("lshr", t, a, b)

    def ashr(self, a: str, b: str, t: str = "i32") -> str:
        return self.bin("ashr", t, a, b)

    def masked(self, a: str, bits: int, t: str = "i32") -> str:
        """The low `bits` bits: how the hardware reads a shift amount."""
        return self.and_(a, self.const(t, (1 << bits) - 1), t)

    def fneg(self, t: str, a: str) -> str:
        value = self.out.emit(f"fneg {self._types[t]} {a}")
        self.out.bitwise.add(value)
        return value

    def icmp(self, pred: str, t: str, a: str, b: str) -> str:
        return self.out.emit(f"icmp {pred} {self._types[t]} {a}, {b}")

    def fcmp(self, pred: str, t: str, a: str, b: str) -> str:
        return self.out.emit(f"fcmp {pred} {self._types[t]} {a}, {b}")

    def select(self, c: str, t: str, a: str, b: str) -> str:
        """`a` where the mask `c` holds, else `b`. The result of a bitwise operation goes through a fence first.

        LLVM 22 makes one masked vpternlog of a select and the bitwise operation before it, and has two of its patterns wrong:
        with operand 0 in memory (or a constant, which it reads from there) and operand 1 as the value that masked lanes keep, and
        with 1 and 2 likewise, it permutes the truth table the other way round. Behind a fence no select meets such an operation.
        """
        ty = self._types[t]
        if self.lanes and t in ("i32", "i64", "f32", "f64"):
            a, b = (self._fenced(t, x) if x in self.out.bitwise else x for x in (a, b))
        return self.out.emit(f"select {self._types['i1']} {c}, {ty} {a}, {ty} {b}")

    def _fenced(self, t: str, a: str) -> str:
        """The same value, which LLVM cannot look through; no instruction of its own."""
        real = "f" + t[1:]
        return self.bitcast(real, t, self.call("arithmetic.fence", real, self.bitcast(t, real, a)))

    def cast(self, op: str, src: str, dst: str, a: str) -> str:
        if op in ("fptrunc", "sitofp", "uitofp") and self.rounding.get(dst):
            return rounded(self, op, src, dst, a)
        return self.out.emit(f"{op} {self._types[src]} {a} to {self._types[dst]}")

    def zext(self, src: str, dst: str, a: str) -> str:
        return a if src == dst else self.cast("zext", src, dst, a)

    def sext(self, src: str, dst: str, a: str) -> str:
        return a if src == dst else self.cast("sext", src, dst, a)

    def trunc(self, src: str, dst: str, a: str) -> str:
        return a if src == dst else self.cast("trunc", src, dst, a)

    def bitcast(self, src: str, dst: str, a: str) -> str:
        if src == dst:
            return a
        value = self.cast("bitcast", src, dst, a)
        if a in self.out.bitwise:
            self.out.bitwise.add(value)
        return value

    def fpext(self, src: str, dst: str, a: str) -> str:
        if src == "bf16":  # exact: bf16 is the upper half of an f32
            wide = self.zext("i16", "i32", self.bitcast("bf16", "i16", a))
            f = self.bitcast("i32", "f32", self.shl(wide, self.const("i32", 16)))
            return f if dst == "f32" else self.cast("fpext", "f32", dst, f)
        return a if src == dst else self.cast("fpext", src, dst, a)

    def fptrunc(self, src: str, dst: str, a: str) -> str:
        if dst == "bf16":
            return self.f32_to_bf16(a)
        if src == "f64" and dst == "f16":
            # The host has no f64 -> f16; round to odd in f32 first, so that the second rounding is the only one.
            return self.cast("fptrunc", "f32", "f16", self._f64_to_f32_odd(a))
        return a if src == dst else self.cast("fptrunc", src, dst, a)

    def f32_to_bf16(self, a: str) -> str:
        """Round to nearest even; a NaN stays one (quieted)."""
        bits = self.bitcast("f32", "i32", a)
        lsb = self.and_(self.lshr(bits, self.const("i32", 16)), self.const("i32", 1))
        rounded = self.add(bits, self.add(lsb, self.const("i32", 0x7FFF)))
        quiet = self.or_(bits, self.const("i32", 0x400000))
        nan = self.fcmp("uno", "f32", a, a)
        top = self.lshr(self.select(nan, "i32", quiet, rounded), self.const("i32", 16))
        return self.bitcast("i16", "bf16", self.trunc("i32", "i16", top))

    def _f64_to_f32_odd(self, a: str) -> str:
        near = self.cast("fptrunc", "f64", "f32", a)
        back = self.cast("fpext", "f32", "f64", near)
        return self._to_odd(near, self.bin("fsub", "f64", a, back), "f64")

    def _to_odd(self, near: str, error: str, t: str) -> str:
        """`near` (f32, rounded to nearest) with its exact `error`, re-rounded to odd."""
        bits = self.bitcast("f32", "i32", near)
        even = self.icmp("eq", "i32", self.and_(bits, self.const("i32", 1)), self.const("i32", 0))
        inexact = self.fcmp("one", t, error, self.const(t, 0.0))
        negative = self.icmp("slt", "i32", bits, self.const("i32", 0))
        shrink = self.xor(self.fcmp("olt", t, error, self.const(t, 0.0)), negative, "i1")
        step = self.select(shrink, "i32", self.const("i32", -1), self.const("i32", 1))
        moved = self.select(self.and_(even, inexact, "i1"), "i32", self.add(bits, step), bits)
        return self.bitcast("i32", "f32", moved)

    # Calls of overloaded intrinsics.
    def call(self, name: str, t: str, *args: str, extra: str = "") -> str:
        ty = self._types[t]
        suffix = f"v{self.lanes}{_MANGLED[t]}" if self.lanes else _MANGLED[t]
        full = f"@llvm.{name}.{suffix}"
        tail = ", i1 false" if name in ("ctlz", "cttz", "abs") else ""
        dtail = ", i1" if tail else ""
        self.out.declares.add(f"declare {ty} {full}({', '.join([ty] * len(args))}{dtail})")
        value = self.out.emit(f"call {ty} {full}({', '.join(f'{ty} {a}' for a in args)}{tail})")
        if name in ("fabs", "copysign"):
            self.out.bitwise.add(value)
        return value

    def helper(self, name: str, ret: str, *args: tuple[str, str]) -> str:
        """A function of the support library, one for vectors of this many lanes: `tec_<name>_<lanes>`."""
        full = f"@tec_{name}_{self.lanes or 1}"
        types = [self._types[t] for t, _ in args]
        self.out.declares.add(f"declare {self._types[ret]} {full}({', '.join(types)})")
        return self.out.emit(
            f"call {self._types[ret]} {full}({', '.join(f'{ty} {a}' for ty, (_, a) in zip(types, args))})"
        )

    # Idioms.
    def fma(self, t: str, a: str, b: str, c: str) -> str:
        if self.rounding.get(t):
            return rounded(self, "fma", t, t, a, b, c)
        if t == "f16":
            return self.fptrunc("f32", "f16", self.fma_odd(*(self.fpext("f16", "f32", x) for x in (a, b, c))))
        return self.call("fma", t, a, b, c)

    def fma_odd(self, a: str, b: str, c: str) -> str:
        """a*b + c in f32, for operands of 11 significant bits or fewer, rounded to odd (a*b is exact)."""
        p = self.bin("fmul", "f32", a, b)
        s = self.bin("fadd", "f32", p, c)
        v = self.bin("fsub", "f32", s, p)
        e = self.bin(
            "fadd", "f32",
            self.bin("fsub", "f32", p, self.bin("fsub", "f32", s, v)), self.bin("fsub", "f32", c, v),
        )  # fmt: skip
        return self._to_odd(s, e, "f32")

    def fma_odd_bf16(self, a: str, b: str, c: str) -> str:
        """a*b + c of numbers of 8 significant bits, as f32 that rounds to bf16 as the exact value does: in f64, where the product is exact, then to odd."""
        p, wide = self.bin("fmul", "f64", *(self.fpext("f32", "f64", x) for x in (a, b))), self.fpext("f32", "f64", c)
        s = self.bin("fadd", "f64", p, wide)
        v = self.bin("fsub", "f64", s, p)
        first = self.bin("fsub", "f64", p, self.bin("fsub", "f64", s, v))
        error = self.bin("fadd", "f64", first, self.bin("fsub", "f64", wide, v))
        near = self.cast("fptrunc", "f64", "f32", s)
        low = self.bin("fsub", "f64", s, self.cast("fpext", "f32", "f64", near))
        return self._to_odd(near, self.bin("fadd", "f64", low, error), "f64")

    def minmax_f(self, t: str, is_max: bool, a: str, b: str) -> str:
        """IEEE 754-2019 minimumNumber/maximumNumber: a NaN loses against a number, -0 < +0."""
        pred = "ogt" if is_max else "olt"
        i = "i" + str(BITS[t])
        ai, bi = self.bitcast(t, i, a), self.bitcast(t, i, b)
        # Among equals (the zeros) AND keeps +0 for max, OR keeps -0 for min; other equals are the same bits.
        tie = self.bitcast(i, t, self.and_(ai, bi, i) if is_max else self.or_(ai, bi, i))
        picked = self.select(self.fcmp(pred, t, a, b), t, a, b)
        picked = self.select(self.fcmp("oeq", t, a, b), t, tie, picked)
        return self.select(self.fcmp("uno", t, b, b), t, a, picked)

    def pack(self, lo: str, hi: str) -> str:
        """Two i32 to one i64."""
        high = self.shl(self.zext("i32", "i64", hi), self.const("i64", 32), "i64")
        return self.or_(self.zext("i32", "i64", lo), high, "i64")

    def unpack(self, value: str) -> tuple[str, str]:
        return self.trunc("i64", "i32", value), self.trunc("i64", "i32", self.lshr(value, self.const("i64", 32), "i64"))
