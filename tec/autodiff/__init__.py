"""Gradients of tensor computations.

`gradient` (`te.gradient`) makes the computation of a gradient from that of a value: reverse mode over the operations, each read of a
tensor giving one sum over the elements that read it. `partials` has the derivatives of expressions, `inverse` finds who reads an element.
"""

from __future__ import annotations

from .gradient import gradient

__all__ = ["gradient"]
