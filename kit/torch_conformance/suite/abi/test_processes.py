"""What the library does to the process it is loaded into: forks, and its end."""

from torch_backend.abi import DeviceLibrary
from torch_conformance import needs
from torch_conformance.promises import promise
from torch_conformance.suite.abi._support import run_child

_EXIT_SECONDS = 6.0


@promise("device_count 3, TB_PLUGIN_ENTRY_NAME 4")
def test_counting_devices_leaves_the_process_able_to_fork(library: DeviceLibrary) -> None:
    """A process that was forked after device_count and before initialize can use the devices."""
    run_child(library, "fork_before_initialize")


def test_a_forked_process_ends(library: DeviceLibrary) -> None:
    """A process that was forked after the devices were used, and leaves them alone, ends; its parent goes on."""
    run_child(library, "fork_after_initialize")


@promise("all calls 13.2")
@needs.capability("ASYNC")
@needs.slot("stream_host_function")
def test_a_process_ends_while_work_is_pending(library: DeviceLibrary) -> None:
    """A process does not wait for its devices when it ends."""
    run_child(library, "exit_while_work_is_pending", timeout=_EXIT_SECONDS)
