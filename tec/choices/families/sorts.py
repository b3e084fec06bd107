"""The largest elements in order, as loops: lists in vectors (`insertions`); sorts of words in vectors (`word_sorts`); a heap's work, n log k, a line a thread; or a bitonic sort's,
n log^2 n, a line a work-group (`shared_sorts`) or all threads at once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

from ... import te
from ...ops.forms import Form
from ...ops.sort import above, alike
from ...target import Target
from ...te.ir_builder import BufferVar, IRBuilder
from ..cost import Footprint, Kernel
from ..parts import loops
from ..parts.counts import moved_bytes
from ..space import Choice
from . import heaps, insertions, open_sorts, selection, shared_sorts, word_sorts
from .top_k import TopK

_WORDS_A_STEP = 16  # compared, in vectors of 8 and with half of the loads of a heap's
_EXCHANGED = 8  # instructions for a pair of words in registers: the order of two halves each, and four selections
_BROUGHT = 4  # for a word from shared memory and back
_A_LOAD = 8  # steps for a load of a selection and what is done with its elements
_BOUND = 20  # steps to a bound on what is looked for, and to what is left in order
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
            "algorithm": (
                "heap",
                "bitonic",
                *(("selection", "shared") if self.target.is_gpu else ("list", "digits", "words")),
            ),
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
        ways = (self.choice(algorithm=a, by_wave=False) for a in ("list", "digits", "words", "heap"))
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
        if choice["algorithm"] == "digits" and not (open_sorts.can(dtype) and open_sorts.are_quicker(self.lines.n, k)):
            return f"long lines of elements of up to 32 bits are sorted by digits, for many of them, not {k} of {self.lines.n} {dtype}"
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
        if choice["algorithm"] == "digits":
            return self.chains(open_sorts.MOVES * n, count)
        if choice["algorithm"] == "words":
            return self.chains(word_sorts.steps(n, k) / _WORDS_A_STEP, count)
        if choice["algorithm"] == "selection":
            by_wave = choice.get("by_wave", False)
            if self.target.machine.priced_by_model:
                # A bound is found roughly; each thread has looked at its elements for it, and those that reach it are sorted.
                threads = selection.threads_of(self.of, by_wave)
                loads = n / threads / selection.piece_of(n, self.form.inputs[0].dtype, threads)
                return self.chains(_BOUND + _A_LOAD * loads + k / 2, count * threads)
            threads = self.target.wavefront_size if by_wave else loops.THREADS
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
            "list": lambda: insertions.inserted(of, ib, src, *results),
            "digits": lambda: open_sorts.sorted_lines(of, ib, src, *results),
            "words": lambda: word_sorts.sorted_words(of, ib, src, *results),
            "heap": lambda: heaps.heaped(of, ib, src, *results),
            "bitonic": lambda: _sorted(of, ib, src, *results),
            "shared": lambda: shared_sorts.sorted_by_groups(of, ib, src, *results),
            "selection": lambda: selection.selected(of, by_wave, ib, src, *results),
        }
        ways[choice["algorithm"]]()


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
