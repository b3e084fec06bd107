"""tvm.contrib.utils: temporary folders."""

from __future__ import annotations

import os
import tempfile

from ..names import absent


class TempDirectory:
    """A folder that goes when the object goes."""

    def __init__(self, custom_path: str | None = None):
        self._folder = tempfile.TemporaryDirectory()
        self.temp_dir = custom_path or self._folder.name

    def relpath(self, name: str) -> str:
        """A path in the folder."""
        return os.path.join(self.temp_dir, name)

    def listdir(self) -> list[str]:
        """Its files."""
        return os.listdir(self.temp_dir)

    @property
    def path(self) -> str:
        """The folder's path."""
        return self.temp_dir

    def __truediv__(self, other: str) -> str:
        return self.relpath(other)

    def remove(self) -> None:
        """Remove the folder."""
        self._folder.cleanup()


def tempdir(custom_path: str | None = None, keep_for_debug: bool = False) -> TempDirectory:
    """A new temporary folder."""
    return TempDirectory(custom_path)


__getattr__ = absent(__name__)
