"""The choices that stood against each other for a network's functions, with what each should take by its sketch.

A package does not keep them: they follow from the graph that it was made of. So the graph's passes run once more, nothing is lowered, and templates are asked for what
they would do. In: the graph, the network that was made of it. Out: plain data by function.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Iterable, Mapping
from typing import Any

from ..choices import spaces
from ..choices.group import Group
from ..choices.mistakes import words_of
from ..choices.space import Choice, Space, text
from ..graph.graph import Graph
from ..graph.optimize import optimize
from ..graph.passes.check_indices import check_indices
from ..graph.passes.fuse import fuse
from ..graph.programs import program_of
from ..graph.sizes import sizes_of_group
from ..target import Target

FUNCTIONS = 32  # of the longest that are asked: pricing one takes some 0.1 s
_OF_A_SPACE = 3  # choices of each template that are shown
_PRICED = 128  # drafts of a template that are looked at, as the compiler does


def considered(graph: Graph, net: Any, functions: Iterable[str], dtype: str | None = None) -> dict[str, dict[str, Any]]:
    """{function: {"rows": [...], "why": text}} for those of `functions` that the graph still says.

    A row is {"template", "choice": text, "us", "limit", "chosen", "refused": why}; rows are ordered by time, those without a price last.
    """
    target = Target(net.module.target)
    by_signature: dict[str, list[str]] = {}
    for f in functions:
        entry = net.report.choices.get(f)
        if entry:
            by_signature.setdefault(entry["signature"], []).append(f)
    found: dict[str, dict[str, Any]] = {}
    with target:
        graph, _ = check_indices(graph)
        for number, group in enumerate(fuse(optimize(graph, target, dtype))):
            if group.is_alias or not by_signature:
                continue
            outputs = program_of(group, number, sizes_of_group(group), graph.guards, target).outputs
            for f in by_signature.pop(Group.of(outputs).signature, ()):
                found[f] = _of_group(spaces(outputs, target), net.report.choices[f], net.report.refused.get(f, []))
    return found


def _of_group(some: list[Space], entry: Mapping[str, Any], refused: list[dict[str, Any]]) -> dict[str, Any]:
    chosen: Choice = entry["choice"]
    rows, default = [], None
    for k, space in enumerate(some):
        choices: list[Choice] = []
        try:
            choices.append(space.default)
            default = choices[0] if k == 0 else default
            drafts = [c for c in itertools.islice(space.drafts(), _PRICED) if c != choices[0]]
            choices += heapq.nsmallest(_OF_A_SPACE - 1, drafts, key=lambda c: space.cost(c).seconds)
        except NotImplementedError:  # plain loops have no sketch for some groups
            pass
        except Exception as error:  # what a template cannot say is said in its row
            rows.append(_words(space, {}, f"choice: {words_of(error)}"))
        if chosen.get("template") == space.template and chosen not in choices:
            choices.append(chosen)
        rows += [_row(space, c, c == chosen, refused) for c in choices]
    rows.sort(key=lambda r: (r["us"] is None, r["us"] or 0.0))
    return {"rows": rows, "why": _why(some, chosen, default, refused, rows)}


def _row(space: Space, choice: Choice, is_chosen: bool, refused: list[dict[str, Any]]) -> dict[str, Any]:
    said = next((r for r in refused if r["template"] == space.template and r.get("choice") == choice), None)
    row = _words(space, choice, f"{said['stage']}: {next(iter(said['reason'].splitlines()), '')}" if said else "")
    row["chosen"] = is_chosen
    try:
        cost = space.cost(choice)
        row["us"], row["limit"] = cost.seconds * 1e6, cost.limit
    except NotImplementedError:
        pass
    except Exception as error:
        row["refused"] = row["refused"] or f"cost: {words_of(error)}"
    return row


def _words(space: Space, choice: Choice, refused: str) -> dict[str, Any]:
    """A row without a price."""
    return {
        "template": space.template,
        "choice": text(choice),
        "us": None,
        "limit": "",
        "chosen": False,
        "refused": refused,
    }


def _why(
    some: list[Space], chosen: Choice, default: Choice | None, refused: list[dict[str, Any]], rows: list[dict[str, Any]]
) -> str:
    """Why the chosen one serves, in words."""
    target = some[0].target
    if refused:
        return f"It is the first that could be made: {len(refused)} before it {'was' if len(refused) == 1 else 'were'} refused."
    if chosen == default:
        if len(some) == 1 and len(rows) == 1:
            return "It is the only choice of the only template that takes this group."
        return "The chosen one has the lowest estimate in the first template that takes this group. Another template is used where that one is refused, or where the estimate of its loops is well below."
    if target.machine.judged:
        return "A search found it (tec tune), or its loops, once they were made, were priced well below the default's."
    return "A search found it (tec tune), or the caller gave it."
