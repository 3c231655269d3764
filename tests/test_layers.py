"""Check the direction of imports, and the size of functions, classes and the public API.

docs/explanation/architecture.md describes the layers. Imports inside functions and imports for the type checker
count, too: a reader has to follow them.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

import recto
from tests.running import ROOT

SOURCE = ROOT / "src"
LAYERS = (
    ("cli", "server", "contracts", "integrations", "testing", "__main__"),
    ("api", "evaluation"),
    ("indexing", "search"),
    ("book", "embedders", "stores"),
    ("protocols", "plugins", "settings"),
    ("types", "errors", "_util"),
)
RANKS = {name: rank for rank, names in enumerate(LAYERS) for name in names}
BETWEEN_ENTRY_POINTS = {
    ("__main__", "cli"),
    ("cli", "server"),
    ("cli", "contracts"),
    ("server", "contracts"),
    ("integrations", "server"),  # the plugin of a site writes the static export
}
MAX_FUNCTION_LINES, MAX_METHODS, MAX_EXPORTS, MAX_FILE_LINES = 60, 25, 35, 500

Graph = dict[str, set[str]]


@cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text("utf-8"))


def module_name(path: Path, root: Path) -> str:
    name = ".".join(path.relative_to(root).with_suffix("").parts)
    return name.removesuffix(".__init__")


def module_graph(root: Path, package: str) -> Graph:
    """Return which module of a package imports which other ones, anywhere in its file."""
    modules = {module_name(path, root): path for path in (root / package).rglob("*.py")}
    return {
        name: {other for other in imported_modules(tree(path), modules) if other != name}
        for name, path in modules.items()
    }


def imported_modules(module: ast.Module, modules: dict[str, Path]) -> Iterator[str]:
    for node in ast.walk(module):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in modules)
        elif isinstance(node, ast.ImportFrom) and node.module in modules:
            for alias in node.names:
                submodule = f"{node.module}.{alias.name}"
                yield submodule if submodule in modules else node.module


def reachable(graph: Graph, start: str) -> set[str]:
    """Return the modules that a module imports, directly or not."""
    reached: set[str] = set()
    pending = [start]
    while pending:
        new = graph[pending.pop()] - reached
        reached |= new
        pending += new
    return reached


def parts_graph() -> set[tuple[str, str]]:
    """Return which part of `recto` imports which other one; a part is a package or module directly below it."""
    pairs = (
        (name.split(".")[1], other.split(".")[1])
        for name, imported in module_graph(SOURCE, "recto").items()
        for other in imported
        if "." in name and "." in other
    )
    return {(part, other) for part, other in pairs if part != other}


@pytest.mark.parametrize(("root", "package"), [(SOURCE, "recto"), (ROOT, "bench")])
def test_no_two_modules_need_each_other(root: Path, package: str) -> None:
    graph = module_graph(root, package)
    assert {name for name in graph if name in reachable(graph, name)} == set()


def test_imports_point_down() -> None:
    assert {(part, other) for part, other in parts_graph() if RANKS[other] < RANKS[part]} == set()


def test_entry_points_share_only_the_core() -> None:
    between = {(part, other) for part, other in parts_graph() if RANKS[part] == RANKS[other] == 0}
    assert between <= BETWEEN_ENTRY_POINTS


def test_every_part_has_a_layer() -> None:
    folder = SOURCE / "recto"
    parts = {path.stem for path in folder.iterdir() if path.suffix == ".py" or path.is_dir()}
    assert parts - set(RANKS) <= {"__init__", "__pycache__", "sample"}


def test_functions_and_classes_are_small() -> None:
    modules = {module_name(path, SOURCE): [*large_definitions(tree(path))] for path in SOURCE.rglob("*.py")}
    assert {module: names for module, names in modules.items() if names} == {}


def large_definitions(module: ast.Module) -> Iterator[str]:
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    for node in ast.walk(module):
        if isinstance(node, functions):
            is_large = (node.end_lineno or 0) - node.lineno >= MAX_FUNCTION_LINES
        elif isinstance(node, ast.ClassDef):
            is_large = sum(isinstance(one, functions) for one in node.body) > MAX_METHODS
        else:
            continue
        if is_large:
            yield node.name


def test_no_file_is_long() -> None:
    lengths = {path.name: path.read_text("utf-8").count("\n") for path in (SOURCE / "recto").rglob("*.py")}
    assert {name: lines for name, lines in lengths.items() if lines > MAX_FILE_LINES} == {}


def test_the_public_api_is_small() -> None:
    assert len(recto.__all__) <= MAX_EXPORTS
