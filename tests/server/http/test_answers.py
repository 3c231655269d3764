"""Answers of a real service: the model is a double that streams, stalls, breaks off, invents and floods."""

from __future__ import annotations

import http.client
import json
import logging
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from recto.errors import ConfigurationError
from recto.search.query_log import read_query_log
from recto.server.http import ServeOptions, routes
from recto.server.http.answers import NOT_COVERED, CitationFilter
from recto.server.keys import add_key
from recto.settings import AnswerOptions, QueryLogOptions, Settings, load_settings
from tests.doubles.chat import ChatDouble, break_off, event, flood, stall
from tests.doubles.server import Fault, drop, hang, refused_url, rubbish, status
from tests.running import copy_home, wait_until
from tests.server.http.service import Reply, Service

QUESTION = {"query": "How is jam made?"}
UNRELATED = {"query": "Which clutch does a 1972 motorcycle have?"}
KEY = "sk-answers-0123456789"
Events = list[tuple[str, dict[str, Any]]]


def events(reply: Reply) -> Events:
    assert (reply.status, reply.headers["content-type"]) == (200, "text/event-stream; charset=utf-8")
    parts = [part.split("\n") for part in reply.body.decode().split("\n\n") if part]
    return [(name.removeprefix("event: "), json.loads(data.removeprefix("data: "))) for name, data in parts]


def text_of(received: Events) -> str:
    return "".join(data["text"] for name, data in received if name == "text")


@pytest.fixture(scope="module")
def chat() -> Iterator[ChatDouble]:
    with ChatDouble() as double:
        yield double


@pytest.fixture(autouse=True)
def normal(chat: ChatDouble) -> None:
    chat.text, chat.size, chat.pause = "Jam is fruit and sugar [1].", 4, 0.0
    chat.left.clear()


@pytest.fixture(scope="module")
def answer_settings(
    house_settings: Settings, chat: ChatDouble, tmp_path_factory: pytest.TempPathFactory
) -> Settings:
    """A home of its own, because answers are counted there."""
    root = tmp_path_factory.mktemp("answers")
    options = AnswerOptions(chat.base, "a-model", KEY, seconds=60, rate=1000)
    settings = replace(house_settings, answer=options, query_log=QueryLogOptions(root / "log"))
    return in_copy(settings, root)


def with_answers(settings: Settings, **answer: Any) -> Settings:
    return replace(settings, answer=replace(settings.answer, **answer))


def in_copy(settings: Settings, root: Path, **answer: Any) -> Settings:
    """Return settings with a copy of the home, where no answers are counted yet."""
    home = copy_home(settings.home, root / "home", "answers-*")
    return replace(with_answers(settings, **answer), home=home)


@pytest.fixture(scope="module", autouse=True)
def many_questions_at_once() -> Iterator[None]:
    """The tests of a fast machine ask more often than a visitor may."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("recto.server.http.answers._BURST", 1000)
        yield


@pytest.fixture(scope="module")
def asked(answer_settings: Settings) -> Iterator[Service]:
    with Service(answer_settings) as service:
        yield service


def test_an_answer_with_its_sections(asked: Service, chat: ChatDouble) -> None:
    received = events(asked.post("/v1/answer", QUESTION))
    assert [name for name, _ in received][:2] == ["sections", "text"]
    about = received[0][1]
    assert (about["query"], about["collection"], about["covered"]) == (QUESTION["query"], "house", True)
    assert [one["number"] for one in about["sections"]] == list(range(1, len(about["sections"]) + 1))
    assert "jam" in about["sections"][0]["text"].lower()
    assert about["sections"][0]["url"].startswith("local://")
    assert text_of(received) == "Jam is fruit and sugar [1]."
    assert received[-1] == ("end", {"cited": [1]})
    request = chat.requests[-1]
    assert request.headers["authorization"] == f"Bearer {KEY}"
    assert (request.body["model"], request.body["stream"]) == ("a-model", True)
    assert asked.post("/v1/search", QUESTION).json()["answers"] is True


def test_sections_are_framed_as_quotations(asked: Service, chat: ChatDouble) -> None:
    """The mark around each section is another one each time, so no page can end its quotation."""
    marks = set()
    for _ in range(2):
        sections = events(asked.post("/v1/answer", QUESTION))[0][1]["sections"]
        system, user = chat.prompt
        (mark,) = re.findall(r"the mark ([0-9a-f]{16})\.", system)
        marks.add(mark)
        for one in sections:
            begin, end = (f"--- {edge}section {one['number']} {mark} ---" for edge in ("", "end of "))
            assert user.partition(begin)[2].partition(end)[0] == f"\n{one['text']}\n"
        assert user.endswith(f"{QUESTION['query']}\n--- end of question {mark} ---")
        assert "jam" not in system.lower()
    assert len(marks) == 2


def test_earlier_questions_are_searched_and_sent(asked: Service, chat: ChatDouble) -> None:
    question = {"query": "And then?"}
    other = {"turns": [{"query": "How is a knife sharpened?"}]}
    about_other = events(asked.post("/v1/answer", question | other))[0][1]
    turns = [
        {"query": "Who lives here?"},
        QUESTION | {"answer": "Boil fruit [2] in `pots[1]`." + " So." * 999},
    ]
    received = events(asked.post("/v1/answer", question | {"turns": turns}))
    about = received[0][1]
    assert (about["query"], about["covered"]) == (question["query"], True)
    assert about_other["sections"][0]["headings"] != about["sections"][0]["headings"]
    assert "jam" in about["sections"][0]["text"].lower()
    mark = re.findall(r"question ([0-9a-f]{16}) ", chat.prompt[1])[0]
    earlier = chat.prompt[1].partition(f"--- earlier question {mark} ---\n")[2]
    jam = f"--- earlier question {mark} ---\n{QUESTION['query']}\n--- earlier answer {mark} ---\nBoil fruit in `pots[1]`. So."
    assert earlier.startswith(
        f"Who lives here?\n--- earlier answer {mark} ---\n\n--- end of earlier answer {mark} ---"
    )
    assert jam in earlier
    assert len(earlier) < 1500
    assert earlier.endswith(f"--- question {mark} ---\n{question['query']}\n--- end of question {mark} ---")


def test_earlier_questions_are_limited(asked: Service) -> None:
    long, empty = [{"query": "How long? " * 190 + "Jam?"}], [{"query": " "}]
    for wrong in (empty, [QUESTION] * 4, [QUESTION | {"answer": "a" * 12_001}], [{"answer": "a"}]):
        assert asked.post("/v1/answer", QUESTION | {"turns": wrong}).status in (400, 422)
    assert events(asked.post("/v1/answer", QUESTION | {"turns": long}))[-1][0] == "end"


@pytest.mark.parametrize(
    ("text", "kept", "cited"),
    [
        (
            "One [1]. Three [2, 77]. `list[9]` stays, [^98] goes.",
            "One [1]. Three [2]. `list[9]` stays, goes.",
            {1, 2},
        ),
        ("a [1-3] b", "a [1][2][3] b", {1, 2, 3}),
        ("a [2–9] b", "a [2][3][4] b", {2, 3, 4}),
        ("a [1][5] b", "a [1] b", {1}),
        ("a [99999999999] b", "a b", set()),
        ("a [note] [x1] b", "a [note] [x1] b", set()),
        ("```\nx[7]\n\ny[8]\n```\n[7]", "```\nx[7]\n\ny[8]\n```\n", set()),
        ("a stray ` here [7]\nnext [7] line", "a stray ` here [7]\nnext line", set()),
        ("ends with [", "ends with [", set()),
        ("ends with [1", "ends with [1", set()),
        ("``a`[7]`` [7]", "``a`[7]``", set()),
    ],
)
def test_invented_citations_are_removed(text: str, kept: str, cited: set[int]) -> None:
    """The result does not depend on how the text is cut into pieces."""
    for size in (1, 3, 100):
        citations = CitationFilter(4)
        parts = [citations.feed(text[at : at + size]) for at in range(0, len(text), size)]
        assert ("".join(parts) + citations.end(), citations.cited) == (kept, cited)


def test_not_covered_asks_no_model(asked: Service, chat: ChatDouble) -> None:
    before = len(chat.requests)
    received = events(asked.post("/v1/answer", UNRELATED))
    assert received[0][1]["covered"] is False
    assert received[0][1]["sections"], "the nearest sections"
    assert received[1:] == [("text", {"text": NOT_COVERED}), ("end", {"cited": []})]
    assert len(chat.requests) == before


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        (status(401, f"wrong key {KEY}"), "The model refused the question"),
        (status(429), "The model has too many requests"),
        (status(500), "The model refused the question"),
        (status(302, "", {"Location": "http://127.0.0.1:9/"}), "The model refused the question"),
        (rubbish(), "The model refused the question"),
        (drop(), "The model cannot be reached, or its answer broke off"),
        (flood(b"x" * 65536), "The model cannot be reached, or its answer broke off"),
        (stall(b"data: {not json\n\n"), "The model failed"),
        (stall(b'data: {"choices":[{"delta":{"content":5}}]}\n\n'), "The model failed"),
        (stall(b'data: {"error":{"message":"overloaded"}}\n\n'), "The model failed"),
        (stall(b"data: [DONE]\n\n"), "The model gave no answer"),
    ],
    ids=["401", "429", "500", "302", "html", "drop", "gigabytes", "json", "number", "error", "empty"],
)
def test_faults_become_clear_events(
    asked: Service, chat: ChatDouble, fault: Fault, message: str, caplog: pytest.LogCaptureFixture
) -> None:
    chat.script(fault)
    with caplog.at_level(logging.INFO):
        reply = asked.post("/v1/answer", QUESTION)
    assert events(reply)[-1] == ("error", {"error": message, "hint": "Try again."})
    assert KEY.encode() not in reply.body
    assert "no answer: " in caplog.text
    assert KEY not in caplog.text


def test_the_time_limit(answer_settings: Settings, chat: ChatDouble) -> None:
    """A model that is silent, stops, or keeps a connection busy with nothing."""
    chat.script(hang(), stall(event("Jam ")), flood(b": still thinking\n\n"))
    with Service(with_answers(answer_settings, seconds=1)) as service:
        for _ in range(3):
            received = events(service.post("/v1/answer", QUESTION))
            assert received[-1][1]["error"] == "There was no whole answer within 1 s"


def test_a_text_that_breaks_off_and_one_that_is_too_long(asked: Service, chat: ChatDouble) -> None:
    chat.script(break_off(chat), flood(event("word " * 100)))
    received = events(asked.post("/v1/answer", QUESTION))
    assert text_of(received).startswith("Jam is fruit")
    assert received[-1][1]["error"] == "The answer is not complete"
    received = events(asked.post("/v1/answer", QUESTION))
    assert len(text_of(received)) == 12_000
    assert received[-1][0] == "end"


def test_an_answer_may_take_longer_than_other_requests(
    asked: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    deadlines: list[float] = []
    monkeypatch.setattr(routes, "set_deadline", lambda _scope, seconds: deadlines.append(seconds))
    assert events(asked.post("/v1/answer", QUESTION))[-1][0] == "end"
    assert deadlines == [62], "60 for the model, as the settings say, and 2 for the rest"


def test_the_model_is_left_when_the_reader_leaves(asked: Service, chat: ChatDouble) -> None:
    chat.text, chat.pause = "word " * 2000, 0.02
    connection = http.client.HTTPConnection("127.0.0.1", asked.port, timeout=30)
    connection.request("POST", "/v1/answer", json.dumps(QUESTION), {"Content-Type": "application/json"})
    response = connection.getresponse()
    while b"word" not in response.readline():
        pass
    connection.close()
    assert chat.left.wait(10)


def test_a_model_that_is_not_there(answer_settings: Settings) -> None:
    with Service(with_answers(answer_settings, url=refused_url())) as service:
        reply = service.post("/v1/answer", QUESTION)
    assert events(reply)[-1][1]["error"] == "The model cannot be reached, or its answer broke off"
    assert b"127.0.0.1" not in reply.body


def test_rate_and_budget(answer_settings: Settings, tmp_path: Path) -> None:
    own = in_copy(answer_settings, tmp_path)
    (own.home / "answers-2020-01-01").write_text("...")
    with Service(with_answers(own, rate=1)) as service:
        assert service.post("/v1/answer", QUESTION).status == 200
        refused = service.post("/v1/answer", QUESTION)
        assert (refused.status, refused.error) == (429, "Too many questions")
        assert 1 <= int(refused.headers["retry-after"]) <= 60
        assert service.post("/v1/search", QUESTION).status == 200, "the search works on"
    with Service(with_answers(own, daily=2)) as service:
        assert service.post("/v1/answer", QUESTION).status == 200, "one was counted before the restart"
        spent = service.post("/v1/answer", QUESTION)
        assert (spent.status, spent.error) == (429, "Today's answers are used up")
        assert int(spent.headers["retry-after"]) <= 86_400
        assert events(service.post("/v1/answer", UNRELATED))[0][1]["covered"] is False, "costs nothing"
    assert len(list(own.home.glob("answers-*"))) == 1


def test_an_answer_counts_as_ten_requests(answer_settings: Settings) -> None:
    with Service(answer_settings, ServeOptions(rate=1)) as service:
        assert service.post("/v1/answer", QUESTION).status == 200
        assert service.post("/v1/search", QUESTION).status == 429


@pytest.mark.parametrize(("scope", "expected"), [("search", 200), ("admin", 403)])
def test_which_keys_may_ask(answer_settings: Settings, tmp_path: Path, scope: Any, expected: int) -> None:
    own, admin = in_copy(answer_settings, tmp_path, scope=scope), "an-admin-key-0123456789"
    _, text = add_key(own.home, "site", "search", ["https://book.example"], ["house"])
    with Service(own, ServeOptions(keys=(admin,))) as service:
        sent = {"Authorization": f"Bearer {text}", "Origin": "https://book.example"}
        reply = service.post("/v1/answer", QUESTION, **sent)
        assert reply.status == expected
        assert service.post("/v1/search", QUESTION, **sent).json()["answers"] is (expected == 200)
        assert service.post("/v1/answer", QUESTION, Authorization=f"Bearer {admin}").status == 200
        assert service.post("/v1/answer", QUESTION).status == 401
        sent["Origin"] = "https://evil.example"
        assert service.post("/v1/answer", QUESTION, **sent).status == 403


def test_questions_and_feedback_are_logged(asked: Service, answer_settings: Settings) -> None:
    log = answer_settings.query_log.directory
    assert log
    question = {"query": "How long is jam boiled?"}
    for body in (question, question | {"log": False}):
        assert asked.post("/v1/answer", body).status == 200
    assert asked.post("/v1/answer/feedback", question | {"helpful": False}).status == 204

    def entries() -> list[dict[str, Any]]:
        return [one for one in read_query_log(log) if one.get("query") == question["query"]]

    wait_until(lambda: log.is_dir() and len(entries()) == 2, 30)
    assert [(one.get("via"), one.get("helpful")) for one in entries()] == [("answer", None), (None, False)]


def test_settings_and_an_untrusted_dotenv(tmp_path: Path) -> None:
    base = {"HOME": str(tmp_path), "RECTO_ANSWER_URL": "https://llm.example/v1", "RECTO_ANSWER_API_KEY": KEY}
    with pytest.raises(ConfigurationError, match="RECTO_ANSWER_MODEL is required"):
        load_settings(base, tmp_path)
    settings = load_settings({**base, "RECTO_ANSWER_MODEL": "m", "RECTO_ANSWER_DAILY": "7"}, tmp_path)
    assert (settings.answer.model, settings.answer.daily, settings.answer.api_key) == ("m", 7, KEY)
    assert KEY in settings.secrets
    assert KEY not in repr(settings)
    assert "https://llm.example" in settings.addresses
    plain = {**base, "RECTO_ANSWER_MODEL": "m", "RECTO_ANSWER_URL": "http://llm.example/v1"}
    with pytest.raises(ConfigurationError, match="over plain http"):
        load_settings(plain, tmp_path)
    # Neither the address nor anything else of the answers comes from a cloned repository.
    (tmp_path / ".env").write_text("RECTO_ANSWER_URL=https://evil.example/v1\nRECTO_ANSWER_MODEL=m\n")
    settings = load_settings({"HOME": str(tmp_path), "RECTO_ANSWER_API_KEY": KEY}, tmp_path)
    assert settings.answer.url == settings.answer.api_key == ""
    ignored = {warning.split()[0] for warning in settings.variables.warnings}
    assert ignored == {"RECTO_ANSWER_MODEL", "RECTO_ANSWER_URL"}


def test_answers_at_a_time_are_limited(asked: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("recto.server.http.answers._MAX_RUNNING", 0)
    refused = asked.post("/v1/answer", QUESTION)
    assert (refused.status, refused.error) == (503, "Too many answers are being written")
