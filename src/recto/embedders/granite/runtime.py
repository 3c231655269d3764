"""Run the built-in model's graph with onnxruntime's C API, or with its Python API as a fallback."""

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

from recto.embedders.onnx import WEIGHTS_FOLDER, RunModel, Weights, cannot_open, new_session, session_settings
from recto.errors import ConfigurationError

OUTPUT = "vectors"
_PADDING = 1
_MASKED = -1e9  # added to the attention scores of padding, so that its softmax is 0
_MIN_COSINE = 0.999  # processors differ in the last digits; an overflow changes the whole vector

_API_VERSION = 5
_LIBRARY_NAMES = ("libonnxruntime.so*", "libonnxruntime.*dylib", "onnxruntime.dll")
_STATUS = c_void_p  # an OrtStatus; null is success
# Each function by its index in the OrtApi structure, which only grows at the end, and its types.
_FUNCTIONS: dict[str, tuple[int, Any, tuple[Any, ...]]] = {
    "message": (2, c_char_p, (c_void_p,)),
    "create_env": (3, _STATUS, (c_int, c_char_p, c_void_p)),
    "create_session": (8, _STATUS, (c_void_p, c_char_p, c_size_t, c_void_p, c_void_p)),
    "run": (9, _STATUS, (c_void_p, c_void_p, c_void_p, c_void_p, c_size_t, c_void_p, c_size_t, c_void_p)),
    "create_options": (10, _STATUS, (c_void_p,)),
    "set_severity": (22, _STATUS, (c_void_p, c_int)),
    "set_optimization": (23, _STATUS, (c_void_p, c_int)),
    "set_threads": (24, _STATUS, (c_void_p, c_int)),
    "set_inter_op_threads": (25, _STATUS, (c_void_p, c_int)),
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
_FATAL = 4  # a log level: failures are raised, and should not be printed to the terminal
_NO_OPTIMIZATION, _ALL_OPTIMIZATIONS = 0, 99
_ARENA_ALLOCATOR, _DEFAULT_MEMORY = 1, 0
_ELEMENT_TYPES = {"f": 1, "q": 7}  # float32, int64


class _OrtApiBase(ctypes.Structure):
    _fields_ = (("table", ctypes.CFUNCTYPE(c_void_p, c_uint32)), ("version", c_void_p))


class OnnxError(Exception):
    """An error message of onnxruntime."""


class _OrtApi:
    """Calls the functions of onnxruntime's C API; an `OSError` means that the library cannot be used."""

    def __init__(self, library: Path) -> None:
        try:
            base = ctypes.CDLL(str(library)).OrtGetApiBase
        except AttributeError as error:
            raise OSError(f"{library} is not onnxruntime") from error
        base.restype = POINTER(_OrtApiBase)
        api = base().contents.table(_API_VERSION)
        if not api:
            raise OSError(f"{library} does not have version {_API_VERSION} of the API")
        # The API is a C structure of function pointers, read here as an array: no declaration of all of its
        # hundreds of members is needed.
        table = ctypes.cast(api, POINTER(c_void_p))
        self.functions = {
            name: ctypes.CFUNCTYPE(result, *arguments)(table[index])
            for name, (index, result, arguments) in _FUNCTIONS.items()
        }

    def call(self, name: str, *arguments: Any) -> None:
        """Call a function, and raise if it fails."""
        if status := self.functions[name](*arguments):
            try:
                raise OnnxError(self.functions["message"](status).decode("utf-8", "replace"))
            finally:
                self.functions["release_status"](status)

    def new(self, name: str, *arguments: Any) -> c_void_p:
        """Call a function that returns a pointer in its last argument."""
        pointer = c_void_p()
        self.call(name, *arguments, byref(pointer))
        return pointer


class OrtSession:
    """An open graph, which many threads can run at the same time.

    Raises `OSError` if the library cannot be used, and `OnnxError` if the graph cannot.
    """

    def __init__(
        self, library: Path, graph: bytes, threads: int, options: Mapping[str, str], *, optimize: bool = True
    ) -> None:
        self._api = api = _OrtApi(library)
        # Pointers are released in the order of `_own`, youngest first: the session before what it uses.
        self._memory = self._own(
            "release_memory", api.new("create_memory", _ARENA_ALLOCATOR, _DEFAULT_MEMORY)
        )
        env = self._own("release_env", api.new("create_env", _FATAL, b"recto"))
        settings = api.new("create_options")
        try:
            api.call("set_severity", settings, _FATAL)
            api.call("set_threads", settings, threads)
            api.call("set_inter_op_threads", settings, 1)
            api.call("set_optimization", settings, _ALL_OPTIMIZATIONS if optimize else _NO_OPTIMIZATION)
            for name, value in options.items():
                api.call("set_option", settings, name.encode(), value.encode())
            session = api.new("create_session", env, graph, len(graph), settings)
        finally:
            api.functions["release_options"](settings)
        self._session = self._own("release_session", session)

    def run(self, inputs: Mapping[str, array[Any]], rows: int, output: str) -> list[list[float]]:
        """Return the rows of an output; each input is an array with that number of rows."""
        values = (c_void_p * len(inputs))()
        results = (c_void_p * 1)()
        try:
            # A tensor reads its array in place, and `inputs` keeps the arrays alive until the run is over.
            for index, numbers in enumerate(inputs.values()):
                values[index] = self._tensor(numbers, rows).value
            names = (c_char_p * len(inputs))(*map(str.encode, inputs))
            outputs = (c_char_p * 1)(output.encode())
            self._api.call("run", self._session, None, names, values, len(inputs), outputs, 1, results)
            return self._rows(results[0], rows)
        finally:
            # After a failure, some are still null; onnxruntime ignores those.
            for value in (*values, *results):
                self._api.functions["release_value"](value)

    def _own(self, release: str, pointer: c_void_p) -> c_void_p:
        """Release a pointer with this session, but not at exit: a daemon thread may still use it then."""
        finalize(self, self._api.functions[release], pointer).atexit = False
        return pointer

    def _tensor(self, numbers: array[Any], rows: int) -> c_void_p:
        """Return a tensor that reads the array in place."""
        address, length = numbers.buffer_info()
        shape = (c_int64 * 2)(rows, length // rows)
        size, kind = length * numbers.itemsize, _ELEMENT_TYPES[numbers.typecode]
        return self._api.new("create_tensor", self._memory, address, size, shape, 2, kind)

    def _rows(self, value: Any, rows: int) -> list[list[float]]:
        shape = self._api.new("shape", value)
        try:
            count = c_size_t()
            self._api.call("count", shape, byref(count))
        finally:
            self._api.functions["release_shape"](shape)
        # This copies the numbers: their memory belongs to the tensor, which is released after the run.
        data = ctypes.string_at(self._api.new("data", value), count.value * 4)
        numbers, width = array("f", data).tolist(), count.value // rows
        return [numbers[start : start + width] for start in range(0, len(numbers), width)]


def find_library() -> Path | None:
    """Return the library in the installed package, without importing the package."""
    package = find_spec("onnxruntime")
    for folder in (package and package.submodule_search_locations) or ():
        for pattern in _LIBRARY_NAMES:
            for path in sorted(Path(folder, "capi").glob(pattern)):
                return path
    return None


def open_graph(graph: Path, weights: Weights, threads: int, *, single_query: bool = False) -> RunModel:
    """Open the graph; `single_query` skips optimizations that pay off only after several texts."""
    try:
        content = graph.read_bytes()
    except OSError as error:
        raise cannot_open(error) from error
    library = find_library()
    if library and weights.folder:
        with suppress(OSError):  # another build of onnxruntime
            return open_with_library(library, content, weights.folder, threads, single_query=single_query)
    return _open_with_python(content, weights, threads)


def open_with_library(
    library: Path, graph: bytes, folder: Path, threads: int, *, single_query: bool
) -> RunModel:
    """Open the graph with the C API."""
    settings = {
        **session_settings(),
        WEIGHTS_FOLDER: str(folder),
        "session.disable_prepacking": "1" if single_query else "0",
    }
    try:
        session = OrtSession(library, graph, threads, settings, optimize=not single_query)
    except OnnxError as error:
        raise cannot_open(error) from error
    return lambda rows: session.run(_padded(rows), len(rows), OUTPUT)


def _open_with_python(graph: bytes, weights: Weights, threads: int) -> RunModel:
    session = new_session(graph, threads, weights)

    def run(rows: Sequence[Sequence[int]]) -> Any:
        return session.run([OUTPUT], numpy_inputs(rows))[0].tolist()

    return run


def numpy_inputs(rows: Sequence[Sequence[int]]) -> dict[str, Any]:
    """Return the inputs of the graph as numpy arrays."""
    import numpy as np

    padded = _padded(rows)
    ids = np.array(padded["ids"], np.int64)
    return {"ids": ids.reshape(len(rows), -1), "mask": np.array(padded["mask"]).reshape(len(rows), -1)}


def _padded(rows: Sequence[Sequence[int]]) -> dict[str, array[Any]]:
    """Return the inputs of the graph: padded token ids and the attention mask."""
    longest = max(len(row) for row in rows)
    ids, mask = array("q"), array("f")
    for row in rows:
        rest = longest - len(row)
        ids.extend((*row, *[_PADDING] * rest))
        mask.extend((*[0.0] * len(row), *[_MASKED] * rest))
    return {"ids": ids, "mask": mask}


def check_vector(run: RunModel, tokens: Sequence[int], vector_file: Path, *, copies: int) -> None:
    """Raise if the vectors of several copies of a text differ from its known int8 vector."""
    expected = array("f", vector_file.read_bytes())
    if not all(sum(map(mul, vector, expected)) >= _MIN_COSINE for vector in run([tokens] * copies)):
        raise ConfigurationError(
            "int8 gives wrong numbers on this processor", hint="Set RECTO_PRECISION=fp32, and index again."
        )
