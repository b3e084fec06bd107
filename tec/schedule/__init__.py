"""Schedules: how a computation's loops run. `create_schedule(ops)`, then primitives on its stages, then `to_loops`."""

from .schedule import Schedule, create_schedule
from .stage import Stage
from .to_loops import to_loops

__all__ = ["Schedule", "Stage", "create_schedule", "to_loops"]
