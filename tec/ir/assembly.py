"""The registers of a statement of assembly on elements: `assembly` and `assembly_once` of `tec.ir.intrin`."""

from __future__ import annotations


def registers_of(constraints: str) -> tuple[list[str], list[str], list[str]]:
    """All constraints of a statement, those of its results and those of its operands, as LLVM spells them; clobbers ("~{memory}") are neither."""
    kinds = [c.strip() for c in constraints.split(",") if c.strip()]
    return kinds, [c for c in kinds if c.startswith("=")], [c for c in kinds if not c.startswith(("=", "~"))]


def packed(bits: int, pack: int) -> tuple[int, int]:
    """How many elements of so many bits one register holds, of `pack` that a statement works on, and how many registers hold them all."""
    each = min(pack, max(1, 32 // bits))
    return each, -(-pack // each)
