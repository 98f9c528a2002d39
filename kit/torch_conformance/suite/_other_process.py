"""A process beside the one that tests, with the same device, which does as it is told."""

import traceback
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

import torch.multiprocessing

from torch_conformance import patience, routes

SECONDS = 60.0
"""How long the process may take on an idle machine to start, and for one piece of work."""


class OtherProcess:
    """A process that calls functions. Arguments and results travel as torch.multiprocessing sends them.

    Started when there is work, and anew after it was killed or work has failed.
    """

    def __init__(self) -> None:
        self._route = routes.of_this_process()
        self._process: Any = None
        self._connection: Connection | None = None

    def run(self, work: Callable[..., Any], *arguments: Any) -> Any:
        """Let the process call ``work(*arguments)``; what it returns.

        Raises AssertionError with the traceback if it fails there, and if there is no answer.
        """
        if self._connection is None:
            self._start()
        connection = self._connection
        assert connection is not None
        connection.send((work, arguments))
        try:
            limit = patience.seconds(SECONDS)
            assert connection.poll(limit), f"another process has not answered for {limit:.0f} s; {patience.how_busy()}"
            good, answer = connection.recv()
            assert good, f"in another process:\n{answer}"
        except EOFError:
            self._process.join()
            raise AssertionError(f"another process ended with exit code {self._process.exitcode}") from None
        except BaseException:
            self.kill()
            raise
        return answer

    def _start(self) -> None:
        context = torch.multiprocessing.get_context("spawn")  # a device cannot be used in a forked process
        self._connection, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(theirs, self._route), daemon=True)
        self._process.start()
        theirs.close()

    def kill(self) -> None:
        """End the process without a warning to it."""
        if self._connection is not None:
            self._process.kill()
            self._process.join()
            self._connection.close()
        self._process = self._connection = None


def _serve(connection: Connection, route: routes.Route) -> None:
    routes.activate(route)
    while True:
        try:
            answer = (True, _do(connection))
        except EOFError:
            return
        except BaseException:
            answer = (False, traceback.format_exc())
        connection.send(answer)
        del answer  # with what it holds


def _do(connection: Connection) -> Any:
    work, arguments = connection.recv()
    return work(*arguments)
