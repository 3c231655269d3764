"""Check the direction of imports: docs/explanation/architecture.md describes the layers."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from tests.running import ROOT

SOURCE = ROOT / "src" / "recto"
LAYERS = (
    ("cli", "server", "contracts", "integrations", "__main__"),
    ("evaluation", "api"),
    ("indexing", "search"),
    ("book", "embedders", "stores"),
    ("protocols", "plugins", "settings"),
    ("types", "errors", "_util"),
)
BETWEEN_ENTRY_POINTS = {("__main__", "cli"), ("cli", "server"), ("server", "contracts"), ("contracts", "cli")}
RANKS = {name: rank for rank, names in enumerate(LAYERS) for name in names}


def imports() -> Iterator[tuple[str, str]]:
    """Yield which part of the package imports which other part."""
    for path in SOURCE.rglob("*.py"):
        part = path.relative_to(SOURCE).parts[0].removesuffix(".py")
        if part in RANKS:
            for imported in imported_parts(path):
                if imported in RANKS and imported != part:
                    yield part, imported


def imported_parts(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "recto":
            below = node.module.split(".")[1:]
            yield from below[:1] or (alias.name for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from (alias.name.split(".")[1] for alias in node.names if alias.name.startswith("recto."))


def test_imports_point_down() -> None:
    assert {(part, other) for part, other in imports() if RANKS[other] < RANKS[part]} == set()


def test_entry_points_share_only_the_core() -> None:
    entry_points = {(part, other) for part, other in imports() if RANKS[part] == RANKS[other] == 0}
    assert entry_points <= BETWEEN_ENTRY_POINTS


def test_every_part_has_a_layer() -> None:
    parts = {
        path.name.removesuffix(".py") for path in SOURCE.iterdir() if path.suffix == ".py" or path.is_dir()
    }
    assert parts - set(RANKS) <= {"__init__", "__pycache__", "sample", "testing"}
