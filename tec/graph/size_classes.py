"""Classes of an open size: one function with loops for one row, for few, for some and for many; the size says at each call which of them run.

    a group with an open size -> what its templates prefer in each class -> the choices that differ, each lowered -> one function:

    if n0 == 1: the loops of the group with the number 1 in the size's place
    elif n0 <= 16: ...
    elif n0 <= 64: ...
    else: ...

Each class has its own kernels, and the host program has the branch. A network's table of launches has a row for each kernel, whose grid is empty in the other classes
(`HostProgram.straight` of the runtime), so that no Python runs to pick one. CPUs have no classes: their loops part full tiles of rows from the last ones by themselves, and a
function for one row was no faster than the one for all (docs/decisions/size-classes.md).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from functools import partial
from typing import NamedTuple

from ..choices import Choice, Group, Made, Space, chain, is_strict, preferred, spaces
from ..choices.mistakes import tell
from ..driver import Building, Lowered
from ..errors import LoweringError, TecError
from ..ir import Buffer, Expr, Func, IfThenElse, Stmt, Var, build
from ..ir.visit import deep_recursion, substitute_stmt
from ..ops.dims import names_of
from ..ops.registry import static_shape
from ..ops.typical import typical, typically
from ..records import dataclass
from ..target import Target
from .programs import Program

FEW = 4  # rows, of which some templates make all at once
MIDDLE = 64  # a size of the class whose loops also serve where those of another class cannot be made
# The last size of each class (None: there is none), and the size that its choice is made for.
CLASSES: tuple[tuple[int | None, int], ...] = (
    (FEW, FEW), (16, 16), (64, 64), (128, 128), (512, 256), (1024, 1024), (4096, 2048), (None, 8192),
)  # fmt: skip
# Of sizes without end the largest that a choice is judged by: prompts and flattened images have as many rows.
LARGE = 16384
# Times as long as its own choice that a neighbour's should take, by their prices, for a class to have its own: each is lowered, compiled and loaded.
WORTH = 1.3


class _Class(NamedTuple):
    """Sizes up to `end` (None: without end), the size that their choice is made for, all that it is judged by, and what its templates prefer."""

    end: int | None
    size: int
    judged: tuple[int, ...]
    space: Space
    choice: Choice


@dataclass(frozen=True)
class Classes:
    """The classes of a program that are worth having: of the size `name`; (last size or None, size that its choice is made for, sizes that it is judged by), least
    first; the program with the number 1 in the size's place, where that is worth loops of its own."""

    name: str
    kept: tuple[tuple[int | None, int, tuple[int, ...]], ...]
    one: Program | None

    @property
    def middle(self) -> int:
        """The size that the choice is made for which serves where no other does."""
        return next(size for end, size, _ in self.kept if end is None or end >= MIDDLE)

    def likely(self, size: int) -> AbstractContextManager[object]:
        """Inside of the block the open size is thought to be so much, and in its class."""
        end, judged = next((end, judged) for end, n, judged in self.kept if n == size)
        return typically({self.name: size}, {self.name: end}, [{self.name: n} for n in judged if n != size])


@dataclass(frozen=True)
class Variant:
    """The loops of a class, which ends at `end` (None: nowhere)."""

    end: int | None
    made: Made

    def holds(self, size: Var) -> Expr:
        """Whether a size is in the class, where it is in none before. A size may be 0, which the loops of the number 1 do not take."""
        return build.compare("eq" if self.end == 1 else "le", size, self.end)


def classes_of(program: Program, target: Target, bound: Callable[[str, int], Program]) -> Classes | None:
    """The classes of a group's open size: the rows of a product, else the first size that its templates ask for. None on a CPU, and where no size is open,
    nothing is summed, or one choice serves all. bound: the program with a number in a size's place."""
    group = Group.of(program.outputs)
    if not target.is_gpu or not program.sizes.names or not group.reductions():
        return None
    alike: list[_Class] = []  # of a name that is not asked for; the same of another one
    for name in _in_order(program, group):
        kept, asked = (alike, set()) if alike else _apart(program, target, name)
        if asked.isdisjoint(program.sizes.names):
            alike = kept
        one = _one(program, target, kept[0], partial(bound, name, 1)) if kept else None
        if len(kept) > 1 or one is not None:
            return Classes(name, tuple([(c.end, c.size, c.judged) for c in kept]), one)
    return None


def _in_order(program: Program, group: Group) -> list[str]:
    """The names of sizes that may have classes: of a product, of its rows first; of attention all; of other sums and of convolutions that of the outermost
    dimension, where it is one (a batch of 1 is usual, an image of one column is none that anybody has)."""
    if group.form("attention") is not None:
        return program.sizes.names
    found = group.form("product")
    c = found[0].attrs["contraction"] if found is not None else None
    if c is None or c.channels is not None:
        outermost = sorted(names_of(static_shape(program.outputs[0])[:1]))
        return outermost if len(outermost) == 1 else []
    ahead = [n for size in (c.m, c.n, c.k, c.batch) for n in sorted(names_of([size]))]
    return [n for n in dict.fromkeys(ahead) if n in program.sizes.names]


def _apart(program: Program, target: Target, name: str) -> tuple[list[_Class], set[str]]:
    """The classes of a size whose choices differ (none where a template fails), and the sizes that were asked for."""
    found: list[_Class] = []
    for end, size in CLASSES:
        with typically({name: size}, {name: end}) as asked:
            best = preferred(program.outputs, target)
        if best is None:
            return [], asked
        if name not in asked:  # its choice is the same for all sizes
            return [_Class(None, size, (size,), *best)], asked
        if end == FEW and not best[0].makes_all_rows:  # what it has serves more rows as well
            continue
        found.append(_Class(end, size, tuple(dict.fromkeys((size, end or LARGE))), *best))
    judge = _Judge(program, target, name)
    # Classes that are joined one after another must not add up their losses: each size is judged by what its own class preferred.
    own_of = {n: c for c in found for n in c.judged}
    for k in range(len(found) - 1, 0, -1):
        few, many = found[k - 1 : k + 1]
        for own, other in ((many, few), (few, many)):
            if not any(judge.gains(n, many.end, own_of[n], other) for n in own.judged):
                found[k - 1 : k + 1] = [other._replace(end=many.end, judged=few.judged + many.judged)]
                break
    return found, asked


class _Judge:
    """Prices choices at sizes that are none of their own classes': a space is made for the size that it is asked about, since templates read it when they are made."""

    def __init__(self, program: Program, target: Target, name: str):
        self.program, self.target, self.name = program, target, name
        self._spaces: dict[tuple[int, int | None], list[Space]] = {}

    def gains(self, size: int, end: int | None, own: _Class, other: _Class) -> bool:
        """Whether a class's own choice is worth having beside another class's, for sizes up to `end` where they are `size`."""
        with typically({self.name: size}, {self.name: end}):
            if (size, end) not in self._spaces:
                self._spaces[size, end] = spaces(self.program.outputs, self.target)
            there = next((s for s in self._spaces[size, end] if s.template == own.space.template), own.space)
            return _gains(there, own.choice, other.choice)


def _gains(space: Space, own: Choice, other: Choice) -> bool:
    """Whether a class's own choice is worth having beside another one, which it would use in its place."""
    if own == other:
        return False
    if own["template"] != other["template"]:
        return True
    try:
        return not space.is_legal(other) or (space.cost(other).seconds > WORTH * space.cost(own).seconds)
    except Exception as error:  # a template without a price
        tell(space.template, "cost", error)
        return True


def variants(program: Program, classes: Classes, building: Building, middle: Made) -> list[Variant]:
    """The loops of all classes, least first. middle: what is made for the middle class; it serves those that cannot be made. Raises what their templates
    say where choices are strict (`choices.strictly`)."""
    found: list[Variant] = []
    for end, size, _ in classes.kept:
        made = middle if size == classes.middle else _made(program, classes.likely(size), building, str(end or "more"))
        if found and found[-1].made is (made or middle):
            found[-1] = replace(found[-1], end=end)
        else:
            found.append(Variant(end, made or middle))
    one = None if classes.one is None else _made(classes.one, nullcontext(), building, "1")
    return [Variant(1, one), *found] if one is not None else found


def _made(program: Program, sizes: AbstractContextManager[object], building: Building, suffix: str) -> Made | None:
    """The first candidate that lowers where sizes are likely as `sizes` says."""
    program = replace(program, name=f"{program.name}_{suffix}")
    try:
        with sizes:
            return chain(program.outputs, building.target, program.loops, building.checked).first()
    except Exception:  # another class's loops serve
        if is_strict():
            raise
        return None


def _one(program: Program, target: Target, few: _Class, single: Callable[[], Program]) -> Program | None:
    """The program with the number 1 in the size's place, where its loops should differ from those of few, or do a part of what those do."""
    try:
        one = single()
    except TecError:  # a definition that has no form for it
        return None
    # An image of one row, smaller than its filters.
    if any(typical(d) < 1 for t in one.outputs for d in static_shape(t)):
        return None
    best = preferred(one.outputs, target) if one.inputs == program.inputs else None
    if best is None or not (few.space.makes_all_rows or _gains(*best, few.choice)):
        return None
    return one


# ---- one function


@deep_recursion()
def merged(program: Program, classes: Classes, middle: Lowered, found: Sequence[Variant]) -> Lowered:
    """The classes as one function: the middle's, with the launches of all behind conditions on the size. Raises LoweringError where their parameters differ."""
    base = _host(middle)
    at = program.sizes.names.index(classes.name) - len(program.sizes.names)
    size = base.params[at]
    assert isinstance(size, Var)
    *ahead, last = found
    body = _body(last, base)
    for v in reversed(ahead):
        body = IfThenElse(v.holds(size), _body(v, base), body)
    lowered = {id(v.made.lowered): v.made.lowered for v in found}
    parts = tuple([p for low in lowered.values() for p in low.parts])
    return replace(middle, host=base.with_body(body, kernels=tuple([p.name for p in parts])), parts=parts)


def _host(lowered: Lowered) -> Func:
    """What launches the kernels."""
    assert lowered.host is not None  # of a GPU
    return lowered.host


def _body(v: Variant, base: Func) -> Stmt:
    """The launches of a class over the parameters of `base`."""
    own = _host(v.made.lowered)
    if own is base:
        return own.body
    if [_kind(p) for p in own.params] != [_kind(p) for p in base.params]:
        raise LoweringError(
            f"{own.name} and {base.name} have other parameters",
            locate=False,
            hint="make both from the same inputs and outputs",
        )
    values: dict[Var, Expr] = {}
    for p, q in zip(own.params, base.params):
        if isinstance(p, Buffer) and isinstance(q, Buffer):
            values[p.data] = q.data
    return substitute_stmt(own.body, values)


def _kind(p: Buffer | Var) -> tuple[str, str]:
    """What two parameters have in common that are one. Sizes are known by their names, in the geometry of launches too."""
    return p.dtype, "" if isinstance(p, Buffer) else p.name
