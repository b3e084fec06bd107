"""Refusals of the server: a status of HTTP and a text."""

from __future__ import annotations


class Refusal(Exception):
    """What a client is told in place of an answer. retry_s: after how many seconds it may be worth asking again."""

    def __init__(self, status: int, text: str, retry_s: int | None = None):
        super().__init__(text)
        self.status, self.text, self.retry_s = status, text, retry_s
