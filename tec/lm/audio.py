"""Log-mel features of sound, as Whisper's are defined: a waveform of 16,000 samples a second -> float32 [frames, bins].

A frame is 400 samples, 160 behind the one before; power of its spectrum by bands of Slaney's mel scale, as logarithms, no more than 8 decades below the largest.
Source: arXiv 2212.04356, section 2.2; transformers' WhisperFeatureExtractor, which gives [bins, frames].
"""

from __future__ import annotations

import math
from functools import cache
from typing import Any

import numpy as np

from ..errors import ArgumentError

RATE = 16_000  # samples a second
_WINDOW, HOP = 400, 160  # samples
_LOWEST_POWER, _DECADES = 1e-10, 8.0
# Slaney's scale: linear up to 1,000 Hz, which is 15 mel, and from there 27 steps for a factor of 6.4.
_BREAK_HZ, _BREAK_MEL, _HZ_PER_MEL = 1000.0, 15.0, 200.0 / 3.0
_STEP = math.log(6.4) / 27.0


def log_mel(waveform: Any, bins: int, frames: int) -> Any:
    """Features of the first `frames` frames of a waveform [samples]; behind its end is silence. Float32 [frames, bins]. Raises ArgumentError for what is no waveform."""
    x = np.asarray(waveform)
    if x.ndim != 1 or x.dtype.kind != "f" or not x.size:
        raise ArgumentError(
            f"sound of shape {x.shape} and type {x.dtype}", hint=f"floats [samples], {RATE} a second, from -1 to 1"
        )
    if not np.isfinite(x).all():
        raise ArgumentError("the sound has samples that are no numbers", hint="finite samples, usually from -1 to 1")
    samples = frames * HOP
    whole = np.zeros(samples, np.float64)
    whole[: min(samples, len(x))] = x[:samples]
    power = _spectra(np.pad(whole, _WINDOW // 2, "reflect"), frames)
    mel = np.log10(np.maximum(power @ filters(bins), _LOWEST_POWER))
    return ((np.maximum(mel, mel.max() - _DECADES) + 4.0) / 4.0).astype(np.float32)


def _spectra(x: Any, frames: int) -> Any:
    """Power [frames, 1 + window / 2] of windowed frames."""
    window = 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(_WINDOW) / _WINDOW)
    cut = np.lib.stride_tricks.sliding_window_view(x, _WINDOW)[::HOP][:frames]
    return np.abs(np.fft.rfft(cut * window, axis=1)) ** 2


@cache
def filters(bins: int) -> Any:
    """Weights of frequencies in mel bands, float64 [1 + window / 2, bins]: triangles of equal area, up to half the rate."""
    at = np.linspace(0, RATE / 2, 1 + _WINDOW // 2)
    edges = _hertz(np.linspace(0.0, _mel(RATE / 2), bins + 2))
    widths = np.diff(edges)
    slopes = edges[None, :] - at[:, None]
    rising, falling = -slopes[:, :-2] / widths[:-1], slopes[:, 2:] / widths[1:]
    return np.maximum(0.0, np.minimum(rising, falling)) * (2.0 / (edges[2:] - edges[:-2]))


def _mel(hertz: float) -> float:
    if hertz < _BREAK_HZ:
        return hertz / _HZ_PER_MEL
    return _BREAK_MEL + math.log(hertz / _BREAK_HZ) / _STEP


def _hertz(mel: Any) -> Any:
    return np.where(mel < _BREAK_MEL, mel * _HZ_PER_MEL, _BREAK_HZ * np.exp(_STEP * (mel - _BREAK_MEL)))
