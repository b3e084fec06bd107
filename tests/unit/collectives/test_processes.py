"""Groups of processes over the loopback: right values, keys, ranks that die, ranks that never come."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from tec.collectives import connect
from tec.errors import ArgumentError, DeviceError

ROOT = Path(__file__).parents[3]
RANK = """
import os, sys
import numpy as np
from tec.collectives import connect
rank, size, address = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
with connect(rank, size, address, timeout_s=20, key="between us") as c:
"""


def _address() -> str:
    with socket.create_server(("127.0.0.1", 0)) as s:
        return f"127.0.0.1:{s.getsockname()[1]}"


def _ranks(size: int, body: str) -> list[tuple[int, str]]:
    """Exit code and output of each rank."""
    program, address = RANK + textwrap.indent(textwrap.dedent(body), "    "), _address()
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}
    started = [
        subprocess.Popen([sys.executable, "-c", program, str(r), str(size), address], env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        for r in range(size)
    ]  # fmt: skip
    found = [(p.communicate(timeout=120)[0], p.returncode) for p in started]
    return [(code, text) for text, code in found]


def test_calls_equal_numpy() -> None:
    ended = _ranks(
        3,
        """
        x = np.arange(600_000, dtype="float32") + rank     # larger than a socket holds
        whole = 3 * np.arange(600_000, dtype="float32") + 3
        assert (c.all_reduce(x).numpy() == whole).all()
        assert (c.reduce_scatter(x).numpy() == whole[rank * 200_000 : (rank + 1) * 200_000]).all()
        assert (c.all_gather(np.full(2, rank)).numpy() == [0, 0, 1, 1, 2, 2]).all()
        assert (c.all_to_all(np.arange(3) + 10 * rank).numpy() == [rank, 10 + rank, 20 + rank]).all()
        assert (c.broadcast(np.full(4, rank), root=2).numpy() == 2).all()
        c.barrier()
        print("right")
    """,
    )
    assert ended == [(0, "right\n")] * 3


def test_a_rank_that_dies_is_told_to_all() -> None:
    ended = _ranks(
        3,
        """
        c.barrier()
        if rank == 1:
            os._exit(9)
        c.all_reduce(np.ones(4))
    """,
    )
    assert ended[1][0] == 9
    for code, text in (ended[0], ended[2]):
        assert code == 1 and "rank 1 has died" in text and "DeviceError" in text


def test_other_calls_are_told() -> None:
    ended = _ranks(2, "c.all_reduce(np.ones(4)) if rank else c.all_gather(np.ones(4))")
    assert all(code == 1 and "all_gather of 4 float64" in text for code, text in ended)


def test_ranks_that_never_come() -> None:
    with pytest.raises(DeviceError, match="did not come in time"):
        connect(0, 2, _address(), timeout_s=0.2)
    with pytest.raises(DeviceError, match="could not reach"):
        connect(1, 2, _address(), timeout_s=0.2)


def test_another_key_is_refused() -> None:
    address = _address()
    program = RANK.replace("between us", "wrong").replace("timeout_s=20", "timeout_s=2") + "    pass"
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}
    other = subprocess.Popen(
        [sys.executable, "-c", program, "1", "2", address], env=env, stderr=subprocess.PIPE, text=True
    )
    with pytest.raises(DeviceError, match="rank"):
        connect(0, 2, address, timeout_s=2, key="between us")
    assert "DeviceError" in other.communicate(timeout=60)[1] and other.returncode == 1


@pytest.mark.parametrize("address", ["nowhere", "127.0.0.1:", "127.0.0.1:99999", ":x"])
def test_addresses_are_checked(address: str) -> None:
    with pytest.raises(ArgumentError, match="not an address"):
        connect(0, 2, address)


def test_ranks_are_checked() -> None:
    with pytest.raises(ArgumentError, match="rank 2 of 2"):
        connect(2, 2, "127.0.0.1:29500")
