"""Build embedded indexes in threads: to start a worker process takes longer than its work on a small book."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from recto.stores.edge import build


class ThreadWorker(threading.Thread):
    """What a build uses of `subprocess.Popen`."""

    returncode = 0

    def __init__(self, directory: Path, dim: int, _: object) -> None:
        super().__init__(daemon=True)
        (source, own_input), (own_output, target) = os.pipe(), os.pipe()
        self.stdin, self.stdout = os.fdopen(own_input, "wb"), os.fdopen(own_output, "rb")
        self._arguments = directory, dim, os.fdopen(source, "rb"), os.fdopen(target, "wb", buffering=0)
        self.start()

    def run(self) -> None:
        with self._arguments[2], self._arguments[3]:
            self.returncode = int(not build.run_worker(*self._arguments))

    def wait(self) -> None:
        self.join()


@contextmanager
def thread_workers() -> Iterator[None]:
    """Start threads instead of processes, for the tests of a directory."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(build, "start_worker", ThreadWorker)
        yield
