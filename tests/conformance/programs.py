"""The table's cases that are tensor expressions with schedules, by name; kernels and arrays, whose files may have been imported before, are none of them."""

from __future__ import annotations

from tests.conformance import elementwise, matmuls, memory, networks, reductions
from tests.conformance.harness import CASES

_FILES = {m.__name__ for m in (elementwise, matmuls, memory, networks, reductions)}
PROGRAMS = {name: case for name, case in sorted(CASES.items()) if case.make.__module__ in _FILES}
