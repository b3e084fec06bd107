"""Functions that a kernel calls: which of a module's belong to its text, and where its calls and returns lead.

A call (`s_swappc_b64`) goes to an address that code has found relative to the program counter, in the table of addresses (GOT), or in memory; the first
two are read from the text, the last may be any function whose address stands in data. A return (`s_setpc_b64`) leads behind the calls that may have
reached its function. Recursion is nothing special: what a call keeps lies in scratch.
Source: LLVM's "User Guide for AMDGPU Backend", "Calling Conventions", "Non-Kernel Functions".
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Set

from ..decode.asmparse import Body
from ..decode.disassemble import Disassembly, Reader
from ..decode.inst import Inst, KernelText
from ..errors import UnsupportedInstruction
from .high_registers import name_high_registers
from .skipped import branch_over_skipped

CALLS = frozenset(("s_swappc_b64", "s_call_b64"))
_FUNCTION = re.compile(r'^\s*\.type\s+"?([^\s,"]+)"?\s*,\s*@function', re.M)
_ADDRESS = re.compile(r"^\s*\.quad\s+([A-Za-z_.$][\w.$]*)\s*$", re.M)


def parse_kernel(asm: str, name: str) -> KernelText:
    """The instructions of kernel `name` of a text and of what it calls; raises `UnsupportedInstruction` where the text cannot be read."""
    return _gather(Body(asm.split("\n"), name), name, lambda: functions_of(asm))


def decoded_kernel(code: Disassembly, name: str) -> KernelText:
    """The same of a code object's machine code."""
    return _gather(Reader(code, name), name, lambda: (code.functions, code.in_data))


def _gather(body: Body | Reader, name: str, functions: Callable[[], tuple[Set[str], Set[str]]]) -> KernelText:
    """A kernel and the functions that it may call; `functions` tells all that there are, and those whose addresses stand in data."""
    if not body.read(name):
        raise UnsupportedInstruction(f"the assembly has no kernel {name!r}", kernel=name)
    text = body.text
    if not text.insts:
        raise UnsupportedInstruction(f"kernel {name!r} has no instructions", kernel=name)
    if any(i.op in CALLS or is_return(i) for i in text.insts):
        every, in_data = functions()
        _read_called(body, name, every, in_data)
        connect(text, in_data)
    name_high_registers(text)
    branch_over_skipped(text)
    return text


def _read_called(body: Body | Reader, name: str, every: Set[str], in_data: Set[str]) -> None:
    """The functions that a kernel may call behind it, and those that they may call, until there are no more."""
    text, done = body.text, 0
    while done < len(text.insts):
        begun, done = done, len(text.insts)
        wanted = [s for s in mentioned(text.insts[begun:done]) if s in every]
        # Only a call of who knows whom needs those that data names.
        if any(text.insts[at].op in CALLS and traced(text, at, begun) is None for at in range(begun, done)):
            wanted += in_data
        for function in dict.fromkeys(wanted):
            at = len(text.insts)
            is_new = function not in text.functions and function != name
            if is_new and body.read(function) and len(text.insts) > at:
                text.functions[function] = text.labels[function] = at


def functions_of(asm: str) -> tuple[frozenset[str], frozenset[str]]:
    """The functions that a module's text has, kernels among them, and those whose addresses stand in its data."""
    every = frozenset(_FUNCTION.findall(asm))
    return every, frozenset(_ADDRESS.findall(asm)) & every


def mentioned(insts: Iterable[Inst]) -> list[str]:
    """The symbols that instructions name, and the labels that calls do."""
    found: dict[str, None] = {}
    for inst in insts:
        for op in inst.operands:
            if op.kind == "symbol" or (op.kind == "label" and inst.op == "s_call_b64"):
                found[op.text] = None
    return list(found)


def is_return(inst: Inst) -> bool:
    return inst.op == "s_setpc_b64"


def connect(text: KernelText, in_data: Iterable[str]) -> None:
    """Fill `text.jumps`: for each call its functions' first instructions, for each return the places behind the calls it may end."""
    insts, entries = text.insts, text.functions
    anywhere = sorted(entries[n] for n in {*in_data, *_escaping(text)} if n in entries)
    starts = sorted([0, *entries.values()])

    def owner(at: int) -> int:
        return max(s for s in starts if s <= at)

    calls: dict[int, list[int]] = {}
    tails: dict[int, list[int]] = {}
    for at, inst in enumerate(insts):
        if inst.op in CALLS or is_return(inst):
            goal = traced(text, at, owner(at))
            known = [entries[goal]] if goal in entries else None
            if inst.op in CALLS:
                calls[at] = known or anywhere
            elif known is not None:
                tails[at] = known
            else:
                tails[at] = []
    # Who may be running when a return comes: calls reach functions, tail calls hand the return on.
    returns: dict[int, set[int]] = {s: set() for s in starts}
    for at, goals in calls.items():
        for g in goals:
            returns[g].add(at + 1)
    changed = True
    while changed:
        changed = False
        for at, goals in tails.items():
            for g in goals:
                before = len(returns[g])
                returns[g] |= returns[owner(at)]
                changed |= len(returns[g]) != before
    for at, goals in calls.items():
        text.jumps[at] = tuple(goals)
    for at, goals in tails.items():
        text.jumps[at] = tuple(goals) if goals else tuple(sorted(returns[owner(at)]))


def traced(text: KernelText, at: int, start: int) -> str | None:
    """The function whose address a call's or jump's operand holds, by the text before it; None where it came out of memory or an argument."""
    inst = text.insts[at]
    op = inst.operands[-1]
    if op.kind == "label":
        return op.text
    wanted = op.index
    for k in range(at - 1, start - 1, -1):
        before = text.insts[k]
        if not before.operands or before.operands[0].kind != "s" or before.op.startswith(("s_cmp", "s_bitcmp")):
            continue
        dst = before.operands[0]
        if not dst.index <= wanted < dst.index + max(1, dst.count):
            continue
        if (
            before.op in ("s_add_u32", "s_add_co_u32", "s_add_nc_u64", "s_add_u64")
            and before.operands[2].kind == "symbol"
        ):
            return before.operands[2].text
        if before.op in ("s_mov_b64", "s_mov_b32") and before.operands[1].kind == "s":
            wanted = before.operands[1].index
            continue
        if before.op.startswith("s_load_") and before.operands[1].kind == "s":
            # Out of the table of addresses, whose slot has the symbol's name.
            base = before.operands[1].index
            for j in range(k - 1, start - 1, -1):
                slot = text.insts[j]
                if slot.operands and slot.operands[0].kind == "s" and slot.operands[0].index == base:
                    found = slot.operands[2] if len(slot.operands) > 2 else None
                    return found.text if found is not None and found.reloc.startswith("gotpcrel") else None
        return None
    return None


def _escaping(text: KernelText) -> set[str]:
    """Functions whose addresses code takes for more than a call of its own: passed on, stored, chosen between."""
    taken: set[str] = set()
    for at, inst in enumerate(text.insts):
        for op in inst.operands:
            if op.kind == "symbol" and op.text in text.functions and not _called_next(text, at):
                taken.add(op.text)
    return taken


def _called_next(text: KernelText, at: int) -> bool:
    """Whether a call follows that finds this address: the pair is read by nothing else in between but the address's own sums."""
    pair = {text.insts[at].operands[0].index & ~1, text.insts[at].operands[0].index | 1}
    for inst in text.insts[at + 1 :]:
        if inst.op in CALLS or is_return(inst):
            if inst.operands[-1].kind == "s" and inst.operands[-1].index in pair:
                return True
            continue
        used = [o for o in inst.operands if o.kind == "s" and pair & set(range(o.index, o.index + max(1, o.count)))]
        if not used:
            continue
        if used[0] is inst.operands[0] and any(o.kind == "symbol" for o in inst.operands):
            continue  # the other half's sum
        if inst.op.startswith("s_load_") and len(used) == 1 and used[0] is inst.operands[1]:
            pair = {inst.operands[0].index, inst.operands[0].index + 1}  # out of the table of addresses
            continue
        return False
    return False
