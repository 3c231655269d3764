"""Limits of CPU time; they do nothing on Windows, which has no timers of CPU time."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from time import process_time, thread_time

PAGE_SECONDS = 60.0
"""CPU time for a page: a page of 1 MB takes up to 2 s, on a slow machine ten times as long."""
_AGAIN = 1.0  # seconds until the next interruption, if a destructor or a callback loses the first
_LEAST = 0.01  # seconds; a timer of 0 would never end


class CpuLimitExceeded(BaseException):
    """The code in a `cpu_limit` took too long; `except Exception` in that code does not stop it."""


@contextmanager
def cpu_limit(seconds: float) -> Iterator[None]:
    """Interrupt a block after so much CPU time of this thread, which must be the main one.

    Regular expressions and Python code are interrupted, a function of a library in C when it returns. Other
    threads cannot be interrupted: there, the block has no limit.
    """
    if sys.platform == "win32" or threading.current_thread() is not threading.main_thread():
        yield
        return
    end = thread_time() + seconds

    def check(*_: object) -> None:
        if (left := end - thread_time()) <= 0:
            signal.setitimer(signal.ITIMER_PROF, _AGAIN)
            raise CpuLimitExceeded
        signal.setitimer(signal.ITIMER_PROF, max(left, _LEAST))  # the other threads took the rest

    previous = signal.signal(signal.SIGPROF, check) or signal.SIG_DFL
    before, _ = signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    except SystemError as error:  # Python 3.11's parser, if it is interrupted
        if thread_time() < end:
            raise
        raise CpuLimitExceeded from error
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, previous)
        signal.setitimer(signal.ITIMER_PROF, before)  # of a limit around this one


def kill_after(seconds: float) -> None:
    """Let the system end this process after so much more CPU time; each call replaces the one before."""
    if sys.platform != "win32":
        import resource

        _, most = resource.getrlimit(resource.RLIMIT_CPU)
        end = int(process_time() + seconds) + 1
        resource.setrlimit(resource.RLIMIT_CPU, (end if most < 0 else min(end, most), most))
