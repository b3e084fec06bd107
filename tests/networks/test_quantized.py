"""Real networks quantized after training: as near to float32 as what ONNX Runtime's quantizer makes of the same samples."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from tec_onnx import quantize

from tools import zoo

pytestmark = pytest.mark.slow


def crops(count: int = 16) -> list[Any]:
    """Square pieces of two photographs, of several sizes."""
    rng = np.random.default_rng(5)
    out = []
    for k in range(count):
        picture = zoo.image(("chelsea", "astronaut")[k % 2])
        side = int(rng.integers(180, min(picture.shape[:2])))
        y, x = (int(rng.integers(0, n - side + 1)) for n in picture.shape[:2])
        out.append(zoo.imagenet_crop(picture[y : y + side, x : x + side]))
    return out


PREPARED = {"squeezenet": zoo.squeezenet_input, "mobilenet_v2": zoo.torchvision_input}


@pytest.mark.parametrize("method", ["minmax", "entropy", "percentile", "mse"])
@pytest.mark.parametrize("name", PREPARED)
def test_as_near_as_onnxruntimes(name: str, method: str, tmp_path: Path) -> None:
    ort = pytest.importorskip("onnxruntime")
    from onnxruntime import quantization as q

    path = zoo.get(name)
    samples = [PREPARED[name](c) for c in crops()]
    first = onnx.load(path).graph.input[0].name
    made = quantize(path, [{first: x} for x in samples], method=method, sensitivity=False)

    class Reader(q.CalibrationDataReader):  # type: ignore[misc]
        def __init__(self) -> None:
            self.rest = iter(samples)

        def get_next(self) -> Any:
            x = next(self.rest, None)
            return None if x is None else {first: x}

    methods = {
        "minmax": q.CalibrationMethod.MinMax,
        "entropy": q.CalibrationMethod.Entropy,
        "percentile": q.CalibrationMethod.Percentile,
    }
    theirs = tmp_path / "theirs.onnx"
    q.quantize_static(
        str(path), str(theirs), Reader(), per_channel=True, quant_format=q.QuantFormat.QDQ, op_types_to_quantize=["Conv", "MatMul", "Gemm"],
        activation_type=q.QuantType.QUInt8, weight_type=q.QuantType.QInt8, calibrate_method=methods.get(method, q.CalibrationMethod.MinMax),
    )  # fmt: skip
    runs = {}
    for who, model in (("float", str(path)), ("ours", made.model.SerializeToString()), ("theirs", str(theirs))):
        session = ort.InferenceSession(model, providers=["CPUExecutionProvider"])
        runs[who] = np.concatenate([session.run(None, {first: x})[0].reshape(1, -1) for x in samples])

    def ratio(who: str) -> float:
        return float(10 * np.log10(np.sum(runs["float"] ** 2) / np.sum((runs[who] - runs["float"]) ** 2)))

    def same(who: str) -> float:
        return float(np.mean(runs[who].argmax(1) == runs["float"].argmax(1)))

    print(
        f"{name} {method}: {ratio('ours'):.1f} dB, {same('ours'):.0%}; onnxruntime {ratio('theirs'):.1f} dB, {same('theirs'):.0%}"
    )
    assert ratio("ours") > ratio("theirs") - 1 and same("ours") >= same("theirs") - 1 / len(samples)
