"""`tec completion SHELL`: the script that makes a shell complete commands, options and files."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class


@click.command(epilog='\b\nExamples:\n  eval "$(tec completion bash)"\n  tec completion fish | source')
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def command(shell: str) -> None:
    """Print the completion script of a shell."""
    from .app import app

    kind = get_completion_class(shell)
    assert kind is not None
    click.echo(kind(app, {}, "tec", "_TEC_COMPLETE").source())
