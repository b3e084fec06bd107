"""Tensors of the open inference protocol: names of types, JSON and binary data to arrays and back.

Binary data (Triton's extension) follows the JSON of a request or an answer, whose length the header `Inference-Header-Content-Length` says; each tensor's
bytes are row-major and little-endian. Source: KServe's "Open Inference Protocol V2" and Triton's "Binary Tensor Data Extension".
"""

from __future__ import annotations

import json
import math
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..runtime.arrays.dtypes import itemsize, numpy_dtype
from .errors import Refusal

TYPES = {
    "bool": "BOOL", "uint8": "UINT8", "uint16": "UINT16", "uint32": "UINT32", "uint64": "UINT64", "int8": "INT8", "int16": "INT16", "int32": "INT32",
    "int64": "INT64", "float16": "FP16", "float32": "FP32", "float64": "FP64", "bfloat16": "BF16",
}  # fmt: skip
NAMES = {v: k for k, v in TYPES.items()}
Array = np.ndarray[Any, Any]


@dataclass(slots=True)
class InferRequest:
    """A request, read. outputs: names and whether each is wanted as binary data; empty for all, `binary` then says how."""

    inputs: dict[str, Array]
    outputs: dict[str, bool] = field(default_factory=dict)
    binary: bool = False
    id: str = ""
    parameters: Mapping[str, Any] = field(default_factory=dict)


def unpacked(body: bytes, encoding: str | None, limit: int) -> bytes:
    """A body without its compression. Refusal for one that is damaged, of another kind, or larger than `limit` bytes."""
    if encoding in (None, "", "identity"):
        return body
    if encoding not in ("gzip", "deflate"):
        raise Refusal(415, f"Content-Encoding {encoding!r}; gzip and deflate are read")
    reader = zlib.decompressobj(zlib.MAX_WBITS | 32)
    try:
        out = reader.decompress(body, limit + 1)
    except zlib.error as error:
        raise Refusal(400, f"the body is no {encoding}: {error}") from None
    if len(out) > limit:
        raise Refusal(413, f"the body is larger than {limit} bytes")
    return out


def read_request(body: bytes, header_bytes: str | None) -> InferRequest:
    """A request's body. Raises Refusal with what is wrong in it."""
    length = len(body)
    if header_bytes is not None:
        if not header_bytes.isdecimal() or int(header_bytes) > len(body):
            raise Refusal(400, f"Inference-Header-Content-Length is {header_bytes!r}, the body has {len(body)} bytes")
        length = int(header_bytes)
    try:
        data = json.loads(body[:length].decode())  # of bytes it would first look for their encoding
    except (ValueError, RecursionError):
        raise Refusal(400, "the request is no JSON") from None
    if not isinstance(data, dict) or not isinstance(data.get("inputs"), list):
        raise Refusal(400, "the request has no list of inputs")
    parameters = _table(data.get("parameters"))
    request = InferRequest(
        {}, binary=bool(parameters.get("binary_data_output")), id=str(data.get("id") or ""), parameters=parameters
    )
    at = length
    for given in data["inputs"]:
        name, array, at = _input(given, body, at)
        if name in request.inputs:
            raise Refusal(400, f"input {name!r} is given twice")
        request.inputs[name] = array
    if at != len(body):
        raise Refusal(400, f"{len(body) - at} bytes behind the last tensor")
    for asked in data.get("outputs") or ():
        if not isinstance(asked, dict) or not isinstance(asked.get("name"), str):
            raise Refusal(400, "an output that is asked for has no name")
        request.outputs[asked["name"]] = bool(_table(asked.get("parameters")).get("binary_data", request.binary))
    return request


def _table(data: Any) -> Mapping[str, Any]:
    return data if isinstance(data, dict) else {}


def _input(given: Any, body: bytes, at: int) -> tuple[str, Array, int]:
    if not isinstance(given, dict) or not isinstance(given.get("name"), str):
        raise Refusal(400, "an input has no name")
    name, kind, shape = given["name"], given.get("datatype"), given.get("shape")
    dtype = NAMES.get(kind) if isinstance(kind, str) else None
    if dtype is None:
        raise Refusal(400, f"input {name!r} has datatype {kind!r}; it is one of {', '.join(NAMES)}")
    if not isinstance(shape, list) or len(shape) > 32 or any(type(n) is not int or not 0 <= n < 1 << 40 for n in shape):
        raise Refusal(400, f"the shape of input {name!r} is no list of sizes")
    count, held = math.prod(shape), numpy_dtype(dtype)
    nbytes = _table(given.get("parameters")).get("binary_data_size")
    if nbytes is not None:
        if type(nbytes) is not int or nbytes != count * itemsize(dtype) or at + nbytes > len(body):
            raise Refusal(
                400,
                f"input {name!r} of shape {shape} and {kind} takes {count * itemsize(dtype)} bytes; {nbytes} are said",
            )
        return name, np.frombuffer(body, held, count, at).reshape(shape), at + nbytes
    if "data" not in given:
        raise Refusal(400, f"input {name!r} has no data")
    if dtype in ("float16", "bfloat16"):
        raise Refusal(400, f"input {name!r}: JSON holds no {kind}; send it as binary data")
    return name, _from_json(name, given["data"], count, held).reshape(shape), at


def _from_json(name: str, data: Any, count: int, held: Any) -> Array:
    try:
        raw = np.asarray(data)
        if raw.dtype == object or (raw.dtype.kind not in "biuf" and raw.size):
            raise ValueError("it holds something other than numbers")
        if raw.size != count:
            raise ValueError(f"{raw.size} elements, the shape has {count}")
        if held.kind in "iu" and raw.size and not (raw.astype(held) == raw).all():
            raise ValueError("an element does not fit its type")
        return raw.astype(held).reshape(-1)
    except (ValueError, TypeError, OverflowError, RecursionError) as error:
        raise Refusal(400, f"the data of input {name!r}: {error}") from None


def write_answer(
    model: str, version: str, request: InferRequest, made: Sequence[tuple[str, str, Array]]
) -> tuple[list[bytes], int | None]:
    """An answer's body in pieces, and the length of its JSON where binary data follows. made: (name, dtype, array) of all outputs."""
    names = [n for n, *_ in made]
    unknown = [n for n in request.outputs if n not in names]
    if unknown:
        raise Refusal(400, f"the model has no output {unknown[0]!r}; it has {', '.join(names)}")
    outputs: list[dict[str, Any]] = []
    tail: list[bytes] = []
    for name, dtype, array in made:
        if request.outputs and name not in request.outputs:
            continue
        row: dict[str, Any] = {"name": name, "datatype": TYPES[dtype], "shape": list(array.shape)}
        if request.outputs.get(name, request.binary) or dtype in ("float16", "bfloat16"):
            tail.append(np.ascontiguousarray(array).tobytes())
            row["parameters"] = {"binary_data_size": len(tail[-1])}
        else:
            row["data"] = array.reshape(-1).tolist()
        outputs.append(row)
    answer = {
        "model_name": model,
        "model_version": version,
        "outputs": outputs,
        **({"id": request.id} if request.id else {}),
    }
    # JSON has no NaN and no infinity; what Python writes of them Triton's clients read.
    head = json.dumps(answer).encode()
    return [head, *tail], len(head) if tail else None
