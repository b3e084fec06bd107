"""Loads and stores: scalar, contiguous vectors, strided and gathered vectors, predicated lanes.

A vector index is looked at as `base + stride * lane` where it can be: stride 1 is one vector access with the alignment
that the base provably has, stride -1 the same reversed, stride 0 a scalar. Anything else goes lane by lane, or by gather
and scatter where the target has them. Buffers are told apart by alias scopes on every access, which survive inlining and
outlining.
"""

from __future__ import annotations

from collections.abc import Container, Iterable
from typing import TYPE_CHECKING, Any

from ...ir import expr as E
from ...ir import stmt as S
from ...ir.arith.analyzer import conjuncts
from ...ir.buffer import Buffer
from ...ir.dtype import dtype_info, with_lanes
from ...ir.func import Func
from ...ir.visit import visit, walk_exprs
from .part import Part
from .values import MAX_MULTIPLE
from .writer import Pointer

if TYPE_CHECKING:
    from .emitter import Emitter


class Memory(Part):
    """BufferLoad, BufferStore, addresses, alias metadata."""

    gather_bits: tuple[int, ...] = ()  # element widths that gathers serve well
    _counted: frozenset[int] | None  # see `_parted`

    def __init__(self, em: Emitter):
        super().__init__(em)
        values = em.values
        self.is_pure, self.is_nonneg, self.multiple_of = values.is_pure, values.is_nonneg, values.multiple_of

    def begin(self, f: Func) -> None:
        self.pointers: dict[int, Pointer] = {}
        self._body, self._counted = f.body, None

    def pointer(self, buffer: Buffer) -> Pointer:
        """Where a buffer lies; raises CodegenError for one that is neither a parameter nor allocated here."""
        p = self.pointers.get(id(buffer.data))
        if p is None:
            raise self.error(f"buffer {buffer.name!r} is neither a parameter nor allocated around its use")
        return p

    def load_of(self, e: E.Expr, what: str) -> E.BufferLoad:
        """The element of a buffer that a call takes."""
        if not isinstance(e, E.BufferLoad):
            raise self.error(f"{what} takes an element of a buffer, not {type(e).__name__}")
        return e

    # ---- aliasing

    def begin_aliases(self, groups: Iterable[tuple[Buffer, ...]]) -> None:
        """Give each group of buffers an alias scope of its own: accesses of different groups never overlap."""
        self.alias_suffix: dict[int, str] = {}
        self.last_suffix = ""  # of the last group
        listed = list(groups)
        if len(listed) < 2:
            return
        domain = self.meta_distinct("")
        scopes = [self.meta_distinct(domain) for _ in listed]
        for k, group in enumerate(listed):
            own = self.meta("!{" + scopes[k] + "}")
            others = self.meta("!{" + ", ".join(s for j, s in enumerate(scopes) if j != k) + "}")
            self.last_suffix = f", !alias.scope {own}, !noalias {others}"
            for buffer in group:
                self.alias_suffix[id(buffer.data)] = self.last_suffix

    def guarded_load(self, e: E.Call) -> str | None:
        """The value of an `if_then_else` around a load, without a branch; None where the target has no such load."""
        return None

    def bind_buffer(self, buffer: Buffer, value: str, space: int = 0, align: int = 0, read_only: bool = False) -> None:
        """Say where a buffer lies; `align` is what its pointer is known to have, in bytes."""
        suffix = self.alias_suffix.get(id(buffer.data), "")
        type_ = f"ptr addrspace({space})" if space else "ptr"
        natural = dtype_info(buffer.dtype).bytes
        load = suffix + (self.read_only_suffix() if read_only else "")
        self.pointers[id(buffer.data)] = Pointer(value, type_, max(align, natural), suffix, load)

    def read_only_suffix(self) -> str:
        """Metadata of loads from memory that the function never writes."""
        return ""

    # ---- addresses

    def offset(self, p: Pointer, buffer: Buffer, index: E.Expr) -> tuple[str, str]:
        """An element index as (type, value) for getelementptr, which sign-extends."""
        value, dtype = self.index(index), index.dtype
        info = dtype_info(dtype)
        if info.kind == "uint" and info.bits < 64:
            value, dtype = self.op(f"zext {self.reg(dtype)} {value} to i64"), "int64"
        return self.reg(dtype), value

    def address(self, buffer: Buffer, index: E.Expr) -> tuple[str, Pointer]:
        """The pointer to a scalar index, and the buffer's facts."""
        p = self.pointer(buffer)
        if isinstance(index, E.IntImm) and index.value == 0:
            return p.value, p
        type_, offset = self.offset(p, buffer, index)
        return self.op(
            f"getelementptr inbounds {self.type_of(buffer.dtype).element}, {p.type} {p.value}, {type_} {offset}"
        ), p

    def element_pointer(self, load: E.BufferLoad) -> tuple[str, str]:
        """The address of a buffer's element, and its pointer type."""
        index = self.only_index(load)
        base = self.lane_form(index)
        value, p = self.address(load.buffer, base[0] if base else index)
        return value, p.type

    def only_index(self, access: E.BufferLoad | S.BufferStore) -> E.Expr:
        """The index of a flattened access."""
        if len(access.indices) != 1:
            raise self.error(
                f"buffer {access.buffer.name!r} is accessed with {len(access.indices)} indices: it was not flattened"
            )
        return access.indices[0]

    def alignment(self, p: Pointer, buffer: Buffer, index: E.Expr, bytes_: int) -> int:
        """The largest provable alignment of an access of `bytes_` at a scalar index."""
        element = self.type_of(buffer.dtype).info
        step = element.bytes * element.lanes
        known = min(self.multiple_of(index) * (step & -step), MAX_MULTIPLE)
        size = 1 << (max(bytes_, 1) - 1).bit_length()
        return min(p.align & -p.align, known, max(size, element.bytes))

    # ---- the shape of a vector index

    def lane_form(self, index: Any) -> tuple[E.Expr, int] | None:
        """(base, stride) of an index that is base + stride * lane with a constant stride; None otherwise.

        Only signed indices of 32 or 64 bits: those do not wrap around.
        """
        t = type(index)
        info = dtype_info(index.dtype)
        if info.kind != "int" or info.bits < 32:
            return None
        if t is E.Ramp:
            return (index.base, index.stride.value) if isinstance(index.stride, E.IntImm) else None
        if t is E.Broadcast:
            return (index.value, 0) if dtype_info(index.value.dtype).lanes == 1 else None
        base: E.Expr
        if t is E.Cast:
            inner = self.lane_form(index.value)
            if inner is None or info.lanes == 1:
                return None
            base, stride = E.Cast(info.element, inner[0]), inner[1]
        elif t in (E.Add, E.Sub, E.Mul):
            a, b = self.lane_form(index.a), self.lane_form(index.b)
            if a is None or b is None:
                return None
            base = t(a[0], b[0])
            if t is E.Mul:
                scale, scaled = (a, b) if a[1] == 0 else (b, a)
                if scaled[1] and not (scale[1] == 0 and isinstance(scale[0], E.IntImm)):
                    return None
                stride = scaled[1] * scale[0].value if isinstance(scale[0], E.IntImm) else 0
            else:
                stride = a[1] + b[1] if t is E.Add else a[1] - b[1]
        else:
            return None
        self.em.keep.append(base)
        return base, stride

    # ---- loads

    def load(self, e: E.BufferLoad) -> str:
        index = self.only_index(e)
        if dtype_info(index.dtype).lanes == 1:
            return self._load_scalar(e, index)
        return self._load_vector(e, index)

    def _load_scalar(self, e: E.BufferLoad, index: E.Expr) -> str:
        if e.predicate is None:
            return self.load_at(e.buffer, index)
        cond = self.expr(e.predicate)
        start, inside, join = self.em.block, self.label("load"), self.label("join")
        self.branch_if(cond, inside, join)
        self.place(inside)
        mark = self.memo_mark()
        value = self.load_at(e.buffer, index)
        self.memo_release(mark)
        end = self.em.block
        self.branch(join)
        self.place(join)
        return self.phi(self.reg(e.dtype), (value, end), (self.zero(e.dtype), start))

    def load_at(self, buffer: Buffer, index: E.Expr) -> str:
        """Load the element at a scalar index."""
        address, p = self.address(buffer, index)
        t = self.type_of(buffer.dtype)
        align = self.alignment(p, buffer, index, t.info.bytes * t.info.lanes)
        value = self.op(f"load {t.mem}, {p.type} {address}, align {align}{p.load_suffix}")
        return self.from_memory(value, buffer.dtype)

    def from_memory(self, value: str, dtype: str) -> str:
        """A loaded value in its register type: bools are bytes in memory."""
        t = self.type_of(dtype)
        return (
            self.op(f"icmp ne {t.mem} {value}, {'zeroinitializer' if t.info.lanes > 1 else '0'}")
            if t.kind == "bool"
            else value
        )

    def to_memory(self, value: str, dtype: str) -> str:
        t = self.type_of(dtype)
        return self.op(f"zext {t.reg} {value} to {t.mem}") if t.kind == "bool" else value

    def _load_vector(self, e: E.BufferLoad, index: E.Expr) -> str:
        form = self.lane_form(index)
        lanes = dtype_info(index.dtype).lanes
        own = dtype_info(e.buffer.dtype).lanes
        if form is not None and form[1] == 0 and e.predicate is None:
            value = self.load_at(e.buffer, form[0])
            if own == 1:
                return self.broadcast_value(value, e.buffer.dtype, lanes)
        if form is not None and form[1] == 1:
            return self._load_contiguous(e.buffer, form[0], e.dtype, e.predicate)
        if own != 1:
            raise self.error(f"buffer {e.buffer.name!r} of {e.buffer.dtype} is loaded with a strided vector index")
        if form is not None and form[1] == -1:
            return self._load_reversed(e, form[0], lanes)
        return self._load_lanes(e, index, form, lanes)

    def _load_contiguous(
        self, buffer: Buffer, base: E.Expr, dtype: str, predicate: E.Expr | None, mask: str = ""
    ) -> str:
        t = self.type_of(dtype)
        address, p = self.address(buffer, base)
        align = self.alignment(p, buffer, base, t.info.bytes * t.info.lanes)
        if predicate is None and not mask:
            return self.from_memory(self.op(f"load {t.mem}, {p.type} {address}, align {align}{p.load_suffix}"), dtype)
        mask = mask or self.mask_of(predicate, t.info.lanes)
        value = self.masked_load(address, p, align, mask, dtype)
        return self.from_memory(value, dtype)

    def mask_of(self, predicate: E.Expr | None, lanes: int) -> str:
        """A predicate as a mask of `lanes` lanes."""
        if predicate is None:
            return "splat (i1 true)"
        have = dtype_info(predicate.dtype).lanes
        fixed, rest = self._parted(predicate) if have == lanes > 1 and not self.em.target.is_gpu else ([], [])
        if fixed and rest:
            type_, value = f"<{lanes} x i1>", self._hidden(fixed, lanes)
            for c in rest:
                value = self.op(f"and {type_} {value}, {self.expr(c)}")
            return value
        value = self.expr(predicate)
        if have == 1:
            return self.broadcast_value(value, "bool", lanes)
        if have == lanes:
            return value
        if lanes % have:
            raise self.error(f"predicate of {have} lanes on an access of {lanes}")
        picks = ", ".join(f"i32 {i // (lanes // have)}" for i in range(lanes))
        return self.op(f"shufflevector <{have} x i1> {value}, <{have} x i1> poison, <{lanes} x i32> <{picks}>")

    def _parted(self, predicate: E.Expr) -> tuple[list[E.Expr], list[E.Expr]]:
        """The conditions of a predicate that are known of every lane, at the latest when loops of constant extents are written out; and the others."""
        parts = conjuncts(predicate)
        if len(parts) == 1:
            return [], parts
        if self._counted is None:
            self._counted = _counted(self._body)
        fixed: list[E.Expr] = []
        rest: list[E.Expr] = []
        for c in parts:
            (fixed if _is_counted(c, self._counted) else rest).append(c)
        return fixed, rest

    def _hidden(self, fixed: list[E.Expr], lanes: int) -> str:
        """Conditions that are known of every lane, as a mask that LLVM does not see through. Of a mask that it knows to be false in half of the lanes, and not in the others,
        LLVM 22 drops that half (x86 without AVX-512: a vector of two registers is loaded whole), or ends the process (`LocationSize::getValue`)."""
        mask, bytes_ = f"<{lanes} x i1>", f"<{lanes} x i8>"
        value = self.expr(fixed[0])
        for c in fixed[1:]:
            value = self.op(f"and {mask} {value}, {self.expr(c)}")
        one = self.op('call i32 asm "", "=r,0"(i32 1) nounwind memory(none)')
        first = self.op(f"insertelement {bytes_} poison, i8 {self.op(f'trunc i32 {one} to i8')}, i64 0")
        ones = self.op(f"shufflevector {bytes_} {first}, {bytes_} poison, <{lanes} x i32> zeroinitializer")
        return self.op(f"icmp uge {bytes_} {self.op(f'zext {mask} {value} to {bytes_}')}, {ones}")

    def masked_load(self, address: str, p: Pointer, align: int, mask: str, dtype: str) -> str:
        """A contiguous load of the lanes that the mask has; the others are 0."""
        t = self.type_of(dtype)
        n = t.info.lanes
        one = with_lanes("uint8", n) if t.kind == "bool" else dtype
        space = p.type.partition("(")[2].rstrip(")") or "0"
        name = f"llvm.masked.load.{self.mangle(one)}.p{space}"
        self.em.declarations.setdefault(name, f"declare {t.mem} @{name}({p.type}, <{n} x i1>, {t.mem})")
        return self.op(
            f"call {t.mem} @{name}({p.type} align {align} {address}, <{n} x i1> {mask}, {t.mem} zeroinitializer){p.load_suffix}"
        )

    def reverse(self, value: str, type_: str, lanes: int) -> str:
        picks = ", ".join(f"i32 {lanes - 1 - i}" for i in range(lanes))
        return self.op(f"shufflevector {type_} {value}, {type_} poison, <{lanes} x i32> <{picks}>")

    def _lowest(self, base: E.Expr, lanes: int) -> E.Expr:
        low = E.Sub(base, E.IntImm(lanes - 1, base.dtype))
        self.em.keep.append(low)
        return low

    def _load_reversed(self, e: E.BufferLoad, base: E.Expr, lanes: int) -> str:
        mask = "" if e.predicate is None else self.reverse(self.mask_of(e.predicate, lanes), f"<{lanes} x i1>", lanes)
        value = self._load_contiguous(e.buffer, self._lowest(base, lanes), e.dtype, None, mask)
        return self.reverse(value, self.reg(e.dtype), lanes)

    def _load_lanes(self, e: E.BufferLoad, index: E.Expr, form: tuple[E.Expr, int] | None, lanes: int) -> str:
        """A vector whose lanes do not lie side by side: by a gather where the target has one for the type, else lane by lane."""
        t, one = self.type_of(e.dtype), self.type_of(e.buffer.dtype)
        p = self.pointer(e.buffer)
        if one.info.bits in self.gather_bits and one.kind != "bool":
            pointers, n = self.lane_pointers(e.buffer, index, p), lanes
            mask = self.mask_of(e.predicate, n)
            name = f"llvm.masked.gather.{self.mangle(e.dtype)}.v{n}p{p.type.partition('(')[2].rstrip(')') or '0'}"
            vec = f"<{n} x {p.type}>"
            self.em.declarations.setdefault(name, f"declare {t.mem} @{name}({vec}, <{n} x i1>, {t.mem})")
            return self.op(
                f"call {t.mem} @{name}({vec} align {one.info.bytes} {pointers}, <{n} x i1> {mask}, {t.mem} zeroinitializer){p.load_suffix}"
            )
        masks = (
            self.lanes_of(self.mask_of(e.predicate, lanes), with_lanes("bool", lanes))
            if e.predicate is not None
            else []
        )
        many, out = t.mem, "zeroinitializer" if masks else "poison"
        for i, address in enumerate(self.lane_addresses(e.buffer, index, form, p, lanes)):

            def insert(out: str = out, address: str = address, i: int = i) -> str:
                x = self.op(f"load {one.mem}, {p.type} {address}, align {one.info.bytes}{p.load_suffix}")
                return self.op(f"insertelement {many} {out}, {one.mem} {x}, i64 {i}")

            if not masks:
                out = insert()
                continue
            start, inside, join = self.em.block, self.label("lane"), self.label("join")
            self.branch_if(masks[i], inside, join)
            self.place(inside)
            new = insert()
            self.branch(join)
            self.place(join)
            out = self.phi(many, (new, inside), (out, start))
        return self.from_memory(out, e.dtype)

    def lane_pointers(self, buffer: Buffer, index: E.Expr, p: Pointer) -> str:
        """A vector of pointers for a vector index."""
        value, info = self.index(index), dtype_info(index.dtype)
        return self.op(
            f"getelementptr inbounds {self.type_of(buffer.dtype).element}, {p.type} {p.value}, <{info.lanes} x i{info.bits}> {value}"
        )

    def lane_addresses(
        self, buffer: Buffer, index: E.Expr, form: tuple[E.Expr, int] | None, p: Pointer, lanes: int
    ) -> list[str]:
        """The address of each lane."""
        mem = self.type_of(buffer.dtype).element
        if form is not None:
            first, _ = self.address(buffer, form[0])
            return [
                first
                if i * form[1] == 0
                else self.op(f"getelementptr inbounds {mem}, {p.type} {first}, i64 {i * form[1]}")
                for i in range(lanes)
            ]
        info = dtype_info(index.dtype)
        return [
            self.op(f"getelementptr inbounds {mem}, {p.type} {p.value}, i{info.bits} {x}")
            for x in self.lanes_of(self.index(index), index.dtype)
        ]

    # ---- stores

    def store(self, s: S.BufferStore) -> None:
        """Write a BufferStore; a scalar value at a vector index goes to every lane."""
        index = self.only_index(s)
        lanes = dtype_info(index.dtype).lanes
        own = dtype_info(s.buffer.dtype)
        wanted = with_lanes(s.buffer.dtype, lanes * own.lanes)
        value = self.expr(s.value)
        if s.value.dtype != wanted:
            if dtype_info(s.value.dtype).lanes == 1 and s.value.dtype == own.element:
                value = self.broadcast_value(value, own.element, lanes * own.lanes)
            else:
                raise self.error(f"a value of {s.value.dtype} is stored in buffer {s.buffer.name!r} as {wanted}")
        value = self.to_memory(value, wanted)
        if lanes == 1:
            self._store_scalar(s, index, value)
        else:
            self._store_vector(s, index, value, lanes, wanted)

    def _store_scalar(self, s: S.BufferStore, index: E.Expr, value: str) -> None:
        t = self.type_of(s.buffer.dtype)
        join = ""
        if s.predicate is not None:
            cond, inside, join = self.expr(s.predicate), self.label("store"), self.label("join")
            self.branch_if(cond, inside, join)
            self.place(inside)
        address, p = self.address(s.buffer, index)
        align = self.alignment(p, s.buffer, index, t.info.bytes * t.info.lanes)
        self.line(f"store {t.mem} {value}, {p.type} {address}, align {align}{p.suffix}")
        if join:
            self.branch(join)
            self.place(join)

    def _store_vector(self, s: S.BufferStore, index: E.Expr, value: str, lanes: int, dtype: str) -> None:
        form = self.lane_form(index)
        t = self.type_of(dtype)
        if form is not None and form[1] == -1 and t.info.lanes == lanes:
            value = self.reverse(value, t.mem, lanes)
            mask = (
                "" if s.predicate is None else self.reverse(self.mask_of(s.predicate, lanes), f"<{lanes} x i1>", lanes)
            )
            self.store_contiguous(s.buffer, self._lowest(form[0], lanes), value, dtype, mask)
        elif form is not None and form[1] == 1:
            mask = "" if s.predicate is None else self.mask_of(s.predicate, t.info.lanes)
            self.store_contiguous(s.buffer, form[0], value, dtype, mask)
        elif t.info.lanes != lanes:
            raise self.error(f"buffer {s.buffer.name!r} of {s.buffer.dtype} is stored with a strided vector index")
        else:
            self._store_lanes(s, index, form, value, lanes, dtype)

    def store_contiguous(self, buffer: Buffer, base: E.Expr, value: str, dtype: str, mask: str) -> None:
        t = self.type_of(dtype)
        address, p = self.address(buffer, base)
        align = self.alignment(p, buffer, base, t.info.bytes * t.info.lanes)
        if not mask:
            self.line(f"store {t.mem} {value}, {p.type} {address}, align {align}{p.suffix}")
            return
        n = t.info.lanes
        one = with_lanes("uint8", n) if t.kind == "bool" else dtype
        name = f"llvm.masked.store.{self.mangle(one)}.p{p.type.partition('(')[2].rstrip(')') or '0'}"
        self.em.declarations.setdefault(name, f"declare void @{name}({t.mem}, {p.type}, <{n} x i1>)")
        self.line(f"call void @{name}({t.mem} {value}, {p.type} align {align} {address}, <{n} x i1> {mask}){p.suffix}")

    def _store_lanes(
        self, s: S.BufferStore, index: E.Expr, form: tuple[E.Expr, int] | None, value: str, lanes: int, dtype: str
    ) -> None:
        """Lane by lane, in order: of lanes that meet in one element the last one wins."""
        t, one = self.type_of(dtype), self.type_of(s.buffer.dtype)
        p = self.pointer(s.buffer)
        masks = (
            self.lanes_of(self.mask_of(s.predicate, lanes), with_lanes("bool", lanes))
            if s.predicate is not None
            else []
        )
        for i, address in enumerate(self.lane_addresses(s.buffer, index, form, p, lanes)):
            x = self.op(f"extractelement {t.mem} {value}, i64 {i}")
            join = ""
            if masks:
                inside, join = self.label("lane"), self.label("join")
                self.branch_if(masks[i], inside, join)
                self.place(inside)
            self.line(f"store {one.mem} {x}, {p.type} {address}, align {one.info.bytes}{p.suffix}")
            if join:
                self.branch(join)
                self.place(join)


def _is_counted(e: E.Expr, counted: Container[int]) -> bool:
    """Whether an expression is made of constants and of variables of `counted`."""
    return all(
        id(x) in counted if isinstance(x, E.Var) else not isinstance(x, (E.BufferLoad, E.Call)) for x in walk_exprs(e)
    )


def _counted(body: S.Stmt) -> frozenset[int]:
    """The variables, by id, of loops with constant extents, and what is computed of them alone."""
    found: set[int] = set()
    lets: list[S.LetStmt] = []

    def on(s: S.Stmt) -> None:
        if isinstance(s, S.For) and isinstance(s.min, E.IntImm) and isinstance(s.extent, E.IntImm):
            found.add(id(s.var))
        elif isinstance(s, S.LetStmt):
            lets.append(s)

    visit(body, stmt=on)
    for s in reversed(lets):  # the outer ones first
        if _is_counted(s.value, found):
            found.add(id(s.var))
    return frozenset(found)
