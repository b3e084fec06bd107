"""`tec serve` as a process: it is ready once its models are, answers, and ends on SIGTERM when what it took is answered."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
import time

import pytest

from tests.unit.serve.test_inference import body, network

httpx = pytest.importorskip("httpx")


def test_a_server_from_the_command_line(tmp_path):
    network().save(tmp_path / "scaled.tec")
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    words = [sys.executable, "-m", "tec", "serve", str(tmp_path), "--port", str(port), "--log"]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        at, until = f"http://127.0.0.1:{port}", time.monotonic() + 60
        while True:
            try:
                if httpx.get(f"{at}/v2/health/ready").status_code == 200:
                    break
            except httpx.TransportError:
                pass
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
