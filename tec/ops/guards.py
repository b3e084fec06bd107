"""Conditions on sizes that a network is compiled under, and each of its runs is held to."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from ..records import dataclass


@dataclass(frozen=True, slots=True)
class Guard:
    """A condition on sizes that the network was compiled under: `size` >= 0; `what` says it in words, and where it comes from."""

    size: Any
    what: str


ACTIVE: ContextVar[list[Guard] | None] = ContextVar("guards", default=None)


@contextmanager
def recording(guards: list[Guard]) -> Iterator[None]:
    """Conditions that `require` cannot prove go to `guards` meanwhile, and those that are there count as known."""
    token = ACTIVE.set(guards)
    try:
        yield
    finally:
        ACTIVE.reset(token)
