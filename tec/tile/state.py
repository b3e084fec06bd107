"""The state of a lowering: blocks of loop IR under construction, what values became, the threads of a program, shared memory.

A scalar is an expression that every thread has. A tile is either lazy, an expression of the coordinates that is written where it is used, or held:
an array in each thread's registers with a layout.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import field
from typing import Any

from ..errors import Loc, LoweringError
from ..ir import build as B
from ..ir import expr as E
from ..ir import stmt as S
from ..ir.blocks import Open, close
from ..ir.buffer import LOCAL, SHARED, Buffer
from ..ir.dtype import dtype_info
from ..records import dataclass
from ..target import Target
from . import grammar as G
from .grammar import Op, Program, Value
from .layouts import ONE, Dim, Layout, bits, blocked, spare, whole

CPU_LANES = 16  # elements of a CPU's vector loops: 64 bytes of float32, two registers of AVX2 or one of AVX-512
GPU_VECTOR_BYTES = 16  # one access of a thread


@dataclass(slots=True)
class Axis:
    """Where along a dimension: the coordinate, and the number of the register that holds it. Within a vector `first` is where it begins, and `lane` how far on
    this element is."""

    at: E.Expr
    register: E.Expr
    first: Axis | None = None
    lane: E.Expr | None = None
    lanes: int = 1


Point = tuple[Axis, ...]


def begin(p: Point) -> Point:
    """Where the vector of a point begins."""
    return tuple(a.first or a for a in p)


def lane_of(p: Point) -> E.Expr | None:
    """How far on in its vector a point is; None where it is in none."""
    return next((a.lane for a in p if a.lane is not None), None)


Read = Callable[[Point], E.Expr]
ZERO = E.IntImm(0)
FIRST = Axis(ZERO, ZERO)


@dataclass(slots=True, eq=False)
class Held:
    """A tile in registers: an array in each thread, with a register number along each dimension."""

    buffer: Buffer
    layout: Layout


@dataclass
class Places:
    """What the program prints and asserts: see `kernels.output`."""

    output: Any
    translator: Any = None


class State:
    """Blocks, values and threads; `Lowering` has the ops."""

    widest_bytes = 0  # of an array in a thread

    def __init__(self, program: Program, target: Target, num_warps: int, grid_ndim: int):
        self.program, self.target = program, target
        self.gpu = target.is_gpu
        self.wave = target.wavefront_size if self.gpu else 1
        self.threads = num_warps * self.wave if self.gpu else 1
        self.warps = num_warps if self.gpu else 1
        self.blocks: list[list[S.Stmt | Open]] = [[]]
        self.scalars: dict[int, E.Expr] = {}
        self.held: dict[int, Held] = {}
        self.kept: dict[tuple[int, Layout], Held] = {}  # what a loop needs at a layout, computed ahead of it
        self.lazy: dict[int, Callable[[Layout], Read]] = {}
        self.pointers: dict[int, Any] = {}
        self.anchors: dict[int, Layout | None] = {}
        self.uses: dict[int, int] = {}
        self.users: dict[int, list[Op]] = {}
        self.depth: dict[int, int] = {}
        self.used_at: dict[int, int] = {}
        self.owner: dict[int, tuple[Op, int]] = {}  # a block's argument: the op and its number
        self.shared: dict[tuple[str, str], Buffer] = {}
        self.worlds: dict[str, Buffer] = {}  # see `Memory.world`
        self.shared_size: dict[tuple[str, str], int] = {}
        self.inlined = False  # see `Operands.written_out`
        self.may_alias = False  # arrays may share memory
        self.loc: Loc | None = program.loc
        self.thread: E.Expr = E.Var("thread_x", "int32", True) if self.gpu else ZERO
        self.grid = [E.Var(f"block_{a}", "int32", True) for a in "xyz"[:grid_ndim]]
        self.extents = [E.Var(f"grid_{a}", "int32", True) for a in "xyz"[:grid_ndim]]
        self._count(program.body, 0)

    def _count(self, block: G.Block, depth: int) -> None:
        for a in block.args:
            self.depth[id(a)] = depth
        for op in block.ops:
            for v in op.operands:
                if op.name != "promise":
                    self._used(v, depth, op)
            for r in op.results:
                self.depth[id(r)] = depth
            for _k, inner in enumerate(op.blocks):
                loop = op.name in ("for", "while")
                if loop:
                    skip = 1 if op.name == "for" else 0
                    for n, a in enumerate(inner.args):
                        self.owner[id(a)] = (op, n - skip)
                self._count(inner, depth + loop)
        for v in block.yields:
            self._used(v, depth, None)

    def _used(self, v: Value, depth: int, op: Op | None) -> None:
        self.uses[id(v)] = self.uses.get(id(v), 0) + 1
        self.used_at[id(v)] = max(self.used_at.get(id(v), 0), depth)
        if op is not None:
            self.users.setdefault(id(v), []).append(op)

    def error(self, message: str, hint: str | None = None, loc: Loc | None = None) -> LoweringError:
        return LoweringError(message, where=loc or self.loc, hint=hint, locate=False)

    # ---- blocks

    def emit(self, s: S.Stmt | Open) -> None:
        self.blocks[-1].append(s)

    @contextmanager
    def block(self) -> Iterator[list[S.Stmt | Open]]:
        """A block inside of the present one; `close` makes a statement of it."""
        items: list[S.Stmt | Open] = []
        self.blocks.append(items)
        try:
            yield items
        finally:
            self.blocks.pop()

    def let(self, name: str, value: E.Expr) -> E.Expr:
        """A variable with a value for the rest of the block; what is a constant or variable stays."""
        if self.inlined or isinstance(value, (E.Var, E.IntImm, E.FloatImm)):
            return value
        var, loc = E.Var(name, value.dtype), self.loc
        self.emit(Open(lambda body: S.LetStmt(var, value, body, loc)))
        return var

    def array(self, name: str, dtype: str, shape: Sequence[int]) -> Buffer:
        """An array in each thread, for the rest of the block."""
        self.widest_bytes = max(self.widest_bytes, math.prod(shape) * dtype_info(dtype).bytes)
        buffer = Buffer(name, dtype, tuple(E.IntImm(n) for n in shape) or (E.IntImm(1),), scope=LOCAL, loc=self.loc)
        self.emit(Open(lambda body: S.Alloc(buffer, body)))
        return buffer

    def store(self, buffer: Buffer, indices: Sequence[E.Expr], value: E.Expr) -> S.Stmt:
        return S.BufferStore(buffer, B.cast(buffer.dtype, value), tuple(indices) or (ZERO,), None, self.loc)

    def barrier(self) -> None:
        """All threads of the program meet, and see what the others wrote; where they have just met, nothing was written since."""
        if self.threads > 1 and not (self.blocks[-1] and is_barrier(self.blocks[-1][-1])):
            self.emit(S.Evaluate(E.Call("barrier", (), "int32", {"scope": "global"}), self.loc))

    def guarded(self, s: S.Stmt, *conds: E.Expr | None, loc: Loc | None = None) -> S.Stmt:
        """A statement under the conditions that there are; None stands for none."""
        found = [c for c in conds if c is not None]
        return S.IfThenElse(B.all_of(*found), s, None, loc or self.loc) if found else s

    # ---- threads

    def leader(self, layout: Layout | None = None) -> E.Expr | None:
        """The condition that a thread holds no copy of what another holds; None where none does."""
        if self.threads == 1:
            return None
        if layout is None:
            return B.compare("eq", self.thread, 0)
        free = spare(layout, self.threads)
        if not free:
            return None
        conds = []
        for low, count in _runs(free):
            field = B.floordiv(self.thread, 1 << low) if low else self.thread
            if low + count < bits(self.threads):
                field = B.floormod(field, 1 << count)
            conds.append(B.compare("eq", field, 0))
        return B.all_of(*conds)

    # ---- layouts

    def default(
        self, shape: tuple[int, ...], dtype: str = "float32", fastest: int = -1, most: int = GPU_VECTOR_BYTES
    ) -> Layout:
        """The layout of a tile that nothing asks another of: neighbours along the fastest dimension in a thread, up to 16 bytes or `most` of them."""
        if not self.gpu:
            return whole(shape)
        rank = len(shape)
        if not rank:
            return ()
        first = fastest % rank
        order = (first, *(d for d in reversed(range(rank)) if d != first))
        size = 1
        for n in shape:
            size *= n
        vector = min(
            max(1, GPU_VECTOR_BYTES // dtype_info(dtype).bytes), max(1, size // self.threads), shape[first], most
        )
        return blocked(shape, order, vector, self.threads)

    def visit(
        self,
        layout: Layout,
        body: Callable[[Point], S.Stmt | None],
        vector: int = 0,
        along: int = -1,
        skip: dict[int, E.Expr] | None = None,
    ) -> None:
        """Loops over a thread's registers around a statement for each. `vector`: lanes of an inner vector loop along the dimension `along` (0: as the
        device has them; 1: none). `skip`: dimensions whose register number is given."""
        if not layout:
            made = body(())
            if made is not None:
                self.emit(made)
            return
        rank, skip = len(layout), skip or {}
        along %= rank
        lanes = 1
        if along not in skip:
            run = layout[along].low_run()
            lanes = min(run, CPU_LANES if vector == 0 else vector) if not self.gpu or vector > 1 else 1
        axes: list[Axis] = []
        loops: list[tuple[E.Var, int, str]] = []
        inner: tuple[E.Var, int, str] | None = None
        for d, dim in enumerate(layout):
            if d in skip:
                axes.append(Axis(B.convert(dim.coordinate(skip[d], self.thread)), skip[d]))
                continue
            count = dim.held
            if count == 1:
                axes.append(Axis(B.convert(dim.coordinate(ZERO, self.thread)), ZERO))
                continue
            n = lanes if d == along else 1
            outer: E.Expr = ZERO
            if count // n > 1:
                var = E.Var(f"r{d}", "int32", True)
                loops.append((var, count // n, S.ForKind.UNROLLED if self.gpu else S.ForKind.SERIAL))
                outer = var
            if n == 1:
                axes.append(Axis(B.convert(dim.coordinate(outer, self.thread)), outer))
                continue
            v = E.Var(f"v{d}", "int32", True)
            inner = (v, n, S.ForKind.VECTORIZED)
            rest = Dim(dim.size, dim.registers[bits(n) :], dim.threads)
            first = Axis(B.convert(rest.coordinate(outer, self.thread)), B.mul(outer, n))
            axes.append(Axis(B.add(first.at, v), B.add(first.register, v), first, v, n))
        with self.block() as items:
            made = body(tuple(axes))
            if made is not None:
                self.emit(made)
        stmt = close(items)
        for var, count, kind in ([inner] if inner else []) + list(reversed(loops)):
            stmt = S.For(var, ZERO, E.IntImm(count), stmt, kind)
        self.emit(stmt)

    # ---- shared memory

    def arena(self, dtype: str, size: int, tag: str = "") -> Buffer:
        """Shared memory of at least `size` elements, which all uses of this type and tag share one after the other."""
        key = (dtype, tag)
        found = self.shared.get(key)
        if found is None:
            name = "_".join(filter(None, ("shared", tag, dtype)))
            found = self.shared[key] = Buffer(name, dtype, (E.IntImm(1),), scope=SHARED if self.gpu else LOCAL)
        self.shared_size[key] = max(self.shared_size.get(key, 1), size)
        return found


def is_barrier(s: S.Stmt | Open) -> bool:
    """Whether a statement is a meeting of all threads."""
    return isinstance(s, S.Evaluate) and isinstance(s.value, E.Call) and s.value.op == "barrier"


def _runs(numbers: Sequence[int]) -> list[tuple[int, int]]:
    out: list[tuple[int, int]] = []
    for n in numbers:
        if out and sum(out[-1]) == n:
            out[-1] = (out[-1][0], out[-1][1] + 1)
        else:
            out.append((n, 1))
    return out


__all__ = ["FIRST", "ONE", "Axis", "Held", "Point", "Read", "State", "field"]
