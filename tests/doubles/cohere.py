"""A double of Cohere's embed endpoint; texts that share words have similar vectors."""

from __future__ import annotations

import base64
import hashlib
import math
import re
import struct
import time
import uuid
from collections import Counter, deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from tests.doubles.server import Answer, Double, Request, answer_json

Embed = Callable[[list[str], str], list[list[float]]]
"""Turns texts and an input type into vectors."""

MAX_TEXTS = 96
INPUT_TYPES = ("search_document", "search_query", "classification", "clustering", "image")
TRUNCATE = ("NONE", "START", "END")
MINUTE = 60.0


@dataclass(frozen=True)
class Model:
    """The options of a model; `dims` is empty if its dimension is fixed."""

    dim: int
    max_tokens: int
    dims: tuple[int, ...] = ()


MODELS: Mapping[str, Model] = {
    "embed-english-v3.0": Model(1024, 512),
    "embed-multilingual-v3.0": Model(1024, 512),
    "embed-v4.0": Model(1536, 128_000, (256, 512, 1024, 1536)),
}

# Stop words would make every query similar to every chunk.
_SMALL = re.compile(
    r"an?|and|are|as|at|be|by|do|does|for|from|how|i|in|is|it|of|on|or|that|the|this|to|was|what|when|where|which|who|with"
)
_ENDINGS = ("ations", "ation", "ings", "ing", "ies", "ied", "ers", "es", "ed", "er", "s", "y", "e")


def stem(word: str) -> str:
    """Remove the ending of a word."""
    return next(
        (
            word[: -len(ending)]
            for ending in _ENDINGS
            if word.endswith(ending) and len(word) - len(ending) >= 3
        ),
        word,
    )


def bag_of_words(text: str, dim: int = 1024) -> list[float]:
    """Hash the stems of a text into a normalised vector."""
    words = re.findall(r"\w+", text.lower())
    stems = [stem(word) for word in words if not _SMALL.fullmatch(word)] or words or [text]
    numbers = [0.0] * dim
    for one, times in Counter(stems).items():
        # Not hash(), which differs between processes.
        numbers[int.from_bytes(hashlib.blake2b(one.encode(), digest_size=8).digest()) % dim] += 1 + math.log(
            times
        )
    length = math.sqrt(sum(number * number for number in numbers))
    return [number / length for number in numbers]


class CohereDouble(Double):
    """`POST /v2/embed`; `calls`, `texts`, `tokens` (words) and `input_types` record the accepted requests."""

    def __init__(
        self,
        api_key: str = "test-key",
        *,
        embed: Embed | None = None,
        calls_per_minute: int | None = None,
        inputs_per_minute: int | None = None,
        tokens_per_minute: int | None = None,
        retry_after: int | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__()
        self.calls = 0
        self.texts = 0
        self.tokens = 0
        self.input_types: list[str] = []
        self._api_key = api_key
        self._embed = embed
        self._limits = (calls_per_minute, inputs_per_minute, tokens_per_minute)
        self._retry_after = retry_after
        self._clock = clock
        self._minute: deque[tuple[float, tuple[int, int, int]]] = deque()

    def error(self, code: int, message: str) -> Answer:
        return answer_json({"id": str(uuid.uuid4()), "message": message}, code)

    def answer(self, request: Request) -> Answer:
        if request.path != "/v2/embed":
            return self.error(404, f"{request.path} not found")
        if request.method != "POST":
            return self.error(405, "method not allowed")
        key = request.headers.get("authorization", "")
        if not key:
            return self.error(401, "no api key supplied")
        if key != f"Bearer {self._api_key}":
            return self.error(401, "invalid api token")
        if not isinstance(request.body, dict):
            return self.error(400, "invalid request: the body is no JSON object")
        refusal = self._check(request.body)
        return refusal or self._answer(request.body)

    def _check(self, body: Mapping[str, Any]) -> Answer | None:
        model = MODELS.get(str(body.get("model")))
        if model is None:
            return self.error(
                404, f"model '{body.get('model')}' not found, make sure the correct model ID was used"
            )
        texts, size = body.get("texts"), body.get("output_dimension")
        wrong = [
            (
                body.get("input_type") not in INPUT_TYPES,
                "valid input_type must be provided with the provided model",
            ),
            (not isinstance(texts, list) or not texts, "texts must be a list of at least one text"),
            (
                isinstance(texts, list) and not all(isinstance(text, str) and text.strip() for text in texts),
                "texts must be non-empty strings",
            ),
            (
                isinstance(texts, list) and len(texts) > MAX_TEXTS,
                f"total number of texts must be at most 96 - received {len(texts or ())}",
            ),
            (
                size is not None and size not in model.dims,
                f"output_dimension {size} is not supported by the provided model",
            ),
            (
                not set(body.get("embedding_types", ())) <= set(ENCODINGS),
                f"embedding_types must be among {', '.join(ENCODINGS)}",
            ),
            (body.get("truncate", "END") not in TRUNCATE, f"truncate must be one of {', '.join(TRUNCATE)}"),
        ]
        message = next((message for is_wrong, message in wrong if is_wrong), None)
        if message is None and body.get("truncate") == "NONE":
            longest = max(len(text.split()) for text in body["texts"])
            if longest > model.max_tokens:
                message = f"too many tokens: {longest} of at most {model.max_tokens}"
        return None if message is None else self.error(400, f"invalid request: {message}")

    def _answer(self, body: Mapping[str, Any]) -> Answer:
        model = MODELS[body["model"]]
        texts = [_cut(text, model.max_tokens, body.get("truncate", "END")) for text in body["texts"]]
        cost = (1, len(texts), sum(len(text.split()) for text in texts))
        with self._lock:
            over = self._over(cost)
            if over is not None:
                answer = self.error(429, over)
                return (
                    answer
                    if self._retry_after is None
                    else Answer(429, answer.body, headers={"Retry-After": str(self._retry_after)})
                )
            self.calls += cost[0]
            self.texts += cost[1]
            self.tokens += cost[2]
            self.input_types.append(body["input_type"])
        dim = body.get("output_dimension") or model.dim
        vectors = (
            self._embed(texts, body["input_type"])
            if self._embed
            else [bag_of_words(text, dim) for text in texts]
        )
        kinds = body.get("embedding_types") or ["float"]
        return answer_json(
            {
                "id": str(uuid.uuid4()),
                "response_type": "embeddings_by_type",
                "embeddings": {kind: [ENCODINGS[kind](vector) for vector in vectors] for kind in kinds},
                "texts": body["texts"],
                "meta": {"api_version": {"version": "2"}, "billed_units": {"input_tokens": cost[2]}},
            }
        )

    def _over(self, cost: tuple[int, int, int]) -> str | None:
        """Return the limit that a call would exceed, or count the call."""
        now = self._clock()
        while self._minute and now - self._minute[0][0] >= MINUTE:
            self._minute.popleft()
        for place, limit in enumerate(self._limits):
            if limit is not None and cost[place] + sum(earlier[place] for _, earlier in self._minute) > limit:
                return _OVER[place].format(limit)
        self._minute.append((now, cost))
        return None


_OVER = (
    "You are using a Trial key, which is limited to {} API calls / minute.",
    "trial input rate limit exceeded, limit is {} inputs per minute",
    "trial token rate limit exceeded, limit is {} tokens per minute",
)


def _cut(text: str, max_tokens: int, truncate: str) -> str:
    words = text.split()
    if len(words) <= max_tokens:
        return text
    return " ".join(words[-max_tokens:] if truncate == "START" else words[:max_tokens])


def _bits(vector: list[float]) -> list[int]:
    return [
        sum((number > 0) << (7 - place) for place, number in enumerate(vector[start : start + 8]))
        for start in range(0, len(vector), 8)
    ]


ENCODINGS: Mapping[str, Callable[[list[float]], object]] = {
    "float": lambda vector: vector,
    "int8": lambda vector: [max(-128, min(127, round(number * 127))) for number in vector],
    "uint8": lambda vector: [max(0, min(255, round(number * 127) + 128)) for number in vector],
    "binary": lambda vector: [byte - 128 for byte in _bits(vector)],
    "ubinary": _bits,
    "base64": lambda vector: base64.b64encode(struct.pack(f"<{len(vector)}f", *vector)).decode(),
}
