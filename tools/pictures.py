"""The pictures of the README and the documentation, made from programs that run here.

    python -m tools.pictures            # docs/pictures/pipeline.svg, architecture.svg, schedule.svg
    python -m tools.pictures --report MODEL.onnx TARGET   # docs/pictures/report.png: the report page, by headless Chromium
    python -m tools.pictures --explore                    # docs/pictures/explore.png: the explorer's page, likewise

The pipeline's panels are the source of `program` below, the loops that its schedule gives, the assembly of its kernel, and what
the AMD GPU in software counted when it ran it.
"""

from __future__ import annotations

import inspect
import re
import shutil
import subprocess
import sys
import tempfile
import textwrap
from html import escape
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
OUT = ROOT / "docs" / "pictures"

WIDTH, LINE, PAD, GAP = 1280, 17, 16, 28
_STYLE = """
text { font: 13px ui-sans-serif, system-ui, "Segoe UI", "DejaVu Sans", sans-serif; fill: #1c1f24; }
.code { font: 12px ui-monospace, SFMono-Regular, Menlo, Consolas, "DejaVu Sans Mono", monospace; white-space: pre; }
.title { font-weight: 600; font-size: 15px; } .soft { fill: #666d78; } .mid { text-anchor: middle; } .strong { font-weight: 600; } .small { font-size: 11.5px; } .end { text-anchor: end; }
.word { fill: #a8371f; font-weight: 600; } .note { fill: #7a7f87; } .text { fill: #2f6f4f; } .unit { fill: #1d5c93; font-weight: 600; }
.panel { fill: #fff; stroke: #d5d8dc; } .box { fill: #f3efe7; stroke: #cfd2d6; } .in { fill: #e6eef5; } .bar { fill: #b5341f; opacity: .75; }
.arrow { stroke: #8a9099; stroke-width: 1.6; fill: none; marker-end: url(#head); }
"""
_HEAD = (
    '<defs><marker id="head" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto"><path d="M0 0 L8 4 L0 8 Z" '
    'fill="#8a9099"/></marker></defs>'
)


def program() -> dict[str, Any]:
    """Build a kernel, run it on the software GPU with its checks on; the texts and counts for the picture."""
    import numpy as np

    import tec

    # [picture]
    N = 1 << 20
    A, B = tec.placeholder((N,), name="A"), tec.placeholder((N,), name="B")
    C = tec.compute((N,), lambda i: A[i] * 2.0 + B[i], name="C")

    s = tec.create_schedule(C.op)
    group, rest = s[C].split(C.op.axis[0], factor=1024)
    thread, four = s[C].split(rest, factor=4)
    s[C].bind(group, tec.thread_axis("blockIdx.x"))
    s[C].bind(thread, tec.thread_axis("threadIdx.x"))
    s[C].vectorize(four)
    f = tec.build(s, [A, B, C], "rocm -mcpu=gfx942", name="axpy")

    dev = tec.rocm_emu("gfx942", check={"race", "init"})
    x, y = (tec.nd.array(np.full(N, v, "float32"), dev) for v in (3, 4))
    z = tec.nd.empty((N,), "float32", dev)
    with tec.profile(dev) as p:
        f(x, y, z)
    # [/picture]
    assert (z.numpy() == 10).all()
    kernel = f.imported_modules[0]
    asm = kernel.get_source("asm")
    (launch,) = p.launches
    return {
        "schedule": str(s),
        "ir": re.sub(r"@attrs\(.*\)\n", "", kernel.get_source("ir")).strip(),
        "asm": asm[asm.index("axpy_kernel0:") : asm.index("s_endpgm") + len("s_endpgm")],
        "facts": kernel.attrs["kernels"]["axpy_kernel0"],
        "counters": launch.counters,
        "grid": launch.grid,
        "block": launch.block,
    }


def source() -> str:
    """The part of `program` that the picture shows."""
    text = inspect.getsource(program)
    found = re.search(r"# \[picture\]\n(.*?) *# \[/picture\]", text, re.S)
    assert found is not None
    return textwrap.dedent(found[1]).rstrip()


# ---- drawing

_PYTHON = re.compile(r"""(#.*)|("[^"]*")|\b(lambda|for|in|with|as|def)\b""")
_ASM = re.compile(r"""(;.*)|()\b((?:global|v_pk|v_mfma|buffer|ds)_\w+)""")


def code(lines: list[str], x: float, y: float, marks: re.Pattern[str], word: str = "word") -> str:
    """Lines of code with their keywords marked."""

    def span(m: re.Match[str]) -> str:
        kind = "note" if m[1] else "text" if m[2] else word
        return f'<tspan class="{kind}">{m[0]}</tspan>'

    out = []
    for k, line in enumerate(lines):
        shown = marks.sub(span, escape(line, quote=False))
        out.append(f'<text class="code" xml:space="preserve" x="{x}" y="{y + k * LINE:.0f}">{shown}</text>')
    return "".join(out)


def panel(x: float, y: float, w: float, h: float, number: str, title: str, inside: str) -> str:
    return (
        f'<rect class="panel" x="{x}" y="{y}" width="{w}" height="{h:.0f}" rx="9"/>'
        f'<text class="title" x="{x + PAD}" y="{y + 25}">{number}  {escape(title)}</text>{inside}'
    )


def wrapped(text: str, width: int) -> list[str]:
    """Lines of loop IR, long ones broken at operators."""
    out = []
    for line in text.expandtabs(4).splitlines():
        indent = len(line) - len(line.lstrip()) + 4
        while len(line) > width:
            # After "=" and ","; before an operator.
            marks = ((" = ", 2), (" + B", 0), (" * ", 0), ("), ", 2))
            found = [(line.rfind(mark, indent, width + 4), keep) for mark, keep in marks]
            at = next((k + keep for k, keep in found if indent + 2 < k <= width), 0)
            if not at:
                break
            out.append(line[:at].rstrip())
            line = " " * indent + line[at:].lstrip()
        out.append(line)
    return out


def flow(y: float) -> str:
    """The strip of boxes: what comes in, the stages, what comes out."""
    boxes = [
        (40, 190, "in", "compute + schedule", "te: lambdas and loops", 0), (40, 190, "in", "ONNX network", "graph, fused groups", 62),
        (330, 150, "box", "loop IR", "typed, verified, printed", 31), (570, 150, "box", "LLVM IR", "through llvmlite", 31),
        (810, 190, "box", "AMDGPU code object", "gfx900 to gfx1250", -10), (810, 190, "box", "CPU object", "loads without LLVM", 41),
        (810, 190, "box", "PTX", "sm_70 to sm_120", 92), (1080, 160, "in", "an AMD GPU", "by HIP, or in software", -10),
    ]  # fmt: skip
    out = []
    for x, w, kind, title, under, dy in boxes:
        out.append(
            f'<rect class="box {kind if kind == "in" else ""}" x="{x}" y="{y + dy}" width="{w}" height="44" rx="7"/>'
            f'<text class="mid strong" x="{x + w / 2}" y="{y + dy + 19}" >{title}</text>'
            f'<text class="mid soft small" x="{x + w / 2}" y="{y + dy + 36}">{under}</text>'
        )
    middle = y + 53
    for path in (
        f"M230 {y + 22} C280 {y + 22} 280 {middle} 324 {middle}", f"M230 {y + 84} C280 {y + 84} 280 {middle} 324 {middle}",
        f"M480 {middle} H564", f"M720 {middle} C765 {middle} 765 {y + 12} 804 {y + 12}",
        f"M720 {middle} C765 {middle} 765 {y + 63} 804 {y + 63}", f"M720 {middle} C765 {middle} 765 {y + 114} 804 {y + 114}",
        f"M1000 {y + 12} H1074",
    ):  # fmt: skip
        out.append(f'<path class="arrow" d="{path}"/>')
    return "".join(out)


def counts(made: dict[str, Any], x: float, y: float, w: float) -> str:
    """What the software GPU counted: a bar for each class of instruction, and the time model's word."""
    c = made["counters"]
    lines = [
        "1,048,576 results right; bounds, races, uninitialized reads: none wrong",
        f"{made['grid'][0]} work-groups of {made['block'][0]} threads: {made['grid'][0] * made['block'][0] // 64:,} wavefronts",
        f"{made['facts']['vgprs']} VGPRs, {made['facts']['vgpr_spills']} spills, {made['facts']['lds_bytes']} bytes of LDS",
        f"{c['global_bytes'] / 1e6:.1f} MB asked for, {c['cache_line_bytes'] / 1e6:.1f} MB of cache lines: {c['coalescing_share']:.0%} coalesced",
        f"time model of the MI300X: {c['time_ns'] / 1e3:.1f} us, limited by {c['limit']}",
    ]
    out = [f'<text x="{x}" y="{y + k * 20}">{escape(line)}</text>' for k, line in enumerate(lines)]
    y += len(lines) * 20 + 14
    classes = [(n, c[n]) for n in ("VMEM", "VALU", "SALU", "SMEM", "WAIT", "BRANCH") if n in c]
    most = max(n for _, n in classes)
    out.append(f'<text class="soft" x="{x}" y="{y}">instructions that ran, a wavefront each</text>')
    for k, (name, n) in enumerate(classes):
        top = y + 12 + k * 21
        out.append(
            f'<text class="code" x="{x}" y="{top + 12}">{name}</text><rect class="bar" x="{x + 62}" y="{top + 1}" width="{(w - 150) * n / most:.0f}" '
            f'height="14" rx="2"/><text class="code soft" x="{x + 70 + (w - 150) * n / most:.0f}" y="{top + 13}">{n:,}</text>'
        )
    return "".join(out)


def pipeline() -> str:
    """The picture as SVG."""
    made = program()
    python = source().splitlines()
    nest = made["schedule"].splitlines()
    loops = [*nest[nest.index("C: compute, output") :], "", *wrapped(made["ir"], 78)]
    asm = [line.split(";")[0].rstrip().expandtabs(4) for line in made["asm"].splitlines()]
    asm = [re.sub(r"^(\s+\S+)\s+", lambda m: m[1].ljust(26), line) for line in asm if line.strip()]
    half = (WIDTH - 3 * GAP) / 2
    top = 190
    rows = [max(len(python), len(asm)) * LINE + 52, max(len(loops) * LINE + 52, 310)]
    x2, y2 = GAP * 2 + half, top + rows[0] + GAP
    height = y2 + rows[1] + GAP
    panels = [
        panel(GAP, top, half, rows[0], "1", "what is computed, and how", code(python, GAP + PAD, top + 52, _PYTHON)),
        panel(GAP, y2, half, rows[1], "2", "the loops: print(s), and the kernel after all passes", code(loops, GAP + PAD, y2 + 52, _PYTHON)),
        panel(x2, top, half, rows[0], "3", "gfx942 assembly: f.get_source(\"asm\")", code(asm, x2 + PAD, top + 52, _ASM, "unit")),
        panel(x2, y2, half, rows[1], "4", "the AMD GPU in software: runs it, checks it, counts", counts(made, x2 + PAD, y2 + 54, half - 2 * PAD)),
    ]  # fmt: skip
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height:.0f}" width="{WIDTH}" height="{height:.0f}" role="img" '
        'aria-label="From a tensor expression to the instructions of an AMD GPU, run and checked in software">'
        f"<style>{_STYLE}</style>"
        f"{_HEAD}"
        f'<rect width="{WIDTH}" height="{height:.0f}" rx="12" fill="#fafaf8"/>{flow(34)}{"".join(panels)}</svg>\n'
    )


# ---- the report page's picture


def screenshot(page: Path, picture: Path, width: int, height: int) -> None:
    """A page as headless Chromium shows it."""
    browser = next((p for n in ("chromium", "chromium-browser", "google-chrome") if (p := shutil.which(n))), None)
    if browser is None:
        raise SystemExit("no Chromium is installed")
    with tempfile.TemporaryDirectory() as profile:
        subprocess.run(
            [browser, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", f"--user-data-dir={profile}",
             f"--window-size={width},{height}", "--virtual-time-budget=4000", f"--screenshot={picture}", page.resolve().as_uri()],
            check=True, capture_output=True, timeout=600,  # a loaded machine draws slowly
        )  # fmt: skip


def report(model: str, target: str) -> Path:
    """The report page of a model, as a picture."""
    picture = OUT / "report.png"
    with tempfile.TemporaryDirectory() as folder:
        page = Path(folder) / "report.html"
        words = [sys.executable, "-m", "tec.cli", "show", model, "--target", target, "--html", str(page)]
        subprocess.run(words, check=True)
        screenshot(page, picture, 1500, 1330)  # down to the kernels' table
    return _small(picture)


_PRODUCT = """\
from tec import te

A = te.placeholder((1024, 256), "float16", name="A")
B = te.placeholder((256, 1024), "float16", name="B")
k = te.reduce_axis((0, 256), name="k")
C = te.compute((1024, 1024),
               lambda i, j: te.sum(A[i, k] * B[k, j], axis=k), name="C")

s = te.create_schedule(C.op)
bi, bj, i, j = s[C].tile(*C.op.axis, 32, 32)
ti, vi = s[C].split(i, nparts=8)
tj, vj = s[C].split(j, nparts=8)
s[C].reorder(bi, bj, ti, tj, k, vi, vj)
for axis, name in ((bi, "blockIdx.y"), (bj, "blockIdx.x"),
                   (ti, "threadIdx.y"), (tj, "threadIdx.x")):
    s[C].bind(axis, te.thread_axis(name))
"""


def explore() -> Path:
    """The explorer's page of a tiled product for an MI300X, as a picture."""
    picture = OUT / "explore.png"
    with tempfile.TemporaryDirectory() as folder:
        program, page = Path(folder) / "product.py", Path(folder) / "product.html"
        program.write_text(_PRODUCT, encoding="utf-8")
        words = ["explore", str(program), "--export", str(page), "-t", "rocm -mcpu=mi300x"]
        subprocess.run([sys.executable, "-m", "tec.cli", *words], check=True)
        screenshot(page, picture, 1440, 1000)
    return _small(picture)


def _small(picture: Path) -> Path:
    """The same with 256 colours, a third of the bytes."""
    from PIL import Image

    Image.open(picture).convert("RGB").quantize(256, Image.Quantize.FASTOCTREE).save(picture, optimize=True)
    return picture


# ---- a schedule


def schedule() -> str:
    """A tiled product's loop nest, as notebooks show it."""
    import tec
    from tec.notebook import nest_svg

    n, tile, step = 1024, 64, 16
    a, b = tec.placeholder((n, n), name="A"), tec.placeholder((n, n), name="B")
    k = tec.reduce_axis((0, n), name="k")
    c = tec.compute((n, n), lambda i, j: tec.sum(a[i, k] * b[k, j], axis=k), name="C")
    s = tec.create_schedule(c.op)
    shared = s.cache_read(a, "shared", [c]), s.cache_read(b, "shared", [c])
    acc = s.cache_write(c, "local")
    i, j = s[c].op.axis
    bi, bj, ti, tj = s[c].tile(i, j, tile, tile)
    ti, vi = s[c].split(ti, nparts=16)
    tj, vj = s[c].split(tj, nparts=16)
    s[c].reorder(bi, bj, ti, tj, vi, vj)
    for axis, name in ((bi, "blockIdx.y"), (bj, "blockIdx.x"), (ti, "threadIdx.y"), (tj, "threadIdx.x")):
        s[c].bind(axis, tec.thread_axis(name))
    s[c].vectorize(vj)
    s[acc].compute_at(s[c], tj)
    ko, ki = s[acc].split(s[acc].op.reduce_axis[0], factor=step)
    s[acc].reorder(ko, ki, *s[acc].op.axis)
    for axis in s[acc].op.axis:
        s[acc].unroll(axis)
    for tensor in shared:
        s[tensor].compute_at(s[acc], ko)
    return nest_svg(str(s)) + "\n"


# ---- the architecture


def architecture() -> str:
    """The packages and what each hands on to the next, with the passes as `tec.driver` lists them."""
    from tec.driver import PIPELINE, short_name

    passes = [short_name(name) for name, _ in PIPELINE]
    w, h = 1180, 710
    out: list[str] = []

    def box(x: float, y: float, bw: float, bh: float, title: str, lines: list[str], kind: str = "box") -> None:
        out.append(f'<rect class="{kind}" x="{x}" y="{y}" width="{bw}" height="{bh}" rx="8"/>')
        out.append(f'<text class="strong" x="{x + 12}" y="{y + 21}">{escape(title)}</text>')
        out.extend(
            f'<text class="soft small" x="{x + 12}" y="{y + 40 + 16 * k}">{escape(line)}</text>'
            for k, line in enumerate(lines)
        )

    def arrow(path: str) -> None:
        out.append(f'<path class="arrow" d="{path}"/>')

    box(30, 24, 250, 66, "frontends/tec_onnx", ["ONNX nodes to graph nodes"], "box in")
    box(30, 124, 250, 82, "tec.graph", ["operator graph and its passes,", "fusion, layouts, memory plan"])
    box(30, 240, 250, 82, "tec.ops", ["what each operator means, in te;", "tec.choices: how, as values"])
    box(30, 356, 250, 66, "tec.te", ["placeholder, compute, reduce"], "box in")
    box(30, 456, 250, 82, "tec.schedule", ["split, bind, compute_at, tensorize;", "bound inference; to loops"])
    box(
        30,
        580,
        250,
        82,
        "tec.kernels, tec.jit",
        ["one thread's program, in Python;", "compiled at its first launch"],
        "box in",
    )
    for y1, y2 in ((90, 124), (206, 240), (322, 356), (422, 456)):
        arrow(f"M155 {y1} V{y2 - 4}")
    rows = [passes[k : k + 4] for k in range(0, len(passes), 4)]
    box(
        340,
        24,
        420,
        56 + 16 * len(rows),
        "tec.driver, tec.ir: loop IR through the passes",
        [", ".join(row) + ("," if row is not rows[-1] else "") for row in rows],
    )
    below = 24 + 56 + 16 * len(rows)
    arrow(f"M280 497 C315 497 310 {below / 2:.0f} 334 {below / 2:.0f}")
    arrow(f"M280 621 C325 621 312 {below / 2 + 30:.0f} 334 {below / 2 + 30:.0f}")
    box(
        340,
        below + 40,
        420,
        82,
        "tec.codegen",
        [
            "one LLVM emitter; cpu, amdgpu, nvptx are small deltas on it",
            "text to LLVM; objects, code objects, PTX; disk cache",
        ],
    )
    arrow(f"M550 {below} V{below + 36}")
    box(
        340,
        below + 162,
        420,
        66,
        "tec.ir.interp",
        ["what the IR means, on NumPy: every backend is held to it"],
    )
    box(
        830,
        24,
        320,
        98,
        "tec.runtime: Module, Network",
        ["signature, host program, code: plain data", "checks each call's arguments; packages", "needs NumPy alone"],
    )
    arrow(f"M760 {below + 81} C800 {below + 81} 790 73 824 73")
    for k, (title, lines) in enumerate((
        ("CPU", ["objects mapped and relocated without LLVM;", "a pool of threads"]),
        ("HIP: libamdhip64 through ctypes", ["code objects, streams, events, graphs"]),
        ("tec.emulator: an AMD GPU in software", ["translates the assembly to host vectors;", "checks, counts, estimates the time"]),
        ("CUDA: libcuda through ctypes", ["PTX, streams, events, graphs"]),
    )):  # fmt: skip
        y = 156 + k * 100
        box(830, y, 320, 82, title, lines, "box in")
    arrow("M990 122 V152")
    out.append(
        f'<text class="soft" x="30" y="{h - 22}">Arrows: what is handed on. tec never imports a frontend, code generation never te, the runtime nothing of the compiler: import-linter holds them to it.</text>'
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {w} {h}" width="{w}" height="{h}" role="img" aria-label="the packages of tec">'
        f"<style>{_STYLE}</style>{_HEAD}"
        f'<rect width="{w}" height="{h}" rx="12" fill="#fafaf8"/>{"".join(out)}</svg>\n'
    )


def main(words: list[str]) -> int:
    OUT.mkdir(parents=True, exist_ok=True)
    if words[:1] == ["--report"]:
        print(report(words[1], words[2]))
        return 0
    if words[:1] == ["--explore"]:
        print(explore())
        return 0
    for name, draw in (("pipeline", pipeline), ("architecture", architecture), ("schedule", schedule)):
        path = OUT / f"{name}.svg"
        path.write_text(draw(), encoding="utf-8")
        print(path)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
