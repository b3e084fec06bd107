"""Why tests of array-api-tests do not pass on `tec.array`: a test as pytest names it without its file -> the reason. Empty: all that apply pass."""

from __future__ import annotations

REASONS: dict[str, str] = {}
