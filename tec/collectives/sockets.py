"""Channels between processes: a TCP connection between each two ranks, and how they find each other.

Rank 0 listens at the group's address. The others tell it where they listen, get the table of all, and connect to the ranks before them. A frame is a kind (message, failure, end),
the lengths of its head and data, and both. Nothing is unpickled. Each side that is connected to proves that it knows the group's key (HMAC-SHA256 of a number drawn by the other side).
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import json
import os
import socket
import struct
import threading
import time
from collections import deque

from ..errors import ArgumentError, DeviceError

_FRAME = struct.Struct("<cIQ")
_MESSAGE, _FAILURE, _END = b"m", b"f", b"e"
_NONCE = 32
_PROOF = hashlib.sha256().digest_size
_RETRY_SECONDS = 0.05  # between tries to reach rank 0, which may start later
_MOST_HEAD = 1 << 20  # of a head in bytes; a longer one comes from no rank


def parse_address(address: str) -> tuple[str, int]:
    """("127.0.0.1", 29500) from "127.0.0.1:29500"."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit() or not 0 < int(port) < 65536:
        raise ArgumentError(f"not an address: {address!r}", hint='"host:port", such as "127.0.0.1:29500"')
    return host, int(port)


def _is_own(host: str) -> bool:
    return host == "localhost" or host.startswith("127.")


def _read(s: socket.socket, count: int) -> bytes:
    parts, left = [], count
    while left:
        got = s.recv(min(left, 1 << 20))
        if not got:
            raise EOFError
        parts.append(got)
        left -= len(got)
    return b"".join(parts)


def _send(s: socket.socket, kind: bytes, head: bytes, data: bytes = b"") -> None:
    s.sendall(_FRAME.pack(kind, len(head), len(data)) + head)
    if data:
        s.sendall(data)


def _frame(s: socket.socket) -> tuple[bytes, bytes, bytes]:
    kind, head, data = _FRAME.unpack(_read(s, _FRAME.size))
    if head > _MOST_HEAD:
        raise EOFError
    return kind, _read(s, head), _read(s, data)


def _dial(address: tuple[str, int], key: bytes, end: float, rank: int) -> socket.socket:
    while True:
        try:
            s = socket.create_connection(address, timeout=max(0.1, end - time.monotonic()))
            break
        except OSError as error:
            if time.monotonic() + _RETRY_SECONDS > end:
                raise DeviceError(
                    f"rank {rank} could not reach {address[0]}:{address[1]} in time: {error}",
                    hint="rank 0 listens there; start it with the same address",
                ) from None
            time.sleep(_RETRY_SECONDS)
    try:
        s.sendall(hmac.digest(key, _read(s, _NONCE), "sha256"))
    except (EOFError, OSError):
        s.close()
        raise DeviceError(
            f"rank {rank} was refused at {address[0]}:{address[1]}",
            hint="the key of rank 0: key=, or TEC_COLLECTIVES_KEY",
        ) from None
    return s


def _accept(listener: socket.socket, key: bytes, end: float, waiting: str) -> socket.socket:
    """The next connection that knows the key; others are closed."""
    while True:
        listener.settimeout(max(0.01, end - time.monotonic()))
        try:
            s, _ = listener.accept()
        except OSError:
            raise DeviceError(
                f"{waiting} did not come in time", hint="start all ranks with this address, or give a longer timeout_s="
            ) from None
        with contextlib.suppress(EOFError, OSError):
            s.settimeout(max(0.1, end - time.monotonic()))
            nonce = os.urandom(_NONCE)
            s.sendall(nonce)
            if hmac.compare_digest(_read(s, _PROOF), hmac.digest(key, nonce, "sha256")):
                return s
        s.close()


class Sockets:
    """One rank's `Channel` to ranks of other processes. message: what rank 0 gives to all when they meet."""

    def __init__(self, rank: int, size: int, address: str, key: bytes, timeout_s: float, message: str = ""):
        self.rank, self.size, self.timeout_s, self.message = rank, size, timeout_s, message
        self._peers: dict[int, socket.socket] = {}
        self._held: dict[int, deque[tuple[bytes, bytes]]] = {r: deque() for r in range(size)}
        self._gone: dict[int, str] = {}
        self._failed: str | None = None
        self._closed = False
        self._changed = threading.Condition()
        self._sending = threading.Lock()
        try:
            self._meet(parse_address(address), key, time.monotonic() + timeout_s)
        except BaseException:
            for s in self._peers.values():
                s.close()
            raise
        for r, s in self._peers.items():
            s.settimeout(None)
            s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            threading.Thread(target=self._listen, args=(r, s), daemon=True, name=f"rank {rank} from {r}").start()

    def _meet(self, address: tuple[str, int], key: bytes, end: float) -> None:
        # Other ranks listen where rank 0 is: on this machine alone where the group is.
        place = address if self.rank == 0 else (address[0] if _is_own(address[0]) else "", 0)
        try:
            listener = socket.create_server(place, backlog=self.size)
        except OSError as error:
            raise DeviceError(
                f"rank {self.rank} cannot listen at {address[0]}:{address[1]}: {error}",
                hint="another group may use this port",
            ) from None
        with listener:
            if self.rank == 0:
                self._gather(listener, key, end)
            else:
                self._join(listener, address, key, end)

    def _gather(self, listener: socket.socket, key: bytes, end: float) -> None:
        """Of rank 0: the others' addresses, and all of them to each."""
        places: dict[int, tuple[str, int]] = {}
        while len(places) < self.size - 1:
            missing = sorted(set(range(1, self.size)) - places.keys())
            s = _accept(listener, key, end, f"of {self.size} ranks {', '.join(map(str, missing))}")
            told = json.loads(_frame(s)[1])
            r = told["rank"]
            wrong = None
            if told["size"] != self.size:
                wrong = f"rank {r} thinks that there are {told['size']} ranks, rank 0 {self.size}"
            elif r in places or not 0 < r < self.size:
                wrong = f"there are two ranks {r}"
            if wrong:
                for other in (s, *self._peers.values()):
                    _send(other, _FAILURE, wrong.encode())
                s.close()
                raise DeviceError(wrong, hint="the same size and key on all processes, and a rank of its own on each")
            self._peers[r], places[r] = s, (s.getpeername()[0], told["port"])
        for s in self._peers.values():
            _send(s, _MESSAGE, json.dumps({"places": list(places.items()), "message": self.message}).encode())

    def _join(self, listener: socket.socket, address: tuple[str, int], key: bytes, end: float) -> None:
        """Of another rank: connect to those before it, and wait for those behind."""
        first = self._peers[0] = _dial(address, key, end, self.rank)
        told = {"rank": self.rank, "size": self.size, "port": listener.getsockname()[1]}
        _send(first, _MESSAGE, json.dumps(told).encode())
        first.settimeout(max(0.1, end - time.monotonic()))
        try:
            kind, head, _ = _frame(first)
        except (EOFError, OSError):
            raise DeviceError(
                f"rank 0 did not answer rank {self.rank} in time", hint="ranks must share the address and the key"
            ) from None
        if kind == _FAILURE:
            raise DeviceError(head.decode(), hint="mend what rank 0 says, and start all ranks again")
        table = json.loads(head)
        self.message = table["message"]
        for r, (host, port) in table["places"]:
            if 0 < r < self.rank:
                s = self._peers[r] = _dial((host, port), key, end, self.rank)
                _send(s, _MESSAGE, str(self.rank).encode())
        while len(self._peers) < self.size - 1:
            missing = sorted(set(range(self.size)) - self._peers.keys() - {self.rank})
            s = _accept(listener, key, end, f"ranks {', '.join(map(str, missing))}")
            self._peers[int(_frame(s)[1])] = s

    # ---- messages

    def put(self, to: int, head: bytes, data: bytes) -> None:
        self._check()
        if to == self.rank:
            with self._changed:
                self._held[to].append((head, data))
            return
        try:
            with self._sending:
                _send(self._peers[to], _MESSAGE, head, data)
        except OSError as error:
            raise self._lost(to, f"rank {to} has died, or cannot be reached any more: {error}") from None

    def take(self, source: int, doing: str) -> tuple[bytes, bytes]:
        end = time.monotonic() + self.timeout_s
        with self._changed:
            held = self._held[source]
            while not held:
                self._check()
                if source in self._gone:
                    raise self._lost(source, f"{self._gone[source]}, and rank {self.rank} waits for it in {doing}")
                left = end - time.monotonic()
                if left <= 0:
                    raise self._lost(
                        source,
                        f"rank {source} did not come within {self.timeout_s:g} s, and rank {self.rank} waits for it in {doing}",
                    )
                self._changed.wait(left)
            return held.popleft()

    def fail(self, why: str) -> None:
        self._failed = self._failed or why
        for s in self._peers.values():
            with contextlib.suppress(OSError), self._sending:
                _send(s, _FAILURE, why.encode())
        with self._changed:
            self._changed.notify_all()

    def close(self) -> None:
        self._closed = True
        for s in self._peers.values():
            with contextlib.suppress(OSError):
                with self._sending:
                    _send(s, _END, b"")
                s.shutdown(socket.SHUT_RDWR)
            s.close()

    def _lost(self, rank: int, why: str) -> DeviceError:
        """The group without a rank: all others are told. Gives what to raise."""
        threading.Thread(target=self.fail, args=(why,), daemon=True).start()
        self._failed = self._failed or why
        return DeviceError(why)

    def _check(self) -> None:
        if self._failed is not None:
            raise DeviceError(
                f"the group has failed: {self._failed}",
                hint="make a new group: one that was closed or has failed takes no calls",
            )

    def _listen(self, rank: int, s: socket.socket) -> None:
        why = f"rank {rank} has died"
        with contextlib.suppress(EOFError, OSError):
            while True:
                kind, head, data = _frame(s)
                with self._changed:
                    if kind == _MESSAGE:
                        self._held[rank].append((head, data))
                    elif kind == _FAILURE:
                        self._failed = self._failed or head.decode()
                    else:
                        why = f"rank {rank} has ended"
                    self._changed.notify_all()
                if kind == _END:
                    break
        with self._changed:
            self._gone[rank] = why
            self._changed.notify_all()
