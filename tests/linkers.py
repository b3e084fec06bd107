"""The linkers of this machine that tests may use."""

from __future__ import annotations

import re
import subprocess
from functools import cache

from tec.codegen.objects.linking import find_lld

_OLDEST = 16  # of the LLVM whose ld.lld knows the ABI of today's code objects


@cache
def has_lld() -> bool:
    """Whether there is an ld.lld that takes tec's objects."""
    command = find_lld()
    if command is None:
        return False
    said = subprocess.run([*command, "--version"], capture_output=True, text=True, timeout=60, check=False).stdout
    version = re.search(r"LLD (\d+)", said)
    return version is not None and int(version[1]) >= _OLDEST
