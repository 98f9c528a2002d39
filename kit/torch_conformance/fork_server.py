"""A process that has imported what takes seconds, and forks itself for every Python program that is to be run.

It is started with the descriptor of a socket and code that it runs first, once. :mod:`torch_conformance.fork_client`
asks it for a program, which goes on as ``python [-W WARNING] -c CODE ARGUMENT...`` in the client's folder, with its
environment and its standard streams. It ends when its standard input does, and the programs with it.

A program's first ``import torch`` takes what is there already, and looks for devices as torch does at the end of its
own. What reads the environment when torch loads it, as OpenMP's library does, has read that of the server.
"""

import contextlib
import gc
import importlib.abc
import importlib.machinery
import itertools
import json
import os
import select
import signal
import socket
import sys
import types
import warnings
from typing import Any


class _Imported(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Hides torch until it is imported."""

    def __init__(self) -> None:
        self._hidden = {name: module for name, module in sys.modules.items() if name.partition(".")[0] == "torch"}
        self._spec, self._loader = self._hidden["torch"].__spec__, self._hidden["torch"].__loader__
        for name in self._hidden:
            del sys.modules[name]

    def find_spec(self, fullname: str, path: Any, target: Any = None) -> importlib.machinery.ModuleSpec | None:
        return importlib.machinery.ModuleSpec(fullname, self) if fullname == "torch" else None

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType:
        return self._hidden["torch"]

    def exec_module(self, module: Any) -> None:
        sys.meta_path.remove(self)
        sys.modules.update(self._hidden)
        module.__spec__, module.__loader__ = self._spec, self._loader
        if module._is_device_backend_autoload_enabled():
            module._import_device_backends()


class _Server:
    """Answers clients, until it is itself the fork that runs a program."""

    def __init__(self, listener: int) -> None:
        self._listener = socket.socket(fileno=listener)
        self._programs: dict[socket.socket, int] = {}  # by the client that waits for it
        self._ended, told = os.pipe()
        for end in (self._ended, told):
            os.set_blocking(end, False)
        signal.set_wakeup_fd(told, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda number, frame: None)
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # it is for the programs; the server ends with who has started it

    def request(self) -> dict[str, Any]:
        """What a client has asked for, in the process that was forked for it. The server itself never returns."""
        while True:
            waited: list[Any] = [0, self._ended, self._listener, *self._programs]
            ready, _, _ = select.select(waited, [], [])
            if 0 in ready:
                for program in self._programs.values():
                    os.kill(program, signal.SIGKILL)
                os._exit(0)
            for client in set(ready) & set(self._programs):  # which says no more, but may have been killed
                os.kill(self._programs[client], signal.SIGKILL)
            if self._ended in ready:
                self._tell_of_the_ended()
            if self._listener in ready and (request := self._fork(self._listener.accept()[0])) is not None:
                return request

    def _tell_of_the_ended(self) -> None:
        with contextlib.suppress(BlockingIOError):
            os.read(self._ended, 4096)
        for client, program in list(self._programs.items()):
            pid, status = os.waitpid(program, os.WNOHANG)
            if pid:
                del self._programs[client]
                with contextlib.suppress(OSError):
                    client.sendall(f"{os.waitstatus_to_exitcode(status)}\n".encode())
                client.close()

    def _fork(self, client: socket.socket) -> dict[str, Any] | None:
        said, streams, _, _ = socket.recv_fds(client, 1 << 16, 3)
        while said and not said.endswith(b"\n"):
            more = client.recv(1 << 20)
            said = said + more if more else b""
        if not said:  # it was killed before it had asked
            client.close()
            return None
        program = os.fork()
        if program:
            self._programs[client] = program
            for stream in streams:
                os.close(stream)
            return None
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        for number, stream in enumerate(streams):
            os.dup2(stream, number)
            os.close(stream)
        for mine in (self._listener, client, *self._programs):
            mine.close()
        os.close(self._ended)
        request: dict[str, Any] = json.loads(said)
        return request


def _become(request: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """Make this process what the request asks for; returns the code, and the module that it is to be run in."""
    old = [place for place in os.environ.get("PYTHONPATH", "").split(os.pathsep) if place]
    os.environ.clear()
    os.environ.update(request["environment"])
    os.chdir(request["folder"])
    options, code, sys.argv = _parsed(request["arguments"])
    new = [place for place in os.environ.get("PYTHONPATH", "").split(os.pathsep) if place and place not in old]
    sys.path[:0] = [*([] if "-P" in options else [""]), *new]
    filters = [value for option, value in itertools.pairwise(options) if option == "-W"]
    sys.warnoptions += filters
    warnings._processoptions(filters)  # type: ignore[attr-defined]
    for name, number, mode in (("stdin", 0, "r"), ("stdout", 1, "w"), ("stderr", 2, "w")):
        # A program may print what cannot be encoded, and expects each line at once from stderr alone.
        errors = "backslashreplace" if name == "stderr" else None
        buffering = 1 if name == "stderr" else -1
        stream = open(number, mode, buffering, errors=errors, closefd=False)  # noqa: SIM115  # as long as the process
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)
    if "-u" in options:
        sys.stdout.reconfigure(write_through=True)  # type: ignore[union-attr]
    if "torch" in sys.modules:
        sys.meta_path.insert(0, _Imported())
    main = sys.modules["__main__"] = types.ModuleType("__main__")
    return code, main.__dict__


def _parsed(arguments: list[str]) -> tuple[list[str], str, list[str]]:
    """The options before ``-c``, the code, and what ``sys.argv`` is then."""
    at = arguments.index("-c")
    return arguments[:at], arguments[at + 1], ["-c", *arguments[at + 2 :]]


if __name__ == "__main__":
    if not getattr(sys.flags, "safe_path", False):
        del sys.path[0]  # this file's folder
    _, _listener, _preparation = sys.argv
    exec(_preparation, {"__name__": "preparation"})
    gc.freeze()
    _code, _globals = _become(_Server(int(_listener)).request())
    exec(_code, _globals)
