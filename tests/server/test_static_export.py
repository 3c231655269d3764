"""Test the static export: its files, and its client in Node, which must rank as lexical search does."""

from __future__ import annotations

import errno
import json
import os
import random
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from recto.errors import ConfigurationError, InvalidArgument, StorageError
from recto.evaluation.suites import load_suite
from recto.protocols import Index
from recto.search.display import chunk_matches, make_snippet, response_words
from recto.search.lexical import LexicalQuery, analyze_query, read_lexicon
from recto.search.markdown import plain_text
from recto.search.pipeline import rank, to_hits
from recto.search.retriever import Retriever
from recto.server.http.models import HitModel, RelatedResponseModel
from recto.server.static_export import export_static
from recto.settings import SAMPLE_COLLECTION
from recto.stores.edge.store import EdgeStore
from recto.testing.values import chunk, publish, publish_lexical
from recto.types.index import IndexQuery
from recto.types.search import Chunk, Hit
from tests.running import ROOT

_MISSING = pytest.fail if os.environ.get("RECTO_NEED_BROWSER") == "1" else pytest.skip
SUITE = ROOT / "src" / "recto" / "sample" / "development.json"
PAGE = "local://docs/docs/module-1-ros2/01-ros2-fundamentals"
RUN = """
import { cp, readFile, rm } from "node:fs/promises";
const [url, requests, client, next] = process.argv.slice(2);
const { RectoClient } = await import(client);
globalThis.fetch = (file) => readFile(file).then((body) => new Response(body), () => new Response("", { status: 404 }));
const recto = new RectoClient({ url });
const answers = [];
for (const [name, ...values] of JSON.parse(await readFile(requests))) {
  if (name === "publish") await rm(new URL("data", url), { recursive: true }).then(() => cp(next, new URL("data", url), { recursive: true }));
  else answers.push(await recto[name](...values).catch(({ status, message, hint }) => ({ status, message, hint })));
}
console.log(JSON.stringify(answers));
"""
MORE_QUERIES = (
    "navgation", "how do I calibrat the camra", "quaterion filter", "comunication paterns", "localizaton", "kinematcs solver", "goggle maps", "imulation", "hte sensors", "xobot",
    "the", "what is it", '"how to"', "`to be` or not", "ros2_control", "rclpy.Node", "--symlink-install", "base_link",
    "robots robot robotics", "9.81", "v2", "constructor", "__proto__", "!?", "naïve Straße",
)  # fmt: skip
ODD_TEXTS = (
    "getUserName and get_user_name are not getusername. HTTPServer2 iPhone X11 ros2_control",
    "pydantic.BaseModel v2.10 9.81 1.2.3 --dry-run -v end-to-end e2e a.b.c",
    "Straße STRASSE ΣΊΣΥΦΟΣ σίσυφος İstanbul istanbul naïve ﬁne ǅungla",
    "constructor __proto__ toString hasOwnProperty valueOf __init__ _private",
    "機械学習 と 深層学習 𝒳𝒴 x² ½ Ⅷ ٣٤ 👩‍🔬 e\u0301tude end",
    "policies policy dies boxes classes wishes running stopped falling buzzing sing red used use uses",
    "The and of to: the a the. It's what it is, isn't it? “to be” or \"not to be\"",
    "abc" * 21 + " " + "abc" * 22 + " tilde~tilde ~mark user@example.org C++ C# node.js",
)  # fmt: skip


def ask(directory: Path, requests: Sequence[Any], next_data: Path | None = None) -> Any:
    """Send requests to the exported client in Node, which reads the files from disk; return the responses."""
    node = shutil.which("node")
    if node is None:
        _MISSING("Node is not installed")
    work = directory.parent
    (work / "run.mjs").write_text(RUN, "utf-8")
    (work / "requests.json").write_text(json.dumps(requests), "utf-8")
    shutil.copy(directory / "static" / "client.js", work / "client.mjs")  # so that Node reads it as a module
    arguments = (f"{directory.as_uri()}/", "requests.json", "./client.mjs", str(next_data))
    command = [str(node), "run.mjs", *arguments]
    done = subprocess.run(command, check=False, cwd=work, capture_output=True, timeout=60)
    assert done.returncode == 0, done.stderr.decode()
    return json.loads(done.stdout)


def lexical_search(index: Index, query: str) -> tuple[LexicalQuery, list[Hit]]:
    lexicon = read_lexicon(index)
    assert lexicon is not None
    analyzed = analyze_query(query, lexicon)
    (found,) = index.candidates([IndexQuery(None, analyzed.vector)], 100)
    ranked = rank(found, "lexical", 0)
    return analyzed, to_hits(ranked, found, index.chunks([id for id, _ in ranked]), 100)


def odd_chunks() -> list[Chunk]:
    return [chunk(number, text=text) for number, text in enumerate(ODD_TEXTS)]


@pytest.fixture(scope="module")
def exported(sample_home: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("static") / "recto"
    export_static(EdgeStore(sample_home).open(SAMPLE_COLLECTION), directory, semantic="off")
    return directory


def compare(directory: Path, retriever: Retriever, queries: Sequence[str], top_k: int) -> int:
    """Compare the exported client with lexical search, and count the snippets that differ."""
    answers = ask(directory, [["search", query, {"top_k": top_k}] for query in queries])
    snippets = 0
    for query, found in zip(queries, answers, strict=True):
        # Where `top_k` cuts through a tie, the engine may take any of its chunks: ask for more.
        more = retriever.search(query, 50, mode="lexical")
        expected = replace(more, hits=more.hits[:top_k])
        words = response_words(retriever, expected)
        hits = [hit.chunk for hit in expected.hits]
        assert [(hit["url"], hit["text"]) for hit in found["results"]] == [
            (one.url, plain_text(one.text)) for one in hits
        ], query
        assert [hit["score"] for hit in found["results"]] == pytest.approx(
            [hit.score for hit in expected.hits]
        )
        assert found["corrections"] == {word: list(meant) for word, meant in expected.corrections}
        assert found["outcome"] == expected.outcome
        assert [hit["matches"] for hit in found["results"]] == [
            list(chunk_matches(replace(one, text=plain_text(one.text)), words)) for one in hits
        ]
        shown = [make_snippet(one.text, words).text for one in hits]
        snippets += sum(hit["snippet"] != text for hit, text in zip(found["results"], shown, strict=True))
    return snippets


def test_results_are_those_of_lexical_search(exported: Path, retriever: Retriever) -> None:
    """For all questions of the sample book's suite, and for some that are difficult to analyse."""
    queries = [*(each.query for each in load_suite(SUITE).expectations), *MORE_QUERIES]
    snippets = compare(exported, retriever, queries, 10)
    assert snippets <= 5, "only where two parts of a text have the same weight"


def test_results_are_grouped_by_page(exported: Path, retriever: Retriever) -> None:
    queries = ["how do nodes communicate", "sensors", "which simulator should I use", "nothingmatchesthis"]
    for query, found in zip(
        queries,
        ask(exported, [["search", query, {"top_k": 6, "group_by": "page"}] for query in queries]),
        strict=True,
    ):
        expected = retriever.search(query, 6, mode="lexical", group_by="page").to_dict()["groups"]
        assert [group | {"score": 0} for group in found["groups"]] == [
            group | {"score": 0} for group in expected
        ]


def test_related_chunks_are_those_of_lexical_search(exported: Path, retriever: Retriever) -> None:
    """Chunks with the selected text are left out; the words of a question are marked."""
    selection = retriever.search("how do nodes communicate", 1).hits[0].chunk.text[:200]
    for question in (None, "Which sensors?"):
        (found,) = ask(exported, [["related", selection, {"question": question, "top_k": 6}]])
        expected = retriever.related(selection, question, 6, mode="lexical")
        assert [hit["url"] for hit in found["results"]] == [hit.chunk.url for hit in expected.hits]
        assert expected.selection is not None
        assert found["selection"]["left_out"] == expected.selection.left_out > 0
        assert any(hit["matches"] for hit in found["results"]) == (question is not None)
        assert set(found) == set(RelatedResponseModel.model_fields) - {"timings"}
        assert set(found["results"][0]) < set(HitModel.model_fields)


def test_odd_texts_are_analysed_alike(home: Path, tmp_path: Path) -> None:
    """Queries of random parts of odd texts find the same chunks as lexical search, with the same scores."""
    store = EdgeStore(home)
    publish_lexical(store, "odd", odd_chunks())
    index = store.open("odd")
    export_static(index, tmp_path / "recto")
    pick = random.Random(1)
    words = " ".join(ODD_TEXTS).split()
    queries = [
        *words,
        "-dry-run",
        *("".join(pick.choices("aeinrst.-_~'\"2Xß習 ", k=pick.randint(1, 9))) for _ in range(200)),
    ]
    queries += [" ".join(pick.sample(words, pick.randint(2, 5))) for _ in range(200)]
    checked = 0
    for query, found in zip(
        queries,
        ask(tmp_path / "recto", [["search", query, {"top_k": 100}] for query in queries]),
        strict=True,
    ):
        analyzed, hits = lexical_search(index, query)
        assert found["corrections"] == {word: list(meant) for word, meant in analyzed.corrections}
        checked += bool(hits)
        assert [hit["url"] for hit in found["results"]] == [hit.chunk.url for hit in hits], query
        assert [hit["score"] for hit in found["results"]] == pytest.approx(
            [hit.score for hit in hits], rel=1e-5
        ), query
    assert checked > 200


def test_a_site_that_is_published_again_is_searched_again(home: Path, tmp_path: Path) -> None:
    store = EdgeStore(home)
    texts = [f"{word} " * 3000 for word in ("soil", "worms", "beans")]  # a file for each
    for place, chunks in (("old", texts), ("new", [texts[0], f"{texts[1]} rise.", texts[2]])):
        publish_lexical(store, "books", [chunk(number, text=text) for number, text in enumerate(chunks)])
        export_static(store.open("books"), tmp_path / place / "recto")
    before, after = ask(tmp_path / "old" / "recto", [["search", "soil"], ["publish"], ["search", "worms"]], tmp_path / "new" / "recto" / "data")  # fmt: skip
    assert before["results"][0]["text"].startswith("soil")
    assert after["results"][0]["text"].startswith("worms"), "its file was missing"
    assert after["generation"] != before["generation"]
    shutil.rmtree(tmp_path / "old" / "recto" / "data")
    (failed,) = ask(tmp_path / "old" / "recto", [["search", "soil"]])
    assert failed["status"] == 404
    assert "recto export --static" in failed["hint"]


def contents(directory: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(directory)): path.read_bytes() for path in directory.rglob("*") if path.is_file()
    }


def contents_of_new(store: EdgeStore, directory: Path) -> dict[str, bytes]:
    export_static(store.open("books"), directory)
    return contents(directory)


def test_an_export_replaces_an_earlier_one_and_nothing_else(home: Path, tmp_path: Path) -> None:
    store = EdgeStore(home)
    publish_lexical(store, "books", odd_chunks())
    target = tmp_path / "site" / "recto"
    first = export_static(store.open("books"), target)
    again = export_static(store.open("books"), tmp_path / "again")
    assert contents(tmp_path / "again") == contents(target)
    assert again == first
    publish_lexical(store, "books", odd_chunks()[:3])
    second = export_static(store.open("books"), target)
    assert (first.chunks, second.chunks) == (8, 3)
    assert [path.name for path in target.parent.iterdir()] == ["recto"]
    assert second.files == len(contents(target))
    assert contents(target) == contents_of_new(store, tmp_path / "new")


@pytest.mark.parametrize("change", ["another word", "another chunk"])
def test_files_of_unchanged_chunks_keep_their_names(
    home: Path, tmp_path: Path, sample_home: Path, change: str
) -> None:
    """The names are hashes of the content, so hosts and browsers keep the files; another chunk renumbers later ones."""
    chunks = list(EdgeStore(sample_home).open(SAMPLE_COLLECTION).scroll())
    chunks.sort(key=lambda one: (one.page_url, one.chunk_index))
    place = len(chunks) // 3
    store = EdgeStore(home)
    exported = []
    for number in range(2):
        if number and change == "another word":
            chunks[place] = replace(chunks[place], text=f"{chunks[place].text} Zanzibar.")
        elif number:
            chunks.insert(place, replace(chunks[place], id=str(uuid4()), text="Zanzibar is an island."))
        publish_lexical(store, "books", chunks)
        export_static(store.open("books"), tmp_path / "recto")
        exported.append({path.name for path in (tmp_path / "recto" / "data").iterdir()})
    before, after = exported
    kinds = ["chunks", "words"] if change == "another word" else ["chunks"]
    for kind in kinds:
        names = [{name for name in one if name.startswith(kind)} for one in (before, after)]
        assert len(names[0]) > 10
        assert len(names[0] - names[1]) <= 4, kind
    assert len(after - before) > 1


FILTERS: list[dict[str, Any]] = [
    {"module": "ros2"},
    {"module": ["Module-1-ROS2 ", "simulation"]},
    {"module": "nothing"},
    {"url": PAGE},
    {"url": f"  {PAGE.replace('local', 'LOCAL')}.md/#topics"},
    {"url": f"{PAGE}?version=2"},
    {"url": "local://[docs"},
    {"lang": "en-GB"},
    {"lang": "de"},
    {"module": "ros2", "url": PAGE, "lang": "en"},
    {"module": "simulation", "url": PAGE},
]


def test_filters_are_those_of_lexical_search(exported: Path, retriever: Retriever) -> None:
    queries = ["how do nodes communicate", "sensors", "nothingmatchesthis"]
    asked = [(query, filters) for filters in FILTERS for query in queries]
    answers = ask(exported, [["search", query, {"top_k": 20, **filters}] for query, filters in asked])
    for (query, filters), found in zip(asked, answers, strict=True):
        more = retriever.search(query, 50, filters, mode="lexical")
        assert [hit["url"] for hit in found["results"]] == [hit.chunk.url for hit in more.hits[:20]], filters
        assert found["outcome"] == more.outcome, filters
    assert sum(found["outcome"] == "filtered_out" for found in answers) == 5 * len(queries)
    assert sum(found["outcome"] == "found" for found in answers) >= 10
    missing, odd = ask(exported, [["search", "x", {"module": "nothing"}], ["search", "x", {"lang": "?"}]])
    assert missing["message"].startswith("There is no module 'nothing'. Modules: ")
    assert (odd["status"], odd["message"]) == (400, "'?' is not a language.")


def test_filters_of_related_chunks(exported: Path, retriever: Retriever) -> None:
    selection = retriever.search("how do nodes communicate", 1).hits[0].chunk.text[:200]
    (found,) = ask(exported, [["related", selection, {"module": "simulation"}]])
    expected = retriever.related(selection, filters={"module": "simulation"}, mode="lexical")
    assert [hit["url"] for hit in found["results"]] == [hit.chunk.url for hit in expected.hits]
    assert {hit["module"] for hit in found["results"]} == {"simulation"}


def test_files_of_others_stay(home: Path, tmp_path: Path) -> None:
    store = EdgeStore(home)
    publish_lexical(store, "books", odd_chunks())
    target = tmp_path / "recto"
    export_static(store.open("books"), target)
    mine = [target / "static" / "MINE.txt", target / "data" / "mine.bin", target / "index.html"]
    for path in mine:
        path.write_text("mine")
    publish_lexical(store, "books", odd_chunks()[:3])
    second = export_static(store.open("books"), target)
    assert [path.read_text() for path in mine] == ["mine"] * 3
    assert second.files == len(contents(target)) - len(mine)
    old = target / "data" / "0123456789ab" / "words-1.bin"  # as an export by 0.2
    old.parent.mkdir()
    old.touch()
    (target / "recto-export.json").unlink()
    third = export_static(store.open("books"), target)
    assert third == second
    assert not old.parent.exists()
    assert [path.read_text() for path in mine] == ["mine"] * 3
    other = tmp_path / "other"
    other.mkdir()
    (other / "widget.js").write_text("mine")
    with pytest.raises(InvalidArgument, match=r"widget\.js would be replaced"):
        export_static(store.open("books"), other)
    assert contents(other) == {"widget.js": b"mine"}


def test_an_export_follows_no_links(home: Path, tmp_path: Path) -> None:
    store = EdgeStore(home)
    publish_lexical(store, "books", odd_chunks())
    outside = tmp_path / "outside"
    outside.mkdir()
    for name, to in (("dangling", tmp_path / "nowhere"), ("linked", outside)):
        (tmp_path / name).symlink_to(to)
        with pytest.raises(InvalidArgument, match="is a link to"):
            export_static(store.open("books"), tmp_path / name)
    target = tmp_path / "recto"
    target.mkdir()
    (target / "data").symlink_to(outside)
    with pytest.raises(InvalidArgument, match="is a link to"):
        export_static(store.open("books"), target)
    assert list(outside.iterdir()) == []
    assert not (tmp_path / "nowhere").exists()


def test_an_export_deletes_nothing_through_links(home: Path, tmp_path: Path) -> None:
    store = EdgeStore(home)
    publish_lexical(store, "books", odd_chunks())
    target, outside = tmp_path / "recto", tmp_path / "outside"
    (target / "data").mkdir(parents=True)
    outside.mkdir()
    (outside / "words.bin").write_text("mine")
    (target / "data" / "0123456789ab").symlink_to(outside)
    (target / "recto-export.json").write_text(json.dumps(["data/0123456789ab/words.bin"]))
    with pytest.raises(InvalidArgument, match="is a link to"):
        export_static(store.open("books"), target)
    assert (outside / "words.bin").read_text() == "mine"
    assert not (target / "widget.js").exists()


def test_an_export_that_fails_changes_nothing(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = EdgeStore(home)
    publish_lexical(store, "books", odd_chunks())
    target = tmp_path / "site" / "recto"
    export_static(store.open("books"), target)
    before = contents(target)
    publish_lexical(store, "books", odd_chunks()[:3])
    index = store.open("books")
    written = []

    def write(path: Path, _: bytes) -> None:
        written.append(path)
        if len(written) == 5:
            raise OSError(errno.ENOSPC, "No space left on device", str(path))

    with monkeypatch.context() as patch:
        patch.setattr(Path, "write_bytes", write)
        with pytest.raises(StorageError, match="No space left") as full:
            export_static(index, target)
    assert "Free some space" in full.value.hint
    manifest = "recto-export.json"  # it may already list files that were not written
    assert {**contents(target), manifest: b""} == {**before, manifest: b""}
    assert [path.name for path in target.parent.iterdir()] == ["recto"]


def test_an_index_without_lexical_vectors_is_not_exported(home: Path, tmp_path: Path) -> None:
    store = EdgeStore(home)
    publish(store, "books", odd_chunks())
    with pytest.raises(ConfigurationError, match="no lexical vectors") as wrong:
        export_static(store.open("books"), tmp_path / "recto")
    assert "recto index" in wrong.value.hint
    assert not (tmp_path / "recto").exists()
