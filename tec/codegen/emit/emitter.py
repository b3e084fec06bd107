"""The one LLVM emitter: lowered functions in, a module of LLVM IR text out. It holds its parts; a target names those of its own.

In: `Func`s of stage "lowered" (1-D buffers, no te nodes; thread indices as `attrs["threads"]` of a kernel). Out: text that
`llvm_util` parses. The parts, each a class of its own file:

    values       variables, and what is provable of an index
    floats       8 and 16-bit floats that are held as integers
    arithmetic   expressions without memory or calls
    memory       where buffers lie, addresses, loads, stores, alias metadata
    statements   loops, branches, allocations
    frame        a function around its body: parameters, attributes, launch indices

A target is a subclass that names its parts (`parts`) and its table of calls (`calls`: barrier, shuffle_*, mma, async copies, dot4, ...), and
says what is true of it: triple, layout ("" takes the target machine's), which math LLVM lowers here (`native_math`), the scope of atomics.
"""

from __future__ import annotations

from typing import Any, ClassVar

from ...ir import expr as E
from ...ir.dtype import dtype_info
from ...ir.func import Func
from ...ir.visit import deep_recursion
from ...records import dataclass
from ...target import Target
from ..llvm_util import LLVMMachine
from .arithmetic import Arithmetic, Handler
from .calls import CALLS, EXACT_MATH, CallHandler, math_call
from .frame import Frame
from .line_info import FLAG, LineInfo
from .memory import Memory
from .narrow_atomics import EXTRACTING
from .small_floats import SmallFloats
from .statements import Statements
from .values import Values
from .writer import Writer, quote

__all__ = ["Emitter", "Parts", "quote"]


@dataclass(frozen=True)
class Parts:
    """The classes of an emitter's parts, in the order in which they are made: a part may keep words of those before it."""

    values: type[Values] = Values
    floats: type[SmallFloats] = SmallFloats
    arithmetic: type[Arithmetic] = Arithmetic
    memory: type[Memory] = Memory
    statements: type[Statements] = Statements
    frame: type[Frame] = Frame


class Emitter(Writer):
    """LLVM IR of functions for a target."""

    triple: ClassVar[str] = ""
    layout: ClassVar[str] = ""
    parts: ClassVar[Parts] = Parts()
    calls: ClassVar[dict[str, CallHandler]] = CALLS
    intrinsic_prefixes: ClassVar[tuple[str, ...]] = ()  # of target intrinsics that call_llvm_intrin may name
    atomic_scope: ClassVar[str] = ""  # e.g. 'syncscope("agent") '
    smallest_atomic: ClassVar[int] = 8  # bits of the smallest compare-and-swap of the chip
    alloca_space: ClassVar[int] = 0
    machine: LLVMMachine
    lines: LineInfo | None = None  # where the assembly names the user's lines
    user_intrinsics = False  # whether the code names intrinsics that the user chose

    def __init__(self, target: Target):
        super().__init__(target)
        kinds = self.parts
        self.values = kinds.values(self)
        self.floats = kinds.floats(self)
        self.arithmetic = kinds.arithmetic(self)
        self.memory = kinds.memory(self)
        self.statements = kinds.statements(self)
        self.frame = kinds.frame(self)
        self._parts = (self.values, self.floats, self.arithmetic, self.memory, self.statements, self.frame)
        self._handlers: dict[type, Handler] = {
            **self.arithmetic.handlers(),
            E.BufferLoad: self.memory.load,
            E.Call: self.call,
        }

    # ---- modules

    def emit(self, funcs: list[Func]) -> str:
        """The module's text. Raises CodegenError for what the target cannot express, and for two functions of one name."""
        names = [f.name for f in funcs]
        if len(set(names)) != len(names):
            raise self.error(f"two functions are called {next(n for n in names if names.count(n) > 1)!r}")
        for f in funcs:
            self.func_name, self.loc = f.name, None
            flags = f.attrs.get("fast_math")
            self.set_fast_math(self.target.fast_math if flags is None else tuple(flags))
            with deep_recursion():
                self.begin_frame()
                for part in self._parts:
                    part.begin(f)
                self.frame.function(f)
        self.func_name = ""
        flags_text = [*self.module_flags(), *([FLAG] if self.lines is not None and self.lines.unit else [])]
        lines = [f'target datalayout = "{self.layout}"'] if self.layout else []
        if self.triple:
            lines.append(f'target triple = "{self.triple}"')
        lines += ["", *self.globals, "", *self.functions, *self.declarations.values(), ""]
        lines += [f"attributes #{k} = {{ {text} }}" for text, k in self.attribute_groups.items()]
        if flags_text:
            nodes = [self.meta(f) for f in flags_text]
            lines += ["", f"!llvm.module.flags = !{{{', '.join(nodes)}}}"]
        if self.lines is not None and self.lines.unit:
            lines.append(f"!llvm.dbg.cu = !{{{self.lines.unit}}}")
        lines += self.metadata
        return self.finish("\n".join(lines) + "\n")

    def module_flags(self) -> list[str]:
        """Module flag nodes, e.g. '!{i32 1, !"amdhsa_code_object_version", i32 500}'."""
        return []

    def finish(self, text: str) -> str:
        """The last word on the module's text."""
        return text

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
        handler = self._handlers.get(t)
        if handler is None:
            raise self.error(f"{t.__name__} cannot reach code generation")
        value = handler(e)
        self.memo[key] = value
        self.memo_log.append((key, e))  # the node too, so that no other one gets its id meanwhile
        return value

    def index(self, e: E.Expr) -> str:
        """The value of an index or loop bound: what it computes from loop variables and sizes is taken not to overflow."""
        before, self.in_index = self.in_index, True
        value = self.expr(e)
        self.in_index = before
        return value

    # ---- calls

    def call(self, e: E.Call) -> str:
        handler = self.calls.get(e.op) or CALLS.get(e.op)
        return self.math(e) if handler is None else handler(self, e)

    math = math_call  # a float function that has no lowering of its own

    def native_math(self, op: str, dtype: str) -> str | None:
        """The intrinsic ("llvm.sqrt") or C function ("expf") that computes `op` on scalars of `dtype`; None: the target has none.

        Float ops only; a target's whitelist extends this one.
        """
        exact = EXACT_MATH.get(op)
        return f"llvm.{exact}" if exact else None

    def scope_of_atomic(self, scope: str) -> str:
        """The syncscope of an atomic on memory of `scope`."""
        return self.atomic_scope

    def needs_rounding_to(self, float_type: str) -> None:
        """Said before an operation of LLVM's on 16-bit floats, which it may round to by a function of its runtime library."""

    def atomic_by_words(self, how: str, dtype: str) -> bool:
        """Whether an atomic operation (LLVM's name) on elements of a type is one on the word around them."""
        return dtype_info(dtype).bits < self.smallest_atomic and how in EXTRACTING

    def atomic_suffix(self, e: E.Call) -> str:
        """Metadata of an atomic operation."""
        return ""
