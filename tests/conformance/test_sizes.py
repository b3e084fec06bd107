"""The passes make no more code of the table's schedules than they did."""

from __future__ import annotations

import json

import pytest

from tests.conformance import sizes

KNOWN = json.loads(sizes.FILE.read_text("utf-8"))
PARTS = 4


@pytest.mark.parametrize("part", range(PARTS))
def test_no_more_code(part: int) -> None:
    """Where less code comes out, or a case is new, `python -m tests.conformance.sizes` writes the counts anew."""
    more = {}
    rows = sizes.all_rows()
    assert {f"{name} {target}" for name, target in rows} == KNOWN.keys()
    for name, target in rows[part::PARTS]:
        now, known = sizes.counts(name, target), KNOWN[f"{name} {target}"]
        if len(now) != len(known) or any(n > k for n, k in zip(now, known)):
            more[f"{name} {target}"] = {c: (k, n) for c, k, n in zip(sizes.COUNTED, known, now) if n > k}
    assert not more, more
