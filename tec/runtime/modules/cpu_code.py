"""Loads CPU code: an ELF object becomes callable functions `int32 f(void** buffers, int64_t* scalars)`.

`objfile` maps and relocates the object; `hostpool` has the helpers that compiled code calls (`tec_parallel_for`,
`tec_alloc`, `tec_free`), and the loop over the steps of a plan (`run_steps`). Objects that a module brings along (`support`) come before both. On a machine without a pool,
plain stand-ins on libc are used: a serial loop, aligned allocation.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import Any

from ...digest import sha256
from ...errors import PackageError
from ...locks import fork_safe_lock
from ..objects.objfile import LoadedObject, load_object
from .callbacks import Thunks
from .hostpool import symbols

# bytes objects as the two argument blocks: ctypes hands their contents over without a copy.
ENTRY = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_char_p, ctypes.c_char_p)
POINTERS = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p)  # the same, by their addresses
_STEPS = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p, ctypes.c_int64)
_TRIPS = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p)
_LAUNCHES = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p, ctypes.c_int64, *(ctypes.c_void_p,) * 3)
STEP_WORDS = 3  # of 64 bits that a step of `run_steps` has: its code, its addresses, its numbers
_BODY = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)
_LOCK = fork_safe_lock()
_SUPPORT: dict[bytes, LoadedObject] = {}
_STAND_INS: dict[str, Any] = {}


class CpuCode:
    """One loaded object. `function(name)` gives a ctypes callable that takes the two argument blocks as bytes."""

    def __init__(self, image: bytes, support: Sequence[bytes] = ()):
        symbols = dict(helpers())
        for obj in support:
            symbols.update(_support(obj).exports)
        self._thunks = Thunks()
        self._object = load_object(image, symbols, self._thunks.resolve)

    def function(self, name: str) -> Callable[[bytes, bytes], int]:
        try:
            address = self._object.address(name)
        except KeyError:
            raise PackageError(
                f"the object defines no function {name!r}",
                hint="the package is damaged, or was put together from two: save the module again",
            ) from None
        function: Any = ENTRY(address)
        function.keep = self._object  # the code stays mapped as long as the function is there
        if not self._thunks:
            return function  # type: ignore[no-any-return]
        thunks = self._thunks  # kept, as the code is

        def call(buffers: bytes, scalars: bytes) -> int:
            status: int = function(buffers, scalars)
            thunks.report()
            return status

        call.machine_code = function  # type: ignore[attr-defined]
        call.report = thunks.report  # type: ignore[attr-defined]
        return call


def _support(obj: bytes) -> LoadedObject:
    """A support object, loaded once a process."""
    key = sha256(obj).digest()
    with _LOCK:
        if key not in _SUPPORT:
            _SUPPORT[key] = load_object(obj, helpers())
        return _SUPPORT[key]


def helpers() -> dict[str, int]:
    """Addresses of the helpers."""
    return symbols() or stand_ins()


def step_loop() -> Callable[[int, int], tuple[int, int]]:
    """What runs a table of steps: `run(address, n)` gives the number of the step that failed and its status, (-1, 0) where none did.

    A step is STEP_WORDS words: the address of its code, that of its table of addresses, that of its numbers.
    """
    return _answering(run_steps())


def run_steps() -> Callable[[int, int], int]:
    """The same as machine code answers: 0, or a number that `answer_of` takes apart."""
    return _STEPS(helpers()["tec_run_steps"])


def answer_of(answer: int) -> tuple[int, int]:
    """The number of the step that failed, and its status."""
    return (answer >> 32) - 1, ctypes.c_int32(answer & 0xFFFFFFFF).value


def _answering(run: Callable[..., int]) -> Callable[..., tuple[int, int]]:
    """A loop of machine code, its answer taken apart."""

    def call(*args: Any) -> tuple[int, int]:
        answer = run(*args)
        return answer_of(answer) if answer else (-1, 0)

    return call


def trip_loop() -> Callable[[int], tuple[int, int]]:
    """What runs a table of steps again and again: `run(address)` of a loop's seven words (see `tec.codegen.support.step_loop`), with `step_loop`'s answer."""
    return _answering(_TRIPS(helpers()["tec_run_trips"]))


def launch_loop() -> Callable[[int, int, Any, int, int], tuple[int, int]] | None:
    """What launches a table's kernels: `run(address, n, stream, launch, launch_ex)` with the addresses of the driver's functions (see
    `tec.codegen.support.step_loop`), and `step_loop`'s answer. None on a machine that tec has no such code for."""
    address = symbols().get("tec_launch_steps")
    return None if address is None else _answering(_LAUNCHES(address))


def stand_ins() -> dict[str, int]:
    """Addresses of the plain helpers."""
    if not _STAND_INS:

        def parallel_for(body: int, closure: int, n: int) -> int:
            return int(_BODY(body)(closure, 0, n))

        def parallel_work(body: int, closure: int, n: int, clocks: int) -> int:
            return parallel_for(body, closure, n)

        def run_steps(table: int, n: int) -> int:
            words = (ctypes.c_int64 * (STEP_WORDS * max(n, 1))).from_address(table)
            for k in range(n):
                code, buffers, scalars = words[STEP_WORDS * k : STEP_WORDS * (k + 1)]
                status = int(POINTERS(code)(buffers, scalars))
                if status:
                    return (k + 1) << 32 | status & 0xFFFFFFFF
            return 0

        def run_trips(loop: int) -> int:
            words = (ctypes.c_int64 * 7).from_address(loop)
            steps, n, trips, going, cells, table, _ = words
            words[6] = 0
            for t in range(trips):
                for j in range(cells):
                    at, start, swap, move = (ctypes.c_int64 * 4).from_address(table + 32 * j)
                    ctypes.c_int64.from_address(at).value = start + t * move + (t & 1) * swap
                answer = run_steps(steps, n)
                if answer:
                    return answer
                words[6] = t + 1
                if going and not ctypes.c_uint8.from_address(going).value:
                    break
            return 0

        def copy_bytes(buffers: int, scalars: int) -> int:
            to, source = (ctypes.c_size_t * 2).from_address(buffers)
            ctypes.memmove(to, source, ctypes.c_int64.from_address(scalars).value)
            return 0

        libc = ctypes.CDLL(None)
        posix_memalign = libc.posix_memalign
        posix_memalign.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_size_t]

        def alloc(nbytes: int) -> int | None:
            out = ctypes.c_void_p()
            return out.value if posix_memalign(ctypes.byref(out), 64, max(nbytes, 1)) == 0 else None

        loop_type = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)
        work_type = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)
        alloc_type = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_int64)
        _STAND_INS.update(
            tec_parallel_for=loop_type(parallel_for), tec_parallel_work=work_type(parallel_work), tec_alloc=alloc_type(alloc), tec_free=libc.free,
            tec_run_steps=_STEPS(run_steps), tec_run_trips=_TRIPS(run_trips), tec_copy_bytes=POINTERS(copy_bytes),
        )  # fmt: skip
    return {name: ctypes.cast(f, ctypes.c_void_p).value or 0 for name, f in _STAND_INS.items()}
