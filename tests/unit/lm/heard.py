"""A small Whisper, a sound, and what transformers makes of them: `tools/lm_references.py` keeps it in `data/whisper.json.gz`."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np

DATA = Path(__file__).parent / "data" / "whisper.json.gz"
SIZES: dict[str, Any] = {
    "vocab_size": 96, "num_mel_bins": 16, "encoder_layers": 2, "decoder_layers": 3, "encoder_attention_heads": 4, "decoder_attention_heads": 2,
    "encoder_ffn_dim": 48, "decoder_ffn_dim": 56, "d_model": 32, "max_source_positions": 50, "max_target_positions": 24, "pad_token_id": 0, "bos_token_id": 1,
    "eos_token_id": 2, "decoder_start_token_id": 3, "suppress_tokens": None, "begin_suppress_tokens": [5, 2],
}  # fmt: skip
TOKENS = [3, 7, 9, 11, 40]
WRITTEN = 12  # tokens that are written
TIMES = {"no_timestamps_token_id": 64, "max_initial_timestamp_index": 12}
TIMED = 20  # tokens that are written with times
# Texts side by side, the penalty of length, tokens that are never written.
BEAMS = [
    (2, 1.0, []),
    (4, 1.0, [73]),
    (5, 0.0, [73, 24]),
    (3, 2.0, [t for t in range(6, 96) if t % 3]),
]
ALIGNMENT_HEADS = [[1, 0], [2, 1], [1, 1]]  # layers and heads of the decoder that follow the sound
EACH = 10  # every tenth frame of the features is kept


def waveform(samples: int = 11_000) -> Any:
    """A rising tone that fades, and silence ahead of it; float32 [samples]."""
    t = np.arange(samples) / 16_000
    tone = np.sin(2 * np.pi * (300 * t + 2_000 * t**2)) * np.exp(-3 * t)
    return np.where(t < 0.02, 0.0, 0.5 * tone).astype(np.float32)


def features(bins: int = 16, frames: int = 100) -> Any:
    """Numbers as features are, float32 [bins, frames]."""
    return np.random.default_rng(5).standard_normal((bins, frames)).astype(np.float32)


def timed_texts() -> list[list[int]]:
    """Texts as the rules for times allow them, some cut off."""
    rng, begin, made = np.random.default_rng(11), TIMES["no_timestamps_token_id"] + 1, []
    for k in range(12):
        ids, time = [], int(rng.integers(0, 5))
        for _ in range(int(rng.integers(1, 4))):
            ids += [begin + time, *rng.integers(6, 60, int(rng.integers(1, 4))).tolist()]
            time += int(rng.integers(1, 6))
            ids.append(begin + time)
            time += int(rng.integers(0, 3))
        if k % 3 == 1:  # the next one has begun, and is cut off
            ids += [begin + time, 9]
        made.append(ids[:-1] if k % 3 == 2 else ids)
    return made


def references() -> dict[str, Any]:
    with gzip.open(DATA) as f:
        found: dict[str, Any] = json.load(f)
    return found
