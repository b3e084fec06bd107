"""tvm.arith: what is known of integer expressions."""

from tec.ir.arith import Analyzer

from .names import absent

__all__ = ["Analyzer"]

__getattr__ = absent(__name__)
