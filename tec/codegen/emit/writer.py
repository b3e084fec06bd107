"""The text of a module and its vocabulary: LLVM types and literals, values, blocks, lanes, metadata, declarations.

LLVM IR is written as text: a value is the string that names it ("%v12", "i32 7" without the type: "7"), a line is a
string. That is several times faster than building IR objects and it is what LLVM's own tests read. `Writer` knows nothing of
expressions, statements or memory: the parts of an `emitter` do. Source for the syntax: the LLVM Language Reference, version 22.
"""

from __future__ import annotations

import math
import struct
from typing import Any, ClassVar, NamedTuple

from ...errors import CodegenError, Loc
from ...ir.build import round_float
from ...ir.dtype import DTypeInfo, dtype_info, with_lanes
from ...target import Target
from .float_formats import FORMATS

_FLOAT_TYPES = {"float16": "half", "bfloat16": "bfloat", "float32": "float", "float64": "double"}


class LLVMType(NamedTuple):
    """What the emitter needs to know of a dtype: its register type, its type in memory, its facts."""

    reg: str
    mem: str
    kind: str  # "int", "uint", "bool", "float", "bfloat", "handle"
    info: DTypeInfo

    @property
    def element(self) -> str:
        """The type by which elements of an array lie apart: of vectors whose lanes are no power of two LLVM's own would leave room behind each."""
        n = self.info.lanes
        return f"[{self.mem[1:-1]}]" if n & (n - 1) else self.mem


class Pointer(NamedTuple):
    """Where a buffer lies: the pointer value, its type ("ptr addrspace(3)"), the promised alignment, alias metadata."""

    value: str
    type: str
    align: int
    suffix: str  # appended to loads and stores
    load_suffix: str  # appended to loads


def float_literal(value: float, dtype: str) -> str:
    """A float constant as LLVM reads it: the exact bits in hexadecimal (of a double for float32)."""
    if dtype == "float16":
        return f"0xH{struct.unpack('<H', struct.pack('<e', round_float(value, 'float16')))[0]:04X}"
    if dtype == "bfloat16":
        return f"0xR{bfloat_bits(value):04X}"
    if dtype == "float32":
        value = round_float(value, "float32")
    return f"0x{struct.unpack('<Q', struct.pack('<d', value))[0]:016X}"


def bfloat_bits(value: float) -> int:
    """The 16 bits of a bfloat16 constant."""
    bits: int = struct.unpack("<I", struct.pack("<f", round_float(value, "bfloat16")))[0]
    return 0x7FC0 if math.isnan(value) else bits >> 16


def quote(name: str) -> str:
    """A global's name, quoted where LLVM asks for it."""
    if name.replace("_", "a").replace(".", "a").isalnum() and not name[0].isdigit() and name.isascii():
        return "@" + name
    escaped = "".join(
        c if 32 <= ord(c) < 127 and c not in '"\\' else "".join(f"\\{b:02X}" for b in c.encode()) for c in name
    )
    return f'@"{escaped}"'


class Writer:
    """State of one module under construction and of the function being written."""

    native_bfloat: ClassVar[bool] = False  # LLVM's bfloat arithmetic lowers to what the IR means; else bits and f32
    native_half: bool = True  # the same for half; without hardware LLVM calls library functions that may be missing
    exact_half_from_double: ClassVar[bool] = True  # fptrunc double to half lowers without a library call
    # Whether llvm.fpto*i.sat of half is right; LLVM 22 with avx512fp16 gives -32768 for the int16 of NaN.
    saturates_half: ClassVar[bool] = True
    # Vectors of floats are held to the range of integers below 32 bits by comparisons: LLVM takes its own function of them apart.
    clamps_narrow: ClassVar[bool] = False

    def __init__(self, target: Target):
        self.target = target
        self.func_name = ""
        self.loc: Loc | None = None  # the user's line of the statement being written
        self.declarations: dict[str, str] = {}
        self.globals: list[str] = []
        self.functions: list[str] = []
        self.metadata: list[str] = []
        self.attribute_groups: dict[str, int] = {}
        self._interned_metadata: dict[str, int] = {}
        self._types: dict[str, LLVMType] = {}
        self.tail = ""  # ends every instruction: see `Statements.stmt`
        self.places: dict[int, int] = {}  # the lines of statements in the text of loop IR, by `id`; none: no comments
        self.fast = ""
        self.set_fast_math(target.fast_math)
        self.begin_frame()

    def set_fast_math(self, flags: tuple[str, ...] | set[str] | frozenset[str]) -> None:
        """Choose the flags that float operations of what follows carry."""
        order = ("nnan", "ninf", "nsz", "arcp", "contract", "afn", "reassoc")
        self.fast = "fast " if set(order) <= set(flags) else "".join(f"{f} " for f in order if f in flags)

    def begin_frame(self) -> None:
        """Start a new LLVM function: no values, no variables, no blocks."""
        self.out: list[str] = []
        self.marks: list[tuple[int, Loc]] = []  # from which line of `out` on the user's line is which
        self.allocas: list[str] = []
        self.counter = 0
        self.block = "entry"
        self.vars: dict[int, str] = {}
        self.memo: dict[int, str] = {}
        self.memo_log: list[tuple[int, Any]] = []  # with the nodes, which are kept alive
        self.keep: list[Any] = []
        self.in_index = False  # an index is being written: sums of loop variables and sizes in it never overflow

    def at(self, loc: Loc | None) -> None:
        """What is written from here on stands for this line of the user's program."""
        if (loc is not None and loc != self.loc) or (not self.marks and loc is not None):
            self.loc = loc
            self.marks.append((len(self.out), loc))

    # ---- errors

    def error(self, message: str, hint: str | None = None) -> CodegenError:
        """A CodegenError that names the function, the target and the user's line where it is known."""
        where = (
            f" (function {self.func_name!r}, target {self.target})" if self.func_name else f" (target {self.target})"
        )
        return CodegenError(message + where, where=self.loc, hint=hint)

    # ---- types and literals

    def is_soft(self, dtype: str) -> bool:
        """Whether values of a float type are held as integers and computed with in float32 (see `small_floats`)."""
        return (
            dtype_info(dtype).is_float8
            or (not self.native_bfloat and dtype.startswith("bfloat16"))
            or (not self.native_half and dtype.startswith("float16"))
        )

    def type_of(self, dtype: str) -> LLVMType:
        """The LLVM types of a dtype; raises CodegenError for one that LLVM or the target has not."""
        t = self._types.get(dtype)
        if t is None:
            info = dtype_info(dtype)
            if info.kind == "bool":
                reg, mem = "i1", "i8"
            elif self.is_soft(dtype):
                reg = mem = f"i{info.bits}"
            elif info.element in _FLOAT_TYPES:
                reg = mem = _FLOAT_TYPES[info.element]
            elif info.is_int and info.bits >= 8:
                reg = mem = f"i{info.bits}"
            elif info.kind == "handle":
                reg = mem = "ptr"
            else:
                raise self.error(
                    f"no code is made for values of type {dtype}",
                    hint="cast to a type of at least 8 bits that the target has",
                )
            if info.lanes > 1:
                reg, mem = f"<{info.lanes} x {reg}>", f"<{info.lanes} x {mem}>"
            t = self._types[dtype] = LLVMType(reg, mem, info.kind, info)
        return t

    def reg(self, dtype: str) -> str:
        """The LLVM type of a value of `dtype` in a register."""
        return (self._types.get(dtype) or self.type_of(dtype)).reg

    def mangle(self, dtype: str) -> str:
        """The suffix of an overloaded intrinsic: f32, v4f32, i64, ..."""
        t = self.type_of(dtype)
        info = t.info
        if t.kind == "bool":
            one = "i1"
        elif info.is_float and self.is_soft(dtype):
            one = f"i{info.bits}"
        elif info.is_float:
            one = "bf16" if t.kind == "bfloat" else f"f{info.bits}"
        elif t.kind == "handle":
            one = "p0"
        else:
            one = f"i{info.bits}"
        return one if info.lanes == 1 else f"v{info.lanes}{one}"

    def splat(self, literal: str, dtype: str) -> str:
        """A scalar literal as a constant of `dtype`, whatever its lanes."""
        info = dtype_info(dtype)
        return literal if info.lanes == 1 else f"splat ({self.reg(info.element)} {literal})"

    def int_const(self, value: int, dtype: str) -> str:
        """An integer (or bool) constant of `dtype`."""
        t = self.type_of(dtype)
        if t.kind == "bool":
            return self.splat("true" if value else "false", dtype)
        bits = t.info.bits
        value &= (1 << bits) - 1
        return self.splat(str(value - (1 << bits) if value >> (bits - 1) else value), dtype)

    def float_const(self, value: float, dtype: str) -> str:
        """A float constant of `dtype`."""
        t = self.type_of(dtype)
        if self.is_soft(dtype):
            bits = bfloat_bits(value) if t.kind == "bfloat" else FORMATS[t.info.element].encode(value)
            return self.splat(str(bits), dtype)
        return self.splat(float_literal(value, t.info.element), dtype)

    # ---- values, blocks

    def op(self, text: str) -> str:
        """Write `%vN = text` and return the new value's name."""
        self.counter += 1
        name = f"%v{self.counter}"
        self.out.append(f"  {name} = {text}{self.tail}")
        return name

    def line(self, text: str) -> None:
        """Write an instruction without a value."""
        self.out.append(f"  {text}{self.tail}")

    def label(self, hint: str) -> str:
        """A new block's name."""
        self.counter += 1
        return f"{hint}{self.counter}"

    def place(self, label: str) -> None:
        """Start block `label`; the block before it has ended in a branch."""
        self.out.append(f"{label}:")
        self.block = label

    def branch(self, label: str) -> None:
        self.line(f"br label %{label}")

    def branch_if(self, cond: str, then: str, orelse: str, suffix: str = "") -> None:
        self.line(f"br i1 {cond}, label %{then}, label %{orelse}{suffix}")

    def phi(self, type_: str, *incoming: tuple[str, str]) -> str:
        """A phi of (value, block) pairs."""
        return self.op(f"phi {type_} " + ", ".join(f"[ {v}, %{b} ]" for v, b in incoming))

    def intrinsic(self, name: str, result: str, args: list[tuple[str, str]], flags: str = "") -> str:
        """Call an LLVM intrinsic (or any declared function) of (type, value) arguments; "" for a void one."""
        symbol = quote(name)
        types = ", ".join(t for t, _ in args)
        self.declarations.setdefault(name, f"declare {result} {symbol}({types})")
        text = f"call {flags}{result} {symbol}({', '.join(f'{t} {v}' for t, v in args)})"
        if result == "void":
            self.line(text)
            return ""
        return self.op(text)

    # ---- memo of shared nodes: valid where the value dominates

    def memo_mark(self) -> int:
        return len(self.memo_log)

    def memo_release(self, mark: int) -> None:
        """Forget values made since `mark`: their block does not dominate what follows, or their variable is gone."""
        log, memo = self.memo_log, self.memo
        while len(log) > mark:
            memo.pop(log.pop()[0], None)

    def memo_clear(self) -> None:
        self.memo.clear()
        self.memo_log.clear()

    # ---- metadata and attributes

    def meta(self, text: str) -> str:
        """A metadata node, shared where the text is the same."""
        k = self._interned_metadata.get(text)
        if k is None:
            k = self._interned_metadata[text] = len(self.metadata)
            self.metadata.append(f"!{k} = {text}")
        return f"!{k}"

    def int_meta(self, value: int) -> str:
        """A node of one i64."""
        return self.meta(f"!{{i64 {value}}}")

    def expected(self, true: bool) -> str:
        """The suffix of a branch that nearly always goes one way."""
        weights = "i32 2000, i32 1" if true else "i32 1, i32 2000"
        return f', !prof {self.meta(f"""!{{!"branch_weights", {weights}}}""")}'

    def meta_distinct(self, fields: str) -> str:
        """A distinct, self-referencing node: alias domains, scopes and loops are known by identity."""
        k = len(self.metadata)
        self.metadata.append(f"!{k} = distinct !{{!{k}{', ' + fields if fields else ''}}}")
        return f"!{k}"

    def meta_plain(self, text: str) -> str:
        """A distinct node of its own."""
        self.metadata.append(f"!{len(self.metadata)} = distinct {text}")
        return f"!{len(self.metadata) - 1}"

    def attributes(self, text: str) -> str:
        """An attribute group's number, `#k`."""
        return f"#{self.attribute_groups.setdefault(text, len(self.attribute_groups))}"

    # ---- lanes

    def broadcast_value(self, value: str, dtype: str, lanes: int) -> str:
        """A scalar value in every lane; `dtype` is the scalar's."""
        if value[0] != "%":
            return self.splat(value, with_lanes(dtype, lanes))
        one, many = self.reg(dtype), self.reg(with_lanes(dtype, lanes))
        first = self.op(f"insertelement {many} poison, {one} {value}, i64 0")
        return self.op(f"shufflevector {many} {first}, {many} poison, <{lanes} x i32> zeroinitializer")

    def vector_literal(self, values: list[int], dtype: str) -> str:
        """A constant vector of integers of the scalar `dtype`."""
        one = self.reg(dtype)
        return "<" + ", ".join(f"{one} {self.int_const(v, dtype)}" for v in values) + ">"

    def lanes_of(self, value: str, dtype: str) -> list[str]:
        """The lanes of a vector value, one by one."""
        info = dtype_info(dtype)
        if info.lanes == 1:
            return [value]
        return [self.op(f"extractelement {self.reg(dtype)} {value}, i64 {i}") for i in range(info.lanes)]

    def vector_of(self, values: list[str], dtype: str) -> str:
        """A vector of `dtype` from its lanes."""
        if dtype_info(dtype).lanes == 1:
            return values[0]
        many, one = self.reg(dtype), self.reg(dtype_info(dtype).element)
        out = "poison"
        for i, v in enumerate(values):
            out = self.op(f"insertelement {many} {out}, {one} {v}, i64 {i}")
        return out

    def zero(self, dtype: str) -> str:
        """The zero of a dtype, vectors included."""
        info = dtype_info(dtype)
        if info.lanes > 1:
            return "zeroinitializer"
        if info.kind == "handle":
            return "null"
        return self.float_const(0.0, dtype) if info.is_float else self.int_const(0, dtype)
