"""Processes that are ranks of one communicator.

python -m torch_conformance.suite.abi._rank_process FUNCTION LIBRARY
"""

import ctypes
import os
import subprocess
import sys
import threading

from torch_backend.abi import DeviceLibrary, DTypeCode, Status, status_name, tb_dtype
from torch_backend.files import modules
from torch_conformance.suite.abi._child import main
from torch_conformance.suite.abi._ranks import RANKS, Rank, ccl_status, new_unique_id
from torch_conformance.suite.abi._support import expect_bytes, pattern

_MESSAGE_BYTES = 3_000_001
_UNIQUE_ID = "TORCH_BACKEND_TESTING_UNIQUE_ID"
"""The variable that brings the id to rank 1, as hexadecimal digits."""


def exchange_with_another_process(path: str) -> None:
    """Rank 0 starts a process that is rank 1; they send each other messages. Prints a status if that cannot be."""
    library = DeviceLibrary.open(path)
    library.initialize()
    unique_id = new_unique_id(library)
    command = modules.command(__spec__.name, "exchange_as_rank_1", path)
    environment = os.environ | {_UNIQUE_ID: unique_id.raw.hex()}
    other = subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    threading.Thread(target=_end_with, args=(other,), daemon=True).start()
    _exchange(library, 0, unique_id)
    code = other.wait()
    if code != 0:
        sys.exit(f"the process of rank 1 ended with {code}")


def exchange_as_rank_1(path: str) -> None:
    """The other process of exchange_with_another_process. It ends when rank 0 does."""
    threading.Thread(target=_end_with_stdin, daemon=True).start()
    library = DeviceLibrary.open(path)
    library.initialize()
    unique_id = ctypes.create_string_buffer(library.tables["ccl.1"].unique_id_bytes)
    unique_id.raw = bytes.fromhex(os.environ[_UNIQUE_ID])
    _exchange(library, 1, unique_id)


def _exchange(library: DeviceLibrary, number: int, unique_id: "ctypes.Array[ctypes.c_char]") -> None:
    device = library.devices[number % library.device_count]
    comm = ctypes.c_void_p()
    library.bind(device.index)
    status = ccl_status(library, "comm_create", device.index, RANKS, number, unique_id, ctypes.byref(comm))
    if status == Status.UNSUPPORTED or (status != Status.OK and library.device_count < RANKS):
        print(status_name(status), flush=True)
        os._exit(0)
    if status != Status.OK or comm.value is None:
        sys.exit(f"rank {number}: comm_create returned {status_name(status)}: {library.error_text()}")
    rank = Rank(number, device, comm.value)
    for sender in (0, 1):
        with device.allocation(_MESSAGE_BYTES) as address:
            device.write(address, pattern(_MESSAGE_BYTES, seed=sender) if sender == number else bytes(_MESSAGE_BYTES))
            call = rank.send if sender == number else rank.recv
            call(address, _MESSAGE_BYTES, tb_dtype(DTypeCode.UINT, 8, 1))
            device.synchronize()
            data = device.read(address, _MESSAGE_BYTES)
        expect_bytes(data, pattern(_MESSAGE_BYTES, seed=sender), f"what rank {sender} sent, at rank {number}")
    rank.check("comm_destroy", comm)


def _end_with(other: "subprocess.Popen[str]") -> None:
    """End this process when the other one fails, or cannot be a rank: nobody would answer."""
    assert other.stdout is not None
    said = other.stdout.read()
    code = other.wait()
    if code != 0 or said:
        print(said, end="", flush=True)
        os._exit(1 if code else 0)


def _end_with_stdin() -> None:
    while os.read(sys.stdin.fileno(), 1):
        pass
    os._exit(1)


if __name__ == "__main__":
    main(globals())
