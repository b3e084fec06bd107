"""Checks a plan's loops and branches: the values that they ask and move are there, of the types that are read, and moved by one loop alone.

What a loop's steps read and write is checked with the other steps; see `check_plan`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

from ..modules.package import damaged
from .plan import Choose, Plan, Repeat
from .steps import flat

_OWN = ("arena", "output", "input")  # places of what can be asked: memory that is not moved


def check_holders(plan: Plan, symbols: set[str], check_expr: Callable[[str, Any, set[str]], None]) -> None:
    """Structure of all loops and branches, for any sizes. PackageError otherwise."""
    moved: dict[str, Repeat] = {}
    for step, _ in plan.holders:
        for name in step.values:
            if name not in plan.values:
                raise damaged(f"{name!r} is no value of the network")
        if isinstance(step, Choose):
            _check_asked(plan, step.condition, "bool")
            continue
        for asked, dtype in ((step.count, "int64"), (step.start, "bool"), (step.going, "bool")):
            if asked is not None:
                _check_asked(plan, asked, dtype)
        if step.trips is None and step.count is None and step.going is None:
            raise damaged("a loop has no end")
        if step.trips is not None:
            check_expr("a loop's trips", step.trips, symbols)
        elif step.items:
            raise damaged("a loop without a bound goes over rows")
        for name in [n for c in step.carried for n in (c.now, c.after)] + [n for n, _ in step.items]:
            if name in moved:
                raise damaged(f"{name!r} is moved by two loops")
            moved[name] = step
        _check_carried(plan, step)
        _check_items(plan, step)
    for step, _ in plan.holders:
        read = [step.condition] if isinstance(step, Choose) else [*step.asked, step.going]
        if any(n in moved for n in read if n is not None):
            raise damaged(f"a loop or a branch asks {read}, which a loop moves")
    _check_inside(plan, moved)


def _check_asked(plan: Plan, name: str, dtype: str) -> None:
    v = plan.values[name]
    if v.dtype != dtype or v.place not in _OWN or any(e != 1 for e in v.shape):
        raise damaged(f"a loop or a branch asks {name!r}, which is {v} in {v.place}, not one {dtype}")


def _check_carried(plan: Plan, step: Repeat) -> None:
    for c in step.carried:
        now, after = plan.values[c.now], plan.values[c.after]
        own = now.place in ("arena", "output") and after.place == "arena" and not now.parts and not after.parts
        if not own or (now.dtype, now.shape) != (after.dtype, after.shape) or c.now == c.after:
            raise damaged(f"{c.now!r} and {c.after!r} are no state of a loop")
        if any(n in v.parts for v in plan.values.values() for n in (c.now, c.after)):
            raise damaged(f"{c.now!r} is a part of another value, and the state of a loop")


def _check_items(plan: Plan, step: Repeat) -> None:
    for name, _ in step.items:
        item = plan.values[name]
        whole = plan.values.get(item.of or "")
        fits = whole is not None and whole.dtype == item.dtype and len(whole.shape) == len(item.shape) + 1
        if item.place != "item" or item.offset is not None or not fits:
            raise damaged(f"{name!r} is no row of {item.of!r}")
        if any(of in plan.growing or plan.values[of].place == "rows" for of in plan.chain(name)):
            raise damaged(f"{name!r} is a row of {item.of!r}, whose rows lie apart")


def _check_inside(plan: Plan, moved: dict[str, Repeat]) -> None:
    """An item is taken by the steps of its loop alone: elsewhere it is no row of anything."""
    loose = {n for n, v in plan.values.items() if v.place == "item" and n not in moved}
    if loose:
        raise damaged(f"{min(loose)!r} is moved by no loop")
    for name in {a for s in plan.flat for a in s.values}:
        for x in plan.chain(name):
            if plan.values[x].place == "item" and not _all_within(plan, name, moved[x]):
                raise damaged(f"{name!r} is taken outside of the loop that goes over {plan.values[x].of!r}")
    for o in plan.outputs:
        if any(plan.values[x].place == "item" for x in plan.chain(o.value)):
            raise damaged(f"output {o.name!r} is a row that a loop goes over")


def _all_within(plan: Plan, name: str, loop: Repeat) -> bool:
    """Whether all steps that take a value are a loop's."""

    def count(steps: Any) -> int:
        return sum(name in s.values for s in flat(steps))

    return count(loop.steps) == count(plan.steps)


def check_made(plan: Plan, step: Repeat | Choose, made: Collection[str]) -> None:
    """What a loop or a branch asks, and a loop's states, are there when it begins."""
    asked = (step.condition,) if isinstance(step, Choose) else (*step.asked, *(c.now for c in step.carried))
    for name in asked:
        if not all(p in made for p in plan.made_of(name)):
            raise damaged(f"a loop or a branch takes {name!r}, which is not made yet or overwritten")


def check_made_after(plan: Plan, step: Repeat, made: Collection[str]) -> None:
    """After a trip its states and its condition are there."""
    names = [n for c in step.carried for n in (c.now, c.after)] + [step.going] * (step.going is not None)
    for name in names:
        assert name is not None
        if not all(p in made for p in plan.made_of(name)):
            raise damaged(f"a loop's steps leave {name!r} unmade, or another overwrites it")
