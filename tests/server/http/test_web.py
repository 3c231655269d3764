"""Test what the web needs: searches with GET that browsers cache, and books as text for language models."""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import quote

from recto.book.sources.tree import open_book
from recto.indexing.indexer import IndexJob, index_book
from recto.protocols import Embedder
from recto.server.http import ServeOptions
from recto.settings import Settings
from recto.stores.edge.store import EdgeStore
from tests.conftest import SHARED
from tests.server.http.service import Service

PAGE = "local://docs/docs/intro"


def test_get_and_post_return_the_same(service: Service) -> None:
    body = {"query": "What is ROS 2?", "module": ["ros2", "intro"], "html": True, "collection": None}
    more = {"top_k": 3, "mode": "lexical", "min_score": 0.5, "group_by": "page"}
    posted = service.post("/v1/search", body | more).json()
    got = service.get(
        "/v1/search?q=What%20is%20ROS%202%3F&top_k=3&module=ros2&module=intro&mode=lexical&min_score=0.5"
        "&group_by=page&html=true"
    )
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
    same = (
        "/v1/search?q=robot&module=intro&module=ros2",
        f"{path}&top_k=5",
        f"{path}&collection=humanoid_robotics_book",
    )
    for other in same:
        assert service.get(other).headers["etag"] == tag, other
    for other in ("/v1/search?q=robot", "/v1/search?q=robots&module=ros2&module=intro", f"{path}&html=1"):
        reply = service.get(other, **{"If-None-Match": tag})
        assert reply.status == 200, other
        assert reply.headers["etag"] != tag
    assert "etag" not in service.get("/v1/search?q=%20").headers
    assert service.get("/v1/search?q=%20").headers["cache-control"] == "no-store"


def test_a_new_index_changes_the_tag(tmp_path: Path, embedder: Embedder) -> None:
    home, book = tmp_path / "home", tmp_path / "book"
    home.mkdir()
    book.mkdir()
    (home / "cache").symlink_to(SHARED / "cache")

    def index(text: str) -> None:
        (book / "page.md").write_text(f"# Page\n\n{text}\n", "utf-8")
        index_book(IndexJob(open_book(book), embedder), EdgeStore(home), "garden", journal=home / "journal")

    index("Soil holds water.")
    settings = Settings("local", "edge", home, threads=2, precision="fp32", collection="garden")
    with Service(settings, ServeOptions()) as service:
        tag = service.get("/v1/search?q=soil").headers["etag"]
        index("Soil holds air.")
        reply = service.get("/v1/search?q=soil", **{"If-None-Match": tag})
    assert (reply.status, reply.json()["results"][0]["text"]) == (200, "Soil holds air.")
    assert reply.headers["etag"] != tag


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


def test_llms_full_txt(service: Service) -> None:
    text = service.get("/llms-full.txt").body.decode()
    urls = [page["url"] for page in service.get("/v1/pages").json()["pages"]]
    assert re.findall(r"^Source: (.+)$", text, re.MULTILINE) == urls
    assert service.get(f"/v1/pages/{quote(urls[0], safe='')}.md").body.decode().strip() in text


def test_a_page_as_markdown(service: Service) -> None:
    address = f"/v1/pages/{quote(PAGE, safe='')}"
    named = service.get(f"{address}.md")
    asked = service.get(address, Accept="text/markdown")
    assert named.body == asked.body
    assert named.headers["content-type"] == asked.headers["content-type"] == "text/markdown; charset=utf-8"
    assert "Accept" in asked.repeated["vary"]
    assert service.get(address, Accept="application/json, */*").json()["url"] == PAGE
    missing = service.get("/v1/pages/local%3A%2F%2Fdocs%2Fnope.md")
    assert missing.status == 404
    assert missing.error
