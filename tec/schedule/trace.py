"""The trace of a schedule."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .schedule import Schedule
    from .stage import Stage


class Trace:
    def __init__(self, sch: Schedule):
        self.sch = sch
        self.steps: list[tuple[Any, ...]] = []

    def add(self, stage: Stage | None, method: str, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any) -> None:
        self.steps.append((stage, method, args, kwargs, out))
