"""How the built-in model's graph is run: by onnxruntime's library, or by its Python interface without it or without a file of weights."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from contextlib import suppress
from operator import mul
from pathlib import Path
from typing import Any

from recto.embedders.runtime import OnnxError, Session, find_library
from recto.embedders.session import WEIGHTS_FOLDER, Run, Weights, cannot_open, new_session, session_settings
from recto.errors import ConfigurationError

OUTPUT = "vectors"
_PADDING = 1
_MASKED = -1e9  # added to the attention scores of padding, so that softmax gives it nothing
_NEAR = 0.999  # processors differ in the last digits of what is not int8; a sum that overflows gives something else altogether


def open_graph(graph: Path, weights: Weights, threads: int, *, once: bool = False) -> Run:
    """Open the graph for so many threads; `once` leaves out what pays only after several texts."""
    try:
        content = graph.read_bytes()
    except OSError as error:
        raise cannot_open(error) from error
    library = find_library()
    if library and weights.folder:
        with suppress(OSError):  # a build of onnxruntime whose library is another
            return by_library(library, content, weights.folder, threads, once=once)
    return _by_python(content, weights, threads)


def by_library(library: Path, graph: bytes, folder: Path, threads: int, *, once: bool) -> Run:
    """Open the graph with weights in a folder."""
    settings = {**session_settings(), WEIGHTS_FOLDER: str(folder), "session.disable_prepacking": "1" if once else "0"}
    try:
        session = Session(library, graph, threads, settings, optimise=not once)
    except OnnxError as error:
        raise cannot_open(error) from error
    return lambda rows: session.run(_padded(rows), len(rows), OUTPUT)


def _by_python(graph: bytes, weights: Weights, threads: int) -> Run:
    session = new_session(graph, threads, weights)

    def run(rows: Sequence[Sequence[int]]) -> Any:
        return session.run([OUTPUT], _shaped(rows))[0].tolist()

    return run


def _shaped(rows: Sequence[Sequence[int]]) -> dict[str, Any]:
    """Return the graph's inputs as numpy has them."""
    import numpy as np

    padded = _padded(rows)
    ids = np.array(padded["ids"], np.int64)
    return {"ids": ids.reshape(len(rows), -1), "mask": np.array(padded["mask"]).reshape(len(rows), -1)}


def _padded(rows: Sequence[Sequence[int]]) -> dict[str, array[Any]]:
    """Return the graph's inputs: tokens filled up to the longest row, and what is added to the attention to each."""
    longest = max(len(row) for row in rows)
    ids, mask = array("q"), array("f")
    for row in rows:
        rest = longest - len(row)
        ids.extend((*row, *[_PADDING] * rest))
        mask.extend((*[0.0] * len(row), *[_MASKED] * rest))
    return {"ids": ids, "mask": mask}


def check_vector(run: Run, tokens: Sequence[int], known: Path, *, copies: int) -> None:
    """Embed several copies of a text whose int8 vector is known, and compare each with it."""
    expected = array("f", known.read_bytes())
    if not all(sum(map(mul, vector, expected)) >= _NEAR for vector in run([tokens] * copies)):
        raise ConfigurationError("int8 gives wrong numbers on this processor", hint="Set RECTO_PRECISION=fp32, and index again.")
