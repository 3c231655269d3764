"""One request, one table of options, one table of fields: every entry point reads them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from recto.errors import InvalidArgument
from recto.search.query import make_options, make_request
from recto.search.retriever import Retriever
from recto.types.request import OPTIONS, SearchOptions, SearchRequest, options_of
from recto.types.search import HIT_FIELDS, Filters

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "recto"
REFERENCE = (ROOT / "docs" / "reference" / "search.md").read_text("utf-8")


def test_options_make_the_request() -> None:
    request = make_request(
        " nodes ", top_k=3, module="ros2", url="local://a", lang="de-AT", version="2.0", prefer="3.0, ur"
    )
    filters = Filters(("ros2",), "local://a", "de", ("2.0",), preferred=("3.0", "ur"))
    assert request == SearchRequest("nodes", top_k=3, filters=filters)
    assert make_request(request, mode="dense") == SearchRequest("nodes", 3, "dense", filters)
    assert make_options(filters={"module": ["a", "b"]}).filters.modules == ("a", "b")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"top_k": 0}, "top_k must be between 1 and 100"),
        ({"section_tokens": 99}, "section_tokens must be between 100 and 100000"),
        ({"group_by": "module"}, 'group_by must be "page" or None'),
        ({"min_score": 2, "mode": "dense"}, "min_score must be between -1 and 1"),
        ({"lang": "?"}, "'[?]' is not a language"),
        ({"tok_k": 3}, "There is no search option 'tok_k'"),
        ({"filters": {"modul": "ros2"}}, "There is no filter 'modul'"),
    ],
)
def test_wrong_options_are_errors(options: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidArgument, match=said):
        make_request("nodes", **options)


def test_every_option_is_a_keyword_argument() -> None:
    assert {option.name for option in OPTIONS} | {"filters"} == set(SearchOptions.__annotations__)


def documented(section: str) -> dict[str, tuple[str, ...]]:
    """Return the rows of a table in the reference, by the names in their first cell."""
    table = re.search(rf"^## {section}\n(.*?)(?:^## |\Z)", REFERENCE, re.MULTILINE | re.DOTALL)
    assert table
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in re.findall(r"^\| `.*$", table[1], re.MULTILINE)
    ]
    return {name: tuple(row[1:]) for row in rows for name in re.findall(r"`(\w+)`", row[0])}


def test_the_reference_has_every_option_and_field() -> None:
    options = documented("Options")
    assert {name: row[0].strip("`") for name, row in options.items()} == {
        option.name: option.flag for option in OPTIONS
    }
    fields = documented("Fields")
    assert set(fields) == {field.name for field in HIT_FIELDS}
    for field in HIT_FIELDS:
        views = set(fields[field.name][0].split(", "))
        assert views <= set(field.views), field.name


def files_with(name: str) -> set[str]:
    """Return the source files that name an option or a field."""
    pattern = re.compile(rf"\b{name}\b")
    return {
        path.relative_to(SOURCE).as_posix()
        for path in SOURCE.rglob("*.py")
        if pattern.search(path.read_text("utf-8"))
    }


def test_a_new_option_or_field_touches_few_files() -> None:
    """CONTRIBUTING lists six files for each: two or three of them are source files."""
    assert files_with("section_tokens") == {
        "types/request.py",
        "types/search.py",
        "search/retriever.py",
        "search/context.py",
    }
    assert files_with("section_text") <= {
        "types/search.py",
        "search/context.py",
        "types/request.py",
        "integrations/__init__.py",
    }
    guide = (ROOT / "CONTRIBUTING.md").read_text("utf-8")
    for example in ("Add a search option", "Add a field of a hit"):
        section = guide.partition(f"## {example}\n")[2].partition("\n## ")[0]
        files = re.findall(r"^\| `([^`]+)`", section, re.MULTILINE)
        assert 0 < len(files) <= 6, example
        assert [file for file in files if not (ROOT / file).exists()] == []


@pytest.mark.parametrize("operation", ["search", "batch", "related"])
def test_the_http_models_have_the_options(operation: Any) -> None:
    from recto.server.http import models

    bodies: dict[str, type[BaseModel]] = {
        "search": models.SearchBody,
        "batch": models.BatchBody,
        "related": models.RelatedBody,
    }
    model = bodies[operation]
    names = {option.name for option in options_of("http", operation)}
    assert names <= set(model.model_fields)


def test_related_chunks_are_not_grouped(retriever: Retriever) -> None:
    for options in ({"group_by": "page"}, {"section_tokens": 200}):
        given: Any = options
        with pytest.raises(InvalidArgument, match="does not support group_by and section_tokens"):
            retriever.related("A node is a process.", **given)
