"""Notes: what a schedule asks of the passes about a loop or a block, `Attr(note, body)`. One record a word, with checked values.

    with software_pipeline(2):
        for k in range(16): ...

`make(word, value)` gives the record for what `Stage.pragma(axis, word, value)` says; the printer writes its word and values.
A pass that a plugin adds registers its own record with `note`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import MISSING, fields
from difflib import get_close_matches
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from ..errors import ExprError
from ..records import dataclass
from .expr import IntImm


@dataclass(frozen=True, slots=True)
class Note:
    """What every note has: `word` names it in schedules and in text; its fields are its values, checked when it is made."""

    word: ClassVar[str] = ""

    @property
    def values(self) -> tuple[Any, ...]:
        """The fields, in order."""
        return tuple(getattr(self, f.name) for f in fields(self))

    def __str__(self) -> str:
        return f"{self.word}={', '.join(map(str, self.values))}" if self.values else self.word


NOTES: dict[str, type[Note]] = {}
_N = TypeVar("_N", bound=type[Note])


def note(word: str) -> Callable[[_N], _N]:
    """Registers a record under its word."""

    def register(cls: _N) -> _N:
        if word in NOTES:
            raise ExprError(f"two notes are called {word!r}", hint="another word for one of them")
        cls.word = word
        NOTES[word] = cls
        return cls

    return register


@contextmanager
def registered(word: str, cls: type[Note]) -> Iterator[None]:
    """A record under its word meanwhile."""
    note(word)(cls)
    try:
        yield
    finally:
        del NOTES[word]


def _count(what: str, value: Any, least: int) -> int:
    """`value` as an int of at least `least`. Raises ExprError."""
    number = value.value if isinstance(value, IntImm) else value
    if isinstance(number, bool) or not isinstance(number, int) or number < least:
        raise ExprError(
            f"{what} is an integer of at least {least}, not {value!r}",
            hint="a constant: nothing that a loop or a parameter decides",
        )
    return number


def _flag(what: str, value: Any) -> bool:
    """`value` as True or False. Raises ExprError."""
    number = value.value if isinstance(value, IntImm) else value
    if number not in (0, 1):
        raise ExprError(f"{what} is True or False, not {value!r}", hint="leave it out for False")
    return bool(number)


# ---- the records


@note("auto_unroll_max_step")
@dataclass(frozen=True, slots=True)
class AutoUnrollMaxStep(Note):
    """Serial loops below are unrolled as long as what is repeated stays within that many steps."""

    steps: int = 1

    def __post_init__(self) -> None:
        object.__setattr__(self, "steps", _count("auto_unroll_max_step: steps", self.steps, 0))


@note("auto_unroll_max_extent")
@dataclass(frozen=True, slots=True)
class AutoUnrollMaxExtent(Note):
    """Loops of more steps are not unrolled by `auto_unroll_max_step`."""

    extent: int = 1

    def __post_init__(self) -> None:
        object.__setattr__(self, "extent", _count("auto_unroll_max_extent: extent", self.extent, 0))


@note("unroll_explicit")
@dataclass(frozen=True, slots=True)
class UnrollExplicit(Note):
    """Whether `auto_unroll_max_step` writes loops out, or only marks them for LLVM."""

    explicit: bool = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "explicit", _flag("unroll_explicit", self.explicit))


@note("any_order")
@dataclass(frozen=True, slots=True)
class AnyOrder(Note):
    """The reduction of the loop below may be taken in any order, also of floating sums, which else keep theirs."""


@note("in_runs")
@dataclass(frozen=True, slots=True)
class InRuns(Note):
    """On CPUs, a float sum of the loop below that is longer than `steps` is made by runs of as many, whose sums are added: in one chain rounding errors grow with its length."""

    steps: int = 1024

    def __post_init__(self) -> None:
        object.__setattr__(self, "steps", _count("in_runs: steps", self.steps, 1))


COPIES = (
    "first",  # ahead of the work
    "behind",  # behind the work's first wait for warpgroup products and a barrier: issuing copies takes as long as products do, which work meanwhile
)


@note("software_pipeline")
@dataclass(frozen=True, slots=True)
class SoftwarePipeline(Note):
    """Loads of later steps of the loop start early; `stages`: slots of storage (1: later loads wait in registers). `ahead`: with one slot, on AMD with two, how
    many steps before it is worked on a step's loads start. `uneven`: on AMD the first half of the wavefronts along threadIdx.z comes first where two share a vector unit, so that
    one's sums fill what the other waits for. `direct`: with two slots, on chips that load 16 bytes a lane straight into shared memory. `copies`: where a turn starts
    the copies of later steps (COPIES). `in_flight`: warpgroup products of a step may end in the next one, and its first wgmma_wait says that those of the step before have ended."""

    stages: int = 2
    ahead: int = 1
    uneven: bool = False
    direct: bool = False
    copies: str = "first"
    in_flight: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "stages", _count("software_pipeline: stages", self.stages, 1))
        object.__setattr__(self, "ahead", _count("software_pipeline: ahead", self.ahead, 1))
        object.__setattr__(self, "uneven", _flag("software_pipeline: uneven", self.uneven))
        object.__setattr__(self, "direct", _flag("software_pipeline: direct", self.direct))
        if self.copies not in COPIES:
            raise ExprError(
                f"software_pipeline: copies is {self.copies!r}; it is {' or '.join(COPIES)}",
                hint="leave it out for the default",
            )
        object.__setattr__(self, "in_flight", _flag("software_pipeline: in_flight", self.in_flight))


MOST_STAGES = 64  # of a pipeline's order: as many turns of its prologue are written out


@note("software_pipeline_order")
@dataclass(frozen=True, slots=True)
class SoftwarePipelineOrder(Note):
    """The loop as a software pipeline in an order of one's own (see `passes.pipeline.order`). `stage`: for each statement of its body, in turns behind the first one's;
    `order`: its place in a turn (that of the body where it is left out)."""

    stage: tuple[int, ...]
    order: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        for name in ("stage", "order"):
            given = getattr(self, name)
            if isinstance(given, bool) or not isinstance(given, (tuple, list)):
                raise ExprError(
                    f"software_pipeline_order: {name} is a tuple of integers, one for each statement, not {given!r}",
                    hint="stage=(0, 1) for a body of two statements",
                )
            made = tuple([_count(f"software_pipeline_order: {name}[{n}]", v, 0) for n, v in enumerate(given)])
            object.__setattr__(self, name, made)
        if not self.stage:
            raise ExprError(
                "software_pipeline_order: stage is empty, and has one integer for each statement of the loop's body",
                hint="stage=(0, 1) for a body of two statements",
            )
        if max(self.stage) - min(self.stage) >= MOST_STAGES:
            raise ExprError(
                f"software_pipeline_order: stages {min(self.stage)} to {max(self.stage)}; {MOST_STAGES} are the most",
                hint="fewer stages between the first and the last statement",
            )
        object.__setattr__(self, "order", self.order or tuple(range(len(self.stage))))
        if sorted(self.order) != list(range(len(self.stage))):
            raise ExprError(
                f"software_pipeline_order: order has each place from 0 to {len(self.stage) - 1} once, not {self.order!r}",
                hint="order=(1, 0) starts the second of two statements first",
            )

    @property
    def places(self) -> list[int]:
        """The statements in the order of a turn."""
        return sorted(range(len(self.order)), key=lambda n: self.order[n])


@note("warp_specialize")
@dataclass(frozen=True, slots=True)
class WarpSpecialize(Note):
    """Some wavefronts fetch by bulk copies what the others work on; `stages`: slots of storage. `turns`: two warpgroups take the passes of the loop around
    in turn, so that one multiplies while the other does what is left of its own pass."""

    stages: int = 2
    turns: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "stages", _count("warp_specialize: stages", self.stages, 2))
        object.__setattr__(self, "turns", _flag("warp_specialize: turns", self.turns))


@note("fragments_ahead")
@dataclass(frozen=True, slots=True)
class FragmentsAhead(Note):
    """Within a software pipeline: what a step of the loop's nest loads from shared memory into registers is loaded during the step before; of bulk copies
    over the ends of slots too, else with the pipeline's own loads and stores between the sums. The loops below are unrolled. `turns`: a step's sums go along a
    row of the tile and back along the next."""

    turns: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "turns", _flag("fragments_ahead: turns", self.turns))


@note("min_blocks")
@dataclass(frozen=True, slots=True)
class MinBlocks(Note):
    """Work-groups that a unit is to hold at once: a bound on the kernel's registers (NVIDIA)."""

    blocks: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "blocks", _count("min_blocks: blocks", self.blocks, 1))


@note("early_start")
@dataclass(frozen=True, slots=True)
class EarlyStart(Note):
    """The kernel's work-groups may come while the last ones of the kernel ahead still run, and wait for its end by themselves (NVIDIA, sm_90 on; elsewhere
    nothing). It pays for kernels that fill the chip one after the other; its loads of what it only reads are then plain ones (see `nvptx.ordered_loads`)."""


@note("bulk_copy")
@dataclass(frozen=True, slots=True)
class BulkCopy(Note):
    """The nest below, one plain copy between global and shared memory, is made by the unit for bulk copies. `swizzle`: the tile's rows lie in boxes of
    128 bytes with their pieces permuted, as warpgroup products want them and as threads read columns; else as they are, at most 256 elements a row."""

    swizzle: bool = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "swizzle", _flag("bulk_copy: swizzle", self.swizzle))


@note("swizzle")
@dataclass(frozen=True, slots=True)
class Swizzle(Note):
    """Shared buffers stored below have the columns of each row permuted, so that columns are read without bank conflicts. `rows`: rows beside
    each other that one thread stores, its neighbours the next ones, so that these do not meet in a bank either."""

    rows: int = 1

    def __post_init__(self) -> None:
        object.__setattr__(self, "rows", _count("swizzle: rows", self.rows, 1))


@note("import_llvm")
@dataclass(frozen=True, slots=True)
class ImportLlvm(Note):
    """Functions of LLVM IR that `call_extern` below may call: they become part of the code. `text`: the module's text, or the path of a file `.ll`."""

    text: str

    def __post_init__(self) -> None:
        text = self.text
        if not isinstance(text, str):
            raise ExprError(
                f"import_llvm takes the text of an LLVM module, or the path of one, not {type(text).__name__}",
                hint="a str: the text, or a path that ends in .ll",
            )
        if text.endswith(".ll") and "\n" not in text:
            try:
                object.__setattr__(self, "text", Path(text).read_text())
            except OSError as e:
                raise ExprError(
                    f"import_llvm of {text}: {e.strerror}",
                    hint="the path of a file that can be read, or the text itself",
                ) from None
        elif "define" not in text:
            hint = "the text, or a file .ll (llvm-dis makes one of a .bc)"
            raise ExprError(f"import_llvm of what defines no function: {text[:40]!r}", hint=hint)

    def __str__(self) -> str:
        return self.word  # the text would hide the loops


FRAGMENT_ROLES = ("a", "b", "acc", "mma", "wgmma")


@note("fragment")
@dataclass(frozen=True, slots=True)
class Fragment(Note):
    """The nest below is about a register tile: an element-wise step on an operand's ("a", "b", "acc") rows and columns, or a product
    ("mma"; "wgmma" where a and b lie in shared memory) over i, j, k. `instruction`: text of `tec.ir.matrix`."""

    role: str
    instruction: str

    def __post_init__(self) -> None:
        if self.role not in FRAGMENT_ROLES:
            raise ExprError(
                f"a fragment's role is one of {', '.join(FRAGMENT_ROLES)}, not {self.role!r}",
                hint="te.intrin.matrix makes fragments and their notes",
            )
        if not isinstance(self.instruction, str):
            raise ExprError(
                f"fragment.{self.role} names a matrix instruction, not {self.instruction!r}",
                hint="te.intrin.matrix makes fragments and their notes",
            )


def words() -> list[str]:
    """What `make` knows, as a user writes it."""
    return sorted([w for w in NOTES if w != "fragment"] + [f"fragment.{r}" for r in FRAGMENT_ROLES])


def usage(word: str) -> str:
    """How a pragma that there is is written."""
    head, _, rest = word.partition(".")
    values = [f.name for f in fields(NOTES[head])][1 if rest else 0 :]
    return f"s[C].pragma(axis, {', '.join([repr(word), *values])})"


def make(word: Any, value: Any = None) -> Note:
    """The note that a user's pragma asks for; `value` is one value, or a tuple of several. Raises ExprError, with what there is."""
    name = word if isinstance(word, str) else ""
    head, _, rest = name.partition(".")
    cls = NOTES.get(head)
    if cls is None or (rest and cls is not Fragment):
        close = get_close_matches(name, words(), 1)
        meant = f"did you mean {close[0]!r}? " if close else ""
        raise ExprError(f"unknown pragma {word!r}", hint=f"{meant}pragmas: {', '.join(words())}")
    given = () if value is None else value if isinstance(value, tuple) else (value,)
    return build(cls, (rest, *given) if rest else given)


def build(cls: type[Note], values: tuple[Any, ...]) -> Note:
    """A note of its values. Raises ExprError where they do not fit."""
    names = [f.name for f in fields(cls)]
    needed = [f.name for f in fields(cls) if f.default is MISSING]
    if not len(needed) <= len(values) <= len(names):
        takes = f"takes {', '.join(names)}" if names else "takes no value"
        raise ExprError(f"{cls.word} {takes}, not {values!r}", hint="values in this order, or none")
    return cls(*values)
