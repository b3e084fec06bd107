"""Forms written as loops: what a te compute, one expression an element, would do with quadratic work.

The helpers here make `te.extern` bodies that serve every target: `each` is a parallel loop on a CPU and a grid of threads on a
GPU, where a body may hold several such grids, one kernel each. Most take sizes that are numbers, and the te definition what is open; `index_of` is for those on a
CPU that take both.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from typing import Any, ClassVar, Self

from ... import te
from ...ir import build
from ...ir.buffer import Buffer
from ...ir.dtype import dtype_info
from ...ir.expr import BufferLoad, Expr, IntImm, Ramp
from ...ir.stmt import BufferStore
from ...ops.dims import Dim
from ...ops.forms import Form
from ...ops.registry import static_shape
from ...ops.typical import typical
from ...target import Target
from ...te import Tensor
from ...te.ir_builder import BufferVar, IRBuilder
from ...te.like import Index
from ..cost import Footprint, Kernel, on_cores
from ..group import Group, const_shape, substitute
from ..space import Choice, Scheduled, Space
from ..stages import GpuStages
from .counts import computed, moved_bytes
from .digits import split_index
from .pointwise import begin_cpu, elementwise

THREADS = 256  # of a work-group
_OPERATIONS = 10  # of a step: an address, a load, a comparison or a sum, a store
LIMIT = 1 << 31  # flat indices are int32


def fits(form: Form) -> bool:
    """Whether loops can take the tensors of a form: known sizes, and no more than int32 counts."""
    shapes = _shapes(form)
    return shapes is not None and all(math.prod(shape) < LIMIT for shape in shapes)


def lines_fit(form: Form) -> bool:
    """Whether loops that index a tensor by its dimensions can take one of lines along `axis`: as `fits`, but int32 counts the lines, and the places along one."""
    shapes = _shapes(form)
    if shapes is None:
        return False
    lines = (Lines(shape, form.attrs["axis"]) for shape in shapes)
    return all(max(x.count, x.n) < LIMIT for x in lines)


def _shapes(form: Form) -> list[list[int]] | None:
    """Of the tensors of a form; None where sizes are open, or there is nothing to do."""
    shapes = _known(form)
    return shapes if shapes is not None and all(map(all, shapes)) else None


def _known(form: Form) -> list[list[int]] | None:
    shapes = [*map(const_shape, form.inputs), *map(const_shape, form.outputs)]
    return None if any(None in shape for shape in shapes) else [[n or 0 for n in shape] for shape in shapes]


def index_of(sizes: Iterable[Any]) -> tuple[Any, ...]:
    """Sizes as loops count by them: numbers, and expressions of open ones."""
    found = [d.asexpr("int32") if isinstance(d, Dim) else d for d in sizes]
    return tuple(d.value if isinstance(d, IntImm) else d for d in found)


def is_open(form: Form) -> bool:
    """Whether a size of a form's tensors is open."""
    return _known(form) is None


@contextmanager
def each(ib: IRBuilder, target: Target, count: Index, name: str = "e") -> Iterator[Any]:
    """A block that runs for each number below `count`, in any order: one kernel on a GPU, of a known number."""
    if not target.is_gpu or not isinstance(count, int):
        kind = "serial" if isinstance(count, int) and count < 2 else "parallel"
        with ib.for_range(0, count, name, kind=kind) as i:
            yield i
        return
    threads = min(THREADS, max(32, 1 << (count - 1).bit_length()))
    with launch(ib, (-(-count // threads),), (threads,)) as (block, thread):
        flat = block * threads + thread
        with where(ib, count % threads == 0 or flat < count):
            yield flat


def where(ib: IRBuilder, *conditions: Any) -> AbstractContextManager[object]:
    """A block under conditions; True needs none."""
    given = [c for c in conditions if c is not True]
    return ib.if_scope(te.all(*given)) if given else nullcontext()


@contextmanager
def launch(ib: IRBuilder, grid: tuple[Any, ...], threads: tuple[Any, ...]) -> Iterator[tuple[Any, ...]]:
    """One kernel of a GPU: the indices of its work-groups, along x, y and z as far as the grid goes, and of their threads."""
    with ib.new_scope():
        axes = [
            (te.thread_axis(f"{kind}.{c}"), n)
            for kind, extents in (("blockIdx", grid), ("threadIdx", threads))
            for c, n in zip("xyz", extents)
        ]
        for axis, n in axes:
            ib.scope_attr(axis, "thread_extent", n)
        yield tuple(axis.var for axis, _ in axes)


def dealt(ib: IRBuilder, count: int, threads: int, thread: Sequence[Any], body: Callable[[Any], None], kind: str = "unroll") -> None:  # fmt: skip
    """`body(e)` for each number below `count`, neighbours to neighbouring threads of a work-group. thread: what a thread's number is the sum of."""
    with ib.for_range(0, -(-count // threads), "r", kind=kind) as r:
        e = sum(thread, r * threads)
        with where(ib, count % threads == 0 or e < count):
            body(e)


class Lines:
    """A tensor's lines along one axis: line number, place along it -> index. Sizes are numbers, or expressions of open ones (`index_of`)."""

    def __init__(self, shape: Sequence[Any], axis: int):
        self.before, self.n, self.after = tuple(shape[:axis]), shape[axis], tuple(shape[axis + 1 :])
        self.outer: Any
        self.inner: Any
        self.outer, self.inner = math.prod(self.before), math.prod(self.after)
        self.count = self.outer * self.inner

    def at(self, line: Index, k: Index) -> tuple[Any, ...]:
        is_one, has_one = (isinstance(n, int) and n == 1 for n in (self.inner, self.outer))
        o, i = (line, 0) if is_one else (te.indexdiv(line, self.inner), te.indexmod(line, self.inner))
        if has_one:
            o, i = 0, (0 if is_one else line)
        return (*split_index(o, self.before), k, *split_index(i, self.after))


def scalar(ib: IRBuilder, dtype: str, name: str, value: Expr) -> BufferVar:
    """A variable of one's own: `v[0]`."""
    v = ib.allocate(dtype, (1,), name, scope="local")
    v[0] = value
    return v


def over_lanes(
    ib: IRBuilder, value: BufferVar, masks: Iterable[int], lanes: int, both: Callable[[Any, Any], Any]
) -> None:
    """`value[0]` of a lane becomes `both` of all that differ from it by the bits of `masks`, in groups of so many lanes."""
    for mask in masks:
        other = te.call_intrin(value.buffer.dtype, "shuffle_xor", value[0], mask, lanes)
        value[0] = both(value[0], ib.let("other", other))


def summed_over_lanes(ib: IRBuilder, x: Any, masks: Iterable[int], lanes: int, name: str = "total") -> Any:
    """The sum of a lane's x and those of all lanes that differ from it by the bits of `masks`, in groups of so many lanes."""
    for mask in masks:
        x = ib.let(name, x + te.call_intrin(x.dtype, "shuffle_xor", x, mask, lanes))
    return x


def doublings(lanes: int) -> Iterator[int]:
    """1, 2, 4, ... below a power of two: what lanes differ by."""
    return (1 << step for step in range(lanes.bit_length() - 1))


def sorted_lanes(ib: IRBuilder, values: Sequence[Any], lane: Index, lanes: int, first: int) -> list[Expr]:
    """The `first` greatest values of a wavefront that has one a lane or two, in order, the greatest in the first lane: a bitonic sort, whose halves all go the same way where
    each run is compared with the next one backwards. Of few, runs as long as they are sorted, and the greater halves of two runs are, until one is left; so of more than two a lane, of
    which no more are wanted than there are lanes."""

    def meets(value: Expr, partner: Expr, mask: int, bit: int) -> Expr:
        other = ib.let("other", te.call_intrin(value.dtype, "shuffle_xor", partner, mask, lanes))
        is_first = te.bitwise_and(lane, bit) == 0
        return ib.let("kept", te.select((other > value) == is_first, other, value))

    def halved(a: Expr, b: Expr, mask: int) -> Expr:
        """The greater half of two runs, in order; mask: from a lane to the one that has the value of `b` to compare with."""
        value: Expr = ib.let("kept", te.max(a, ib.let("other", te.call_intrin(b.dtype, "shuffle_xor", b, mask, lanes))))
        for s in range(1, run.bit_length()):
            value = meets(value, value, run >> s, run >> s)
        return value

    run = min(lanes, 1 << (first - 1).bit_length())
    size = 2
    while size <= run:
        for mask in (size - 1, *(size >> s for s in range(2, size.bit_length()))):
            bit = size // 2 if mask == size - 1 else mask
            values = [meets(v, v, mask, bit) for v in values]
        size *= 2
    if run < lanes or len(values) > 2:
        while len(values) > 1:
            a, b, *rest = values
            values = [*rest, halved(a, b, run - 1) if run > 1 else ib.let("kept", te.max(a, b))]
        value = values[0]
        for step in doublings(lanes // run):  # to a run so many runs on
            value = halved(value, value, run * step | (run - 1))
        return [value]
    if len(values) == 2:
        a, b = values
        mirrored = [ib.let("other", te.call_intrin(v.dtype, "shuffle_xor", v, lanes - 1, lanes)) for v in (b, a)]
        values = [ib.let("kept", te.max(a, mirrored[0])), ib.let("kept", te.min(b, mirrored[1]))]
        bit = lanes // 2
        while bit:
            values = [meets(v, v, bit, bit) for v in values]
            bit //= 2
    return list(values)


def vector(buffer: BufferVar, first: Index, n: int) -> Expr:
    """`n` elements of a buffer that lie side by side, in one load."""
    return BufferLoad(buffer.buffer, (neighbours(first, n),))


def vector_at(buffer: Any, index: Sequence[Index], first: Index, n: int) -> Expr:
    """`n` elements side by side of a row of a buffer, in one load. index: the row's."""
    return BufferLoad(buffer.buffer, (*(build.convert(e) for e in index), neighbours(first, n)))


def exp_below(x: Expr) -> Expr:
    """e to the power of x, which is up to 0 (`exp_below` of `ir.intrin`)."""
    return te.call_intrin(x.dtype, "exp_below", x)


def put_vector(ib: IRBuilder, buffer: BufferVar, first: Index, value: Expr) -> None:
    """A vector's elements side by side into a buffer, in one store."""
    ib.emit(BufferStore(buffer.buffer, value, (neighbours(first, dtype_info(value.dtype).lanes),)))


def put_vector_at(ib: IRBuilder, buffer: BufferVar, index: Sequence[Index], first: Index, value: Expr) -> None:
    """A vector's elements side by side into a row of a buffer, in one store. index: the row's."""
    where = (*(build.convert(e) for e in index), neighbours(first, dtype_info(value.dtype).lanes))
    ib.emit(BufferStore(buffer.buffer, value, where))


def neighbours(first: Index, n: int) -> Expr:
    """`n` neighbours' indices, from `first` on."""
    return Ramp(build.convert(first), te.const(1, "int32"), n) if n > 1 else build.convert(first)


def extern(
    name: str,
    inputs: list[Tensor],
    outputs: Sequence[tuple[Sequence[int], str]],
    body: Callable[[Any, list[Any], list[Any]], None],
) -> list[Tensor]:
    """Tensors made by `body(ib, sources, results)`, which gets buffers to index."""

    def make(ins: list[Buffer], outs: list[Buffer]) -> Any:
        ib = te.ir_builder.create()
        body(ib, [ib.buffer_ptr(b) for b in ins], [ib.buffer_ptr(b) for b in outs])
        return ib.get()

    shapes, dtypes = [tuple(s) for s, _ in outputs], [d for _, d in outputs]
    made = te.extern(shapes, inputs, make, name=name, dtype=dtypes)
    return list(made) if isinstance(made, (list, tuple)) else [made]


class LoopForm(Space):
    """A group whose form is written as loops, with what is elementwise behind it in kernels of its own. Subclasses say the form's kind and write `sketch` and `body`."""

    kind: ClassVar[str]  # of the form
    stage: str = ""  # the name of the operation that has the loops; empty: the form's kind

    @classmethod
    def match(cls, group: Group, target: Target) -> Self | None:
        """The space of a group with such a form in it, where it serves."""
        found = group.form(cls.kind)
        return cls(group, target, *found) if found is not None and cls.serves(found[0], target) else None

    @classmethod
    def serves(cls, form: Form, target: Target) -> bool:
        """Whether these loops compute a form on a target."""
        return True

    def __init__(self, group: Group, target: Target, form: Form, carriers: dict[int, Tensor]):
        super().__init__(group, target)
        self.form, self.carriers = form, carriers
        self.read_form()

    def read_form(self) -> None:
        """What the template asks of its form, and the parameters that follow."""

    def body(self, choice: Choice, ib: IRBuilder, sources: list[BufferVar], results: list[BufferVar]) -> None:
        """The loops of a legal choice, from the form's inputs to its outputs."""
        raise NotImplementedError

    def tensors(self, choice: Choice) -> list[Tensor]:
        """The form's outputs as loops."""
        outs = [(t.shape, t.dtype) for t in self.form.outputs]
        return extern(self.stage or self.kind, list(self.form.inputs), outs, partial(self.body, choice))

    def chains(self, steps: float, threads: float, kernels: int = 1, ahead: int = 1) -> Footprint:
        """`steps` of one thread after another in all kernels together, each an element of memory and `_OPERATIONS`; so many threads. ahead: loads that are under way
        at once."""
        moved = float(moved_bytes(self.group))
        if not self.target.is_gpu:
            return on_cores(_OPERATIONS * steps * threads, moved, threads > 1, threads)
        width = min(THREADS, max(32, 1 << (math.ceil(threads) - 1).bit_length()))
        one = steps / kernels
        asked = one * threads * max(dtype_info(t.dtype).bytes for t in self.form.inputs)
        return Footprint((Kernel(
            math.ceil(threads / width), width, memory_bytes=moved, asked_bytes=max(moved, asked), issued=_OPERATIONS * one, waits=math.ceil(one / ahead), launches=kernels,
        ),))  # fmt: skip

    def build(self, choice: Choice) -> Scheduled:
        made = self.tensors(choice)
        outputs = substitute(self.group.outputs, {t: made[k] for k, t in self.carriers.items()})
        group = Group.of(outputs)
        if self.target.is_gpu:
            scheduled = GpuStages(group, self.target).apply()
            return Scheduled(scheduled.schedule, outputs, choice)
        s = begin_cpu(group, self.target)
        for op in computed(group):
            elementwise(s, op, self.target)
        return Scheduled(s, outputs, choice)


class OpenLoopForm(LoopForm):
    """A form of open sizes on a CPU, with a step for each element that it reads."""

    @classmethod
    def serves(cls, form: Form, target: Target) -> bool:
        return not target.is_gpu and is_open(form)

    def sketch(self, choice: Choice) -> Footprint:
        return self.chains(sum(math.prod(map(typical, static_shape(t))) for t in self.form.inputs), 1)
