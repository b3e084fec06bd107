"""The Analyzer finds out no less than it did about drawn expressions."""

from __future__ import annotations

import json

import pytest

from tests.unit.ir import strength


@pytest.mark.parametrize("kind", strength.KINDS)
def test_no_less_is_found_out(kind: str) -> None:
    """Where more is found out, `python -m tests.unit.ir.strength` writes the new numbers."""
    known, now = json.loads(strength.FILE.read_text("utf-8"))[kind], strength.measured(kind)
    assert len(known) == len(now)
    worse = [
        f"case {n}: {a} became {b}" for n, (a, b) in enumerate(zip(known, now)) if any(y > x for x, y in zip(a, b))
    ]
    assert not worse, f"{len(worse)} of {len(now)}: {worse[:8]}"
