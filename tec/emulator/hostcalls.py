"""The host's side of what kernels ask of it while they run: printf, assert's message, device malloc.

ROCm's device libraries put a request into a packet of a buffer that the kernel finds among its hidden arguments (`hidden_hostcall_buffer`), push it
on a stack, send a message (`s_sendmsg MSG_INTERRUPT`) and wait for a bit to be cleared. The message is answered when it is sent, before the wave's
next instruction, so nobody waits. What is printed is shown when the launch ends, in the order of work-groups and waves, so that it is the
same in each run.

    buffer   +0 headers, +8 payloads, +16 signal, +24 free packets, +32 packets to be served, +40 mask of a packet's number
    header   +0 next, +8 lanes, +16 service, +20 control (bit 0: wanted)          24 bytes a packet
    payload  8 words of 8 bytes a lane                                            4096 bytes a packet

A packet's name is its number with a tag above the mask, which each return changes. Source: ROCm's device libraries (ockl) and its runtime
(`devhostcall`, `devhcmessages`); printf's messages begin with a descriptor: begin, end, count of words, number of the message.
"""

from __future__ import annotations

import ctypes
import struct
import sys
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ..errors import TecError
from ..runtime.objects.codeobject import KernelInfo
from .context import CTX
from .printing import Words, format_text, formats, records

if TYPE_CHECKING:
    from .decode.inst import KernelText
    from .driver import EmuDriver

_PACKETS = 64  # a power of two; a thread of the emulator has one in use at a time
_HEADER, _PAYLOAD, _SIGNAL = 24, 4096, 64
_FUNCTION, _PRINTF, _MEMORY = 1, 2, 3  # services
_ROOM = 1 << 20  # bytes that a launch may print through a buffer of its own, as ROCm's
_CALLBACK = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_uint64)


class Hostcalls:
    """The buffer of one driver, and what its kernels printed."""

    def __init__(self, driver: EmuDriver):
        self.driver = driver
        self.error = ""  # why a request was not answered, or the last line that a kernel printed before a trap
        self._lock = threading.Lock()
        self._messages: dict[int, list[int]] = {}
        self._printed: list[tuple[tuple[int, int], bool, str]] = []
        self._callback = _CALLBACK(self._serve)
        self._size = 64 + _SIGNAL + 16 + _PACKETS * (_HEADER + _PAYLOAD)
        base = self.base = driver.memory.alloc(self._size, "buffer of requests to the host", apart=True)
        ctypes.memset(base, 0, self._size)
        self._signal = base + 64
        self._headers = self._signal + _SIGNAL + 16
        self._payloads = self._headers + _PACKETS * _HEADER
        first = 0
        for k in range(_PACKETS):
            ctypes.c_uint64.from_address(self._headers + _HEADER * k).value = first
            first = _PACKETS | k
        struct_at = (self._headers, self._payloads, self._signal, first, 0, _PACKETS - 1)
        ctypes.memmove(base, struct.pack("<6Q", *struct_at), 48)
        # A signal: kind, value, address and number of the message that its change sends.
        ctypes.memmove(self._signal, struct.pack("<qqQQ", 1, 0, self._signal + _SIGNAL, 1), 32)
        self._written(base, self._size)
        # What translated code reads: whom to call, and where the packets to be served begin.
        self._entry = (ctypes.c_uint64 * 2)(ctypes.cast(self._callback, ctypes.c_void_p).value or 0, base + 32)

    @property
    def entry(self) -> int:
        return ctypes.addressof(self._entry)

    def _written(self, address: int, nbytes: int) -> None:
        self.driver.memory.mark_written(address, nbytes)

    def _serve(self, ctx: int, packet: int) -> int:
        """Answer the packets from `packet` on; 0, or 1 where one cannot be."""
        group = ctypes.c_uint64.from_address(ctx + CTX["group"]).value
        wave = ctypes.c_uint64.from_address(ctx + CTX["wave"]).value
        with self._lock:
            try:
                while packet:
                    packet = self._answer(packet, (group, wave))
            except (TecError, ValueError, struct.error) as e:
                self.error = str(e)
                return 1
        return 0

    def _answer(self, packet: int, who: tuple[int, int]) -> int:
        """Answer what the lanes of a packet ask; the packet behind it, 0 without one."""
        number = packet & (_PACKETS - 1)
        at, payload = self._headers + _HEADER * number, self._payloads + _PAYLOAD * number
        following, lanes, service, control = struct.unpack("<QQII", ctypes.string_at(at, _HEADER))
        for lane in (n for n in range(64) if lanes >> n & 1):
            self._request(service, (ctypes.c_uint64 * 8).from_address(payload + 64 * lane), who)
        self._written(payload, _PAYLOAD)
        ctypes.c_uint32.from_address(at + 20).value = control & ~1
        return int(following)

    def _request(self, service: int, words: Any, who: tuple[int, int]) -> None:
        if service == _PRINTF:
            self._message(words, who)
        elif service == _MEMORY:
            if words[0]:
                self.driver.memory.free(words[0])
            else:
                words[0] = self.driver.memory.alloc(words[1], "memory that a kernel allocated")
        else:
            what = {_FUNCTION: "a call of a function of the host"}.get(service, f"service {service}")
            raise ValueError(f"{what}; printf, assert and malloc are modelled")

    def _message(self, words: Any, who: tuple[int, int]) -> None:
        head = words[0]
        if head & 1:
            name = 1 + max(self._messages, default=0)
            self._messages[name] = []
            head = words[0] = (head & 0xFE) | name << 8
        name = head >> 8
        parts = self._messages.get(name)
        if parts is None:
            raise ValueError(f"a part of message {name}, which was not begun")
        parts += words[1 : 1 + (head >> 5 & 7)]
        if not head & 2:
            return
        del self._messages[name]
        following = Words(struct.pack(f"<{len(parts)}Q", *parts))
        control = int.from_bytes(following("i"), "little")
        text = format_text(following("s"), following)
        words[0] = len(text)
        self._say(who, bool(control & 1), text)

    def _say(self, who: tuple[int, int], stderr: bool, text: str) -> None:
        self._printed.append((who, stderr, text))
        self.error = text.strip()

    # Around a launch.
    def begin(self, info: KernelInfo, metadata: list[str]) -> tuple[dict[str, int], Callable[[], None]]:
        """(hidden arguments, what to call when the launch is over) of a kernel. `metadata`: its module's formats (`amdhsa.printf`)."""
        wanted = {a.kind.removeprefix("hidden_") for a in info.args if a.hidden}
        hidden = {"hostcall_buffer": self.base} if "hostcall_buffer" in wanted else {}
        room = 0
        if "printf_buffer" in wanted:
            head = struct.pack("<II", 0, _ROOM)
            room = hidden["printf_buffer"] = self.driver.memory.place(head, _ROOM, "buffer that the kernel prints to")

        def end() -> None:
            if room:
                self._buffered(room, metadata)
                self.driver.memory.displace(room)
            self.show()

        self.error = ""
        return hidden, end

    def _buffered(self, at: int, metadata: list[str]) -> None:
        (used,) = struct.unpack("<I", ctypes.string_at(at, 4))
        data = ctypes.string_at(at + 8, min(used, _ROOM - 8))
        for stderr, text in records(data, formats(metadata)):
            self._say((0, 0), stderr, text)

    def show(self) -> None:
        """Write what was printed to stdout and stderr."""
        with self._lock:
            found, self._printed = self._printed, []
        self._messages.clear()
        for stream, wanted in ((sys.stdout, False), (sys.stderr, True)):
            text = "".join(t for _, stderr, t in sorted(found, key=lambda p: p[0]) if stderr is wanted)
            if text:
                stream.write(text)
                stream.flush()


def asks_the_host(info: KernelInfo, text: KernelText) -> bool:
    """Whether the kernel sends messages that want an answer, or prints to a buffer. Compilers name the arguments for it where they cannot tell."""
    kinds = {a.kind for a in info.args}
    sends = any(i.op == "s_sendmsg" and "MSG_INTERRUPT" in i.text for i in text.insts)
    return "hidden_printf_buffer" in kinds or (sends and "hidden_hostcall_buffer" in kinds)
