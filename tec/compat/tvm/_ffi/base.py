"""tvm._ffi.base."""

from ..error import TVMError

__version__ = "0.14.0"
__all__ = ["TVMError", "__version__"]
