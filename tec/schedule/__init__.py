"""Schedules: how a computation's loops run. `create_schedule(ops)`, then primitives on its stages, then `to_loops`."""

from .auto_inline import AutoInlineBroadcast, AutoInlineElemWise, AutoInlineInjective
from .schedule import Schedule, create_schedule, replay
from .stage import Stage
from .to_loops import to_loops
from .trace import Trace

__all__ = [
    "AutoInlineBroadcast",
    "AutoInlineElemWise",
    "AutoInlineInjective",
    "Schedule",
    "Stage",
    "Trace",
    "create_schedule",
    "replay",
    "to_loops",
]


def __dir__() -> list[str]:
    """The public names, which completion then offers."""
    return sorted(__all__)
