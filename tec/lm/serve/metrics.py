"""What a server counts, in Prometheus' form, by the package prometheus_client."""

from __future__ import annotations

from functools import partial
from typing import Any

from ...errors import MissingPackageError, install
from .engine import Engine

_SECONDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600)

_GAUGES = {  # by the names of an engine's state
    "running": ("tec_texts_running", "Texts: running"), "waiting": ("tec_texts_waiting", "Texts: waiting"), "slots": ("tec_texts_slots", "Texts: slots"),
    "blocks": ("tec_cache_blocks", "Blocks of the cache"), "free_blocks": ("tec_cache_free_blocks", "Blocks that no text holds"),
    "preempted": ("tec_cache_preempted", "How often a text gave its blocks back"),
    "guessed": ("tec_guessed_tokens", "Tokens that were guessed ahead"),
    "accepted": ("tec_accepted_tokens", "Guessed tokens that texts have"),
}  # fmt: skip


def _count(engine: Engine, name: str) -> float:
    return engine.state()[name]


class Metrics:
    """Counters of one server. engine: tells how many texts are under way when somebody asks."""

    def __init__(self, engine: Engine):
        try:
            import prometheus_client as p
        except ImportError:
            raise MissingPackageError("metrics", "prometheus_client", install("serve")) from None
        self._package, self.registry = p, p.CollectorRegistry()
        own: Any = {"registry": self.registry}
        self.requests = p.Counter("tec_requests", "Requests by their answers", ["path", "status"], **own)
        self.prompt_tokens = p.Counter("tec_prompt_tokens", "Tokens of prompts", **own)
        self.cached_tokens = p.Counter("tec_prompt_tokens_cached", "Tokens of prompts that were read before", **own)
        self.tokens = p.Counter("tec_generated_tokens", "Tokens that were written", **own)
        self.cancelled = p.Counter("tec_cancelled", "Texts whose client left", **own)
        self.first = p.Histogram(
            "tec_time_to_first_token_seconds", "From the request to its first token", buckets=_SECONDS, **own
        )
        self.whole = p.Histogram("tec_request_seconds", "From the request to its last token", buckets=_SECONDS, **own)
        for name in engine.state():
            gauge = p.Gauge(*_GAUGES[name], **own)
            gauge.set_function(partial(_count, engine, name))

    def text(self) -> tuple[bytes, str]:
        """All counts, and the type of the text."""
        return self._package.generate_latest(self.registry), self._package.CONTENT_TYPE_LATEST
