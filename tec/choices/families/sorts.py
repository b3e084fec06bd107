"""The largest elements in order, as loops: lists in vectors (`insertions`); sorts of words in vectors (`word_sorts`); a heap's work, n log k, a line a thread; or a bitonic sort's,
n log^2 n, a line a work-group (`shared_sorts`) or all threads at once."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, ClassVar

from ... import te
from ...ir import Expr
from ...ops.forms import Form
from ...ops.sort import above, alike
from ...target import Target
from ...te.ir_builder import BufferVar, IRBuilder
from ...te.like import Index
from ..cost import Footprint, Kernel
from ..parts import loops
from ..parts.counts import moved_bytes
from ..space import Choice
from . import insertions, selection, shared_sorts, word_sorts
from .top_k import TopK

_RUN = 16  # elements that a CPU looks at together: some vectors
_WORDS_A_STEP = 16  # compared, in vectors of 8 and with half of the loads of a heap's
_EXCHANGED = 8  # instructions for a pair of words in registers: the order of two halves each, and four selections
_BROUGHT = 4  # for a word from shared memory and back
_SEARCHED = 32  # bits of a key, by which the k-th largest is searched


class Largest(loops.LoopForm):
    """The k largest in order, by "heap", "bitonic" sort of all lines together, "shared" one of a line each, or "selection" of the k-th (`selection`)."""

    template: ClassVar[str] = "largest"
    kind: ClassVar[str] = "topk"

    @classmethod
    def serves(cls, form: Form, target: Target) -> bool:
        return loops.lines_fit(form)

    def read_form(self) -> None:
        self.of = TopK.of(self.form, self.target)
        self.lines, self.k = self.of.lines, self.of.k
        self.parameters = {
            "algorithm": ("heap", "bitonic", *(("selection", "shared") if self.target.is_gpu else ("list", "words"))),
            "by_wave": (False, True) if self.target.is_gpu else (False,),
        }
        # Short lines on a GPU: each element counts those before it, all threads at once, in one pass.
        self.is_second = self.target.is_gpu and self._rule("counted", False)

    @property
    def default(self) -> Choice:
        algorithm = self._rule("algorithm", "selection")
        chosen = self.choice(algorithm=algorithm, by_wave=algorithm == "selection" and self._rule("by_wave", False))
        for found in (chosen, {**chosen, "by_wave": False}):
            if self.target.is_gpu and self.why_not(found) is None:
                return found
        if self.target.is_gpu:
            ways = (self.choice(algorithm=a, by_wave=False) for a in ("shared", "bitonic", "heap"))
            return next(c for c in ways if self.why_not(c) is None)
        ways = (self.choice(algorithm=a, by_wave=False) for a in ("list", "words", "heap"))
        return next(c for c in ways if self.why_not(c) is None)

    def _rule(self, name: str, otherwise: Any) -> Any:
        """What the rules say of a name for these lines."""
        return self.rule(name, otherwise, k=self.k, n=self.lines.n, lines=self.lines.count)

    def why_not(self, choice: Choice) -> str | None:
        dtype, k = self.of.dtype, self.k
        if choice["algorithm"] == "bitonic" and not loops.fits(self.form):
            return f"all elements are compared at once, and are no more than {loops.LIMIT:,}"
        if choice["algorithm"] == "shared" and not shared_sorts.can(self.of):
            return f"shared memory has no room for the words of a line of {self.lines.n} of {dtype}"
        if choice["algorithm"] == "selection" and not selection.can(dtype, k):
            return f"a selection is of at most {selection.MOST} elements of up to 32 bits, not {k} of {dtype}"
        if choice.get("by_wave", False) and (
            choice["algorithm"] != "selection" or not selection.can_by_wave(self.lines.n, k, self.target)
        ):
            return "a wavefront selects as many elements as it has threads, of a line that these keep"
        if choice["algorithm"] == "list" and not insertions.can(self.target, dtype, k):
            return f"a list is of at most {insertions.MOST} elements of 32 or 64 bits, not {k} of {dtype}"
        if choice["algorithm"] == "words" and not word_sorts.can(self.target, dtype, self.lines.n, k):
            return f"at most {word_sorts.MOST_WORDS} words of elements of 32 bits are sorted at once, and not {k} of {dtype}"
        return None

    def sketch(self, choice: Choice) -> Footprint:
        """A heap's comparisons in one thread, a selection's steps over the keys of a work-group's threads, or a sort's passes, one kernel each."""
        n, k, count = self.lines.n, self.k, self.lines.count
        deep = max(1, (n - 1).bit_length())
        if choice["algorithm"] == "heap":
            return self.chains(n * max(1, k.bit_length()), count)
        if choice["algorithm"] == "list":
            return self.chains(n, count)
        if choice["algorithm"] == "words":
            return self.chains(word_sorts.steps(n, k) / _WORDS_A_STEP, count)
        if choice["algorithm"] == "selection":
            threads = self.target.wavefront_size if choice.get("by_wave", False) else loops.THREADS
            return self.chains(_SEARCHED * (1 + n / threads) + k, count * threads)
        if choice["algorithm"] == "shared":
            threads, moved = shared_sorts.threads_of(self.of), float(moved_bytes(self.group))
            passes, steps = shared_sorts.passes_of(self.of)
            each = shared_sorts.size_of(self.of) / threads  # words of a thread
            return Footprint((Kernel(
                count, threads, shared_sorts.shared_bytes(self.of), 0, moved, moved, issued=each * (steps / 2 * _EXCHANGED + passes * _BROUGHT), waits=3, barriers=2 * passes,
            ),))  # fmt: skip
        passes = deep * (deep + 1) // 2
        return self.chains(passes, count * n, passes)

    def body(self, choice: Choice, ib: IRBuilder, sources: list[BufferVar], results: list[BufferVar]) -> None:
        of, (src,), by_wave = self.of, sources, choice.get("by_wave", False)
        ways: dict[str, Callable[[], None]] = {
            "list": lambda: insertions.inserted(of, _offered, ib, src, *results),
            "words": lambda: word_sorts.sorted_words(of, ib, src, *results),
            "heap": lambda: _heaps(of, ib, src, *results),
            "bitonic": lambda: _sorted(of, ib, src, *results),
            "shared": lambda: shared_sorts.sorted_by_groups(of, ib, src, *results),
            "selection": lambda: selection.selected(of, by_wave, ib, src, *results),
        }
        ways[choice["algorithm"]]()


class _Heap:
    """The best elements of a line so far and their places, in `values` and `index` at `at(0)`, `at(1)` ...; the worst of them at `at(0)`."""

    def __init__(
        self,
        ib: IRBuilder,
        values: BufferVar,
        index: BufferVar,
        at: Callable[[Index], Any],
        better: Callable[..., Expr],
    ):
        self.ib, self.values, self.index, self.at, self.better = ib, values, index, at, better
        self.top = ib.allocate(values.dtype, (1,), "top", scope="local")
        self.which = ib.allocate("int64", (1,), "which", scope="local")
        self.here = ib.allocate("int32", (1,), "at", scope="local")
        self.child = ib.allocate("int32", (1,), "child", scope="local")

    def hold(self, value: Expr, place: Expr) -> None:
        """The element that goes down next."""
        self.top[0] = value
        self.which[0] = place

    def put(self, place: Any, value: Expr, which: Expr) -> None:
        self.values[place] = value
        self.index[place] = which

    def sift(self, root: Index, size: Index) -> None:
        """What is held goes down from `root` until both children are better."""
        ib, values, index, better, here, child = self.ib, self.values, self.index, self.better, self.here, self.child
        here[0] = root
        child[0] = root * 2 + 1
        with ib.while_loop(child[0] < size):
            with ib.if_scope(child[0] + 1 < size):
                a, b = self.at(child[0]), self.at(child[0] + 1)
                with ib.if_scope(better(values[a], index[a], values[b], index[b])):
                    child[0] = child[0] + 1
            c = self.at(child[0])
            with ib.if_scope(better(self.top[0], self.which[0], values[c], index[c])):
                self.put(self.at(here[0]), values[c], index[c])
                here[0] = child[0]
                child[0] = here[0] * 2 + 1
            with ib.else_scope():
                child[0] = size
        self.put(self.at(here[0]), self.top[0], self.which[0])


def _heaps(of: TopK, ib: IRBuilder, src: BufferVar, values: BufferVar, index: BufferVar) -> None:
    """A thread makes a heap of its line's k best elements, the worst of them on top; then sorts it in place, the worst to the end first."""
    lines, kept, k, target, largest = of.lines, of.kept, of.k, of.target, of.largest
    n = lines.n
    better = _better(ib, of.dtype, largest)
    with loops.each(ib, target, lines.count, "line") as line:
        heap = _Heap(ib, values, index, functools.partial(kept.at, line), better)
        with ib.for_range(0, k, "j") as j:
            heap.put(heap.at(j), src[lines.at(line, j)], j.astype("int64"))
        with ib.for_range(0, k // 2, "r") as r:
            h = heap.at(k // 2 - 1 - r)
            heap.hold(values[h], index[h])
            heap.sift(k // 2 - 1 - r, k)
        if k < n:
            worst = heap.at(0)

            def offer(j: Expr) -> None:
                heap.hold(src[lines.at(line, j)], j.astype("int64"))
                with ib.if_scope(better(heap.top[0], heap.which[0], values[worst], index[worst])):
                    heap.sift(0, k)

            _offered(ib, src, lines, line, range(k, n), None if target.is_gpu else values[worst], largest, offer)
        with ib.for_range(0, k - 1, "e") as e:
            last, first = heap.at(k - 1 - e), heap.at(0)
            heap.hold(values[last], index[last])
            heap.put(last, values[first], index[first])
            heap.sift(0, k - 1 - e)


def _better(ib: IRBuilder, dtype: str, largest: bool) -> Any:
    """Whether an element and its place come before another's."""

    def better(a: Expr, i: Expr, b: Expr, j: Expr) -> Expr:
        # In steps: one large condition is slow to simplify.
        u, v = ib.let("u", a), ib.let("v", b)
        first = ib.let("first", above(u, v, dtype) if largest else above(v, u, dtype))
        same, sooner = ib.let("same", alike(u, v, dtype)), ib.let("sooner", i < j)
        return te.any(first, te.all(same, sooner))

    return better


def _offered(
    ib: IRBuilder,
    src: BufferVar,
    lines: loops.Lines,
    line: Expr,
    places: range,
    worst: Expr | None,
    largest: bool,
    offer: Any,
) -> None:
    """Offers a line's elements one by one. With `worst`, what they must be better than, in runs, and those runs alone that have one: most runs of a long line have none, which vectors
    tell (a NaN compares with nothing, and is offered)."""
    runs = 0 if worst is None else len(places) // _RUN
    if runs:
        with ib.for_range(0, runs, "run") as run:
            first = places.start + run * _RUN
            bound = ib.let("bound", worst)
            some = ib.allocate("int32", (1,), "some", scope="local")
            some[0] = te.const(0, "int32")
            with ib.for_range(0, _RUN, "r") as r:
                v = src[lines.at(line, first + r)]
                behind = v <= bound if largest else v >= bound
                some[0] = te.max(some[0], te.select(behind, te.const(0, "int32"), te.const(1, "int32")))
            with ib.if_scope(some[0] > 0), ib.for_range(0, _RUN, "r") as r:
                offer(first + r)
    with ib.for_range(places.start + runs * _RUN, places.stop, "j") as j:
        offer(j)


def _sorted(of: TopK, ib: IRBuilder, src: BufferVar, values: BufferVar, index: BufferVar) -> None:
    """A bitonic sort of each line, padded to a power of two: what is beyond the line comes last. Runs are doubled until one is the line; each step compares elements that are
    `apart` from each other."""
    lines, kept, k, target, largest, dtype = of.lines, of.kept, of.k, of.target, of.largest, of.dtype
    n = lines.n
    steps = (n - 1).bit_length()
    size = 1 << steps
    key = ib.allocate(dtype, (lines.count * size,), "key")
    which = ib.allocate("int32", (lines.count * size,), "which")
    with loops.each(ib, target, lines.count * size) as e:
        line, p = te.indexdiv(e, size), te.indexmod(e, size)
        which[e] = p
        # What is beyond the line has the largest numbers, and stays behind by them.
        key[e] = te.if_then_else(p < n, src[lines.at(line, te.min(p, n - 1))], te.const(0, dtype))
    with ib.for_range(0, steps, "run") as run, ib.for_range(0, run + 1, "step") as step:
        with loops.each(ib, target, lines.count * size // 2) as e:
            apart = te.const(1, "int32") << (run - step)
            low = te.indexmod(e, apart)
            a = (e - low) * 2 + low
            b = a + apart
            # Runs of 2 << run elements are sorted up and down in turn, the last run up.
            up = te.bitwise_and(te.indexmod(a, size) >> (run + 1), 1) == 0
            u, v = ib.let("u", key[a]), ib.let("v", key[b])
            i, j = ib.let("i", which[a]), ib.let("j", which[b])
            first = ib.let("first", above(u, v, dtype) if largest else above(v, u, dtype))
            same, sooner = ib.let("same", alike(u, v, dtype)), ib.let("sooner", i < j)
            real = te.all(i < n, j < n)
            ahead = ib.let("ahead", te.select(real, te.any(first, te.all(same, sooner)), sooner))
            with ib.if_scope(ahead != up):
                key[a] = v
                which[a] = j
                key[b] = u
                which[b] = i
    with loops.each(ib, target, lines.count * k) as e:
        line, p = te.indexdiv(e, k), te.indexmod(e, k)
        h = kept.at(line, p)
        values[h] = key[line * size + p]
        index[h] = which[line * size + p].astype("int64")
