"""The compared systems, as listed in `systems.toml`."""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

LIST = Path(__file__).parent / "systems.toml"
SELF = "recto"
LIMIT = "bare"

Kind = Literal["peer", "framework", "limit"]
"""With the same model and engine, no system can be much faster than a limit."""


@dataclass(frozen=True, slots=True)
class System:
    """A system: its packages and its runner."""

    name: str
    title: str
    runner: str
    needs: tuple[str, ...]
    versions: tuple[str, ...]
    arguments: tuple[str, ...] = ()
    kind: Kind = "peer"

    @property
    def is_peer(self) -> bool:
        """Whether a user might choose it instead of Recto."""
        return self.name != SELF and self.kind in {"peer", "framework"}


@dataclass(frozen=True, slots=True)
class Listing:
    """All systems, the packages of the shared model, and the exact version of every package.

    `hybrid` are the frameworks with a hybrid retriever, for `bench.books`. `overrides` are versions that
    override a package's metadata.
    """

    systems: tuple[System, ...]
    hybrid: tuple[System, ...]
    model: tuple[str, ...]
    pins: tuple[str, ...]
    overrides: tuple[str, ...]

    def chosen(self, names: Sequence[str]) -> tuple[System, ...]:
        """Return the named systems, or all; raise if a name is unknown."""
        if not names:
            return self.systems
        systems = {system.name: system for system in self.systems}
        unknown = [name for name in names if name not in systems]
        if unknown:
            raise SystemExit(f"There is no system {', '.join(unknown)}. Systems: {', '.join(systems)}.")
        return tuple(systems[name] for name in dict.fromkeys((SELF, *names)))


def load(path: Path = LIST) -> Listing:
    """Read the list."""
    data = tomllib.loads(path.read_text("utf-8"))
    model, pins, overrides = (tuple(data[name]) for name in ("model", "pins", "overrides"))
    return Listing(_systems(data["systems"]), _systems(data["hybrid"]), model, pins, overrides)


def _systems(table: dict[str, dict[str, Any]]) -> tuple[System, ...]:
    systems = []
    for name, fields in table.items():
        lists = {key: tuple(value) for key, value in fields.items() if isinstance(value, list)}
        systems.append(System(name=name, **{**fields, **lists}))
    return tuple(systems)
