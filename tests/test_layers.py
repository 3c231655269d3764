"""Check the direction of imports: docs/explanation/architecture.md describes the layers."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path

from tests.running import ROOT

SOURCE = ROOT / "src" / "recto"
LAYERS = (
    ("cli", "server", "contracts", "integrations", "testing", "__main__"),
    ("api", "evaluation"),
    ("indexing", "search"),
    ("book", "embedders", "stores"),
    ("protocols", "plugins", "settings"),
    ("types", "errors", "_util"),
)
BETWEEN_ENTRY_POINTS = {("__main__", "cli"), ("cli", "server"), ("cli", "contracts"), ("server", "contracts")}
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
    """Yield the parts that a module imports, also inside functions, but not only for the type checker."""
    module = ast.parse(path.read_text("utf-8"))
    typing_only = {
        node
        for block in ast.walk(module)
        if isinstance(block, ast.If) and ast.unparse(block.test) == "TYPE_CHECKING"
        for node in ast.walk(block)
    }
    for node in ast.walk(module):
        if node in typing_only:
            continue
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "recto":
            below = node.module.split(".")[1:]
            yield from below[:1] or (alias.name for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from (alias.name.split(".")[1] for alias in node.names if alias.name.startswith("recto."))


def test_imports_point_down() -> None:
    assert {(part, other) for part, other in imports() if RANKS[other] < RANKS[part]} == set()


def test_no_two_parts_need_each_other() -> None:
    """Two parts of one layer may depend on each other in one direction only."""
    TopologicalSorter(graph()).prepare()


def graph() -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for part, other in imports():
        found.setdefault(part, set()).add(other)
    return found


def test_entry_points_share_only_the_core() -> None:
    entry_points = {(part, other) for part, other in imports() if RANKS[part] == RANKS[other] == 0}
    assert entry_points <= BETWEEN_ENTRY_POINTS


def test_every_part_has_a_layer() -> None:
    parts = {
        path.name.removesuffix(".py") for path in SOURCE.iterdir() if path.suffix == ".py" or path.is_dir()
    }
    assert parts - set(RANKS) <= {"__init__", "__pycache__", "sample"}
