"""Processes that form a process group, each with a device of its own."""

import os
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from multiprocessing.connection import Connection, Pipe, wait
from typing import Any

from torch_conformance import modules, routes

TIMEOUT = 180.0
"""Seconds that all ranks together may take for one piece of work, which may be compiling on a busy machine."""


class Ranks:
    """Two processes of one process group, started when there is work, and anew after work that failed.

    Args:
        route: to the device.
        count: how many.
    """

    def __init__(self, route: routes.Route, count: int = 2) -> None:
        self._route = route
        self._count = count
        self._processes: list[subprocess.Popen[bytes]] = []
        self._connections: list[Connection] = []
        self._folder: tempfile.TemporaryDirectory[str] | None = None

    def _start(self) -> None:
        self._folder = tempfile.TemporaryDirectory()
        place = f"file://{self._folder.name}/store"
        for rank in range(self._count):
            mine, theirs = Pipe()
            arguments = (routes.text_of(self._route), str(rank), str(self._count), place)
            command = modules.command(__name__, *arguments)
            self._processes.append(subprocess.Popen(command, stdin=theirs.fileno(), stdout=subprocess.DEVNULL))
            theirs.close()
            self._connections.append(mine)

    def run(self, work: Callable[..., Any], *arguments: Any) -> list[Any]:
        """Let every rank call ``work(*arguments)``, and return what each returned.

        Raises AssertionError with the traceback of the first rank that failed, or if they do not come to an end.
        """
        if not self._processes:
            self._start()
        for connection in self._connections:
            connection.send((work, arguments))
        answers: dict[int, Any] = {}
        try:
            while len(answers) < self._count:
                rank = self._next(set(range(self._count)) - answers.keys())
                good, answers[rank] = self._answer(rank)
                assert good, f"rank {rank} failed:\n{answers[rank]}"
        except BaseException:
            self.close()  # the others may wait for this rank for good
            raise
        return [answers[rank] for rank in range(self._count)]

    def _next(self, ranks: set[int]) -> int:
        """A rank of these that has answered."""
        for ready in wait([self._connections[rank] for rank in ranks], TIMEOUT):
            return next(rank for rank in ranks if self._connections[rank] is ready)
        raise AssertionError(f"ranks {sorted(ranks)} did not come to an end in {TIMEOUT} s")

    def _answer(self, rank: int) -> tuple[bool, Any]:
        try:
            good, answer = self._connections[rank].recv()
        except EOFError:
            code = self._processes[rank].wait()
            raise AssertionError(f"the process of rank {rank} ended with exit code {code}") from None
        return good, answer

    def close(self) -> None:
        """End the processes."""
        for process in self._processes:
            process.kill()
            process.wait()
        for connection in self._connections:
            connection.close()
        self._processes.clear()
        self._connections.clear()
        if self._folder is not None:
            self._folder.cleanup()


@contextmanager
def two_ranks() -> Iterator[Ranks]:
    """Two ranks on the device that the kit runs on."""
    ranks = Ranks(routes.of_this_process())
    try:
        yield ranks
    finally:
        ranks.close()


def _serve(route: str, rank: str, count: str, place: str) -> None:
    """What a rank's process does: join the group, then one piece of work after the other, as standard input says."""
    connection = Connection(os.dup(0))
    try:
        _join(routes.parse(route), int(rank), int(count), place)
        joined = None
    except BaseException:
        joined = traceback.format_exc()
    while True:
        try:
            work, arguments = connection.recv()
        except EOFError:  # who has started it is gone
            os._exit(0)
        try:
            answer = (True, work(*arguments)) if joined is None else (False, joined)
        except BaseException:
            answer = (False, traceback.format_exc())
        connection.send(answer)


def _join(route: routes.Route, rank: int, count: int, place: str) -> None:
    routes.activate(route)
    import torch
    from torch import distributed

    torch.accelerator.set_device_index(rank % torch.accelerator.device_count())
    distributed.init_process_group(init_method=place, rank=rank, world_size=count, timeout=timedelta(seconds=TIMEOUT))


if __name__ == "__main__":
    _serve(*sys.argv[1:])
