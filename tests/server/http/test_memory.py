"""Threads of a worker share the pools that their memory is taken from."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from pathlib import Path

import pytest

THREADS = """
import ctypes, sys, threading
from recto.server.listening import share_arenas

share_arenas()
library = ctypes.CDLL(None)
library.malloc.restype = library.fopen.restype = ctypes.c_void_p
gate = threading.Barrier(8)

def use():
    library.malloc(ctypes.c_size_t(1000))
    gate.wait()

threads = [threading.Thread(target=use) for _ in range(8)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
file = ctypes.c_void_p(library.fopen(sys.argv[1].encode(), b"w"))
library.malloc_info(0, file)
library.fclose(file)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="it is glibc that gives every thread a pool")
@pytest.mark.parametrize(("variables", "pools"), [({}, 2), ({"MALLOC_ARENA_MAX": "5"}, 5)])
def test_threads_share_pools(tmp_path: Path, variables: dict[str, str], pools: int) -> None:
    told = tmp_path / "pools.xml"
    clean = {name: value for name, value in os.environ.items() if name != "MALLOC_ARENA_MAX"}
    subprocess.run([sys.executable, "-c", THREADS, str(told)], env=clean | variables, check=True, timeout=60)
    assert told.read_text().count("<heap nr=") == pools
