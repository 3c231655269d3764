"""The two libraries behind a local model, opened the same way for every model."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from recto.embedders.processor import has_int8_dot_product
from recto.errors import ConfigurationError

if TYPE_CHECKING:
    from onnxruntime import InferenceSession
    from tokenizers import Tokenizer

Run = Callable[[Sequence[Sequence[int]]], Sequence[Sequence[float]]]
"""From the tokens of texts to one vector per text."""


WEIGHTS_FOLDER = "session.model_external_initializers_file_folder_path"

_PASSAGES = 0  # no number of threads, under which the other ways are kept


@dataclass(frozen=True, slots=True)
class Weights:
    """Weights that are not in a graph: in a file that the graph names, or in memory."""

    folder: Path | None = None
    arrays: Mapping[str, Any] = field(default_factory=dict)


class Sessions:
    """One model, opened when it is first used and again if it is used the other way.

    A single text is computed by all threads together. Of many texts each thread computes its own: nothing has to be divided and
    waited for in every layer, so more is done in the same time. Passages may have a way of their own.
    """

    def __init__(self, open: Callable[[int], Run], threads: int, open_for_passages: Callable[[], Run] | None = None) -> None:
        self._open = open
        self._threads = threads
        self._open_for_passages = open_for_passages
        self._opened: dict[int, Run] = {}
        self._opening = threading.Lock()

    def alone(self) -> Run:
        """Return how a single text is computed."""
        return self._for(self._threads)

    def beside(self) -> Run:
        """Return how texts are computed in several threads at once."""
        return self._for(1)

    def passages(self) -> Run:
        """Return how passages are computed in several threads at once."""
        return self._kept(_PASSAGES, self._open_for_passages) if self._open_for_passages else self.beside()

    def _for(self, threads: int) -> Run:
        return self._kept(threads, lambda: self._open(threads))

    def _kept(self, key: int, open: Callable[[], Run]) -> Run:
        with self._opening:
            if key not in self._opened:
                self._opened[key] = open()
            return self._opened[key]


def session_settings() -> dict[str, str]:
    """Return the settings of every session.

    On x86-64 without VNNI, sums of int8 products overflow unless onnxruntime makes the weights unsigned. The
    option that asks for it works on processors with VNNI and AMX too, and makes int8 as slow as fp32 there
    (decision 8).
    """
    return {} if has_int8_dot_product() else {"session.x64quantprecision": "1"}


def new_session(model: bytes | Path, threads: int, weights: Weights | None = None) -> InferenceSession:
    """Open a graph; weights in a file are mapped, not read, and shared by all who map it."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 4  # failures are raised; its own log would reach the user's terminal
    for name, value in session_settings().items():
        options.add_session_config_entry(name, value)
    values = []
    if weights and weights.folder:
        options.add_session_config_entry(WEIGHTS_FOLDER, str(weights.folder))
    elif weights:
        values = [onnxruntime.OrtValue.ortvalue_from_numpy(value) for value in weights.arrays.values()]
        options.add_external_initializers(list(weights.arrays), values)
    graph = model if isinstance(model, bytes) else str(model)
    try:
        return onnxruntime.InferenceSession(graph, options, providers=["CPUExecutionProvider"])
    except Exception as error:  # onnxruntime raises many types, none of them documented
        raise cannot_open(error) from error
    finally:
        values.clear()  # the session has copied them; until then they must live


def cannot_open(error: Exception) -> ConfigurationError:
    """Say that a graph was refused."""
    return ConfigurationError(
        f"The embedding model cannot be opened: {error}", hint="Check RECTO_MODEL, or unset it for the built-in model."
    )


def new_tokenizer(description: bytes) -> Tokenizer:
    """Read a tokenizer.json and switch off what would pad or cut in silence."""
    from tokenizers import Tokenizer

    try:
        tokenizer = Tokenizer.from_buffer(description)
    except Exception as error:  # the library's errors are bare
        raise ConfigurationError(
            f"The model's tokenizer cannot be read: {error}", hint="It must be a tokenizer.json of the `tokenizers` library."
        ) from error
    tokenizer.no_padding()
    tokenizer.no_truncation()
    return tokenizer
