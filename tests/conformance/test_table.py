"""Every kernel of the table on every device that is there (see harness.py)."""

from __future__ import annotations

import pytest

import tec
from tests.conformance import elementwise, matmuls, memory, networks, reductions  # noqa: F401  (they fill CASES)
from tests.conformance.harness import CASES, run_case, targets


def _params() -> list[object]:
    rows = []
    for device, (text, kind) in targets().items():
        marks = []
        if device == "cuda":
            marks.append(pytest.mark.gpu)
        for name, case in CASES.items():
            if kind not in case.kinds or not case.needs(tec.Target(text)):
                continue
            rows.append(pytest.param(name, device, id=f"{device}-{name}", marks=marks))
    return rows


@pytest.mark.parametrize(("name", "device"), _params())
def test_conformance(name: str, device: str) -> None:
    run_case(CASES[name], device)


def test_table_size() -> None:
    assert len(CASES) >= 60
