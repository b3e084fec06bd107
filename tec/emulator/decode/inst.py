"""Instructions: what decoders make of machine code and the parser of assembly text, and how they are printed for people.

Modifiers are kept by name, and it is the translator's duty to consume each one (`Inst.take`) and to raise for those left over.
"""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass, field, replace
from functools import cache

# Registers with names, by their number in the scalar operand encoding. M0 and NULL changed places on gfx11; as they
# have names here, one numbering serves.
NAMED_SGPRS: dict[str, tuple[int, int]] = {
    "vcc": (106, 2), "vcc_lo": (106, 1), "vcc_hi": (107, 1), "exec": (126, 2), "exec_lo": (126, 1),
    "exec_hi": (127, 1), "m0": (124, 1), "flat_scratch": (102, 2), "flat_scratch_lo": (102, 1),
    "flat_scratch_hi": (103, 1), "xnack_mask": (104, 2), "xnack_mask_lo": (104, 1), "xnack_mask_hi": (105, 1),
}  # fmt: skip
TTMP0 = 108
INV_2PI = 0.15915494309189532
_ENCODING = re.compile(r"_(e32|e64|dpp|dpp8|sdwa|e64_dpp|gfx\d+\w*)$")
# Opcodes that gfx1250 has under new names.
_RENAMED = {
    "s_get_pc_i64": "s_getpc_b64", "s_set_pc_i64": "s_setpc_b64", "s_swap_pc_i64": "s_swappc_b64", "s_call_i64": "s_call_b64", "s_rfe_i64": "s_rfe_b64",
}  # fmt: skip
# Waits and hints: their operands are read, if at all, from the text.
NO_OPERANDS = frozenset(
    "s_waitcnt s_waitcnt_depctr s_delay_alu s_nop s_clause s_sleep s_setprio s_set_inst_prefetch_distance s_inst_prefetch "
    "s_wait_loadcnt s_wait_storecnt s_wait_samplecnt s_wait_bvhcnt s_wait_expcnt s_wait_dscnt s_wait_kmcnt "
    "s_wait_loadcnt_dscnt s_wait_storecnt_dscnt s_wait_alu s_wait_idle s_waitcnt_vscnt s_waitcnt_lgkmcnt "
    "s_waitcnt_vmcnt s_waitcnt_expcnt s_wait_xcnt s_wait_asynccnt s_wait_tensorcnt s_sendmsg s_version s_code_end "
    "s_wait_event s_prefetch_inst s_prefetch_data s_prefetch_inst_pc_rel s_icache_inv s_dcache_inv s_dcache_wb "
    "s_gl1_inv s_ttracedata s_ttracedata_imm s_incperflevel s_decperflevel s_singleuse_vdst s_set_vgpr_msb".split()
)


@dataclass(frozen=True, slots=True)
class Operand:
    """One operand. `kind`: v, a, s (registers), int, float, symbol, label, special, call (hwreg(...) and the like)."""

    kind: str
    text: str  # as it is printed; a symbol's name alone
    index: int = 0
    count: int = 1
    half: str = ""  # "l" or "h": a 16-bit half register of gfx11 and later
    value: float = 0  # of int and float
    neg: bool = False
    abs: bool = False
    sext: bool = False
    reloc: str = ""
    addend: int = 0

    @property
    def is_reg(self) -> bool:
        return self.kind in ("v", "a", "s")

    @property
    def bare(self) -> str:
        """The text without signs: of "-|src_scc|" src_scc."""
        return self.text.strip("-|")

    def __str__(self) -> str:
        if self.kind != "symbol":
            return self.text
        return f"{self.text}@{self.reloc}" + (f"{self.addend:+d}" if self.addend else "")


@dataclass(slots=True)
class Inst:
    """One instruction: `op` without its encoding suffix, operands, modifiers still to be consumed."""

    op: str
    encoding: str
    operands: list[Operand]
    mods: dict[str, str]
    line: int = 0
    written: str = ""  # its text, where it came as one or was printed before
    dual: Inst | None = None  # the second half of a VOPD instruction
    every_mod: dict[str, str] | None = None  # of a copy: the modifiers that it began with

    @property
    def text(self) -> str:
        """The instruction in LLVM's syntax."""
        if not self.written:
            self.written = self.printed()
        return self.written

    def printed(self, name: str = "") -> str:
        """The text, with `name` where the chip calls the opcode otherwise."""
        parts = [str(o) for o in self.operands]
        if self.op.startswith("image_"):  # of an address in registers that do not follow each other
            end = len(parts) - 1 - has_sampler(self.op)
            if end > 2:
                parts[1:end] = [f"[{', '.join(parts[1:end])}]"]
        text = name or self.op + ("_" + self.encoding if self.encoding else "")
        rest = ", ".join(parts)
        text += f" {rest}" if rest else ""
        for key, value in (self.mods if self.every_mod is None else self.every_mod).items():
            text += f" {key}:{value}" if value else f" {key}"
        return text if self.dual is None else f"{text} :: {self.dual.text}"

    def copy(self) -> Inst:
        """The instruction with modifiers of its own."""
        every = self.mods if self.every_mod is None else self.every_mod
        dual = None if self.dual is None else self.dual.copy()
        return replace(self, operands=list(self.operands), mods=dict(self.mods), dual=dual, every_mod=every)

    def take(self, name: str) -> str | None:
        """The modifier's value ("" where it has none), marking it as modelled; None where it is absent."""
        return self.mods.pop(name, None)

    def take_int(self, name: str, default: int = 0) -> int:
        value = self.mods.pop(name, None)
        return default if value is None else int(value, 0) if value else 1

    def take_list(self, name: str) -> list[int] | None:
        value = self.mods.pop(name, None)
        return None if value is None else [int(x, 0) for x in value.strip("[]").split(",")]


@dataclass(slots=True)
class KernelText:
    """A kernel's instructions in order, then those of the functions that it calls; `labels` maps a label to the index of the instruction that
    follows it."""

    name: str
    insts: list[Inst]
    labels: dict[str, int]
    statements: dict[int, str] = field(default_factory=dict)  # assembly line -> source file:line (.loc)
    functions: dict[str, int] = field(default_factory=dict)  # that it may call: the index of their first instruction
    # Where calls and returns may lead, by their index (`calls`).
    jumps: dict[int, tuple[int, ...]] = field(default_factory=dict)
    arrays: tuple[int, ...] = ()  # where its arrays begin in LDS, in bytes from the first one's, where the text says

    def copy(self) -> KernelText:
        """A text with modifiers of its own: a translation consumes them, so each needs a fresh one."""
        return replace(self, insts=[i.copy() for i in self.insts])


@cache
def opcode(name: str) -> tuple[str, str]:
    """A mnemonic without the suffix of its encoding, and that; one name of those that generations have for one opcode."""
    if name.startswith("s_"):
        return _RENAMED.get(name, name), ""
    encoding = ""
    while found := _ENCODING.search(name):
        encoding = found[1] + ("_" + encoding if encoding else "")
        name = name[: found.start()]
    return name, encoding


def has_sampler(op: str) -> bool:
    """Whether an image instruction has a sampler."""
    return op.startswith(("image_sample", "image_gather", "image_get_lod"))


def float_bits(value: float, fmt: str) -> int:
    """The bits of `value` as 'e' (f16), 'f' (f32) or 'd' (f64)."""
    integer = {"e": "<H", "f": "<I", "d": "<Q"}[fmt]
    return int(struct.unpack(integer, struct.pack("<" + fmt, value))[0])


def generation(chip: str) -> int:
    """9 of gfx90a and gfx942, 11 of gfx1100."""
    return int(chip.removeprefix("gfx")[:-2])
