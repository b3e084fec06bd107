"""Metrics of the server in Prometheus' text form."""

from __future__ import annotations

from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

_SECONDS = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10)
_ROWS = (1, 2, 4, 8, 16, 32, 64, 128)
_OF = ["model", "version"]


class Metrics:
    """Counters by model and version, in a registry of their own."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.requests = Counter(
            "tec_requests", "Requests by their answer's status", [*_OF, "status"], registry=self.registry
        )
        self.seconds = Histogram(
            "tec_request_seconds",
            "Seconds from a request's arrival to its answer",
            _OF,
            buckets=_SECONDS,
            registry=self.registry,
        )
        self.run_seconds = Histogram(
            "tec_run_seconds", "Seconds of a run of the network", _OF, buckets=_SECONDS, registry=self.registry
        )
        self.rows = Histogram("tec_batch_rows", "Rows of a run's batch", _OF, buckets=_ROWS, registry=self.registry)
        self.batched = Counter(
            "tec_batched_requests", "Requests that ran together with others", _OF, registry=self.registry
        )
        self.waiting = Gauge("tec_waiting_requests", "Requests in the queue", _OF, registry=self.registry)

        # Counters by name and labels: looking one up by labels takes microseconds.
        self._known: dict[tuple[str, ...], Any] = {}

    def _of(self, metric: Any, *labels: str) -> Any:
        key = (metric._name, *labels)
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = metric.labels(*labels)
        return found

    def ran(self, labels: tuple[str, str], requests: int, rows: int, seconds: float) -> None:
        """A batch ran."""
        self._of(self.run_seconds, *labels).observe(seconds)
        self._of(self.rows, *labels).observe(rows)
        if requests > 1:
            self._of(self.batched, *labels).inc(requests)

    def answered(self, model: str, version: str, status: int, seconds: float) -> None:
        """A request was answered."""
        self._of(self.requests, model, version, str(status)).inc()
        self._of(self.seconds, model, version).observe(seconds)

    def text(self) -> bytes:
        """All of them, as Prometheus reads them."""
        return generate_latest(self.registry)
