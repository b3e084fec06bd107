"""Adapters in GGUF files: general.type "adapter", adapter.type "lora", tensors NAME.lora_a [rank, in] and NAME.lora_b [out, rank]."""

from __future__ import annotations

from pathlib import Path

from tec.errors import ImportModelError, one_line
from tec.lm.adapters import Adapter, low_rank
from tec.lm.checkpoint import PackedTensor
from tec.lm.remedies import FETCH_AGAIN

from . import names
from .config import MODEL_TYPES
from .reader import is_gguf, read


def accepts(path: Path) -> bool:
    """Whether a path is a GGUF file."""
    return path.is_file() and is_gguf(path)


def open_adapter(path: Path) -> Adapter:
    """The file's adapter. Raises ImportModelError for a file that holds a model, or parts that are no pairs.

    Rows of `b` for q and k of the Llama family are permuted as the weights' are. How many heads that are is not in the file: `Adapter.fitted` takes it from the
    model.
    """
    file = read(path)
    if file.metadata.get("general.type") != "adapter":
        raise ImportModelError(
            f"{path} holds a {one_line(str(file.metadata.get('general.type', 'model')))}, not an adapter",
            hint="tec.lm.load opens models",
        )
    kind, architecture = file.metadata.get("adapter.type"), file.metadata.get("general.architecture")
    if kind != "lora" or architecture not in MODEL_TYPES:
        raise ImportModelError(
            f"{path} is an adapter of the kind {one_line(str(kind))} for {one_line(str(architecture))}",
            hint="LoRA is read",
        )
    alpha = file.metadata.get("adapter.lora.alpha")
    if not isinstance(alpha, (int, float)):
        raise ImportModelError(
            f"{path} does not say adapter.lora.alpha", hint="write it with llama.cpp's convert_lora_to_gguf.py"
        )
    table = names.tables()[architecture]
    pairs: dict[str, dict[str, PackedTensor]] = {}
    for e in file.entries:
        stem, _, half = e.name.rpartition(".")
        if half not in ("lora_a", "lora_b"):
            raise ImportModelError(
                f"{path} holds {one_line(e.name)}, which is no part of a LoRA",
                hint="write it with llama.cpp's convert_lora_to_gguf.py",
            )
        pairs.setdefault(names.name_of(stem, table), {})[half] = PackedTensor(e.name, e.shape, e.format, file.data(e))
    deltas = {}
    for name, of in pairs.items():
        if of.keys() != {"lora_a", "lora_b"}:
            raise ImportModelError(f"{path}: {one_line(name)} has one half of its pair alone", hint=FETCH_AGAIN)
        a = of["lora_a"]
        deltas[name] = low_rank(name, a, of["lora_b"], alpha / max(1, a.shape[0] if a.shape else 1))
    return Adapter(deltas, str(path), {"permuted": architecture in names.INTERLEAVED})
