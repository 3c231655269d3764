"""Test languages other than English: detection, words, snippets and chunks."""

from __future__ import annotations

import unicodedata
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recto._util.languages import ENGLISH, detect_language, language_tag
from recto.book.chunking import split_block
from recto.cli.render import wrap
from recto.evaluation.integrity import contained, words
from recto.search.analyzer import exact_term, fold, is_unspaced, query_words, word_spans, word_terms
from recto.search.display import ELLIPSIS, SNIPPET, make_snippet, matched_words
from recto.search.lexical import Lexicon, LexiconBuilder, analyze_query
from recto.search.markdown import plain_text
from recto.testing.parts import chunk
from recto.types.book import Block
from recto.types.search import LEXICAL_WEIGHT, Chunk
from tests.languages import SENTENCES

OF_SENTENCES = st.sampled_from("".join(SENTENCES.values()) + "👩‍🔬🇩🇪e\u0301각 \n")
ANY_TEXT = st.text(st.one_of(st.characters(codec="utf-8"), OF_SENTENCES))
LANGUAGES = (ENGLISH, *SENTENCES)
FLAG_LETTERS = "".join(map(chr, range(0x1F1E6, 0x1F200)))


def in_language(language: str, *texts: str) -> list[Chunk]:
    return [replace(chunk(number, text=text), language=language) for number, text in enumerate(texts)]


def lexicon_of(chunks: list[Chunk]) -> Lexicon:
    builder = LexiconBuilder()
    builder.vectors(chunks)
    return Lexicon(builder.to_bytes())


@pytest.mark.parametrize("language", SENTENCES)
def test_languages_are_detected(language: str) -> None:
    assert detect_language(SENTENCES[language]) == language


@pytest.mark.parametrize(
    ("language", "text"),
    [
        ("", "```python\nder = die(das)\n```\n`und` x = 1"),
        ("en", "Where is the file of the user? It is here."),
        ("en", "The word “über” is German, and 静的 is Japanese. This is what the page is about."),
    ],
)
def test_code_and_english_are_no_other_language(language: str, text: str) -> None:
    assert detect_language(text) == language


@pytest.mark.parametrize(
    ("given", "tag"), [("pt-BR", "pt"), ("zh_Hans", "zh"), ("DE", "de"), ("", ""), (None, ""), ("???", "")]
)
def test_tags(given: str | None, tag: str) -> None:
    assert language_tag(given) == tag


@pytest.mark.parametrize(
    ("language", "one", "other"),
    [
        *(("fr", "café", "CAFE"), ("es", "configuración", "configurar"), ("ja", "ＡＰＩ", "api")),
        *(
            ("de", "Häuser", "hauser"),
            ("de", "Straße", "Strasse"),
            ("de", "Konfigurationen", "Konfiguration"),
        ),
        *(("tr", "IŞIK", "ışık"), ("tr", "İstanbul", "istanbul"), ("ru", "Ёлка", "елка")),
        *(("ar", "القاعدة", "قـــاعِدَة"), ("ar", "٢٣", "23"), ("el", "Σίσυφος", "ΣΙΣΥΦΟΣ")),
        *(("ur", "کتاب", "كتاب"), ("fa", "کتاب‌ها", "کتابها")),
    ],
)
def test_spellings_and_forms_of_a_word_have_the_same_stem(language: str, one: str, other: str) -> None:
    assert word_terms(one, language)[0] == word_terms(other, language)[0]


@pytest.mark.parametrize("language", ["en", "de"])
@pytest.mark.parametrize(("one", "other"), [("Haus", "Häuser"), ("Baum", "bäume"), ("cafe", "Café")])
def test_short_words_and_accents_match_also_if_the_language_is_unknown(
    language: str, one: str, other: str
) -> None:
    assert set(word_terms(one, language)) & set(word_terms(other, language))


def test_scripts_without_spaces_are_cut_into_pairs() -> None:
    text = "静的ファイル"
    pairs = [text[start:end] for start, end in word_spans(text, "ja")]
    assert pairs == ["静的", "的フ", "ファ", "ァイ", "イル"]
    assert word_terms("静的", "zh") == ("静的", "静", "的")
    assert query_words("これは静的", "ja") == ["は静", "静的"]


@pytest.mark.parametrize("language", ["de", "ja", "ar"])
def test_identifiers_versions_and_flags_stay_whole(language: str) -> None:
    for word in ("get_user_name", "v2.10", "--dry-run", "pydantic.BaseModel", "BackgroundTask"):
        assert word_terms(word, language)[0] == word.lower()


def test_single_words_prefer_the_exact_form() -> None:
    chunks = in_language("fr", "Le résumé", "Je résume", "autre chose", "encore une page")
    query = analyze_query("résumé", lexicon_of(chunks))
    assert exact_term("résumé", "fr") == "=résumé"
    assert len(query.vector.indices) == 3, "both stems, and the word as it is written"


def test_a_query_is_analysed_in_the_language_it_has_most_words_of() -> None:
    german = in_language("de", *["Die Häuser und der Fluss"] * 4)
    english = [chunk(number, text="The houses and the river") for number in range(9, 14)]
    lexicon = lexicon_of([*german, *english])
    assert list(lexicon.languages) == ["en", "de"]
    assert analyze_query("wie sind die Häuser", lexicon).language == "de"
    assert analyze_query("where are the houses", lexicon).language == "en"
    assert lexicon_of(english).languages == {"en": 5}


@pytest.mark.parametrize(("language", "query"), SENTENCES.items())
def test_the_language_of_a_query_is_told(language: str, query: str) -> None:
    english = lexicon_of([chunk(number, text="The houses and the river") for number in range(9)])
    found = analyze_query(query, english)
    assert (found.language, found.foreign) == (ENGLISH, language)
    assert analyze_query(query, english, language=ENGLISH).foreign == "", "stated"
    own = analyze_query(query, lexicon_of(in_language(language, query)))
    assert (own.language, own.foreign) == (language, "")


@pytest.mark.parametrize("query", ["die", "was", "was ROS 2", "how to die in a pod", "café nodes", "nodes"])
def test_words_of_other_languages_make_no_query_foreign(query: str) -> None:
    book = lexicon_of([chunk(number, text="The houses and the river") for number in range(9)])
    assert analyze_query(query, book).foreign == ""


@pytest.mark.parametrize("query", ["ROS2是什么？", "Gazebo、URDFとは何ですか"])
def test_a_sentence_without_spaces_is_no_single_word_of_an_english_book(query: str) -> None:
    book = lexicon_of([chunk(number, text="Gazebo and ROS2") for number in range(9)])
    assert analyze_query(query, book).weight == LEXICAL_WEIGHT
    assert analyze_query("Gazebo", book).weight > LEXICAL_WEIGHT


def test_matches_of_pairs_are_joined() -> None:
    for text in ("静的ファイルを配信する。", "文字" * 300 + "静的ファイル" + "文字" * 300):
        found = analyze_query("静的ファイル", lexicon_of(in_language("ja", text, "別のページ"))).words
        assert matched_words(text, found) == ("静的ファイル",)
        snippet = make_snippet(text, found)
        assert [snippet.text[start:end] for start, end in snippet.spans] == ["静的ファイル"]
    assert 150 <= len(snippet.text) <= 220, "of a long text without spaces"


@pytest.mark.parametrize("language", ["ja", "zh", "th"])
def test_parts_of_a_text_without_spaces_are_in_their_page(language: str) -> None:
    text = SENTENCES[language]
    assert contained(words(text[3:17]), words(text)) == 1.0


def is_inside_character(text: str, cut: int) -> bool:
    """Return whether a cut separates a letter from its mark, or parts of an emoji, a flag or a syllable."""
    if cut in (0, len(text)) or text[cut].isspace():
        return False
    before, after = text[cut - 1], text[cut]
    flag_letters = len(text[:cut]) - len(text[:cut].rstrip(FLAG_LETTERS))
    is_flag = "\U0001f1e6" <= after <= "\U0001f1ff" and flag_letters % 2 == 1
    is_syllable = "\u1100" <= before <= "\u11ff" and "\u1160" <= after <= "\u11ff"
    is_mark = unicodedata.category(after).startswith("M") or "\U0001f3fb" <= after <= "\U0001f3ff"
    is_conjunct = before in "\u094d\u17d2" and unicodedata.category(after) == "Lo"  # Devanagari, Khmer
    return is_flag or is_syllable or is_mark or is_conjunct or "\u200d" in (before, after)


def check_cuts(text: str, parts: list[str]) -> None:
    """Check that parts have all characters of a text but spaces, and that no cut is inside a character."""
    assert "".join("".join(parts).split()) == "".join(text.split()), text
    position = 0
    for part in parts[:-1]:
        position = text.index(part, position) + len(part)
        assert not is_inside_character(text, position), (text, parts)


@given(ANY_TEXT, st.sampled_from(LANGUAGES))
@settings(max_examples=60)
def test_any_text_can_be_analysed(text: str, language: str) -> None:
    detect_language(text)
    last = 0
    for start, end in word_spans(text, language):
        assert last <= start < end <= len(text)
        assert all(word_terms(text[start:end], language))
        last = start + 1 if is_unspaced(text[start:end]) else end  # pairs of characters overlap
    assert len(set(query_words(text, language))) == len(query_words(text, language))
    for word in query_words(text, language):
        assert word in text
        assert fold(word)


@given(ANY_TEXT, ANY_TEXT, st.sampled_from(LANGUAGES))
@settings(max_examples=60)
def test_snippets_of_any_text_are_cut_between_characters(text: str, query: str, language: str) -> None:
    text = text.replace(ELLIPSIS, "")
    found = analyze_query(query, lexicon_of(in_language(language, text))).words
    for length in (8, SNIPPET):
        shown, spans = make_snippet(text, found, length)
        inner, whole = shown.strip(ELLIPSIS), " ".join(plain_text(text).split())
        first = whole.index(inner)
        assert not any(is_inside_character(whole, cut) for cut in (first, first + len(inner)))
        for start, end in spans:
            assert 0 <= start < end <= len(shown)
            assert not any(is_inside_character(shown.removesuffix(ELLIPSIS), cut) for cut in (start, end))


@given(ANY_TEXT.filter(str.strip), st.integers(4, 40))
@settings(max_examples=60)
def test_chunks_lose_no_character_and_break_none(text: str, limit: int) -> None:
    block = Block("paragraph", text.strip(), 1, text.strip().count("\n") + 1)
    parts = split_block(block, limit, len)
    check_cuts(block.text, [part.text for part in parts])
    check_cuts(" ".join(text.split()), list(wrap(text, 10)))


def test_sentences_of_all_scripts_are_kept_whole() -> None:
    for sentence in ("これは文です。", "这是一句话！", "هل هذا سؤال؟", "यह वाक्य है।", "یہ جملہ ہے۔"):
        text = sentence * 12
        parts = split_block(Block("paragraph", text, 1, 1), 40, len)
        assert len(parts) > 1
        assert all(part.text.endswith(sentence[-1]) for part in parts), sentence
