"""The terms of texts, and the vocabulary of a book: lexical vectors, corrections, known words."""

from __future__ import annotations

import math
import random
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recto.search.analyzer import exact_term, query_words, stem, term_id, word_forms, word_spans, word_terms
from recto.search.lexical import (
    COMMON_WORDS,
    SINGLE_WORD_WEIGHT,
    Lexicon,
    LexiconBuilder,
    analyze_query,
    is_common,
)
from recto.testing import parts
from recto.types.search import LEXICAL_WEIGHT, Chunk
from scripts.make_common_words import build

TEXTS = (
    "Configure the controller with `max_length` and run the node.",
    "The controller configures every joint; see base_link for the frame.",
    "RabbitMQ is a message broker. Running it needs a server.",
    "A publisher sends messages to a topic. Subscribers receive them.",
)


def chunk(text: str, number: int = 0) -> Chunk:
    return replace(parts.chunk(number), text=text, headings=())


def lexicon(*texts: str) -> Lexicon:
    builder = LexiconBuilder()
    builder.vectors([chunk(text, number) for number, text in enumerate(texts)])
    return Lexicon(builder.to_bytes())


@pytest.fixture(scope="module")
def book() -> Lexicon:
    return lexicon(*TEXTS)


def test_the_vocabulary_counts_chunks_not_occurrences() -> None:
    found = lexicon("dog dogs dogs", "dog cat")
    assert (found.chunks, found.count("dog"), found.count("cat"), found.count("bird")) == (2, 2, 1, 0)
    assert (found.words("dog"), found.count("=dogs")) == ({"dog": 2, "dogs": 1}, 1)


def test_words_share_their_stem_and_identifiers_have_parts(book: Lexicon) -> None:
    assert book.words("configur") == {"configure": 1, "configures": 1}
    assert (book.count("configur"), book.count("link"), book.count("base_link")) == (2, 1, 1)
    assert book.words("link") == {}, "no text has this word alone"


def test_a_query_is_its_stems(book: Lexicon) -> None:
    query = analyze_query("how was the controller configured at the server?", book)
    assert {term_id(term) for term in ("controller", "configur", "server")} == set(query.vector.indices)
    assert (query.known, query.corrections, query.weight) == (1.0, (), LEXICAL_WEIGHT)


def test_a_lexical_score_is_the_share_of_the_largest_one() -> None:
    text = " ".join(["dog cat"] * 400)
    builder = LexiconBuilder()
    (vector, _) = builder.vectors([chunk(text), chunk("bird", 1)])
    weights = dict(zip(vector.indices, vector.values, strict=True))

    def score(query: str) -> float:
        terms = analyze_query(query, Lexicon(builder.to_bytes())).vector
        rows = zip(terms.indices, terms.values, terms.idf, strict=True)
        return sum(value * idf * weights.get(index, 0.0) for index, value, idf in rows)

    assert 0.9 < score("the dog and the cat") < 1
    assert 0 < score("the dog and the elephant") < 0.5, "an unknown word counts"


def test_a_single_word_prefers_chunks_that_have_it_as_written(book: Lexicon) -> None:
    query = analyze_query("configures", book)
    assert set(query.vector.indices) == {term_id("configur"), term_id("=configures")}
    several = analyze_query("What configures?", book)
    assert query.weight == SINGLE_WORD_WEIGHT > several.weight == LEXICAL_WEIGHT


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        ("rabitmq", "rabbitmq"),  # a letter missing
        ("rabbitmqq", "rabbitmq"),  # a letter too many
        ("rabbitnq", "rabbitmq"),  # a wrong letter
        ("rabbimtq", "rabbitmq"),  # two letters swapped
        ("arbbitmq", "rabbitmq"),  # in the first letters
        ("max_lenth", "max_length"),
        ("subscribrrs", "subscribers"),
        ("subzcribrers", "subscribers"),  # two edits in a long word
    ],
)
def test_a_word_that_the_book_does_not_have_is_corrected(book: Lexicon, word: str, expected: str) -> None:
    query = analyze_query(word, book)
    assert query.corrections == ((word, (expected,)),)
    assert term_id(stem(expected)) in query.vector.indices
    assert query.known == 1


def test_words_without_similar_words_and_short_words_are_not_corrected(book: Lexicon) -> None:
    unknown = analyze_query("kubernetes", book)
    assert (unknown.known, unknown.corrections, unknown.vector.indices) == (0.0, (), (term_id("kubernet"),))
    assert analyze_query("how does a mode robot hold its controller", book).corrections == ()


def test_common_english_words_are_not_corrected_and_count_less(book: Lexicon) -> None:
    assert analyze_query("tropic", lexicon("A topic")).corrections == (("tropic", ("topic",)),)
    assert analyze_query("sever", book).corrections == (), "common English, near to server"
    assert is_common("charging")
    assert not is_common("kubernetes")
    common = analyze_query("why is a publisher so reserved about the controller", book)
    rare = analyze_query("why is a publisher so kubernetes about the controller", book)
    assert common.corrections == ()
    assert 1 > common.known > rare.known


def test_the_list_of_common_words_is_what_the_script_makes() -> None:
    assert COMMON_WORDS.read_bytes() == build()


def test_known_words_are_weighted_by_idf(book: Lexicon) -> None:
    query = analyze_query("publisher and kubernetes", book)
    known, unknown = book.idf("publisher"), book.idf("kubernet")
    assert query.known == pytest.approx(known / (known + unknown))


def test_a_compound_is_half_known_by_its_parts(book: Lexicon) -> None:
    assert analyze_query("joint_frame", book).known == pytest.approx(0.5)
    assert analyze_query("kubernetes_pod", book).known == 0


def test_weights_are_those_of_bm25() -> None:
    builder = LexiconBuilder()
    (vector,) = builder.vectors([chunk("dog dog cat")])
    weights = dict(zip(vector.indices, vector.values, strict=True))
    length = 1.2 * (0.25 + 0.75 * 3 / 100)
    dog, cat = 2 * 2.2 / (2 + length), 2.2 / (1 + length)
    expected = {"dog": dog, "=dog": dog, "cat": cat, "=cat": cat}
    assert weights == pytest.approx({term_id(term): weight for term, weight in expected.items()})
    assert Lexicon(builder.to_bytes()).idf("dog") == pytest.approx(math.log((1 - 1 + 0.5) / 1.5 + 1))


@pytest.mark.parametrize("data", [b"", b"RECTOLX2", b"x" * 40, None])
def test_invalid_vocabularies_are_rejected(data: bytes | None) -> None:
    builder = LexiconBuilder()
    builder.vectors([chunk("dog")])
    with pytest.raises(ValueError, match="vocabulary"):
        Lexicon(builder.to_bytes()[:-1] if data is None else data)


@given(
    st.lists(st.text(alphabet="abcé_XY1. ", max_size=40), min_size=1, max_size=8),
    st.text(alphabet="abcé_XY1. ", max_size=20),
)
@settings(max_examples=50)
def test_every_word_is_found_again_and_any_query_can_be_analysed(texts: list[str], query: str) -> None:
    builder = LexiconBuilder()
    vectors = builder.vectors([chunk(text, number) for number, text in enumerate(texts)])
    found = Lexicon(builder.to_bytes())
    assert found.chunks == len(texts)
    indices = {index for vector in vectors for index in vector.indices}
    for text in texts:
        for word in text.split():
            analyzed = analyze_query(word, found)
            assert set(analyzed.vector.indices) <= indices
            assert analyzed.known == 1.0 or not analyzed.words
    assert 0 <= analyze_query(query or "x", found).known <= 1


def test_a_random_typo_finds_the_word_again() -> None:
    rng = random.Random(7)
    words = ["".join(rng.choices("abcdefghijklmnopqrstuvwxyz", k=rng.randint(5, 12))) for _ in range(100)]
    book, found = lexicon(*words), 0
    for word in words:
        place = rng.randrange(len(word))
        before, after = word[:place], word[place + 1 :]
        typo = rng.choice([before + after, f"{before}z{word[place:]}", f"{before}q{after}"])
        found += typo in words or word in dict(analyze_query(typo, book).corrections).get(typo, ())
    assert found >= 98


def terms_of(text: str) -> list[str]:
    return [term for start, end in word_spans(text) for term in word_terms(text[start:end])]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("The robot", ["the", "robot"]),
        ("9.81", ["9.81"]),
        ("v2.10.3", ["v2.10.3"]),
        ("--dry-run", ["--dry-run", "dry", "run"]),
        ("base_link", ["base_link", "bas", "link"]),
        ("BaseModels", ["basemodel", "bas", "model"]),
        ("ROS_DOMAIN_ID", ["ros_domain_id", "ros", "domain", "id"]),
        ("HTTPServer", ["httpserver", "http", "server"]),
        ("URLs", ["url"]),
        ("pydantic.BaseModel", ["pydantic.basemodel", "pydantic", "basemodel", "bas", "model"]),
        ("E0308", ["e0308", "0308"]),
        ("time-consuming", ["time-consuming", "tim", "consum"]),
        ("Größe", ["große", "groß"]),
    ],
)
def test_terms(text: str, expected: list[str]) -> None:
    assert terms_of(text) == expected


@pytest.mark.parametrize(
    ("forms", "shared"),
    [
        (("configure", "configures", "configured", "configuring"), "configur"),
        (("make", "makes", "making"), "mak"),
        (("run", "runs", "running"), "run"),
        (("library", "libraries"), "library"),
        (("class", "classes"), "class"),
        (("status",), "status"),
        (("ros2",), "ros2"),
        (("base_links",), "base_links"),
    ],
)
def test_forms_of_a_word_share_their_stem(forms: tuple[str, ...], shared: str) -> None:
    assert {stem(form) for form in forms} == {shared}


def test_stop_words_count_only_in_quotes_or_alone() -> None:
    assert query_words("How do I use the with statement?") == ["use", "statement"]
    assert query_words('How do I use the "with" statement?') == ["use", "with", "statement"]
    assert query_words("what is it") == ["what", "is", "it"]


def test_words_as_written_are_terms_of_their_own() -> None:
    assert word_forms("time-consuming") == ("time-consuming", "time", "consuming")
    assert exact_term("scrolling") == "=scrolling"
    assert {exact_term(form) for form in ("the", "base_link", "größe")} == {""}
    assert word_terms("Base_Link")[0] == word_terms("base_link")[0]
