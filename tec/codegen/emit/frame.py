"""The frame of a function: its parameters, launch indices and attributes, around the statements of its body. Here a kernel's."""

from __future__ import annotations

from ...ir import expr as E
from ...ir import stmt as S
from ...ir.buffer import Buffer
from ...ir.dtype import dtype_info
from ...ir.effects import written_params
from ...ir.func import Func
from ...ir.visit import map_stmts
from .part import Part
from .statements import clean_name
from .writer import quote


class Frame(Part):
    """A kernel of a GPU-like target; a CPU has another frame."""

    def function(self, f: Func) -> None:
        """Write one kernel."""
        writes = written_params(f)
        self.em.memory.begin_aliases(alias_groups(f))
        params: list[str] = []
        for p in f.params:
            self.em.counter += 1
            name = f"%{clean_name(p.name)}.{self.em.counter}"
            if isinstance(p, Buffer):
                read_only = id(p.data) not in writes
                params.append(f"{self.pointer_type(p.scope)} {self.param_attributes(f, p, read_only)}{name}")
                self.em.memory.bind_buffer(p, name, self.address_space(p.scope), p.align_bytes, read_only)
            else:
                params.append(self._scalar_param(p, name))
        for v in f.implicit_vars():
            self.em.counter += 1
            params.append(self._scalar_param(v, f"%{clean_name(v.name)}.{self.em.counter}"))
        for tag, (var, extent) in f.attrs.get("threads", {}).items():
            self.em.values.bind(var, self.em.arithmetic.convert(self.thread_index(tag, extent), "int32", var.dtype))
            self.em.values.nonneg_vars.add(id(var))
        self.begin_body(f)
        self.em.statements.stmt(f.body)
        self.line("ret void")
        scope = self.em.lines.place(self.em.out, self.em.marks, f.name) if self.em.lines is not None else None
        debug = f"!dbg {scope} " if scope else ""
        head = f"define {self.kernel_convention()}void {quote(f.name)}({', '.join(params)}) {self.em.attributes(self.function_attributes(f))} {debug}{{"
        self.em.functions += [head, "entry:", *self.em.allocas, *self.em.out, "}", ""]

    def begin_body(self, f: Func) -> None:
        """What a kernel does before all else."""

    def _scalar_param(self, v: E.Var, name: str) -> str:
        t = self.type_of(v.dtype)
        if t.kind == "bool":
            self.em.values.bind(v, self.op(f"trunc i8 {name} to i1"))
        else:
            self.em.values.bind(v, name)
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
        count = self.em.statements.elements(b)
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
        return map_stmts(s, walk)

    walk(f.body)
    return groups
