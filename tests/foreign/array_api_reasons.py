"""Why tests of array-api-tests do not pass on `tec.array`: a test as pytest names it without its file -> the reason."""

from __future__ import annotations

REASONS: dict[str, str] = {}  # everywhere: all that apply pass

_COPIES = "DLPack has no number for a GPU in software: an export without a copy is refused, and what is imported lies on the CPU"
# In software, beside those of everywhere.
ON_A_CHIP: dict[str, str] = {"test_from_dlpack": _COPIES, "test_dunder_dlpack": _COPIES}
