"""The distributions that a release consists of: which files of the project each holds, and the project file of each.

    python -m tools.distributions FOLDER      # writes the source tree of each: FOLDER/tec-compiler-runtime and so on

In a checkout the project is one. A release has three, whose files are disjoint parts of the package `tec`:

    tec-compiler-runtime     saved modules and networks, arrays, devices, collectives; needs NumPy alone
    tec-compiler-emulator    AMD GPUs in software, and the pytest plugin; needs the runtime and LLVM
    tec-compiler             all the rest; needs both

Each tree builds without the others. tests/unit/cli/test_distributions.py holds what each may import, and the runtime's size.
"""

from __future__ import annotations

import argparse
import json
import shutil
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[1]
_SKIPPED = ("__pycache__", ".pyc")


class Distribution(NamedTuple):
    """One archive of a release."""

    name: str
    description: str
    parts: tuple[str, ...]  # files and folders below the project's root; none: what no other distribution holds
    needs: tuple[str, ...]  # other distributions, of the same version
    packages: tuple[str, ...]  # of the project's dependencies
    readme: str = ""  # README.md's text; the project's own if empty


_RUNTIME = "tec-compiler-runtime"
_EMULATOR = "tec-compiler-emulator"

RUNTIME = Distribution(
    _RUNTIME,
    "Runs what the tensor-expression compiler tec saved, on CPUs, AMD and NVIDIA GPUs; needs NumPy alone",
    (
        "tec/__init__.py",
        "tec/py.typed",
        "tec/digest.py",
        "tec/errors.py",
        "tec/notebook.py",
        "tec/locks.py",
        "tec/door.py",
        "tec/likeness.py",
        "tec/records.py",
        "tec/polynomials.py",
        "tec/target",
        "tec/runtime",
        "tec/collectives",
        "tec/codegen/__init__.py",
        "tec/codegen/objects",
    ),
    (),
    ("numpy",),
    """# tec-compiler-runtime

Runs modules and networks that tec (`tec-compiler`) compiled and saved, on
CPUs, AMD GPUs and NVIDIA GPUs. It needs NumPy and nothing else: neither LLVM nor the compiler.

```python
import tec

net = tec.load("net.tec")
outputs = net.run({"x": x})
```

`pip install tec-compiler` adds the compiler.
""",
)

EMULATOR = Distribution(
    _EMULATOR,
    "AMD GPUs in software: runs AMDGPU code objects without the hardware, checks them, and models their time",
    ("tec/emulator", "tec/llvmworker", "tec/disk_cache.py", "tec/folders.py"),
    (_RUNTIME,),
    ("numpy", "llvmlite"),
    """# tec-compiler-emulator

AMD GPUs in software, from gfx90a to gfx1250: AMDGPU code objects run on the CPU without ROCm and without
the hardware. Checks find accesses out of bounds, races, uninitialised memory and missing waits, and a
time model says how long a kernel would take. A pytest plugin and a stand-in for libamdhip64 come with it.

It is a part of tec (`tec-compiler`), whose documentation has the guide "testing
AMD kernels without the hardware".
""",
)

COMPILER = Distribution("tec-compiler", "", (), (_RUNTIME, _EMULATOR), ("numpy", "llvmlite", "networkx"))

DISTRIBUTIONS = (RUNTIME, EMULATOR, COMPILER)


def project(root: Path = ROOT) -> dict[str, Any]:
    """The checkout's pyproject.toml."""
    return tomllib.loads((root / "pyproject.toml").read_text("utf-8"))


def files_of(distribution: Distribution, root: Path = ROOT) -> list[str]:
    """The distribution's files, as paths below `root` in order."""
    if distribution.parts:
        return sorted(f for part in distribution.parts for f in _below(root, part))
    taken = {f for other in DISTRIBUTIONS if other.parts for f in files_of(other, root)}
    packages = project(root)["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
    return sorted(f for package in packages for f in _below(root, package) if f not in taken)


def write_tree(distribution: Distribution, folder: Path, root: Path = ROOT) -> None:
    """The distribution's source tree in `folder`, which is made anew: files, project file, licence and README."""
    shutil.rmtree(folder, ignore_errors=True)
    for name in files_of(distribution, root):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(root / name, folder / name)
    shutil.copyfile(root / "LICENSE", folder / "LICENSE")
    readme = distribution.readme or (root / "README.md").read_text("utf-8")
    (folder / "README.md").write_text(readme, "utf-8")
    (folder / "pyproject.toml").write_text(project_file(distribution, project(root)), "utf-8")


def project_file(distribution: Distribution, whole: Mapping[str, Any]) -> str:
    """The text of the distribution's pyproject.toml. `whole`: the checkout's project file."""
    of_all = whole["project"]
    version = of_all["version"]
    versions = {_package_of(d): d for d in of_all["dependencies"]}
    needs = [f"{other}=={version}" for other in distribution.needs]
    fields: dict[str, Any] = {
        "name": distribution.name,
        "version": version,
        "description": distribution.description or of_all["description"],
        "readme": "README.md",
        "requires-python": of_all["requires-python"],
        "license": of_all["license"],
        "classifiers": of_all["classifiers"],
        "dependencies": needs + [versions[p] for p in distribution.packages],
    }
    tables: dict[str, Mapping[str, Any]] = {"build-system": whole["build-system"], "project": fields}
    points = {f'project.entry-points."{group}"': entries for group, entries in of_all["entry-points"].items()}
    plugin = 'project.entry-points."pytest11"'
    if distribution is COMPILER:
        tables["project.optional-dependencies"] = of_all["optional-dependencies"]
        tables["project.scripts"] = of_all["scripts"]
        tables |= {name: entries for name, entries in points.items() if name != plugin}
    elif distribution is EMULATOR:
        tables[plugin] = points[plugin]
    packages = whole["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
    held = [p for p in packages if any(f.startswith(p + "/") for f in files_of(distribution))]
    tables["tool.hatch.build.targets.wheel"] = {"packages": held}
    return "\n".join(_table(name, entries) for name, entries in tables.items())


def _below(root: Path, part: str) -> Iterator[str]:
    path = root / part
    if path.is_file():
        yield part
        return
    for f in path.rglob("*"):
        if f.is_file() and not any(x in str(f) for x in _SKIPPED):
            yield str(f.relative_to(root))


def _package_of(requirement: str) -> str:
    return requirement.partition(">")[0].partition("=")[0].strip()


def _table(name: str, entries: Mapping[str, Any]) -> str:
    # Strings and lists of strings, as JSON writes them, are TOML.
    lines = [f"{key} = {json.dumps(value, ensure_ascii=False)}" for key, value in entries.items()]
    return "\n".join([f"[{name}]", *lines, ""])


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tools.distributions", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args().folder
    for distribution in DISTRIBUTIONS:
        write_tree(distribution, folder / distribution.name)
        print(folder / distribution.name)


if __name__ == "__main__":
    main()
