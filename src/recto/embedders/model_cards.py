"""The prefixes, input lengths and languages of models by their names: no server reports them."""

from __future__ import annotations

import re
from dataclasses import dataclass

from recto._util.languages import ENGLISH


@dataclass(frozen=True, slots=True)
class ModelCard:
    """The prefixes of a family of models, and the number of tokens that it reads."""

    query: str = ""
    document: str = ""
    max_tokens: int = 512  # almost every embedding model reads as many


_SEARCH = "Represent this sentence for searching relevant passages: "
_TASK = "Instruct: Given a web search query, retrieve relevant passages that answer the query\nQuery:"
_CARDS = (
    # The first pattern that occurs in the name of a model counts, so special ones come first. If sources
    # state several lengths, the shortest is listed. Models whose sources state different prefixes are not
    # listed, nor models whose prefix depends on an adapter that the server chooses (Jina v3 and v5): a wrong
    # prefix is worse than none.
    (r"nomic-embed-text-v2", ModelCard("search_query: ", "search_document: ")),
    # 8192 with scaled positions, which servers of GGUF files do not have by default
    (r"nomic-embed-text", ModelCard("search_query: ", "search_document: ", 2048)),
    (r"multilingual-e5-large-instruct", ModelCard(f"{_TASK} ")),
    (r"e5-mistral-7b-instruct", ModelCard(f"{_TASK} ", "", 4096)),
    (r"\be5-(?:small|base|large)", ModelCard("query: ", "passage: ")),
    (r"bge-(?:small|base|large)-zh", ModelCard("为这个句子生成表示以用于检索相关文章：")),
    (r"bge-(?:small|base|large)|mxbai-embed-large", ModelCard(_SEARCH)),
    (r"arctic-embed(?:2|-[lm]-v2)", ModelCard("query: ", "", 8192)),
    (r"arctic-embed-m-long|arctic-embed:137m", ModelCard(_SEARCH, "", 2048)),
    (r"arctic-embed", ModelCard(_SEARCH)),
    (r"gte-qwen(?:2|1\.5)", ModelCard(f"{_TASK} ", "", 32_768)),
    (r"qwen3-embedding", ModelCard(_TASK, "", 32_768)),  # without a space, as in its model card
    (r"embeddinggemma", ModelCard("task: search result | query: ", "title: none | text: ", 2048)),
    (r"jina-embeddings-v4-text-retrieval", ModelCard("Query: ", "Passage: ", 32_768)),
    (r"all-minilm-l12|all-minilm:33m|paraphrase-multilingual", ModelCard(max_tokens=128)),
    (r"all-minilm", ModelCard(max_tokens=256)),
    (r"all-mpnet", ModelCard(max_tokens=384)),
    (r"text-embedding-(?:3-|ada-002)|(?:mistral|codestral)-embed", ModelCard(max_tokens=8191)),
    (r"bge-m3|gte-(?:\w+-en-v1\.5|modernbert|multilingual)", ModelCard(max_tokens=8192)),
    (r"jina-embeddings-v2|granite-embedding-[\w-]*r2", ModelCard(max_tokens=8192)),
    (r"voyage-(?:3|4|code-3)", ModelCard(max_tokens=32_000)),
)


def model_languages(name: str) -> tuple[str, ...]:
    """Return the languages that a model knows, by its name: English for English models, else none: all."""
    return (ENGLISH,) if re.search(r"(?:^|[-_/])en(?:glish)?(?:$|[-_.:])", name.lower()) else ()


def model_card(name: str) -> ModelCard:
    """Return what is known about a model, by the name that a server or fastembed gives it."""
    name = name.lower().replace("_", "-")
    return next((card for pattern, card in _CARDS if re.search(pattern, name)), ModelCard())
