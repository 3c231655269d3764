"""(g) Quality of retrieval: SciFact, books with questions, and Chroma's token-wise measures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean

from bench.peers.figures import Figure
from bench.peers.listing import SELF
from bench.peers.running import Bench
from recto.evaluation.measures import estimate


def add(
    bench: Bench, work: str, scores: Mapping[str, Sequence[float]], more: Mapping[str, object] | None = None
) -> None:
    """Add a measure of every system, with the interval of Recto's lead over it."""
    mine = scores.get(SELF)
    for name, values in scores.items():
        found: dict[str, object] = dict(more or {})
        if mine is not None and name != SELF:
            lead = estimate([my - their for my, their in zip(mine, values, strict=True)])
            found["lead"] = lead.to_dict() if lead else None
        bench.results.add(
            Figure(work, name, "", (fmean(values),), better="more", more={**found, "questions": len(values)})
        )


def add_failure(bench: Bench, work: str, name: str, why: str) -> None:
    """Record why a system has no figure."""
    bench.results.add(Figure(work, name, "", better="more", why=why))
