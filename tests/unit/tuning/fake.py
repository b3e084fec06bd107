"""A measurement that knows the times: of the choice alone, so that searches can be compared to the last record."""

from __future__ import annotations

import json
import os
import time
from typing import Any

from tec.choices.store.database import key_text


def seconds(choice: dict[str, Any]) -> float:
    """A valley over the numbers of a choice: the smallest sum of distances to 4 is the quickest."""
    out = 1.0
    for value in choice.values():
        if isinstance(value, bool):
            out += 0.5 * value
        elif isinstance(value, int):
            out += 0.1 * abs(value.bit_length() - 3) + 0.01 * abs(value - 4)
    return out * 1e-3


def measure(job: dict[str, Any]) -> dict[str, Any]:
    """Fixed times; a choice with 7 in it dies. TEC_FAKE_LOG keeps what was measured, TEC_FAKE_SLEEP makes it slow."""
    signature, mine, its = job["choices"]
    log = os.environ.get("TEC_FAKE_LOG")
    if log:
        with open(log, "a") as f:
            f.write(json.dumps([signature, job["kind"], key_text(mine), key_text(its)]) + "\n")
    time.sleep(float(os.environ.get("TEC_FAKE_SLEEP", "0")))
    if 7 in mine.values():
        return {"error": "the worker died of SIGSEGV"}
    return {"ratio": seconds(mine) / seconds(its), "seconds": seconds(mine), "rival_seconds": seconds(its)}
