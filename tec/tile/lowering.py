"""A tile program to loop IR: one thread's program under loops over the launch indices, as `tec.kernels` makes of a kernel.

In: a `Program`, a target, waves a program. Out: a `Func` of stage "loops" with `attrs["simt"]`: parameters are the kernel's arrays (flat) and numbers,
then the grid's extents, then the buffer of messages where it prints. On a CPU a program is one thread, and its tiles are arrays that vector loops run over.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..ir import build as B
from ..ir import expr as E
from ..ir import stmt as S
from ..ir.blocks import close
from ..ir.buffer import GLOBAL, LOCAL, Buffer
from ..ir.dtype import dtype_info
from ..ir.func import Func
from ..ir.notes import MinBlocks
from ..ir.visit import deep_recursion
from ..kernels.output import Place
from ..records import dataclass
from ..target import Target
from . import numbers
from .axes import Axes, power
from .grammar import Block, Op, Program, Value, walk
from .operands import ROOM
from .products import Products
from .reading import CHEAP
from .saying import Saying
from .state import ZERO


@dataclass(frozen=True)
class Lowered:
    """A tile program as loop IR, and what it prints. `shared_bytes`: shared memory of a program; `block`: threads; `worlds`: types of the small arrays that
    the launch adds behind the arguments, for pointers that are made of addresses."""

    func: Func
    places: tuple[Place, ...]
    shared_bytes: int
    block: int
    worlds: tuple[str, ...] = ()


class Lowering(Saying, Products):
    """Ops in order."""

    alignment: dict[str, int]
    _costs: dict[int, int]

    def ops(self, block: Block) -> None:
        for op in block.ops:
            self.op(op)

    def op(self, op: Op) -> None:
        self.loc = op.loc or self.loc
        handler = getattr(self, "do_" + op.name, None)
        if handler is not None:
            handler(op)
        else:
            self._lazily(op)

    def do_barrier(self, op: Op) -> None:
        self.barrier()

    def do_promise(self, op: Op) -> None:
        """See `axes`."""

    def do_program_id(self, op: Op) -> None:
        k = op.attrs["axis"]
        self.scalars[id(op.results[0])] = self.grid[k] if k < len(self.grid) else ZERO

    def do_num_programs(self, op: Op) -> None:
        k = op.attrs["axis"]
        self.scalars[id(op.results[0])] = self.extents[k] if k < len(self.grid) else E.IntImm(1)

    def do_arg(self, op: Op) -> None:
        v = op.results[0]
        param = self.params[op.attrs["index"]]
        if isinstance(param, Buffer):
            self.pointers[id(v)] = param
            return
        by = power(abs(self.alignment.get(self.program.params[op.attrs["index"]][0], 1)))
        known = isinstance(param, E.Var) and v.ty.dtype.is_int() and by > 1
        # A product by a constant: what is proved of indices takes it from here.
        self.scalars[id(v)] = self.let(param.name, B.mul(B.floordiv(param, by), by)) if known else param

    def do_hold(self, op: Op) -> None:
        v = op.results[0]
        if v.ty.shape:
            self.hold(op.operands[0])
            self.held[id(v)] = self.held[id(op.operands[0])]
        else:
            self.scalars[id(v)] = self.let("kept", self.scalar(op.operands[0]))

    def _lazily(self, op: Op) -> None:
        """An op that is written where it is used, unless it is used more than once and costs more than a register."""
        v = op.results[0]
        if not v.ty.shape:
            if op.elementwise and not v.ty.dtype.is_ptr():
                self.scalars[id(v)] = self.let(op.attrs.get("fn", op.name), self._scalar_of(op))
            elif v.ty.dtype.is_ptr():
                self.offset(v)
            else:
                self.hold_scalar(v)
            return
        if v.ty.dtype.is_ptr() or self.inlined:
            return
        if not op.elementwise:
            if op.name == "split":
                self.hold(op.operands[0], self.halved(op.operands[0], self.anchor(op.operands[0])))
            return
        again = self._users_of(v) > 1 or self.used_at.get(id(v), 0) > self.depth.get(id(v), 0)
        weight = self.cost(v)
        if (again and weight > CHEAP) or weight > 64:
            if self.anchor(v) is not None or weight > 24:
                self.hold(v)

    def _users_of(self, v: Value) -> int:
        """Where a value is read: x * x reads it once."""
        users = self.users.get(id(v), [])
        return self.uses.get(id(v), 0) - len(users) + len({id(u) for u in users})

    def hold_scalar(self, v: Value) -> None:
        """A scalar that a view of a tile gives (the one element of a reshape)."""
        op = v.of
        assert op is not None
        made = self.stored(self._view(op, ()), (), v.ty.dtype.tec, "element")
        self.scalars[id(v)] = self.let("element", E.BufferLoad(made.buffer, (ZERO,)))

    def cost(self, v: Value) -> int:
        """About how many additions it takes to write a value out."""
        known = self._costs.get(id(v))
        if known is not None and id(v) not in self.held:
            return known
        if id(v) in self.held or not v.ty.shape or v.of is None:
            return 0
        total = sum(self.cost(x) for x in v.of.operands)
        if v.of.elementwise:
            total += numbers.cost(v.of)
        self._costs[id(v)] = total
        return total

    def run(self, alias: bool) -> Lowered:
        """The whole program."""
        self._costs = {}
        self.exchanges, self.kept_bytes = set(), {}
        self.streams = {}
        self.sums, self.places, self.units, self.groups, self.flights = [], {}, {}, {}, [None]
        self.may_alias = alias
        self.axes, self.neighbours = Axes(self.program, self.alignment), {}
        self.params: list[Buffer | E.Var] = []
        for name, ty in self.program.params:
            if ty.dtype.is_ptr():
                element = ty.dtype.element_ty.tec  # type: ignore[attr-defined]
                if element == "bool":
                    element = "int8"
                size = E.Var(f"{name}_size", "int64", True)
                self.params.append(
                    Buffer(name, element, (size,), (), 0, GLOBAL, self.aligned(name, element), loc=self.program.loc)
                )
            else:
                self.params.append(E.Var(name, ty.dtype.tec))
        self.ops(self.program.body)
        body = close(self.blocks[0])
        for var, number in self.groups.values():
            body = S.LetStmt(var, number, body, self.program.loc)
        for key, buffer in self.shared.items():
            buffer.shape = (E.IntImm(self.shared_size[key]),)
            body = S.Alloc(buffer, body)
        if self.gpu:
            assert isinstance(self.thread, E.Var)
            if (blocks := self._least_blocks()) > 1:
                body = S.Attr(MinBlocks(blocks), body)
            body = S.For(self.thread, ZERO, E.IntImm(self.threads), body, S.ForKind.THREAD, "threadIdx.x")
        else:
            body = S.For(E.Var("thread_x", "int32", True), ZERO, E.IntImm(1), body, S.ForKind.THREAD, "threadIdx.x")
        for axis, var, extent in reversed(list(zip("xyz", self.grid, self.extents))):
            body = S.For(var, ZERO, extent, body, S.ForKind.THREAD, f"blockIdx.{axis}")
        params: list[Buffer | E.Var] = [*self.params, *self.worlds.values(), *self.extents]
        if self.output.places:
            params.append(self.output.buffer)
        attrs = {"simt": True, "loc": self.program.loc}
        if alias or self.worlds:
            attrs["noalias"] = False
        name = self.program.name if self.program.name.isidentifier() and self.program.name.isascii() else "kernel"
        shared = sum(dtype_info(t).bytes * n for (t, _), n in self.shared_size.items()) if self.gpu else 0
        shared += self.most_bytes
        return Lowered(
            Func(name, tuple(params), body, attrs), tuple(self.output.places), shared, self.threads, tuple(self.worlds)
        )

    def _least_blocks(self) -> int:
        """Programs that a multiprocessor of NVIDIA is to hold at once. One without products waits for memory: with fewer registers a thread others work meanwhile, where
        ptxas takes more because a lone program could have 255 (Triton's gradient of layer norm: 158, and 1.35 times the time of 128 with 15 spilled words). With one product of two warpgroups whose sums leave half of the registers, two meet too."""
        products = sum(op.name == "dot" for op in walk(self.program.body))
        if self.target.kind != "cuda":
            return 1
        if products == 1 and self.threads == _RESIDENT_THREADS // 2 and self.widest_bytes <= _SUMS_BYTES:
            return 2
        resident = next((n for most, n in _RESIDENT_BY_WIDTH if self.widest_bytes <= most), 1)
        return 1 if products else resident // self.threads

    def aligned(self, name: str, element: str) -> int:
        return max(self.alignment.get(name, 1), dtype_info(element).bytes)


_RESIDENT_THREADS = 512  # of a multiprocessor's 65,536 registers each then has 128
_SUMS_BYTES = 256  # of a product's sums in a thread, beside which 64 registers hold the addresses of its operands
# Threads of a multiprocessor by the bytes of the widest array in one: 80, 128 and 168 registers each, which is three such arrays and what addresses take (ptxas spills
# nothing of Triton's gradient of layer norm at 16 words, 15 words at 32, and 4 of a recurrence's scan at 64).
_RESIDENT_BY_WIDTH = ((64, 768), (128, _RESIDENT_THREADS), (256, 384))
PIECES = (2, 4, 8)  # shares of shared memory for a product's operands, one after the other, where whole ones do not fit


@deep_recursion()
def lower(
    program: Program,
    target: Target,
    num_warps: int = 4,
    grid_ndim: int = 3,
    alias: bool = False,
    alignment: dict[str, int] | None = None,
) -> Lowered:
    """Loop IR of a tile program. `alias`: arrays may share memory; `alignment`: bytes of arrays' addresses and divisors of numbers, by name; see `axes`. Raises LoweringError at the user's line."""
    attempts: list[tuple[float, int | None]] = [(room, None) for room in ROOM]
    if target.is_gpu:
        attempts += [(ROOM[-1], target.lds_bytes // parts) for parts in PIECES]
    for room, piece in attempts:
        state = Lowering(program, target, num_warps, grid_ndim)
        state.alignment, state.loop_room, state.piece_bytes = alignment or {}, room, piece
        made = state.run(alias)
        if not target.is_gpu or made.shared_bytes <= target.lds_bytes:
            return made
    raise state.error(
        f"{program.name} needs {made.shared_bytes:,} bytes of shared memory, and {target} has {target.lds_bytes:,}",
        hint="smaller tiles (BLOCK_K first), or fewer num_stages",
        loc=program.loc,
    )


__all__ = ["LOCAL", "B", "Lowered", "Sequence", "lower"]
