"""`tec generate`: a model that writes, its text on the terminal as it comes."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from ..errors import printable
from . import common
from .errors import Refused


@click.command(
    epilog="""\b
Examples:
  tec generate phi-3-folder --prompt "The capital of France is"     # genai_config.json, or optimum's names
  tec generate decoder.onnx --tokenizer bytes --prompt "one plus " --stop "."
  tec generate encoder.onnx decoder.onnx --prompt "summarize: ..."
  echo "Once" | tec generate folder --prompt - --temperature 0.8 --top-p 0.9 --seed 7
  tec generate folder --prompt "Hello" --device emu:gfx942 --max-tokens 8 --json""",
)
@click.argument("models", nargs=-1, required=True, type=click.Path(path_type=Path), metavar="MODEL...")
@click.option("--prompt", "-p", required=True, help="The text to go on with, or to answer; - reads standard input.")
@click.option("--tokenizer", metavar="FILE|bytes", help="A tokenizer.json; the one beside the model by default.")
@click.option("--max-tokens", "-n", type=click.IntRange(1), default=128, show_default=True, help="The most to write.")
@click.option("--temperature", type=float, default=0.0, show_default=True, help="0: always the likeliest token.")
@click.option("--top-k", type=click.IntRange(0), default=0, help="Draw from so many of the likeliest tokens (0: all).")
@click.option("--top-p", type=float, default=1.0, help="Draw from the fewest that are together so likely.")
@click.option("--seed", type=int, default=0, show_default=True, help="Of drawing.")
@click.option("--stop", multiple=True, metavar="TEXT", help="End before this text.")
@click.option("--end-token", "end", multiple=True, type=int, metavar="ID", help="A token that ends the text.")
@click.option("--start-token", "start", type=int, metavar="ID", help="What an answer begins with, behind an encoder.")
@click.option("--recompute", is_flag=True, help="Without caches: the decoder reads all tokens anew for each.")
@click.option("--target", "-t", metavar="TARGET", shell_complete=common.complete_target, help="As of tec compile.")
@common.device_option
@click.option("--dtype", type=click.Choice(("float32", "float16", "bfloat16")), help="Mixed precision.")
@click.option("--no-cache", is_flag=True, help="Compile anew, and keep nothing.")
@common.json_option
def command(
    models: tuple[Path, ...], prompt: str, tokenizer: str | None, max_tokens: int, temperature: float, top_k: int, top_p: float, seed: int,
    stop: tuple[str, ...], end: tuple[int, ...], start: int | None, recompute: bool, target: str | None, device: str | None, dtype: str | None,
    no_cache: bool, as_json: bool,
) -> None:  # fmt: skip
    """Write text with a model: a folder (onnxruntime-genai's or optimum's), or its .onnx files. The text goes to standard output as it comes, tokens a
    second to standard error."""
    if prompt == "-":
        prompt = sys.stdin.read()
    if not prompt:
        raise Refused("the prompt is empty")
    for path in models:
        if not path.exists():
            raise Refused(f"{path}: no such file or folder")
    from ..generation import Generator, Sampling
    from ..target import Target

    wanted = common.target_of(target, device)
    kind = Target(wanted)

    Sampling(temperature, top_k, top_p, seed)  # a mistake there is told before minutes of compiling
    made = Generator(
        list(models), tokenizer=tokenizer, target=wanted, device=common.find_device(device, "cpu" if kind.kind == "llvm" else kind.kind, kind.mcpu), dtype=dtype, cached=not recompute,
        cache=not no_cache, end=end or None, start=start,
    )  # fmt: skip
    run = made.generate(
        prompt, max_tokens=max_tokens, temperature=temperature, top_k=top_k, top_p=top_p, seed=seed, stop=stop
    )
    shown = sys.stdout.isatty()  # a model may write what a terminal would obey
    for piece in run:
        if not as_json:
            sys.stdout.write(printable(piece) if shown else piece)
            sys.stdout.flush()
    if as_json:
        common.print_json(
            {
                "text": run.text, "tokens": run.ids, "reason": run.reason, "prompt_tokens": run.prompt_tokens,
                "prompt_seconds": run.prompt_seconds, "tokens_per_second": run.tokens_per_second,
            }
        )  # fmt: skip
        return
    common.echo()
    rate = f"{run.tokens_per_second:.1f} tokens a second" if run.tokens_per_second else "one token"
    first = common.duration(run.prompt_seconds)
    common.echo(f"{run.prompt_tokens} tokens read in {first}, {len(run.ids)} written, {rate} ({run.reason})", err=True)
