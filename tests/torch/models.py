"""Networks of torchvision and transformers at random weights, small where the full would take long.

`MODELS[name]()` gives (module, arguments as a dict, shapes with an open batch). Batch statistics are made so that they matter.
"""

from __future__ import annotations

import inspect

import torch
from torch import nn


def torchvision():
    """The package; a wheel for another build of torch lacks its C++ operators, which these models do not need."""
    try:
        import torchvision
    except RuntimeError:
        library = torch.library.Library("torchvision", "DEF")
        for op in ("nms", "qnms"):
            library.define(f"{op}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        torchvision_libraries.append(library)  # its definitions last as long as it
        import torchvision
    return torchvision.models


torchvision_libraries: list[torch.library.Library] = []


def picture(make, size=64):
    """A network of pictures; `make` is given torchvision.models."""

    def build():
        torch.manual_seed(0)
        m = make(torchvision()).eval()
        for part in m.modules():
            if isinstance(part, nn.BatchNorm2d):
                part.running_mean.normal_(0, 0.1)
                part.running_var.uniform_(0.5, 1.5)
        name = next(iter(inspect.signature(m.forward).parameters))
        return m, {name: torch.randn(2, 3, size, size)}, {name: ("batch", 3, size, size)}

    return build


def named(name, **options):
    return lambda v: getattr(v, name)(**options)


def segmentation(name):
    return lambda v: getattr(v.segmentation, name)(weights=None, weights_backbone=None)


def vit(v):
    m = v.vision_transformer.VisionTransformer(32, 8, 2, 4, 64, 128, num_classes=10)
    nn.init.normal_(m.heads.head.weight)  # zeros, as it comes
    return m


def swin(v):
    return v.swin_transformer.SwinTransformer([4, 4], 32, [2, 2], [2, 4], [4, 4], num_classes=10)


SIZES = {
    "vocab_size": 99, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64,
    "max_position_embeddings": 64,
}  # fmt: skip
GROUPED = SIZES | {"num_key_value_heads": 2, "use_cache": False}
SEQ2SEQ = {
    "vocab_size": 99, "d_model": 32, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 4, "decoder_attention_heads": 4,
    "encoder_ffn_dim": 64, "decoder_ffn_dim": 64, "use_cache": False,
}  # fmt: skip
PATCHES = {
    "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64, "image_size": 32, "patch_size": 8,
}  # fmt: skip


def hf(model, config, inputs, **settings):
    """A network of transformers by its classes' names; `inputs`: names of "ids", "mask", "decoder", "pixels" and the like."""

    def build():
        import transformers

        torch.manual_seed(0)
        m = getattr(transformers, model)(getattr(transformers, config)(**settings)).eval()
        examples = {name: INPUTS[name]() for name in inputs.split()}
        return m, examples, {name: ("batch", *x.shape[1:]) for name, x in examples.items()}

    return build


def ids(length):
    def make():
        x = torch.randint(1, 90, (2, length))
        x[:, -1] = 98
        return x

    return make


def mask():
    x = torch.ones(2, 12, dtype=torch.int64)
    x[1, -3:] = 0
    return x


INPUTS = {
    "input_ids": ids(12), "attention_mask": mask, "decoder_input_ids": ids(7), "pixel_values": lambda: torch.randn(2, 3, 32, 32),
    "input_features": lambda: torch.randn(2, 16, 50), "input_values": lambda: torch.randn(2, 1200),
}  # fmt: skip
TEXT = "input_ids attention_mask"

MODELS = {
    "alexnet": picture(named("alexnet")),
    "vgg11_bn": picture(named("vgg11_bn", num_classes=10), 32),
    "resnet18": picture(named("resnet18")),
    "resnet50": picture(named("resnet50")),
    "resnext50": picture(named("resnext50_32x4d")),
    "densenet121": picture(named("densenet121")),
    "squeezenet1_1": picture(named("squeezenet1_1")),
    "mobilenet_v2": picture(named("mobilenet_v2")),
    "mobilenet_v3_small": picture(named("mobilenet_v3_small")),
    "shufflenet_v2": picture(named("shufflenet_v2_x0_5")),
    "efficientnet_b0": picture(named("efficientnet_b0")),
    "mnasnet0_5": picture(named("mnasnet0_5")),
    "googlenet": picture(named("googlenet", init_weights=False, aux_logits=False)),
    "inception_v3": picture(named("inception_v3", init_weights=False), 96),
    "regnet_y_400mf": picture(named("regnet_y_400mf")),
    "convnext_tiny": picture(named("convnext_tiny")),
    "vit": picture(vit, 32),
    "swin": picture(swin),
    "deeplabv3_mobilenet": picture(segmentation("deeplabv3_mobilenet_v3_large")),
    "lraspp": picture(segmentation("lraspp_mobilenet_v3_large")),
    "bert": hf("BertModel", "BertConfig", TEXT, **SIZES),
    "roberta": hf("RobertaModel", "RobertaConfig", TEXT, **SIZES, pad_token_id=0),
    "albert": hf("AlbertModel", "AlbertConfig", TEXT, **SIZES, embedding_size=16),
    "electra": hf("ElectraModel", "ElectraConfig", TEXT, **SIZES, embedding_size=16),
    "distilbert": hf(
        "DistilBertModel", "DistilBertConfig", TEXT, vocab_size=99, dim=32, n_layers=2, n_heads=4, hidden_dim=64, max_position_embeddings=64
    ),
    "mobilebert": hf(
        "MobileBertModel", "MobileBertConfig", TEXT, **SIZES, embedding_size=16, true_hidden_size=32, intra_bottleneck_size=32
    ),
    "gpt2": hf("GPT2LMHeadModel", "GPT2Config", TEXT, vocab_size=99, n_embd=32, n_layer=2, n_head=4, n_positions=64, use_cache=False),
    "llama": hf("LlamaForCausalLM", "LlamaConfig", TEXT, **GROUPED),
    "mistral": hf("MistralForCausalLM", "MistralConfig", TEXT, **GROUPED, sliding_window=8),
    "qwen2": hf("Qwen2ForCausalLM", "Qwen2Config", TEXT, **GROUPED),
    "gemma": hf("GemmaForCausalLM", "GemmaConfig", TEXT, **GROUPED, head_dim=8),
    "opt": hf(
        "OPTForCausalLM", "OPTConfig", TEXT, vocab_size=99, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, ffn_dim=64,
        max_position_embeddings=64, word_embed_proj_dim=32, use_cache=False,
    ),
    "gpt_neox": hf("GPTNeoXForCausalLM", "GPTNeoXConfig", TEXT, **SIZES, use_cache=False),
    "phi": hf("PhiForCausalLM", "PhiConfig", TEXT, **SIZES, use_cache=False),
    "bloom": hf("BloomForCausalLM", "BloomConfig", TEXT, vocab_size=99, hidden_size=32, n_layer=2, n_head=4, use_cache=False),
    "falcon": hf(
        "FalconForCausalLM", "FalconConfig", TEXT, vocab_size=99, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, use_cache=False
    ),
    "t5": hf(
        "T5ForConditionalGeneration", "T5Config", TEXT + " decoder_input_ids", vocab_size=99, d_model=32, d_kv=8, d_ff=64, num_layers=2,
        num_heads=4, use_cache=False,
    ),
    "bart": hf("BartForConditionalGeneration", "BartConfig", TEXT + " decoder_input_ids", **SEQ2SEQ, max_position_embeddings=64),
    "whisper": hf(
        "WhisperForConditionalGeneration", "WhisperConfig", "input_features decoder_input_ids", **SEQ2SEQ, num_mel_bins=16,
        max_source_positions=25, max_target_positions=32, pad_token_id=0, bos_token_id=1, eos_token_id=2, decoder_start_token_id=1,
    ),
    "clip": hf(
        "CLIPModel", "CLIPConfig", "input_ids pixel_values attention_mask", text_config=SIZES | {"eos_token_id": 98}, vision_config=PATCHES,
        projection_dim=16,
    ),
    "hf_vit": hf("ViTModel", "ViTConfig", "pixel_values", **PATCHES),
    "deit": hf("DeiTModel", "DeiTConfig", "pixel_values", **PATCHES),
    "dinov2": hf("Dinov2Model", "Dinov2Config", "pixel_values", **PATCHES),
    "wav2vec2": hf(
        "Wav2Vec2Model", "Wav2Vec2Config", "input_values", hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64,
        conv_dim=[16, 16, 16], conv_stride=[5, 2, 2], conv_kernel=[10, 3, 3], num_feat_extract_layers=3, num_conv_pos_embeddings=8,
        num_conv_pos_embedding_groups=4,
    ),
}  # fmt: skip
