"""`tec serve` as a process: it is ready once its models are, answers, and ends on SIGTERM when what it took is answered."""

from __future__ import annotations

import signal
import subprocess
import sys
import time

import pytest

from tec.errors import ArgumentError
from tec.serve.sockets import address_of, socket_at
from tests.unit.serve.test_inference import body, network

httpx = pytest.importorskip("httpx")


def test_a_server_from_the_command_line(tmp_path):
    network().save(tmp_path / "scaled.tec")
    words = [sys.executable, "-m", "tec", "serve", str(tmp_path), "--port", "0", "--log"]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        # The port that was free is told.
        at = process.stdout.readline().rpartition(" at ")[2].strip()
        until = time.monotonic() + 60
        while httpx.get(f"{at}/v2/health/ready").status_code != 200:
            assert time.monotonic() < until and process.poll() is None
            time.sleep(0.1)
        answer = httpx.post(f"{at}/v2/models/scaled/infer", json=body())
        assert answer.json()["outputs"][0]["data"] == [2, 4, 6]
        process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=30)
        assert process.returncode in (0, -signal.SIGTERM) and "scaled 1: ready" in out
        assert '"path": "/v2/models/scaled/infer", "status": 200' in err
    finally:
        process.kill()


def test_an_address_that_cannot_be_had():
    with socket_at("127.0.0.1", 0) as first, pytest.raises(ArgumentError, match="cannot listen at"):
        socket_at("127.0.0.1", first.getsockname()[1])
    with pytest.raises(ArgumentError, match="cannot listen at"):
        socket_at("192.0.2.1", 0)


def test_the_command_line_tells_a_port_that_is_taken(tmp_path):
    network().save(tmp_path / "scaled.tec")
    with socket_at("127.0.0.1", 0) as first:
        port = first.getsockname()[1]
        words = [sys.executable, "-m", "tec", "serve", str(tmp_path), "--port", str(port)]
        process = subprocess.run(words, capture_output=True, text=True, timeout=60)
    assert process.returncode == 2 and f"cannot listen at 127.0.0.1, port {port}" in process.stderr


def test_addresses_of_both_families_stand_in_urls():
    class Six:
        def getsockname(self):
            return ("::1", 80, 0, 0)

    with socket_at("127.0.0.1", 0) as four:
        assert address_of(four) == f"127.0.0.1:{four.getsockname()[1]}"
    assert address_of(Six()) == "[::1]:80"
