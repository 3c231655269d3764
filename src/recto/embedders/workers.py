"""Do the same work for many things at once, in a few threads."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

Job = TypeVar("Job")
Result = TypeVar("Result")


def side_by_side(jobs: Sequence[Job], work: Callable[[Job], Result], workers: int, done: Callable[[Job, Result], None]) -> None:
    """Work on jobs in their order, several at a time, and hand over each result in the caller's thread.

    The first failure is raised, and so is an interruption: jobs that were not begun are dropped, those under way are waited for.
    """
    if min(workers, len(jobs)) <= 1:
        for job in jobs:
            done(job, work(job))
        return
    from concurrent.futures import ThreadPoolExecutor, as_completed

    pool = ThreadPoolExecutor(min(workers, len(jobs)), "recto-embedder")
    try:
        waiting = {pool.submit(work, job): job for job in jobs}
        for finished in as_completed(waiting):
            done(waiting[finished], finished.result())
    finally:
        pool.shutdown(cancel_futures=True)
