"""The query log of a real service: what it logs, and what it does not."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from recto.search.query_log import read_query_log
from recto.server.http import ServeOptions
from recto.settings import QueryLogOptions, Settings
from tests.running import wait_until
from tests.server.http.service import Service

JAM = {"query": "How is jam made?", "top_k": 2}


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("query-log") / "log"


@pytest.fixture(scope="module")
def logging_service(house_settings: Settings, log: Path) -> Iterator[Service]:
    settings = replace(house_settings, query_log=QueryLogOptions(log))
    with Service(settings, ServeOptions(collections=("house",))) as service:
        yield service


def entries(log: Path, count: int) -> list[dict[str, Any]]:
    """Return the last entries as soon as there are at least so many."""
    wait_until(lambda: log.is_dir() and len(list(read_query_log(log))) >= count, 30)
    return list(read_query_log(log))


def test_what_a_service_logs(logging_service: Service, log: Path) -> None:
    """Searches, questions about a selection and clicks; no selection alone, and no search while typing."""
    service = logging_service
    answered = service.post("/v1/search", JAM, **{"X-Request-Id": "visitor-1", "Cookie": "id=visitor-1"})
    assert answered.json()["query_log"] is True
    assert service.post("/v1/search", {"query": "How is ja", "log": False}).json()["query_log"] is True
    assert service.get("/v1/search?q=How+is+j&log=false").status == 200
    assert service.post("/v1/related", {"selection": "Fruit and sugar are boiled."}).status == 200
    asked = {"selection": "Fruit and sugar are boiled.", "question": "for how long?"}
    assert service.post("/v1/related", asked).status == 200
    assert service.post("/v1/batch", {"queries": ["soil", "bread"]}).status == 200
    assert service.post("/retrieve", {"query": "beans"}).status == 200
    opened = {"query": JAM["query"], "url": answered.json()["results"][0]["url"], "rank": 1}
    clicked = service.post("/v1/click", opened)
    assert (clicked.status, clicked.body) == (204, b"")
    found = entries(log, 6)
    assert [(one.get("via"), one["query"]) for one in found] == [
        ("search", "How is jam made?"),
        ("related", "for how long?"),
        ("batch", "soil"),
        ("batch", "bread"),
        ("retrieve", "beans"),
        (None, "How is jam made?"),
    ]
    assert found[0]["hits"][0]["url"] == found[-1]["click"] == opened["url"]
    assert found[0]["covered"] is True
    text = "".join(path.read_text("utf-8") for path in log.iterdir())
    assert "visitor-1" not in text
    assert "127.0.0.1" not in text


@pytest.mark.parametrize(
    "change", [{"rank": 0}, {"rank": 201}, {"url": " "}, {"url": "x" * 2001}, {"query": ""}, {"more": 1}]
)
def test_an_invalid_click_is_refused(logging_service: Service, change: dict[str, object]) -> None:
    click = {"query": "jam", "url": "local://docs/docs/module-2-kitchen/03-jam", "rank": 1}
    assert logging_service.post("/v1/click", click | change).status == 400


def test_without_a_log_a_click_is_ignored(service: Service) -> None:
    assert service.post("/v1/click", {"query": "jam", "url": "local://a", "rank": 1}).status == 204
    assert service.post("/v1/search", {"query": "ROS 2"}).json()["query_log"] is False
