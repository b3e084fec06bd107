"""Reading ONNX models: files, external data, tensors, attributes. Everything that a damaged file can break is checked here.

In: a path, bytes or a ModelProto. Out: a ModelProto with its weights at hand, and NumPy arrays with tec's dtype names.
"""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from google.protobuf.message import DecodeError
from onnx import helper, numpy_helper

from tec import ImportModelError
from tec.ir.dtype import from_ml_dtypes_name, ml_dtypes_name
from tec.runtime.files import open_regular

# Of one array that is worked out from a few numbers (ConstantOfShape, Range, a sparse tensor): no network needs one, and a small
# file must not take all memory. Weights that lie in files are not bounded.
MAX_MADE_BYTES = 1 << 30

DAMAGED = "the file is damaged: export or download it again; onnx.checker.check_model(path) says more"

# ONNX element type -> tec dtype name.
DTYPES: dict[int, str] = {
    onnx.TensorProto.FLOAT: "float32", onnx.TensorProto.DOUBLE: "float64", onnx.TensorProto.FLOAT16: "float16",
    onnx.TensorProto.BFLOAT16: "bfloat16", onnx.TensorProto.INT8: "int8", onnx.TensorProto.INT16: "int16",
    onnx.TensorProto.INT32: "int32", onnx.TensorProto.INT64: "int64", onnx.TensorProto.UINT8: "uint8",
    onnx.TensorProto.UINT16: "uint16", onnx.TensorProto.UINT32: "uint32", onnx.TensorProto.UINT64: "uint64",
    onnx.TensorProto.BOOL: "bool", onnx.TensorProto.STRING: "string",
}  # fmt: skip


def dtype_name(elem_type: int) -> str:
    """The tec dtype of an ONNX element type; types that only the host handles keep NumPy's name."""
    known = DTYPES.get(elem_type)
    if known is not None:
        return known
    try:
        name = np.dtype(helper.tensor_dtype_to_np_dtype(elem_type)).name
    except (KeyError, TypeError, ValueError):
        raise ImportModelError(
            f"unknown ONNX element type {elem_type}",
            hint=f"this onnx is {onnx.__version__}: a newer one may know it (pip install -U onnx); else the file is damaged",
        ) from None
    return from_ml_dtypes_name(name)


def elem_type(dtype: str) -> int:
    """The ONNX element type of a tec dtype."""
    for k, v in DTYPES.items():
        if v == dtype:
            return k
    import ml_dtypes

    name = ml_dtypes_name(dtype)
    return int(helper.np_dtype_to_tensor_dtype(np.dtype(getattr(ml_dtypes, name))))


def load_model(model: Any) -> onnx.ModelProto:
    """A ModelProto from a path, bytes or a ModelProto, weights included. Raises ImportModelError."""
    if isinstance(model, onnx.ModelProto):
        return _checked(model, "the model")
    if isinstance(model, (bytes, bytearray)):
        return _checked(_parse(bytes(model), "the model"), "the model")
    if not isinstance(model, (str, os.PathLike)):
        raise ImportModelError(f"not a model: {type(model).__name__}", hint="give a path, bytes or an onnx.ModelProto")
    path = os.fspath(model)
    try:
        with open_regular(path) as f:
            data = f.read()
    except OSError as e:
        raise ImportModelError(
            f"cannot read {path}: {e.strerror or e}", hint="check the path and your rights to it"
        ) from None
    proto = _parse(data, path)
    _load_external(proto, os.path.dirname(os.path.abspath(path)))
    return _checked(proto, path)


def _parse(data: bytes, what: str) -> onnx.ModelProto:
    proto = onnx.ModelProto()
    try:
        proto.ParseFromString(data)
    except (DecodeError, ValueError, RuntimeError):
        raise ImportModelError(
            f"{what} is no ONNX model: the file is damaged or of another kind",
            hint="export or download the file again; GGUF files and folders of Hugging Face are language models: `tec generate`, tec.lm.load",
        ) from None
    return proto


def _checked(proto: onnx.ModelProto, what: str) -> onnx.ModelProto:
    if not proto.HasField("graph") or not proto.graph.output:
        raise ImportModelError(
            f"{what} has no graph, or a graph without outputs",
            hint="the file may be damaged or empty: export or download it again",
        )
    if not proto.opset_import:
        raise ImportModelError(
            f"{what} names no operator set",
            hint="set opset_import: onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid('', 21)])",
        )
    _check_text(proto.graph)
    for f in proto.functions:
        _check_nodes(f.node)
    newest = onnx.defs.onnx_opset_version()
    for entry in proto.opset_import:
        if entry.domain in ("", "ai.onnx") and not 1 <= entry.version <= newest + 1:
            raise ImportModelError(
                f"operator set {entry.version} is not known", hint=f"up to {newest} with this onnx package"
            )
    return proto


def _check_text(graph: onnx.GraphProto) -> None:
    """Names are text. In a damaged file they may not be; protobuf then hands out bytes."""
    names = [graph.name, *(t.name for t in graph.initializer), *(v.name for v in [*graph.input, *graph.output])]
    names += [d.dim_param for v in graph.input for d in v.type.tensor_type.shape.dim]
    if not all(isinstance(n, str) for n in names):
        raise ImportModelError("the model has names that are no text: the file is damaged", hint=DAMAGED)
    _check_nodes(graph.node)


def _check_nodes(nodes: Any) -> None:
    for n in nodes:
        names = [n.op_type, n.domain, n.name, n.overload, *n.input, *n.output, *[a.name for a in n.attribute]]
        if not all(isinstance(x, str) for x in names):
            raise ImportModelError("the model has names that are no text: the file is damaged", hint=DAMAGED)
        for a in n.attribute:
            if a.HasField("g"):
                _check_text(a.g)
            for g in a.graphs:
                _check_text(g)


def opsets(entries: Any) -> dict[str, int]:
    """{domain: version}; the default domain is ""."""
    return {("" if e.domain == "ai.onnx" else e.domain): e.version for e in entries}


# ---- external data


def _all_tensors(graph: onnx.GraphProto) -> Any:
    yield from graph.initializer
    for node in graph.node:
        for a in node.attribute:
            if a.HasField("t"):
                yield a.t
            yield from a.tensors
            if a.HasField("g"):
                yield from _all_tensors(a.g)
            for g in a.graphs:
                yield from _all_tensors(g)


def _load_external(proto: onnx.ModelProto, folder: str) -> None:
    """Reads weights that lie in files of their own; only inside the model's folder."""
    base = os.path.realpath(folder)
    for t in _all_tensors(proto.graph):
        if t.data_location != onnx.TensorProto.EXTERNAL:
            continue
        info = {e.key: e.value for e in t.external_data}
        location = info.get("location", "")
        if "\0" in location:
            raise ImportModelError(
                f"weights of {t.name!r} lie in {location!r}, which can be no file's name", hint=DAMAGED
            )
        path = os.path.realpath(os.path.join(base, location))
        if not location or os.path.isabs(location) or os.path.commonpath([base, path]) != base:
            raise ImportModelError(
                f"weights of {t.name!r} lie outside of the model's folder: {location!r}",
                hint="weights lie in files beside the model: move them there, and save it again with onnx.save(model, path, save_as_external_data=True)",
            )
        try:
            offset, length = int(info.get("offset", 0)), int(info["length"]) if "length" in info else None
            with open_regular(path) as f:
                size = os.fstat(f.fileno()).st_size
                if offset < 0 or offset > size or (length is not None and (length < 0 or offset + length > size)):
                    raise ImportModelError(
                        f"weights of {t.name!r}: {location} has {size} bytes, the model wants {length} from {offset}",
                        hint=f"the file was cut off, or belongs to another model: copy {location} again, from the same place as the model",
                    )
                f.seek(offset)
                t.raw_data = f.read(length if length is not None else -1)
        except (OSError, ValueError) as e:
            raise ImportModelError(
                f"cannot read the weights of {t.name!r} from {location}: {e}",
                hint=f"copy {location} to the folder of the model",
            ) from None
        t.data_location = onnx.TensorProto.DEFAULT
        del t.external_data[:]


# ---- tensors and attributes


def tensor_array(t: onnx.TensorProto) -> Any:
    """The NumPy array of a TensorProto; strings as an object array of str."""
    dtype_name(t.data_type)
    if any(d < 0 for d in t.dims):
        raise ImportModelError(f"tensor {t.name!r} has a negative dimension", hint=DAMAGED)
    if t.data_location == onnx.TensorProto.EXTERNAL:
        raise ImportModelError(f"the weights of {t.name!r} are in another file", hint="give the model by its path")
    try:
        array = numpy_helper.to_array(t)
    except Exception as e:
        raise ImportModelError(f"tensor {t.name!r} is damaged: {e}", hint=DAMAGED) from None
    if t.data_type == onnx.TensorProto.STRING:
        array = np.array(
            [s.decode() if isinstance(s, bytes) else str(s) for s in array.reshape(-1)], dtype=object
        ).reshape(array.shape)
    return array


def sparse_array(t: onnx.SparseTensorProto) -> Any:
    """The dense array of a SparseTensorProto."""
    values, indices = tensor_array(t.values), tensor_array(t.indices)
    what, dims = f"sparse tensor {t.values.name!r}", tuple(t.dims)
    if any(d < 0 for d in dims):
        raise ImportModelError(f"{what} has a negative dimension", hint=DAMAGED)
    count = check_bytes(what, dims, values.dtype.itemsize) // values.dtype.itemsize
    try:
        flat = indices if indices.ndim == 1 else np.ravel_multi_index(tuple(indices.T), dims)
    except (ValueError, TypeError) as e:
        raise ImportModelError(
            f"{what} of shape {list(dims)} has an index outside of it: {e}",
            hint="the indices of a sparse tensor are below the product of its dims (or, in rows, below each of them)",
        ) from None
    if flat.dtype.kind not in "iu" or flat.shape != values.shape:
        raise ImportModelError(
            f"{what} has {values.size} values and {flat.size} indices of {flat.dtype}",
            hint="a sparse tensor has one whole number as its index for each value",
        )
    if flat.size and not (0 <= flat.min() and flat.max() < count):
        raise ImportModelError(
            f"{what} of shape {list(dims)} has an index outside of it",
            hint="the indices of a sparse tensor are below the product of its dims (or, in rows, below each of them)",
        )
    out = np.zeros(count, values.dtype)
    out[flat] = values
    return out.reshape(dims)


def check_bytes(what: str, shape: Sequence[int], itemsize: int = 8) -> int:
    """The bytes of an array that a few numbers in a model ask for; ImportModelError where they are more than `MAX_MADE_BYTES`."""
    nbytes = math.prod(map(int, shape)) * itemsize
    if nbytes > MAX_MADE_BYTES:
        raise ImportModelError(
            f"{what} of shape {list(map(int, shape))} takes {nbytes} bytes; a model may ask for {MAX_MADE_BYTES} that its files do not hold",
            hint="make the array smaller, or let an input bring it",
        )
    return nbytes


def attribute(a: onnx.AttributeProto) -> Any:
    """An attribute's value: numbers, str, arrays, GraphProto, TypeProto, lists of them."""
    value = helper.get_attribute_value(a)
    if a.type == onnx.AttributeProto.STRING:
        return value.decode()
    if a.type == onnx.AttributeProto.STRINGS:
        return [s.decode() for s in value]
    if a.type == onnx.AttributeProto.TENSOR:
        return tensor_array(value)
    if a.type == onnx.AttributeProto.SPARSE_TENSOR:
        return sparse_array(value)
    if a.type in (onnx.AttributeProto.INTS, onnx.AttributeProto.FLOATS):
        return list(value)
    return value
