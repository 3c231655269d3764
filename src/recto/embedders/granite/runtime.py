"""How the built-in model's graph is run: by onnxruntime's library, or by its Python interface without it or without a file of weights."""

from __future__ import annotations

import ctypes
from array import array
from collections.abc import Mapping, Sequence
from contextlib import suppress
from ctypes import POINTER, byref, c_char_p, c_int, c_int64, c_size_t, c_uint32, c_void_p
from importlib.util import find_spec
from operator import mul
from pathlib import Path
from typing import Any
from weakref import finalize

from recto.embedders.onnx import WEIGHTS_FOLDER, Run, Weights, cannot_open, new_session, session_settings
from recto.errors import ConfigurationError

_VERSION = 5
_PATTERNS = ("libonnxruntime.so*", "libonnxruntime.*dylib", "onnxruntime.dll")
_STATUS = c_void_p  # null, or what went wrong
_FUNCTIONS: dict[str, tuple[int, Any, tuple[Any, ...]]] = {
    "message": (2, c_char_p, (c_void_p,)),
    "create_env": (3, _STATUS, (c_int, c_char_p, c_void_p)),
    "create_session": (8, _STATUS, (c_void_p, c_char_p, c_size_t, c_void_p, c_void_p)),
    "run": (9, _STATUS, (c_void_p, c_void_p, c_void_p, c_void_p, c_size_t, c_void_p, c_size_t, c_void_p)),
    "create_options": (10, _STATUS, (c_void_p,)),
    "set_severity": (22, _STATUS, (c_void_p, c_int)),
    "set_optimisation": (23, _STATUS, (c_void_p, c_int)),
    "set_threads": (24, _STATUS, (c_void_p, c_int)),
    "set_parallel_parts": (25, _STATUS, (c_void_p, c_int)),
    "create_tensor": (49, _STATUS, (c_void_p, c_void_p, c_size_t, c_void_p, c_size_t, c_int, c_void_p)),
    "data": (51, _STATUS, (c_void_p, c_void_p)),
    "count": (64, _STATUS, (c_void_p, c_void_p)),
    "shape": (65, _STATUS, (c_void_p, c_void_p)),
    "create_memory": (69, _STATUS, (c_int, c_int, c_void_p)),
    "release_env": (92, None, (c_void_p,)),
    "release_status": (93, None, (c_void_p,)),
    "release_memory": (94, None, (c_void_p,)),
    "release_session": (95, None, (c_void_p,)),
    "release_value": (96, None, (c_void_p,)),
    "release_shape": (99, None, (c_void_p,)),
    "release_options": (100, None, (c_void_p,)),
    "set_option": (130, _STATUS, (c_void_p, c_char_p, c_char_p)),
}
_FATAL = 4  # failures are raised; its own log would reach the user's terminal
_UNCHANGED, _OPTIMISED = 0, 99
_ARENA, _DEFAULT = 1, 0
_ELEMENTS = {"f": 1, "q": 7}  # float32, int64


class _Base(ctypes.Structure):
    _fields_ = (("table", ctypes.CFUNCTYPE(c_void_p, c_uint32)), ("version", c_void_p))


class OnnxError(Exception):
    """What onnxruntime says of a failure."""


def find_library() -> Path | None:
    """Return the library inside the installed package; nothing is imported."""
    found = find_spec("onnxruntime")
    for folder in (found and found.submodule_search_locations) or ():
        for pattern in _PATTERNS:
            for path in sorted(Path(folder, "capi").glob(pattern)):
                return path
    return None


class Session:
    """A graph, open; any number of threads may run it at once. A library that cannot be used is an `OSError`, a graph an `OnnxError`."""

    def __init__(
        self, library: Path, graph: bytes, threads: int, options: Mapping[str, str], *, optimise: bool = True
    ) -> None:
        self._functions = functions = _functions(library)
        self._memory = _new(functions, "create_memory", _ARENA, _DEFAULT)
        _release_with(self, functions["release_memory"], self._memory)
        env = _new(functions, "create_env", _FATAL, b"recto")
        _release_with(self, functions["release_env"], env)
        settings = _new(functions, "create_options")
        try:
            _check(functions, functions["set_severity"](settings, _FATAL))
            _check(functions, functions["set_threads"](settings, threads))
            _check(functions, functions["set_parallel_parts"](settings, 1))
            _check(functions, functions["set_optimisation"](settings, _OPTIMISED if optimise else _UNCHANGED))
            for name, value in options.items():
                _check(functions, functions["set_option"](settings, name.encode(), value.encode()))
            self._session = c_void_p()
            _check(
                functions, functions["create_session"](env, graph, len(graph), settings, byref(self._session))
            )
        finally:
            functions["release_options"](settings)
        _release_with(self, functions["release_session"], self._session)

    def run(self, inputs: Mapping[str, array[Any]], rows: int, output: str) -> list[list[float]]:
        """Return an output as so many rows of numbers; each input is an array of so many rows."""
        functions = self._functions
        values = (c_void_p * len(inputs))()
        results = (c_void_p * 1)()
        try:
            for place, numbers in enumerate(inputs.values()):
                values[place] = self._tensor(numbers, rows).value
            names, wanted = (
                (c_char_p * len(inputs))(*map(str.encode, inputs)),
                (c_char_p * 1)(output.encode()),
            )
            _check(
                functions,
                functions["run"](self._session, None, names, values, len(inputs), wanted, 1, results),
            )
            return self._rows(results[0], rows)
        finally:
            for value in (*values, *results):
                functions["release_value"](value)

    def _tensor(self, numbers: array[Any], rows: int) -> c_void_p:
        """Lend an array to the library: it is read where it is."""
        address, length = numbers.buffer_info()
        shape = (c_int64 * 2)(rows, length // rows)
        return _new(
            self._functions,
            "create_tensor",
            self._memory,
            address,
            length * numbers.itemsize,
            shape,
            2,
            _ELEMENTS[numbers.typecode],
        )

    def _rows(self, value: Any, rows: int) -> list[list[float]]:
        functions = self._functions
        shape = _new(functions, "shape", value)
        try:
            count = c_size_t()
            _check(functions, functions["count"](shape, byref(count)))
        finally:
            functions["release_shape"](shape)
        numbers = array("f", ctypes.string_at(_new(functions, "data", value), count.value * 4)).tolist()
        width = count.value // rows
        return [numbers[start : start + width] for start in range(0, len(numbers), width)]


def _release_with(owner: Session, release: Any, made: c_void_p) -> None:
    """Release what was made with its owner, but not at the end of the process: a thread that nobody waits for may be using it then."""
    finalize(owner, release, made).atexit = False


def _functions(library: Path) -> dict[str, Any]:
    try:
        base = ctypes.CDLL(str(library)).OrtGetApiBase
    except AttributeError as error:
        raise OSError(f"{library} is not onnxruntime") from error
    base.restype = POINTER(_Base)
    found = base().contents.table(_VERSION)
    if not found:
        raise OSError(f"{library} has no functions of version {_VERSION}")
    table = ctypes.cast(found, POINTER(c_void_p))
    return {
        name: ctypes.CFUNCTYPE(result, *arguments)(table[place])
        for name, (place, result, arguments) in _FUNCTIONS.items()
    }


def _new(functions: Mapping[str, Any], name: str, *arguments: Any) -> c_void_p:
    """Call a function that puts a pointer to what it made into its last argument."""
    made = c_void_p()
    _check(functions, functions[name](*arguments, byref(made)))
    return made


def _check(functions: Mapping[str, Any], status: int | None) -> None:
    if status:
        try:
            raise OnnxError(functions["message"](status).decode("utf-8", "replace"))
        finally:
            functions["release_status"](status)


OUTPUT = "vectors"
_PADDING = 1
_MASKED = -1e9  # added to the attention scores of padding, so that softmax gives it nothing
_NEAR = 0.999  # processors differ in the last digits of what is not int8; a sum that overflows gives something else altogether


def open_graph(graph: Path, weights: Weights, threads: int, *, single_query: bool = False) -> Run:
    """Open the graph for so many threads; `once` leaves out what pays only after several texts."""
    try:
        content = graph.read_bytes()
    except OSError as error:
        raise cannot_open(error) from error
    library = find_library()
    if library and weights.folder:
        with suppress(OSError):  # a build of onnxruntime whose library is another
            return by_library(library, content, weights.folder, threads, single_query=single_query)
    return _by_python(content, weights, threads)


def by_library(library: Path, graph: bytes, folder: Path, threads: int, *, single_query: bool) -> Run:
    """Open the graph with weights in a folder."""
    settings = {
        **session_settings(),
        WEIGHTS_FOLDER: str(folder),
        "session.disable_prepacking": "1" if single_query else "0",
    }
    try:
        session = Session(library, graph, threads, settings, optimise=not single_query)
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
        raise ConfigurationError(
            "int8 gives wrong numbers on this processor", hint="Set RECTO_PRECISION=fp32, and index again."
        )
