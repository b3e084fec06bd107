"""`tec serve`: a language model behind OpenAI's API."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import click

from . import common
from .errors import Refused
from .generating import adapted, adapter_option, cache_type_option


@click.command(
    epilog="""\b
Examples:
  tec serve model.gguf --port 8000
  tec serve folder --target cuda --context 8192 --slots 16
  TEC_API_KEY=secret tec serve model.gguf --host 0.0.0.0
  curl http://127.0.0.1:8000/v1/chat/completions -H "content-type: application/json" -d '{"messages": [{"role": "user", "content": "Hi"}]}'"""
)
@click.argument("model", type=click.Path(path_type=Path))
@click.option(
    "--host", default="127.0.0.1", show_default=True, help="The address to listen at; 0.0.0.0: all of this host's."
)
@click.option("--port", type=click.IntRange(0, 65535), default=8000, show_default=True, help="0: any that is free.")
@click.option("--name", metavar="NAME", help="What clients call the model; the file's name by default.")
@click.option(
    "--slots", type=click.IntRange(1, 1024), default=16, show_default=True, help="Texts that are under way at once."
)
@click.option(
    "--queue",
    type=click.IntRange(0),
    default=64,
    show_default=True,
    help="Requests that may wait; more are refused (429).",
)
@click.option(
    "--block", type=click.IntRange(0, 256), default=32, show_default=True, metavar="TOKENS",
    help="Of a block of the cache, a power of two from 8 on; 0: texts go on in turn, each with a cache of its own.",
)  # fmt: skip
@click.option(
    "--blocks", type=click.IntRange(1), metavar="N", help="Of the cache; by default as slots and memory allow."
)
@click.option(
    "--ngrams", is_flag=True, help="Guess greedy texts ahead from what they repeat; they are the same texts, sooner."
)
@click.option(
    "--draft",
    type=click.Path(exists=True, path_type=Path),
    metavar="MODEL",
    help="The same by a smaller model of the same vocabulary.",
)
@click.option(
    "--api-key",
    multiple=True,
    metavar="KEY",
    help="Clients must send one of these. Also from TEC_API_KEY, where other users of this host do not see it.",
)
@click.option(
    "--max-body",
    type=click.IntRange(1024),
    default=4 << 20,
    show_default=True,
    metavar="BYTES",
    help="Of a request (413).",
)
@click.option(
    "--timeout",
    type=click.FloatRange(1),
    default=600,
    show_default=True,
    metavar="SECONDS",
    help="That a request may take (504).",
)
@adapter_option
@click.option("--context", type=click.IntRange(1), metavar="N", help="The most tokens of a text.")
@click.option("--target", "-t", metavar="TARGET", shell_complete=common.complete_target, help="As of tec compile.")
@common.device_option
@click.option("--dtype", type=click.Choice(("float32", "float16", "bfloat16")), help="Of activations.")
@cache_type_option
@click.option("--no-cache", is_flag=True, help="Compile anew, and keep nothing.")
def command(model: Path, host: str, port: int, api_key: tuple[str, ...], **said: Any) -> None:
    """Serve a model with OpenAI's API: chat and text completions, streams, tools, models, metrics. MODEL: a GGUF file, or a folder as Hugging Face has it."""
    if not model.exists():
        raise Refused(f"{model}: no such file or folder")
    keys = tuple(k for k in (*api_key, os.environ.get("TEC_API_KEY", "")) if k)
    from ..lm.serve.app import run
    from ..lm.serve.served import Limits
    from ..serve.sockets import address_of, socket_at

    listening = socket_at(host, port)  # before the model is loaded: a port that is taken is told at once
    from ..lm.embedding import ENCODERS, embedder
    from ..lm.model import LanguageModel, load
    from ..lm.opening import open
    from ..lm.serve.compiled import served_embedder, served_of

    checkpoint = adapted(model, said["adapter"]) if said["adapter"] else open(model)
    limits = Limits(keys, said["max_body"], said["timeout"])
    name = said["name"] or model.resolve().stem
    how = {"target": said["target"], "device": said["device"], "cache": not said["no_cache"]}
    if checkpoint.architecture in ENCODERS:
        served = served_embedder(
            embedder(checkpoint, dtype=said["dtype"] or "float32", **how), name, queue=said["queue"], limits=limits
        )
    else:
        begun = time.perf_counter()
        lm = LanguageModel(checkpoint, dtype=said["dtype"], context=said["context"], cache_type=said["cache_type"], later=True, **how)  # fmt: skip
        served = served_of(
            lm, name, device=said["device"], slots=said["slots"], queue=said["queue"], limits=limits, block=said["block"], blocks=said["blocks"],
            cache=not said["no_cache"], ngrams=said["ngrams"], draft=load(said["draft"], dtype=said["dtype"], context=lm.context, **how) if said["draft"] else None,
        )  # fmt: skip
        common.echo(f"{lm!r}: loaded in {common.duration(time.perf_counter() - begun)}, context {lm.context}", err=True)
    if not keys and host not in ("127.0.0.1", "localhost", "::1"):
        common.echo("anybody who reaches this address may use the model: --api-key", err=True)
    common.echo(f"serving {name} at http://{address_of(listening)}/v1 (Ctrl-C ends it)", err=True)
    run(served, listening)
