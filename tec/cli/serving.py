"""`tec serve`: networks over the open inference protocol."""

from __future__ import annotations

import logging
import os
import sys
import threading
from pathlib import Path
from typing import Any

import click

from . import common
from .errors import Refused


@click.command(
    epilog="""\b
Examples:
  tec serve resnet50.tec mobilenet.onnx
  tec serve models/ --port 8000 --max-batch 16 --delay-ms 2
  TEC_SERVE_KEYS=secret tec serve net.tec --host 0.0.0.0 --ssl-keyfile key.pem --ssl-certfile cert.pem

A model is a package, an ONNX file, or a folder of them: NAME.tec, NAME/model.tec, NAME/VERSION/model.tec."""
)
@click.argument("models", nargs=-1, required=True, type=click.Path(path_type=Path), metavar="MODEL...")
@click.option("--host", default="127.0.0.1", show_default=True, help="The address to listen at.")
@click.option("--port", default=8000, show_default=True, type=click.IntRange(0, 65535), help="The port.")
@click.option("--grpc-port", type=click.IntRange(1, 65535), help="Serve the protocol over gRPC too, at this port.")
@click.option("--target", "-t", default="llvm", show_default=True, help="What ONNX files are compiled for.")
@click.option(
    "--max-batch",
    default=32,
    show_default=True,
    type=click.IntRange(1),
    help="Rows of a batch, the most; 1 joins no requests.",
)
@click.option(
    "--delay-ms",
    default=0.0,
    show_default=True,
    type=click.FloatRange(0),
    help="How long a request waits for others to join it.",
)
@click.option(
    "--queue", default=256, show_default=True, type=click.IntRange(1), help="Requests that may wait for a model."
)
@click.option(
    "--threads",
    default=1,
    show_default=True,
    type=click.IntRange(1),
    help="Batches of a model that run at the same time.",
)
@click.option("--max-body", default=64, show_default=True, type=click.IntRange(1), help="Megabytes of a request.")
@click.option(
    "--timeout",
    default=60.0,
    show_default=True,
    type=click.FloatRange(0, min_open=True),
    help="Seconds until a request is given up.",
)
@click.option(
    "--memory",
    type=click.IntRange(1),
    help="Megabytes of code, weights and working memory that a model may take.",
)
@click.option("--log", is_flag=True, help="A line of JSON for each request, to standard error.")
@click.option("--ssl-keyfile", type=click.Path(exists=True, dir_okay=False), help="For TLS: the key.")
@click.option("--ssl-certfile", type=click.Path(exists=True, dir_okay=False), help="For TLS: the certificate.")
def command(
    models: tuple[Path, ...], host: str, port: int, grpc_port: int | None, target: str, max_batch: int, delay_ms: float, queue: int, threads: int, max_body: int, timeout: float,
    memory: int | None, log: bool, ssl_keyfile: str | None, ssl_certfile: str | None,
) -> None:  # fmt: skip
    """Serve networks over HTTP by the open inference protocol, version 2."""
    try:
        from ..serve.app import create_app, serve
        from ..serve.repository import Repository, Settings
        from ..serve.sockets import address_of, socket_at
    except ImportError as error:
        raise Refused(f"the server needs {error.name}", "pip install 'tec-compiler[serve]'") from None

    def compiled(path: Path, target: str) -> Any:
        return common.open_network(path, target, None, (), None, False)

    settings = Settings(
        target, max_batch, delay_ms / 1e3, queue, threads, memory * 1_000_000 if memory else None, compiled
    )
    repository = Repository(settings)
    found: list[tuple[str, str, Path]] = []
    for path in models:
        if not path.exists():
            raise Refused(f"{path}: no such file")
        found += repository.scan(path) if path.is_dir() else [(path.stem, "1", path)]
        if not path.is_dir() and path.suffix not in (".tec", ".onnx"):
            raise Refused(f"{path}: not a model by its name", "expected .tec or .onnx")
    if not found:
        raise Refused(f"no models in {', '.join(map(str, models))}")
    for name, version, _ in found:
        repository.expect(name, version, None)  # not ready until it is loaded
    listening = socket_at(host, port)
    if log:
        logging.basicConfig(stream=sys.stderr, format="%(message)s", level=logging.INFO)

    def load() -> None:
        for name, version, path in found:
            try:
                repository.open(name, path, version)
                common.echo(f"{name} {version}: ready")
            except Exception as error:
                common.echo(f"{name} {version}: {error}")

    common.echo(f"listening at {'https' if ssl_certfile else 'http'}://{address_of(listening)}")
    threading.Thread(target=load, name="tec-load", daemon=True).start()
    keys = [k for k in os.environ.get("TEC_SERVE_KEYS", "").split(",") if k]
    app = create_app(repository, keys=keys, body_bytes=max_body * 1_000_000, time_s=timeout, log=log)
    options = {k: v for k, v in (("ssl_keyfile", ssl_keyfile), ("ssl_certfile", ssl_certfile)) if v}
    over_grpc = (
        _over_grpc(repository, f"{host}:{grpc_port}", keys, max_body * 1_000_000, timeout, ssl_keyfile, ssl_certfile)
        if grpc_port
        else None
    )
    try:
        serve(app, listening, **options)
    finally:
        if over_grpc is not None:
            over_grpc.stop()


def _over_grpc(
    repository: Any,
    address: str,
    keys: list[str],
    body_bytes: int,
    time_s: float,
    keyfile: str | None,
    certfile: str | None,
) -> Any:
    """The gRPC server, which runs beside the other."""
    try:
        from ..serve.grpc_server import serve_grpc
    except ImportError as error:
        raise Refused(f"gRPC needs {error.name}", "pip install 'tec-compiler[serve-grpc]'") from None
    ssl = (Path(keyfile).read_bytes(), Path(certfile).read_bytes()) if keyfile and certfile else None
    made = serve_grpc(repository, address, keys=keys, body_bytes=body_bytes, time_s=time_s, ssl=ssl)
    common.echo(f"gRPC at {address}")
    return made
