"""What is asked of a model and of a text, and what holds where nothing is said."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..errors import ArgumentError
from ..runtime.devices.device import as_device, cuda_exists, rocm_exists
from ..target import Target, as_target, chip_of_device
from .checkpoint import Checkpoint
from .config import Config
from .elsewhere import SETTINGS, hint
from .sampling import PENALTIES, Sampling

SETTINGS_OF_GENERATE = (
    "max_tokens", "temperature", "top_k", "top_p", "min_p", "seed", "stop", "logprobs", "ngrams", "draft", "schema",
)  # fmt: skip


def settings_of(
    usual: Mapping[str, Any], vocabulary: int, temperature: float | None, top_k: int | None, top_p: float | None, min_p: float, seed: int,
    known: Sequence[str], penalties: Mapping[str, Any],
) -> Sampling:  # fmt: skip
    """How tokens are chosen; what is None is as in `usual`. known: names of settings, for the error of one that is none. Raises ArgumentError."""
    wrong = next((n for n in penalties if n not in PENALTIES), None)
    if wrong is not None:
        names = (*PENALTIES, *known)
        raise ArgumentError(f"generate has no setting {wrong!r}", hint=hint(wrong, SETTINGS, names) or ", ".join(names))
    made = Sampling(
        float(usual.get("temperature", 0.0)) if temperature is None else temperature,
        int(usual.get("top_k", 0)) if top_k is None else top_k, float(usual.get("top_p", 1.0)) if top_p is None else top_p, seed, min_p, **penalties,
    )  # fmt: skip
    beyond = next((t for t in made.logit_bias if not 0 <= t < vocabulary), None)
    if beyond is not None:
        raise ArgumentError(
            f"logit_bias names the token {beyond}, and there are {vocabulary}",
            hint=f"tokens from 0 to {vocabulary - 1}: lm.encode(text) gives those of a text",
        )
    return made


def is_chat(prompt: Any) -> bool:
    """Whether a prompt is messages."""
    return isinstance(prompt, Sequence) and len(prompt) > 0 and isinstance(prompt[0], Mapping)


def usual_dtype(config: Config, target: Target) -> str:
    """float32 on a CPU; on a GPU the type that the model was trained in."""
    if not target.is_gpu:
        return "float32"
    return "bfloat16" if str(config.get("dtype", config.get("torch_dtype", ""))).endswith("bfloat16") else "float16"


def target_of(target: str | Target | None, device: Any) -> Target:
    """The target of a model. One that names a kind of GPU and no chip ("cuda") is the chip of the GPU that the model will run on, where there is one: code for the
    kind's usual chip may not run there, or leaves its matrix units alone."""
    found = as_target(target)
    if not found.is_gpu or {"mcpu", "arch"} & set(found.options):
        return found
    exists, option = {"cuda": (cuda_exists, "arch"), "rocm": (rocm_exists, "mcpu")}[found.kind]
    if device is None and not exists():
        return found
    there = as_device(found.kind if device is None else device)
    return Target(f"{found} -{option}={chip_of_device(there.arch)}") if there.kind == found.kind else found


def common(a: Sequence[int], b: Sequence[int]) -> int:
    """How many tokens two texts have in common from the start."""
    return next((k for k, (x, y) in enumerate(zip(a, b)) if x != y), min(len(a), len(b)))


def context_of(given: int | None, config: Config) -> int:
    """The most tokens of a text. Raises ArgumentError."""
    if given is not None and (isinstance(given, bool) or not hasattr(given, "__index__") or given < 1):
        raise ArgumentError(f"context is {given!r}", hint="a number of tokens")
    return config.context if given is None else int(given)


def ends_of(checkpoint: Checkpoint) -> set[int]:
    """The tokens that end a text."""
    found = checkpoint.generation.get("eos_token_ids", checkpoint.config.get("eos_token_id"))
    return set() if found is None else {found} if isinstance(found, int) else set(found)
