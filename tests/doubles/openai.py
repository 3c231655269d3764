"""A double of servers with OpenAI's embeddings API, each with its own limits and error bodies.

Texts that share words have similar vectors; a token is a word. The habits of vLLM and llama.cpp come from real
servers (vLLM 0.19.1, llama.cpp b10586), the others from documentation and issue trackers. llama.cpp normalises
vectors by default; the double behaves as with `--embd-normalize -1`.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass

from tests.doubles.cohere import bag_of_words
from tests.doubles.server import Answer, Double, Request, answer_json


@dataclass(frozen=True)
class Flavour:
    """How a server differs from the others; limits are in tokens, and in texts per request."""

    needs_key: bool = False
    max_tokens: int = 512
    max_texts: int = 2048
    any_model: bool = False
    """Whether it answers under every name."""
    length: float = 1.0
    """The length of its vectors."""
    dims: bool = True
    """Whether it supports other dimensions."""


FLAVOURS: Mapping[str, Flavour] = {
    "ollama": Flavour(max_tokens=2048),
    "lmstudio": Flavour(max_tokens=2048, dims=False),
    "vllm": Flavour(dims=False),
    "tei": Flavour(max_texts=32, any_model=True),
    "llamacpp": Flavour(any_model=True, length=7.5, dims=False),
    "openai": Flavour(needs_key=True, max_tokens=8191),
}


class OpenAIDouble(Double):
    """`weights` is the model behind the name, `noise` its rounding error; both can change at any time."""

    def __init__(
        self, flavour: str = "ollama", model: str = "nomic-embed-text", api_key: str = "", dim: int = 256
    ) -> None:
        super().__init__()
        self.flavour = flavour
        self.rules = FLAVOURS[flavour]
        self.model = model
        self.dim = dim
        self.weights = 0
        self.noise = 0.0
        self.max_texts = self.rules.max_texts
        self.reverse = False
        self._api_key = api_key

    @property
    def base(self) -> str:
        """The address that a user would configure."""
        return f"{self.url}/v1"

    def embedded(self) -> list[list[str]]:
        """Return the texts of all requests for vectors."""
        return [request.body["input"] for request in self.requests if request.path.endswith("/embeddings")]

    def error(self, code: int, message: str) -> Answer:
        bodies: dict[str, object] = {
            "tei": {"message": message, "code": code, "type": "Validation"},
            "llamacpp": {"error": {"code": code, "message": message, "type": "server_error"}},
        }
        return answer_json(bodies.get(self.flavour, {"error": {"message": message, "code": None}}), code)

    def answer(self, request: Request) -> Answer:
        key = request.headers.get("authorization", "none")
        if self.rules.needs_key and key != f"Bearer {self._api_key}":
            return self.error(401, f"Incorrect API key provided: {key}")
        if request.method == "POST" and request.path == "/v1/embeddings":
            return self._refusal(request) or self._vectors(request)
        if self.flavour == "lmstudio":
            return answer_json({"error": f"Unexpected endpoint or method. ({request.method} {request.path})"})
        return Answer(404, b"404 page not found", "text/plain")

    def _refusal(self, request: Request) -> Answer | None:
        """Return the error for a request that the server does not accept."""
        body, texts = request.body, request.body["input"]
        assert request.headers["content-type"] == "application/json"
        if not self.rules.any_model and body["model"].removesuffix(":latest") != self.model:
            return self.error(404, f'model "{body["model"]}" not found, try pulling it first')
        if self.flavour == "vllm" and body.get("dimensions"):
            return self.error(400, f'Model "{self.model}" does not support matryoshka representation')
        if len(texts) > self.max_texts:
            message = f"batch size {len(texts)} > maximum allowed batch size {self.max_texts}"
            return self.error(413 if self.flavour == "tei" else 400, message)
        longest = max(len(text.split()) for text in texts)
        if longest > self.rules.max_tokens:
            return self.error(400, f"the input ({longest} tokens) is larger than the context length")
        return None

    def _vectors(self, request: Request) -> Answer:
        dim = request.body.get("dimensions", self.dim) if self.rules.dims else self.dim
        data = [
            {"object": "embedding", "index": index, "embedding": self._vector(text, dim)}
            for index, text in enumerate(request.body["input"])
        ]
        if self.reverse:
            data.reverse()
        return answer_json({"object": "list", "data": data, "model": self.model})

    def _vector(self, text: str, dim: int) -> object:
        words = bag_of_words(text, dim)
        turned = words[self.weights % dim :] + words[: self.weights % dim]
        error = random.Random(text)
        return [self.rules.length * (number + error.gauss(0, self.noise)) for number in turned]
