"""Arithmetic on index expressions: simplification, bounds, moduli, symbolic intervals. See `Analyzer`."""

from .analyzer import Analyzer, conjuncts
from .int_set import IntSet

__all__ = ["Analyzer", "IntSet", "conjuncts"]
