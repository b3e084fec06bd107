"""The emitter's state and vocabulary: LLVM types and literals, values, blocks, metadata, declarations, facts about indices.

LLVM IR is written as text: a value is the string that names it ("%v12", "i32 7" without the type: "7"), a line is a
string. That is several times faster than building IR objects and it is what LLVM's own tests read. `Core` knows nothing of
statements or memory; `arithmetic`, `calls`, `memory` and `statements` add these on top, `emitter`
puts functions and modules together. Source for the syntax: the LLVM Language Reference, version 22.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

from ...errors import CodegenError, Loc
from ...ir import expr as E
from ...ir.buffer import Buffer
from ...ir.build import round_float
from ...ir.dtype import DTypeInfo, dtype_info
from ...target import Target
from .float_formats import FORMATS

Handler = Callable[[Any, Any], str]
_FLOAT_TYPES = {"float16": "half", "bfloat16": "bfloat", "float32": "float", "float64": "double"}
_UNKNOWN_MULTIPLE = 1
MAX_MULTIPLE = 1 << 20  # an expression that is always 0 is a multiple of anything: this much is enough to know


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


class Core:
    """State of one module under construction and of the function being written."""

    native_bfloat: ClassVar[bool] = False  # LLVM's bfloat arithmetic lowers to what the IR means; else bits and f32
    native_half: bool = True  # the same for half; without hardware LLVM calls library functions that may be missing
    exact_half_from_double: ClassVar[bool] = True  # fptrunc double to half lowers without a library call
    # Whether llvm.fpto*i.sat of half is right; LLVM 22 with avx512fp16 gives -32768 for the int16 of NaN.
    saturates_half: ClassVar[bool] = True
    pointer_bits: ClassVar[int] = 64
    expr_handlers: ClassVar[dict[type, Handler]] = {}

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
        self.pointers: dict[int, Pointer] = {}
        self.memo: dict[int, str] = {}
        self.memo_log: list[int] = []
        self.keep: list[Any] = []
        self.in_index = False  # an index is being written: sums of loop variables and sizes in it never overflow
        self.data_vars: set[int] = set()  # variables whose values come from memory: they may be anything
        self._pure: dict[int, bool] = {}
        self.nonneg_vars: set[int] = set()
        self.multiples: dict[int, int] = {}

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
            dtype.startswith("float8")
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
        return self.type_of(dtype).reg

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
            memo.pop(log.pop(), None)

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

    # ---- expressions

    def expr(self, e: Any) -> str:
        """The value of an expression; a node met twice where its first value dominates is written once."""
        t = type(e)
        if t is E.Var:
            value = self.vars.get(id(e))
            if value is None:
                raise self.error(f"variable {e.name!r} has no value here")
            return value
        if t is E.IntImm:
            return self.int_const(e.value, e.dtype)
        if t is E.FloatImm:
            return self.float_const(e.value, e.dtype)
        key = ~id(e) if self.in_index else id(e)
        value = self.memo.get(key)
        if value is not None:
            return value
        handler = self.expr_handlers.get(t)
        if handler is None:
            raise self.error(f"{t.__name__} cannot reach code generation")
        value = handler(self, e)
        self.memo[key] = value
        self.memo_log.append(key)
        return value

    def index(self, e: E.Expr) -> str:
        """The value of an index or loop bound: what it computes from loop variables and sizes is taken not to overflow."""
        before, self.in_index = self.in_index, True
        value = self.expr(e)
        self.in_index = before
        return value

    def is_pure(self, e: Any) -> bool:
        """Whether an expression is made of loop variables, sizes and constants alone: what is loaded may wrap around or be 0."""
        t = type(e)
        if t is E.Var:
            return id(e) not in self.data_vars
        if t is E.IntImm:
            return True
        known = self._pure.get(id(e))
        if known is None:
            if isinstance(e, (E.BinaryExpr, E.CmpExpr)):
                known = self.is_pure(e.a) and self.is_pure(e.b)
            elif t is E.Ramp:
                known = self.is_pure(e.base) and self.is_pure(e.stride)
            elif t is E.Broadcast or t is E.Cast:
                known = dtype_info(e.value.dtype).kind in ("int", "uint", "bool") and self.is_pure(e.value)
            elif t is E.Select:
                known = self.is_pure(e.cond) and self.is_pure(e.a) and self.is_pure(e.b)
            else:
                known = t is E.Call and e.op == "likely" and self.is_pure(e.args[0])
            self._pure[id(e)] = known
        return known

    # ---- facts about indices

    def is_nonneg(self, e: Any) -> bool:
        """Whether an index expression is provably not negative (given that it does not overflow)."""
        t = type(e)
        if t is E.Var:
            return bool(e.is_size) or id(e) in self.nonneg_vars
        if t is E.IntImm:
            return bool(e.value >= 0)
        if t in (E.Add, E.Mul, E.Div, E.FloorDiv, E.Min, E.Mod):
            if t is E.Mod:
                return self.is_nonneg(e.a)
            return self.is_nonneg(e.a) and self.is_nonneg(e.b)
        if t is E.Max:
            return self.is_nonneg(e.a) or self.is_nonneg(e.b)
        if t is E.FloorMod:
            return self.is_nonneg(e.b)
        if t is E.Cast:
            src, dst = dtype_info(e.value.dtype), dtype_info(e.dtype)
            return (src.kind in ("uint", "bool") and dst.bits > src.bits) or (
                src.kind == "int" and dst.bits >= src.bits and self.is_nonneg(e.value)
            )
        if t is E.Ramp or t is E.Broadcast:
            return all(self.is_nonneg(c) for c in ((e.base, e.stride) if t is E.Ramp else (e.value,)))
        return dtype_info(e.dtype).kind == "uint"

    def multiple_of(self, e: Any) -> int:
        """A power of two that provably divides an index expression."""
        t = type(e)
        if t is E.Var:
            return self.multiples.get(id(e), _UNKNOWN_MULTIPLE)
        if t is E.IntImm:
            value: int = e.value
            return min(value & -value, MAX_MULTIPLE) or MAX_MULTIPLE
        if t is E.Add or t is E.Sub or t is E.Min or t is E.Max:
            return math.gcd(self.multiple_of(e.a), self.multiple_of(e.b))
        if t is E.Mul:
            return min(self.multiple_of(e.a) * self.multiple_of(e.b), MAX_MULTIPLE)
        if t is E.Select:
            return math.gcd(self.multiple_of(e.a), self.multiple_of(e.b))
        if (t is E.FloorMod or t is E.Mod) and type(e.b) is E.IntImm:
            return math.gcd(self.multiple_of(e.a), e.b.value) or 1
        if (t is E.FloorDiv or t is E.Div) and type(e.b) is E.IntImm:
            m, d = self.multiple_of(e.a), abs(e.b.value)
            return m // d if d and m % d == 0 else 1
        if t is E.Cast and dtype_info(e.value.dtype).is_int:
            return self.multiple_of(e.value)
        return _UNKNOWN_MULTIPLE

    def pointer(self, buffer: Buffer) -> Pointer:
        """Where a buffer lies; raises CodegenError for one that is neither a parameter nor allocated here."""
        p = self.pointers.get(id(buffer.data))
        if p is None:
            raise self.error(f"buffer {buffer.name!r} is neither a parameter nor allocated around its use")
        return p
