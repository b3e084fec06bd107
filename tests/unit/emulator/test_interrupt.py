"""Ctrl-C while a kernel runs."""

from __future__ import annotations

import os
import signal
import struct
import threading
import time

import numpy as np
import pytest

from .harness import download, function, upload
from .test_checks import COPY, kernel


def test_interrupt_ends_an_endless_loop_at_once() -> None:
    """Ctrl-C stops the waves at their next backward branch, and the device lives on."""
    ir = kernel("""  br label %loop
loop:
  store volatile i32 1, ptr addrspace(1) %o
  br label %loop""")
    if threading.current_thread() is not threading.main_thread():
        pytest.skip("signals reach the main thread alone")
    driver, k = function(ir, "gfx942", budget=1 << 60)
    o = upload(driver, np.zeros(1, np.int32))
    k.compiled(True, False)
    timer = threading.Timer(0.3, lambda: os.kill(os.getpid(), signal.SIGINT))
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        timer.start()
        began = time.monotonic()
        with pytest.raises(KeyboardInterrupt):
            driver.launch(k, (64, 1, 1), (64, 1, 1), 0, struct.pack("<QQi", o, o, 0))
        took = time.monotonic() - began
    finally:
        timer.cancel()
        signal.signal(signal.SIGINT, before)
    assert took < 5, took  # 0.3 s to the signal; the rest is slack for a loaded machine
    assert download(driver, o, np.zeros(1, np.int32))[0] == 1
    driver, k = function(COPY, "gfx942")
    p, o = upload(driver, np.ones(64, np.float32)), upload(driver, np.zeros(64, np.float32))
    driver.launch(k, (1, 1, 1), (64, 1, 1), 0, struct.pack("<QQi", p, o, 0))
    assert (download(driver, o, np.zeros(64, np.float32)) == 1).all()
