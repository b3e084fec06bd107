"""The socket at which a server listens: made before models are loaded, so that a port that is taken is told at once."""

from __future__ import annotations

import socket

from ..errors import ArgumentError


def socket_at(host: str, port: int) -> socket.socket:
    """A socket that listens there; port 0: any free one. Raises ArgumentError where the address is taken, or is none of this host's."""
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        return socket.create_server(family[4][:2], family=family[0])
    except (OSError, UnicodeError) as error:
        raise ArgumentError(
            f"cannot listen at {host}, port {port}: {error}", hint="another --port, or --port 0 for any"
        ) from None


def address_of(listening: socket.socket) -> str:
    """HOST:PORT as a URL has it."""
    host, port = listening.getsockname()[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
