"""Networks that write: compiled once, run token by token, their caches on the device."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...errors import ArgumentError, ImportModelError
from ...graph.compiler import compile as compile_network
from ...runtime.arrays.dtypes import numpy_dtype
from ...runtime.networks.network import Network
from .files import BRANCH, Files, ModelFile

_ROWS = 256  # that caches have room for at first


@dataclass(frozen=True)
class Options:
    """How networks are compiled and where they run; see `tec.compile`."""

    target: Any = None
    device: Any = None
    dtype: str | None = None
    cache: bool = True
    progress: Any = None


def compiled(part: ModelFile, options: Options, branch: bool | None = None, state: bool = True) -> Network:
    """The network of a file for one text at a time; other sizes stay open, keys and their mask as long as caches and new tokens together."""
    info = part.interface.inputs
    shapes: dict[str, Any] = {dims[0]: 1 for _, dims in info.values() if len(dims) > 1 and isinstance(dims[0], str)}
    names = [info[n][1][k] for n, k in (("input_ids", 1), *((c, 2) for c in part.caches if ".encoder." not in c)) if n in info and len(info[n][1]) > k]  # fmt: skip
    steps, *pasts = names or [None]
    if pasts and isinstance(pasts[0], str) and isinstance(steps, str) and "attention_mask" in info:
        shapes["attention_mask"] = (1, f"{pasts[0]} + {steps}")
    freeze = {BRANCH: np.array([branch])} if branch is not None else None
    if branch is False:  # the caches are not read
        shapes |= {c: tuple(d if isinstance(d, int) else 1 for d in info[c][1]) for c in part.caches}
    more: dict[str, Any] = {} if state else {"state": False}
    net: Network = compile_network(
        str(part.path), target=options.target, dtype=options.dtype, cache=options.cache, progress=options.progress,
        shapes=shapes, freeze=freeze, **more,
    )  # fmt: skip
    if state and part.caches and not net.plan.states:
        raise ImportModelError(
            f"{part.path.name}: which outputs its caches become is not plain from their names: {', '.join(part.caches[:2])}",
            hint="past_key_values.N.key and present.N.key, or past_N and present_N",
        )
    return net


class _Run:
    """A decoder's network on a device, and the inputs of its steps."""

    def __init__(self, net: Network, device: Any, name: str):
        self.net, self.name = net, name
        self.executor = net.executor(device, capacity=_ROWS if net.plan.states else None)
        self.kinds = {i["name"]: i for i in net.inputs}
        self.logits = next(k for k, o in enumerate(self._shown()) if o == "logits")

    def _shown(self) -> list[str]:
        kept = {s.output for s in self.net.plan.states}
        return [o["name"] for o in self.net.outputs if o["name"] not in kept]

    def __call__(self, ids: Sequence[int], past: int, given: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
        """The last token's logits, and the other outputs, for tokens behind `past` others."""
        n, feeds = len(ids), dict(given)
        made: dict[str, Callable[[], Any]] = {
            "input_ids": lambda: [list(ids)], "decoder_input_ids": lambda: [list(ids)],
            "attention_mask": lambda: np.ones((1, past + n)), "position_ids": lambda: [range(past, past + n)],
            "cache_position": lambda: range(past, past + n),
        }  # fmt: skip
        states = {s.input for s in self.net.plan.states}
        for name, kind in self.kinds.items():
            if name in feeds or name in states:
                continue
            if name in made:
                feeds[name] = np.asarray(made[name](), numpy_dtype(kind["dtype"]))
            elif name.startswith("past"):  # none is given yet
                shape = [d if isinstance(d, int) else 0 for d in kind["shape"]]
                feeds[name] = np.zeros(shape, numpy_dtype(kind["dtype"]))
            else:
                raise ImportModelError(
                    f"{self.name} asks for input {name!r}, which text alone does not give",
                    hint="an export of the text decoder alone, whose inputs are tokens, masks, positions and caches",
                )
        feeds = {k: v for k, v in feeds.items() if k in self.kinds}
        out = dict(zip(self._shown(), self.executor.run(feeds)))
        logits = out.pop("logits").numpy()
        return logits.reshape(-1, logits.shape[-1])[-1].astype(np.float32), out


class Decoder:
    """Writes: `begin` with a prompt, then `next` for each token; both give the logits [vocabulary] of what follows."""

    def __init__(self, files: Files, options: Options, cached: bool = True):
        self.files, device = files, options.device
        step = files.step
        self.cached = bool(step.caches) and cached
        if step.caches and not cached and files.encoder is not None:
            raise ImportModelError(f"{step.path.name} needs its caches", hint="give the decoder without caches too")
        self.first: _Run | None = None
        if step.is_merged:
            self.first = _Run(compiled(step, options, branch=False, state=False), device, step.path.name)
            self.step = _Run(compiled(step, options, branch=True), device, step.path.name)
        else:
            self.step = _Run(compiled(step, options), device, step.path.name)
            if files.first is not None:
                net = compiled(files.first, options, state=False)
                self.first = _Run(net, device, files.first.path.name)
        self.encoder = compiled(files.encoder, options).executor(device) if files.encoder is not None else None
        self.ids: list[int] = []
        self.begun = 0  # texts
        self.given: dict[str, Any] = {}
        self.waiting: dict[str, Any] = {}  # caches that `first` made, for the first step

    def begin(self, prompt: Sequence[int]) -> Any:
        """A new text. Raises ArgumentError for a prompt without tokens."""
        if not prompt:
            raise ArgumentError(
                "the prompt has no tokens", hint="one token at least; a model's first token is often its bos token"
            )
        self.given, self.waiting, self.ids = {}, {}, []
        self.begun += 1
        if self.step.net.plan.states:
            self.step.executor.reset()
        if self.encoder is not None:
            if self.files.start is None:
                raise ArgumentError(
                    "the token that an answer begins with is not known",
                    hint="start=: decoder_start_token_id of the model",
                )
            self._encode(prompt)
            prompt = [self.files.start]
        self._check_room(len(prompt))
        if self.first is None:
            return self.next(*prompt)
        self.ids = list(prompt)
        logits, out = self.first(prompt, 0, self.given)
        for s in self.step.net.plan.states:
            self.waiting[s.input] = self._made(out, s.output)
        for name in self.step.kinds:
            if name.startswith("past") and name not in self.waiting:  # what the encoder said stays
                self.given[name] = self._made(out, name.replace("past_key_values", "present"))
        return logits

    def _made(self, out: dict[str, Any], name: str) -> Any:
        if name not in out:
            raise ImportModelError(
                f"the first decoder has no output {name!r}: the caches are of another model",
                hint="decoder_model.onnx and decoder_with_past_model.onnx of one export",
            )
        return out[name]

    def next(self, *tokens: int) -> Any:
        """The text goes on with these tokens."""
        self._check_room(len(self.ids) + len(tokens))
        if not self.cached:
            self.ids += tokens
            if self.step.net.plan.states:
                self.step.executor.reset()
            return self.step(self.ids, 0, self.given)[0]
        waiting, self.waiting = self.waiting, {}
        logits, _ = self.step(tokens, len(self.ids), {**self.given, **waiting})
        self.ids += tokens
        return logits

    @property
    def room(self) -> int | None:
        """Tokens that the text may still have; None where the model does not say."""
        return None if self.files.most is None else self.files.most - len(self.ids)

    def _check_room(self, count: int) -> None:
        if self.files.most is not None and count > self.files.most:
            raise ArgumentError(
                f"{count} tokens, the model holds {self.files.most}", hint="a shorter prompt, or fewer tokens"
            )

    def _encode(self, prompt: Sequence[int]) -> None:
        assert self.encoder is not None
        kinds = {i["name"]: i["dtype"] for i in self.encoder.network.inputs}
        known = {"input_ids": [list(prompt)], "attention_mask": [[1] * len(prompt)]}
        unknown = [n for n in kinds if n not in known]
        if unknown:
            raise ImportModelError(
                f"the encoder asks for input {unknown[0]!r}, which text alone does not give",
                hint="an encoder of texts, whose inputs are tokens and masks",
            )
        hidden = self.encoder.run({n: np.asarray(known[n], numpy_dtype(d)) for n, d in kinds.items()})[0]
        self.given["encoder_hidden_states"] = hidden
        runs = [r for r in (self.first, self.step) if r is not None]
        mask = next((r.kinds["encoder_attention_mask"] for r in runs if "encoder_attention_mask" in r.kinds), None)
        if mask is not None:
            self.given["encoder_attention_mask"] = np.ones((1, len(prompt)), numpy_dtype(mask["dtype"]))
