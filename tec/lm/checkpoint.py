"""A model as its files hold it: hyperparameters, weights in the form in which they lie, tokenizer, chat template.

    checkpoint = tec.lm.open("gemma-3-270m-q4_k_m.gguf")        # or a Hugging Face folder
    checkpoint.config["num_hidden_layers"]
    checkpoint.tensors["model.layers.0.self_attn.q_proj.weight"].format      # Format.Q5_0; its bytes stay in the mapped file

Whatever the file, names are those of Hugging Face: `config` has config.json's keys, `tensors` has the names of transformers' state dicts. What differs between
files of one architecture is said beside them, so that no weight is touched when a file is opened:

- `PackedTensor.rotary_heads`: rows of q and k in GGUF files of the Llama family are permuted, so that rotary turns neighbours.
- `config["rms_norm_offset"]`: 1.0 where norms multiply by (1 + weight) (Gemma in Hugging Face's files); GGUF files hold 1 + weight, and have 0.0.
- experts of a mixture are one tensor, `model.layers.0.mlp.experts.gate_proj.weight` [experts, intermediate, hidden]; also `up_proj` and `down_proj`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from ..errors import ImportModelError
from ..records import dataclass
from .formats import Format, dequantize_blocks


def refuse_pointer(path: Path, start: bytes) -> None:
    """Raise ImportModelError for a file that begins as git-lfs writes a pointer: a clone without git-lfs has those in place of weights."""
    if start.startswith(b"version https://git-lfs"):
        raise ImportModelError(
            f"{path} is a pointer of git-lfs, not the file itself", hint="`git lfs pull` in its folder fetches the file"
        )


class Tokenizer(Protocol):
    """Converts text to tokens and back."""

    def encode(self, text: str, *, special: bool = True, add_special: bool = True) -> list[int]:
        """The tokens of a text. special: the texts of special tokens ("<|im_end|>") become those tokens; use False
        for untrusted texts. add_special: add the tokens that the model wants at the beginning (bos) and at the
        end.
        """

    def decode(self, ids: Sequence[int], *, special: bool = False) -> str:
        """The text of tokens. special: include the texts of special tokens. Bytes that are not UTF-8 become U+FFFD."""

    def token_bytes(self, id: int) -> bytes:
        """The bytes that one token adds to a text, which may be a part of a character; b"" for a special token."""

    def id_of(self, token: str) -> int | None:
        """The id of a token by its name in the vocabulary, or None."""

    @property
    def size(self) -> int:
        """The number of tokens in the vocabulary."""


@dataclass(frozen=True)
class PackedTensor:
    """A tensor as it is stored in a file.

    name: as in Hugging Face's state dicts. shape: in NumPy's order, rows along the last axis. format: how values are
    packed. data: its bytes, uint8 [n], a view of the mapped file unless several pieces are joined. rotary_heads: 0,
    or the number of heads whose rows are permuted for a rotary that rotates neighbours (2 i, 2 i + 1) instead of
    halves (i, i + size / 2). parts: arrays beside the data: scales and zero points of GPTQ ("scales", "qzeros",
    "g_idx"), AWQ ("scales", "qzeros") and 8-bit floats ("scale"). bits, group: of GPTQ and AWQ.

    >>> t = tec.lm.PackedTensor("w", (2, 4), tec.lm.Format.F32, np.zeros(32, "uint8"))
    >>> t.shape, t.format.name, t.data.size
    ((2, 4), 'F32', 32)
    """

    name: str
    shape: tuple[int, ...]
    format: Format
    raw: Any = field(repr=False)  # the bytes, or a function that makes them
    rotary_heads: int = 0
    parts: Mapping[str, PackedTensor] = field(default_factory=dict, repr=False)
    bits: int = 0
    group: int = 0
    # What dequantizes tensors of several parts.
    values: Callable[[PackedTensor], Any] | None = field(default=None, repr=False)
    # Of such a tensor whose groups are neighbours: codes uint8 [rows, columns], scales and zero points [rows, groups], so that a weight is (code - zero) * scale.
    codes: Callable[[], tuple[Any, Any, Any]] | None = field(default=None, repr=False)

    @property
    def data(self) -> Any:
        """The bytes, uint8 [n]: a view of the mapped file, or joined at each call if the file has the tensor in
        several pieces.
        """
        return self.raw() if callable(self.raw) else self.raw

    @property
    def nbytes(self) -> int:
        """The number of bytes in the file, including those of its parts."""
        elements = math.prod(self.shape)
        own = elements * self.bits // 8 if self.bits else elements // self.format.block * self.format.nbytes
        return own + sum(p.nbytes for p in self.parts.values())

    def dequantize(self, as_stored: bool = False) -> Any:
        """The values as float32 [*shape], exactly as the reference of the format computes them. Rows of q and k are
        in the order of halves, unless `as_stored`.
        """
        if self.values is not None:
            found = self.values(self)
        else:
            found = dequantize_blocks(self.format, self.data).reshape(self.shape)
        return found if as_stored or not self.rotary_heads else found[self.half_split_rows()]

    def half_split_rows(self) -> Any:
        """The order of the stored rows for a rotary of halves: `stored[order]`. Without a permutation these are all
        rows in place.
        """
        rows = np.arange(self.shape[0])
        if not self.rotary_heads:
            return rows
        return rows.reshape(self.rotary_heads, -1, 2).swapaxes(1, 2).reshape(-1)

    def half_split(self) -> PackedTensor:
        """The tensor with its rows in the order of halves; still packed, but a copy."""
        if not self.rotary_heads:
            return self
        rows = self.data.reshape(self.shape[0], -1)[self.half_split_rows()]
        return PackedTensor(self.name, self.shape, self.format, rows.reshape(-1))

    def part(self, index: int) -> PackedTensor:
        """One of the tensors along the first axis, such as one expert. It is a view of the same bytes."""
        if not 0 <= index < self.shape[0] or len(self.shape) < 2:
            raise ImportModelError(
                f"part {index} of {self.name}, whose shape is {list(self.shape)}",
                hint="parts are those of the first axis of a tensor with two axes or more, counted from 0",
            )
        size, values = self.data.size // self.shape[0], self.values
        raw = self.data[index * size : (index + 1) * size]
        own = None if values is None else lambda _: values(self)[index]
        return PackedTensor(f"{self.name}[{index}]", self.shape[1:], self.format, raw, values=own)


def stacked(name: str, tensors: Sequence[PackedTensor]) -> PackedTensor:
    """Tensors of one shape and format as one tensor with a new first axis; its parts are those of each, "0.scales" and so on.
    The bytes are joined when they are needed. Raises ImportModelError if they differ.
    """
    first = tensors[0]
    for t in tensors:
        if (t.shape, t.format, t.bits, t.group) != (first.shape, first.format, first.bits, first.group):
            raise ImportModelError(
                f"{t.name} is {t.format.name} {list(t.shape)}, and {first.name} {first.format.name} {list(first.shape)}",
                hint="experts of a layer are alike in shape and format",
            )

    def join() -> Any:
        return np.concatenate([t.data for t in tensors])

    def values(_: PackedTensor) -> Any:
        return np.stack([t.dequantize() for t in tensors])

    readers = [t.codes for t in tensors if t.codes is not None]

    def codes() -> tuple[Any, Any, Any]:
        c, scales, zeros = zip(*(read() for read in readers))
        return np.concatenate(c), np.concatenate(scales), np.concatenate(zeros)

    return PackedTensor(
        name,
        (len(tensors), *first.shape),
        first.format,
        join,
        parts={f"{k}.{n}": p for k, t in enumerate(tensors) for n, p in t.parts.items()},
        bits=first.bits,
        group=first.group,
        values=values if any(t.values is not None for t in tensors) else None,
        codes=codes if len(readers) == len(tensors) else None,
    )


@dataclass
class Checkpoint:
    """The opened files of a model.

    architecture: Hugging Face's model_type ("llama", "qwen3_moe", "gemma3_text", ...), for every kind of file.
    config: with the keys of config.json. tensors: by name. chat_template: a jinja2 text, or None. generation:
    "eos_token_ids" (all that end an answer), "bos_token_id", "pad_token_id", and defaults of sampling (temperature,
    top_k, top_p, repetition_penalty) if the files state them; "bos_token" and "eos_token", the texts that a template
    gets where these are not the ids' own. tool_template: in place of chat_template where there are tools, or None.
    path: of the file or folder.

    >>> checkpoint.architecture, checkpoint.config["num_hidden_layers"]      # as `tec.lm.open("model.gguf")` gives it
    ('llama', 2)
    >>> checkpoint.tensors["model.norm.weight"].dequantize().shape
    (64,)
    """

    architecture: str
    config: Mapping[str, Any]
    tensors: Mapping[str, PackedTensor]
    make_tokenizer: Callable[[], Tokenizer | None] = lambda: None
    chat_template: str | None = None
    tool_template: str | None = None
    generation: Mapping[str, Any] = field(default_factory=dict)
    path: str = ""
    # What the file says that has no place in config, by its own names.
    metadata: Mapping[str, Any] = field(default_factory=dict)
    files: Sequence[Path] = ()  # that all tensors are made of; none where they are made of more than files

    @cached_property
    def tokenizer(self) -> Tokenizer | None:
        """The tokenizer, or None if the files have none. It is made at the first use, which takes 0.1 to 0.4 s.
        Raises ImportModelError if its parts do not fit.
        """
        return self.make_tokenizer()

    @property
    def nbytes(self) -> int:
        """The number of bytes of all weights as they are stored."""
        return sum(t.nbytes for t in self.tensors.values())

    def __iter__(self) -> Iterator[PackedTensor]:
        return iter(self.tensors.values())
