"""Counts the kernels that were right and gave no report."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

CHECKS = "all"


@pytest.fixture
def counted(request: pytest.FixtureRequest) -> Callable[[str, str], None]:
    """`counted(compiler, kernel)` behind the comparison."""

    def count(compiler: str, kernel: str) -> None:
        request.node.user_properties.append(("foreign", (compiler, kernel)))

    return count


def pytest_terminal_summary(terminalreporter: Any) -> None:
    properties = [v for r in terminalreporter.stats.get("passed", []) for k, v in r.user_properties if k == "foreign"]
    by_compiler: dict[str, set[str]] = {}
    for compiler, kernel in properties:
        by_compiler.setdefault(compiler, set()).add(kernel)
    if by_compiler:
        parts = ", ".join(f"{len(k)} of {c}" for c, k in sorted(by_compiler.items()))
        total = sum(map(len, by_compiler.values()))
        terminalreporter.write_line(f"kernels of others, right and without a report of {CHECKS}: {total} ({parts})")
