"""The open inference protocol over gRPC: the same models, queues and limits as over HTTP (`inference`).

`serve_grpc(repository, "127.0.0.1:8001")` gives a running server; `stop` answers what is under way. A refusal's status becomes gRPC's code, with the same words.
Source: KServe's "Open Inference Protocol (V2) over gRPC"; gRPC's status codes.
"""

from __future__ import annotations

import hmac
from collections.abc import Callable, Collection
from concurrent.futures import CancelledError, ThreadPoolExecutor
from concurrent.futures import TimeoutError as Late
from typing import Any

import grpc  # type: ignore[import-untyped]
import numpy as np

from ..runtime.arrays.dtypes import itemsize, numpy_dtype
from .app import BODY_BYTES, TIME_S
from .errors import Refusal
from .grpc_messages import MESSAGES, SERVICE
from .inference import EXTENSIONS, VERSION, answering, port_row, sequence_of
from .repository import Repository
from .tensors import NAMES, TYPES

_CODES = {
    400: grpc.StatusCode.INVALID_ARGUMENT, 401: grpc.StatusCode.UNAUTHENTICATED, 404: grpc.StatusCode.NOT_FOUND, 413: grpc.StatusCode.RESOURCE_EXHAUSTED,
    499: grpc.StatusCode.CANCELLED, 503: grpc.StatusCode.UNAVAILABLE, 504: grpc.StatusCode.DEADLINE_EXCEEDED,
}  # fmt: skip
_CONTENTS = {
    "BOOL": "bool_contents", "INT8": "int_contents", "INT16": "int_contents", "INT32": "int_contents", "INT64": "int64_contents", "UINT8": "uint_contents",
    "UINT16": "uint_contents", "UINT32": "uint_contents", "UINT64": "uint64_contents", "FP32": "fp32_contents", "FP64": "fp64_contents",
}  # fmt: skip
_OPEN = ("ServerLive", "ServerReady")  # probes bring no keys
_METHODS = (
    "ServerLive", "ServerReady", "ModelReady", "ServerMetadata", "ModelMetadata", "ModelInfer", "RepositoryIndex", "RepositoryModelLoad", "RepositoryModelUnload",
)  # fmt: skip


class _Service:
    """The methods, by name: each of a request and the call's context."""

    def __init__(self, repository: Repository, keys: Collection[str], time_s: float):
        self.repository, self.keys, self.time_s = repository, [k.encode() for k in keys], time_s

    def handler(self, name: str) -> Any:
        method: Callable[[Any, Any], Any] = getattr(self, name)

        def call(request: Any, context: Any) -> Any:
            try:
                if self.keys and name not in _OPEN:
                    self._check_key(context)
                return method(request, context)
            except Refusal as error:
                context.abort(_CODES.get(error.status, grpc.StatusCode.INTERNAL), error.text)
            except Exception as error:
                if context.code() is not None:  # aborted already
                    raise
                context.abort(grpc.StatusCode.INTERNAL, f"a fault of the server: {type(error).__name__}")

        return grpc.unary_unary_rpc_method_handler(
            call, MESSAGES[f"{name}Request"].FromString, MESSAGES[f"{name}Response"].SerializeToString
        )

    def _check_key(self, context: Any) -> None:
        header = dict(context.invocation_metadata()).get("authorization", "")
        kind, _, key = str(header).partition(" ")
        if kind.lower() != "bearer" or not any(hmac.compare_digest(key.strip().encode(), k) for k in self.keys):
            raise Refusal(401, "a key is wanted: authorization: Bearer KEY")

    # ---- health and metadata

    def ServerLive(self, request: Any, context: Any) -> Any:
        return MESSAGES["ServerLiveResponse"](live=True)

    def ServerReady(self, request: Any, context: Any) -> Any:
        return MESSAGES["ServerReadyResponse"](ready=self.repository.is_ready)

    def ModelReady(self, request: Any, context: Any) -> Any:
        model = self.repository.get(request.name, request.version)
        return MESSAGES["ModelReadyResponse"](ready=model.state == "READY")

    def ServerMetadata(self, request: Any, context: Any) -> Any:
        return MESSAGES["ServerMetadataResponse"](name="tec", version=VERSION, extensions=EXTENSIONS)

    def ModelMetadata(self, request: Any, context: Any) -> Any:
        model = self.repository.ready(request.name, request.version)
        ports = [[MESSAGES["TensorMetadata"](**port_row(p)) for p in some] for some in (model.inputs, model.outputs)]
        versions = [m.version for m in self.repository.index() if m.name == model.name]
        return MESSAGES["ModelMetadataResponse"](
            name=model.name, versions=versions, platform="tec", inputs=ports[0], outputs=ports[1]
        )

    # ---- the repository

    def RepositoryIndex(self, request: Any, context: Any) -> Any:
        rows = [m for m in self.repository.index() if not request.ready or m.state == "READY"]
        made = [MESSAGES["ModelIndex"](name=m.name, version=m.version, state=m.state, reason=m.reason) for m in rows]
        return MESSAGES["RepositoryIndexResponse"](models=made)

    def RepositoryModelLoad(self, request: Any, context: Any) -> Any:
        self.repository.reload(request.model_name)
        return MESSAGES["RepositoryModelLoadResponse"]()

    def RepositoryModelUnload(self, request: Any, context: Any) -> Any:
        self.repository.unload(request.model_name)
        return MESSAGES["RepositoryModelUnloadResponse"]()

    # ---- inference

    def ModelInfer(self, request: Any, context: Any) -> Any:
        headers = dict(context.invocation_metadata())
        with answering(self.repository, request.model_name, request.model_version, "grpc", headers) as answered:
            answer = self._infer(request, answered.model(), context)
            answered.status = 200
            return answer

    def _infer(self, request: Any, model: Any, context: Any) -> Any:
        inputs = _inputs(request)
        sequence = sequence_of({p.key: _parameter(p.value) for p in request.parameters})
        asked = [o.name for o in request.outputs]
        unknown = set(asked) - {p["name"] for p in model.outputs}
        if unknown:
            raise Refusal(400, f"the model has no output {min(unknown)!r}")
        begun = model.start(inputs, sequence, self.repository.active.now == 1)
        made = begun.made if begun.future is None else self._wait(begun, context)
        if begun.future is None and self.repository.active.now > 1:
            begun.batcher.crowd()
        answer = MESSAGES["ModelInferResponse"](model_name=model.name, model_version=model.version, id=request.id)
        for p, a in zip(begun.batcher.outputs, made):
            if not asked or p["name"] in asked:
                answer.outputs.add(name=p["name"], datatype=TYPES[p["dtype"]], shape=a.shape)
                answer.raw_output_contents.append(np.ascontiguousarray(a).tobytes())
        return answer

    def _wait(self, begun: Any, context: Any) -> Any:
        """The results, unless the client leaves or time is over first."""
        future = begun.future
        context.add_callback(lambda: begun.batcher.leave(future))  # a client that leaves frees its place
        left = context.time_remaining()
        try:
            return future.result(min(self.time_s, left) if left is not None else self.time_s)
        except Late:
            begun.batcher.leave(future)
            raise Refusal(504, f"no answer within {self.time_s:g} seconds") from None
        except CancelledError:
            raise Refusal(499, "the client left") from None


def _parameter(value: Any) -> Any:
    return value.string_param or value.int64_param or value.bool_param


def _inputs(request: Any) -> dict[str, np.ndarray[Any, Any]]:
    """The tensors of a request: raw bytes behind it, or numbers in it."""
    out: dict[str, np.ndarray[Any, Any]] = {}
    raw = list(request.raw_input_contents)
    if raw and len(raw) != len(request.inputs):
        raise Refusal(400, f"{len(raw)} raw contents for {len(request.inputs)} inputs")
    for k, t in enumerate(request.inputs):
        dtype, shape = NAMES.get(t.datatype), tuple(t.shape)
        if dtype is None:
            raise Refusal(400, f"input {t.name!r} has datatype {t.datatype!r}; it is one of {', '.join(NAMES)}")
        if t.name in out:
            raise Refusal(400, f"input {t.name!r} is given twice")
        if len(shape) > 32 or any(not 0 <= n < 1 << 40 for n in shape):
            raise Refusal(400, f"the shape of input {t.name!r} is no list of sizes")
        count, held = int(np.prod(shape, dtype=object)), numpy_dtype(dtype)
        if raw:
            if len(raw[k]) != count * itemsize(dtype):
                raise Refusal(
                    400,
                    f"input {t.name!r} of shape {list(shape)} and {t.datatype} takes {count * itemsize(dtype)} bytes; {len(raw[k])} are given",
                )
            out[t.name] = np.frombuffer(raw[k], held).reshape(shape)
            continue
        kind = _CONTENTS.get(t.datatype)
        if kind is None:
            raise Refusal(400, f"input {t.name!r}: {t.datatype} travels as raw bytes")
        data = np.array(getattr(t.contents, kind))
        if len(data) != count or (held.kind in "iu" and not (data.astype(held) == data).all()):
            raise Refusal(
                400,
                f"the data of input {t.name!r}: {len(data)} elements, the shape has {count}, or one does not fit its type",
            )
        out[t.name] = data.astype(held).reshape(shape)
    return out


class GrpcServer:
    """A server that runs. `port`: where it listens."""

    def __init__(self, server: Any, port: int):
        self._server, self.port = server, port

    def stop(self, grace_s: float = 30.0) -> None:
        """Take no new calls, and answer those that are under way within so many seconds."""
        self._server.stop(grace_s).wait()


def serve_grpc(
    repository: Repository,
    address: str = "127.0.0.1:8001",
    *,
    keys: Collection[str] = (),
    body_bytes: int = BODY_BYTES,
    time_s: float = TIME_S,
    threads: int = 64,
    ssl: tuple[bytes, bytes] | None = None,
) -> GrpcServer:
    """Serve a repository over gRPC. address: with port 0, a free one. keys, body_bytes, time_s: as `create_app`. threads: calls at the same time. ssl: (key, certificate)
    in PEM. Raises Refusal where the address is taken."""
    options = [
        ("grpc.max_receive_message_length", body_bytes),
        ("grpc.max_send_message_length", -1),
        ("grpc.so_reuseport", 0),
    ]
    server = grpc.server(ThreadPoolExecutor(threads, "tec-grpc"), options=options)
    service = _Service(repository, keys, time_s)
    handlers = {name: service.handler(name) for name in _METHODS}
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, handlers),))
    try:
        if ssl is None:
            port = server.add_insecure_port(address)
        else:
            port = server.add_secure_port(address, grpc.ssl_server_credentials([ssl]))
    except RuntimeError as error:
        raise Refusal(500, f"gRPC cannot listen at {address}: {error}") from None
    server.start()
    return GrpcServer(server, port)
