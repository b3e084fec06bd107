"""Memory planning: see `tec.runtime.memory`, which also plans when sizes are bound."""

from ..runtime.memory import ALIGN, Lifetime, lower_bound, plan

__all__ = ["ALIGN", "Lifetime", "lower_bound", "plan"]
