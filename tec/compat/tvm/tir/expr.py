"""tvm.tir.expr: the classes of expressions."""

from ..names import absent
from .nodes import *  # noqa: F403

__getattr__ = absent(__name__)
