"""What the compiler makes of the conformance table and of networks, kept as text, so that a change that should not alter code can show that it did not.

    python -m tools.asm_snapshot take FOLDER [--networks] [name-part...]   writes NAME.TARGET.{ir,llvm,asm}
    python -m tools.asm_snapshot compare BEFORE AFTER                      names what differs; exit code 1 where something does

Take one at the commit before, one after (PYTHONPATH chooses the checkout), with the disk cache off.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path

os.environ.setdefault("TEC_CACHE_DISABLE", "1")

import tec
from tests.conformance import elementwise, matmuls, memory, networks, reductions  # noqa: F401  (they fill CASES)
from tests.conformance.harness import CASES

KERNEL_TARGETS = {
    "x86-64-v4": ("llvm -mcpu=x86-64-v4", "cpu"),
    "gfx942": ("rocm -mcpu=gfx942", "gpu"),
    "gfx1100": ("rocm -mcpu=gfx1100", "gpu"),
    "sm_90": ("cuda -arch=sm_90", "gpu"),
}
NETWORKS = (
    "squeezenet", "mobilenet_v2", "resnet50", "bert_layer", "minilm", "open_nsfw", "magika", "silero_vad", "crepe_tiny",
    "mtcnn_o", "romanizer_encoder", "basic_pitch",
)  # fmt: skip
NETWORK_TARGETS = {"x86-64-v4": "llvm -mcpu=x86-64-v4", "gfx942": "rocm -mcpu=gfx942"}


def kernel_sources(name: str, text: str, kind: str) -> dict[str, str]:
    """The stages of one kernel of the table for one target."""
    case, target = CASES[name], tec.Target(text)
    with target:
        program = case.make()
        s = program.schedule or tec.create_schedule([t.op for t in program.outputs])
        apply = program.cpu if kind == "cpu" else program.gpu
        if apply is not None:
            apply(s, target)
    module = tec.build(s, program.args, target, name=name)
    device = module.imported_modules[0] if module.imported_modules else module
    return {stage: device.get_source(stage) for stage in ("ir", "llvm", "asm")}


def network_sources(name: str, text: str) -> dict[str, str]:
    """The stages of one network of tools/zoo.py, at batch 1."""
    from tests.networks import test_networks
    from tools import zoo

    shapes = {k: v.shape for k, v in test_networks.INPUTS[name]().items()}
    net = tec.compile(str(zoo.get(name)), target=text, shapes=shapes)
    return {stage: net.get_source(stage) for stage in ("ir", "asm")}


def take(folder: Path, words: list[str]) -> None:
    """Write every stage of every kernel (or network) whose name holds one of the words."""
    folder.mkdir(parents=True, exist_ok=True)
    with_networks = "--networks" in words
    words = [w for w in words if not w.startswith("--")]
    for name, label, sources in _network_rows(words) if with_networks else _kernel_rows(words):
        for stage, text in sources.items():
            (folder / f"{name}.{label}.{stage}").write_text(text)


def _kernel_rows(words: list[str]) -> Iterator[tuple[str, str, dict[str, str]]]:
    for name, case in CASES.items():
        for label, (text, kind) in KERNEL_TARGETS.items():
            if kind in case.kinds and case.needs(tec.Target(text)) and (not words or any(w in name for w in words)):
                yield name, label, kernel_sources(name, text, kind)


def _network_rows(words: list[str]) -> Iterator[tuple[str, str, dict[str, str]]]:
    for name in NETWORKS:
        if not words or any(w in name for w in words):
            for label, text in NETWORK_TARGETS.items():
                yield name, label, network_sources(name, text)


def instructions(text: str) -> str:
    """Assembly without comments, directives and labels' numbers: what the machine executes."""
    lines = (re.split(r"\s*(?:;|//|#)", line, maxsplit=1)[0].strip() for line in text.splitlines())
    return "\n".join(line for line in lines if line and not line.startswith((".", "/")))


def compare(before: Path, after: Path) -> int:
    """Name the files that differ; of assembly, whether the instructions do."""
    old, new = ({p.name: p for p in folder.iterdir()} for folder in (before, after))
    counts: dict[str, list[int]] = {}
    for name in sorted(old.keys() | new.keys()):
        stage = name.rsplit(".", 1)[1]
        row = counts.setdefault(stage, [0, 0])
        row[0] += 1
        if name not in old or name not in new:
            print(f"only {'after' if name in new else 'before'}: {name}")
        else:
            a, b = old[name].read_text(), new[name].read_text()
            if stage == "asm":
                a, b = instructions(a), instructions(b)
            if a == b:
                continue
            print(f"differs: {name} ({len(a.splitlines())} -> {len(b.splitlines())} lines)")
        row[1] += 1
    for stage, (total, bad) in counts.items():
        print(f"{stage}: {total - bad} of {total} the same")
    return int(any(bad for _, bad in counts.values()))


def main(words: list[str]) -> int:
    if len(words) >= 2 and words[0] == "take":
        take(Path(words[1]), words[2:])
        return 0
    if len(words) == 3 and words[0] == "compare":
        return compare(Path(words[1]), Path(words[2]))
    print(__doc__)
    return 64


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
