"""The open inference protocol against its own client (tritonclient) and against requests that are wrong; all on the loopback address."""

from __future__ import annotations

import asyncio
import gzip
import json
import threading
import time
import zipfile
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import tec
from tec.graph import Graph
from tec.graph.builders import Builder
from tec.ops.dims import Dim

httpx = pytest.importorskip("httpx")
uvicorn = pytest.importorskip("uvicorn")
triton = pytest.importorskip("tritonclient.http")

from tec.serve.app import create_app  # noqa: E402
from tec.serve.batching import Batcher  # noqa: E402
from tec.serve.errors import Refusal  # noqa: E402
from tec.serve.repository import Repository, Settings  # noqa: E402


def network(scale=2.0, dtype="float32"):
    """y = x * scale by rows of an open batch, and each row's sum."""
    g = Graph("scaled")
    x = g.input("x", dtype, (Dim("batch"), 3))
    b = Builder(g, "l")
    y = b.op("multiply", x, b.const(np.array(scale, dtype)))
    g.set_outputs([y, b.op("reduce_sum", x, axes=(1,), keepdims=False)], ["y", "total"])
    return tec.compile(g, "llvm")


class Server:
    """uvicorn in a thread, at a free port."""

    def __init__(self, repository, **given):
        self.repository = repository
        config = uvicorn.Config(create_app(repository, **given), host="127.0.0.1", port=0, log_level="error")
        self.server = uvicorn.Server(config)
        self.thread = threading.Thread(target=self.server.run, daemon=True)
        self.thread.start()
        until = time.monotonic() + 20
        while not self.server.started:
            assert time.monotonic() < until and self.thread.is_alive()
            time.sleep(0.01)
        self.at = f"127.0.0.1:{self.server.servers[0].sockets[0].getsockname()[1]}"
        self.client = httpx.Client(base_url=f"http://{self.at}", timeout=30)

    def close(self):
        self.client.close()
        self.server.should_exit = True
        self.thread.join(20)
        assert not self.thread.is_alive()


@pytest.fixture
def serve():
    servers = []

    def make(repository=None, **given):
        if repository is None:
            repository = Repository()
            repository.add("scaled", network())
        servers.append(Server(repository, **given))
        return servers[-1]

    yield make
    for s in servers:
        s.close()


@pytest.mark.parametrize("binary", [True, False])
def test_tritonclient(serve, binary):
    server = serve()
    client = triton.InferenceServerClient(server.at)
    assert (
        client.is_server_live()
        and client.is_server_ready()
        and client.is_model_ready("scaled")
        and client.is_model_ready("scaled", "1")
    )
    about = client.get_model_metadata("scaled")
    assert about["inputs"] == [{"name": "x", "datatype": "FP32", "shape": [-1, 3]}]
    assert client.get_model_config("scaled")["max_batch_size"] == 32
    x = np.arange(12, dtype=np.float32).reshape(4, 3)
    given = triton.InferInput("x", [4, 3], "FP32")
    given.set_data_from_numpy(x, binary_data=binary)
    asked = [triton.InferRequestedOutput(n, binary_data=binary) for n in ("total", "y")]
    for outputs, compression in ((asked, None), (None, "gzip"), (asked[:1], "deflate")):
        found = client.infer(
            "scaled", [given], outputs=outputs, request_id="7", request_compression_algorithm=compression
        )
        np.testing.assert_array_equal(found.as_numpy("total"), x.sum(1))
        if outputs is None or len(outputs) == 2:
            np.testing.assert_array_equal(found.as_numpy("y"), x * 2)
        assert found.get_response()["id"] == "7"
    with pytest.raises(triton.InferenceServerException, match="no model 'other'"):
        client.infer("other", [given])
    client.unload_model("scaled")
    assert not client.is_model_ready("scaled") and client.get_model_repository_index()[0]["state"] == "UNAVAILABLE"


def body(data=((1, 2, 3),), **more):
    rows = [list(r) for r in data]
    return {"inputs": [{"name": "x", "datatype": "FP32", "shape": [len(rows), 3], "data": rows, **more}]}


@pytest.mark.parametrize(
    ("content", "status", "says"),
    [
        (b"{", 400, "no JSON"),
        (b"[" * 100_000, 400, "no JSON"),
        ({}, 400, "no list of inputs"),
        ({"inputs": [3]}, 400, "an input has no name"),
        (body(datatype="FP99"), 400, "datatype 'FP99'"),
        (body(datatype="BYTES"), 400, "datatype 'BYTES'"),
        (body(datatype="INT32"), 400, "of another type than the model's FP32"),
        (body(datatype="FP64"), 400, "of another type"),
        (body(shape=[1, 4]), 400, "3 elements, the shape has 4"),
        (body(shape=[3]), 400, "has shape [3], the model takes"),
        (body(shape=[-1, 3]), 400, "no list of sizes"),
        (body(shape=[1 << 39, 1 << 39, 1 << 39]), 400, "elements, the shape has"),
        (body(data=[["a", "b", "c"]]), 400, "something other than numbers"),
        (body(data=[[1, 2], [3]]), 400, "the data of input 'x'"),
        (body(name="z"), 400, "missing: x"),
        (body(parameters={"binary_data_size": 12}), 400, "takes 12 bytes; 12 are said"),
        ({"inputs": body()["inputs"] * 2}, 400, "given twice"),
        ({**body(), "outputs": [{"name": "w"}]}, 400, "no output 'w'"),
        ({**body(), "outputs": [3]}, 400, "has no name"),
        (json.dumps(body()).encode() + b" " * 4000, 413, "2000 are taken"),
    ],
)
def test_wrong_requests(shared, content, status, says):
    raw = content if isinstance(content, bytes) else json.dumps(content).encode()
    if len(raw) > 2000 and status != 413:
        raw = b"[" * 1900
    answer = shared.client.post("/v2/models/scaled/infer", content=raw)
    assert answer.status_code == status and says in answer.json()["error"], answer.text
    assert shared.client.post("/v2/models/scaled/infer", json=body()).json()["outputs"][0]["data"] == [2, 4, 6]


@pytest.fixture(scope="module")
def shared():
    repository = Repository()
    repository.add("scaled", network())
    server = Server(repository, body_bytes=2000)
    yield server
    server.close()


def test_paths_and_headers(shared):
    for path, status in (
        ("/v2/models/none", 404),
        ("/v2/models/scaled/versions/9/infer", 404),
        ("/nowhere", 404),
        ("/v2/models/scaled/infer", 405),
    ):
        answer = (
            shared.client.get(path) if "infer" not in path or status == 405 else shared.client.post(path, json=body())
        )
        assert answer.status_code == status and answer.json()["error"]
    post = shared.client.post
    for header in ("x", "-1", "99999"):
        assert (
            post(
                "/v2/models/scaled/infer", json=body(), headers={"Inference-Header-Content-Length": header}
            ).status_code
            == 400
        )
    assert post("/v2/models/scaled/infer", content=b"no gzip", headers={"Content-Encoding": "gzip"}).status_code == 400
    assert post("/v2/models/scaled/infer", content=b"", headers={"Content-Encoding": "br"}).status_code == 415
    bomb = gzip.compress(bytes(1 << 20))
    assert post("/v2/models/scaled/infer", content=bomb, headers={"Content-Encoding": "gzip"}).status_code == 413
    text = shared.client.get("/metrics").text
    assert 'tec_requests_total{model="scaled",status="400",version="1"}' in text and "tec_batch_rows" in text


def test_requests_that_wait_run_together(serve):
    repository = Repository(Settings(max_batch=8, delay_s=0.2))
    repository.add("scaled", network())
    server = serve(repository)
    begin = threading.Barrier(8)

    def ask(k):
        begin.wait()
        return server.client.post("/v2/models/scaled/infer", json=body([[k, k, k]])).json()["outputs"][0]["data"]

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(ask, range(8))) == [[2 * k] * 3 for k in range(8)]
    runs = [line for line in server.client.get("/metrics").text.splitlines() if line.startswith("tec_batch_rows_count")]
    assert float(runs[0].split()[-1]) <= 4


class Slow:
    """A network whose runs wait until they are let go."""

    def __init__(self):
        made = network()
        self.inputs, self.outputs, self.plan, self.params, self.get_binary = (
            made.inputs,
            made.outputs,
            made.plan,
            made.params,
            made.get_binary,
        )
        self.go, self.rows = threading.Event(), []

    def run(self, inputs):
        assert self.go.wait(20)
        self.rows.append(len(inputs["x"]))
        return [inputs["x"] * 2, inputs["x"].sum(1)]


def row(k):
    return {"x": np.full((1, 3), k, np.float32)}


def test_a_full_queue_and_clients_that_leave():
    slow = Slow()
    batcher = Batcher(slow, max_batch=1, queue=2)
    first = batcher.submit(row(0))
    while batcher.waiting:
        time.sleep(0.001)
    second, third = batcher.submit(row(1)), batcher.submit(row(2))
    with pytest.raises(Refusal, match="2 requests wait already") as e:
        batcher.submit(row(3))
    assert e.value.status == 503
    batcher.leave(second)
    fourth = batcher.submit(row(4))
    slow.go.set()
    assert [f.result(10)[0][0, 0] for f in (first, third, fourth)] == [0, 4, 8] and second.cancelled()
    batcher.close()
    with pytest.raises(Refusal, match="unloaded"):
        batcher.submit(row(0))


def test_quick_runs_are_made_where_they_are_asked_for():
    made = network()
    batcher = Batcher(made)
    assert batcher.run_here(row(1)) is None  # nobody knows yet how long a run takes
    batcher.submit(row(1)).result(10)
    batcher._seconds = 1e-5
    assert batcher.run_here(row(2))[0][0, 0] == 4
    batcher._seconds = 1e-5  # the run before may have been a slow one
    with pytest.raises(Refusal, match="missing: x"):
        batcher.run_here({})
    batcher._seconds = 1e-2
    assert batcher.run_here(row(3)) is None
    batcher.close()


def test_one_that_is_wrong_spoils_no_batch():
    slow = Slow()

    def run(inputs):
        assert slow.go.wait(20)
        if (inputs["x"] < 0).any():
            raise tec.errors.ArgumentError("it is negative")
        return [inputs["x"], inputs["x"].sum(1)]

    slow.run = run
    batcher = Batcher(slow, max_batch=8)
    futures = [batcher.submit(row(k)) for k in (1, -1, 2, 3)]
    slow.go.set()
    assert [f.result(10)[0][0, 0] for f in (futures[0], *futures[2:])] == [1, 2, 3]
    with pytest.raises(Refusal, match="it is negative") as e:
        futures[1].result(10)
    assert e.value.status == 400
    batcher.close()


def test_time_runs_out_and_a_client_hangs_up(serve):
    slow, repository = Slow(), Repository(Settings(max_batch=1))
    repository.add("scaled", slow)
    server = serve(repository, time_s=0.3)
    answer = server.client.post("/v2/models/scaled/infer", json=body())
    assert answer.status_code == 504
    batcher = repository.get("scaled").batcher
    with pytest.raises(httpx.TimeoutException):
        httpx.post(f"http://{server.at}/v2/models/scaled/infer", json=body(), timeout=0.1)
    until = time.monotonic() + 5
    while batcher.waiting and time.monotonic() < until:
        time.sleep(0.01)
    assert batcher.waiting == 0
    slow.go.set()


def test_keys(serve):
    server = serve(keys=["secret", "other"])
    assert server.client.get("/v2/health/ready").status_code == 200
    for key, status in ((None, 401), ("wrong", 401), ("secret", 200), ("other", 200)):
        headers = {} if key is None else {"Authorization": f"Bearer {key}"}
        assert server.client.get("/v2/models/scaled", headers=headers).status_code == status


def test_versions_reloading_and_readiness(serve, tmp_path):
    for version, scale in (("1", 2.0), ("10", 5.0)):
        (tmp_path / "m" / version).mkdir(parents=True)
        network(scale).save(tmp_path / "m" / version / "model.tec")
    repository = Repository(Settings(memory_bytes=1 << 20))
    found = repository.scan(tmp_path)
    assert [(n, v) for n, v, _ in found] == [("m", "1"), ("m", "10")]
    repository.expect("m", "10", None)
    server = serve(repository)
    assert server.client.get("/v2/health/ready").status_code == 503
    assert server.client.post("/v2/models/m/infer", json=body()).status_code == 503
    for name, version, path in found:
        repository.open(name, path, version)
    assert server.client.get("/v2/health/ready").status_code == 200

    def made(path="/v2/models/m/infer"):
        return server.client.post(path, json=body()).json()["outputs"][0]["data"]

    assert made() == [5, 10, 15] and made("/v2/models/m/versions/1/infer") == [2, 4, 6]
    network(7.0).save(tmp_path / "m" / "10" / "model.tec")
    stop, wrong = threading.Event(), []

    def ask():
        while not stop.is_set():
            if made() not in ([5, 10, 15], [7, 14, 21]):
                wrong.append(1)

    threads = [threading.Thread(target=ask) for _ in range(3)]
    for t in threads:
        t.start()
    assert server.client.post("/v2/repository/models/m/load").status_code == 200
    stop.set()
    for t in threads:
        t.join()
    assert not wrong and made() == [7, 14, 21]
    (tmp_path / "m" / "10" / "model.tec").write_bytes(b"damaged")
    answer = server.client.post("/v2/repository/models/m/load")
    assert answer.status_code == 400 and "no tec package" in answer.json()["error"] and made() == [7, 14, 21]
    assert server.client.post("/v2/repository/models/nope/load").status_code == 404
    small = Repository(Settings(memory_bytes=1))
    with pytest.raises(Refusal, match="bytes, 1 are allowed"):
        small.open("m", tmp_path / "m" / "1" / "model.tec")


def test_every_type_goes_there_and_back(serve):
    repository = Repository()
    types = ["BOOL", "UINT8", "INT8", "INT16", "INT32", "INT64", "FP16", "FP32", "FP64"]
    names = {"BOOL": "bool", "FP16": "float16", "FP32": "float32", "FP64": "float64"}
    for kind in types:
        g = Graph("g")
        x = g.input("x", names.get(kind, kind.lower()), (Dim("n"), 2))
        g.set_outputs([Builder(g, "l").op("concat", x, x, axis=1)], ["y"])
        repository.add(kind, tec.compile(g, "llvm"))
    client = triton.InferenceServerClient(serve(repository).at)
    for kind in types:
        x = np.array([[1, 0], [0, 1]]).astype(names.get(kind, kind.lower()))
        given = triton.InferInput("x", [2, 2], kind)
        given.set_data_from_numpy(x, binary_data=True)
        y = client.infer(kind, [given]).as_numpy("y")
        assert y.dtype == x.dtype
        np.testing.assert_array_equal(y, np.concatenate([x, x], 1))


def test_what_cannot_be_served():
    g = Graph()
    x = g.input("x", "float8_e4m3", (4,))
    g.set_outputs([x], ["y"])
    with pytest.raises(Refusal, match="no type for float8_e4m3"):
        Repository().add("r", tec.compile(g, "llvm"))


def test_the_log(caplog):
    import logging

    repository = Repository()
    repository.add("scaled", network())
    app = create_app(repository, log=True)
    caplog.set_level(logging.INFO, "tec.serve")

    async def ask():
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://x") as client:
            return await client.get("/v2")

    assert asyncio.run(ask()).json()["name"] == "tec"
    assert json.loads(caplog.messages[-1])["path"] == "/v2"
    repository.close()


def pairs():
    """The largest of the products of all pairs of rows, squared: working memory by the square of rows, in an open batch."""
    g = Graph("pairs")
    x = g.input("x", "float32", (Dim("batch"), Dim("n"), 1))
    b = Builder(g, "l")
    y = b.op("matmul", x, b.op("transpose", x, perm=(0, 2, 1)))
    g.set_outputs([b.op("reduce_max", b.op("matmul", y, y), axes=(1, 2), keepdims=False)], ["y"])
    return tec.compile(g, "llvm")


def test_a_run_that_takes_more_memory_than_the_model_may_is_refused(serve):
    net = pairs()
    weights = len(net.get_binary())
    most = net.bind(batch=2, n=64).plan.arena_bytes
    assert most >= 2 * 64 * 64 * 4
    repository = Repository(Settings(memory_bytes=weights + most, max_batch=32, delay_s=0.05))
    repository.add("pairs", net)
    server = serve(repository)

    def ask(batch, n):
        data = np.ones((batch, n, 1), "float32").tolist()
        row = {"name": "x", "datatype": "FP32", "shape": [batch, n, 1], "data": data}
        return server.client.post("/v2/models/pairs/infer", json={"inputs": [row]})

    assert ask(2, 64).json()["outputs"][0]["data"] == [64, 64]
    answer = ask(2, 200)
    needs = net.bind(batch=2, n=200).plan.arena_bytes
    assert (
        answer.status_code == 413
        and f"a run for batch 2, n 200 takes {needs} bytes, {most} of" in answer.json()["error"]
    )
    with ThreadPoolExecutor(8) as pool:  # batches form as far as memory goes
        made = list(pool.map(lambda _: ask(1, 64), range(16)))
    assert all(m.status_code == 200 for m in made)


def test_a_package_of_a_newer_version_is_told(serve, tmp_path):
    path, newer = tmp_path / "a.tec", tmp_path / "m.tec"
    network().save(path)
    with zipfile.ZipFile(path) as old, zipfile.ZipFile(newer, "w") as new:
        for info in old.infolist():
            content = old.read(info)
            if info.filename.endswith(".json") and b"tec-package" in content:
                content = json.dumps({**json.loads(content), "version": 99}).encode()
            new.writestr(info, content)
    repository = Repository()
    server = serve(repository)
    with pytest.raises(Refusal, match="format version 99, this tec reads version") as e:
        repository.open("m", newer)
    assert e.value.status == 400
    assert server.client.get("/v2/health/ready").status_code == 503
    answer = server.client.post("/v2/models/m/infer", json=body())
    assert answer.status_code == 503 and "format version 99" in answer.json()["error"]
    newer.write_bytes(path.read_bytes())
    assert server.client.post("/v2/repository/models/m/load").status_code == 200
    assert server.client.post("/v2/models/m/infer", json=body()).status_code == 200


def test_a_model_that_does_not_fit_the_machine(serve, monkeypatch):
    """The host hands out more memory than it has: what a run takes is compared with what is there before any is taken."""
    monkeypatch.setattr("tec.runtime.devices.storage.host_memory", lambda: (1 << 29, 1 << 30))
    net = pairs()
    assert net.bind(batch=1, n=20_000).plan.arena_bytes > 1 << 30
    repository = Repository()
    repository.add("pairs", net)
    server = serve(repository)
    x = triton.InferInput("x", [1, 20_000, 1], "FP32")
    x.set_data_from_numpy(np.ones((1, 20_000, 1), "float32"))
    with pytest.raises(Exception, match=r"out of memory on cpu.*asked for.*free"):
        triton.InferenceServerClient(server.at).infer("pairs", [x])
    assert server.client.get("/v2/health/ready").status_code == 200
