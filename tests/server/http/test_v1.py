"""Test `/v1`: it returns what the library returns; browsers can cache it, and language models can read it."""

from __future__ import annotations

import json
import re
import shlex
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

import pytest
import yaml

from recto.book.sources.options import SiteOptions
from recto.book.sources.tree import open_book
from recto.protocols import Embedder
from recto.search.display import response_to_dict, response_words
from recto.search.query_log import read_query_log
from recto.search.retriever import Retriever
from recto.settings import QueryLogOptions, Settings
from recto.stores.edge import EdgeStore
from recto.testing.parts import chunk, fingerprint
from recto.types.search import NO_FILTERS, Filters
from tests.book.files import write
from tests.running import recto
from tests.search import test_editions
from tests.server.http.service import Reply, Service, indexed, served

PAGE = "local://docs/docs/module-1-ros2/03-humanoid-urdf"
INTRO = "local://docs/docs/intro"
SEARCHES: list[tuple[dict[str, Any], Filters]] = [
    ({"query": "What is ROS 2?", "top_k": 3}, NO_FILTERS),
    ({"query": "QoS depth", "mode": "dense"}, NO_FILTERS),
    ({"query": "QoS depth", "mode": "lexical"}, NO_FILTERS),
    ({"query": "quaternoin"}, NO_FILTERS),
    ({"query": "best pizza in Naples"}, NO_FILTERS),
    ({"query": "QoS profiles", "top_k": 3, "group_by": "page"}, NO_FILTERS),
    ({"query": "sensors", "module": ["simulation", "module-3-isaac"]}, Filters(("simulation", "isaac"))),
    ({"query": "sensors", "module": "simulatoin"}, Filters(("simulatoin",))),
    ({"query": "joint limits", "url": f"{PAGE}.md/"}, Filters((), PAGE)),
    ({"query": "sensors", "min_score": 2.0}, NO_FILTERS),
]


@pytest.mark.parametrize(("body", "filters"), SEARCHES)
def test_searches(service: Service, retriever: Retriever, body: dict[str, Any], filters: Filters) -> None:
    """The service returns what the library returns; other queries in the same batch change the last digits."""
    options = {name: value for name, value in body.items() if name not in ("query", "module", "url")}
    response = retriever.search(body["query"], filters=filters, **options)
    expected = response_to_dict(response, response_words(retriever, response))
    reply = service.post("/v1/search", body).json()
    own = {"collection": "humanoid_robotics_book", "query_log": False, "answers": False}
    rounded: dict[str, None] = dict.fromkeys(("answerable", "results", "groups", "timings"))
    assert reply | rounded == expected | own | rounded
    scores: dict[str, None] = dict.fromkeys(("score", "dense", "lexical"))
    assert [hit | scores for hit in reply["results"]] == [hit | scores for hit in expected["results"]]
    for name in scores:
        values = [hit[name] for hit in expected["results"]]
        assert [hit[name] for hit in reply["results"]] == pytest.approx(values, abs=1e-4)
    assert [group["ranks"] for group in reply["groups"]] == [group["ranks"] for group in expected["groups"]]


def test_a_collection_without_lexical_vectors(tmp_path: Path, embedder: Embedder) -> None:
    chunks = [chunk(0), chunk(1)]
    vectors = embedder.embed_documents([one.text for one in chunks])
    with EdgeStore(tmp_path).build("plain", embedder.fingerprint) as build:
        build.add(chunks, vectors)
        build.publish(fingerprint(embedder=embedder.fingerprint))
    with Service(served(tmp_path, "plain")) as service:
        body = service.post("/v1/search", {"query": chunks[0].text}).json()
        assert (body["mode"], len(body["results"])) == ("dense", 2)
        assert body["results"][0]["matches"], "words are marked without a vocabulary, too"
        assert [("dense mode" in warning) for warning in body["warnings"]] == [True]
        assert service.post("/v1/search", {"query": "robot"}).json()["warnings"] == [], "it is said once"
        refused = service.post("/v1/search", {"query": "robot", "mode": "lexical"})
        assert (refused.status, refused.error) == (400, "This collection has no lexical vectors")
        assert "dense" in refused.json()["hint"]


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"top_k": 101}, "top_k must be at most 100"),
        ({"module": [" "]}, "cannot be empty"),
        ({"min_score": 1.5, "mode": "dense"}, "min_score must be between -1 and 1"),
        ({"min_score": "0.5"}, "min_score must be a number"),
        ({"mode": "fast"}, "mode must be 'hybrid', 'dense' or 'lexical'"),
    ],
)
def test_invalid_parameters(service: Service, more: dict[str, object], words: str) -> None:
    reply = service.post("/v1/search", {"query": "robot", **more})
    assert reply.status == 400
    assert words in reply.error
    assert "--" not in reply.error, "there are no flags here"


def test_a_context(service: Service, retriever: Retriever) -> None:
    page = "local://docs/docs/module-1-ros2/04-dds-and-qos"
    query = "How do nodes exchange messages?"
    body = {"query": query, "max_tokens": 600, "page": page, "module": ["ros2"]}
    found = service.post("/v1/context", body).json()
    expected = retriever.context(query, 600, page=page, module="ros2")
    assert [section["text"] for section in found["sections"]] == [
        section.text for section in expected.sections
    ]
    assert [section["url"] for section in found["sections"]] == [section.url for section in expected.sections]
    assert (found["tokens"], found["page_used"]) == (expected.tokens, expected.page_used)
    assert found["tokens"] <= found["max_tokens"] == 600
    assert (found["coverage"], found["covered"]) == ("covered", True)
    assert service.post("/v1/context", {"query": "nodes", "max_tokens": 10}).status == 400
    assert service.post("/v1/context", {"query": "nodes", "url": page}).status == 400, (
        "there is no such field"
    )


def test_a_selected_text(service: Service, retriever: Retriever) -> None:
    selection = retriever.search("What is ROS 2?", top_k=1).hits[0].chunk.text[:300]
    body = service.post("/v1/related", {"selection": selection, "top_k": 3}).json()
    assert body["selection"]["left_out"] >= 1, "what holds the selection"
    hits = retriever.related(selection, None, top_k=3).hits
    assert [result["id"] for result in body["results"]] == [hit.chunk.id for hit in hits]
    question = {"selection": selection, "question": "How is it secured?", "module": ["ros2"]}
    asked = service.post("/v1/related", question).json()
    assert {result["module"] for result in asked["results"]} == {"ros2"}
    blank = service.post("/v1/related", {"selection": selection, "top_k": 3, "question": " \n"}).json()
    assert blank["results"] == body["results"], "blank is no question"
    assert body["results"][0]["matches"] == [], "a selected text without a question has no words to mark"
    long = service.post("/v1/related", {"selection": "A robot walks. " * 2000}).json()
    assert long["selection"]["given"] > len(long["selection"]["text"])


def test_batch(service: Service) -> None:
    questions = ["What is ROS 2?", "robot navigation"]
    body = service.post("/v1/batch", {"queries": questions, "top_k": 2}).json()
    for question, answer in zip(questions, body["responses"], strict=True):
        alone = service.post("/v1/search", {"query": question, "top_k": 2}).json()
        assert answer["query"] == question
        assert [one["id"] for one in alone["results"]] == [one["id"] for one in answer["results"]]
    assert service.post("/v1/batch", {"queries": []}).error == "queries must have at least 1 entries"
    assert service.post("/v1/batch", {"queries": ["a"] * 33}).error == "queries must have at most 32 entries"
    assert service.post("/v1/batch", {"queries": ["a", " "]}).error == "Query cannot be empty"


def test_the_book_its_modules_and_pages(service: Service, retriever: Retriever) -> None:
    (sample,) = (one for one in service.get("/v1/collections").json()["collections"] if one["default"])
    assert (sample["title"], sample["logo"]) == ("Physical AI and Humanoid Robotics", None)
    modules = service.get("/v1/modules").json()
    assert {entry["name"]: entry["chunks"] for entry in modules["modules"]} == retriever.open().modules()
    pages = service.get("/v1/pages").json()
    assert sum(entry["chunks"] for entry in pages["pages"]) == retriever.open().info.chunks
    assert sum(entry["pages"] for entry in modules["modules"]) == len(pages["pages"])
    only = service.get("/v1/pages?module=ros2").json()["pages"]
    assert only == [entry for entry in pages["pages"] if entry["module"] == "ros2"] != []
    assert service.get("/v1/pages?module=module-1-ros2").json()["pages"] == only, "by all its names"
    unknown = service.get("/v1/pages?module=ros-two")
    assert (unknown.status, unknown.error) == (404, "There is no module 'ros-two'")
    names = ", ".join(entry["name"] for entry in modules["modules"])
    assert unknown.json()["hint"] == f"Did you mean 'ros2'? Modules: {names}."


def test_page(service: Service) -> None:
    for entry in service.get("/v1/pages").json()["pages"][:3]:
        body = service.get(f"/v1/pages/{quote(entry['url'], safe='')}").json()
        assert body["title"] == entry["title"]
        assert [result["chunk_index"] for result in body["chunks"]] == list(range(entry["chunks"]))
    assert service.get(f"/v1/pages/{INTRO}/").json()["url"] == INTRO, "spelled as people do"
    gone = service.get(f"/v1/pages/{quote('local://docs/docs/intr0', safe='')}")
    assert gone.status == 404
    assert INTRO in gone.json()["hint"]
    assert service.get("/v1/pages/").status == 400
    assert service.get("/v1/pages/%FF%FE").status == 404
    assert service.get(f"/v1/pages/{quote(INTRO, safe='')}?collection=nope").status == 404


def test_health(house_service: Service, house_settings: Settings) -> None:
    shutil.rmtree(house_settings.home / "reports", ignore_errors=True)  # of other tests
    body = house_service.get("/v1/health").json()
    assert (body["coverage"], body["suite"]) == (None, None)
    assert "run `recto coverage " in body["advice"][-2]
    assert "then run `recto validate --suite questions.json --collection house`." in body["advice"][-1]
    assert body["index"]["chunks"] == body["validation"]["vector_count"]
    house_service.post("/v1/search", {"query": "beans"})
    latency = house_service.get("/v1/health").json()["latency"]
    assert latency["requests"] >= 1
    assert latency["p50_ms"] <= latency["p95_ms"]
    assert latency["steps"]["embed"]["p50"] > 0
    missing = house_service.get("/v1/health?collection=physical-ai-book").json()
    assert missing["index"] is None
    assert missing["validation"]["collection_exists"] is False


def test_health_shows_the_last_reports(house_service: Service, house_settings: Settings) -> None:
    modules = {"When are beans sown?": "garden", "How is a rose grafted?": "kitchen"}
    queries = [{"query": query, "expect": {"module": module}} for query, module in modules.items()]
    suite = house_settings.home.parent / "questions.json"
    suite.write_text(json.dumps({"name": "house", "queries": queries}))
    measured = recto(house_settings.home, "coverage", "--collection", "house", "--json")
    assert measured.returncode == 0, measured.stderr
    arguments = ("validate", "--suite", str(suite), "--collection", "house", "--top-k", "3")
    assert recto(house_settings.home, *arguments).returncode == 5
    body = house_service.get("/v1/health").json()
    coverage, told = body["coverage"], json.loads(measured.stdout)
    assert coverage["current"]
    assert (coverage["reached"], coverage["total"]) == (told["reached"], told["sections"])
    states = [section["state"] for page in coverage["pages"] for section in page["sections"]]
    assert len(states) == coverage["total"]
    assert states.count("unreachable") == len(told["unreachable"])
    suite_run = body["suite"]
    assert suite_run["current"]
    assert (suite_run["name"], suite_run["passed"], suite_run["total"]) == ("house", 1, 2)
    assert [failed["query"] for failed in suite_run["failed"]] == ["How is a rose grafted?"]
    assert suite_run["measures"]
    assert not [sentence for sentence in body["advice"] if "coverage" in sentence or "validate" in sentence]
    kept = house_settings.home / "reports" / "house" / "suite.json"
    kept.write_text(kept.read_text().replace("gen-000001", "gen-000000"))
    (advice,) = [one for one in house_service.get("/v1/health").json()["advice"] if "older index" in one]
    command = shlex.split(advice.split("`")[1])
    assert command == ["recto", *arguments]
    assert recto(house_settings.home, *arguments).returncode == 5
    assert house_service.get("/v1/health").json()["suite"]["current"], "the command repeats the run"


def test_get_and_post_return_the_same(service: Service) -> None:
    same = {"top_k": 3, "module": ["ros2", "intro"], "mode": "lexical", "min_score": 0.5, "group_by": "page"}
    posted = service.post("/v1/search", same | {"query": "What is ROS 2?", "html": True}).json()
    parameters = urlencode(same | {"q": "What is ROS 2?", "html": "true"}, doseq=True)
    got = service.get(f"/v1/search?{parameters}")
    assert got.status == 200
    assert posted["results"]
    assert got.json() | {"timings": None} == posted | {"timings": None}


def test_searches_are_cached(service: Service) -> None:
    path = "/v1/search?q=robot&module=ros2&module=intro"
    first = service.get(path)
    tag = first.headers["etag"]
    assert tag.startswith('W/"')
    assert first.headers["cache-control"] == "private, no-cache"
    assert set(", ".join(first.repeated["vary"]).split(", ")) == {"Authorization", "X-API-Key", "Origin"}
    searches = rb'recto_step_seconds_count{step="search"} [0-9.]+'
    before = re.findall(searches, service.get("/metrics").body)
    for sent in (tag, tag.removeprefix("W/"), f'"other", {tag}', "*"):
        again = service.get(path, **{"If-None-Match": sent})
        assert (again.status, again.body, again.headers["etag"]) == (304, b"", tag)
        assert again.headers["cache-control"] == "private, no-cache"
    assert re.findall(searches, service.get("/metrics").body) == before, "a 304 is sent without a search"
    default = f"{path}&top_k=5&collection=humanoid_robotics_book"
    for other in ("/v1/search?q=robot&module=intro&module=ros2", default):
        assert service.get(other).headers["etag"] == tag, other
    for other in ("/v1/search?q=robot", "/v1/search?q=robots&module=ros2&module=intro", f"{path}&html=1"):
        reply = service.get(other, **{"If-None-Match": tag})
        assert reply.status == 200, other
        assert reply.headers["etag"] != tag
    assert "etag" not in service.get("/v1/search?q=%20").headers
    assert service.get("/v1/search?q=%20").headers["cache-control"] == "no-store"


def test_a_new_index_changes_the_tag(tmp_path: Path, embedder: Embedder) -> None:
    def index(text: str) -> Settings:
        book = write(tmp_path / "book", {"page.md": f"# Page\n\n{text}\n"})
        return indexed(tmp_path / "home", "garden", book, embedder)

    with Service(index("Soil holds water.")) as service:
        tag = service.get("/v1/search?q=soil").headers["etag"]
        index("Soil holds air.")
        reply = service.get("/v1/search?q=soil", **{"If-None-Match": tag})
    assert (reply.status, reply.json()["results"][0]["text"]) == (200, "Soil holds air.")
    assert reply.headers["etag"] != tag


def test_versions_and_languages(tmp_path: Path, embedder: Embedder) -> None:
    files = write(tmp_path / "garden", test_editions.FILES)
    source = open_book(files, SiteOptions(version="all", locale="all"))
    settings = indexed(tmp_path / "home", "garden", source, embedder)

    def addresses(reply: Reply) -> set[str]:
        assert reply.status == 200, reply.body
        return {hit["page_url"].removeprefix("https://x.org") for hit in reply.json()["results"]}

    with Service(settings) as service:
        for options, expected in test_editions.SEARCHES:
            body = {"query": "pump", "top_k": 50, **options}
            assert addresses(service.post("/v1/search", body)) == expected, options
            parameters = urlencode({"q": "pump", "top_k": 50} | options)
            assert addresses(service.get(f"/v1/search?{parameters}")) == expected, options
            selected = {"selection": "pump of the garden", **options}
            assert addresses(service.post("/v1/related", selected)) <= expected, options


def test_llms_txt(service: Service) -> None:
    for query in ("", "?collection=physical-ai-book"):
        listed = service.get(f"/llms.txt{query}")
        assert listed.headers["content-type"] == "text/plain; charset=utf-8"
        text = listed.body.decode()
        assert re.match(r"# Physical AI and Humanoid Robotics\n\n> \S.*\n\n## \S.*\n\n- \[", text)
        links = re.findall(r"^- \[.+\]\((.+)\)$", text, re.MULTILINE)
        pages = service.get("/v1/pages").json()["pages"]
        assert links == [f"v1/pages/{quote(page['url'], safe='')}.md{query}" for page in pages]
        for link in links[:3]:
            page = service.get(f"/{link}")
            assert page.headers["content-type"] == "text/markdown; charset=utf-8"
            assert page.body.startswith(b"# ")
    assert service.get("/llms.txt?collection=nope").status == 404
    full = service.get("/llms-full.txt").body.decode()
    urls = [page["url"] for page in pages]
    assert re.findall(r"^Source: (.+)$", full, re.MULTILINE) == urls
    assert service.get(f"/v1/pages/{quote(urls[0], safe='')}.md").body.decode().strip() in full


def test_skill(service: Service) -> None:
    """The addresses in the skill work, and its front matter keeps the limits of agents."""
    for query in ("", "?collection=physical-ai-book"):
        reply = service.get(f"/skill.md{query}")
        assert reply.headers["content-type"] == "text/markdown; charset=utf-8"
        _, head, text = reply.body.decode().split("---\n", 2)
        front_matter = yaml.safe_load(head)
        assert front_matter["name"] == "physical-ai-and-humanoid-robotics"
        assert 100 < len(front_matter["description"]) <= 1024
        (search,), (listed,) = re.findall(r"GET (\S+)", text), re.findall(r"\((llms\S+)\)", text)
        assert service.get(f"/{search}What+is+ROS+2").json()["results"]
        assert service.get(f"/{listed}").body == service.get(f"/llms.txt{query}").body
        modules = service.get("/v1/modules").json()["modules"]
        assert len(re.findall(r"^- .+ \(\d+ pages?\): .+$", text, re.MULTILINE)) == len(modules)


def test_a_page_as_markdown(service: Service) -> None:
    address = f"/v1/pages/{quote(INTRO, safe='')}"
    named = service.get(f"{address}.md")
    asked = service.get(address, Accept="text/markdown")
    assert named.body == asked.body
    assert named.headers["content-type"] == asked.headers["content-type"] == "text/markdown; charset=utf-8"
    assert asked.headers["vary"] == "Accept, Origin"
    assert service.get(address, Accept="application/json, */*").json()["url"] == INTRO
    missing = service.get("/v1/pages/local%3A%2F%2Fdocs%2Fnope.md")
    assert missing.status == 404
    assert missing.error


def test_what_a_service_logs(house_settings: Settings, tmp_path: Path) -> None:
    """Searches, questions about a selection and clicks; no selection alone, and no search while typing."""
    log = tmp_path / "log"
    with Service(replace(house_settings, query_log=QueryLogOptions(log))) as service:
        opened = log_queries(service)
    found = list(read_query_log(log))
    assert [(one.get("via"), one["query"]) for one in found] == [
        ("search", "How is jam made?"),
        ("related", "for how long?"),
        ("batch", "soil"),
        ("batch", "bread"),
        ("retrieve", "beans"),
        (None, "How is jam made?"),
    ]
    assert found[0]["hits"][0]["url"] == found[-1]["click"] == opened
    assert found[0]["covered"] is True
    text = "".join(path.read_text("utf-8") for path in log.iterdir())
    assert "visitor-1" not in text
    assert "127.0.0.1" not in text


def log_queries(service: Service) -> str:
    """Send requests, and return the URL that was opened."""
    visitor = {"X-Request-Id": "visitor-1", "Cookie": "id=visitor-1"}
    answered = service.post("/v1/search", {"query": "How is jam made?", "top_k": 2}, **visitor)
    assert answered.json()["query_log"] is True
    assert service.post("/v1/search", {"query": "How is ja", "log": False}).json()["query_log"] is True
    assert service.get("/v1/search?q=How+is+j&log=false").status == 200
    assert service.post("/v1/related", {"selection": "Fruit and sugar are boiled."}).status == 200
    asked = {"selection": "Fruit and sugar are boiled.", "question": "for how long?"}
    assert service.post("/v1/related", asked).status == 200
    assert service.post("/v1/batch", {"queries": ["soil", "bread"]}).status == 200
    assert service.post("/retrieve", {"query": "beans"}).status == 200
    opened = {"query": "How is jam made?", "url": answered.json()["results"][0]["url"], "rank": 1}
    clicked = service.post("/v1/click", opened)
    assert (clicked.status, clicked.body) == (204, b"")
    assert service.post("/v1/click", opened | {"rank": 0}).status == 400
    return str(opened["url"])
