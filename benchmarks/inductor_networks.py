"""Networks whose kernels TorchInductor writes in Triton: of torchvision and transformers, small, with random weights and without dropout."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

Made = tuple[Any, tuple[Any, ...], bool]  # the network, its inputs, and whether it is trained a step
_SMALL = {
    "hidden_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 256,
    "vocab_size": 1000,
}
_STEADY = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
_VISION = (
    "mobilenet_v3_small", "swin_t", "efficientnet_b0", "shufflenet_v2_x0_5", "squeezenet1_1", "densenet121", "alexnet", "vgg11",
)  # fmt: skip
_TRAINED_VISION = ("resnet18", "regnet_y_400mf")
# name in transformers: what its configuration has beside or in place of _SMALL, and whether it is trained.
_TEXT: dict[str, tuple[dict[str, Any], bool]] = {
    "Llama": (_SMALL, False),
    "Bert": ({**_SMALL, **_STEADY}, True),
    "Roberta": ({**_SMALL, **_STEADY}, False),
    "Albert": ({**_SMALL, **_STEADY, "embedding_size": 64}, False),
    "Electra": ({**_SMALL, **_STEADY, "embedding_size": 64}, False),
    "DebertaV2": ({**_SMALL, **_STEADY}, False),
    "Qwen2": ({**_SMALL, "num_key_value_heads": 2}, True),
    "Mistral": ({**_SMALL, "num_key_value_heads": 2}, False),
    "Gemma": ({**_SMALL, "head_dim": 32, "num_key_value_heads": 1}, False),
    "Phi": (_SMALL, False),
    "GPTNeoX": (_SMALL, False),
    "GPT2": ({"n_embd": 128, "n_layer": 2, "n_head": 4, "vocab_size": 1000, "resid_pdrop": 0, "embd_pdrop": 0, "attn_pdrop": 0}, False),
    "DistilBert": ({"dim": 128, "n_layers": 2, "n_heads": 4, "hidden_dim": 256, "vocab_size": 1000, "dropout": 0, "attention_dropout": 0}, False),
    "OPT": ({"hidden_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4, "ffn_dim": 256, "vocab_size": 1000, "word_embed_proj_dim": 128, "dropout": 0.0}, False),
    "Bloom": ({"hidden_size": 128, "n_layer": 2, "n_head": 4, "vocab_size": 1000}, False),
    "Mamba": ({"hidden_size": 64, "num_hidden_layers": 2, "vocab_size": 1000, "state_size": 8}, False),
}  # fmt: skip


def networks(device: str) -> Iterator[tuple[str, Callable[[], Made]]]:
    """Networks by name, each with what makes it and its inputs on a device."""
    import torch
    import torchvision.models as V
    import transformers as T

    image = (torch.randn(2, 3, 64, 64, device=device),)
    ids = torch.randint(0, 1000, (2, 32), device=device)

    def there(network: Any, trained: bool) -> Any:
        return (network if trained else network.eval()).to(device)

    for name in (*_TRAINED_VISION, *_VISION):
        trained = name in _TRAINED_VISION
        yield name, lambda name=name, t=trained: (there(getattr(V, name)(), t), image, t)  # type: ignore[misc]
    yield "vit", lambda: (there(V.VisionTransformer(64, 16, 2, 4, 64, 128), True), image, True)
    stages = [V.convnext.CNBlockConfig(32, 64, 2), V.convnext.CNBlockConfig(64, None, 2)]
    yield "convnext", lambda: (there(V.ConvNeXt(stages, num_classes=10), True), image, True)
    sizes = {"input_size": (64, 64), "stem_channels": 16, "block_channels": [16, 32], "block_layers": [1, 1]}
    more = {"head_dim": 16, "stochastic_depth_prob": 0.0, "partition_size": 2}
    yield "maxvit", lambda: (there(V.MaxVit(**sizes, **more), False), image, False)
    for name, (config, trained) in _TEXT.items():
        made = lambda name=name, c=config: getattr(T, f"{name}Model")(getattr(T, f"{name}Config")(**c))  # noqa: E731
        yield name, lambda made=made, t=trained: (there(made(), t), (ids,), t)  # type: ignore[misc]
    t5 = T.T5Config(d_model=128, num_layers=2, num_heads=4, d_ff=256, d_kv=32, vocab_size=1000, dropout_rate=0.0)
    yield "T5 encoder", lambda: (there(T.T5EncoderModel(t5), False), (ids,), False)
    layer = {"dropout": 0.0, "batch_first": True}
    tokens = (torch.randn(2, 16, 64, device=device),)
    yield (
        "transformer layer",
        lambda: (there(torch.nn.TransformerEncoderLayer(64, 4, 128, **layer), True), tokens, True),
    )
    states = (torch.randn(8, 64, device=device), torch.randn(8, 64, device=device))
    yield "GRU cell", lambda: (there(torch.nn.GRUCell(64, 64), True), states, True)


__all__ = ["networks"]
