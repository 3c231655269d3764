"""A double of Cohere's embed endpoint; texts that share words have similar vectors."""

from __future__ import annotations

import hashlib
import math
import re
import uuid
from collections import Counter
from collections.abc import Mapping
from typing import Any

from tests.doubles.server import Answer, Double, Request, answer_json

MAX_TEXTS, MAX_WORDS = 96, 512
MODELS = {"embed-english-v3.0": 1024, "embed-multilingual-v3.0": 1024, "embed-v4.0": 1536}
"""The dimensions of the vectors."""

# Stop words would make every query similar to every chunk.
_SMALL = re.compile(
    r"an?|and|are|as|at|be|by|do|does|for|from|how|i|in|is|it|of|on|or|that|the|this|to|was|what|when|where|which|who|with"
)
_ENDINGS = ("ations", "ation", "ings", "ing", "ies", "ied", "ers", "es", "ed", "er", "s", "y", "e")


def stem(word: str) -> str:
    """Remove the ending of a word."""
    endings = (one for one in _ENDINGS if word.endswith(one) and len(word) - len(one) >= 3)
    return word.removesuffix(next(endings, ""))


def bag_of_words(text: str, dim: int = 1024) -> list[float]:
    """Hash the stems of a text into a normalised vector."""
    words = re.findall(r"\w+", text.lower())
    stems = [stem(word) for word in words if not _SMALL.fullmatch(word)] or words or [text]
    numbers = [0.0] * dim
    for one, times in Counter(stems).items():
        # Not hash(), which differs between processes.
        digest = hashlib.blake2b(one.encode(), digest_size=8).digest()
        numbers[int.from_bytes(digest) % dim] += 1 + math.log(times)
    length = math.sqrt(sum(number * number for number in numbers))
    return [number / length for number in numbers]


class CohereDouble(Double):
    """`POST /v2/embed`; `calls` counts the accepted requests, and a token is a word."""

    def __init__(self, api_key: str = "test-key") -> None:
        super().__init__()
        self.calls = 0
        self._api_key = api_key

    def error(self, code: int, message: str) -> Answer:
        return answer_json({"id": str(uuid.uuid4()), "message": message}, code)

    def answer(self, request: Request) -> Answer:
        if (request.method, request.path) != ("POST", "/v2/embed"):
            return self.error(404, f"{request.path} not found")
        if request.headers.get("authorization") != f"Bearer {self._api_key}":
            return self.error(401, "invalid api token")
        body = request.body
        if body["model"] not in MODELS:
            message = f"model '{body['model']}' not found, make sure the correct model ID was used"
            return self.error(404, message)
        if message := _invalid(body):
            return self.error(400, f"invalid request: {message}")
        with self._lock:
            self.calls += 1
        dim = body.get("output_dimension") or MODELS[body["model"]]
        texts = [" ".join(text.split()[:MAX_WORDS]) for text in body["texts"]]
        vectors = {"float": [bag_of_words(text, dim) for text in texts]}
        meta = {"response_type": "embeddings_by_type", "meta": {"api_version": {"version": "2"}}}
        return answer_json({"id": str(uuid.uuid4()), "embeddings": vectors, "texts": body["texts"], **meta})


def _invalid(body: Mapping[str, Any]) -> str:
    """Return why a request is invalid."""
    texts = body["texts"]
    if body.get("input_type") not in ("search_document", "search_query"):
        return "valid input_type must be provided with the provided model"
    if not texts or not all(text.strip() for text in texts):
        return "texts must be non-empty strings"
    if len(texts) > MAX_TEXTS:
        return f"total number of texts must be at most 96 - received {len(texts)}"
    longest = max(len(text.split()) for text in texts)
    if body.get("truncate") == "NONE" and longest > MAX_WORDS:
        return f"too many tokens: {longest} of at most {MAX_WORDS}"
    return ""
