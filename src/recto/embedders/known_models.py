"""What servers do not tell about embedding models: prefixes, tokens, and the length that they read.

The facts are those of the model cards. A server adds no prefixes by itself, and a model that was trained with
them finds less without them. `ask_max_tokens` asks a server how much of a text its model reads.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

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
    # compared with the model's card or configuration or MTEB's registry of models; those of Arctic v1 and v2,
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

Ask = Callable[[str, object], Any]
"""Returns the JSON object at a path of the server, or None; the path begins at the root, without `/v1`."""


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


def ask_max_tokens(ask: Ask, model: str) -> tuple[int | None, str]:
    """Return the number of tokens that a server reads, and the name of the server, as far as it tells."""
    entry = _entry(ask("/v1/models", None), model)
    if limit := _positive(entry.get("max_model_len")):
        return limit, "vLLM"
    if entry.get("owned_by") == "llamacpp":
        # A text must fit into the physical batch (-ub), which the server does not report; 512 is the default:
        # https://github.com/ggml-org/llama.cpp/pull/7389
        meta = _object(entry.get("meta"))
        return min(512, *(_positive(meta.get(name)) or 512 for name in ("n_ctx", "n_ctx_train"))), "llama.cpp"
    for read in (_ollama, _lm_studio, _tei):
        limit, server = read(ask, model)
        if limit:
            return limit, server
    return None, ""


def _ollama(ask: Ask, model: str) -> tuple[int | None, str]:
    shown = _object(ask("/api/show", {"model": model}))
    lengths = (
        value for name, value in _object(shown.get("model_info")).items() if name.endswith(".context_length")
    )
    length = _positive(next(lengths, None))
    # Without `num_ctx`, Ollama may cut texts at 2048 tokens, whatever the length of the model:
    # https://github.com/ollama/ollama/issues/14259
    window = re.search(r"^num_ctx\s+(\d+)", str(shown.get("parameters", "")), re.MULTILINE)
    return (min(length, int(window[1]) if window else 2048) if length else None), "Ollama"


def _lm_studio(ask: Ask, model: str) -> tuple[int | None, str]:
    found = _object(ask(f"/api/v0/models/{model}", None))
    return _positive(found.get("loaded_context_length") or found.get("max_context_length")), "LM Studio"


def _tei(ask: Ask, _: str) -> tuple[int | None, str]:
    return _positive(_object(ask("/info", None)).get("max_input_length")), "Text Embeddings Inference"


def model_names(answer: object) -> list[str]:
    """Return the names in the answer of `/v1/models`."""
    entries = _object(answer).get("data")
    return (
        [str(entry["id"]) for entry in entries if isinstance(entry, dict) and "id" in entry]
        if isinstance(entries, list)
        else []
    )


def _entry(answer: object, model: str) -> dict[str, Any]:
    """Return the entry of a model, or the only one: llama.cpp serves one model under every name."""
    entries = _object(answer).get("data")
    found = [entry for entry in entries if isinstance(entry, dict)] if isinstance(entries, list) else []
    named = [
        entry
        for entry in found
        if str(entry.get("id")).removesuffix(":latest") == model.removesuffix(":latest")
    ]
    return named[0] if named else found[0] if len(found) == 1 else {}


def _object(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _positive(value: object) -> int | None:
    return value if isinstance(value, int) and value > 0 else None
