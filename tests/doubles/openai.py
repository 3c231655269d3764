"""A double of servers with OpenAI's embeddings API, each with its own paths, limits and error bodies.

Texts that share words have similar vectors; a token is a word. The habits of vLLM, llama.cpp and Infinity come
from real servers (vLLM 0.19.1, llama.cpp b10586, Infinity 0.0.76), the others from documentation and issue
trackers. Real servers differ from this double in these points:

- vLLM often closes a connection after it has refused a request; a test scripts this with `drop` or `reset`.
- llama.cpp normalises vectors by default; the double behaves as with `--embd-normalize -1`.
- Infinity knows the names of its models only if it has several; with a single one, it answers under every
  name. It removes white space around texts, so that the vectors of such texts differ from other servers'.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tests.doubles.cohere import bag_of_words
from tests.doubles.server import Answer, Double, Request, answer_json

FLAVOURS = ("ollama", "lmstudio", "vllm", "tei", "llamacpp", "infinity", "openai", "azure", "voyage")
API_VERSION = "2024-10-21"


@dataclass(frozen=True)
class Flavour:
    """How a server differs from the others; limits are in tokens, and in texts per request."""

    needs_key: bool = False
    max_tokens: int = 512
    max_texts: int = 2048
    cuts: bool = False
    """Whether it cuts long texts in silence."""
    any_model: bool = False
    """Whether it answers under every name."""
    length: float = 1.0
    """The length of its vectors."""
    dims: bool = True
    """Whether it supports other dimensions."""


_FLAVOURS: Mapping[str, Flavour] = {
    "ollama": Flavour(max_tokens=2048, cuts=True),
    "lmstudio": Flavour(max_tokens=2048, cuts=True, dims=False),
    "vllm": Flavour(dims=False),
    "tei": Flavour(max_texts=32, any_model=True),
    "llamacpp": Flavour(any_model=True, length=7.5, dims=False),
    "infinity": Flavour(cuts=True),
    "openai": Flavour(needs_key=True, max_tokens=8191),
    "azure": Flavour(needs_key=True, max_tokens=8191),
    "voyage": Flavour(needs_key=True, max_tokens=32_000, max_texts=1000),
}


class OpenAIDouble(Double):
    """`weights` is the model behind the name, `noise` its rounding error; both can change at any time."""

    def __init__(
        self, flavour: str = "ollama", model: str = "nomic-embed-text", api_key: str = "", dim: int = 256
    ) -> None:
        super().__init__()
        self.flavour = flavour
        self.rules = _FLAVOURS[flavour]
        self.model = model
        self.dim = dim
        self.weights = 0
        self.noise = 0.0
        self.max_tokens = self.rules.max_tokens
        self.max_texts = self.rules.max_texts
        self.reverse = False
        self._api_key = api_key

    @property
    def base(self) -> str:
        """The address that a user would configure."""
        if self.flavour == "azure":
            return f"{self.url}/openai/deployments/{self.model}"
        return f"{self.url}/embeddings" if self.flavour == "infinity" else f"{self.url}/v1"

    def embedded(self) -> list[list[str]]:
        """Return the texts of all requests for vectors."""
        return [request.body["input"] for request in self.requests if request.path.endswith("/embeddings")]

    def error(self, code: int, message: str) -> Answer:
        kind = "NotFoundError" if code == 404 else "BadRequestError"
        bodies: dict[str, object] = {
            "voyage": {"detail": message},
            "tei": {"message": message, "code": code, "type": "Validation"},
            "llamacpp": {"error": {"code": code, "message": message, "type": "server_error"}},
            "vllm": {"error": {"message": message, "type": kind, "param": None, "code": code}},
        }
        other = {"message": message, "type": "invalid_request_error", "param": None, "code": None}
        return answer_json(bodies.get(self.flavour, {"error": other}), code)

    def answer(self, request: Request) -> Answer:
        if self.rules.needs_key and not self._has_key(request):
            key = request.headers.get("authorization", "none")
            return self.error(401, f"Incorrect API key provided: {key}")
        if request.method == "POST" and request.path.endswith("/embeddings"):
            return self._embeddings(request)
        models = self._models(request)
        if models is not None:
            return answer_json(models)
        if self.flavour == "lmstudio":
            return answer_json({"error": f"Unexpected endpoint or method. ({request.method} {request.path})"})
        return Answer(404, b"404 page not found", "text/plain")

    def _has_key(self, request: Request) -> bool:
        if self.flavour == "azure":
            return request.headers.get("api-key") == self._api_key
        return request.headers.get("authorization") == f"Bearer {self._api_key}"

    def _models(self, request: Request) -> object:
        """Return the list of models, if the server has one at this path."""
        path = "/models" if self.flavour == "infinity" else "/v1/models"
        if request.path != path or self.flavour in {"tei", "azure", "voyage"}:
            return None
        name = f"{self.model}:latest" if self.flavour == "ollama" else self.model
        return {"object": "list", "data": [{"id": name, "object": "model", "created": 1}]}

    def _embeddings(self, request: Request) -> Answer:
        body, texts = request.body, request.body["input"]
        assert request.headers["content-type"] == "application/json"
        if refusal := self._refusal(request, body, texts):
            return refusal
        dim = body.get("dimensions") or body.get("output_dimension") or self.dim
        if not self.rules.dims:
            dim = self.dim
        data = [
            {"object": "embedding", "index": index, "embedding": self._vector(text, dim)}
            for index, text in enumerate(texts)
        ]
        if self.reverse:
            data.reverse()
        tokens = sum(len(text.split()) for text in texts)
        usage = {"prompt_tokens": tokens, "total_tokens": tokens}
        return answer_json({"object": "list", "data": data, "model": self.model, "usage": usage})

    def _refusal(  # noqa: PLR0911 - a table
        self, request: Request, body: Mapping[str, Any], texts: list[str]
    ) -> Answer | None:
        if self.flavour == "azure":
            if request.query.get("api-version") != API_VERSION:
                return answer_json({"error": {"code": "404", "message": "Resource not found"}}, 404)
            if request.path != f"/openai/deployments/{self.model}/embeddings":
                message = "The API deployment for this resource does not exist."
                return answer_json({"error": {"code": "DeploymentNotFound", "message": message}}, 404)
        elif request.path != ("/embeddings" if self.flavour == "infinity" else "/v1/embeddings"):
            return Answer(404, b"404 page not found", "text/plain")
        elif self.flavour == "infinity" and body["model"] != self.model:
            return self.error(400, f"Invalid model: Engine for model name {body['model']} not found.")
        elif not self.rules.any_model and body["model"].removesuffix(":latest") != self.model:
            return self.error(404, f'model "{body["model"]}" not found, try pulling it first')
        supported = {"model", "input", "input_type", "truncation", "output_dimension"}
        if self.flavour == "voyage" and set(body) - supported:
            return self.error(400, "Argument not supported by our API")
        if self.flavour == "vllm" and body.get("dimensions"):
            changed = "changing output dimensions will lead to poor results."
            return self.error(
                400, f'Model "{self.model}" does not support matryoshka representation, {changed}'
            )
        if len(texts) > self.max_texts and self.flavour == "infinity":
            words = f"List should have at most {self.max_texts} items after validation, not {len(texts)}"
            entry = {"type": "too_long", "loc": ["body", "text", "input"], "msg": words, "input": texts}
            return answer_json({"detail": [entry]}, 422)
        if len(texts) > self.max_texts:
            status = 413 if self.flavour == "tei" else 400
            message = f"batch size {len(texts)} > maximum allowed batch size {self.max_texts}"
            return self.error(status, message)
        longest = max(len(text.split()) for text in texts)
        cuts = self.rules.cuts or body.get("truncation") is True
        return self._too_long(longest) if longest > self.max_tokens and not cuts else None

    def _too_long(self, tokens: int) -> Answer:
        limit = self.max_tokens
        vllm = (
            f"This model's maximum context length is {limit} tokens. However, you requested 0 output tokens "
            f"and your prompt contains at least {limit + 1} input tokens, for a total of at least {limit + 1} "
            "tokens. Please reduce the length of the input prompt or the number of requested output tokens."
        )
        tei = f"Input validation error: `inputs` must have less than {limit} tokens. Given: {tokens}"
        llamacpp = (
            f"input ({tokens} tokens) is too large to process. increase the physical batch size (is: {limit})"
        )
        errors = {"vllm": (400, vllm), "tei": (413, tei), "llamacpp": (500, llamacpp)}
        return self.error(*errors.get(self.flavour, (400, "the input length exceeds the context length")))

    def _vector(self, text: str, dim: int) -> object:
        words = bag_of_words(" ".join(text.split()[: self.max_tokens]), dim)
        turned = words[self.weights % dim :] + words[: self.weights % dim]
        error = random.Random(text)
        return [self.rules.length * (number + error.gauss(0, self.noise)) for number in turned]
