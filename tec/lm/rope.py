"""Frequencies of rotary positions: plain, and stretched for contexts that are longer than the model was trained on.

Sources: RoFormer (arXiv 2104.09864); the scalings "linear", "dynamic", "llama3", "yarn" (arXiv 2309.00071) and "longrope" (arXiv 2402.13753), as
`transformers` computes them (modeling_rope_utils.py).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from ..errors import ImportModelError
from .config import Config


def frequencies(
    c: Config, base: float | None = None, scaling: Mapping[str, Any] | None = None, context: int = 0
) -> tuple[Any, float]:
    """(inverse frequencies [pairs], what cosines and sines are multiplied with). base: theta, where it is not the configuration's. scaling: a
    `rope_scaling` in place of the configuration's. context: tokens that are to be read, where the scaling asks. Raises ImportModelError."""
    parameters = c.get("rope_parameters") or {}
    theta = float(base if base is not None else c.get("rope_theta", parameters.get("rope_theta", 10000.0)))
    size = int(c.head_size * c.number("partial_rotary_factor", float(parameters.get("partial_rotary_factor", 1.0))))
    plain = 1.0 / theta ** (np.arange(0, size, 2, dtype=np.float64) / size)
    own = scaling if scaling is not None else c.get("rope_scaling") or parameters
    kind = str(own.get("rope_type", own.get("type", "default")))
    made = _SCALED.get(kind)
    if made is None:
        raise ImportModelError(f"rotary positions of type {kind!r}", hint=f"known: {', '.join(_SCALED)}")
    try:
        inverse, factor = made(plain, own, c, theta, context)
    except (KeyError, TypeError, ValueError, ZeroDivisionError) as error:
        raise ImportModelError(
            f"rope_scaling {dict(own)} of {c.architecture}: {type(error).__name__} {error}"
        ) from None
    return np.asarray(inverse, np.float32), factor


def is_of_length(c: Config) -> bool:
    """Whether frequencies depend on how long texts may be."""
    own = c.get("rope_scaling") or c.get("rope_parameters") or {}
    return str(own.get("rope_type", own.get("type", ""))) in ("longrope", "su", "dynamic")


def _plain(f: Any, s: Mapping[str, Any], c: Config, theta: float, context: int) -> tuple[Any, float]:
    return f, 1.0


def _linear(f: Any, s: Mapping[str, Any], c: Config, theta: float, context: int) -> tuple[Any, float]:
    return f / float(s["factor"]), 1.0


def _llama3(f: Any, s: Mapping[str, Any], c: Config, theta: float, context: int) -> tuple[Any, float]:
    factor, low, high = float(s["factor"]), float(s["low_freq_factor"]), float(s["high_freq_factor"])
    old = float(s["original_max_position_embeddings"])
    turns = old * f / (2 * math.pi)
    blend = np.clip((turns - low) / (high - low), 0, 1)
    return f / factor * (1 - blend) + f * blend, 1.0


def _yarn(f: Any, s: Mapping[str, Any], c: Config, theta: float, context: int) -> tuple[Any, float]:
    factor, size = float(s["factor"]), 2 * len(f)
    old = float(s.get("original_max_position_embeddings") or c.context)

    def mscale(scale: float, by: float) -> float:
        return 1.0 if scale <= 1 else 0.1 * by * math.log(scale) + 1.0

    attention = s.get("attention_factor")
    if attention is None:
        own, all_ = s.get("mscale"), s.get("mscale_all_dim")
        attention = mscale(factor, float(own)) / mscale(factor, float(all_)) if own and all_ else mscale(factor, 1.0)

    def dimension(turns: float) -> float:
        return size * math.log(old / (turns * 2 * math.pi)) / (2 * math.log(theta))

    low, high = dimension(float(s.get("beta_fast") or 32)), dimension(float(s.get("beta_slow") or 1))
    if s.get("truncate", True):
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, size - 1)
    ramp = np.clip((np.arange(len(f)) - low) / max(high - low, 0.001), 0, 1)
    return f / factor * ramp + f * (1 - ramp), float(attention)


def _longrope(f: Any, s: Mapping[str, Any], c: Config, theta: float, context: int) -> tuple[Any, float]:
    old = int(c.get("original_max_position_embeddings") or s.get("original_max_position_embeddings") or c.context)
    factor = float(s.get("factor") or c.context / old)
    is_long = (context or c.context) > old
    by = np.asarray(s["long_factor" if is_long else "short_factor"], np.float64)
    attention = s.get("attention_factor")
    if attention is None:
        attention = 1.0 if factor <= 1 else math.sqrt(1 + math.log(factor) / math.log(old))
    return f / by, float(attention)


def _dynamic(f: Any, s: Mapping[str, Any], c: Config, theta: float, context: int) -> tuple[Any, float]:
    size, old, length = 2 * len(f), c.context, max(context, c.context)
    factor = float(s["factor"])
    base = theta * ((factor * length / old) - (factor - 1)) ** (size / (size - 2))
    return 1.0 / base ** (np.arange(0, size, 2, dtype=np.float64) / size), 1.0


def _factors(f: Any, s: Mapping[str, Any], c: Config, theta: float, context: int) -> tuple[Any, float]:
    return f / np.asarray(s["factors"], np.float64), 1.0


_SCALED = {
    "factors": _factors,  # numbers that a GGUF file holds in place of a rule
    "default": _plain, "linear": _linear, "llama3": _llama3, "yarn": _yarn, "longrope": _longrope, "su": _longrope, "dynamic": _dynamic,
}  # fmt: skip
