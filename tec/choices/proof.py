"""A choice is legal if it lowers: `prove` builds its schedule, makes loops of it and runs all passes, and nothing but `Made` or `Refused` comes out.

    space, choice -> schedule -> loops -> flat loops, cut into kernels: Made
                        what any of these steps says against it: Refused

No template's promise is asked. `why_not` of a space prunes what is not worth a proof; it need not be right. What is Made has been lowered, and is not
lowered again: code generation goes on with it (`driver.Building.add`).

A proof has a budget of statements after unrolling (`MOST_STATEMENTS`). It is a count and no time, so that the same choice has the same answer on every host.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from .. import driver
from ..errors import LoweringError
from ..ir import Buffer, Func, IntImm
from ..ir import stmt as S
from ..ir.build import all_of
from ..ir.passes.rewrite_util import redirected
from ..ir.visit import deep_recursion
from ..records import dataclass
from ..schedule import to_loops
from ..schedule.relations import Split
from ..target import as_target
from ..te import PlaceholderOp
from .mistakes import words_of
from .space import Choice, Scheduled, Space
from .stages import CpuStages

# What a candidate may be unrolled to, so that a proof ends soon (docs/decisions/chain-of-candidates.md has the measurement). A count: by a limit in time the code
# would depend on how busy the host is.
MOST_STATEMENTS = 4096

Loops = Callable[[Scheduled], Func]


@dataclass(frozen=True, slots=True)
class Made:
    """A choice that lowers: its schedule, and the function after all passes."""

    space: Space
    scheduled: Scheduled
    lowered: driver.Lowered

    @property
    def choice(self) -> Choice:
        return self.scheduled.choice


@dataclass(frozen=True, slots=True)
class Refused:
    """A choice that cannot be made.

    template: the space's name, or the family's where no space came of it; choice: None where the template could not say its own; rank: "recorded", "default",
    "alternative", "draft" or "stages" (`candidates`); stage: where it ended ("match", "choice", "build", "loops", "lowering", "code"); reason: in the
    words of who refused; error: the exception's type; slower: how many times longer the choice that serves in its place should take, None where that
    is not known.
    """

    template: str
    choice: Choice | None
    stage: str
    reason: str
    error: str
    rank: str = ""
    slower: float | None = None

    @classmethod
    def of(cls, template: str, choice: Choice | None, stage: str, error: Exception, rank: str = "") -> Refused:
        """What an exception says."""
        return cls(template, choice, stage, words_of(error), type(error).__name__, rank)

    def than(self, slower: float | None) -> Refused:
        """The same, with what is known of its replacement."""
        return replace(self, slower=slower)

    def to_json(self) -> dict[str, Any]:
        """As plain data, for reports."""
        return {
            "template": self.template, "choice": self.choice, "rank": self.rank, "stage": self.stage, "error": self.error, "reason": self.reason,
            "slower": self.slower,
        }  # fmt: skip


@deep_recursion()
def prove(
    space: Space, choice: Choice, loops: Loops, checked: bool = False, most: int | None = MOST_STATEMENTS
) -> Made | tuple[str, Exception]:
    """Lower a choice. Returns Made, or the stage that ended and its exception; `lower` has the latter as a Refused.

    loops: makes the function of a schedule. checked: whether CPU code asks its accesses. most: the budget in statements, None for no bound."""
    stage = "build"
    try:
        with space.target:
            scheduled = space.build(choice)
            stage = "loops"
            func = _for_all_sizes(space, scheduled, loops)
            stage = "lowering"
            if most is not None and (n := written_out(func.body)) > most:
                raise LoweringError(
                    f"{func.name} would be written out as {n:,} statements; {most:,} is the bound", locate=False
                )
            return Made(space, scheduled, driver.lowered(func, space.target, checked, most, fresh=True))
    except Exception as error:  # a template's mistake is no reason to end a compilation
        return stage, error


def lower(
    space: Space, choice: Choice, loops: Loops, checked: bool = False, most: int | None = MOST_STATEMENTS
) -> Made | Refused:
    """Whether a choice is legal: Made if it lowers, else Refused, and never an exception. See `prove`."""
    found = prove(space, choice, loops, checked, most)
    return found if isinstance(found, Made) else Refused.of(space.template, choice, *found)


def _for_all_sizes(space: Space, scheduled: Scheduled, loops: Loops) -> Func:
    """The function of a choice: where its schedule asserts something of sizes (`Split.long`), behind that question, with what serves all others."""
    func = loops(scheduled)
    is_long = any(isinstance(r, Split) and r.long for stage in scheduled.schedule.stages for r in stage.relations)
    stmts = func.body.stmts if isinstance(func.body, S.Seq) and is_long else ()
    asked = [s.cond for s in itertools.takewhile(lambda s: isinstance(s, S.Assert), stmts) if isinstance(s, S.Assert)]
    if not asked:
        return func
    otherwise = scheduled.otherwise
    if otherwise is None:
        plain = CpuStages(space.group, space.target)
        otherwise = plain.build(plain.default)
    rest = _for_all_sizes(space, otherwise, loops)
    buffers = {id(p): q for p, q in zip(rest.params, func.params) if isinstance(p, Buffer) and isinstance(q, Buffer)}
    return func.with_body(S.IfThenElse(all_of(*asked), S.seq(*stmts[len(asked) :]), redirected(rest.body, buffers)))


def written_out(s: S.Stmt) -> int:
    """Statements that a body becomes when loops of kind "unrolled" and virtual threads are written out: what later passes work on."""
    if isinstance(s, S.Seq):
        return sum(map(written_out, s.stmts))
    if isinstance(s, S.For):
        n = written_out(s.body)
        is_written = s.kind == S.ForKind.UNROLLED or s.thread.startswith("vthread")
        return n * s.extent.value if is_written and isinstance(s.extent, IntImm) else n
    if isinstance(s, S.IfThenElse):
        return written_out(s.then) + (written_out(s.orelse) if s.orelse is not None else 0)
    body: S.Stmt | None = getattr(s, "body", None)
    return written_out(body) if body is not None else 1


def alone(scheduled: Scheduled) -> Func:
    """The function of a schedule by itself: its inputs, then its outputs."""
    inputs = [s.op.output(0) for s in scheduled.schedule.stages if isinstance(s.op, PlaceholderOp)]
    outputs = {id(t): t for t in scheduled.outputs}.values()  # tensors compare to expressions
    return to_loops(scheduled.schedule, [*inputs, *outputs], on_cpu=not as_target(None).is_gpu)
