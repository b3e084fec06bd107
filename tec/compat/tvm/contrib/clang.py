"""tvm.contrib.clang: LLVM IR of C code by the machine's clang, for the pragma import_llvm."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from tec.errors import MissingPackageError

from ..names import absent


def find_clang(required: bool = True) -> list[str]:
    """The clangs of this machine. Raises MissingPackageError where there is none and one is required."""
    found = [p for n in ("clang", *(f"clang-{v}" for v in range(22, 10, -1))) if (p := shutil.which(n))]
    if not found and required:
        raise MissingPackageError("tvm.contrib.clang", "clang")
    return found


def create_llvm(inputs: Any, output: str | None = None, options: Any = None, cc: str | None = None) -> str:
    """LLVM IR, as text, of C++ code or files. Raises MissingPackageError without clang, CalledProcessError where it refuses the code."""
    clang = cc or find_clang()[0]
    codes = [inputs] if isinstance(inputs, str) else list(inputs)
    with tempfile.TemporaryDirectory() as folder:
        files = []
        for k, code in enumerate(codes):
            path = Path(folder, f"input{k}.cc")
            path.write_text(Path(code).read_text() if "\n" not in code and Path(code).is_file() else code)
            files.append(str(path))
        target = output or str(Path(folder, "output.ll"))
        words = [clang, "-S", "-emit-llvm", "-O3", *(options or ()), "-o", target, *files]
        subprocess.run(words, check=True, capture_output=True, text=True)
        return Path(target).read_text()


__getattr__ = absent(__name__)
