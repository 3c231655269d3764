"""The two libraries behind a local model, opened the same way for every model."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from recto.errors import ConfigurationError

if TYPE_CHECKING:
    from onnxruntime import InferenceSession
    from tokenizers import Tokenizer


def new_session(model: bytes | Path, threads: int, weights: Mapping[str, Any] | None = None) -> InferenceSession:
    """Open a graph, with weights that are not in it handed over from memory."""
    import numpy as np
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 4  # failures are raised; its own log would reach the user's terminal
    if weights:
        values = [onnxruntime.OrtValue.ortvalue_from_numpy(np.ascontiguousarray(value)) for value in weights.values()]
        options.add_external_initializers(list(weights), values)
    graph = model if isinstance(model, bytes) else str(model)
    try:
        return onnxruntime.InferenceSession(graph, options, providers=["CPUExecutionProvider"])
    except Exception as error:  # onnxruntime raises many types, none of them documented
        raise ConfigurationError(
            f"The embedding model cannot be opened: {error}", hint="Check RECTO_MODEL, or unset it for the built-in model."
        ) from error


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
