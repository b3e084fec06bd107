"""The protocol over gRPC, with Triton's own client; networks that remember states; traces."""

from __future__ import annotations

import numpy as np
import pytest

from tests.unit.native.networks import cached_sum

triton = pytest.importorskip("tritonclient.grpc")
http = pytest.importorskip("tritonclient.http")

from tec.serve.grpc_server import serve_grpc  # noqa: E402
from tec.serve.repository import Repository  # noqa: E402

from .test_inference import Server, network  # noqa: E402


@pytest.fixture
def served():
    repository = Repository()
    repository.add("scaled", network())
    repository.add("cache", cached_sum())
    server = serve_grpc(repository, "127.0.0.1:0", keys=["k"], body_bytes=1 << 20)
    client = triton.InferenceServerClient(f"127.0.0.1:{server.port}")
    yield client, repository
    client.close()
    server.stop(1)
    repository.close()


KEY = {"authorization": "Bearer k"}


def tensor(kind, name, x, dtype):
    made = kind.InferInput(name, list(x.shape), dtype)
    made.set_data_from_numpy(x)
    return made


def test_tritonclient(served):
    client, _ = served
    assert client.is_server_live() and client.is_server_ready() and client.is_model_ready("scaled", headers=KEY)
    meta = client.get_model_metadata("scaled", headers=KEY)
    assert [(t.name, t.datatype, list(t.shape)) for t in meta.inputs] == [("x", "FP32", [-1, 3])]
    x = np.arange(6, dtype="f").reshape(2, 3)
    answer = client.infer("scaled", [tensor(triton, "x", x, "FP32")], request_id="7", headers=KEY)
    np.testing.assert_array_equal(answer.as_numpy("y"), 2 * x)
    np.testing.assert_array_equal(answer.as_numpy("total"), x.sum(1))
    assert answer.get_response().id == "7"
    some = client.infer(
        "scaled", [tensor(triton, "x", x, "FP32")], outputs=[triton.InferRequestedOutput("y")], headers=KEY
    )
    assert some.as_numpy("total") is None
    assert [m.name for m in client.get_model_repository_index(headers=KEY).models] == ["scaled", "cache"]


def test_what_is_refused(served):
    client, _ = served
    x = np.zeros((2, 3), "f")
    for call, code, says in (
        (lambda: client.infer("scaled", [tensor(triton, "x", x, "FP32")]), "UNAUTHENTICATED", "a key is wanted"),
        (lambda: client.infer("none", [tensor(triton, "x", x, "FP32")], headers=KEY), "NOT_FOUND", "no model 'none'"),
        (lambda: client.infer("scaled", [tensor(triton, "x", x.astype("d"), "FP64")], headers=KEY), "INVALID_ARGUMENT", "another type"),
        (lambda: client.infer("scaled", [tensor(triton, "z", x, "FP32")], headers=KEY), "INVALID_ARGUMENT", "missing: x"),
        (lambda: client.infer("scaled", [tensor(triton, "x", np.zeros((1 << 17, 3), "f"), "FP32")], headers=KEY), "RESOURCE_EXHAUSTED", "larger than max"),
    ):  # fmt: skip
        with pytest.raises(triton.InferenceServerException) as e:
            call()
        assert code in str(e.value.status()) and says in e.value.message()


def test_a_network_that_remembers(served):
    """Each sequence has states of its own, over gRPC and over HTTP."""
    client, repository = served
    server = Server(repository)
    over_http = http.InferenceServerClient(server.at)
    executors = {k: cached_sum().executor() for k in (1, 2)}
    rng = np.random.default_rng(0)
    for step in range(4):
        for k, ex in executors.items():
            ids = rng.integers(0, 5, (2, 1 + step))
            face, other = (triton, client) if (step + k) % 2 else (http, over_http)
            more = {"headers": KEY} if face is triton else {}
            answer = other.infer(
                "cache", [tensor(face, "ids", ids, "INT64")], sequence_id=k, sequence_start=step == 0, **more
            )
            np.testing.assert_array_equal(answer.as_numpy("y"), ex.run([ids])[0].numpy())
    with pytest.raises(triton.InferenceServerException, match="sequence 9 is not known"):
        client.infer("cache", [tensor(triton, "ids", ids, "INT64")], sequence_id=9, headers=KEY)
    with pytest.raises(triton.InferenceServerException, match="names its sequence"):
        client.infer("cache", [tensor(triton, "ids", ids, "INT64")], headers=KEY)
    client.infer("cache", [tensor(triton, "ids", ids, "INT64")], sequence_id=1, sequence_end=True, headers=KEY)
    with pytest.raises(triton.InferenceServerException, match="sequence 1 is not known"):
        client.infer("cache", [tensor(triton, "ids", ids, "INT64")], sequence_id=1, headers=KEY)
    over_http.close()
    server.close()


def test_traces(served, monkeypatch):
    export = pytest.importorskip("opentelemetry.sdk.trace.export.in_memory_span_exporter")
    from opentelemetry import trace
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor

    spans, provider = export.InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(spans))
    monkeypatch.setattr(trace, "get_tracer_provider", lambda: provider)
    monkeypatch.setattr(trace, "get_tracer", provider.get_tracer)
    client, _ = served
    parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    client.infer("scaled", [tensor(triton, "x", np.zeros((1, 3), "f"), "FP32")], headers=KEY | {"traceparent": parent})
    (made,) = spans.get_finished_spans()
    assert (
        made.name == "tec.infer" and made.attributes["tec.model"] == "scaled" and made.attributes["tec.status"] == 200
    )
    assert f"{made.context.trace_id:032x}" == parent.split("-")[1]
