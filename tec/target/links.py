"""Links between the GPUs of one host, with published rates: what collectives cost in a time model.

    switched   every GPU reaches any other at its whole rate (NVSwitch)
    mesh       a link to each other GPU: two GPUs have one link between them, eight use seven each (xGMI)

Rates are GB/s in one direction. Sources: [N] NVIDIA's data sheets: A100 600 GB/s by NVLink 3, H100 and H200 900 by NVLink 4, B200 1,800 by NVLink 5, both
directions together; [C] AMD's CDNA 3 white paper: seven links of 16 lanes at 32 Gb/s an MI300X, 64 GB/s each way a link, and the data sheet of MI325X alike; MI350X
1,075 GB/s by seven links, 76.8 each way; [D] AMD's CDNA 2 white paper: 50 GB/s each way a link of an MI250X, of which three go to other packages; [B] NCCL issue
1264: p2pBandwidthLatencyTest on H100s, 380 of 450 GB/s; [T] NCCL's tuning.cc: a call takes 6.6 us and 0.6 us a step over NVLink with its protocol for short
messages. No source gives a call's latency over xGMI: NCCL's stands in (`assumed`).
"""

from __future__ import annotations

from dataclasses import dataclass

from .machines import Machine


@dataclass(frozen=True, slots=True)
class Links:
    """gbps: of a link, or of all of a GPU's where they are switched. reached: the share that copies reach. call_us, step_us: of a collective, and of each step of a
    ring. assumed: what stands here by another's."""

    name: str
    machines: tuple[str, ...]
    gbps: float
    switched: bool
    most: int  # GPUs of one host
    reached: float = 380 / 450  # [B]; no source gives other rows' share
    call_us: float = 6.6
    step_us: float = 0.6
    source: str = ""
    assumed: str = ""

    def rate(self, ranks: int) -> float:
        """GB/s that each of so many ranks sends, to all others together."""
        return self.reached * self.gbps * (1 if self.switched else max(1, ranks - 1))

    def collective_us(self, kind: str, operand_bytes: float, ranks: int) -> float:
        """Microseconds of a collective whose operand has so many bytes on each rank.

        Ring algorithms: each rank sends (n - 1) / n of the whole, twice in an all_reduce, in n - 1 steps."""
        if ranks < 2:
            return 0.0
        rounds = 2 if kind == "all_reduce" else 1
        sent = operand_bytes * (ranks - 1) if kind == "all_gather" else operand_bytes * (ranks - 1) / ranks * rounds
        return self.call_us + self.step_us * rounds * (ranks - 1) + sent / self.rate(ranks) * 1e-3


_XGMI = "latency of a call and of a step: NCCL's over NVLink; the share that copies reach: H100's"
LINKS = {
    x.name: x
    for x in (
        Links("nvlink3", ("a100",), 300, True, 8, source="[N]"),
        Links("nvlink4", ("h100", "h200"), 450, True, 8, source="[N] [B] [T]"),
        Links("nvlink5", ("b200",), 900, True, 8, source="[N]"),
        Links("xgmi-mi250x", ("mi250", "mi250x", "mi210"), 50, False, 4, source="[D]", assumed=_XGMI),
        Links("xgmi-mi300x", ("mi300x", "mi300a", "mi325x"), 64, False, 8, source="[C]", assumed=_XGMI),
        Links("xgmi-mi350x", ("mi350x", "mi355x"), 76.8, False, 8, source="[C]", assumed=_XGMI),
    )
}


def links_of(machine: Machine) -> Links | None:
    """The links that a product's hosts have; None where no source gives them."""
    name = machine.name.lower().replace(" ", "")
    return next((x for x in LINKS.values() if name in x.machines), None)
