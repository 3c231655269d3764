"""Test the static export: its files, and its client in Node, which must cut words and rank as lexical search does."""

from __future__ import annotations

import errno
import json
import random
import shutil
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any
from uuid import NAMESPACE_URL, uuid4, uuid5

import pytest

from recto.errors import ConfigurationError, InvalidArgument, StorageError
from recto.evaluation.suites import load_suite
from recto.protocols import Index
from recto.search.analyzer import STOP_WORDS, is_stop_word, query_words, word_spans, word_terms
from recto.search.display import ELLIPSIS, chunk_matches, make_snippet, response_words
from recto.search.lexical import LexicalQuery, analyze_query, read_lexicon
from recto.search.markdown import plain_text
from recto.search.pipeline import rank, to_hits
from recto.search.retriever import Retriever
from recto.server.http.models import HitModel, RelatedResponseModel
from recto.server.static_export import _SHARD, _analysis, _cut, export_static
from recto.settings import SAMPLE_COLLECTION
from recto.stores.edge import EdgeStore
from recto.testing.parts import chunk, publish, publish_lexical
from recto.types.index import IndexQuery
from recto.types.search import Chunk, Hit
from tests.book.files import write
from tests.languages import MARKED, SENTENCES, random_sentences
from tests.running import ROOT
from tests.search.test_languages import is_inside_character
from tests.server.node import run_node

SUITE = ROOT / "src" / "recto" / "sample" / "development.json"
PAGE = "local://docs/docs/module-1-ros2/01-ros2-fundamentals"
RUN = """
import { cp, readFile, rm } from "node:fs/promises";
const [url, next] = process.argv.slice(2);
const { RectoClient } = await import(new URL("static/client.js", url));
globalThis.fetch = (file) => readFile(file).then((body) => new Response(body), () => new Response("", { status: 404 }));
const recto = new RectoClient({ url });
const answers = [];
for (const [name, ...values] of JSON.parse(await readFile("values.json"))) {
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
    return run_node(directory.parent, RUN, f"{directory.as_uri()}/", str(next_data), values=requests)


def lexical_search(index: Index, query: str) -> tuple[LexicalQuery, list[Hit]]:
    lexicon = read_lexicon(index)
    assert lexicon is not None
    analyzed = analyze_query(query, lexicon)
    (found,) = index.candidates([IndexQuery(None, analyzed.vector)], 100)
    ranked = rank(found, "lexical", 0)
    return analyzed, to_hits(ranked, found, index.chunks([id for id, _ in ranked]), 100, "lexical")


def odd_chunks() -> list[Chunk]:
    return [chunk(number, text=text) for number, text in enumerate(ODD_TEXTS)]


@pytest.fixture(scope="module")
def exported(sample_home: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("static") / "recto"
    export_static(EdgeStore(sample_home).open(SAMPLE_COLLECTION), directory, semantic="off")
    return directory


@pytest.fixture
def store(home: Path) -> EdgeStore:
    """A store with the odd texts as `books`."""
    store = EdgeStore(home)
    publish_lexical(store, "books", odd_chunks())
    return store


def test_results_are_those_of_lexical_search(exported: Path, retriever: Retriever) -> None:
    """For half of the questions of the sample book's suite, and for some that are difficult to analyse."""
    queries = [*(each.query for each in load_suite(SUITE).expectations[::2]), *MORE_QUERIES]
    answers = ask(exported, [["search", query, {"top_k": 10}] for query in queries])
    snippets = 0
    for query, found in zip(queries, answers, strict=True):
        # Where `top_k` cuts through a tie, the engine may take any of its chunks: ask for more.
        more = retriever.search(query, top_k=50, mode="lexical")
        expected = replace(more, hits=more.hits[:10])
        words = response_words(retriever, expected)
        hits = [hit.chunk for hit in expected.hits]
        texts = [plain_text(one.text) for one in hits]
        assert [hit["url"] for hit in found["results"]] == [one.url for one in hits], query
        assert [hit["text"] for hit in found["results"]] == texts
        scores = [hit.score for hit in expected.hits]
        assert [hit["score"] for hit in found["results"]] == pytest.approx(
            scores, rel=2e-6
        )  # exported as float32
        assert found["corrections"] == {word: list(meant) for word, meant in expected.corrections}
        assert found["outcome"] == expected.outcome
        assert [hit["matches"] for hit in found["results"]] == [
            list(chunk_matches(replace(one, text=text), words)) for one, text in zip(hits, texts, strict=True)
        ]
        shown = [make_snippet(one.text, words).text for one in hits]
        snippets += sum(hit["snippet"] != text for hit, text in zip(found["results"], shown, strict=True))
    assert snippets <= 5, "only where two parts of a text have the same weight"


def test_results_are_grouped_by_page(exported: Path, retriever: Retriever) -> None:
    queries = ["how do nodes communicate", "sensors", "which simulator should I use", "nothingmatchesthis"]
    answers = ask(exported, [["search", query, {"top_k": 6, "group_by": "page"}] for query in queries])
    for query, found in zip(queries, answers, strict=True):
        expected = retriever.search(query, top_k=6, mode="lexical", group_by="page").to_dict()["groups"]
        assert [one | {"score": 0} for one in found["groups"]] == [one | {"score": 0} for one in expected]


def test_related_chunks_are_those_of_lexical_search(exported: Path, retriever: Retriever) -> None:
    """Chunks with the selected text are left out; the words of a question are marked."""
    selection = retriever.search("how do nodes communicate", top_k=1).hits[0].chunk.text[:200]
    asked = [(None, {}), ("Which sensors?", {}), (None, {"module": "simulation"})]
    options = [{"question": question, "top_k": 6, **filters} for question, filters in asked]
    answers = ask(exported, [["related", selection, one] for one in options])
    for (question, filters), found in zip(asked, answers, strict=True):
        expected = retriever.related(selection, question, top_k=6, filters=filters, mode="lexical")
        assert [hit["url"] for hit in found["results"]] == [hit.chunk.url for hit in expected.hits]
        assert {hit["module"] for hit in found["results"]} == {"simulation"} or not filters
        assert expected.selection is not None
        assert found["selection"]["left_out"] == expected.selection.left_out
        assert bool(found["selection"]["left_out"]) is not bool(filters)
        assert any(hit["matches"] for hit in found["results"]) == (question is not None)
        assert set(found) == set(RelatedResponseModel.model_fields) - {"timings"}
        assert set(found["results"][0]) < set(HitModel.model_fields)


def test_odd_texts_are_analysed_alike(store: EdgeStore, tmp_path: Path) -> None:
    """Queries of random parts of odd texts find the same chunks as lexical search, with the same scores."""
    index = store.open("books")
    export_static(index, tmp_path / "recto")
    pick = random.Random(1)
    words = " ".join(ODD_TEXTS).split()
    queries = [*words, "-dry-run"]
    queries += ["".join(pick.choices("aeinrst.-_~'\"2Xß習 ", k=pick.randint(1, 9))) for _ in range(100)]
    queries += [" ".join(pick.sample(words, pick.randint(2, 5))) for _ in range(100)]
    answers = ask(tmp_path / "recto", [["search", query, {"top_k": 100}] for query in queries])
    checked = 0
    for query, found in zip(queries, answers, strict=True):
        analyzed, hits = lexical_search(index, query)
        assert found["corrections"] == {word: list(meant) for word, meant in analyzed.corrections}
        checked += bool(hits)
        assert [hit["url"] for hit in found["results"]] == [hit.chunk.url for hit in hits], query
        scores = [hit.score for hit in hits]
        assert [hit["score"] for hit in found["results"]] == pytest.approx(scores, rel=1e-5), query
    assert checked > 150


def test_a_site_that_is_published_again_is_searched_again(store: EdgeStore, tmp_path: Path) -> None:
    texts = [f"{word} " * 3000 for word in ("soil", "worms", "beans")]  # a file for each
    for place, chunks in (("old", texts), ("new", [texts[0], f"{texts[1]} rise.", texts[2]])):
        publish_lexical(store, "books", [chunk(number, text=text) for number, text in enumerate(chunks)])
        export_static(store.open("books"), tmp_path / place / "recto")
    old, new_data = tmp_path / "old" / "recto", tmp_path / "new" / "recto" / "data"
    before, after = ask(old, [["search", "soil"], ["publish"], ["search", "worms"]], new_data)
    assert before["results"][0]["text"].startswith("soil")
    assert after["results"][0]["text"].startswith("worms"), "its file was missing"
    assert after["generation"] != before["generation"]
    shutil.rmtree(old / "data")
    (failed,) = ask(old, [["search", "soil"]])
    assert failed["status"] == 404
    assert "recto export --static" in failed["hint"]


def contents(directory: Path) -> dict[str, bytes]:
    files = (path for path in directory.rglob("*") if path.is_file())
    return {str(path.relative_to(directory)): path.read_bytes() for path in files}


def test_an_export_replaces_an_earlier_one_and_nothing_else(store: EdgeStore, tmp_path: Path) -> None:
    target = tmp_path / "site" / "recto"
    first = export_static(store.open("books"), target)
    assert export_static(store.open("books"), tmp_path / "again") == first
    assert contents(tmp_path / "again") == contents(target)
    mine = [target / "static" / "MINE.txt", target / "data" / "mine.bin", target / "index.html"]
    for path in mine:
        path.write_text("mine")
    publish_lexical(store, "books", odd_chunks()[:3])
    second = export_static(store.open("books"), target)
    assert (first.chunks, second.chunks) == (8, 3)
    assert [path.name for path in target.parent.iterdir()] == ["recto"]
    export_static(store.open("books"), tmp_path / "new")
    own = {str(path.relative_to(target)): b"mine" for path in mine}
    assert contents(target) == contents(tmp_path / "new") | own
    assert second.files == len(contents(tmp_path / "new"))
    other = write(tmp_path / "other", {"widget.js": "mine"})
    with pytest.raises(InvalidArgument, match=r"widget\.js would be replaced"):
        export_static(store.open("books"), other)
    assert contents(other) == {"widget.js": b"mine"}


def test_files_of_same_chunks_keep_their_names(store: EdgeStore, tmp_path: Path, sample_home: Path) -> None:
    """The names are hashes of the content, so hosts and browsers keep the files; another chunk renumbers later ones."""
    chunks = list(EdgeStore(sample_home).open(SAMPLE_COLLECTION).scroll())
    chunks.sort(key=lambda one: (one.page_url, one.chunk_index))
    place = len(chunks) // 3
    changed = replace(chunks[place], text=f"{chunks[place].text} Zanzibar.")
    added = replace(changed, id=str(uuid4()), text="Zanzibar is an island.")
    exported: list[set[str]] = []
    for middle in ([chunks[place]], [changed], [added, changed]):
        publish_lexical(store, "books", [*chunks[:place], *middle, *chunks[place + 1 :]])
        export_static(store.open("books"), tmp_path / "recto")
        exported.append({path.name for path in (tmp_path / "recto" / "data").iterdir()})
    for (before, after), kinds in zip(pairwise(exported), (("chunks", "words"), ("chunks",)), strict=True):
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
    requests: list[list[Any]] = [["search", query, {"top_k": 20, **filters}] for query, filters in asked]
    requests += [["search", "x", {"module": "nothing"}], ["search", "x", {"lang": "?"}]]
    *answers, missing, odd = ask(exported, requests)
    for (query, filters), found in zip(asked, answers, strict=True):
        more = retriever.search(query, top_k=50, filters=filters, mode="lexical")
        assert [hit["url"] for hit in found["results"]] == [hit.chunk.url for hit in more.hits[:20]], filters
        assert found["outcome"] == more.outcome, filters
    assert sum(found["outcome"] == "filtered_out" for found in answers) == 5 * len(queries)
    assert sum(found["outcome"] == "found" for found in answers) >= 10
    assert missing["message"].startswith("There is no module 'nothing'. Modules: ")
    assert (odd["status"], odd["message"]) == (400, "'?' is not a language.")


def test_an_export_neither_writes_nor_deletes_through_links(store: EdgeStore, tmp_path: Path) -> None:
    outside = write(tmp_path / "outside", {"words.bin": "mine"})
    target, listing = (tmp_path / name / "data" for name in ("recto", "listed"))
    links = {
        tmp_path / "dangling": tmp_path / "nowhere",
        tmp_path / "linked": outside,
        target: outside,
        listing.parent / "model" / "0123456789ab": outside,
    }
    write(listing.parent, {"recto-export.json": json.dumps(["model/0123456789ab/words.bin"])})
    for link, to in links.items():
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(to)
    for directory in (tmp_path / "dangling", tmp_path / "linked", target.parent, listing.parent):
        with pytest.raises(InvalidArgument, match="is a link to"):
            export_static(store.open("books"), directory)
        assert not (directory / "widget.js").exists()
    assert contents(outside) == {"words.bin": b"mine"}
    assert not (tmp_path / "nowhere").exists()


def test_a_failed_export_is_undone(store: EdgeStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = tmp_path / "site" / "recto"
    export_static(store.open("books"), target)
    before = contents(target)
    publish_lexical(store, "books", odd_chunks()[:3])
    index = store.open("books")
    written = []

    def write_some(path: Path, _: bytes) -> None:
        written.append(path)
        if len(written) == 5:
            raise OSError(errno.ENOSPC, "No space left on device", str(path))

    with monkeypatch.context() as patch:
        patch.setattr(Path, "write_bytes", write_some)
        with pytest.raises(StorageError, match="No space left") as full:
            export_static(index, target)
    assert "Free some space" in full.value.hint
    manifest = "recto-export.json"  # it may already list files that were not written
    assert {**contents(target), manifest: b""} == {**before, manifest: b""}
    assert [path.name for path in target.parent.iterdir()] == ["recto"]


def test_an_index_without_lexical_vectors_is_not_exported(store: EdgeStore, tmp_path: Path) -> None:
    publish(store, "plain", odd_chunks())
    with pytest.raises(ConfigurationError, match="no lexical vectors") as wrong:
        export_static(store.open("plain"), tmp_path / "recto")
    assert "recto index" in wrong.value.hint
    assert not (tmp_path / "recto").exists()


WEB = ROOT / "src" / "recto" / "server" / "web"
CUT = """
import { readFile } from "node:fs/promises";
import { makeAnalyzer } from "./static_client.js";
const cut = ({ language, meta, texts }) => {
  const { spans, terms, isStopWord } = makeAnalyzer(language, meta);
  return texts.map((text) => spans(text).map(({ word }) => [word, terms(word), isStopWord(word)]));
};
console.log(JSON.stringify(JSON.parse(await readFile("values.json")).map(cut)));
"""


def python_cuts(language: str, texts: list[str]) -> list[list[object]]:
    words = ([text[start:end] for start, end in word_spans(text, language)] for text in texts)
    return [
        [[word, list(word_terms(word, language)), is_stop_word(word, language)] for word in own]
        for own in words
    ]


def test_words_are_cut_as_in_python(tmp_path: Path) -> None:
    texts = {language: [SENTENCES[language], *random_sentences(language, 100)] for language in SENTENCES}
    texts["en"] = [text for own in texts.values() for text in own[:20]]  # as in a book of unknown language
    values = [
        {
            "language": language,
            "meta": {"analysis": _analysis([language]), "stop_words": sorted(STOP_WORDS)},
            "texts": own,
        }
        for language, own in texts.items()
    ]
    shutil.copy(WEB / "static_client.js", tmp_path)
    cuts = run_node(tmp_path, CUT, values=values)
    for (language, own), theirs in zip(texts.items(), cuts, strict=True):
        for text, cut, ours in zip(own, theirs, python_cuts(language, own), strict=True):
            assert cut == ours, text


def export_book(directory: Path, chunks: list[Chunk]) -> Index:
    """Export a book of chunks, and return its index."""
    store = EdgeStore(directory / "books")
    publish_lexical(store, "book", chunks)
    export_static(store.open("book"), directory / "recto")
    return store.open("book")


def test_results_in_other_languages_are_those_of_lexical_search(tmp_path: Path) -> None:
    """Queries are parts of a sentence, single words of it, and words with a typo."""
    languages = ("de", "tr", "ar", "zh", "th")
    texts = [(one, text) for one in languages for text in (SENTENCES[one], *random_sentences(one, 15))]
    chunks = [chunk(number, text=text) for number, (_, text) in enumerate(texts)]
    pairs = zip(chunks, texts, strict=True)
    index = export_book(tmp_path, [replace(one, language=language) for one, (language, _) in pairs])
    queries = []
    for language in languages:
        words = query_words(SENTENCES[language], language)
        queries += [SENTENCES[language], *words[:6], " ".join(words[:4]), f"{words[0]}x {words[-1]}"]
    answers = ask(tmp_path / "recto", [["search", query, {"top_k": 100}] for query in queries])
    for query, found in zip(queries, answers, strict=True):
        _, hits = lexical_search(index, query)
        assert {hit["url"]: pytest.approx(hit["score"]) for hit in found["results"]} == {
            hit.chunk.url: hit.score for hit in hits
        }, query


def test_snippets_are_cut_between_characters(tmp_path: Path) -> None:
    """In Python and in the static client; the number of dots moves the cut."""
    chunks: list[Chunk] = []
    texts: list[str] = []
    for language, word in MARKED.items():
        for dots in ("." * number for number in range(2, len(word) + 2)):
            for text in (f"{word * 60}{dots}config.yaml{dots}{word * 60}", dots + word * 60):
                one = chunk(len(texts), text=text)
                chunks.append(replace(one, language=language, headings=("config.yaml",)))
                texts.append(text)
    index = export_book(tmp_path, chunks)
    (answer,) = ask(tmp_path / "recto", [["search", "config.yaml", {"top_k": len(texts)}]])
    query, _ = lexical_search(index, "config.yaml")
    shown = [(hit["text"], hit["snippet"]) for hit in answer["results"]]
    shown += [(text, make_snippet(text, query.words).text) for text in texts]
    assert len(shown) == 2 * len(texts)
    for text, snippet in shown:
        inner = snippet.removeprefix(ELLIPSIS).removesuffix(ELLIPSIS)
        start = text.index(inner)
        assert inner != text
        for cut in (start, start + len(inner)):
            assert not is_inside_character(text, cut), snippet


def test_a_change_of_the_book_moves_the_ends_of_few_shards() -> None:
    """The hashes of ids choose where shards end, so that most files keep their content and their names."""
    ids = [str(uuid5(NAMESPACE_URL, str(number))) for number in range(2000)]
    sizes = [400 + 7 * (number % 50) for number in range(2000)]

    def shards(ids: Sequence[str], sizes: Sequence[int]) -> set[tuple[str, ...]]:
        return {tuple(ids[start:end]) for start, end in _cut(ids, sizes, _SHARD)}

    before, after = shards(ids, sizes), shards(["new", *ids[1:]], [1500, *sizes[1:]])
    assert all(sum(sizes[start:end]) <= _SHARD for start, end in _cut(ids, sizes, _SHARD))
    assert len(before) >= 20
    assert len(before & after) >= 0.8 * len(before)
