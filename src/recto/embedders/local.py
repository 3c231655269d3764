"""Open a local model: the built-in one, a directory with an ONNX model, or one that fastembed supports."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from recto._util.files import checked_sha256
from recto.embedders import check_lengths, normalize_vectors
from recto.embedders.onnx import LocalEmbedder, RunModel, Sessions, new_session, new_tokenizer
from recto.errors import ConfigurationError, EmbeddingError, missing_extra
from recto.plugins import Notify
from recto.protocols import Embedder, Progress
from recto.settings import BUILT_IN_MODEL, Settings
from recto.types.index import EmbedderFingerprint
from recto.types.search import Vector

if TYPE_CHECKING:
    from fastembed import TextEmbedding
    from tokenizers import Tokenizer

_MODEL_FILES = ("model.onnx", "onnx/model.onnx")
_DEFAULT_MAX_TOKENS = 512
_FASTEMBED_BATCH = 32
_LAYOUT = (
    "The directory needs model.onnx (or onnx/model.onnx), tokenizer.json and config.json, "
    "as sentence-transformers exports them."
)


def open_local(settings: Settings, _: Notify) -> Embedder:
    """Return the embedder of a local model, which is loaded on first use."""
    if settings.model == BUILT_IN_MODEL:
        from recto.embedders.granite.embedder import built_in_embedder

        return built_in_embedder(
            settings.home,
            settings.threads,
            settings.precision,
            single_query=settings.single_query,
        )
    if settings.precision == "int8":
        raise ConfigurationError(
            f"RECTO_PRECISION=int8 is for the built-in model, not for {settings.model}",
            hint="Unset RECTO_PRECISION or RECTO_MODEL.",
        )
    directory = Path(settings.model).expanduser()
    if directory.is_dir():
        return directory_embedder(directory, settings.home, settings.threads)
    if settings.model.startswith((".", "~", "/")) or directory.is_absolute():
        raise ConfigurationError(
            f"RECTO_MODEL: there is no directory {settings.model}", hint="Unset it for the built-in model."
        )
    if "/" not in settings.model:
        raise ConfigurationError(
            f"RECTO_MODEL={settings.model} is not a model",
            hint=f"Use the built-in model ({BUILT_IN_MODEL}), a directory with an ONNX model, "
            "or the name of a model that fastembed supports, such as BAAI/bge-small-en-v1.5.",
        )
    return FastembedEmbedder(settings.model, settings.threads)


def directory_embedder(directory: Path, home: Path, threads: int) -> LocalEmbedder:
    """Return the embedder of the ONNX model in a directory; its fingerprint is the hash of the model file."""
    model = _find_model(directory)
    config = _read_json(directory / "config.json")
    dim = config.get("hidden_size")
    if not isinstance(dim, int) or dim < 1:
        raise ConfigurationError(f"{directory / 'config.json'} has no hidden_size", hint=_LAYOUT)
    revision = checked_sha256(model, home / "cache" / f"model-{directory.name}.json")
    pools_first_token = _read_json(directory / "1_Pooling" / "config.json").get("pooling_mode_cls_token")
    pooling = "cls" if pools_first_token else "mean"
    fingerprint = EmbedderFingerprint(directory.name, revision, dim, variant=f"onnx-{pooling}")

    def open_tokenizer() -> Tokenizer:
        try:
            description = (directory / "tokenizer.json").read_bytes()
        except OSError as error:
            raise ConfigurationError(f"{directory} has no readable tokenizer.json", hint=_LAYOUT) from error
        return new_tokenizer(description)

    pad_token = config.get("pad_token_id")
    padding = pad_token if isinstance(pad_token, int) else 0
    sessions = Sessions(lambda threads: _open(model, threads, pooling, padding), threads)
    return LocalEmbedder(fingerprint, _max_tokens(directory, config), open_tokenizer, sessions, threads)


def _open(model: Path, threads: int, pooling: str, padding: int) -> RunModel:
    session = new_session(model, threads)
    input_names = {entry.name for entry in session.get_inputs()}

    def run(rows: Sequence[Sequence[int]]) -> Any:
        ids, mask = _padded(rows, padding)
        inputs = {"input_ids": ids, "attention_mask": mask, "token_type_ids": ids * 0}
        output = session.run(None, {name: inputs[name] for name in inputs if name in input_names})[0]
        return _pool(output, mask, pooling).tolist()

    return run


def _padded(rows: Sequence[Sequence[int]], padding: int) -> tuple[Any, Any]:
    """Return the token ids, padded to the longest row, and the attention mask."""
    import numpy as np

    longest = max(len(row) for row in rows)
    ids = np.full((len(rows), longest), padding, np.int64)
    mask = np.zeros((len(rows), longest), np.int64)
    for index, row in enumerate(rows):
        ids[index, : len(row)] = row
        mask[index, : len(row)] = 1
    return ids, mask


def _find_model(directory: Path) -> Path:
    for name in _MODEL_FILES:
        if (directory / name).is_file():
            return directory / name
    raise ConfigurationError(f"RECTO_MODEL: there is no ONNX model in {directory}", hint=_LAYOUT)


def _read_json(path: Path) -> dict[str, Any]:
    try:
        data = json.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise ConfigurationError(f"{path} cannot be read: {error}", hint=_LAYOUT) from error
    return data if isinstance(data, dict) else {}


def _max_tokens(directory: Path, config: dict[str, Any]) -> int:
    stated = _read_json(directory / "sentence_bert_config.json").get("max_seq_length")
    if isinstance(stated, int):
        return stated
    positions = config.get("max_position_embeddings")
    if not isinstance(positions, int):
        return _DEFAULT_MAX_TOKENS
    # RoBERTa counts positions from its padding token on, so two of them are never used.
    return positions - 2 if str(config.get("model_type", "")) in {"roberta", "xlm-roberta"} else positions


def _pool(output: Any, mask: Any, pooling: str) -> Any:
    """Pool the token vectors of each text, unless the model has done so already."""
    if output.ndim == 2:
        return output
    if pooling == "cls":
        return output[:, 0]
    weights = mask[:, :, None].astype(output.dtype)
    return (output * weights).sum(axis=1) / weights.sum(axis=1)


class FastembedEmbedder:
    """Runs a fastembed model, which fastembed downloads once; the prefixes are those of its model card."""

    def __init__(self, name: str, threads: int, **options: Any) -> None:
        from recto.embedders.model_cards import model_card, model_languages

        self._name = name
        self.languages = model_languages(name)
        self._threads = threads
        self._options = options
        self.dim = _known_dim(name)
        self._card = model_card(name)
        prefix = f", prefix {self._card.document!r}" if self._card.document else ""
        self.fingerprint = EmbedderFingerprint(name, "fastembed", self.dim, variant=f"fastembed{prefix}")
        self._model: TextEmbedding | None = None
        self._loading = threading.Lock()

    @property
    def max_tokens(self) -> int:
        """The number of tokens that the model can read."""
        truncation = self._tokenizer().truncation
        return int(truncation["max_length"]) if truncation else _DEFAULT_MAX_TOKENS

    def warm_up(self) -> None:
        """Download and load the model."""
        self._loaded()

    def close(self) -> None:
        """Do nothing: the model holds no connections."""

    def count_tokens(self, text: str) -> int:
        """Count the tokens of a text, including those beyond the model's limit."""
        return _count(self._tokenizer(), self._card.document, text)

    def token_counter(self) -> Callable[[str], int]:
        """Return what counts the tokens of texts in other processes."""
        return partial(_count, self._tokenizer(), self._card.document)

    def embed_query(self, text: str) -> Vector:
        """Embed one query."""
        return self.embed_queries([text])[0]

    def embed_queries(self, texts: Sequence[str]) -> list[Vector]:
        """Embed several queries."""
        prefixed = [self._card.query + text for text in texts]
        return self._collect(self._loaded().query_embed(prefixed), len(texts), None)

    def embed_documents(self, texts: Sequence[str], progress: Progress | None = None) -> list[Vector]:
        """Embed chunks."""
        check_lengths(texts, map(self.count_tokens, texts), self.max_tokens)
        prefixed = [self._card.document + text for text in texts]
        stream = self._loaded().passage_embed(prefixed, batch_size=_FASTEMBED_BATCH)
        return self._collect(stream, len(texts), progress)

    def _collect(self, stream: Iterable[Any], count: int, progress: Progress | None) -> list[Vector]:
        rows = []
        try:
            for row in stream:
                rows.append(row)
                if progress and (len(rows) % _FASTEMBED_BATCH == 0 or len(rows) == count):
                    progress(len(rows), count)
        except Exception as error:  # fastembed has no error types of its own
            raise EmbeddingError(f"The embedding model {self._name} failed: {error}") from error
        return normalize_vectors(rows, count, self.dim) if count else []

    def _tokenizer(self) -> Any:
        model: Any = self._loaded().model
        return model.tokenizer

    def _loaded(self) -> TextEmbedding:
        with self._loading:
            if self._model is None:
                from fastembed import TextEmbedding

                try:
                    self._model = TextEmbedding(self._name, threads=self._threads, **self._options)
                except Exception as error:  # no network, no such model, a full disk
                    raise EmbeddingError(
                        f"The embedding model {self._name} cannot be loaded: {error}",
                        hint="The first use needs a network. Unset RECTO_MODEL for the built-in model.",
                    ) from error
            return self._model


def _count(tokenizer: Any, prefix: str, text: str) -> int:
    encoding = tokenizer.encode(prefix + text)
    return len(encoding.ids) + sum(len(rest.ids) - 2 for rest in encoding.overflowing)


def _known_dim(name: str) -> int:
    try:
        from fastembed import TextEmbedding
    except ImportError as error:
        raise missing_extra(f"RECTO_MODEL={name}", "fastembed") from error
    for model in TextEmbedding.list_supported_models():
        if str(model["model"]).lower() == name.lower():
            return int(model["dim"])
    raise ConfigurationError(
        f"RECTO_MODEL={name} is not the built-in model, a directory, or a model that fastembed supports",
        hint="fastembed.TextEmbedding.list_supported_models() lists the supported models.",
    )
