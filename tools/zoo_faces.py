"""MTCNN's three networks, which find faces: P looks at every place, R and O at what is left, 24 and 48 pixels wide.

Pictures come in as RGB, (value - 127.5) / 128; each network gives boxes and (no face, face).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx

from .archives import archive, member, torch_checkpoint
from .builder import Net, float_input

SIZES = {"p": 12, "r": 24, "o": 48}


def mtcnn(which: str, height: Any = None, width: Any = None, batch: Any = 1) -> onnx.ModelProto:
    """`which`: "p" (any picture), "r" or "o"."""
    w = torch_checkpoint(member(archive("facenet-pytorch==2.6.0"), f"facenet_pytorch/data/{which}net.pt"))
    net = Net(f"mtcnn_{which}")
    height, width = (
        height or ("height" if which == "p" else SIZES[which]),
        width or ("width" if which == "p" else SIZES[which]),
    )

    def conv(x: str, k: int) -> str:
        x = net.conv(x, w[f"conv{k}.weight"], w[f"conv{k}.bias"])
        return net.op("PRelu", x, net.const(w[f"prelu{k}.weight"].reshape(-1, 1, 1)))

    def pool(x: str, size: int) -> str:
        return net.op("MaxPool", x, kernel_shape=[size, size], strides=[2, 2], ceil_mode=1)

    def dense(x: str, name: str) -> str:
        return net.op("Gemm", x, net.const(w[f"{name}.weight"]), net.const(w[f"{name}.bias"]), transB=1)

    if which == "p":
        x = conv(conv(pool(conv("input", 1), 2), 2), 3)
        face = net.op("Softmax", net.conv(x, w["conv4_1.weight"], w["conv4_1.bias"]), axis=1)
        outs = [net.conv(x, w["conv4_2.weight"], w["conv4_2.bias"]), face]
    else:
        x = pool(conv(pool(conv("input", 1), 3), 2), 3)
        x = conv(x, 3)
        last = 4
        if which == "o":
            x, last = conv(pool(x, 2), 4), 5
        x = net.op("Flatten", net.op("Transpose", x, perm=[0, 3, 2, 1]), axis=1)
        x = net.op("PRelu", dense(x, f"dense{last}"), net.const(w[f"prelu{last}.weight"]))
        face = net.op("Softmax", dense(x, f"dense{last + 1}_1"), axis=1)
        outs = [dense(x, f"dense{last + 1}_2"), face]
        if which == "o":
            outs.insert(1, dense(x, "dense6_3"))
    return net.model([float_input(shape=(batch, 3, height, width))], outs)


def face_input(picture: np.ndarray) -> np.ndarray:
    """A uint8 picture (height, width, 3) as the three networks take it."""
    return np.ascontiguousarray(((picture.astype(np.float32) - 127.5) * 0.0078125).transpose(2, 0, 1)[None])
