"""The messages of the open inference protocol over gRPC, version 2, from a table: no generated code, and a pool of descriptors of their own.

A line is a message; its fields are `name:type=number`, `*` before the type for repeated ones. Source: KServe's open_inference_grpc.proto. Parameters that are maps are
declared where they are read; other fields of a request are passed over, as protocol buffers do.
"""

from __future__ import annotations

from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory  # type: ignore[import-untyped]

PACKAGE, SERVICE = "inference", "inference.GRPCInferenceService"
_TYPES = {
    "double": 1,
    "float": 2,
    "int64": 3,
    "uint64": 4,
    "int32": 5,
    "bool": 8,
    "string": 9,
    "bytes": 12,
    "uint32": 13,
}
_MESSAGE, _OPTIONAL, _REPEATED = 11, 1, 3

_TABLE = """
ServerLiveRequest
ServerLiveResponse live:bool=1
ServerReadyRequest
ServerReadyResponse ready:bool=1
ModelReadyRequest name:string=1 version:string=2
ModelReadyResponse ready:bool=1
ServerMetadataRequest
ServerMetadataResponse name:string=1 version:string=2 extensions:*string=3
ModelMetadataRequest name:string=1 version:string=2
TensorMetadata name:string=1 datatype:string=2 shape:*int64=3
ModelMetadataResponse name:string=1 versions:*string=2 platform:string=3 inputs:*TensorMetadata=4 outputs:*TensorMetadata=5
InferParameter bool_param:bool=1 int64_param:int64=2 string_param:string=3
Parameter key:string=1 value:InferParameter=2
InferTensorContents bool_contents:*bool=1 int_contents:*int32=2 int64_contents:*int64=3 uint_contents:*uint32=4 uint64_contents:*uint64=5 fp32_contents:*float=6 fp64_contents:*double=7 bytes_contents:*bytes=8
InferInputTensor name:string=1 datatype:string=2 shape:*int64=3 contents:InferTensorContents=5
InferRequestedOutputTensor name:string=1
ModelInferRequest model_name:string=1 model_version:string=2 id:string=3 parameters:*Parameter=4 inputs:*InferInputTensor=5 outputs:*InferRequestedOutputTensor=6 raw_input_contents:*bytes=7
InferOutputTensor name:string=1 datatype:string=2 shape:*int64=3
ModelInferResponse model_name:string=1 model_version:string=2 id:string=3 outputs:*InferOutputTensor=5 raw_output_contents:*bytes=6
RepositoryIndexRequest repository_name:string=1 ready:bool=2
ModelIndex name:string=1 version:string=2 state:string=3 reason:string=4
RepositoryIndexResponse models:*ModelIndex=1
RepositoryModelLoadRequest repository_name:string=1 model_name:string=2
RepositoryModelLoadResponse
RepositoryModelUnloadRequest repository_name:string=1 model_name:string=2
RepositoryModelUnloadResponse
"""


def _classes() -> dict[str, Any]:
    file = descriptor_pb2.FileDescriptorProto(name="tec_inference.proto", package=PACKAGE, syntax="proto3")
    for line in _TABLE.strip().splitlines():
        name, *fields = line.split()
        message = file.message_type.add(name=name)
        for f in fields:
            label, _, rest = f.partition(":")
            kind, _, number = rest.partition("=")
            repeated, kind = kind.startswith("*"), kind.lstrip("*")
            made = message.field.add(name=label, number=int(number), label=_REPEATED if repeated else _OPTIONAL)
            if kind in _TYPES:
                made.type = _TYPES[kind]
            else:
                made.type, made.type_name = _MESSAGE, f".{PACKAGE}.{kind}"
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return {
        m.name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{PACKAGE}.{m.name}"))
        for m in file.message_type
    }


MESSAGES = _classes()
