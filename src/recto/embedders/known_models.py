"""What servers do not tell about embedding models: prefixes, tokens, and the length that they read.

The facts come from the model cards. A server adds no prefixes by itself, and a model that was trained with
them finds less without them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+|\s+|[^\sA-Za-z]")
_SEARCH = "Represent this sentence for searching relevant passages: "
_TASK = "Instruct: Given a web search query, retrieve relevant passages that answer the query\nQuery:"


@dataclass(frozen=True, slots=True)
class KnownModel:
    """The prefixes of a family of models, and the number of tokens that it reads; None if that varies."""

    query: str = ""
    document: str = ""
    max_tokens: int | None = None


_MODELS = (
    # The first pattern that occurs in the name of a model counts, so special ones come first. Entries were
    # compared with the model's card or configuration or MTEB's registry of models; Arctic v1 and v2,
    # EmbeddingGemma and Mistral only with programs that use them. Of several lengths, the shortest is listed.
    # Models for which sources have other prefixes are not listed, nor models whose prefix depends on an
    # adapter that the server chooses (Jina v3 and v5): a wrong prefix is worse than none.
    (r"nomic-embed-text-v2", KnownModel("search_query: ", "search_document: ", 512)),
    # 8192 with scaled positions, which servers of GGUF files do not have by default
    (r"nomic-embed-text", KnownModel("search_query: ", "search_document: ", 2048)),
    (r"multilingual-e5-large-instruct", KnownModel(f"{_TASK} ", "", 512)),
    (r"e5-mistral-7b-instruct", KnownModel(f"{_TASK} ", "", 4096)),
    (r"\be5-(?:small|base|large)", KnownModel("query: ", "passage: ", 512)),
    (r"bge-m3", KnownModel(max_tokens=8192)),
    (r"bge-(?:small|base|large)-zh", KnownModel("为这个句子生成表示以用于检索相关文章：", "", 512)),
    (r"bge-(?:small|base|large)", KnownModel(_SEARCH, "", 512)),
    (r"mxbai-embed-large", KnownModel(_SEARCH, "", 512)),
    (r"arctic-embed(?:2|-[lm]-v2)", KnownModel("query: ", "", 8192)),
    (r"arctic-embed-m-long|arctic-embed:137m", KnownModel(_SEARCH, "", 2048)),
    (r"arctic-embed", KnownModel(_SEARCH, "", 512)),
    (r"gte-qwen(?:2|1\.5)", KnownModel(f"{_TASK} ", "", 32_768)),
    (r"gte-(?:(?:base|large)-en-v1\.5|modernbert|multilingual)", KnownModel(max_tokens=8192)),
    (r"gte-(?:small|base|large)", KnownModel(max_tokens=512)),
    (r"qwen3-embedding", KnownModel(_TASK, "", 32_768)),  # without a space, as in its model card
    (r"embeddinggemma", KnownModel("task: search result | query: ", "title: none | text: ", 2048)),
    (r"jina-embeddings-v4-text-retrieval", KnownModel("Query: ", "Passage: ", 32_768)),
    (r"jina-embeddings-v2", KnownModel(max_tokens=8192)),
    (r"all-minilm-l12|all-minilm:33m|paraphrase-multilingual", KnownModel(max_tokens=128)),
    (r"all-minilm", KnownModel(max_tokens=256)),
    (r"all-mpnet", KnownModel(max_tokens=384)),
    (r"granite-embedding-[\w-]*r2", KnownModel(max_tokens=8192)),
    (r"granite-embedding", KnownModel(max_tokens=512)),
    (r"text-embedding-(?:3-|ada-002)", KnownModel(max_tokens=8191)),
    (r"mistral-embed|codestral-embed", KnownModel(max_tokens=8192)),
    # Voyage has `input_type` instead of prefixes.
    (r"voyage-2", KnownModel(max_tokens=4000)),
    (r"voyage-(?:law|code|large)-2", KnownModel(max_tokens=16_000)),
    (r"voyage-(?:3|4|code-3|finance-2|multilingual-2)", KnownModel(max_tokens=32_000)),
)


def known_model(name: str) -> KnownModel | None:
    """Return what is known about a model, by the name that a server gives it, or None."""
    name = name.lower().replace("_", "-")
    return next((model for pattern, model in _MODELS if re.search(pattern, name)), None)


def count_tokens(prefix: str, text: str) -> int:
    """Return an upper estimate of the tokens of a text, special tokens and the prefix included.

    Four letters of a word, a digit, a sign, a letter of another alphabet, and white space other than a single
    space count as a token each, and a Chinese character as two.
    """
    count = 2
    for piece in _WORD.findall(prefix + text):
        if piece.isspace():
            count += len(piece) - (piece[-1] == " ")
        else:
            size = len(piece.encode("utf-8", "replace"))
            count += (size + 3) // 4 if piece.isascii() else max(1, size - 1)
    return count
