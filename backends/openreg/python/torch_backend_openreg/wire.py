"""What goes between a device's driver and its daemon, over sockets: messages, and after some of them raw bytes.

A request is (call, arguments, number of bytes that follow), a reply (status, value). Memory is meant by offsets into
the device's memory. There is a connection for every request under way: one that waits keeps no other from an answer.
"""

import pickle
import socket
import struct
from typing import Any, NamedTuple

_LENGTH = struct.Struct("<Q")

OK = "ok"


class TensorAt(NamedTuple):
    """A strided tensor in device memory, as metadata."""

    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: str


class Closed(ConnectionError):
    """The other side is gone."""


class Channel:
    """One end of a connection. One thread at a time."""

    def __init__(self, connection: socket.socket) -> None:
        """Take the socket, which is closed with this."""
        self._socket = connection

    def send(self, message: Any, payload: memoryview | None = None) -> None:
        """Send a message and then bytes. Raises Closed."""
        data = pickle.dumps(message, pickle.HIGHEST_PROTOCOL)
        try:
            self._socket.sendall(_LENGTH.pack(len(data)) + data)
            if payload is not None:
                self._socket.sendall(payload)
        except OSError as error:
            raise Closed(str(error)) from error

    def receive(self) -> Any:
        """The next message. Raises Closed."""
        (length,) = _LENGTH.unpack(self.receive_bytes(_LENGTH.size))
        return pickle.loads(self.receive_bytes(length))

    def receive_bytes(self, count: int) -> bytearray:
        """The bytes that follow. Raises Closed."""
        data = bytearray(count)
        self.receive_into(memoryview(data))
        return data

    def receive_into(self, target: memoryview) -> None:
        """Fill ``target`` with the bytes that follow a message. Raises Closed."""
        while target:
            try:
                count = self._socket.recv_into(target)
            except OSError as error:
                raise Closed(str(error)) from error
            if count == 0:
                raise Closed("the connection was closed")
            target = target[count:]

    def close(self) -> None:
        """Close this end; the other side then sees the end of the connection."""
        self._socket.close()
