"""Says at the end for which host processors compiled code was run here, and for which it could not be."""

from __future__ import annotations

from typing import Any

from tests.conformance import host_levels


def pytest_terminal_summary(terminalreporter: Any) -> None:
    ran = any("test_table.py" in r.nodeid and "[host-" in r.nodeid for r in terminalreporter.stats.get("passed", ()))
    if ran:
        terminalreporter.section("host processors")
        for line in host_levels.summary():
            terminalreporter.write_line(line)
