"""What ZipMap gives: no tensor, and no operator takes it."""

from __future__ import annotations

from typing import Any

from tec.graph import Value


class Maps:
    """Rows of scores by class, which a session gives as a dict a row."""

    def __init__(self, scores: Value, labels: list[Any]):
        self.scores, self.labels = scores, labels

    def rows(self, scores: Any) -> list[dict[Any, float]]:
        return [dict(zip(self.labels, row)) for row in scores.tolist()]
