"""An emitter holds its parts: no target is a tower of classes, and a target's table of calls adds to the shared one."""

from __future__ import annotations

from typing import Any

import pytest

from tec.codegen.amdgpu import AmdgpuEmitter
from tec.codegen.cpu import CpuEmitter
from tec.codegen.emit.calls import CALLS
from tec.codegen.emit.emitter import Emitter
from tec.codegen.emit.part import Part
from tec.codegen.nvptx import NvptxEmitter
from tec.ir.intrin import INTRINS

MOST_BASES = 4  # of a part above `Part`, itself counted: the shared one, GPUs', a target's addresses, its loads


@pytest.mark.parametrize("emitter", [AmdgpuEmitter, CpuEmitter, NvptxEmitter])
def test_a_target_replaces_parts(emitter: Any) -> None:
    assert emitter.__mro__[1] is Emitter
    parts = list(vars(emitter.parts).values())
    assert all(issubclass(p, Part) and len(p.__mro__) - 2 <= MOST_BASES for p in parts), [p.__mro__ for p in parts]
    shared = {name for name in vars(Emitter) if not name.startswith("__")}
    for part in parts:  # a concern's names are the part's: none shadows the emitter's
        assert not shared & {n for n in vars(part) if not n.startswith("__")}, part


@pytest.mark.parametrize("emitter", [AmdgpuEmitter, CpuEmitter, NvptxEmitter])
def test_tables_of_calls_name_known_operations(emitter: Any) -> None:
    assert set(CALLS) <= set(emitter.calls)
    strange = {op for op in emitter.calls if op not in INTRINS}
    assert not strange, f"lowered, but no operation of the IR: {strange}"
