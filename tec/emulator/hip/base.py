"""What all parts of the stand-in share: the device, errors and who is told of them, handles, the order of work."""

from __future__ import annotations

import _thread
import ctypes
import os
import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from ...errors import TecError
from ...locks import fork_safe_lock
from .. import get_driver
from ..errors import EmulationError, KernelFault, OutOfMemory
from .entry import (
    ERRORS,
    ILLEGAL_ADDRESS,
    INVALID_HANDLE,
    INVALID_VALUE,
    LAUNCH_FAILURE,
    NOT_SUPPORTED,
    OUT_OF_MEMORY,
    SUCCESS,
    UNKNOWN,
    HipError,
)
from .properties import properties

Work = Callable[[], None]


@dataclass(eq=False)
class Stream:
    """A stream: work runs where it is given, so it holds nothing but what is captured."""

    flags: int = 0
    captured: list[Work] | None = None


@dataclass(eq=False)
class Event:
    """`at_us`: the device's clock where the event was recorded; None before."""

    timing: bool = True
    at_us: float | None = None


@dataclass(eq=False)
class Graph:
    """What was captured, in order."""

    work: list[Work] = field(default_factory=list)


class Base:
    """State of the stand-in. Functions of the API are methods of the classes that derive from this one."""

    def __init__(self, chip: str, check: str):
        self.driver = get_driver(chip, check=check)
        self.properties = properties(self.driver)
        self.lock = fork_safe_lock()
        self.last_error = SUCCESS
        self.pending = SUCCESS  # of a launch, told again by the next call that waits
        self.reason = ("", 0)  # why the last call failed, and its status
        self.default = Stream()
        self.clock_us = 0.0  # of the device, by the time model
        self.timers: set[Event] = set()  # recorded, and not yet asked
        self._handles: dict[int, Any] = {}
        self._next = 0x10000
        self._texts: dict[str, Any] = {}
        self.functions: dict[str, int] = {}  # name -> address of what answers it

    # ---- handles

    def handle(self, thing: Any) -> int:
        """A number for an object, that no pointer of the program has."""
        self._next += 16
        self._handles[self._next] = thing
        return self._next

    def held(self, handle: int, kind: type) -> Any:
        found = self._handles.get(handle)
        if not isinstance(found, kind):
            raise HipError(INVALID_HANDLE, f"{handle:#x} is no {kind.__name__.lower()} of this library")
        return found

    def drop(self, handle: int, kind: type) -> Any:
        found = self.held(handle, kind)
        del self._handles[handle]
        return found

    def stream(self, handle: int) -> Stream:
        """NULL, hipStreamLegacy (1) and hipStreamPerThread (2) are the default stream."""
        found: Stream = self.default if handle in (0, 1, 2) else self.held(handle, Stream)
        return found

    def submit(self, stream: int, work: Work) -> None:
        """Do `work` now, or keep it where the stream is being captured."""
        s = self.stream(stream)
        if s.captured is not None:
            s.captured.append(work)
        else:
            work()

    def wait(self) -> int:
        """Everything is done; a launch that failed is told here once more, as hardware would for the first time."""
        status, self.pending = self.pending, SUCCESS
        return status

    def text(self, text: str) -> int:
        """The address of a string that stays."""
        found = self._texts.get(text)
        if found is None:
            found = self._texts[text] = ctypes.create_string_buffer(text.encode())
        return ctypes.addressof(found)

    # ---- errors

    def answer(self, name: str, call: Callable[[], Any]) -> int:
        """The status of a call; what went wrong is told on stderr, faults also to who started the program."""
        try:
            status = call() or SUCCESS
        except HipError as e:
            status = e.status
            if e.message:
                self._tell(name, e.message, status)
        except TecError as e:
            status = status_of(e)
            self._tell(name, str(e), status, isinstance(e, EmulationError))
        except KeyboardInterrupt:
            _thread.interrupt_main()
            status = UNKNOWN
        except Exception:
            self._tell(name, traceback.format_exc(), UNKNOWN, True)
            status = UNKNOWN
        if status:
            self.last_error = status
        return status

    def _tell(self, name: str, message: str, status: int, fault: bool = False) -> None:
        self.reason = (message, status)
        text = f"tec: {name}: {ERRORS.get(status, ('', ''))[0]}: {message}\n"
        sys.stderr.write(text)
        sys.stderr.flush()
        report = os.environ.get("TEC_HIP_FAULTS")
        if fault and report:
            try:
                with open(report, "a") as file:
                    file.write(text + "\0")
            except OSError:
                pass


def status_of(error: TecError) -> int:
    """The API's error for one of tec's."""
    if isinstance(error, KernelFault):
        is_illegal = "out of bounds" in error.fault.kind or "null" in error.fault.detail
        return ILLEGAL_ADDRESS if is_illegal else LAUNCH_FAILURE
    if isinstance(error, EmulationError):
        return LAUNCH_FAILURE
    return OUT_OF_MEMORY if isinstance(error, OutOfMemory) else INVALID_VALUE


def pointer(address: int, what: str = "the result") -> ctypes.c_void_p:
    """Where a handle or an address goes."""
    return ctypes.c_void_p.from_address(need(address, what))


def need(address: int, what: str = "the result") -> int:
    if not address:
        raise HipError(1, f"a null pointer for {what}")
    return address


def put_int(address: int, value: int) -> None:
    ctypes.c_int.from_address(need(address)).value = value


def put_size(address: int, value: int) -> None:
    ctypes.c_size_t.from_address(need(address)).value = value


def refuse(why: str) -> HipError:
    return HipError(NOT_SUPPORTED, why)
