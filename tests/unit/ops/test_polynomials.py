"""The algebra of sizes, held against numbers."""

from __future__ import annotations

import math
import random

from tec.polynomials import add_to, minus, times
from tests import seeds


def value(p: dict, at: dict) -> int:
    return sum(c * math.prod(at[a] for a in m) for m, c in p.items())


def test_sums_and_products_are_those_of_numbers():
    rng = random.Random(seeds.first(3))
    for _ in range(300):
        a, b = (
            {tuple(sorted(rng.choices("xyz", k=rng.randint(0, 3)))): rng.randint(-4, 4) for _ in range(3)} for _ in "ab"
        )
        at = {x: rng.randint(-5, 5) for x in "xyz"}
        p, q = value(a, at), value(b, at)
        product = times(a, b)
        assert value(product, at) == p * q and all(list(m) == sorted(m) for m in product)
        assert value(minus(a, b), at) == p - q
        kept = dict(a)
        assert value(add_to(kept, b.items(), 7), at) == p + 7 * q and value(a, at) == p


def test_atoms_are_sorted_as_asked():
    atoms = {("b",): 1, ((1, "x"),): 2}  # of kinds that do not compare
    assert times(atoms, {("a",): 3}, repr) == {("a", "b"): 3, ("a", (1, "x")): 6}
