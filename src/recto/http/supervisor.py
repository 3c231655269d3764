"""The supervisor of workers, as the server library has it, but quick to notice a death."""

from __future__ import annotations

from uvicorn.supervisors import Multiprocess


class Supervisor(Multiprocess):
    """Replaces workers that die."""

    def keep_subprocess_alive(self) -> None:
        """Ask every worker how it is.

        The supervisor's own copy of a worker's end of their pipe is closed first: a worker that dies while it is being asked would else be
        waited for as long as one that is only busy.
        """
        for process in self.processes:
            process.child_conn.close()
        super().keep_subprocess_alive()
