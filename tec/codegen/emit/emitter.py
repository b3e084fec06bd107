"""The one LLVM emitter: lowered functions in, a module of LLVM IR text out. A target is a subclass of a few hooks.

In: `Func`s of stage "lowered" (1-D buffers, no te nodes; thread indices as `attrs["threads"]` of a kernel). Out: text that
`llvm_util` parses. A target overrides, as it needs to:

    triple, layout             text of the module header (`layout` "" takes the target machine's)
    address_space(scope)       number of the address space of "global", "shared", "local"
    kernel_convention()        what stands between `define` and the result: "amdgpu_kernel "
    function_attributes(func)  attribute list of a kernel
    param_attributes(...)      attributes of a buffer parameter
    thread_index(tag, extent)  the value of blockIdx.x, threadIdx.y, ...
    calls                      table of Call handlers: barrier, shuffle_*, ballot, mma, atomics, async copies, dot4
    native_math(op, dtype)     the whitelist of math that LLVM lowers here
    intrinsic_prefixes         of target intrinsics that users may call
    offset(...)                how an index becomes an address offset
    alloc_shared, alloc_local, alloc_global, parallel, assert_failed
    module_flags(), finish(text)
"""

from __future__ import annotations

from typing import ClassVar

from ...ir import expr as E
from ...ir import stmt as S
from ...ir.buffer import Buffer
from ...ir.dtype import dtype_info
from ...ir.effects import written_params
from ...ir.func import Func
from ...ir.visit import deep_recursion, map_stmt
from .arithmetic import EXPR_HANDLERS
from .calls import CALLS, CallHandler
from .line_info import FLAG, LineInfo
from .memory import Memory
from .statements import STMT_HANDLERS, Statements, StmtHandler, _clean
from .writer import Handler, quote

__all__ = ["Emitter", "quote"]


class Emitter(Statements):
    """LLVM IR of kernels for a GPU-like target; `cpu.CpuEmitter` replaces the function frame."""

    triple: ClassVar[str] = ""
    layout: ClassVar[str] = ""
    expr_handlers: ClassVar[dict[type, Handler]] = {**EXPR_HANDLERS, E.BufferLoad: Memory.load, E.Call: Memory.call}
    stmt_handlers: ClassVar[dict[type, StmtHandler]] = STMT_HANDLERS
    calls: ClassVar[dict[str, CallHandler]] = CALLS
    lines: LineInfo | None = None  # where the assembly names the user's lines

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
                self.function(f)
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

    # ---- kernels

    def function(self, f: Func) -> None:
        """Write one kernel."""
        self.begin_frame()
        writes = written_params(f)
        self.begin_aliases(alias_groups(f))
        params: list[str] = []
        for p in f.params:
            self.counter += 1
            name = f"%{_clean(p.name)}.{self.counter}"
            if isinstance(p, Buffer):
                read_only = id(p.data) not in writes
                params.append(f"{self.pointer_type(p.scope)} {self.param_attributes(f, p, read_only)}{name}")
                self.bind_buffer(p, name, self.address_space(p.scope), p.align_bytes, read_only)
            else:
                params.append(self._scalar_param(p, name))
        for v in f.implicit_vars():
            self.counter += 1
            params.append(self._scalar_param(v, f"%{_clean(v.name)}.{self.counter}"))
        for tag, (var, extent) in f.attrs.get("threads", {}).items():
            self.bind(var, self.convert(self.thread_index(tag, extent), "int32", var.dtype))
            self.nonneg_vars.add(id(var))
        self.begin_body(f)
        self.stmt(f.body)
        self.line("ret void")
        scope = self.lines.place(self.out, self.marks, f.name) if self.lines is not None else None
        debug = f"!dbg {scope} " if scope else ""
        head = f"define {self.kernel_convention()}void {quote(f.name)}({', '.join(params)}) {self.attributes(self.function_attributes(f))} {debug}{{"
        self.functions += [head, "entry:", *self.allocas, *self.out, "}", ""]

    def begin_body(self, f: Func) -> None:
        """What a kernel does before all else."""

    def _scalar_param(self, v: E.Var, name: str) -> str:
        t = self.type_of(v.dtype)
        if t.kind == "bool":
            self.bind(v, self.op(f"trunc i8 {name} to i1"))
        else:
            self.bind(v, name)
        return f"{t.mem} {name}"

    def pointer_type(self, scope: str) -> str:
        space = self.address_space(scope)
        return f"ptr addrspace({space})" if space else "ptr"

    def address_space(self, scope: str) -> int:
        """The LLVM address space of a memory scope."""
        return 0

    def kernel_convention(self) -> str:
        return ""

    def function_attributes(self, f: Func) -> str:
        return "nounwind"

    def param_attributes(self, f: Func, b: Buffer, read_only: bool) -> str:
        """Attributes of a buffer parameter, with a space after them."""
        words = ["noundef"]
        if f.attrs.get("noalias", True):
            words.append("noalias")
        if read_only:
            words.append("readonly")
        words.append(f"align {max(b.align_bytes, dtype_info(b.dtype).bytes)}")
        count = self.elements(b)
        if count and not b.strides:
            words.append(f"dereferenceable({count * dtype_info(b.dtype).bytes * dtype_info(b.dtype).lanes})")
        return " ".join(words) + " "

    def thread_index(self, tag: str, extent: E.Expr) -> str:
        """The i32 value of a launch index."""
        raise self.error(f"this target has no launch index {tag}")


def alias_groups(f: Func) -> list[tuple[Buffer, ...]]:
    """The function's buffers in groups that do not overlap: each allocation for itself; parameters too, unless
    `attrs["noalias"]` is False, which puts them all in one."""
    params = [p for p in f.params if isinstance(p, Buffer)]
    groups: list[tuple[Buffer, ...]] = (
        [(p,) for p in params] if f.attrs.get("noalias", True) else [tuple(params)] if params else []
    )
    seen = {id(p.data) for p in params}

    def walk(s: S.Stmt) -> S.Stmt:
        if isinstance(s, S.Alloc) and id(s.buffer.data) not in seen:
            seen.add(id(s.buffer.data))
            groups.append((s.buffer,))
        return map_stmt(s, walk, lambda e: e)

    walk(f.body)
    return groups
