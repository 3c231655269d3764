"""(a) Installed megabytes and packages, with the shared model, and with a local embedder of the system."""

from __future__ import annotations

from bench.peers.environments import build_alone
from bench.peers.figures import Figure
from bench.peers.listing import SELF, Listing
from bench.peers.running import Bench

SIZE = "install, with the same model"
ALONE = "install, with the system's own local embedder (without the model)"


def run(bench: Bench, listing: Listing) -> None:
    """Measure what is installed."""
    for system in bench.whole_systems:
        environment = bench.environments[system.name]
        if not environment.size:
            bench.results.add(Figure(SIZE, system.name, "MB", why="no separate environment"))
            continue
        figure = Figure(
            SIZE, system.name, "MB", (environment.size / 1e6,), more={"packages": len(environment.versions)}
        )
        bench.results.add(figure)
        if system.name == SELF:
            bench.results.add(Figure(ALONE, system.name, "MB", figure.values, more=figure.more))
        elif system.alone:
            alone = build_alone(system, listing, bench.cache)
            bench.results.add(
                Figure(ALONE, system.name, "MB", (alone.size / 1e6,), more={"packages": len(alone.versions)})
            )
