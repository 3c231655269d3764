"""Embed once in a fresh process and print its peak memory in MB; `bench.embed` runs it."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import cast

from bench.contenders import Contender, open_contender

QUESTION = "What is ROS 2?"


def main(name: str, folder: str, threads: str, texts: str) -> None:
    """Embed a query, or the chunks in a file."""
    embed = open_contender(cast(Contender, name), Path(folder), int(threads), once=not texts)
    embed(json.loads(Path(folder, texts).read_text("utf-8")) if texts else [QUESTION])
    print(peak(), flush=True)


def peak() -> float:
    """Return this process's peak memory; on Linux, rusage would include the parent process."""
    status = Path("/proc/self/status")
    if status.exists():
        return next(
            int(line.split()[1]) / 1e3 for line in status.read_text().splitlines() if line.startswith("VmHWM")
        )
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6


if __name__ == "__main__":
    main(*sys.argv[1:])
