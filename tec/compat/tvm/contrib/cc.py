"""tvm.contrib.cc: a "shared library" is one of tec's module files here, which `tvm.runtime.load_module` reads."""

from __future__ import annotations

import shutil
from typing import Any

from tec.errors import ArgumentError

from ..names import absent


def create_shared(output: str, objects: Any, options: Any = None, cc: Any = None) -> None:
    """Write the module that was saved as an object file where the library is wanted. Raises ArgumentError for several."""
    files = [objects] if isinstance(objects, str) else list(objects)
    if len(files) != 1:
        raise ArgumentError(
            f"a library of {len(files)} object files",
            hint="build the functions as one module: tvm.build([f, g]).save(path)",
        )
    shutil.copyfile(files[0], output)


__getattr__ = absent(__name__)
