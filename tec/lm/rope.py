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
from ..records import dataclass
from .config import Config
from .remedies import FETCH_AGAIN


@dataclass(frozen=True)
class Frequencies:
    """inverse: of each pair, in turns a place; factor: what cosines and sines are multiplied with. Where they depend on how long a text is: `long` [pairs] are those
    of texts of more than `beyond` tokens; `growth` [pairs]: they are multiplied with g ** growth, g = 1 + stretch * (tokens / beyond - 1)."""

    inverse: Any
    factor: float
    beyond: int = 0
    long: Any = None
    growth: Any = None
    stretch: float = 1.0


def frequencies(
    c: Config, base: float | None = None, scaling: Mapping[str, Any] | None = None, head_size: int = 0
) -> Frequencies:
    """base: theta, where it is not the configuration's. scaling: a `rope_scaling` in place of the configuration's. head_size: features that are turned, where it is
    not the configuration's. Raises ImportModelError."""
    parameters = c.get("rope_parameters") or {}
    theta = float(base if base is not None else c.get("rope_theta", _said(parameters, "rope_theta", 10000.0)))
    size = head_size or int(
        c.head_size * c.number("partial_rotary_factor", float(_said(parameters, "partial_rotary_factor", 1.0)))
    )
    # An odd size has one pair more than its half, as transformers has it.
    plain = 1.0 / theta ** (np.arange(0, size, 2, dtype=np.float64) / size)
    own = scaling if scaling is not None else _scaling(c)
    kind = str(own.get("rope_type", own.get("type", "default")))
    made = _SCALED.get(kind)
    if made is None:
        raise ImportModelError(
            f"rotary positions of type {kind!r} in {c.architecture}", hint=f"known: {', '.join(_SCALED)}"
        )
    try:
        found = made(plain, own, c, theta)
    except (KeyError, TypeError, ValueError, ZeroDivisionError) as error:
        raise ImportModelError(
            f"rope_scaling {dict(own)} of {c.architecture}: {type(error).__name__} {error}", hint=FETCH_AGAIN
        ) from None
    wrong = next((x for x in (found.inverse, found.long) if x is not None and np.shape(x) != plain.shape), None)
    if wrong is not None:
        raise ImportModelError(
            f"rope_scaling of {c.architecture} has {np.size(wrong)} factors for {size} features", hint=FETCH_AGAIN
        )
    return found


def _said(table: Mapping[str, Any], name: str, default: float) -> Any:
    """What a table says; `default` where it says nothing, or null."""
    value = table.get(name)
    return default if value is None else value


def _scaling(c: Config) -> Mapping[str, Any]:
    found: Mapping[str, Any] = c.get("rope_scaling") or c.get("rope_parameters") or {}
    return found


def boundary(c: Config) -> int | None:
    """Tokens beyond which a text's places turn by other frequencies, so that what was read before is read again; None where there is no such number."""
    own = _scaling(c)
    return trained_length(own, c) if str(own.get("rope_type", own.get("type", ""))) in ("longrope", "su") else None


def _plain(f: Any, s: Mapping[str, Any], c: Config, theta: float) -> Frequencies:
    return Frequencies(f, 1.0)


def _linear(f: Any, s: Mapping[str, Any], c: Config, theta: float) -> Frequencies:
    return Frequencies(f / float(s["factor"]), 1.0)


def _llama3(f: Any, s: Mapping[str, Any], c: Config, theta: float) -> Frequencies:
    factor, low, high = float(s["factor"]), float(s["low_freq_factor"]), float(s["high_freq_factor"])
    old = float(trained_length(s, c))
    turns = old * f / (2 * math.pi)
    blend = np.clip((turns - low) / (high - low), 0, 1)
    return Frequencies(f / factor * (1 - blend) + f * blend, 1.0)


def _yarn(f: Any, s: Mapping[str, Any], c: Config, theta: float) -> Frequencies:
    size, old = 2 * len(f), float(trained_length(s, c))
    factor = float(c.context / old if s["factor"] is None else s["factor"])

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
    return Frequencies(f / factor * ramp + f * (1 - ramp), float(attention))


def trained_length(s: Mapping[str, Any], c: Config) -> int:
    """Tokens of the texts that the model was trained on before it was stretched. What stands beside the table is before what it has, as transformers reads both."""
    return int(c.get("original_max_position_embeddings") or s.get("original_max_position_embeddings") or c.context)


def _longrope(f: Any, s: Mapping[str, Any], c: Config, theta: float) -> Frequencies:
    old = trained_length(s, c)
    factor = float(s.get("factor") or c.context / old)
    attention = s.get("attention_factor")
    if s.get("short_mscale") is not None:  # Phi-3.5-MoE; both are one number there
        attention = float(s["short_mscale"])
        if float(s["long_mscale"]) != attention:
            raise ValueError("short_mscale and long_mscale differ")
    if attention is None:
        attention = 1.0 if factor <= 1 else math.sqrt(1 + math.log(factor) / math.log(old))
    short, long = (f / np.asarray(s[n], np.float64) for n in ("short_factor", "long_factor"))
    return Frequencies(short, float(attention), old, long)


def _dynamic(f: Any, s: Mapping[str, Any], c: Config, theta: float) -> Frequencies:
    """With `alpha`, a larger theta for all lengths: so configurations of Hunyuan have it."""
    size = 2 * len(f)
    alpha = s.get("alpha")
    if alpha:
        return Frequencies(f * float(alpha) ** (-np.arange(0, size, 2) / (size - 2)), 1.0)
    return Frequencies(f, 1.0, c.context, growth=-np.arange(0, size, 2) / (size - 2), stretch=float(s["factor"]))


def _factors(f: Any, s: Mapping[str, Any], c: Config, theta: float) -> Frequencies:
    return Frequencies(f / np.asarray(s["factors"], np.float64), 1.0)


def _proportional(f: Any, s: Mapping[str, Any], c: Config, theta: float) -> Frequencies:
    """Only the first pairs turn, by frequencies of the whole head; `f` has all of them."""
    turned = int(float(s.get("partial_rotary_factor", 1.0)) * len(f))
    return Frequencies(np.where(np.arange(len(f)) < turned, f, 0) / float(s.get("factor") or 1.0), 1.0)


_SCALED = {
    "proportional": _proportional,
    "factors": _factors,  # numbers that a GGUF file holds in place of a rule
    "default": _plain, "linear": _linear, "llama3": _llama3, "yarn": _yarn, "longrope": _longrope, "su": _longrope, "dynamic": _dynamic,
}  # fmt: skip
