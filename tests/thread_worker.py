"""The worker that builds an embedded index, in a thread instead of a process."""

from __future__ import annotations

import os
import threading
from pathlib import Path

from recto.stores.edge.build import run_worker


class ThreadWorker(threading.Thread):
    """What a build uses of `subprocess.Popen`."""

    returncode = 0

    def __init__(self, directory: Path, dim: int, _: object) -> None:
        super().__init__(daemon=True)
        (source, self_in), (self_out, target) = os.pipe(), os.pipe()
        self.stdin, self.stdout = os.fdopen(self_in, "wb"), os.fdopen(self_out, "rb")
        self._arguments = directory, dim, os.fdopen(source, "rb"), os.fdopen(target, "wb", buffering=0)
        self.start()

    def run(self) -> None:
        with self._arguments[2], self._arguments[3]:
            self.returncode = int(not run_worker(*self._arguments))

    def wait(self) -> None:
        self.join()
