"""Compute passages in bf16 with OpenVINO (an extra), where the processor multiplies in it; elsewhere in fp32 as ever, and say so."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from math import hypot
from operator import mul
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from recto.atomic import replace_bytes
from recto.embedders.graph import OUTPUT
from recto.embedders.session import Run, Weights
from recto.errors import missing_extra

if TYPE_CHECKING:
    from collections.abc import Iterator

    from openvino import Core

    from recto.remote import Tell

_TELEMETRY = "openvino_telemetry"
_NEAR = 0.999  # bf16 keeps .99998; what is further away is not this model


class Unable(Exception):
    """OpenVINO cannot compute this graph here."""


@dataclass(frozen=True, slots=True)
class Portable:
    """A graph as any engine can run it: its file, its weights, what it reads for the tokens of texts, and tokens to try it with."""

    graph: Path
    weights: Weights
    inputs: Callable[[Sequence[Sequence[int]]], Mapping[str, Any]]
    probe: tuple[int, ...]


def in_bf16(plain: Run, portable: Portable, threads: int, tell: Tell) -> Run:
    """Return how the graph is computed in bf16 by so many callers at once, or `plain` where that cannot be, which is told."""
    try:
        core = _core()
        if "BF16" not in _capabilities(core):
            raise Unable("this processor does not multiply in bf16")  # OpenVINO would take fp16 instead, in silence
        run = compiled(core, portable, threads, "bf16")
        _compare(run, plain, portable.probe)
    except Unable as why:
        tell(f"RECTO_PRECISION=bf16: {why}, so passages are computed in fp32: slower, and as good in the same index.")
        return plain
    return run


def compiled(core: Core, portable: Portable, threads: int, precision: Literal["bf16", "f32"]) -> Run:
    """Compile the graph for as many callers as threads, each of which is computed by one."""
    options = {
        "INFERENCE_PRECISION_HINT": precision,
        "INFERENCE_NUM_THREADS": threads,
        "NUM_STREAMS": threads,
        "ENABLE_CPU_PINNING": False,
    }
    try:
        model = core.compile_model(core.read_model(_beside_weights(portable)), "CPU", options)
    except (OSError, RuntimeError) as error:  # OpenVINO's own errors are bare RuntimeErrors
        raise Unable(f"OpenVINO cannot compile the model ({_last_line(error)})") from error
    requests = threading.local()  # one request computes one thing at a time

    def run(rows: Sequence[Sequence[int]]) -> Any:
        if not hasattr(requests, "own"):
            requests.own = model.create_infer_request()
        return requests.own.infer(dict(portable.inputs(rows)), share_inputs=True)[OUTPUT].tolist()

    return run


def _core() -> Core:
    with _no_telemetry():
        try:
            from openvino import Core
        except ModuleNotFoundError as error:
            raise missing_extra("RECTO_PRECISION=bf16", "openvino") from error
        except ImportError as error:
            raise Unable(f"OpenVINO cannot be loaded ({error})") from error
    try:
        return Core()
    except RuntimeError as error:
        raise Unable(f"OpenVINO cannot start ({_last_line(error)})") from error


def _capabilities(core: Core) -> Sequence[str]:
    try:
        found: Sequence[str] = core.get_property("CPU", "OPTIMIZATION_CAPABILITIES")
    except RuntimeError as error:
        raise Unable(f"OpenVINO cannot use this processor ({_last_line(error)})") from error
    return found


def _last_line(error: Exception) -> str:
    return str(error).strip().rpartition("\n")[2]


@contextmanager
def _no_telemetry() -> Iterator[None]:
    """Import OpenVINO as if the package that reports its use to its makers were not there: nothing of ours calls home."""
    if _TELEMETRY in sys.modules:
        yield
        return
    sys.modules[_TELEMETRY] = None  # type: ignore[assignment]
    try:
        yield
    finally:
        del sys.modules[_TELEMETRY]


def _beside_weights(portable: Portable) -> Path:
    """Put the graph where its weights are: OpenVINO reads them from nowhere else."""
    if portable.weights.folder is None:
        raise Unable("the weights cannot be kept in RECTO_HOME")
    path, graph = portable.weights.folder / portable.graph.name, portable.graph.read_bytes()
    if not path.is_file() or path.read_bytes() != graph:
        replace_bytes(path, [graph])
    return path


def _compare(run: Run, plain: Run, probe: tuple[int, ...]) -> None:
    """Compute a text and its beginning, which has to be filled up, both ways."""
    rows = [probe, probe[: len(probe) // 2]]
    known = plain(rows)
    try:
        found = run(rows)
    except RuntimeError as error:
        raise Unable(f"OpenVINO cannot compute the model ({_last_line(error)})") from error
    if not all(sum(map(mul, mine, theirs)) >= _NEAR * hypot(*mine) > 0 for mine, theirs in zip(found, known, strict=True)):
        raise Unable("OpenVINO gives wrong numbers on this processor")
