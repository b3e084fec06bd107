"""What torch.compile(backend="tec") made of the programs of this process: which calls are networks of tec's, which stayed torch's and why,
and where TorchDynamo ended a graph.

    print(tec_torch.report())                     # since the process began, or since tec_torch.report(reset=True)
    torch.compile(m, backend="tec", options={"strict": True})      # what would stay torch's is an error
"""

from __future__ import annotations

import logging
import os
import re
import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from tec import ImportModelError
from tec.errors import Loc, one_line

log = logging.getLogger("tec.torch")

# torch lists the same break once for each frame that meets it; a warning shows so many places at most.
SHOWN = 8


@dataclass(frozen=True)
class LeftCalls:
    """Calls of one operator that torch runs: how many, why, and the line of the user's program that leads to the first."""

    operator: str
    reason: str
    times: int
    where: Loc | None = None

    def __str__(self) -> str:
        text = self.reason if self.operator in self.reason else f"{self.operator}: {self.reason}"
        at = f" ({os.path.basename(self.where.file)}:{self.where.line})" if self.where else ""
        return one_line(f"{text}{at}{f', {self.times} times' if self.times > 1 else ''}")


@dataclass(frozen=True)
class GraphBreak:
    """A place where TorchDynamo ended a graph: Python runs there, between two graphs."""

    reason: str
    where: Loc | None = None

    def __str__(self) -> str:
        at = f"{os.path.basename(self.where.file)}:{self.where.line}: " if self.where else "a line that is not told: "
        # TorchDynamo's name for a jump that it cannot follow says nothing to who wrote an `if`.
        branch = "an if or a while asks for a tensor's value (torch.where chooses by element)"
        return one_line(at + (branch if self.reason.startswith("generic_jump") else self.reason))


@dataclass(frozen=True)
class GraphReport:
    """One graph that TorchDynamo found: its calls of operators, and those of them that torch runs."""

    calls: int
    left: tuple[LeftCalls, ...] = ()

    @property
    def left_calls(self) -> int:
        return sum(c.times for c in self.left)


@dataclass(frozen=True)
class Report:
    """The graphs that the backend was given, in order, and the breaks between them."""

    graphs: tuple[GraphReport, ...] = ()
    breaks: tuple[GraphBreak, ...] = ()

    @property
    def calls(self) -> int:
        return sum(g.calls for g in self.graphs)

    @property
    def left_calls(self) -> int:
        """The calls that torch runs. 0 with no `breaks` means that tec compiled all of it."""
        return sum(g.left_calls for g in self.graphs)

    def __str__(self) -> str:
        lines = [
            f"{_count(len(self.graphs), 'graph')}, {_count(self.calls, 'call')}: {self.left_calls} left to torch, "
            f"{_count(len(self.breaks), 'graph break')}"
        ]
        for number, graph in enumerate(self.graphs):
            lines += [f"  graph {number}: {call}" for call in graph.left]
        return "\n".join(lines + [f"  break at {b}" for b in self.breaks])


@dataclass
class _Kept:
    graphs: list[GraphReport] = field(default_factory=list)
    breaks: list[GraphBreak] = field(default_factory=list)
    # Breaks by reason, as TorchDynamo counted them when it was last asked.
    counted: dict[str, int] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)


_kept = _Kept()


def report(*, reset: bool = False) -> Report:
    """What the backend compiled and what it left to torch. reset: later reports begin here."""
    with _kept.lock:
        found = Report(tuple(_kept.graphs), tuple(_kept.breaks))
        if reset:
            _kept.graphs.clear()
            _kept.breaks.clear()
    return found


def keep(graph: GraphReport, strict: bool) -> None:
    """Adds a graph, and says once which of its calls are left to torch. Raises ImportModelError for these if `strict`."""
    if graph.left:
        text = f"{graph.left_calls} of {_count(graph.calls, 'call')} are left to torch: {_listed(graph.left)}"
        if strict:
            raise _refused(text, graph.left[0].where)
        log.warning(text)
    with _kept.lock:
        _kept.graphs.append(graph)


def keep_break(reason: Any, strict: bool) -> None:
    """Adds the break that ended a graph, given TorchDynamo's reason (`compile_subgraph_reason`), and says it once. Raises ImportModelError if `strict`."""
    if reason is None or not getattr(reason, "graph_break", False):
        return
    stack = getattr(reason, "user_stack", None) or ()
    where = Loc(stack[-1].filename, stack[-1].lineno or 0) if stack else None
    broken = GraphBreak(_first_line(str(reason.reason)), where)
    _add_break(broken, strict)


def keep_resumed(code: Any, strict: bool) -> None:
    """Adds the breaks before a graph that no other graph told of: a graph without calls ended there, which no backend is given.

    code: what the graph was made of. TorchDynamo compiles what comes behind a break as a function of its own, whose name says where the break was
    (`torch_dynamo_resume_in_NAME_at_LINE`), and counts breaks by their reasons. Raises ImportModelError if `strict`.
    """
    counted = {_first_line(r): n for r, n in torch._dynamo.utils.counters["graph_break"].items()}
    with _kept.lock:
        told = {b.where for b in _kept.breaks} | {b.reason for b in _kept.breaks}
        new = [r for r, n in counted.items() if n > _kept.counted.get(r, 0) and r not in told]
        _kept.counted = counted
    resumed = re.match(r"torch_dynamo_resume_in_.*_at_(\d+)$", getattr(code, "co_name", ""))
    if resumed is None:
        return
    where = Loc(code.co_filename, int(resumed[1]))
    for reason in new[:-1]:
        _add_break(GraphBreak(reason), False)
    if where not in told or strict:
        _add_break(GraphBreak(new[-1] if new else "TORCH_LOGS=graph_breaks tells why", where), strict)


def _add_break(broken: GraphBreak, strict: bool) -> None:
    if strict:
        raise _refused(f"a graph ends within the program: {broken}", broken.where)
    with _kept.lock:
        known = broken in _kept.breaks
        if not known:
            _kept.breaks.append(broken)
    if not known:
        log.warning("a graph ends, and Python goes on, at %s", broken)


def _first_line(text: str) -> str:
    return next((line.strip() for line in text.splitlines() if line.strip()), "no reason given")


def _listed(left: Sequence[LeftCalls]) -> str:
    more = f"; and {len(left) - SHOWN} more" if len(left) > SHOWN else ""
    return "; ".join(map(str, left[:SHOWN])) + more


def _refused(text: str, where: Loc | None) -> ImportModelError:
    return ImportModelError(
        text, where=where, locate=False, hint='without options={"strict": True} torch runs them between tec\'s networks'
    )


def _count(n: int, what: str) -> str:
    return f"{n} {what}{'' if n == 1 else 's'}"


def grouped(calls: Iterable[tuple[str, str, Loc | None]]) -> tuple[LeftCalls, ...]:
    """Calls (operator, reason, place), those of one operator and reason together under the first one's place."""
    groups: dict[tuple[str, str], list[Loc | None]] = {}
    for operator, reason, where in calls:
        groups.setdefault((operator, reason), []).append(where)
    return tuple(LeftCalls(o, r, len(places), places[0]) for (o, r), places in groups.items())
