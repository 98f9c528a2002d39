"""Starts a program in :mod:`torch_conformance.fork_server`, and ends as it does: ``fork_client.py SOCKET ARGUMENT...``.

The arguments are Python's: ``-c CODE`` and what follows it, with ``-u``, ``-P`` and ``-W WARNING`` before it. If this
process is killed, so is the program.
"""

import json
import os
import resource
import signal
import socket
import sys


def main(path: str, arguments: list[str]) -> None:
    """Ask for the program, and wait for it."""
    request = {"arguments": arguments, "environment": dict(os.environ), "folder": os.getcwd()}
    server = socket.socket(socket.AF_UNIX)
    # A socket's address has room for 107 characters, and temporary folders may have longer names.
    folder = os.open(os.path.dirname(path), os.O_RDONLY | os.O_DIRECTORY)
    server.connect(f"/proc/self/fd/{folder}/{os.path.basename(path)}")
    os.close(folder)
    said = json.dumps(request).encode() + b"\n"
    sent = socket.send_fds(server, [said], [0, 1, 2])
    if sent < len(said):  # a program that is killed may be gone by now, and then sending nothing fails too
        server.sendall(said[sent:])
    nothing = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(nothing, stream)  # who reads them learns of the program's end
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the program has it too
    code = int(server.makefile().readline() or 1)
    if code >= 0:
        os._exit(code)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if -code not in (signal.SIGKILL, signal.SIGSTOP):
        signal.signal(-code, signal.SIG_DFL)
    os.kill(os.getpid(), -code)


main(sys.argv[1], sys.argv[2:])
