"""tvm.tir.stmt: the classes of statements."""

from ..names import absent
from .nodes import *  # noqa: F403

__getattr__ = absent(__name__)
