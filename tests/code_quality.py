"""What holds of all AMD code that tests compile: nothing spills, and loops on CDNA's matrix units start their loads early."""

from __future__ import annotations

from typing import Any

import tec
from tec.codegen.static_report import report

COVER = 0.5  # of a step's matrix work, that lies between a load and the wait for it


def check_code(module: Any, cover: bool = True) -> None:
    """AssertionError where a kernel of a module for an AMD GPU is not as it should be. What LLVM sinks behind the matrix work waits for memory each step.

    cover: whether to look at that too."""
    target = tec.Target(module.target)
    if target.kind != "rocm":
        return
    device = module.imported_modules[0] if module.imported_modules else module
    for r in report(device.get_source("asm")):
        assert not r.spills, f"{r.name} spills {r.spills} registers"
        found = r.load_cover if cover and target.chip.family.startswith("cdna") else None
        assert found is None or found >= COVER, f"{r.name}: a load is covered by {found:.2f} of a step's matrix work"
