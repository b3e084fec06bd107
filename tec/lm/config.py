"""A model's configuration by the names that Hugging Face's config.json has, with the defaults that its architectures share."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ..errors import ImportModelError
from ..likeness import near
from .kinds import check
from .remedies import FETCH_AGAIN

_EPSILONS = ("rms_norm_eps", "layer_norm_eps", "layer_norm_epsilon", "norm_epsilon", "norm_eps")


class Config:
    """Reads `values`. What is not there and has no default raises ImportModelError, and so does a key that holds what it cannot (`kinds`)."""

    def __init__(self, values: Mapping[str, Any], architecture: str):
        self.values = dict(values)
        self.architecture = architecture
        check(self.values, architecture)

    def get(self, name: str, default: Any = None) -> Any:
        """A value; `default` where it is missing or null."""
        value = self.values.get(name)
        return default if value is None else value

    def size(self, name: str, default: int | None = None) -> int:
        """A positive int."""
        value = self.get(name, default)
        if value is None:
            raise ImportModelError(f"the configuration of {self.architecture} has no {name}", hint=FETCH_AGAIN)
        if isinstance(value, bool) or not isinstance(value, int) or not 0 < value < 1 << 31:
            raise ImportModelError(
                f"the configuration of {self.architecture} has {name} = {value!r}", hint="a positive int"
            )
        return value

    def number(self, name: str, default: float) -> float:
        """A float."""
        value = self.get(name, default)
        try:
            return float(value)
        except (TypeError, ValueError):
            raise ImportModelError(
                f"the configuration of {self.architecture} has {name} = {value!r}", hint="a number"
            ) from None

    # ---- sizes of every decoder

    @property
    def hidden(self) -> int:
        return self.size("hidden_size")

    @property
    def layers(self) -> int:
        return self.size("num_hidden_layers")

    @property
    def heads(self) -> int:
        return self.size("num_attention_heads")

    @property
    def kv_heads(self) -> int:
        """Heads of keys and values. ImportModelError where they do not divide the queries'."""
        count = self.size("num_key_value_heads", self.heads)
        if self.heads % count:
            raise ImportModelError(
                f"{self.heads} heads of queries and {count} of keys in the configuration of {self.architecture}",
                hint=FETCH_AGAIN,
            )
        return count

    @property
    def head_size(self) -> int:
        given = self.get("head_dim")
        if given is None and self.hidden % self.heads:
            raise ImportModelError(
                f"hidden_size {self.hidden} of {self.architecture} is no multiple of its {self.heads} heads",
                hint=FETCH_AGAIN,
            )
        return self.size("head_dim", self.hidden // self.heads)

    @property
    def vocabulary(self) -> int:
        return self.size("vocab_size")

    @property
    def epsilon(self) -> float:
        """What norms add to a mean square or a variance."""
        return self.number(next((n for n in _EPSILONS if self.get(n) is not None), _EPSILONS[0]), 1e-6)

    @property
    def activation(self) -> str:
        """The name of the feed-forward network's activation."""
        return str(self.get("hidden_act", self.get("hidden_activation", "silu")))

    @property
    def context(self) -> int:
        """Tokens that the model was made for."""
        return self.size("max_position_embeddings", 2048)

    @property
    def window(self) -> int | None:
        """Keys that a token of a layer with a sliding window sees, itself among them; None without."""
        return (
            self.size("sliding_window") if self.get("sliding_window") and self.get("use_sliding_window", True) else None
        )

    def layer_kinds(self, pattern: int = 0) -> list[str]:
        """ "full_attention", "sliding_attention", ... of each layer: as `layer_types` says, else every `pattern`-th full and the others sliding, else alike."""
        given = self.get("layer_types")
        if given is not None:
            kinds = [str(k) for k in given]
            if len(kinds) < self.layers:
                raise ImportModelError(
                    f"{len(kinds)} layer_types for {self.layers} layers of {self.architecture}", hint=FETCH_AGAIN
                )
            return kinds[: self.layers]
        if self.window is None:
            return ["full_attention"] * self.layers
        period = int(self.get("sliding_window_pattern", pattern))
        if not period:
            return ["sliding_attention"] * self.layers
        return ["sliding_attention" if (k + 1) % period else "full_attention" for k in range(self.layers)]


def unknown(said: str, name: str, names: Iterable[str]) -> ImportModelError:
    """The error of an architecture that is not among `names`: what is near, and all that are."""
    known = sorted(names)
    like = near(name, known, 3)
    first = f"near: {', '.join(like)}; " if like else ""
    return ImportModelError(said, hint=f"{first}known: {', '.join(known)}")
