"""Devices with a fault, and what the conformance kit must say of each. A table of test/plugins/faulty.c for the tests.

Another level of the kit, another fault: append a line. The tests check that every fault of faulty.c is listed.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

CRASHED = "crashed while running"
UNUSUAL = (
    "unusual",
    "required_slots_only",
    "stream_alloc",
    "slow",
    "pageable_copies_wait",
    "memory_is_shared",
    "ranks_share_no_device",
)
"""No faults, though faulty.c has them among those: what few devices are like, and the contract allows."""


@dataclass(frozen=True)
class FaultyDevice:
    """One device with a fault.

    Attributes:
        fault: as faulty.c calls it.
        caught_by: the id of a test that must fail, as reports have it.
        words: what its failure must say; CRASHED if the fault ends the process.
        over: the good device that is made faulty; "example" is that of examples/kernels.
        options: the good device's, as environment variables.
        seconds: how long the test may take; several times what it waits for something at most.
    """

    fault: str
    caught_by: str
    words: str
    over: str = "xcpu"
    options: Mapping[str, str] = field(default_factory=dict)
    seconds: float = 40.0

    def __str__(self) -> str:
        """Its fault and the test, without parameters."""
        return f"{self.fault}-{self.caught_by.split('::')[1].partition('[')[0]}"


ASYNC = {"TORCH_BACKEND_XCPU_ASYNC": "1"}
IPC = {"TORCH_BACKEND_XCPU_IPC": "1"}
SLOW = {**ASYNC, "TORCH_BACKEND_XCPU_DELAY_US": "1000"}
CCL = {"TORCH_BACKEND_XCPU_CCL": "1"}
MODULES = {"TORCH_BACKEND_XCPU_MODULES": "1"}
SMALL = {"TORCH_BACKEND_XCPU_MEMORY": "64MiB"}
MANY = {"TORCH_BACKEND_XCPU_DEVICES": "64"}
PROTECTED = {"TORCH_BACKEND_XCPU_PROTECT": "1"}


def _async(fault: str, caught_by: str, words: str) -> FaultyDevice:
    return FaultyDevice(fault, caught_by, words, options=ASYNC)


def _modules(fault: str, caught_by: str, words: str, options: Mapping[str, str] | None = None) -> FaultyDevice:
    return FaultyDevice(fault, f"abi/{caught_by}", words, options={**MODULES, **(options or {})})


def _collectives(fault: str, caught_by: str, words: str) -> FaultyDevice:
    return FaultyDevice(fault, f"abi/test_ccl_{caught_by}", words, options=CCL)


def _order(fault: str, work: str, words: str = "between two copies to its target") -> FaultyDevice:
    return _async(fault, f"abi/test_order.py::{work}", words)


def _rows_of_order(work: str, *faults: str) -> tuple[FaultyDevice, ...]:
    return tuple(_order(fault, f"test_work_takes_its_place_on_its_stream[{work}]") for fault in faults)


def _capture(fault: str, test: str, words: str) -> FaultyDevice:
    return _async(fault, f"abi/test_graph_table.py::{test}", words)


def _add(fault: str, layout: str, words: str, over: str = "xcpu") -> FaultyDevice:
    test = f"abi/test_kernel_table.py::test_pointwise_kernels_compute[aten::add.out-{layout}]"
    return FaultyDevice(fault, test, words, over, ASYNC if over == "xcpu" else {})


FAULTY_DEVICES = (
    # ---- copies ----
    FaultyDevice(
        "copy_drops_the_tail",
        "abi/test_copies.py::test_copies_to_the_device_arrive_whole[4097]",
        "4097 bytes copied from the host to offset 0: 1 of 4097 bytes are wrong, bytes 4096..4096",
        over="fake",
    ),
    FaultyDevice(
        "copy_rounds_the_size_up",
        "abi/test_copies.py::test_copies_within_the_device_arrive_whole[17]",
        "a byte outside of the target was written",
    ),
    FaultyDevice(
        "copy_rounds_addresses",
        "abi/test_copies.py::test_copies_start_at_any_offset[13]",
        "after one byte was written at offset 13",
    ),
    FaultyDevice(
        "copy_goes_the_wrong_way",
        "abi/test_copies.py::test_copies_within_the_device_arrive_whole[4097]",
        "4097 bytes copied within the device from offset 0 to offset 0",
    ),
    FaultyDevice(
        "copy_between_devices_is_skipped",
        "abi/test_peers.py::test_copies_between_devices_arrive_whole[4097]",
        "4097 bytes copied from xcpu:0 to xcpu:1",
    ),
    FaultyDevice(
        "copy_of_unknown_kind_moves",
        "abi/test_copies.py::test_a_copy_of_an_unknown_kind_moves_nothing[77]",
        "memory_copy of kind 77 failed, but had a side effect",
    ),
    FaultyDevice(
        "copy_is_not_ready", "abi/test_errors.py::test_work_is_never_not_ready", "memory_copy returned NOT_READY"
    ),
    FaultyDevice("copy_crashes", "abi/test_copies.py::test_the_source_of_a_copy_is_as_it_was", CRASHED),
    _async(
        "small_copies_overtake",
        "abi/test_streams.py::test_small_work_does_not_overtake_large_work",
        "16 bytes that were copied over the end of a larger copy",
    ),
    FaultyDevice(
        "rows_without_pitch",
        "abi/test_copies_2d.py::test_rows_are_copied_to_the_host[17x33x20x9]",
        "rows (17, 33, 20, 9)",
    ),
    FaultyDevice(
        "rows_of_one_block_are_begun",
        "abi/test_copies_2d.py::test_rows_are_copied_within_one_allocation[apart]",
        "memory_copy_2d within one allocation answered UNSUPPORTED, but",
    ),
    FaultyDevice(
        "rows_of_one_block_are_one_block",
        "abi/test_copies_2d.py::test_rows_are_copied_within_one_allocation[side-by-side]",
        "rows that were copied within one allocation, side-by-side",
    ),
    _async("few_copies_fit", "abi/test_streams.py::test_a_stream_takes_much_work[thousand]", "the queue is full"),
    FaultyDevice("failures_stay", "abi/test_errors.py::test_a_failure_does_not_stay", "an earlier call failed"),
    # ---- fills ----
    FaultyDevice(
        "fill_misses_the_last_byte",
        "abi/test_fills.py::test_fills_repeat_the_pattern[1]",
        "1 of 69 bytes are wrong, bytes 4..4",
    ),
    FaultyDevice(
        "fill_begins_at_the_base",
        "abi/test_fills.py::test_fills_repeat_the_pattern[2]",
        "filled with 2 bytes at offset 6",
    ),
    FaultyDevice(
        "fill_halves_wide_patterns", "abi/test_fills.py::test_fills_repeat_the_pattern[16]", "filled with 16 bytes"
    ),
    _async(
        "fill_reads_the_pattern_late",
        "abi/test_fills.py::test_the_pattern_is_read_before_the_call_returns",
        "a fill whose pattern was overwritten after the call",
    ),
    # ---- memory ----
    FaultyDevice("free_leaks", "abi/test_leaks.py::test_memory_is_not_lost", "the process grew by", over="fake"),
    FaultyDevice(
        "small_blocks_overlap", "abi/test_allocation.py::test_live_memory_is_distinct", "overlap memory of", over="fake"
    ),
    FaultyDevice(
        "blocks_are_misaligned", "abi/test_allocation.py::test_memory_is_aligned[DEVICE]", "are not aligned to 64 bytes"
    ),
    FaultyDevice(
        "memory_stays_full",
        "abi/test_allocation.py::test_memory_is_there_after_a_request_failed",
        "could not be allocated after a request that was too large",
    ),
    FaultyDevice(
        "full_memory_is_internal",
        "abi/test_allocation.py::test_too_large_a_request_is_out_of_memory",
        "returned INTERNAL instead of OUT_OF_MEMORY",
    ),
    FaultyDevice(
        "failures_write_pointers",
        "abi/test_allocation.py::test_too_large_a_request_is_out_of_memory",
        "memory_allocate failed but wrote to out_ptr",
    ),
    FaultyDevice(
        "refused_memory_is_taken",
        "abi/test_errors.py::test_refused_memory_is_not_taken",
        "or more, in each of 6 rounds: a side effect",
    ),
    FaultyDevice(
        "unknown_kinds_are_device_memory",
        "abi/test_errors.py::test_memory_of_an_unknown_kind_is_unsupported[77]",
        "memory_allocate of kind 77 returned OK instead of UNSUPPORTED",
    ),
    FaultyDevice(
        "device_1_aliases_device_0",
        "abi/test_peers.py::test_devices_do_not_share_memory",
        "xcpu:0: after the other devices were written",
    ),
    FaultyDevice(
        "all_memory_is_free",
        "abi/test_memory_info.py::test_allocations_show_in_memory_info",
        "memory_info says that 0 bytes",
    ),
    FaultyDevice(
        "more_is_free_than_there_is",
        "abi/test_memory_info.py::test_free_memory_is_at_most_all_memory",
        "bytes are free",
    ),
    FaultyDevice(
        "only_bases_are_known",
        "abi/test_memory_query.py::test_addresses_of_memory_are_known[DEVICE]",
        "memory_query of offset 1 says kind 3",
    ),
    FaultyDevice(
        "query_overruns",
        "abi/test_memory_query.py::test_the_answer_is_no_longer_than_asked[16]",
        "wrote past the caller's struct",
    ),
    FaultyDevice(
        "everything_is_ours", "abi/test_memory_query.py::test_foreign_addresses_are_unknown", "not TB_MEMORY_UNKNOWN"
    ),
    FaultyDevice(
        "mappings_do_not_nest",
        "abi/test_host_access.py::test_mapped_ranges_nest_and_overlap",
        CRASHED,
        options=PROTECTED,
    ),
    FaultyDevice(
        "threads_get_the_same_block", "abi/test_threads.py::test_threads_use_one_device_at_once", "of 8, turn"
    ),
    FaultyDevice(
        "unregister_fails",
        "abi/test_host_registration.py::test_registered_memory_is_copied",
        "host_unregister failed with INVALID_ARGUMENT",
    ),
    FaultyDevice(
        "access_is_a_bit_mask",
        "abi/test_peers.py::test_peer_access_is_yes_or_no",
        "peer_can_access(0, 1) answered [2, 2]",
    ),
    # ---- addresses, and memory behind them ----
    FaultyDevice(
        "decommits_leak",
        "abi/test_virtual_memory.py::test_neighbours_stay_when_a_part_goes",
        "is committed already",
    ),
    FaultyDevice(
        "commits_clear_the_last",
        "abi/test_virtual_memory.py::test_committed_memory_keeps_its_contents",
        "after more was committed",
    ),
    FaultyDevice(
        "parts_are_allocations",
        "abi/test_virtual_memory.py::test_parts_that_touch_are_one_to_queries",
        "says 4096 bytes",
    ),
    FaultyDevice(
        "reservations_take_memory",
        "abi/test_virtual_memory.py::test_reservations_take_no_memory",
        "could not be reserved",
    ),
    FaultyDevice(
        "reservations_are_misaligned",
        "abi/test_virtual_memory.py::test_reservations_are_aligned_and_distinct",
        "are not aligned to",
    ),
    FaultyDevice(
        "addresses_leak", "abi/test_virtual_memory.py::test_addresses_are_not_lost", "has no room for", seconds=60.0
    ),
    FaultyDevice(
        "decommits_leak",
        "abi/test_virtual_memory.py::test_committed_memory_is_not_lost",
        "is committed already",
    ),
    _async(
        "commits_are_for_the_default_stream",
        "abi/test_virtual_memory.py::test_committed_memory_is_usable_from_every_stream",
        "committed memory at 0",
    ),
    FaultyDevice(
        "commits_are_not_for_peers",
        "abi/test_virtual_memory.py::test_committed_memory_is_for_peers",
        "copied from xcpu",
    ),
    _modules(
        "kernels_of_peers_have_no_commits",
        "test_virtual_memory.py::test_kernels_of_peers_use_committed_memory",
        "that was committed after peer_can_access",
    ),
    FaultyDevice(
        "copies_end_with_a_part",
        "abi/test_virtual_memory.py::test_parts_that_touch_are_one_allocation",
        "written over the border of two parts",
    ),
    FaultyDevice(
        "commits_are_not_for_the_host", "abi/test_virtual_memory.py::test_committed_memory_is_for_the_host", CRASHED
    ),
    FaultyDevice(
        "commits_are_made_one_by_one",
        "abi/test_virtual_memory.py::test_threads_commit_parts_of_one_reservation",
        "the driver is busy",
    ),
    _async(
        "captures_refuse_commits",
        "abi/test_graph_table.py::test_memory_is_committed_during_a_capture[GLOBAL]",
        "no pages while a stream records",
    ),
    # ---- memory that processes share ----
    FaultyDevice(
        "imports_are_copies",
        "abi/test_ipc.py::test_processes_share_memory",
        "xcpu:0: after another process wrote to exported memory",
        options=IPC,
    ),
    FaultyDevice(
        "imports_start_elsewhere",
        "abi/test_ipc.py::test_processes_share_memory",
        "xcpu:0: memory of another process",
        options=IPC,
    ),
    FaultyDevice(
        "closing_wipes_memory",
        "abi/test_ipc.py::test_importing_and_closing_loses_nothing",
        "memory of another process that was imported 200 times",
        options=IPC,
    ),
    FaultyDevice(
        "nothing_is_closed", "abi/test_ipc.py::test_importing_and_closing_loses_nothing", "more mappings", options=IPC
    ),
    FaultyDevice(
        "gone_memory_is_imported",
        "abi/test_ipc.py::test_exported_memory_is_freed",
        "ipc_import of memory that its process has freed returned OK",
        options=IPC,
    ),
    FaultyDevice(
        "gone_memory_is_imported",
        "abi/test_ipc.py::test_memory_of_a_process_that_has_ended",
        "ipc_import of memory of a process that has ended returned OK",
        options=IPC,
    ),
    FaultyDevice(
        "all_handles_are_the_first",
        "abi/test_ipc.py::test_handles_name_their_allocation",
        "one of several allocations of another process",
        options=IPC,
    ),
    # ---- properties and slots ----
    FaultyDevice(
        "properties_change", "abi/test_properties.py::test_properties_stay", "answered differently than before"
    ),
    FaultyDevice(
        "properties_overrun",
        "abi/test_properties.py::test_a_host_of_an_older_version_gets_what_it_knows[112]",
        "wrote past the caller's struct_size of 112",
    ),
    FaultyDevice(
        "alignment_is_odd",
        "abi/test_properties.py::test_properties_are_possible",
        "allocation_alignment_bytes is 96",
    ),
    FaultyDevice(
        "priorities_are_reversed",
        "abi/test_properties.py::test_properties_are_possible",
        "stream_priority_highest is 2 and _lowest -3",
    ),
    FaultyDevice(
        "name_is_not_terminated", "abi/test_properties.py::test_properties_are_possible", "name fills all 64 bytes"
    ),
    FaultyDevice(
        "devices_differ",
        "abi/test_properties.py::test_common_capabilities_are_the_same_on_all_devices",
        "differ in ['HOST_COHERENT']",
    ),
    FaultyDevice(
        "unknown_capabilities",
        "abi/test_properties.py::test_properties_are_possible",
        "capabilities has the bits 0x1000",
    ),
    FaultyDevice(
        "blocks_have_more_items_than_room",
        "abi/test_properties.py::test_properties_are_possible",
        "max_block_items is 1024, and max_block [8, 8, 8] has room for 512",
    ),
    FaultyDevice(
        "preferred_blocks_are_too_large",
        "abi/test_properties.py::test_properties_are_possible",
        "preferred_block_items is 512, more than max_block_items, 256",
    ),
    FaultyDevice(
        "allocations_are_larger_than_memory",
        "abi/test_properties.py::test_properties_are_possible",
        "0 means as much as there is",
    ),
    FaultyDevice(
        "driver_version_is_not_terminated",
        "abi/test_properties.py::test_properties_are_possible",
        "driver_version fills all 64 bytes",
    ),
    FaultyDevice(
        "driver_version_is_no_text",
        "abi/test_properties.py::test_properties_are_possible",
        "driver_version is no UTF-8",
    ),
    FaultyDevice(
        "computes_in_what_it_cannot_store",
        "abi/test_properties.py::test_properties_are_possible",
        "compute_dtype_mask has float64, which dtype_mask does not",
    ),
    FaultyDevice(
        "larger_allocations_succeed",
        "abi/test_allocation.py::test_more_than_one_allocation_may_have_is_out_of_memory",
        "max_allocation_bytes is 1048576, and a request for 1048577 bytes returned OK",
    ),
    FaultyDevice("no_memory_at_all", "abi/test_properties.py::test_properties_are_possible", "total_memory_bytes is 0"),
    _async(
        "graphs_without_table", "abi/test_slots.py::test_graphs_are_declared_with_their_table", "TB_CAP_GRAPH is True"
    ),
    FaultyDevice(
        "uuids_are_equal", "abi/test_properties.py::test_uuids_tell_devices_apart", "two devices have the same uuid"
    ),
    FaultyDevice("device_count_changes", "abi/test_properties.py::test_the_number_of_devices_stays", "and 2 before"),
    _async(
        "timing_without_its_slot",
        "abi/test_slots.py::test_a_capability_has_its_slot[EVENT_TIMING]",
        "TB_CAP_EVENT_TIMING is declared, but the slot event_elapsed is unset",
    ),
    _async(
        "asynchronous_without_wait",
        "abi/test_properties.py::test_properties_are_possible",
        "which needs slots that are not set: stream_wait_event",
    ),
    # ---- streams ----
    _async(
        "synchronize_returns_early",
        "abi/test_streams.py::test_synchronize_waits_for_all_work",
        "stream_synchronize returned while work on the stream was not complete",
    ),
    FaultyDevice(
        "synchronize_hangs",
        "abi/test_streams.py::test_synchronize_waits_for_all_work",
        CRASHED,
        options=ASYNC,
        seconds=2.0,
    ),
    _async(
        "device_synchronize_forgets_streams",
        "abi/test_streams.py::test_device_synchronize_waits_for_all_streams",
        "work on a created stream was not complete",
    ),
    _async(
        "stream_query_waits",
        "abi/test_streams.py::test_a_query_tells_whether_work_is_pending",
        "stream_query blocked until the work on the stream was complete",
    ),
    _async(
        "stream_is_always_idle",
        "abi/test_streams.py::test_a_query_tells_whether_work_is_pending",
        "stream_query says that all is complete, but the stream is held",
    ),
    _async(
        "priorities_are_refused",
        "abi/test_streams.py::test_streams_take_every_priority",
        "stream_create failed with INVALID_ARGUMENT",
    ),
    _async("one_stream_for_all", "abi/test_streams.py::test_many_streams_exist_at_once", "gave the same stream twice"),
    _async("few_streams_exist", "abi/test_streams.py::test_many_streams_exist_at_once", "there are 16 queues"),
    _async(
        "destroyed_stream_drops_work",
        "abi/test_streams.py::test_a_stream_that_is_destroyed_completes_its_work",
        "a copy on a stream that was destroyed",
    ),
    # ---- events ----
    _async(
        "event_completes_early",
        "abi/test_events.py::test_an_event_is_pending_while_the_work_before_it_is",
        "the event is complete, but work that was enqueued before its record is not",
    ),
    _async(
        "event_never_completes",
        "abi/test_events.py::test_an_event_that_was_never_recorded_is_complete",
        "event_query of an event never recorded is NOT_READY",
    ),
    _async(
        "not_ready_is_an_error",
        "abi/test_events.py::test_an_event_is_pending_while_the_work_before_it_is",
        "returned INTERNAL instead of NOT_READY: driver error 600",
    ),
    _async(
        "event_query_waits",
        "abi/test_events.py::test_an_event_is_pending_while_the_work_before_it_is",
        "event_record or event_query blocked",
    ),
    _async(
        "event_synchronize_returns_early",
        "abi/test_events.py::test_event_synchronize_waits_for_the_work_before_it",
        "event_synchronize returned while work before the record was not complete",
    ),
    _async(
        "wait_is_ignored",
        "abi/test_events.py::test_a_stream_waits_for_an_event_of_another",
        "a stream of xcpu:0 did not wait for the event of xcpu:0",
    ),
    _async(
        "wait_is_for_own_events",
        "abi/test_events.py::test_a_stream_waits_for_an_event_of_another_device",
        "a stream of xcpu:1 did not wait for the event of xcpu:0",
    ),
    _async(
        "wait_blocks",
        "abi/test_events.py::test_waiting_for_an_event_does_not_block_the_host",
        "stream_wait_event blocked until the work",
    ),
    _async(
        "only_the_first_record_counts",
        "abi/test_events.py::test_a_second_record_replaces_the_first",
        "a second record replaces the first",
    ),
    _async(
        "destroying_a_pending_event_crashes",
        "abi/test_events.py::test_an_event_may_be_destroyed_while_it_is_pending",
        CRASHED,
    ),
    _async(
        "unknown_flags_are_taken",
        "abi/test_events.py::test_an_event_with_unknown_flags_is_unsupported[0x80]",
        "event_create with flags 0x80 returned OK",
    ),
    _async(
        "elapsed_in_microseconds",
        "abi/test_event_times.py::test_times_are_in_nanoseconds",
        "ns for work of 30000000",
    ),
    _async(
        "elapsed_runs_backwards",
        "abi/test_event_times.py::test_time_does_not_run_backwards",
        "ns from a record to a later one",
    ),
    _async(
        "pending_events_have_times",
        "abi/test_event_times.py::test_the_time_of_a_pending_event_is_not_ready",
        "of a pending event returned OK instead of NOT_READY",
    ),
    _async(
        "unrecorded_events_have_times",
        "abi/test_event_times.py::test_the_time_of_an_event_never_recorded_is_refused",
        "never recorded returned OK, not INVALID_ARGUMENT",
    ),
    _async(
        "destroying_an_event_ends_waits",
        "abi/test_events.py::test_an_event_may_be_destroyed_while_it_is_pending",
        "a stream of xcpu:0 did not wait for the event of xcpu:0",
    ),
    FaultyDevice(
        "events_leak", "abi/test_leaks.py::test_events_are_not_lost", "memory is lost", options=ASYNC, seconds=60.0
    ),
    _async("one_event_for_all", "abi/test_events.py::test_many_events_exist_at_once", "gave the same event twice"),
    # ---- host functions ----
    _async(
        "function_runs_twice",
        "abi/test_host_functions.py::test_host_functions_run_once_and_in_order",
        "50 host functions were called 100 times",
    ),
    _async(
        "function_never_runs",
        "abi/test_host_functions.py::test_host_functions_run_once_and_in_order",
        "50 of 50 host functions were never called",
    ),
    FaultyDevice(
        "function_runs_at_once",
        "abi/test_host_functions.py::test_host_functions_run_after_what_is_before_them",
        "a host function ran before the copy that precedes it",
        options=SLOW,
    ),
    _async(
        "nobody_waits_for_the_function",
        "abi/test_host_functions.py::test_what_follows_a_host_function_waits_for_it",
        "a copy did not wait for the function before it",
    ),
    _async(
        "functions_wait_for_each_other",
        "abi/test_host_functions.py::test_a_host_function_may_block",
        "one on another stream does not run",
    ),
    _async(
        "functions_block_copies",
        "abi/test_host_functions.py::test_a_host_function_may_block",
        "copies on another stream wait for it",
    ),
    _async(
        "functions_run_in_waits",
        "abi/test_host_functions.py::test_host_functions_run_while_the_caller_goes_on",
        "a host function has not run",
    ),
    # ---- threads, processes, hosts ----
    FaultyDevice(
        "current_device_is_shared",
        "abi/test_threads.py::test_a_thread_changes_its_device",
        "threads share their current device",
    ),
    FaultyDevice(
        "threads_cannot_be_bound",
        "abi/test_threads.py::test_a_new_thread_gives_back_what_another_has_made",
        "the thread has no device",
    ),
    FaultyDevice(
        "counting_starts_the_driver",
        "abi/test_processes.py::test_counting_devices_leaves_the_process_able_to_fork",
        "device_count must leave the process able to fork",
    ),
    _async(
        "exit_waits_for_the_device",
        "abi/test_processes.py::test_a_process_ends_while_work_is_pending",
        "the process has not ended",
    ),
    FaultyDevice(
        "texts_are_lost", "abi/test_errors.py::test_failures_come_with_a_reason", "the reason is lost", over="fake"
    ),
    FaultyDevice(
        "texts_are_shared",
        "abi/test_errors.py::test_reasons_are_those_of_the_calling_thread",
        "a thread got the reason of another",
    ),
    FaultyDevice(
        "host_is_read_past_its_end", "abi/test_handshake.py::test_the_host_is_not_read_past_its_size", "ended with -11"
    ),
    FaultyDevice(
        "newer_hosts_are_refused",
        "abi/test_handshake.py::test_a_newer_host_opens_the_library",
        "made for version 1.1 only",
    ),
    FaultyDevice("any_table_is_offered", "abi/test_handshake.py::test_an_unknown_table_is_not_offered", "is not NULL"),
    FaultyDevice(
        "other_majors_crash_it",
        "abi/test_handshake.py::test_a_host_of_another_major_version_gets_an_answer",
        "ended with -6",
    ),
    FaultyDevice(
        "other_majors_get_no_reason",
        "abi/test_handshake.py::test_a_host_of_another_major_version_gets_an_answer",
        "returned NULL and gave no reason",
    ),
    FaultyDevice(
        "vendor_is_missing",
        "abi/test_handshake.py::test_vendor_and_version_are_said",
        "tb_plugin.vendor is NULL",
        over="fake",
    ),
    FaultyDevice(
        "plugin_is_too_long",
        "abi/test_handshake.py::test_struct_sizes_belong_to_the_minor_version",
        "tb_plugin declares 72 bytes, but version 1.1 has 64",
        over="fake",
    ),
    FaultyDevice(
        "option_keys_have_the_name",
        "abi/test_handshake.py::test_option_keys_are_names",
        "option_keys are listed without 'fake.'",
        over="fake",
    ),
    FaultyDevice(
        "tables_move", "abi/test_handshake.py::test_tables_stay_where_they_are", "table('prof.1') was at", over="fake"
    ),
    # ---- kernels ----
    FaultyDevice(
        "kernel_is_listed_twice",
        "abi/test_kernel_table.py::test_operators_are_listed_once",
        "listed twice: aten::sub.out",
        over="example",
    ),
    FaultyDevice(
        "kernel_has_no_function",
        "abi/test_kernel_table.py::test_entries_are_well_formed",
        "entry 0 of kernels (aten::add.out) has no function",
        over="example",
    ),
    FaultyDevice(
        "kernel_name_has_no_namespace",
        "abi/test_kernel_table.py::test_entries_are_well_formed",
        "entry 0 of kernels is called 'add.out'",
        over="example",
    ),
    FaultyDevice(
        "any_kernel_is_found",
        "abi/test_kernel_table.py::test_a_kernel_is_found_under_its_own_name",
        "gave a kernel for b'aten::add.out'",
        over="example",
    ),
    FaultyDevice(
        "kernel_ignores_strides",
        "abi/test_kernel_table.py::test_pointwise_kernels_compute[aten::add.out-transposed]",
        "aten::add.out: element 1 is",
        over="example",
    ),
    # ---- modules ----
    _modules(
        "formats_are_repeated",
        "test_modules.py::test_formats_are_names",
        "module_formats lists a name twice",
    ),
    _modules(
        "modules_cannot_be_unloaded",
        "test_kernel_table.py::test_module_slots_are_set_together",
        "only ['module_formats', 'module_load', 'module_function', 'module_launch'] are set",
    ),
    _modules(
        "the_compiler_is_not_heard",
        "test_modules.py::test_errors_in_the_source_are_told",
        "what the compiler says is not told: 'the build of the program has failed'",
    ),
    _modules(
        "bad_source_is_taken",
        "test_modules.py::test_errors_in_the_source_are_told",
        "module_load returned OK for source that uses an unknown name",
    ),
    _modules(
        "unknown_functions_are_internal",
        "test_modules.py::test_an_unknown_function_is_refused",
        "returned INTERNAL instead of INVALID_ARGUMENT",
    ),
    _modules(
        "names_are_prefixes",
        "test_modules.py::test_an_unknown_function_is_refused",
        "module_function of 'write', which the module does not have, returned OK",
    ),
    _modules(
        "functions_are_global",
        "test_modules.py::test_functions_of_one_name_are_those_of_their_modules",
        "functions of modules 1, 2, 1 wrote [1, 1, 1]",
    ),
    _modules(
        "loads_share_a_place",
        "test_modules.py::test_threads_load_at_once",
        "some wrote another's number",
    ),
    _modules(
        "images_overrun",
        "test_modules.py::test_too_little_room_for_an_image",
        "with room for 1: ",
    ),
    _modules(
        "image_sizes_are_echoed",
        "test_modules.py::test_too_little_room_for_an_image",
        "module_image with room for 1 bytes says that 1 are needed",
    ),
    _modules(
        "bad_images_are_internal",
        "test_modules.py::test_what_is_no_image_is_unsupported",
        "module_load of random bytes as an image returned INTERNAL instead of UNSUPPORTED",
    ),
    _modules(
        "all_images_are_the_first",
        "test_modules.py::test_an_image_is_a_module",
        "the image of module 2 wrote 1",
    ),
    _modules(
        "values_have_eight_bytes",
        "test_module_launches.py::test_values_arrive_whole",
        "a function added up what its values hold to",
    ),
    _modules(
        "pointers_are_rounded",
        "test_module_launches.py::test_pointers_point_anywhere_in_memory[13]",
        "pointers 13 bytes into memory",
    ),
    _modules(
        "null_is_a_buffer",
        "test_module_launches.py::test_null_is_null",
        "a function that was given NULL",
    ),
    _modules(
        "local_memory_overlaps",
        "test_module_launches.py::test_local_memory_is_the_blocks_own",
        "with 1 bytes of local memory, twice",
    ),
    _modules(
        "local_memory_is_small",
        "test_module_launches.py::test_all_local_memory_can_be_used",
        "out of local memory",
    ),
    _modules(
        "grids_are_flat",
        "test_module_launches.py::test_every_item_runs_once_and_knows_where_it_is[1x1x1]",
        "in a grid of (5, 3, 2) blocks",
    ),
    _modules(
        "grids_have_sixteen_bits",
        "test_module_launches.py::test_many_blocks_run",
        "100003 blocks",
    ),
    _modules(
        "values_are_read_late",
        "test_module_launches.py::test_parameters_are_read_before_the_call_returns",
        "a launch whose parameters were overwritten after the call gave",
        ASYNC,
    ),
    _modules(
        "launches_are_on_the_default_stream",
        "test_module_launches.py::test_launches_are_in_the_order_of_their_stream",
        "launches ran before what is on their stream",
        ASYNC,
    ),
    _modules(
        "unloading_drops_launches",
        "test_modules.py::test_a_module_is_unloaded_with_launches_pending",
        "a launch that was pending when its module was unloaded wrote 0",
        ASYNC,
    ),
    _modules(
        "launches_go_with_their_stream",
        "test_modules.py::test_a_module_is_unloaded_with_launches_on_a_stream_that_is_gone",
        "a launch on a stream that was destroyed wrote 0",
        ASYNC,
    ),
    _modules(
        "unloading_ends_captures",
        "test_graph_table.py::test_modules_come_and_go_during_a_capture[RELAXED-same]",
        "module_unload in the same thread during a RELAXED capture: capture_end returned",
        ASYNC,
    ),
    _modules(
        "threads_share_arguments",
        "test_module_launches.py::test_threads_launch_one_function",
        "got mixed up",
    ),
    _modules(
        "few_launches_fit",
        "test_module_launches.py::test_many_launches_are_taken",
        "the ring is full",
        ASYNC,
    ),
    _modules(
        "launches_are_not_recorded",
        "test_graph_table.py::test_recorded_launches_keep_their_parameters",
        "after launches were recorded",
        ASYNC,
    ),
    # ---- graphs, traces, collectives ----
    _async(
        "capture_does_not_stop_work",
        "abi/test_graph_table.py::test_recorded_work_runs_when_it_is_launched[GLOBAL]",
        "after a copy was recorded",
    ),
    _async(
        "graph_runs_once", "abi/test_graph_table.py::test_recorded_work_runs_when_it_is_launched[RELAXED]", "launch 2"
    ),
    _async(
        "streams_do_not_join",
        "abi/test_graph_table.py::test_streams_that_wait_for_recorded_work_are_recorded",
        "a stream that waits for recorded work is not recorded",
    ),
    _async(
        "functions_run_when_recorded",
        "abi/test_graph_table.py::test_host_functions_run_once_a_launch",
        "were called [1, 2, 3] before a launch",
    ),
    _async(
        "recording_streams_are_idle",
        "abi/test_graph_table.py::test_a_capture_fails_with_what_it_forbids[stream_synchronize-GLOBAL]",
        "during a capture stream_synchronize returned OK, but must fail",
    ),
    FaultyDevice("correlation_is_lost", "abi/test_profiler_table.py::test_a_copy_is_traced", "4711 has correlation 0"),
    FaultyDevice(
        "records_are_kept",
        "abi/test_profiler_table.py::test_records_are_handed_out_once",
        "records were handed out twice",
    ),
    FaultyDevice(
        "host_clock_has_the_wrong_unit",
        "abi/test_profiler_table.py::test_clocks_can_be_compared",
        "whose CLOCK_MONOTONIC was",
    ),
    FaultyDevice(
        "the_last_element_is_not_received",
        "abi/test_ccl_table.py::test_what_is_sent_is_received",
        "1 of 1001 bytes are wrong, bytes 1000..1000",
    ),
    FaultyDevice(
        "sums_differ_between_ranks",
        "abi/test_ccl_table.py::test_sums_are_the_same_on_all_ranks",
        "rank 0: the sum of 1001 numbers",
    ),
    FaultyDevice("ids_have_no_bytes", "abi/test_ccl_table.py::test_required_slots_are_set", "unique_id_bytes is 0"),
    _collectives(
        "empty_messages_fail",
        "table.py::test_empty_messages_keep_their_place",
        "send and recv of 0 elements returned INVALID_ARGUMENT, INVALID_ARGUMENT",
    ),
    _collectives(
        "groups_are_forgotten", "table.py::test_messages_cross_in_a_group", "what rank 0 received in the group: 4980"
    ),
    _collectives(
        "other_processes_hear_nothing",
        "table.py::test_ranks_of_two_processes_exchange",
        "what rank 0 sent, at rank 1: 29",
    ),
    _collectives(
        "aborts_are_ignored",
        "failures.py::test_an_abort_ends_pending_calls",
        "the recv has not ended 5 s after comm_abort",
    ),
    _collectives(
        "aborted_calls_succeed",
        "failures.py::test_an_abort_ends_pending_calls",
        "the recv that was aborted reports no failure",
    ),
    _collectives(
        "communicators_are_always_well",
        "failures.py::test_errors_are_reported_when_asked_for",
        "comm_query_error after comm_abort returned OK, OK",
    ),
    _collectives(
        "products_are_sums",
        "collectives.py::test_all_reduce_computes[int64-PRODUCT]",
        "PRODUCT of int64: 750 of 8000 bytes are wrong",
    ),
    _collectives("halves_are_shorts", "collectives.py::test_all_reduce_computes[float16-SUM]", "SUM of float16: "),
    _collectives(
        "sums_have_whole_blocks",
        "collectives.py::test_all_reduce_computes[float64-SUM]",
        "SUM of float64: the bytes behind it: ",
    ),
    _collectives(
        "results_are_cleared_first",
        "collectives.py::test_all_reduce_in_place_of_many",
        "the sum of 700001 numbers, in place",
    ),
    _collectives(
        "all_ranks_are_the_root",
        "collectives.py::test_reduce_gives_the_root_the_result[0-apart]",
        "out of rank 1, which is not the root",
    ),
    _collectives(
        "rank_0_is_the_root",
        "collectives.py::test_broadcast_gives_all_what_the_root_has[1-apart]",
        "rank 0: what rank 1 broadcast",
    ),
    _collectives(
        "parts_are_backwards",
        "collectives.py::test_all_gather_puts_parts_in_order",
        "rank 0: the parts of all ranks",
    ),
    _collectives(
        "all_get_the_first_part",
        "collectives.py::test_reduce_scatter_gives_each_rank_its_part",
        "rank 1: its part of the sum",
    ),
    _collectives(
        "parts_are_packed",
        "collectives.py::test_all_to_all_takes_counts_and_offsets",
        "rank 0: what all sent it",
    ),
    # ---- when work runs ----
    *_rows_of_order("fill", "fills_are_on_the_default_stream", "fills_run_at_once", "fills_are_on_a_loose_thread"),
    *_rows_of_order("rows-within", "rows_are_on_the_default_stream"),
    *_rows_of_order("rows-in", "rows_run_at_once"),
    *_rows_of_order("copy-within", "copies_within_are_on_the_default_stream"),
    _order(
        "copies_between_are_on_the_default_stream",
        "test_copies_between_devices_take_their_place",
        "between two copies to its source",
    ),
    _order("graphs_are_on_the_default_stream", "test_graphs_take_their_place_on_their_stream"),
    _order("graphs_are_on_their_own_stream", "test_graphs_take_their_place_on_their_stream"),
    *(
        FaultyDevice(
            f"{fault}_is_on_the_default_stream",
            f"abi/test_ccl_order.py::test_collectives_take_their_place_on_their_stream[{test}]",
            f"{test} between copies on a created stream",
            options={**CCL, **ASYNC},
        )
        for fault, test in (
            ("send", "send"),
            ("recv", "send"),
            *((slot, slot) for slot in ("all_reduce", "reduce", "broadcast", "all_gather", "reduce_scatter")),
            ("all_to_all", "all_to_all"),
        )
    ),
    _add("kernels_are_on_the_default_stream", "contiguous", "aten::add.out: element 0 is"),
    _add("kernels_run_at_once", "contiguous", "aten::add.out: element 0 is"),
    # ---- events ----
    _async(
        "waits_see_later_records",
        "abi/test_events.py::test_a_wait_is_for_the_record_before_it",
        "did not wait for the event of",
    ),
    _order(
        "event_query_gives_up",
        "test_a_stream_that_is_held_is_pending_however_often_it_is_asked",
        "of event_query says OK, but the stream is held",
    ),
    _order(
        "stream_query_gives_up",
        "test_a_stream_that_is_held_is_pending_however_often_it_is_asked",
        "of stream_query says OK, but the stream is held",
    ),
    _async(
        "synchronize_knows_one_record",
        "abi/test_events.py::test_event_synchronize_waits_for_the_work_before_it",
        "event_synchronize returned while work before the record was not complete",
    ),
    _async(
        "records_are_on_the_default_stream",
        "abi/test_events.py::test_an_event_is_pending_while_the_work_before_it_is",
        "the event is complete, but work that was enqueued before its record is not",
    ),
    _async(
        "waits_are_on_the_default_stream",
        "abi/test_events.py::test_a_stream_waits_for_an_event_of_another",
        "did not wait for the event of",
    ),
    # ---- what a call was given, and what it leaves as it is ----
    FaultyDevice(
        "counts_are_read_late",
        "abi/test_ccl_order.py::test_collectives_take_their_place_on_their_stream[all_to_all]",
        "all_to_all between copies on",
        options=CCL,
    ),
    FaultyDevice(
        "sums_overwrite_their_input",
        "abi/test_ccl_order.py::test_collectives_take_their_place_on_their_stream[all_reduce]",
        "its input afterwards",
        options=CCL,
    ),
    _async(
        "graphs_keep_what_the_host_had",
        "abi/test_graph_table.py::test_recorded_copies_use_what_the_host_has_at_the_launch",
        "launch 1 of a copy from the host, whose memory was written before it",
    ),
    FaultyDevice(
        "registering_clears_memory",
        "abi/test_host_registration.py::test_registered_memory_is_copied",
        "memory that host_register was called for",
    ),
    FaultyDevice(
        "refused_fills_are_written",
        "abi/test_fills.py::test_fills_with_equal_bytes[8]",
        "memory_fill with a pattern of 8 bytes answered UNSUPPORTED, but",
    ),
    FaultyDevice(
        "refused_rows_are_written",
        "abi/test_copies_2d.py::test_rows_are_copied_to_the_device[17x33x20x9]",
        "memory_copy_2d of kind HOST_TO_DEVICE answered UNSUPPORTED, but",
    ),
    _add("kernels_read_arguments_late", "contiguous", "aten::add.out: element 0 is"),
    _add("refused_kernels_are_written", "transposed", "answered UNSUPPORTED, but a tensor"),
    _add("kernels_ignore_offsets", "contiguous", "aten::add.out: element 0 is"),
    _add("kernels_write_their_input", "contiguous", "aten::add.out: an input after the call"),
    _add("kernels_clear_their_output_first", "in-place", "aten::add.out: element 0 is", over="example"),
    # ---- memory, in the order of streams and for the host ----
    _async(
        "new_memory_is_cleared_on_the_default_stream",
        "abi/test_allocation.py::test_new_memory_is_usable_at_once",
        "new memory, written on a created stream while the default stream was held",
    ),
    _async(
        "freed_memory_is_given_out_at_once",
        "abi/test_allocation.py::test_freed_memory_serves_the_work_before",
        "a copy from memory that was freed after it on its stream",
    ),
    FaultyDevice(
        "mapping_shows_nothing",
        "abi/test_host_access.py::test_the_host_loads_what_the_device_holds",
        "what the host loaded",
        options=PROTECTED,
    ),
    FaultyDevice(
        "stores_are_lost",
        "abi/test_host_access.py::test_the_device_sees_what_the_host_stores",
        "after the host stored 100 bytes at offset 77",
        options=PROTECTED,
    ),
    FaultyDevice(
        "fills_are_left_for_later",
        "abi/test_fills.py::test_fills_repeat_the_pattern[1]",
        "filled with 1 bytes at offset",
    ),
    # ---- work after a record ----
    _async(
        "events_are_for_all_of_their_stream",
        "abi/test_events.py::test_later_work_holds_no_event_up",
        "event_query waits for work that was enqueued after event_record",
    ),
    _async(
        "waits_are_for_all_of_a_stream",
        "abi/test_events.py::test_later_work_holds_no_event_up",
        "stream_wait_event waits for work that was enqueued after event_record",
    ),
    _async(
        "devices_share_a_clock",
        "abi/test_event_times.py::test_the_time_between_events_of_two_devices_is_refused",
        "returned OK, not INVALID_ARGUMENT",
    ),
    # ---- captures ----
    *(
        _capture(fault, f"test_a_capture_fails_with_what_it_forbids[{slot}-RELAXED]", words)
        for fault, slot, words in (
            ("recorded_events_are_pending", "event_query", "event_query returned NOT_READY, but must fail"),
            ("recording_streams_are_busy", "stream_query", "stream_query returned NOT_READY, but must fail"),
            ("recorded_events_are_waited_for", "event_synchronize", "event_synchronize returned OK, but must fail"),
            ("events_of_before_are_taken", "stream_wait_event", "stream_wait_event returned OK, but must fail"),
            ("refused_calls_leave_captures", "stream_synchronize", "failed, and capture_end returned OK"),
        )
    ),
    _capture(
        "all_captures_are_for_their_thread",
        "test_unsafe_calls_fail_a_capture_by_its_mode[GLOBAL-other]",
        "device_synchronize in the other thread during a GLOBAL capture returned OK",
    ),
    _capture(
        "all_captures_are_global",
        "test_unsafe_calls_fail_a_capture_by_its_mode[THREAD_LOCAL-other]",
        "device_synchronize in the other thread during a THREAD_LOCAL capture: capture_end returned",
    ),
    _capture(
        "captured_streams_are_not_waited_for",
        "test_what_a_stream_had_before_a_capture_is_waited_for[device_synchronize-captured]",
        "the call came back before the stream's work of before the capture was complete",
    ),
    _capture(
        "captures_refuse_memory",
        "test_memory_is_allocated_during_a_capture[GLOBAL]",
        "no memory while a stream records",
    ),
    _capture(
        "only_the_first_thread_records",
        "test_any_thread_takes_part_in_a_capture[RELAXED]",
        "a launch of a copy that another thread has enqueued during the capture",
    ),
    _capture(
        "captures_end_where_they_began",
        "test_any_thread_takes_part_in_a_capture[RELAXED]",
        "another thread has begun the capture",
    ),
    _capture(
        "destroyed_graphs_do_nothing",
        "test_a_graph_may_be_destroyed_while_it_runs",
        "a launch of a destroyed graph",
    ),
    # ---- threads, traces, and collectives in place ----
    _add("kernels_wait_for_their_stream", "contiguous", "waited for the stream that it was to enqueue its work on"),
    _async(
        "kernels_share_their_arguments",
        "abi/test_kernel_table.py::test_threads_call_one_kernel",
        "aten::add.out: ",
    ),
    FaultyDevice(
        "correlations_are_shared",
        "abi/test_profiler_table.py::test_a_copy_is_traced",
        "a copy under correlation 4711 has correlation 4712",
    ),
    FaultyDevice(
        "records_have_another_clock",
        "abi/test_profiler_table.py::test_a_copy_is_traced",
        "and clock_pair said",
    ),
    _async(
        "records_name_the_default_stream",
        "abi/test_profiler_table.py::test_a_copy_is_traced",
        "names 0x0",
    ),
    _collectives(
        "broadcasts_need_two_buffers",
        "collectives.py::test_broadcast_gives_all_what_the_root_has[0-in-place]",
        "broadcast returned",
    ),
    _collectives(
        "reductions_clear_their_output",
        "collectives.py::test_reduce_gives_the_root_the_result[0-in-place]",
        "the sum at the root, rank 0",
    ),
    # ---- one for each test that no other of these breaks ----
    FaultyDevice(
        "copies_out_drop_the_tail", "abi/test_copies.py::test_copies_to_the_host_arrive_whole[4097]", "4097 bytes"
    ),
    FaultyDevice(
        "rows_within_lack_the_last",
        "abi/test_copies_2d.py::test_rows_are_copied_within_the_device[17x33x20x9]",
        "rows (17, 33, 20, 9)",
    ),
    FaultyDevice(
        "blocks_are_counted_once", "abi/test_allocation.py::test_freed_memory_is_used_again", "no block is left"
    ),
    FaultyDevice(
        "new_memory_clears_the_last",
        "abi/test_allocation.py::test_live_memory_keeps_its_contents",
        "after other memory was written",
    ),
    FaultyDevice(
        "pinned_memory_is_device_memory",
        "abi/test_allocation.py::test_memory_of_the_host_is_read_and_written_by_the_host[HOST]",
        CRASHED,
        options=PROTECTED,
    ),
    FaultyDevice(
        "pinned_memory_is_not_read",
        "abi/test_allocation.py::test_memory_of_the_host_is_copied_to_the_device",
        "a copy from TB_MEMORY_HOST",
    ),
    FaultyDevice(
        "properties_claim_what_is_not_there",
        "abi/test_properties.py::test_a_host_of_a_newer_version_learns_what_was_filled",
        "bytes have a meaning",
    ),
    FaultyDevice(
        "ipc_is_not_declared",
        "abi/test_slots.py::test_ipc_slots_are_declared",
        "TB_CAP_IPC is not declared",
        options=IPC,
    ),
    FaultyDevice(
        "nothing_can_be_mapped",
        "abi/test_slots.py::test_memory_that_is_not_coherent_can_be_mapped",
        "memory_map and memory_unmap are unset",
    ),
    FaultyDevice(
        "nothing_is_unregistered",
        "abi/test_slots.py::test_slots_that_belong_together_are_set_together[host_register-host_unregister]",
        "only host_unregister is unset",
    ),
    FaultyDevice(
        "kernel_takes_no_dtype",
        "abi/test_kernel_table.py::test_masks_hold_dtypes",
        "has a dtype_mask without any dtype",
        over="example",
    ),
    FaultyDevice(
        "kernels_are_only_counted",
        "abi/test_kernel_table.py::test_a_list_with_entries_is_there",
        "num_kernels is not 0, but kernels is NULL",
        over="example",
    ),
    _async(
        "graphs_cannot_be_instantiated",
        "abi/test_graph_table.py::test_all_slots_are_set",
        "these slots are unset: graph_instantiate",
    ),
    _async(
        "streams_never_record",
        "abi/test_graph_table.py::test_a_stream_tells_whether_it_records",
        "stream_is_capturing said 0 before, 0 during",
    ),
    FaultyDevice(
        "everything_is_traced",
        "abi/test_profiler_table.py::test_only_what_was_asked_for_is_traced",
        "only fills were to be traced",
    ),
    FaultyDevice(
        "ids_are_equal", "abi/test_ccl_table.py::test_unique_ids_differ", "unique_id_create gave", options=CCL
    ),
    _async(
        "recorded_fills_are_read_late",
        "abi/test_graph_table.py::test_recorded_fills_keep_their_pattern",
        "a fill that was recorded",
    ),
    FaultyDevice(
        "there_is_no_compiler",
        "abi/test_modules.py::test_source_is_compiled[c++]",
        "no compiler is installed",
        options=MODULES,
    ),
    FaultyDevice(
        "images_have_no_image",
        "abi/test_modules.py::test_an_image_of_an_image",
        "the program was not compiled here",
        options=MODULES,
    ),
    _async(
        "events_complete_when_waited_for",
        "abi/test_events.py::test_an_event_completes_with_the_work_before_it",
        "s after the work before it",
    ),
    _async(
        "waits_know_one_record",
        "abi/test_events.py::test_who_waits_for_the_second_record_gets_the_second",
        "after the second record",
    ),
    _async(
        "copies_out_are_on_the_default_stream",
        "abi/test_streams.py::test_work_on_one_stream_runs_in_order",
        "on one stream",
    ),
    _async(
        "copies_are_on_the_first_stream",
        "abi/test_streams.py::test_a_held_stream_does_not_change_what_another_does",
        "copies beside a held stream",
    ),
    FaultyDevice(
        "refused_copies_are_made",
        "abi/test_peers.py::test_a_refused_copy_between_devices_moves_nothing",
        "after memory_copy of TB_COPY_PEER answered UNSUPPORTED",
    ),
    _async(
        "streams_are_made_one_by_one",
        "abi/test_threads.py::test_threads_create_and_destroy_streams_and_events",
        "the driver is busy",
    ),
    _async("streams_take_one_thread", "abi/test_threads.py::test_threads_share_a_stream", "the driver is busy"),
    FaultyDevice(
        "one_device_works_at_a_time",
        "abi/test_threads.py::test_threads_use_different_devices_at_once",
        "the driver is busy",
    ),
    FaultyDevice(
        "memory_belongs_to_its_thread",
        "abi/test_threads.py::test_memory_is_freed_by_another_thread",
        "was not allocated by this thread",
    ),
    FaultyDevice(
        "memory_stays_full",
        "abi/test_allocation.py::test_memory_is_there_after_it_ran_out",
        "could not be allocated after memory ran out and was freed",
        options=SMALL,
        seconds=60.0,
    ),
    FaultyDevice(
        "commits_are_internal_when_full",
        "abi/test_virtual_memory.py::test_full_memory_is_out_of_memory",
        "is reported as INTERNAL instead of OUT_OF_MEMORY",
        options=SMALL,
        seconds=60.0,
    ),
    FaultyDevice(
        "copies_within_a_block_are_skipped",
        "abi/test_copies.py::test_copies_within_one_allocation",
        "copied to the other half",
    ),
    FaultyDevice(
        "large_copies_lack_the_rest",
        "abi/test_copies.py::test_large_copies_arrive_whole",
        "did not arrive whole: 5 of 67108869 bytes are wrong",
        seconds=60.0,
    ),
    _async(
        "few_functions_are_kept",
        "abi/test_host_functions.py::test_host_functions_of_many_streams_all_run",
        "host functions were called",
    ),
    FaultyDevice(
        "kernels_change",
        "abi/test_kernel_table.py::test_entries_stay_as_they_are",
        "the list of kernels changed",
        over="example",
    ),
    FaultyDevice(
        "kernel_table_is_too_long",
        "abi/test_kernel_table.py::test_the_table_has_its_size",
        "tb_kernel_table declares",
        over="example",
    ),
    FaultyDevice(
        "refusals_leak", "abi/test_leaks.py::test_queries_and_failures_leave_nothing", "memory is lost", seconds=60.0
    ),
    FaultyDevice(
        "streams_leak", "abi/test_leaks.py::test_streams_are_not_lost", "memory is lost", options=ASYNC, seconds=60.0
    ),
    _modules(
        "blocks_are_smaller_than_they_say",
        "test_module_launches.py::test_the_largest_block_runs",
        "module_launch failed with",
    ),
    _modules(
        "buffers_are_bound_once",
        "test_module_launches.py::test_two_pointers_into_one_allocation",
        "two pointers into one allocation",
    ),
    _modules(
        "unloaded_modules_come_back",
        "test_modules.py::test_modules_come_and_go",
        "the function of module 4 wrote 3",
    ),
    FaultyDevice("ranges_do_not_nest", "abi/test_profiler_table.py::test_ranges_nest", "a range is open"),
    FaultyDevice(
        "traces_do_not_stop",
        "abi/test_profiler_table.py::test_required_slots_are_set",
        "these slots are unset: trace_stop",
    ),
    _async(
        "only_device_0_has_a_default_stream",
        "abi/test_streams.py::test_every_device_has_its_own_default_stream",
        "xcpu:1: on its default stream",
    ),
    _async(
        "copies_out_are_not_waited_for",
        "abi/test_streams.py::test_synchronize_makes_copies_visible",
        "stream_synchronize returned before 4194304 bytes were copied",
    ),
    # ---- everything in one queue, and copies of ordinary memory that wait ----
    _async(
        "everything_is_on_the_default_stream",
        "abi/test_host_functions.py::test_a_host_function_may_block",
        "one on another stream does not run",
    ),
    *(
        _async(f"{fault}_and_pageable_copies_wait", f"abi/{caught_by}", words)
        for fault, caught_by, words in (
            ("waits_are_ignored", "test_events.py::test_a_stream_waits_for_an_event_of_another", "did not wait for"),
            ("fills_run_at_once", "test_order.py::test_work_takes_its_place_on_its_stream[fill]", "fill between"),
            (
                "rows_run_at_once",
                "test_order.py::test_work_takes_its_place_on_its_stream[rows-in]",
                "rows-in between",
            ),
            (
                "small_copies_overtake",
                "test_streams.py::test_small_work_does_not_overtake_large_work",
                "16 bytes that were copied over",
            ),
            (
                "waits_know_one_record",
                "test_events.py::test_who_waits_for_the_second_record_gets_the_second",
                "after the second record",
            ),
        )
    ),
    # ---- what also shows through torch ----
    _async(
        "copies_are_waited_for",
        "async_/test_one_stream.py::test_enqueuing_returns_before_the_work_is_done",
        "400 ms of copies were done when the last was enqueued",
    ),
    _async(
        "event_completes_early",
        "async_/test_pinned_memory.py::test_freed_sources_are_not_overwritten",
        "read memory that later copies had taken over",
    ),
    _async(
        "wait_is_ignored",
        "async_/test_autograd.py::test_a_prefetching_training_loop",
        "weights differ from those of batches in turn",
    ),
    _async(
        "wait_is_for_own_events",
        "async_/test_devices.py::test_a_stream_waits_for_another_device",
        "did not wait for an event of device 0",
    ),
    _async(
        "only_the_first_record_counts",
        "async_/test_events.py::test_an_event_recorded_again_means_the_later_point",
        "did not replace the one before",
    ),
    _async(
        "synchronize_returns_early",
        "async_/test_one_stream.py::test_synchronizing_completes_everything",
        "returned before a copy to the host was done",
    ),
    _async(
        "stream_is_always_idle",
        "async_/test_one_stream.py::test_a_query_that_says_done_is_right",
        "query() was True before",
    ),
    _async(
        "device_synchronize_forgets_streams",
        "async_/test_streams.py::test_synchronizing_the_device_waits_for_every_stream",
        "synchronize() returned before the work on stream",
    ),
    _async(
        "small_copies_overtake",
        "async_/test_one_stream.py::test_copies_of_any_size_come_in_order[64-bytes]",
        "after a fill and a copy of 64 bytes",
    ),
    _async(
        "memory_stays_full",
        "async_/test_memory_limits.py::test_more_than_the_device_has",
        "out of memory",
    ),
    FaultyDevice(
        "copy_between_devices_is_skipped",
        "tensor/test_copies_of_any_kind.py::test_any_copy",
        "in the storage are wrong",
        seconds=60.0,
    ),
    FaultyDevice(
        "copy_drops_the_tail", "tensor/test_dtypes.py::test_bits_survive[float32]", "the bytes of torch.float32"
    ),
    FaultyDevice(
        "imports_are_copies",
        "tensor/test_other_processes.py::test_both_processes_see_what_one_writes",
        "after another process wrote to a part that was sent",
        options=IPC,
        seconds=60.0,
    ),
    FaultyDevice(
        "all_handles_are_the_first",
        "tensor/test_other_processes.py::test_tensors_are_told_apart",
        "shows other values in another process",
        options=IPC,
        seconds=60.0,
    ),
)
