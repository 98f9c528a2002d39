"""The services that device libraries are given in a process without torch."""

import ctypes

import pytest

from torch_backend.abi import LogLevel, Status, host, tb_kernel_context, tb_tensor


def fail(code: int, text: bytes, *arguments: object) -> int:
    """host->fail, called as C calls it."""
    address = ctypes.cast(host.services().fail, ctypes.c_void_p).value
    assert address is not None
    function = ctypes.CFUNCTYPE(ctypes.c_int32)(address)
    function.argtypes = None
    return int(function(ctypes.c_int32(code), text, *arguments))


def test_texts_are_formatted_and_taken_once() -> None:
    host.take_error_text()
    assert fail(Status.INTERNAL, b"%s %d", b"device", 7) == Status.INTERNAL
    assert host.take_error_text() == "device 7"
    assert host.take_error_text() == ""


def test_a_later_text_replaces_an_earlier_one_and_may_be_long() -> None:
    fail(Status.INTERNAL, b"first")
    fail(Status.INTERNAL, b"%s", b"x" * 100_000)
    assert host.take_error_text() == "x" * 100_000


def test_the_log_keeps_the_last_lines() -> None:
    host.take_log()
    for number in range(300):
        host.services().log(LogLevel.WARNING, f"line {number}".encode())
    host.services().log(99, b"y" * 5000)
    lines = host.take_log()
    assert len(lines) == 256
    assert lines[-2].text == "line 299"
    assert lines[-2].level is LogLevel.WARNING
    assert (lines[-1].level, len(lines[-1].text)) == (99, 1019)
    assert host.take_log() == []


def test_options_are_those_set_and_else_the_environments(monkeypatch: pytest.MonkeyPatch) -> None:
    option = host.services().option
    assert option(b"bare_a.no-such.key") is None
    monkeypatch.setenv("TORCH_BACKEND_BARE_A_NO_SUCH_KEY", "from the environment")
    assert option(b"bare_a.no-such.key") == b"from the environment"
    monkeypatch.setenv("TORCH_BACKEND_BARE_A_NO_SUCH_KEY", "later")
    assert option(b"bare_a.no-such.key") == b"from the environment", "as it was when first asked for"
    host.set_options("bare_a", {"no-such.key": "set"})
    assert option(b"bare_a.no-such.key") == b"set"


def test_kernels_get_no_memory() -> None:
    context = tb_kernel_context(struct_size=ctypes.sizeof(tb_kernel_context))
    services = host.services()
    assert services.alloc_workspace(ctypes.byref(context), 64, ctypes.byref(ctypes.c_void_p())) == Status.UNSUPPORTED
    assert "this host has no memory for kernels" in host.take_error_text()
    assert services.alloc_output(None, 0, 0, None, ctypes.byref(tb_tensor())) == Status.INVALID_ARGUMENT
    assert "alloc_output works only in a kernel" in host.take_error_text()
