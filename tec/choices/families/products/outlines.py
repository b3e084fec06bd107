"""Outlines of tilings: rows and columns of C of a work-group and its wavefronts along them, before an instruction and a step are chosen (`tilings`)."""

from __future__ import annotations

from ....records import dataclass


@dataclass(frozen=True)
class Outline:
    """A draft before its instruction and its step: rows and columns of C of a work-group, its wavefronts along them; and what a rule may say of it."""

    m: int
    n: int
    waves_m: int
    waves_n: int
    ping_pong: bool = False
    direct_to_lds: bool = False
    stages: int = 0  # 0: the usual
    shorter: int = 0  # the longest so many steps are left out
    longer: bool = False  # a step twice the longest comes first
    registers: int = 0  # of a thread, by an estimate; 0: not asked
    held: int = 1  # work-groups that a unit has to hold
    near: bool = False  # no loads two steps ahead

    def steps(self, usual: tuple[int, ...]) -> tuple[int, ...]:
        """Sizes of a step of k, best first, of those that are usual."""
        return (2 * usual[0], *usual) if self.longer else usual[self.shorter :]


# Rows and columns of C of a work-group, and its wavefronts along them: what defaults are taken from, beside those of rules. Others are for a search.
DRAFTS = (
    (128, 128, 2, 2), (128, 64, 2, 2), (64, 128, 2, 2), (64, 64, 2, 2), (64, 32, 2, 2), (32, 64, 2, 2), (32, 32, 2, 2), (16, 16, 1, 1),
)  # fmt: skip
