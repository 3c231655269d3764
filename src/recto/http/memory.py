"""Keep a worker small where the C library lets us."""

from __future__ import annotations

import os
import sys
from contextlib import suppress

_ARENAS, _M_ARENA_MAX = 2, -8


def share_arenas() -> None:
    """Let threads share the pools that memory is taken from: in glibc each would keep what it once needed in one of its own.

    To be called before threads are started; MALLOC_ARENA_MAX in the environment wins.
    """
    if sys.platform != "linux" or "MALLOC_ARENA_MAX" in os.environ:
        return
    from ctypes import CDLL

    with suppress(AttributeError):  # a C library that has no such setting
        CDLL(None).mallopt(_M_ARENA_MAX, _ARENAS)
