"""`tec explore`: a page where one types a program and sees what it becomes."""

from __future__ import annotations

import secrets
import webbrowser
from pathlib import Path

import click

from . import common
from .errors import Refused


@click.command(
    epilog="""\b
Examples:
  tec explore                                        # opens the page
  tec explore program.py --target "rocm -mcpu=mi300x"
  tec explore program.py --export page.html -t llvm -t "rocm -mcpu=mi300x" -t "cuda -arch=sm_90"

A program makes a schedule, or calls show(kernel, arguments ..., grid=..., block=...). It runs with your rights, in a process of its own."""
)
@click.argument("program", required=False, type=click.Path(path_type=Path), metavar="[PROGRAM.py]")
@click.option("--target", "-t", multiple=True, help="What to compile for; --export takes several.")
@click.option("--port", default=0, show_default="any", type=click.IntRange(0, 65535), help="The port, on 127.0.0.1.")
@click.option("--seconds", default=20.0, show_default=True, type=click.FloatRange(0.1), help="The limit of one run.")
@click.option("--no-browser", is_flag=True, help="Only print the address.")
@click.option("--export", type=click.Path(path_type=Path), metavar="FILE", help="Write one page that needs no server.")
def command(
    program: Path | None, target: tuple[str, ...], port: int, seconds: float, no_browser: bool, export: Path | None
) -> None:
    """Type a program and see its loops, LLVM IR, assembly, footprint and modelled time."""
    from ..explore import page
    from ..explore.worker import Worker
    from ..target import Target

    wanted = list(target) or ["rocm -mcpu=mi300x"]
    for t in wanted:
        Target(t)  # a mistake is said here
    code = page.EXAMPLE if program is None else page.program(program)
    if export is not None:
        if program is None:
            raise Refused("--export needs a PROGRAM.py", "tec explore program.py --export page.html")
        common.check_suffix("--export", export, (".html", ".htm"), "a page's name ends in .html")
        common.check_folder(export)
        with Worker(seconds) as worker:
            answers = [(t, worker.ask(code, t)) for t in wanted]
        failed = [(t, said["error"]) for t, said in answers if "error" in said]
        for t, e in failed:
            where = f"{program}:{e['line']}: " if e["line"] else f"{program}: "
            refused = Refused(f"{where}{e['message']} (for {t})", e["hint"])
            if len(failed) == len(answers):
                raise refused
            # Loops that are bound to threads are no CPU's.
            common.echo(f"{refused}; the page says so under this target", err=True)
        common.write_file(export, page.exported(code, answers, program.name))
        common.echo(common.wrote(export))
        return
    if len(wanted) > 1:
        raise Refused("the page has one target at a time", "--export takes several")
    try:
        from ..explore import app
    except ImportError as error:
        raise Refused(f"the server needs {error.name}", "pip install 'tec-compiler[serve]'") from None
    try:
        at = app.listening(port)
    except OSError as error:
        raise Refused(f"port {port} of 127.0.0.1: {error.strerror}", "--port 0 takes a free one") from None
    token = secrets.token_urlsafe(24)
    with Worker(seconds) as worker:
        worker.start()
        common.echo(f"the page is at {app.address(at, token)}\nCtrl-C ends it")
        if not no_browser:
            webbrowser.open(app.address(at, token))
        app.server(worker, at, token, code, wanted[0]).run(sockets=[at])
