"""Choices: how a group of te tensors is computed on a machine, as values.

`spaces(outputs, target)` lists what templates can do with a group; `schedule(outputs, target)` takes the choice that the caller gives, or the first candidate
that lowers (`candidates`, `proof`): what was recorded for it, the first space's default, others, plain stages. `families` has them by
what they compute; stages one after another (`stages`) serve what is left. `parts` has the pieces that templates share, `rules` what was measured, `store` choices that are kept. No operator asks for the target: where it has other forms than its te definition, it carries a note of them
(`tec.ops.forms`) and a template here makes them.

    group -> [Space, ...] -> choice (a dict) -> Scheduled (a schedule, and the tensors it is of)
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping
from typing import Any

from ..errors import LoweringError, ScheduleError, TemplateWarning
from ..target import Target, as_target
from ..te import Tensor
from . import stages
from .candidates import Chain, in_order, warn_of_slower
from .families import (
    attention,
    columns,
    convolutions,
    libraries,
    plain_convolutions,
    products,
    reductions,
    rows,
)
from .families.codes.experts import CpuExperts
from .families.codes.mx_products import MxProduct
from .families.codes.mx_quantize import Blocks
from .families.codes.packed import CpuPacked
from .families.codes.packed_bytes import CpuPackedBytes, CpuRound
from .families.extreme_index import ExtremeIndex
from .families.factors import Factors
from .families.gathers import Gather
from .families.interleavings import Interleaving
from .families.line_scan import LineScan
from .families.linear_recurrence import LinearRecurrence
from .families.open_scatters import OpenScatter
from .families.open_sorts import OpenLargest
from .families.plain_windows import PlainWindows
from .families.products import row_folds
from .families.products.few_columns import FewColumns
from .families.products.few_rows import FewRows
from .families.products.few_rows_bytes import ByteRows
from .families.products.few_rows_matrix import FewRowsMatrix
from .families.products.few_rows_packed import PackedRows
from .families.products.projections import Projection
from .families.products.thin import ThinProduct
from .families.recurrent import CpuRecurrence
from .families.recurrent_gpu import GpuRecurrence
from .families.relayouts import Relayout
from .families.running import Running
from .families.scatters import Scatter
from .families.softmax_rows import SoftmaxRows
from .families.sorts import Largest
from .families.squares import Squares
from .families.transposes import Transpose
from .families.written_rows import WrittenRows
from .group import Group, size_of
from .mistakes import is_strict, strictly
from .proof import Loops, Made, Refused, alone
from .space import Choice, Cost, Scheduled, Space
from .store import records

# Modules, and templates that are a family of their own: `match` gives spaces, one, or None. In this order: the first is the default.
FAMILIES: tuple[Any, ...] = (
    attention,
    CpuRecurrence,
    GpuRecurrence,
    LinearRecurrence,
    Factors,
    Running,
    LineScan,
    Largest,
    OpenLargest,
    SoftmaxRows,
    WrittenRows,
    Scatter,
    OpenScatter,
    Relayout,
    CpuExperts,
    CpuRound,
    CpuPackedBytes,
    CpuPacked,
    MxProduct,
    Blocks,
    ByteRows,
    PackedRows,
    FewRowsMatrix,
    FewRows,
    Projection,
    row_folds,
    FewColumns,
    products,
    convolutions,
    plain_convolutions,
    PlainWindows,
    rows,
    columns,
    ExtremeIndex,
    ThinProduct,
    reductions,
    Transpose,
    Squares,
    Interleaving,
    Gather,
    libraries,
    stages,
)


def spaces(outputs: Iterable[Tensor], target: Target | str | None = None) -> list[Space]:
    """What templates can do with the group that computes `outputs`, the default's first."""
    return _matched(outputs, target)[0]


def _matched(outputs: Iterable[Tensor], target: Target | str | None) -> tuple[list[Space], list[tuple[str, Exception]]]:
    """The spaces of a group, and the families that failed at it, each with its exception."""
    group, tgt = Group.of(outputs), as_target(target)
    # Nothing to compute has no tiles: loops of no trips will do.
    families = (stages,) if all(size_of(t.shape) == 0 for t in group.outputs) else FAMILIES
    found: list[Space] = []
    failed: list[tuple[str, Exception]] = []
    for family in families:
        try:
            made = family.match(group, tgt)
            found.extend((made,) if isinstance(made, Space) else made or ())
        except Exception as error:  # one family's mistake: others may serve
            if is_strict():
                raise
            failed.append((family.__name__.rpartition(".")[2], error))
    # A choice names its template: of two spaces of one name, the second's choices would be taken for the first's.
    by_name: dict[str, Space] = {}
    for space in sorted(found, key=lambda s: s.is_second):
        by_name.setdefault(space.template, space)
    return list(by_name.values()), failed


def preferred(outputs: Iterable[Tensor], target: Target | str | None = None) -> tuple[Space, Choice] | None:
    """The first candidate of the group that computes `outputs`, and its choice, before anything is made of it; None where its template fails at that."""
    try:
        _, space, choice = next(in_order(_matched(outputs, target)[0]))
        return space, space.default if choice is None else choice
    except Exception:  # the chain of candidates meets it too, and tells
        if is_strict():
            raise
        return None


def chain(outputs: Iterable[Tensor], target: Target | str | None, loops: Loops, checked: bool = False) -> Chain:
    """The candidates of the group that computes `outputs`; see `Chain`."""
    found, failed = _matched(outputs, target)
    return Chain(found, loops, checked, failed)


def schedule(
    outputs: Iterable[Tensor],
    target: Target | str | None = None,
    choice: Mapping[str, Any] | None = None,
    keep_form: bool = False,
) -> Scheduled:
    """A schedule for the group that computes `outputs`: by `choice`, or the first candidate that lowers (`candidates`): what is recorded for it
    (`records.using`), the default, others. keep_form: only candidates that compute `outputs` themselves, in no other form. Raises ScheduleError for a choice
    that is not legal, and where no template keeps the form; a choice that is given is taken as it is."""
    ends = list(outputs)
    if choice is None:
        return _first(ends, target, keep_form)
    found = spaces(ends, target)
    named = choice.get("template", found[0].template)
    space = next((s for s in found if s.template == named), None)
    if space is None:
        raise ScheduleError(
            f"no template {named!r} serves this group",
            hint="there are: " + ", ".join(s.template for s in found),
            locate=False,
        )
    return space.apply(choice)


def _keeps_form(scheduled: Scheduled, outputs: list[Tensor]) -> bool:
    return len(scheduled.outputs) == len(outputs) and all(a is b for a, b in zip(scheduled.outputs, outputs))


def _may_keep_form(space: Space, outputs: list[Tensor]) -> bool:
    """Whether a space's default computes the tensors themselves. One that fails may: the chain tells of it."""
    try:
        return _keeps_form(space.build(space.default), outputs)
    except Exception:
        if is_strict():
            raise
        return True


def _first(outputs: list[Tensor], target: Target | str | None, keep_form: bool) -> Scheduled:
    """The first candidate that lowers. Where a refused default is an error it is not lowered here: `build` will say so."""
    found, failed = _matched(outputs, target)
    if keep_form:
        found = [s for s in found if _may_keep_form(s, outputs)]
        if not found:
            raise ScheduleError(
                f"no template schedules {', '.join(t.name for t in outputs)} as they are",
                hint="topi.schedule may compute them in another form",
            )
        if is_strict():
            return found[0].build(found[0].default)

    def accept(made: Made) -> None:
        if keep_form and not _keeps_form(made.scheduled, outputs):
            raise LoweringError("it computes the tensors in another form", locate=False)

    if is_strict():
        _, space, chosen = next(in_order(found))
        return space.build(space.default if chosen is None else chosen)
    tries = Chain(found, alone, failed=failed)
    with warnings.catch_warnings(record=True) as said:  # building it will say them, but for mistakes
        warnings.simplefilter("always")
        made = tries.first(accept)
    for text in dict.fromkeys(str(w.message) for w in said if w.category is TemplateWarning):
        warnings.warn(text, TemplateWarning, stacklevel=3)
    warn_of_slower({made.space.group.name: tries.close()})
    return made.scheduled


__all__ = [
    "Chain", "Choice", "Cost", "Group", "Made", "Refused", "Scheduled", "Space", "chain", "is_strict", "preferred", "records", "schedule",
    "spaces", "strictly", "warn_of_slower",
]  # fmt: skip
