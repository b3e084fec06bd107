"""tvm.relay."""

from ..names import absent

__getattr__ = absent(__name__)
