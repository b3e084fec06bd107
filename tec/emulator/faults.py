"""What a thread of a launch left in its context, as the error that the caller gets."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING

import numpy as np

from ..runtime.devices.surface import Dim3
from .checks.meeting import DIVERGED
from .checks.order import POLLS
from .checks.race_record import who
from .context import FAULTS, STATE_SCC, STATE_VGPRS
from .errors import EmulationError, Fault, KernelFault
from .stopping import Stopped, WaveState
from .translate.wave import EXEC

if TYPE_CHECKING:
    from .driver import EmuDriver
    from .launch import Thread
    from .modules import Compiled, EmuFunction


def fault_of(
    driver: EmuDriver, function: EmuFunction, compiled: Compiled, thread: Thread, lds: int, grid: Dim3
) -> EmulationError:
    """The error that a thread's context describes."""
    kind = thread.get("status")
    if kind == 21:
        return Stopped(_state(compiled, thread), function.info.name)
    line, instruction = compiled.translation.sites[thread.get("site")]
    group = (thread.get("group_x"), thread.get("group_y"), thread.get("group_z"))
    address = thread.get("address")
    name = function.info.name
    if kind == 6:
        where = f"by wave {thread.get('wave')} of work-group {group}{_loop(function, line)}"
        return EmulationError(
            f"the instruction budget of {driver.budget} is spent {where}: a loop that does not end?", kernel=name, line=line,
            instruction=instruction, hint="raise the budget with TEC_EMULATOR_BUDGET if the kernel is just long",
        )  # fmt: skip
    if kind == 12:
        return EmulationError(
            "a buffer resource with a stride is not modelled", kernel=name, line=line, instruction=instruction
        )
    detail, place = "", driver.memory.describe(address) if address >= 1 << 20 else "in LDS"
    if kind in (1, 2):
        detail = driver.memory.describe(address)
    elif kind in (3, 5):
        detail = f"the work-group has {lds} bytes of LDS"
    elif kind == 26:
        detail = arrays_told(function.text.arrays, address, thread.get("detail"))
    elif kind in (27, 30):
        detail = f"byte {address} of LDS, which wave {thread.get('detail')} {'loads' if kind == 27 else 'stores'}{_other(function, compiled, thread)}; "
        detail += "its waits leave as many operations on their way as this one has behind it"
    elif kind == 8:
        detail = place + "; the other access: " + who(thread.get("detail"), grid) + _other(function, compiled, thread)
    elif kind in (13, 23) and function.asks_the_host:  # an assertion prints what failed, then traps
        detail = driver.hostcalls.error
    elif kind == 11:
        detail = _meeting(function, compiled, thread)
    elif kind == DIVERGED:
        detail = f"other lanes of the wave passed {_other(function, compiled, thread).removeprefix(', ')}, and this one did not come there; "
        detail += "a barrier counts waves, so each side of the branch passes without the other"
    elif kind == 18:
        detail = place + f"; lane {thread.get('detail')} stores another value there: which of them stays is not defined"
    elif kind == 19:
        detail = f"{driver.memory.describe(address)}: read {POLLS} times without a change, and no earlier work-group is left to make one. "
        detail += "Hardware does not promise that a later work-group runs before this one ends"
    elif kind in (9, 14, 15, 16, 17):
        detail = (place if address else "") + _origin(driver, compiled, thread)
    elif kind in (4, 10):
        detail = f"a lane has {function.info.private_bytes} bytes of scratch"
    statement = function.text.statements.get(line)
    if statement:
        detail += f"\n  from {statement}"
    fault = Fault(FAULTS.get(kind, f"fault {kind}"), name, instruction, line, thread.get("lane"), group,
                  thread.get("wave"), address, detail)  # fmt: skip
    return KernelFault(fault)


def _state(compiled: Compiled, thread: Thread) -> WaveState:
    """The wave that stopped, out of its state."""
    made, lanes, wave = compiled.translation, compiled.lanes, thread.get("wave")
    at = thread.states + wave * thread.per_wave
    words = np.frombuffer(ctypes.string_at(at, thread.per_wave), np.uint32)
    vectors = words[STATE_VGPRS // 4 :]
    line, instruction = made.sites[thread.get("site")]
    own = [r for r in made.registers if r[0] != "s"]
    places = {(k, i): lanes * (i + (made.agpr_base if k == "a" else 0)) for k, i in own}
    return WaveState(
        line,
        instruction,
        (thread.get("group_x"), thread.get("group_y"), thread.get("group_z")),
        wave,
        {i: int(words[i]) for k, i in made.registers if k == "s" and i not in (EXEC, EXEC + 1)},
        {r: vectors[at : at + lanes] for r, at in places.items()},
        int(words[STATE_SCC // 4] & 1),
        int(words[EXEC]) | int(words[EXEC + 1]) << 32 if lanes == 64 else int(words[EXEC]),
    )


def arrays_told(starts: tuple[int, ...], address: int, first: int) -> str:
    """In which array an address of LDS lies, and in which the wave's lowest lane is."""
    of = sum(start <= address for start in starts) - 1
    end = f"to {starts[of + 1]}" if of + 1 < len(starts) else "on"
    own = sum(start <= first for start in starts) - 1
    where = f"the access begins at byte {address} of LDS, in array {of} (from {starts[of]} {end})"
    return f"{where}, the lowest lane's at byte {first}, in array {own}; an instruction is of one array, so an index runs out of it"


def _loop(function: EmuFunction, line: int) -> str:
    """The lines of the loop that a branch closes, of the assembly and, where they are known, of the source."""
    text = function.text
    at = next((k for k, inst in enumerate(text.insts) if inst.line == line), None)
    inst = text.insts[at] if at is not None else None
    first = text.labels.get(inst.operands[0].text) if inst is not None and inst.operands else None
    if at is None or first is None or first > at:
        return ""
    lines: dict[str, list[int]] = {}
    for statement in (text.statements.get(i.line, "") for i in text.insts[first : at + 1]):
        file, _, number = statement.rpartition(":")
        if file and number.isdigit():
            lines.setdefault(file, []).append(int(number))
    source = ", ".join(f"{file}:{min(n)} to {max(n)}" for file, n in lines.items())
    return f", in the loop of lines {text.insts[first].line} to {line}" + (f", from {source}" if source else "")


def _place(function: EmuFunction, compiled: Compiled, site: int) -> str:
    """ "line 12: ds_write_b32 v0, v1", with the statement that it comes from where that is known."""
    line, instruction = compiled.translation.sites[site]
    statement = function.text.statements.get(line)
    return f"line {line}: {instruction.strip()}" + (f", from {statement}" if statement else "")


def _other(function: EmuFunction, compiled: Compiled, thread: Thread) -> str:
    site = thread.get("other_site")
    return f", {_place(function, compiled, site - 1)}" if site else ""


def _meeting(function: EmuFunction, compiled: Compiled, thread: Thread) -> str:
    """Who is missing at a barrier, or where else."""
    site = thread.get("other_site")
    if site:
        return f"other waves of the work-group are at another barrier, {_place(function, compiled, site - 1)}"
    return f"wave {thread.get('wave')} ended without it, having stored something or used LDS; hardware lets the others pass"


def _origin(driver: EmuDriver, compiled: Compiled, thread: Thread) -> str:
    """The load that brought undefined bits last, if there was one: most often where the value comes from."""
    site = thread.get("origin_site")
    if not site:
        return "\n  no vector load brought an undefined value: a register that was never written, or what a scalar load found"
    line, instruction = compiled.translation.sites[site - 1]
    address = thread.get("origin_address")
    place = driver.memory.describe(address) if address >= 1 << 20 else f"byte {address} of LDS or scratch"
    return (
        f"\n  last load of memory that was never written: line {line}: {instruction.strip()}\n"
        f"    lane {thread.get('origin_lane')}, {place}"
    )
