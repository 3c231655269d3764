"""The compared systems, as listed in `systems.toml`."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

LIST = Path(__file__).parent / "systems.toml"
SELF = "recto"
LIMIT = "bare"
EXACT = "numpy"

Kind = Literal["peer", "framework", "thin", "limit"]
"""A limit cannot be beaten; a thin system is a framework around a limit, and is measured in searches only."""


@dataclass(frozen=True, slots=True)
class System:
    """A system: its packages, its runner, and a note for readers."""

    name: str
    title: str
    runner: str
    needs: tuple[str, ...]
    versions: tuple[str, ...]
    arguments: tuple[str, ...] = ()
    kind: Kind = "peer"
    alone: tuple[str, ...] = ()
    note: str = ""

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

    def chosen(self, names: str) -> tuple[System, ...]:
        """Return the systems named in a comma-separated list, or all; raise if a name is unknown."""
        if not names:
            return self.systems
        known = {system.name: system for system in self.systems}
        requested = [name.strip() for name in names.split(",") if name.strip()]
        unknown = [name for name in requested if name not in known]
        if unknown:
            raise SystemExit(f"There is no system {', '.join(unknown)}. Systems: {', '.join(known)}.")
        return tuple(known[name] for name in dict.fromkeys((SELF, *requested)))


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
