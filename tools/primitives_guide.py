"""The guide to the schedule primitives, docs/primitives.md: each with its loops before and after, drawn from the programs below.

    python -m tools.primitives_guide          # writes the page; a test holds it against what the programs give

A program makes a computation and a schedule, and applies what stands under its mark. The page shows that part of its source, the loops of the
schedule without it, and with it.
"""

from __future__ import annotations

import inspect
import textwrap
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tec
from tec import te
from tec.driver import PIPELINE, SIMPLE_MODE_PASSES, run_passes, short_name

PAGE = Path(__file__).resolve().parent.parent / "docs" / "primitives.md"
_MARK = "# [apply]"
PROSE = 99  # characters of a line of prose
_HIDDEN = "<!-- invisible-code-block: python"  # run by the test of the page, not shown


@dataclass(frozen=True)
class Entry:
    """One primitive. `make(apply)` gives the schedule and its parameters, with or without the part under the mark."""

    section: str
    title: str
    make: Callable[[bool], tuple[Any, list[Any]]]
    target: str
    until: str = ""  # the pass whose loops are shown; those of the schedule where it is empty


ENTRIES: list[Entry] = []


def primitive(section: str, title: str, target: str = "llvm", until: str = "") -> Callable[[Any], Any]:
    """Registers a program; its docstring says what the primitive is for and what it costs."""

    def add(make: Any) -> Any:
        ENTRIES.append(Entry(section, title, make, target, until))
        return make

    return add


def double(n: int = 64) -> tuple[Any, Any, Any]:
    """B = A * 2 and a schedule of it."""
    A = te.placeholder((n,), name="A")
    B = te.compute((n,), lambda i: A[i] * 2.0, name="B")
    return A, B, tec.create_schedule(B.op)


def table(m: int = 16, n: int = 32) -> tuple[Any, Any, Any]:
    """B = A * 2 of a matrix."""
    A = te.placeholder((m, n), name="A")
    B = te.compute((m, n), lambda i, j: A[i, j] * 2.0, name="B")
    return A, B, tec.create_schedule(B.op)


def chain(n: int = 64) -> tuple[Any, Any, Any, Any]:
    """B = A * 2 and C[i] = B[i] + B[i + 1]."""
    A = te.placeholder((n + 1,), name="A")
    B = te.compute((n + 1,), lambda i: A[i] * 2.0, name="B")
    C = te.compute((n,), lambda i: B[i] + B[i + 1], name="C")
    return A, B, C, tec.create_schedule(C.op)


def product(n: int = 64, k: int = 32) -> tuple[Any, Any, Any, Any, Any]:
    """C = A B, square by `k`."""
    A, B = te.placeholder((n, k), name="A"), te.placeholder((k, n), name="B")
    kk = te.reduce_axis(k, "k")
    C = te.compute((n, n), lambda i, j: te.sum(A[i, kk] * B[kk, j], axis=kk), name="C")
    return A, B, C, kk, tec.create_schedule(C.op)


LOOPS, DONE, PLACE, MEMORY = "Loops", "How a loop runs", "Where a stage is computed", "Memory and data"


@primitive(LOOPS, "split")
def split(apply: bool) -> Any:
    """Cuts a loop in two. `factor` gives the extent of the inner loop, `nparts` that of the outer.
    Most schedules start with a split: the inner loop becomes a tile, the work of a thread, or a vector.
    If the factor does not divide the extent, a condition guards the body. Lowering moves the guarded
    last step into code of its own, so only that step pays for the ragged size.
    """
    A, B, s = double(70)
    if apply:
        # [apply]
        outer, inner = s[B].split(B.op.axis[0], factor=16)
    return s, [A, B]


@primitive(LOOPS, "tile")
def tile(apply: bool) -> Any:
    """Makes blocks of a matrix by two splits and a reorder. What a block reads is still in the cache
    when it is read again. Choose the sizes so that the tiles of both operands and of the result fit
    the cache level that they are meant for.
    """
    A, B, s = table()
    if apply:
        # [apply]
        xo, yo, xi, yi = s[B].tile(B.op.axis[0], B.op.axis[1], x_factor=4, y_factor=8)
    return s, [A, B]


@primitive(LOOPS, "fuse")
def fuse(apply: bool) -> Any:
    """Makes one loop of adjacent loops. It has more iterations to share among threads or work-groups
    than either loop alone. The indices then need a division and a remainder, which the simplifier
    removes where it can.
    """
    A, B, s = table()
    if apply:
        # [apply]
        s[B].fuse(B.op.axis[0], B.op.axis[1])
    return s, [A, B]


@primitive(LOOPS, "reorder")
def reorder(apply: bool) -> Any:
    """Changes the nesting order of loops. The innermost loop should walk memory in order, along the
    last dimension. If a reduction loop is outside a data loop, the data loop can be vectorized. The
    primitive itself costs nothing.
    """
    A, B, C, k, s = product()
    if apply:
        # [apply]
        i, j = C.op.axis
        s[C].reorder(i, k, j)
    return s, [A, B, C]


@primitive(DONE, "bind", "rocm -mcpu=gfx942")
def bind(apply: bool) -> Any:
    """Runs a loop as a launch index of a GPU: `blockIdx` for work-groups, `threadIdx` for the threads
    of a work-group. Neighbouring threads should read neighbouring addresses, so bind the loop over the
    last dimension to `threadIdx.x`. Work-groups usually have 64 to 256 threads.
    """
    A, B, s = double(256)
    outer, inner = s[B].split(B.op.axis[0], factor=64)
    if apply:
        # [apply]
        s[B].bind(outer, te.thread_axis("blockIdx.x"))
        s[B].bind(inner, te.thread_axis("threadIdx.x"))
    return s, [A, B]


@primitive(DONE, "vectorize")
def vectorize(apply: bool) -> Any:
    """Turns a loop of constant extent into the lanes of vectors: one load, one operation and one
    store serve all of them. On a CPU choose a multiple of the vector width (16 floats with AVX-512), on
    a GPU 16 bytes per thread. If the accesses are not contiguous, they become gathers.
    """
    A, B, s = double()
    if apply:
        # [apply]
        outer, inner = s[B].split(B.op.axis[0], factor=16)
        s[B].vectorize(inner)
    return s, [A, B]


@primitive(DONE, "unroll")
def unroll(apply: bool) -> Any:
    """Writes out every iteration of a loop. Storage that the loop indexes can then stay in registers,
    and iterations can be interleaved. The code grows by the extent of the loop, so unroll only short
    innermost loops.
    """
    A, B, s = double()
    if apply:
        # [apply]
        outer, inner = s[B].split(B.op.axis[0], factor=4)
        s[B].unroll(inner)
    return s, [A, B]


@primitive(DONE, "parallel")
def parallel(apply: bool) -> Any:
    """Shares the iterations of a loop among the threads of the CPU. Handing out work costs some
    microseconds, so parallelize the outermost loop, and only if it takes longer than that.
    """
    A, B, s = table()
    if apply:
        # [apply]
        s[B].parallel(B.op.axis[0])
    return s, [A, B]


@primitive(DONE, "pragma")
def pragma(apply: bool) -> Any:
    """Gives a pass a note about a loop. The note shown here unrolls the loops inside, as long as the
    number of unrolled steps stays below the value. `software_pipeline` starts the loads of later
    iterations early. `tec.ir.notes` lists all notes. A name that no pass knows is refused.
    """
    A, B, s = table(4, 4)
    if apply:
        # [apply]
        s[B].pragma(B.op.axis[0], "auto_unroll_max_step", 16)
    return s, [A, B]


@primitive(DONE, "software_pipeline", until="pipeline")
def software_pipeline(apply: bool) -> Any:
    """Overlaps the iterations of a loop. Each statement of the body gets a stage and a position. A
    statement of stage 1 works on the iteration before the one that stage 0 works on: in the example,
    each turn of the loop multiplies the row that the turn before it loaded. Storage in the body gets
    one slot for each iteration that uses it at the same time. The primitive pays if one statement
    waits, for example for memory, while another computes. It costs the slots, and code for the first
    and the last turns. An order that would change the result is refused.
    `pragma(axis, "software_pipeline", n)` chooses the order itself, for loops of a GPU that fill
    shared memory.
    """
    A, B, s = table(8, 32)
    row = s.cache_read(A, "global", B)
    s[row].compute_at(s[B], B.op.axis[0])
    if apply:
        # [apply]
        s[B].software_pipeline(B.op.axis[0], stages=(0, 1), order=(0, 1))
    return s, [A, B]


@primitive(DONE, "prefetch")
def prefetch(apply: bool) -> Any:
    """Fetches what a loop will read some iterations later. Hardware prefetches memory that is walked
    in order; this primitive helps with strides and gathers. It costs one instruction per cache line.
    """
    A, B, s = table()
    if apply:
        # [apply]
        s[B].prefetch(A, B.op.axis[0], 2)
    return s, [A, B]


@primitive(DONE, "tensorize", "rocm -mcpu=gfx942")
def tensorize(apply: bool) -> Any:
    """Replaces a loop and all loops inside it by an intrinsic that computes the same. Here one
    instruction computes four products of bytes. Computation, types and extents must match those of the
    intrinsic. [Matrix units](matrix-units.md) shows whole kernels, and [Schedules](schedules.md#intrinsics-of-your-own) an
    intrinsic of your own.
    """
    A, B = te.placeholder((16, 64), "int8", name="A"), te.placeholder((64,), "int8", name="B")
    k = te.reduce_axis(64, "k")
    C = te.compute((16,), lambda i: te.sum(A[i, k].astype("int32") * B[k].astype("int32"), axis=k), name="C")
    s = tec.create_schedule(C.op)
    s[C].bind(C.op.axis[0], te.thread_axis("threadIdx.x"))
    if apply:
        # [apply]
        outer, inner = s[C].split(k, factor=4)
        s[C].tensorize(inner, te.intrin.dot4("int8"))
    return s, [A, B, C]


@primitive(PLACE, "compute_at")
def compute_at(apply: bool) -> Any:
    """Computes a stage inside a loop of its reader. Each iteration computes only what it needs, and
    reads it while it is still in a cache or a register. Elements that neighbouring iterations share
    are computed more than once: in the example one of 17. Attach the stage at a loop where this
    overlap is small, such as the loop over tiles.
    """
    A, B, C, s = chain()
    if apply:
        # [apply]
        outer, inner = s[C].split(C.op.axis[0], factor=16)
        s[B].compute_at(s[C], outer)
    return s, [A, C]


@primitive(PLACE, "compute_inline")
def compute_inline(apply: bool) -> Any:
    """Substitutes the expression for each read of the stage. It needs no storage and no loops, and
    pays if the arithmetic is cheaper than memory. An element that is read several times is computed
    several times. Reductions cannot be inlined.
    """
    A, B, C, s = chain()
    if apply:
        # [apply]
        s[B].compute_inline()
    return s, [A, C]


@primitive(PLACE, "compute_root")
def compute_root(apply: bool) -> Any:
    """Gives the stage a loop nest of its own, as every stage has at first. It undoes `compute_at` and
    `compute_inline`. Each element is computed once, and the whole tensor needs memory.
    """
    A, B, C, s = chain()
    s[B].compute_inline()
    if apply:
        # [apply]
        s[B].compute_root()
    return s, [A, C]


@primitive(PLACE, "create_group")
def create_group(apply: bool) -> Any:
    """Places several stages together. `compute_at` of the group moves all of its stages to one
    loop.
    """
    A, B, C, s = chain()
    D = te.compute(C.shape, lambda i: C[i] * C[i], name="D")
    s = tec.create_schedule(D.op)
    if apply:
        # [apply]
        group = s.create_group(outputs=C, inputs=A)
        group.compute_at(s[D], s[D].split(D.op.axis[0], factor=16)[0])
    return s, [A, D]


@primitive(MEMORY, "cache_read", "rocm -mcpu=gfx942")
def cache_read(apply: bool) -> Any:
    """Makes a copy of a tensor in another memory, which a stage reads instead. Typical is a tile in
    shared memory (LDS) that a work-group loads once and reads often. Place the copy with `compute_at`,
    and bind its loops so that all threads load.
    """
    A, B, C, s = chain(256)
    s[B].compute_inline()
    block, thread = s[C].split(C.op.axis[0], factor=64)
    s[C].bind(block, te.thread_axis("blockIdx.x"))
    s[C].bind(thread, te.thread_axis("threadIdx.x"))
    if apply:
        # [apply]
        copy = s.cache_read(A, "shared", B)
        s[copy].compute_at(s[C], block)
        s[copy].bind(s[copy].split(s[copy].op.axis[0], factor=64)[1], te.thread_axis("threadIdx.x"))
    return s, [A, C]


@primitive(MEMORY, "cache_write")
def cache_write(apply: bool) -> Any:
    """Computes a tensor in another memory and copies it out. The sums of a tile then stay in
    registers (`local`) during the reduction, and memory is written once. The returned tensor has the
    computation, so schedule its axes.
    """
    A, B, C, k, s = product()
    if apply:
        # [apply]
        CL = s.cache_write(C, "local")
        xo, yo, xi, yi = s[C].tile(*C.op.axis, 4, 16)
        s[CL].compute_at(s[C], yo)
    return s, [A, B, C]


@primitive(MEMORY, "set_scope")
def set_scope(apply: bool) -> Any:
    """Says which memory holds the values of a stage. Without it, a stage inside `threadIdx` loops is
    local, one inside `blockIdx` loops only is shared, and any other is global. Here it moves a small
    tile on a CPU to the stack and to registers.
    """
    A, B, C, s = chain()
    outer, inner = s[C].split(C.op.axis[0], factor=16)
    s[B].compute_at(s[C], outer)
    if apply:
        # [apply]
        s[B].set_scope("local")
    return s, [A, C]


@primitive(MEMORY, "rfactor")
def rfactor(apply: bool) -> Any:
    """Splits a reduction in two: partial results along one of its loops, and the reduction of these.
    The partial results can run in parallel or as vectors, which a single sum cannot. They take memory,
    and floats are added in another order.
    """
    A = te.placeholder((1024,), name="A")
    k = te.reduce_axis(1024, "k")
    S = te.compute((1,), lambda i: te.sum(A[k], axis=k), name="S")
    s = tec.create_schedule(S.op)
    if apply:
        # [apply]
        outer, inner = s[S].split(k, factor=16)
        partial = s.rfactor(S, inner)
        s[partial].reorder(s[partial].op.reduce_axis[0], s[partial].op.axis[0])
        s[partial].vectorize(s[partial].op.axis[0])
    return s, [A, S]


@primitive(MEMORY, "storage_align")
def storage_align(apply: bool) -> Any:
    """Pads the rows of a tensor, so that the columns of a tile in shared memory lie in different
    banks. It costs the memory of the padding. If tiles are read by vectors, a swizzled layout avoids
    the conflicts without padding.
    """
    A, B, s = table(16, 32)
    copy = s.cache_read(A, "global", B)
    if apply:
        # [apply]
        s[copy].storage_align(s[copy].op.axis[0], 32, 1)
    return s, [A, B]


@primitive(MEMORY, "double_buffer", "rocm -mcpu=gfx942")
def double_buffer(apply: bool) -> Any:
    """Keeps two copies of a tile. One is filled while the other is read, which saves one barrier per
    iteration. It takes twice the memory, which can lower the occupancy.
    `pragma(axis, "software_pipeline", n)` also double-buffers loads to registers.
    """
    A, B, C, k, s = product()
    ko, ki = s[C].split(k, factor=8)
    s[C].reorder(ko, *C.op.axis, ki)
    i, j = C.op.axis
    s[C].bind(i, te.thread_axis("threadIdx.x"))
    s[C].reorder(i, ko, j, ki)
    copy = s.cache_read(A, "shared", C)
    s[copy].compute_at(s[C], ko)
    if apply:
        # [apply]
        s[copy].double_buffer()
    return s, [A, B, C]


@primitive(MEMORY, "rolling_buffer")
def rolling_buffer(apply: bool) -> Any:
    """Keeps what neighbouring iterations of a stencil share in a circular buffer, instead of computing
    it again. It applies to a stage that is computed at a loop of the stencil. The indices get a
    remainder.
    """
    A, B, C, s = chain()
    s[B].compute_at(s[C], C.op.axis[0])
    if apply:
        # [apply]
        s[B].rolling_buffer()
    return s, [A, C]


@primitive(MEMORY, "transform_layout")
def transform_layout(apply: bool) -> Any:
    """Stores a tensor under another index, such as blocks of channels or a transpose, and orders the
    loops of the stage like the new index. The readers of the tensor follow. If the tensor is a
    parameter of the function, the caller passes an array that has the shape of the new layout. An
    output may be stored `within` smaller sizes than the index reaches. What lies beyond is not stored.
    """
    A = te.placeholder((8, 32), name="A")
    B = te.compute((8, 32), lambda c, x: A[c, x] * 2.0, name="B")
    C = te.compute((8, 32), lambda c, x: B[c, x] + 1.0, name="C")
    s = tec.create_schedule(C.op)
    if apply:
        # [apply]
        s[B].transform_layout(lambda c, x: [c // 4, x, c % 4])
    return s, [A, C]


@primitive(MEMORY, "set_store_predicate", "rocm -mcpu=gfx942")
def set_store_predicate(apply: bool) -> Any:
    """Stores only where a condition holds. The values are computed in any case. A reduction over
    threads does not need it, because one thread stores its result.
    """
    A, B, s = double(256)
    block, inner = s[B].split(B.op.axis[0], factor=64)
    thread = te.thread_axis("threadIdx.x")
    s[B].bind(block, te.thread_axis("blockIdx.x"))
    s[B].bind(inner, thread)
    if apply:
        # [apply]
        s[B].set_store_predicate(thread.var < 32)
    return s, [A, B]


@primitive(MEMORY, "env_threads", "rocm -mcpu=gfx942")
def env_threads(apply: bool) -> Any:
    """Puts launch indices around a whole scan. Its time loop then runs inside one kernel, instead of
    one launch per step.
    """
    X, S = te.placeholder((16, 64), name="X"), te.placeholder((16, 64), name="S")
    first = te.compute((1, 64), lambda _, i: X[0, i], name="first")
    step = te.compute((16, 64), lambda t, i: S[t - 1, i] + X[t, i], name="step")
    R = te.scan(first, step, S, inputs=[X], name="R")
    s = tec.create_schedule(R.op)
    thread = te.thread_axis((0, 64), "threadIdx.x")
    s[first].bind(first.op.axis[1], thread)
    s[step].bind(step.op.axis[1], thread)
    if apply:
        # [apply]
        s[R].env_threads([thread])
    return s, [X, R]


# ---- the page


def loops(entry: Entry, apply: bool) -> str:
    """The loops of a program, without the head of the function."""
    with warnings.catch_warnings(), tec.Target(entry.target):
        warnings.simplefilter("ignore")
        s, args = entry.make(apply)
        func = next(iter(tec.lower(s, args, simple_mode=True)))
        if entry.until:
            last = [short_name(name) for name, _ in PIPELINE].index(entry.until)
            func = run_passes(func, tec.Target(entry.target), PIPELINE[SIMPLE_MODE_PASSES : last + 1])
        text = str(func)
    body = text[text.index(":\n", text.index("def ")) + 2 :]
    return textwrap.dedent(body).rstrip()


def setup(entry: Entry) -> str:
    """What stands above a program's mark: the computation and its schedule."""
    lines = inspect.getsource(entry.make).splitlines()
    first = next(k for k, line in enumerate(lines) if line.startswith("def ")) + 1
    while not lines[first - 1].endswith('"""'):
        first += 1
    end = next(k for k, line in enumerate(lines) if line.strip() == "if apply:")
    return textwrap.dedent("\n".join(lines[first:end]))


def source(entry: Entry) -> str:
    """What stands under a program's mark."""
    lines = inspect.getsource(entry.make).splitlines()
    at = next(k for k, line in enumerate(lines) if line.strip() == _MARK)
    end = next(k for k, line in enumerate(lines) if line.strip().startswith("return") and k > at)
    return textwrap.dedent("\n".join(lines[at + 1 : end]))


def page() -> str:
    """The page's text."""
    out = [
        "# The schedule primitives", "",
        *textwrap.wrap(
            "This page says what each schedule primitive is for and what it costs, and shows the loops of a small computation before and after it. The programs of "
            "`tools/primitives_guide.py` print the loops. [Schedules](schedules.md) describes whole schedules and what is refused. The [API](api/schedules.md) has "
            "the parameters.", PROSE,
        ), "",
    ]  # fmt: skip
    helpers = "\n\n".join(inspect.getsource(f).strip() for f in (double, table, chain, product))
    out += [_HIDDEN, "from typing import Any", "import tec", "from tec import te", "", helpers, "-->", ""]
    section = ""
    for e in ENTRIES:
        if e.section != section:
            section = e.section
            out += [f"## {section}", ""]
        doc = textwrap.fill(inspect.getdoc(e.make) or "", PROSE, break_long_words=False, break_on_hyphens=False)
        out += [
            f"### {e.title}",
            "",
            doc,
            "",
            _HIDDEN,
            setup(e),
            "-->",
            "",
            "```python",
            source(e),
            "```",
            "",
            '<div class="before-after" markdown>',
            "",
            '```python title="before"',
            loops(e, False),
            "```",
            "",
        ]
        out += ['```python title="after"', loops(e, True), "```", "", "</div>", ""]
    return "\n".join(out).rstrip() + "\n"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
