"""Gathers on a GPU whose reads lie far from each other (columns by an index, elements along an axis): what they pick from passes through shared memory.

Read where it lies, each element brings a line of its own. Here a work-group reads all places of the indexed axis that it may be asked for, in whole pieces, and picks from
its shared memory. Rows of a table by an index are whole pieces already, and stay what elementwise work is.
"""

from __future__ import annotations

import math
from typing import Any, ClassVar

from ...ir import IterVar, TensorRead
from ...ir.dtype import dtype_info
from ...ir.shared_layout import PIECE_BYTES
from ...ir.visit import free_vars, walk_exprs
from ...records import dataclass
from ...target import Target
from ...te import ComputeOp, PlaceholderOp, Tensor, thread_axis
from ..cost import Footprint, Kernel
from ..group import Group, begin, const_shape, reads_of
from ..parts.counts import moved_bytes
from ..parts.threads import brought, neighbours_on_a_die
from ..space import Choice, Scheduled, Space

_LINE_BYTES = 128
_RUN_BYTES = 64  # that lie side by side from where elementwise work reads well by itself
_STRIP_BYTES = 32  # of neighbouring lines that a work-group picks from
# Elements of the table, at most, that are read for one that is picked: elementwise work brings a line for it, of which neighbouring columns' picks may use more. Along rows none
# does, and a quarter of a line for an element is worth it.
_WORTH, _WORTH_BYTES = 4, 32


@dataclass(frozen=True)
class _Picked:
    """A tensor that is read by an index: the axes of the output that go with its dimensions before the indexed one and behind it, and those left, of the index."""

    tensor: Tensor
    before: list[IterVar]
    picked: list[IterVar]
    behind: list[IterVar]
    length: int


class Gather(Space):
    """A work-group picks from `rows` times the whole indexed axis times `across` elements behind it; a thread has `piece` neighbours of the result at once."""

    template: ClassVar[str] = "gpu gather"

    def __init__(self, group: Group, target: Target, out: ComputeOp, table: _Picked):
        super().__init__(group, target)
        self.out, self.table = out, table
        self.bytes = dtype_info(table.tensor.dtype).bytes
        l2 = target.machine.level("L2")
        held = math.prod(n or 1 for n in const_shape(table.tensor)) * self.bytes
        self.features = {"table": held, "near": l2.size_bytes if l2 is not None else 0}
        self.is_second = not self._rule("first", False)
        before, behind = (math.prod(self._extents(axes[-1:])) for axes in (table.before, table.behind))
        self.parameters = {
            "rows": tuple(n for n in (1, 2, 4, 8, 16) if before % n == 0),
            "across": tuple(n for n in (1, 2, 4, 8, 16, 32, 64) if n <= behind), "threads": (256, 1024, 512, 128, 64), "piece": (4, 2, 8, 1),
        }  # fmt: skip

    @classmethod
    def match(cls, group: Group, target: Target) -> Gather | None:
        """The space of a group of one elementwise output that picks single elements of a tensor by an index."""
        if not target.is_gpu or len(group.outputs) != 1 or len(group.ops) != 1 or group.reductions():
            return None
        (out,) = group.ops
        if not isinstance(out, ComputeOp) or not out.axis or None in const_shape(out.output(0)):
            return None
        reads = reads_of(out)
        table = next((t for e in reads if (t := _picked(e, out)) is not None), None)
        if table is None or sum(e.tensor is table.tensor for e in reads) != 1:
            return None
        space = cls(group, target, out, table)
        return space if next(space.all, None) is not None else None

    def _extents(self, axes: list[IterVar]) -> list[int]:
        shape = const_shape(self.out.output(0))
        return [shape[k] or 1 for a in axes for k, b in enumerate(self.out.axis) if a is b]

    def _lds_bytes(self, choice: Choice) -> int:
        return int(choice["rows"]) * self.table.length * int(choice["across"]) * self.bytes

    def _groups(self, choice: Choice) -> int:
        *behind, last = self._extents(self.table.behind) or [1]
        lines = math.prod([*self._extents(self.table.before), *behind])
        return lines // int(choice["rows"]) * -(-last // int(choice["across"]))

    def why_not(self, choice: Choice) -> str | None:
        neighbours = choice["across"] if self.table.behind else math.prod(self._extents(self.table.picked))
        if neighbours % choice["piece"]:
            return "neighbours are no whole number of pieces"
        last = self._extents(self.table.behind[-1:])
        if last and last[0] % choice["across"] and last[0] % choice["piece"]:
            return "the last strip would begin within a piece of the one before"
        return None

    @property
    def default(self) -> Choice:
        """A line a work-group, or `_STRIP_BYTES` of neighbouring ones, fewer where they are longer than shared memory has room for. What the price finds cheapest where that gives
        threads of a work-group nothing to pick."""
        if self.table.behind:
            wanted = {
                "rows": (1,),
                "across": self._strips(),
                "threads": (512 if self.bytes <= 2 else 256, 256),
                "piece": (2, 1),
            }
        else:
            threads, piece = self._rule("threads", (256,)), self._rule("piece", (4, 2, 1))
            wanted = {"rows": (1,), "across": (1,), "threads": threads, "piece": piece}
        usual = next(self.legal(wanted), None)
        if usual is not None and self._picks(usual) >= usual["threads"] * usual["piece"]:
            return usual
        return min(self.all, key=lambda c: self.cost(c).seconds)

    def _rule(self, name: str, otherwise: Any) -> Any:
        return self.rule(name, otherwise, **self.features)

    def _strips(self) -> tuple[int, ...]:
        """Neighbouring lines of a work-group."""
        most = self._rule("strip_bytes", _STRIP_BYTES) // self.bytes
        return tuple(n for n in self.parameters["across"][::-1] if n <= most)

    def sketch(self, choice: Choice) -> Footprint:
        """The table's lines through shared memory, by pieces; then picks, a piece a turn. Parts of lines move where a work-group has few neighbouring columns, which a die's L2
        puts together."""
        run = choice["across"] * self.bytes if self.table.behind else _LINE_BYTES
        moved, turns = moved_bytes(self.group) * max(1.0, _STRIP_BYTES / run), self._turns(choice) * choice["rows"]
        shared = self._lds_bytes(choice)
        brought = shared / (choice["threads"] * self.bytes * self._brought(choice))
        picks = 2 * self.bytes * choice["piece"] * turns * choice["threads"] * self._groups(choice)
        return Footprint((Kernel(
            self._groups(choice), choice["threads"], -(-shared // PIECE_BYTES) * PIECE_BYTES, 0, moved, moved, picks, turns * choice["piece"],
            waits=brought + (1 if self._early(choice) else turns), barriers=1,
        ),))  # fmt: skip

    def _brought(self, choice: Choice) -> int:
        """Neighbours of the table that a thread brings at once."""
        run = choice["across"] if self.table.behind else self.table.length
        return math.gcd(run, max(1, self.target.max_vector_bytes // self.bytes))

    def build(self, choice: Choice) -> Scheduled:
        s, t, threads, piece = begin(self.group), self.table, choice["threads"], choice["piece"]
        stage = s[self.out]
        early = [s[s.cache_read(i, "local", [self.out])] for i in self._early(choice)]
        shared = s[s.cache_read(t.tensor, "shared", [self.out])]
        blocks, rows, inner = list(t.before), [], list(t.picked)
        if t.before:
            outer, row = stage.split(blocks.pop(), factor=choice["rows"])
            blocks, rows = [*blocks, outer], [row]
        if t.behind:
            # Where strips do not divide the columns, the last one begins earlier, and repeats others.
            outer, column = stage.split(t.behind[-1], factor=choice["across"], shift_inwards=True)
            blocks, inner = [*blocks, *t.behind[:-1], outer], [*inner, column]
        stage.reorder(*blocks, *inner, *rows)
        block = stage.fuse(*blocks)
        if t.behind:  # MI300X by the time model, 2048 x 4096 in float32: 67 us with work-groups in order, 40 so
            block = neighbours_on_a_die(stage, block, self._groups(choice), self.target.machine.dies)
        stage.bind(block, thread_axis("blockIdx.x"))
        tx = thread_axis((0, threads), "threadIdx.x")
        at = stage.fuse(*inner)
        at, own = stage.split(at, factor=piece)
        at, part = stage.split(at, factor=threads)
        stage.bind(part, tx)
        stage.reorder(part, at, *rows, own)
        if early:  # all turns side by side: what they ask for is under way with the table, and not behind the barrier (MI300X, 2048 x 4096: 10.5 us, 9.0 so)
            stage.bind(at, thread_axis("vthread"))
            stage.reorder(at, part)
        for row in rows:
            stage.unroll(row)
        stage.vectorize(own)
        shared.compute_at(stage, part if early else block)
        for mine in early:
            mine.compute_at(stage, part)
        brought(shared, threads, self._brought(choice), tx)
        return Scheduled(s, self.group.outputs, choice)

    def _picks(self, choice: Choice) -> int:
        """Elements of the result that lines beside each other give a work-group."""
        return math.prod(self._extents(self.table.picked)) * (int(choice["across"]) if self.table.behind else 1)

    def _turns(self, choice: Choice) -> int:
        """Pieces of a line that a thread has, one after another."""
        return -(-self._picks(choice) // int(choice["threads"] * choice["piece"]))

    def _early(self, choice: Choice) -> list[Tensor]:
        """The tensors that say what is picked, where a thread keeps its elements of them in registers."""
        turns = self._turns(choice)
        reads = [e for e in reads_of(self.out) if e.indices]
        once = [e for e in reads if sum(o.tensor is e.tensor for o in reads) == 1 and e.tensor is not self.table.tensor]
        found = [e.tensor for e in once if not any(isinstance(x, TensorRead) for i in e.indices for x in walk_exprs(i))]
        words = sum(dtype_info(t.dtype).bytes for t in found) / 4 * turns * choice["piece"]
        return found if choice["rows"] == 1 and turns > 1 and words <= self.figures["kept_registers"] else []


def _picked(read: TensorRead, out: ComputeOp) -> _Picked | None:
    """What is known of a read with one index that another tensor says, all others axes of the output in their order; None for any other one, and where neighbours
    of the output read what lies side by side."""
    shape = const_shape(read.tensor)
    if not isinstance(read.tensor.op, PlaceholderOp) or None in shape:
        return None
    far = [k for k, i in enumerate(read.indices) if any(isinstance(e, TensorRead) for e in walk_exprs(i))]
    if len(far) != 1:
        return None
    (k,) = far
    axes: list[IterVar] = []
    for i in (*read.indices[:k], *read.indices[k + 1 :]):
        own = [a for a in out.axis if i is a.var]
        if not own or own[0] in axes:
            return None
        axes += own
    before, behind = axes[:k], axes[k:]
    if not axes:  # one line: nothing that work-groups could have lines of
        return None
    picked = [a for a in out.axis if a not in axes]
    used = free_vars(read.indices[k])
    if [*before, *picked, *behind] != list(out.axis) or not picked or any(a.var not in used for a in picked):
        return None
    sizes = dict(zip(out.axis, const_shape(out.output(0))))
    whole = not any(a.var in used for a in behind)
    if whole and math.prod(sizes[a] or 1 for a in behind) * dtype_info(read.tensor.dtype).bytes >= _RUN_BYTES:
        return None
    length = shape[k] or 1
    worth = _WORTH if behind else _WORTH_BYTES // dtype_info(read.tensor.dtype).bytes
    if length > worth * math.prod(sizes[a] or 1 for a in picked):
        return None
    return _Picked(read.tensor, before, picked, behind, length)
