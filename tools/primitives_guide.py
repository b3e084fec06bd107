"""The guide to the schedule primitives, docs/primitives.md: each with its loops before and after, drawn from the programs below.

    python -m tools.primitives_guide          # writes the page; a test holds it against what the programs give

A program makes a computation and a schedule, and applies what stands under its mark. The page shows that part of its source, the loops of the
schedule without it, and with it.
"""

from __future__ import annotations

import inspect
import re
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


LOOPS, DONE, PLACE, MEMORY = "Loops", "What is done with a loop", "Where a stage is computed", "Memory and data"


@primitive(LOOPS, "split")
def split(apply: bool) -> Any:
    """Cuts a loop in two, by the inner loop's extent (`factor`) or the outer's (`nparts`). The first step of nearly everything: what is inside
    becomes a tile, a thread's work or a vector. Where the factor does not divide the extent, the loop is guarded; the guarded end is split off
    into code of its own when it is lowered, so a ragged size costs its last step alone."""
    A, B, s = double(70)
    if apply:
        # [apply]
        outer, inner = s[B].split(B.op.axis[0], factor=16)
    return s, [A, B]


@primitive(LOOPS, "tile")
def tile(apply: bool) -> Any:
    """Two splits and a reorder: blocks of a matrix, so that what a block reads is still in the cache when it is read again. A tile of two operands
    and the result should fit the level of cache it is meant for."""
    A, B, s = table()
    if apply:
        # [apply]
        xo, yo, xi, yi = s[B].tile(B.op.axis[0], B.op.axis[1], x_factor=4, y_factor=8)
    return s, [A, B]


@primitive(LOOPS, "fuse")
def fuse(apply: bool) -> Any:
    """Makes one loop of neighbours: more steps to share among threads or work-groups than either loop has. Indices then need a division and a
    remainder, which the simplifier takes out wherever it can."""
    A, B, s = table()
    if apply:
        # [apply]
        s[B].fuse(B.op.axis[0], B.op.axis[1])
    return s, [A, B]


@primitive(LOOPS, "reorder")
def reorder(apply: bool) -> Any:
    """Changes which loop is inside. The innermost one should walk memory in order (the last dimension); a reduction outside of a data loop lets
    that loop become vectors. It costs nothing by itself."""
    A, B, C, k, s = product()
    if apply:
        # [apply]
        i, j = C.op.axis
        s[C].reorder(i, k, j)
    return s, [A, B, C]


@primitive(DONE, "bind", "rocm -mcpu=gfx942")
def bind(apply: bool) -> Any:
    """Runs a loop as a launch index of a GPU: `blockIdx` for work-groups, `threadIdx` for the threads of one. Neighbouring threads should read
    neighbouring addresses, so bind the loop over the last dimension to `threadIdx.x`; 64 to 256 threads a work-group are usual."""
    A, B, s = double(256)
    outer, inner = s[B].split(B.op.axis[0], factor=64)
    if apply:
        # [apply]
        s[B].bind(outer, te.thread_axis("blockIdx.x"))
        s[B].bind(inner, te.thread_axis("threadIdx.x"))
    return s, [A, B]


@primitive(DONE, "vectorize")
def vectorize(apply: bool) -> Any:
    """Makes the lanes of vectors of a loop of constant extent: one load, one operation, one store for all. On a CPU choose a multiple of the
    machine's vector (16 floats with AVX-512), on a GPU 16 bytes a thread. Where neighbours are not next to each other in memory it becomes a gather."""
    A, B, s = double()
    if apply:
        # [apply]
        outer, inner = s[B].split(B.op.axis[0], factor=16)
        s[B].vectorize(inner)
    return s, [A, B]


@primitive(DONE, "unroll")
def unroll(apply: bool) -> Any:
    """Writes each step out. Storage that such a loop indexes can live in registers, and steps can be interleaved; the code grows by the extent, so
    keep it to the innermost few."""
    A, B, s = double()
    if apply:
        # [apply]
        outer, inner = s[B].split(B.op.axis[0], factor=4)
        s[B].unroll(inner)
    return s, [A, B]


@primitive(DONE, "parallel")
def parallel(apply: bool) -> Any:
    """Shares a loop's steps among the CPU's threads. Handing work out costs some microseconds: parallelize the outermost loop, and nothing that
    takes less than that."""
    A, B, s = table()
    if apply:
        # [apply]
        s[B].parallel(B.op.axis[0])
    return s, [A, B]


@primitive(DONE, "pragma")
def pragma(apply: bool) -> Any:
    """A note to a pass about a loop: here, unroll what is inside as long as it stays below so many steps. `software_pipeline` starts the loads of
    later steps early; `tec.ir.notes` lists all words. A word that no pass knows is refused."""
    A, B, s = table(4, 4)
    if apply:
        # [apply]
        s[B].pragma(B.op.axis[0], "auto_unroll_max_step", 16)
    return s, [A, B]


@primitive(DONE, "software_pipeline", until="pipeline")
def software_pipeline(apply: bool) -> Any:
    """Lets the steps of a loop overlap. Each statement of the loop's body gets a stage and a place. A statement of stage 1 works on a step one turn
    after the statements of stage 0, so here a turn multiplies the row that the turn before has loaded. Storage in the body gets as many slots as
    steps are in it at a time. It pays where one statement waits (loads from memory) and another one computes; it costs the slots, and code for the first and
    the last turns. An order that would change the result is refused. `pragma(axis, "software_pipeline", n)` picks the order for fills of shared
    memory on a GPU by itself."""
    A, B, s = table(8, 32)
    row = s.cache_read(A, "global", B)
    s[row].compute_at(s[B], B.op.axis[0])
    if apply:
        # [apply]
        s[B].software_pipeline(B.op.axis[0], stages=(0, 1), order=(0, 1))
    return s, [A, B]


@primitive(DONE, "prefetch")
def prefetch(apply: bool) -> Any:
    """Asks for what a loop will read some steps ahead. Hardware does it by itself where memory is walked in order; it helps for strides and
    gathers, and costs an instruction a line."""
    A, B, s = table()
    if apply:
        # [apply]
        s[B].prefetch(A, B.op.axis[0], 2)
    return s, [A, B]


@primitive(DONE, "tensorize", "rocm -mcpu=gfx942")
def tensorize(apply: bool) -> Any:
    """Replaces the loops from one inwards by an intrinsic that computes the same: here four products of bytes in one instruction. Computation, types
    and extents must be the intrinsic's; [Matrix units](matrix-units.md) shows whole kernels."""
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
    """Computes a stage inside a loop of its reader: just what one step needs, which is then still in a cache or a register. What neighbouring
    steps share is computed again (here one of two elements), so attach where that is little: outside of an inner tile."""
    A, B, C, s = chain()
    if apply:
        # [apply]
        outer, inner = s[C].split(C.op.axis[0], factor=16)
        s[B].compute_at(s[C], outer)
    return s, [A, C]


@primitive(PLACE, "compute_inline")
def compute_inline(apply: bool) -> Any:
    """Puts the expression in place of each read: no storage and no loops, for arithmetic that is cheaper than memory. What is read several times
    is computed several times; reductions cannot be inlined."""
    A, B, C, s = chain()
    if apply:
        # [apply]
        s[B].compute_inline()
    return s, [A, C]


@primitive(PLACE, "compute_root")
def compute_root(apply: bool) -> Any:
    """A loop nest of its own again, as every stage is at first: undoes `compute_at` and `compute_inline`. Memory for all of it, computed once."""
    A, B, C, s = chain()
    s[B].compute_inline()
    if apply:
        # [apply]
        s[B].compute_root()
    return s, [A, C]


@primitive(PLACE, "create_group")
def create_group(apply: bool) -> Any:
    """Several stages placed together: the group goes where `compute_at` puts it, with all that is in it."""
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
    """A copy of a tensor in another memory, which a stage reads instead: a tile in shared memory (LDS) that a work-group loads once and reads
    often. Place it with `compute_at`, and bind its loops so that all threads load."""
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
    """Computes a tensor in another memory and copies it out: the sums of a tile stay in registers (`local`) while the reduction runs, and memory is
    written once. The returned tensor has the computation: schedule its axes."""
    A, B, C, k, s = product()
    if apply:
        # [apply]
        CL = s.cache_write(C, "local")
        xo, yo, xi, yi = s[C].tile(*C.op.axis, 4, 16)
        s[CL].compute_at(s[C], yo)
    return s, [A, B, C]


@primitive(MEMORY, "set_scope")
def set_scope(apply: bool) -> Any:
    """Says in which memory a stage's values are. Without it a stage inside of `blockIdx` loops is shared, inside of `threadIdx` loops local, elsewhere
    global: set it where that is not what you want, as here a small tile of a CPU goes to the stack and to registers."""
    A, B, C, s = chain()
    outer, inner = s[C].split(C.op.axis[0], factor=16)
    s[B].compute_at(s[C], outer)
    if apply:
        # [apply]
        s[B].set_scope("local")
    return s, [A, C]


@primitive(MEMORY, "rfactor")
def rfactor(apply: bool) -> Any:
    """Splits a reduction in two: partial results along a loop of it, then their reduction. The partial results can run in parallel or as vectors,
    which one sum cannot. They take memory, and floats are added in another order."""
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
    """Pads rows, so that columns of a tile in shared memory lie in different banks. Costs the padding; where tiles are read by vectors, a swizzled
    layout does the same without it."""
    A, B, s = table(16, 32)
    copy = s.cache_read(A, "global", B)
    if apply:
        # [apply]
        s[copy].storage_align(s[copy].op.axis[0], 32, 1)
    return s, [A, B]


@primitive(MEMORY, "double_buffer", "rocm -mcpu=gfx942")
def double_buffer(apply: bool) -> Any:
    """Keeps two copies of a tile: the next is filled while this one is read, with one barrier a step fewer. Twice the memory, which can cost
    occupancy; `pragma(axis, "software_pipeline", n)` does it for loads to registers, too."""
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
    """For a stage computed in a loop of a stencil: what neighbouring steps share is kept in a circular buffer, not computed again. The indices get a
    remainder."""
    A, B, C, s = chain()
    s[B].compute_at(s[C], C.op.axis[0])
    if apply:
        # [apply]
        s[B].rolling_buffer()
    return s, [A, C]


@primitive(MEMORY, "transform_layout")
def transform_layout(apply: bool) -> Any:
    """Stores a tensor by another index, and gives loops in that order: blocks of channels, a transpose. Readers follow. Parameters of the function keep
    the layout they were declared with in shape, so whoever calls it gives arrays that lie so."""
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
    """Stores only where a condition holds; the values are computed all the same. A reduction over threads needs none: its result is stored by one
    thread anyway."""
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
    """Launch indices around a whole scan: its time loop then runs inside of one kernel, not as a launch a step."""
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
        "Each primitive with what it is for, what it costs, and the loops of a small computation before and after it. The loops are printed by the "
        "programs of `tools/primitives_guide.py`; [Schedules](schedules.md) tells how a whole schedule is read and what is refused, the "
        "[API](api/schedules.md) has the parameters.", "",
    ]  # fmt: skip
    helpers = "\n\n".join(inspect.getsource(f).strip() for f in (double, table, chain, product))
    out += [_HIDDEN, "from typing import Any", "import tec", "from tec import te", "", helpers, "-->", ""]
    section = ""
    for e in ENTRIES:
        if e.section != section:
            section = e.section
            out += [f"## {section}", ""]
        doc = re.sub(r"\s+", " ", inspect.getdoc(e.make) or "").strip()
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
