"""Context for a language model: whole sections, within the budget, without repetition, a page preferred."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from itertools import groupby, pairwise

import pytest

from recto.errors import InvalidArgument
from recto.evaluation.integrity import indexed_text
from recto.evaluation.suites import load_suite
from recto.protocols import Embedder, EmbedderAbilities
from recto.search.context import Context, build_context, context_scores, prefer_page
from recto.search.markdown import _code_blocks, clean_markdown, one_line
from recto.search.packing import OMISSION
from recto.search.pages import to_markdown
from recto.search.retriever import Retriever
from recto.types.search import HEADING_SEPARATOR, MODES, Chunk, Filters, Hit, Mode, Vector
from tests.running import ROOT
from tests.shared_embedder import ForwardingEmbedder

QUESTION = "How do nodes exchange messages?"
FUNDAMENTALS = "local://docs/docs/module-1-ros2/01-ros2-fundamentals"
DDS = "local://docs/docs/module-1-ros2/04-dds-and-qos"


def sections_of(retriever: Retriever, url: str) -> list[tuple[Chunk, ...]]:
    """Return the sections of a page as the index has them."""
    page = retriever.page(url)
    return [tuple(group) for _, group in groupby(page.chunks, key=lambda chunk: chunk.headings)]


def section_of(retriever: Retriever, hit: Hit) -> tuple[Chunk, ...]:
    return next(one for one in sections_of(retriever, hit.chunk.page_url) if hit.chunk in one)


def context_of(retriever: Retriever, hits: Sequence[Hit], max_tokens: int, neighbors: int = 0) -> Context:
    """Return the context of given hits."""
    response = replace(retriever.search(QUESTION), hits=tuple(hits))
    return build_context(retriever.open_index(), response, None, max_tokens, neighbors)


def chunk_ids(context: Context) -> list[str]:
    return [chunk.id for section in context.sections for chunk in section.chunks]


def test_hits_become_whole_sections(retriever: Retriever) -> None:
    query = "What is ROS 2?"
    context = retriever.context(query, 20_000, top_k=5)
    page, *others = context.sections
    assert page.chunks == retriever.page(page.url).chunks  # it is short
    assert others
    assert context.response == replace(retriever.search(query), timings=context.response.timings)
    assert (context.left_out, context.missing, context.page_used) == ((), 0, None)
    assert any(len(section.chunks) > len(section.hits) for section in context.sections)
    for section in others:
        assert section.chunks == section_of(retriever, section.hits[0])
        path = section.chunks[0].headings
        body = clean_markdown(to_markdown(section.chunks, path), [hit.chunk.text for hit in section.hits])
        assert section.text == f"# {' > '.join(map(one_line, path))}\n\n{body}"
        assert section.url == section.hits[0].chunk.url
        assert section.url in context.text
        assert section.text in context.text


@pytest.mark.parametrize("max_tokens", [100, 500, 1000, 4000, 20_000])
@pytest.mark.parametrize("neighbors", [0, 1])
def test_the_budget_holds_without_repetition(retriever: Retriever, max_tokens: int, neighbors: int) -> None:
    count = retriever.embedder.count_tokens
    context = retriever.context(QUESTION, max_tokens, top_k=20, neighbors=neighbors)
    assert 0 < context.tokens == sum(section.tokens for section in context.sections) <= max_tokens
    shown = [hit for section in context.sections for hit in section.hits]
    assert {*shown, *context.left_out} == set(context.response.hits)
    assert len(context.sections) < len(context.response.hits) == len(shown) + len(context.left_out) == 20
    assert len(set(chunk_ids(context))) == len(chunk_ids(context))
    for section in context.sections:
        assert section.tokens == count(section.text)
        assert section.missing == len(set(section_of(retriever, section.hits[0])) - set(section.chunks))
        assert _code_blocks(section.text.split("\n"))[1] is None
        assert [*section.hits] == sorted(section.hits, key=lambda hit: -hit.score)
    places = [(section.chunks[0].page_url, section.chunks[0].chunk_index) for section in context.sections]
    pages = list(dict.fromkeys(page for page, _ in places))
    assert pages[0] == context.response.hits[0].chunk.page_url, "the best page comes first"
    assert places == sorted(places, key=lambda place: (pages.index(place[0]), place[1])), "in its order"


class ContextModel(ForwardingEmbedder):
    """Embeds every query of a context as one text."""

    def __init__(self, embedder: Embedder, chunk: Chunk) -> None:
        super().__init__(embedder)
        self.text, self.asked = indexed_text(chunk) or "", list[str]()
        self.abilities = EmbedderAbilities(
            embed_context_queries=self.embed_context_queries, languages=("en",)
        )

    def embed_context_queries(self, texts: Sequence[str]) -> list[Vector]:
        self.asked += texts
        return super().embed_documents([self.text] * len(texts))


def test_the_query_of_a_context_has_its_own_scores(retriever: Retriever) -> None:
    """They choose the chunks; the hits keep the scores of the search."""
    last = retriever.search(QUESTION, top_k=20).hits[-1]
    model, plain = ContextModel(retriever.embedder, last.chunk), ForwardingEmbedder(retriever.embedder)
    other, without = (Retriever(one, retriever.store, retriever.collection) for one in (model, plain))
    context, before = other.context(QUESTION, 100, top_k=20), without.context(QUESTION, 100, top_k=20)
    assert context.sections[0].hits == (last,)
    assert context.response.hits == before.response.hits == retriever.search(QUESTION, top_k=20).hits
    assert before.sections[0].hits[0] == before.response.hits[0]
    assert asyncio.run(other.acontext(QUESTION, 100, top_k=20)).sections == context.sections
    assert other.context(QUESTION, 100, top_k=20, mode="dense").sections
    assert model.asked == [QUESTION] * 3

    assert other.context(QUESTION, 100, top_k=20, mode="lexical").sections
    assert not context_scores(other.open_index(), context.response, None, "de"), "it does not know German"
    model.abilities = EmbedderAbilities(languages=("en",))
    assert other.context(QUESTION, 100, top_k=20).sections == before.sections
    assert model.asked == [QUESTION] * 3


def test_the_preferred_page_has_scores_of_its_own(retriever: Retriever) -> None:
    """Some chunks of a page are not among the best of a large book."""
    chunks = retriever.page(FUNDAMENTALS).chunks
    model = ContextModel(retriever.embedder, chunks[-1])
    opened = replace(retriever.open_index(), embedder=model)
    response = retriever.search(QUESTION, filters={"module": "vla"})
    on_page = retriever.search(QUESTION, filters={"url": FUNDAMENTALS})
    assert response.hits
    assert chunks[-1].id not in context_scores(opened, response, None, "")
    scores = context_scores(opened, response, on_page, "")
    assert {chunk.id for chunk in chunks} <= scores.keys()
    assert max(scores, key=scores.__getitem__) == chunks[-1].id


def test_pages_keep_the_scores_of_the_search(retriever: Retriever) -> None:
    """Two chunks with the same score for the context: the page that the search prefers comes first."""
    hits = made(retriever, "Something is on this page here.", "Another text is on the other page.")
    response = replace(retriever.search(QUESTION), hits=hits[::-1])
    scores = {hit.chunk.id: 0.5 for hit in hits}
    opened = retriever.open_index()
    context = build_context(opened, response, None, 1000, scores=scores)
    assert [section.hits[0] for section in context.sections] == list(hits)
    scores[hits[1].chunk.id] = 0.6
    context = build_context(opened, response, None, 1000, scores=scores)
    assert [section.hits[0] for section in context.sections] == list(hits[::-1])


def made(retriever: Retriever, *texts: str) -> tuple[Hit, ...]:
    """Return hits with these texts, each on a page of its own that the index does not have."""
    (hit,) = retriever.search(QUESTION, top_k=1).hits
    chunks = [
        replace(hit.chunk, id=f"made-{number}", page_url=f"local://made/{number}", text=text)
        for number, text in enumerate(texts)
    ]
    return tuple(replace(hit, chunk=one, score=hit.score - n / 100) for n, one in enumerate(chunks))


def test_near_duplicates_count_once(retriever: Retriever) -> None:
    text = (
        "A node sends messages to a topic, and all nodes that listen to the topic receive a copy of them. "
        "The sender does not know who listens, so that nodes can come and go while the system runs on."
    )
    hits = made(retriever, text, text.replace("all nodes", "nodes"), "Something else is on this page here.")
    context = context_of(retriever, hits, 1000)
    assert [section.hits[0] for section in context.sections] == [hits[0], hits[2]]
    assert context.left_out == (hits[1],)


def test_a_truncated_code_block_is_closed(retriever: Retriever, monkeypatch: pytest.MonkeyPatch) -> None:
    """A collection of another pipeline can have chunks of any length."""
    code = "\n".join(f"value_{number} = compute({number})" for number in range(500))
    embedder, counted = retriever.open_index().embedder, [0]
    count = embedder.count_tokens

    def count_tokens(text: str) -> int:
        counted[0] += len(text)
        return count(text)

    hits = made(retriever, f"Compute:\n\n```python\n{code}\n```")
    monkeypatch.setattr(embedder, "count_tokens", count_tokens)
    (section,) = context_of(retriever, hits, 100).sections
    assert section.truncated
    assert section.tokens <= 100
    assert section.text.endswith("\n```")
    assert counted[0] < 20 * len(code)


def test_a_lead_in_is_shown_with_what_it_introduces(retriever: Retriever) -> None:
    pairs = [
        (before, after)
        for page in retriever.pages()
        for before, after in pairwise(retriever.page(page).chunks)
        if before.headings == after.headings and before.text.endswith(":")
    ]
    assert pairs
    for lead_in, after in pairs[:20]:
        assert after.id in chunk_ids(context_of(retriever, [Hit(1.0, lead_in, 0.9)], 2000)), lead_in.text


def test_a_context_stops_if_the_rest_is_off_topic(retriever: Retriever) -> None:
    """The book does not cover the query: its nearest sections do not fill the budget."""
    off_topic, covered = (retriever.context(query, 4000) for query in ("best pizza recipe in town", QUESTION))
    assert off_topic.response.coverage == "not covered"
    assert 0 < off_topic.tokens < 2000
    assert covered.tokens > 3500
    assert len(off_topic.response.hits) == 100, "the search returns all of them"
    whole = retriever.context("Which voice model does Whisper use?", 30_000)
    least = (whole.response.noise_floor or 1) - 0.03
    assert min(hit.score for section in whole.sections for hit in section.hits) >= least
    assert max(hit.score for hit in whole.left_out) < least


def test_a_context_does_not_end_with_a_lead_in(retriever: Retriever) -> None:
    (hit, other) = retriever.search(QUESTION, top_k=2).hits
    chunk = replace(hit.chunk, id="gone", text="Nodes talk to each other.\n\n## Example")
    only = replace(other.chunk, id="gone, too", text="You start it.\n\nLike this:")
    hits = [replace(hit, chunk=chunk), replace(other, chunk=only)]
    first, second = (section.text for section in context_of(retriever, hits, 500).sections)
    assert first.endswith("\n\nNodes talk to each other.")
    assert second.endswith(f"\n\nLike this:\n\n{OMISSION}")


def test_hits_get_the_sections_that_they_stand_in(retriever: Retriever) -> None:
    response = retriever.search(QUESTION, group_by="page")
    assert {hit.section_text for hit in response.hits} == {None}
    whole = retriever.search(QUESTION, group_by="page", section_tokens=300)
    count = retriever.embedder.count_tokens
    for hit, before in zip(whole.hits, response.hits, strict=True):
        assert replace(hit, section_text=None) == before
        assert hit.section_text
        assert count(hit.section_text) <= 300
        assert hit.section_text.startswith(f"# {' > '.join(map(one_line, hit.chunk.headings))}\n")
        assert hit.to_dict()["section_text"] == hit.section_text
    assert [hit for group in whole.groups for hit in group.hits] == list(whole.hits)
    with pytest.raises(InvalidArgument, match="section_tokens must be between 100"):
        retriever.search(QUESTION, section_tokens=10)


def test_a_chunk_over_the_budget_ends_after_a_sentence(retriever: Retriever) -> None:
    (hit,) = retriever.search(QUESTION, top_k=1).hits
    sentences = " ".join(f"Sentence {number} tells about the messages of nodes." for number in range(60))
    long = replace(hit, chunk=replace(hit.chunk, id="gone", text=sentences))
    context = context_of(retriever, (long, hit), 100, 2)
    first, *_ = context.sections
    assert first.truncated
    assert first.text.endswith("of nodes.")
    assert 70 < first.tokens <= 100
    assert context.left_out == (hit,)


def test_omitted_chunks_are_marked(retriever: Retriever) -> None:
    section = max(sections_of(retriever, FUNDAMENTALS), key=len)
    assert len(section) > 2
    hits = tuple(Hit(1.0, chunk, 0.9) for chunk in (section[0], section[-1]))
    count = retriever.embedder.count_tokens
    budget = count(f"{to_markdown(section[:1])}\n\n{OMISSION}\n\n{to_markdown(section[-1:])}") + 5
    (shown,) = context_of(retriever, hits, budget).sections
    assert shown.chunks == (section[0], section[-1])
    assert f"\n\n{OMISSION}\n\n" in shown.text
    assert shown.missing == len(section) - 2


def test_only_a_short_page_with_several_hits_is_shown_whole(retriever: Retriever) -> None:
    page = retriever.page(FUNDAMENTALS).chunks
    hits = [Hit(1.0 - number / 10, chunk, 0.9) for number, chunk in enumerate((page[0], page[-1]))]
    tokens = sum(retriever.embedder.count_tokens(chunk.text) for chunk in page)
    (whole,) = context_of(retriever, hits, 2 * tokens).sections
    assert (whole.chunks, [hit.chunk for hit in whole.hits]) == (page, [page[0], page[-1]])
    assert "\n\n## " in whole.text
    assert len(context_of(retriever, hits, tokens).sections) == 2
    assert context_of(retriever, hits[:1], 2 * tokens).sections[0].chunks == section_of(retriever, hits[0])


def test_neighbors_are_the_sections_around(retriever: Retriever) -> None:
    alone = retriever.context(QUESTION, 50_000, top_k=1)
    around = retriever.context(QUESTION, 50_000, top_k=1, neighbors=1)
    (section,) = around.sections
    found = sections_of(retriever, section.hits[0].chunk.page_url)
    own = found.index(alone.sections[0].chunks)
    expected = found[max(0, own - 1) : own + 2]
    assert section.chunks == tuple(chunk for part in expected for chunk in part)


@pytest.mark.parametrize("mode", MODES)
def test_only_a_page_that_is_relevant_comes_first(retriever: Retriever, mode: Mode) -> None:
    context = retriever.context("What is QoS history depth?", top_k=5, page=f"{DDS}/#top", mode=mode)
    assert context.page_used is True
    assert context.page_message == f"Results on {DDS}/#top come first."
    pages = [section.hits[0].chunk.page_url for section in context.sections]
    assert pages[0] == DDS
    assert pages == sorted(pages, key=lambda page: page != DDS)
    question = "How does the robot understand spoken commands?"
    context = retriever.context(question, page=FUNDAMENTALS, mode=mode)
    message = f"Nothing on {FUNDAMENTALS} is relevant enough. The whole book was searched."
    assert (context.page_used, context.page_message) == (False, message)
    assert context.sections == retriever.context(question, mode=mode).sections


def test_a_page_that_does_not_exist(retriever: Retriever) -> None:
    context = retriever.context(QUESTION, page=FUNDAMENTALS[:-1])
    assert context.page_used is False
    assert f"Did you mean '{FUNDAMENTALS}'?" in context.page_message
    assert context.page_message.endswith("The whole book was searched.")
    assert context.sections
    awaited = asyncio.run(retriever.acontext(QUESTION, page=FUNDAMENTALS[:-1]))
    assert replace(awaited, response=context.response) == context


def test_without_a_noise_floor_the_page_must_be_among_the_results(retriever: Retriever) -> None:
    book = replace(retriever.search(QUESTION, top_k=10), noise_floor=None)
    page = book.hits[-1].chunk.page_url
    on_page = replace(retriever.search(QUESTION, top_k=10, filters=Filters(page_url=page)), noise_floor=None)
    hits, used = prefer_page(book, on_page)
    assert (used, hits[0].chunk.page_url) == (True, page)
    assert {hit.chunk.id for hit in hits} == {hit.chunk.id for hit in book.hits}


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"max_tokens": 99}, "max_tokens must be between 100 and 100000"),
        ({"max_tokens": True}, "max_tokens"),
        ({"neighbors": -1}, "neighbors must be between 0 and 5"),
        ({"page": " "}, "cannot be empty"),
        ({"page": DDS, "filters": {"url": DDS}}, "exclude each other"),
    ],
)
def test_invalid_parameters(retriever: Retriever, parameters: dict[str, object], message: str) -> None:
    with pytest.raises(InvalidArgument, match=message):
        retriever.context(QUESTION, **parameters)  # type: ignore[arg-type]


def test_expected_pages_are_preferred_and_others_are_not(retriever: Retriever) -> None:
    """Readers' questions on the page that answers them, and on another page."""
    pages = sorted(retriever.pages())
    right = wrong = 0
    questions = load_suite(ROOT / "tests" / "evaluation" / "heldout.json").expectations[::2]
    for number, question in enumerate(questions):
        book = retriever.search(question.query)
        expected = next(page for page in pages if page.endswith(f"/{question.pages[0]}"))
        other = next(page for page in pages[7 * number % len(pages) :] + pages if page != expected)
        right += prefer_page(book, retriever.search(question.query, filters={"url": expected}))[1]
        wrong += prefer_page(book, retriever.search(question.query, filters={"url": other}))[1]
    assert right == len(questions) == 50
    assert wrong <= 3


def test_a_long_introduced_chunk_does_not_displace_other_hits(retriever: Retriever) -> None:
    """From a quarter of the budget on, a lead-in is shown without what it introduces if others need the room."""
    count, pages = retriever.embedder.count_tokens, [retriever.page(url).chunks for url in retriever.pages()]
    sizes = {chunk.id: count(clean_markdown(chunk.text, all_tabs=True)) for page in pages for chunk in page}
    titles = {
        chunk.id: count(f"# {HEADING_SEPARATOR.join(chunk.headings)}") for page in pages for chunk in page
    }
    pairs = [
        (before, after)
        for page in pages
        for before, after in pairwise(page)
        if before.headings == after.headings and before.text.endswith(":") and sizes[after.id] > 80
    ]
    tried = 0
    for lead_in, introduced in pairs[:10]:
        other = next(
            chunk
            for page in pages
            for chunk in page
            if chunk.page_url != lead_in.page_url and not chunk.text.endswith(":") and sizes[chunk.id] > 80
        )
        needed = sum(table[chunk.id] for table in (sizes, titles) for chunk in (lead_in, other))
        budget = needed + min(sizes[introduced.id], 40) - 10
        if sizes[lead_in.id] + sizes[introduced.id] <= budget / 4:
            continue
        tried += 1
        chosen = chunk_ids(context_of(retriever, [Hit(1.0, lead_in, 0.9), Hit(1.0, other, 0.9)], budget))
        assert {lead_in.id, other.id} <= set(chosen)
        assert introduced.id not in chosen
    assert tried
