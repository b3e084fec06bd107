"""Makes the archives of a release and checks them: `make release`. Nothing is tagged and nothing is uploaded.

    python -m tools.release                 # the release that CHANGELOG.md dates
    python -m tools.release --rehearse      # the same of a tree that is not ready: its changes may be undated and uncommitted

1. The version stands once in pyproject.toml and once in tec/__init__.py, the changelog has a dated section of it, no tag has it yet, and nothing is uncommitted.
2. `build` makes the source archive of each distribution (tools/distributions.py), and the wheel from that, in environments of their own.
3. `twine check --strict` reads all as the package index does.
4. pip installs the wheels in fresh environments, where packages of other projects alone come from the index: the runtime, which runs a saved network; the software GPU, which
   runs a code object; and the compiler with the extras that the demo needs. There `tec doctor` passes and the demo runs, from a folder that holds none of tec's sources.

What comes out lies in dist/, with its digests. docs/releasing.md says what a person does then.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tomllib
import venv
from collections.abc import Sequence
from pathlib import Path

from .distributions import COMPILER, DISTRIBUTIONS, EMULATOR, RUNTIME, write_tree

ROOT = Path(__file__).resolve().parents[1]
_HEADING = re.compile(r"^## (\d+\.\d+\.\d+), (.+)$", re.M)
_DATE = re.compile(r"\d{4}-\d{2}-\d{2}")
_DEMO = (
    "tutorials/demo.py",
    "tools/__init__.py",
    "tools/zoo.py",
    "tools/zoo_faces.py",
    "tools/zoo_sound.py",
    "tools/archives.py",
    "tools/builder.py",
)
_EXTRAS = "onnx,cli"
# Runs the network in argv[1], on the software GPU that argv[2] names, or on its target's device.
_RUN_SAVED = """
import sys, numpy as np, tec
net = tec.load(sys.argv[1])
inputs = [np.ones(i["shape"], i["dtype"]) for i in net.inputs]
outputs = net.run(inputs, tec.rocm_emu(sys.argv[2]) if sys.argv[2:] else None)
assert tec.__file__.startswith(sys.prefix) and all(np.isfinite(o).all() for o in outputs)
print("ran", sys.argv[1], [o.shape for o in outputs])
"""


def versions(root: Path) -> dict[str, str]:
    """The version that each of the places gives."""
    project = tomllib.loads((root / "pyproject.toml").read_text("utf-8"))["project"]
    found = re.search(r'^__version__ = "(.+)"$', (root / "tec" / "__init__.py").read_text("utf-8"), re.M)
    heading = _HEADING.search((root / "CHANGELOG.md").read_text("utf-8"))
    return {
        "pyproject.toml": project["version"],
        "tec/__init__.py": found[1] if found else "none",
        "CHANGELOG.md": heading[1] if heading else "none",
    }


def faults(root: Path, tags: Sequence[str], changed: Sequence[str]) -> list[str]:
    """What stands in the way of a release. `tags`: those of the repository; `changed`: files with changes that are not committed."""
    found = versions(root)
    version = found["pyproject.toml"]
    wrong = [f"{file} says {v}, pyproject.toml {version}" for file, v in found.items() if v != version]
    heading = _HEADING.search((root / "CHANGELOG.md").read_text("utf-8"))
    if heading and not _DATE.fullmatch(heading[2]):
        wrong.append(
            f"CHANGELOG.md: the section of {heading[1]} says {heading[2]!r} where its date belongs (2027-01-31)"
        )
    if f"v{version}" in tags:
        wrong.append(f"the tag v{version} exists")
    if changed:
        wrong.append(f"not committed: {', '.join(changed[:5])}")
    return wrong


def run(*words: object, cwd: Path = ROOT) -> None:
    """Runs a command whose failure ends the release."""
    print("+", *words, flush=True)
    # A checkout on the caller's path would be tried in the place of what was installed.
    env = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run([str(w) for w in words], cwd=cwd, env=env, check=False)
    if done.returncode:
        sys.exit(f"release: {words[0]} ended with {done.returncode}")


def lines(*words: str) -> list[str]:
    return subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()


def environment(folder: Path, *packages: object) -> Path:
    """The Python of a fresh environment with some packages."""
    shutil.rmtree(folder, ignore_errors=True)
    venv.create(folder, with_pip=True)
    python = folder / "bin" / "python"
    run(python, "-m", "pip", "install", "-q", "--disable-pip-version-check", *packages)
    return python


def try_runtime(dist: Path, work: Path) -> None:
    """A network that was saved before runs in an environment that has the runtime and NumPy alone."""
    python = environment(work / "runtime", "--find-links", dist, RUNTIME.name)
    run(python, "-c", _RUN_SAVED, ROOT / "tests" / "unit" / "cli" / "packages" / "version3-cpu.tec", cwd=work)


def try_emulator(dist: Path, work: Path) -> None:
    """A saved network for gfx942 runs on the software GPU in an environment without the compiler."""
    python = environment(work / "emulator", "--find-links", dist, EMULATOR.name)
    package = ROOT / "tests" / "unit" / "cli" / "packages" / "version3-gfx942.tec"
    run(python, "-c", _RUN_SAVED, package, "gfx942", cwd=work)


def try_compiler(dist: Path, work: Path) -> None:
    """The doctor and the demo run in an environment with all three."""
    python = environment(work / "installed", "--find-links", dist, f"{COMPILER.name}[{_EXTRAS}]", "pillow")
    demo = work / "demo"
    shutil.rmtree(demo, ignore_errors=True)
    for name in _DEMO:
        (demo / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, demo / name)
    kept = ROOT / ".models"
    kept.mkdir(exist_ok=True)
    (demo / ".models").symlink_to(kept)  # networks that were fetched before
    inside = "import tec, sys; sys.exit(not tec.__file__.startswith(sys.prefix))"
    run(python, "-c", inside, cwd=demo)
    run(python.parent / "tec", "doctor", cwd=demo)
    run(python, demo / "tutorials" / "demo.py", cwd=demo)


def main() -> None:
    parser = argparse.ArgumentParser(prog="make release", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--rehearse", action="store_true", help="report what stands in the way of a release, and go on")
    rehearse = parser.parse_args().rehearse
    wrong = faults(ROOT, lines("git", "tag"), [x[3:] for x in lines("git", "status", "--porcelain")])
    for x in wrong:
        print(f"release: {x}", file=sys.stderr)
    if wrong and not rehearse:
        sys.exit(1)
    work, dist = ROOT / "build" / "release", ROOT / "dist"
    shutil.rmtree(dist, ignore_errors=True)
    python = environment(work / "tools", "build>=1", "twine>=6")
    for distribution in DISTRIBUTIONS:
        write_tree(distribution, work / distribution.name)
        run(python, "-m", "build", "--outdir", dist, work / distribution.name)
    archives = sorted(dist.iterdir())
    run(python, "-m", "twine", "check", "--strict", *archives)
    for attempt in (try_runtime, try_emulator, try_compiler):
        attempt(dist, work)
    for path in archives:
        print(f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.relative_to(ROOT)}")
    if wrong:
        print("release: a rehearsal; do not publish these archives")


if __name__ == "__main__":
    main()
