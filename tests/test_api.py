"""The public API: every name that a user meets is in `recto`, and wrong values are ValueErrors with a hint."""

from __future__ import annotations

import ast
import asyncio
import inspect
import json
import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import is_dataclass
from functools import partial
from importlib import import_module
from pathlib import Path
from types import FunctionType
from typing import Any

import pytest

import recto
from recto.protocols import Embedder
from recto.search.retriever import Retriever
from recto.settings import Settings
from scripts import make_stubs
from tests.running import ROOT

TYPES = {name: value for name in recto.__all__ if inspect.isclass(value := getattr(recto, name))}
FUNCTIONS = {name: value for name in recto.__all__ if isinstance(value := getattr(recto, name), FunctionType)}
REFERENCE = (ROOT / "docs" / "reference" / "python.md").read_text("utf-8")


def annotated(value: Any) -> Iterator[tuple[str, str]]:
    """Yield the annotations of a function, or of the public members of a class, and where they are."""
    if isinstance(value, FunctionType):
        for name, annotation in inspect.get_annotations(value).items():
            yield f"{value.__qualname__}({name})", str(annotation)
        return
    for name, annotation in inspect.get_annotations(value).items():
        if not name.startswith("_"):
            yield f"{value.__qualname__}.{name}", str(annotation)
    for name, member in vars(value).items():
        function = member.fget if isinstance(member, property) else getattr(member, "__func__", member)
        if isinstance(function, FunctionType) and not name.startswith("_"):
            yield from annotated(function)


@pytest.mark.parametrize("name", [*TYPES, *FUNCTIONS])
def test_every_type_in_a_public_signature_is_documented(name: str) -> None:
    for where, annotation in annotated(getattr(recto, name)):
        nodes = ast.walk(ast.parse(annotation, mode="eval"))
        names = {node.id for node in nodes if isinstance(node, ast.Name)}
        own = {name for name in names if (find_module(name) or "").startswith("recto")}
        assert {name for name in own if not re.search(rf"`{name}\b", REFERENCE)} == set(), where


def find_module(name: str) -> str | None:
    """Return the module that defines a class of this name."""
    modules = [module for path, module in sys.modules.items() if path.startswith("recto.")]
    homes = (getattr(module, name, None) for module in modules)
    return next((home.__module__ for home in homes if inspect.isclass(home)), None)


def test_the_reference_names_the_module_of_each_name() -> None:
    rows = re.findall(r"^\| `(recto\.[\w.]+)` \| (.+?) \|", REFERENCE, re.MULTILINE)
    documented = {(module, name) for module, names in rows for name in re.findall(r"`(\w+)`", names)}
    assert documented
    assert [one for one in documented if not hasattr(import_module(one[0]), one[1])] == []


@pytest.mark.parametrize("package", make_stubs.PACKAGES)
def test_type_checkers_see_the_names_that_the_package_loads(package: str) -> None:
    assert make_stubs.stub_path(package).read_text("utf-8") == make_stubs.build(package)


def test_every_name_exists() -> None:
    assert recto.__all__ == sorted(set(recto.__all__)) == dir(recto)
    for name in recto.__all__:
        assert getattr(recto, name) is not None
    with pytest.raises(AttributeError, match="has no attribute 'conect'"):
        recto.conect  # type: ignore[attr-defined] # noqa: B018


def test_values_are_frozen() -> None:
    values = [value for value in TYPES.values() if is_dataclass(value)]
    assert values
    assert [value for value in values if not value.__dataclass_params__.frozen] == []  # type: ignore[attr-defined]


WRONG_SEARCHES: dict[str, list[Any]] = {
    "query": [" ", "\n\t", "\u00a0\u2003", "x" * 2001, 5],
    "top_k": [0, 101, "5", True],
    "mode": ["fuzzy"],
    "filters": [
        *({"chapter": "1"}, "ros2", None, {"module": 5}, {"module": [5]}, {"module": [" "]}, {"url": 5}),
        *({"url": ""}, recto.Filters(modules="ros2")),  # type: ignore[arg-type]
        *(recto.Filters(("\ud800",)), recto.Filters((), "local://\udfff")),
    ],
    "min_score": ["high", [], 2000, float("nan")],
    "group_by": ["module"],
}


@pytest.mark.parametrize(
    ("name", "value"), [(name, one) for name in WRONG_SEARCHES for one in WRONG_SEARCHES[name]]
)
def test_wrong_values_of_a_search(retriever: Retriever, name: str, value: Any) -> None:
    values = {"query": "What is ROS 2?", name: value}
    query = values.pop("query")
    assert_value_error(lambda: retriever.search(query, **values))
    assert_value_error(lambda: retriever.search_batch([query], **values))
    assert_value_error(lambda: asyncio.run(retriever.asearch(query, **values)))
    assert_value_error(lambda: asyncio.run(retriever.asearch_batch([query], **values)))
    if name != "group_by" and value != "x" * 2001:
        assert_value_error(lambda: retriever.related(query, **values))
        assert_value_error(lambda: asyncio.run(retriever.arelated(query, **values)))


def test_wrong_queries_pages_and_selections(retriever: Any) -> None:
    for queries in ("What is ROS 2?", 5, None, [None], ["fine", ""]):
        assert_value_error(partial(retriever.search_batch, queries))
    assert_value_error(lambda: retriever.page(""))
    assert_value_error(lambda: retriever.page(None))
    assert_value_error(lambda: retriever.related("a selected text", 5))
    assert_value_error(lambda: retriever.analyze(""))


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings("local", "edge", tmp_path / "home")


@pytest.mark.parametrize("collection", ["", "a b", "../x", "x" * 129, 5])
def test_wrong_names_of_collections(settings: Settings, small_book: Path, collection: Any) -> None:
    assert_value_error(lambda: recto.connect(collection, settings=settings))
    assert_value_error(lambda: recto.index(small_book, collection, settings=settings))
    assert_value_error(lambda: recto.TextbookRetriever(collection, settings=settings))
    assert_value_error(lambda: recto.evaluate(_suite(small_book), collection=collection, settings=settings))


WRONG_LOCATIONS: list[tuple[Any, dict[str, Any]]] = [
    *((location, {}) for location in ("nowhere", "", "a\0b", "s3://bucket", "https://", 5, None)),
    *(("https://example.org", one) for one in ({"max_pages": 0}, {"delay": -1}, {"locale": "de"})),
    *((".", one) for one in ({"site_url": "example"}, {"delay": 1}, {"version": "1.0"})),
]


@pytest.mark.parametrize(("location", "options"), WRONG_LOCATIONS)
def test_wrong_locations(
    settings: Settings, small_book: Path, monkeypatch: pytest.MonkeyPatch, location: Any, options: Any
) -> None:
    monkeypatch.chdir(small_book)
    chosen = recto.SourceOptions(**options)
    assert_value_error(lambda: recto.index(location, options=chosen, settings=settings))
    assert_value_error(lambda: asyncio.run(recto.aindex(location, options=chosen, settings=settings)))


WRONG_EVALUATIONS: list[tuple[str, Any]] = [
    *(("suite", value) for value in ("nowhere.json", None, 5)),
    *(("top_k", value) for value in (0, 1000)),
    *(("measures", [value]) for value in ("nDCG@0", "quality")),
    ("mode", "fuzzy"),
    ("collection", "another"),
]


@pytest.mark.parametrize(("name", "value"), WRONG_EVALUATIONS)
def test_wrong_values_of_an_evaluation(retriever: Retriever, small_book: Path, name: str, value: Any) -> None:
    arguments = {"suite": _suite(small_book), "retriever": retriever, name: value}
    assert_value_error(lambda: recto.evaluate(**arguments))
    assert_value_error(lambda: asyncio.run(recto.aevaluate(**arguments)))


def test_index_connect_and_evaluate(tmp_path: Path, small_book: Path, embedder: Embedder) -> None:
    settings = Settings("local", "edge", tmp_path / "home", threads=2)
    seen: list[recto.IndexProgress] = []
    plan = recto.index(small_book, "garden", dry_run=True, settings=settings)
    assert (plan.published, plan.plan.chunks) == (False, 4)
    report = recto.index(small_book, "garden", progress=seen.append, settings=settings)
    assert (report.published, report.info.chunks) == (True, 4)
    assert seen[-1].done == 4
    with recto.connect("garden", settings=settings) as retriever:
        response = retriever.search("When are beans sown?", top_k=1, filters={"module": "garden"})
        assert response.hits[0].chunk.title == "Seeds"
        assert retriever.search("beans", filters={}).hits == retriever.search("beans").hits
        run = recto.evaluate(_suite(small_book), retriever=retriever, measures=["Hit@1"])
    assert (run.passed, list(run.scores())) == (1, ["Hit@1"])
    again = asyncio.run(recto.aevaluate(_suite(small_book), collection="garden", settings=settings))
    assert again.passed == 1


def _suite(book: Path) -> Path:
    file = book.parent / "questions.json"
    expected = {"query": "When are beans sown?", "expect": {"page": "module-1-garden/02-seeds"}}
    file.write_text(json.dumps({"queries": [expected]}))
    return file


def assert_value_error(call: Callable[[], object]) -> None:
    with pytest.raises(ValueError) as caught:
        call()
    assert isinstance(caught.value, recto.RectoError), repr(caught.value)
    assert caught.value.message
    assert caught.value.hint
